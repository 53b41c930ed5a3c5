//! What the demo has set up, and how it is taken down again whatever happened.

use std::time::Duration;

use hearth_client::{Client, ListRuns, Options, Page, Repeat, RetryPolicy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::census::{self, Process};
use super::checks::Checks;
use super::folder::Folder;
use super::replica::{Address, Replica};
use super::telling::Telling;
use super::trouble::Trouble;

/// For a replica to serve after its start.
const START: Duration = Duration::from_secs(30);
/// For what was closed to be gone from the machine.
const GONE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct Stage {
    pub folder: Folder,
    pub address: Address,
    pub client: Client,
    pub telling: Telling,
    pub replica: Option<Replica>,
    /// Sandbox sessions that the demo has seen.
    pub sessions: Vec<String>,
    keep: bool,
    /// Whether the replica has served since this demo began.
    served: bool,
    /// Processes that carried our marks before the demo began: a shell in that folder, for one.
    before: Vec<i32>,
}

impl Stage {
    pub fn set(folder: Folder, telling: Telling, keep: bool) -> Result<Self, Trouble> {
        let address = Address::fresh().map_err(|error| Trouble::Here(format!("no free port: {error}")))?;
        let retry = RetryPolicy { first_contact: START, outage: START, max_delay: Duration::from_millis(500) };
        let mut options = Options { retry, ..Options::new(address.url(), Some(address.token.clone())) };
        let told = telling.clone();
        options.on_repeat = Some(std::sync::Arc::new(move |repeat: &Repeat| {
            if repeat.attempts == 1 && repeat.call.ends_with("/send") {
                told.note("the connection of the blocked `send` broke; it repeats with its idempotency key");
            }
        }));
        let client = Client::new(options).map_err(Trouble::call("making a client"))?;
        let mut stage = Self {
            folder,
            address,
            client,
            telling,
            replica: None,
            sessions: Vec::new(),
            keep,
            served: false,
            before: Vec::new(),
        };
        stage.before = stage.processes().iter().map(|process| process.pid).collect();
        Ok(stage)
    }

    /// Starts the replica, and returns once it serves.
    pub async fn start_replica(&mut self) -> Result<(), Trouble> {
        // Kept before it is waited for: whoever gives this up half-way still knows what to take down.
        let replica = self.replica.insert(Replica::start(&self.folder, &self.address, self.keep)?);
        let ended = async {
            loop {
                if let Some(status) = replica.ended() {
                    break status;
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        let status = tokio::select! {
            ready = self.client.ready() => {
                ready.map_err(Trouble::call("waiting for the replica"))?;
                self.served = true;
                return Ok(());
            }
            status = ended => status,
        };
        Err(Trouble::Here(format!("the replica ended at its start ({status}): {}", self.folder.last_words())))
    }

    pub fn pid(&self) -> Option<i32> {
        self.replica.as_ref().map(Replica::pid)
    }

    /// Sandbox sessions of a run tree, or of all.
    pub async fn sandboxes(&self, root_run: Option<&str>) -> Result<Vec<Value>, Trouble> {
        let doing = "listing the sandboxes";
        let mut list = self.client.list_sandboxes(&Page::default()).await.map_err(Trouble::call(doing))?;
        let Value::Array(mut rows) = list["sandboxes"].take() else {
            return Err(Trouble::answer(doing, "no list"));
        };
        rows.retain(|row| root_run.is_none_or(|root| row["root_run_id"] == root));
        Ok(rows)
    }

    /// Processes of the demo's sandboxes.
    pub fn processes(&self) -> Vec<Process> {
        let mut marks = self.sessions.clone();
        // With the slash: another demo's folder beside this one begins with the same letters.
        marks.push(format!("{}/", self.folder.path().display()));
        let known: Vec<i32> = self.before.iter().copied().chain(self.pid()).collect();
        census::processes(&marks, &known)
    }

    pub async fn containers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for session in &self.sessions {
            found.extend(census::containers(session).await.unwrap_or_default());
        }
        found
    }

    /// Waits until neither a process nor a container is left; what is left if that does not come.
    pub async fn remains(&self) -> Vec<String> {
        let began = Instant::now();
        loop {
            let processes = self.processes();
            let mut left: Vec<String> =
                processes.iter().map(|process| format!("process {} ({})", process.pid, process.command)).collect();
            left.extend(self.containers().await.into_iter().map(|name| format!("container {name}")));
            if left.is_empty() || began.elapsed() > GONE {
                return left;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Closes every run tree that is still alive. How many there were.
    pub async fn close_all(&self) -> Result<usize, Trouble> {
        let doing = "closing what is left";
        let mut closed = 0;
        for state in [hearth_types::RunState::Running, hearth_types::RunState::AwaitingInput] {
            let filter = ListRuns { state: Some(state), limit: Some(500), ..ListRuns::default() };
            let list = self.client.list_runs(&filter).await.map_err(Trouble::call(doing))?;
            for row in list["runs"].as_array().into_iter().flatten().filter(|row| row["parent_run_id"].is_null()) {
                let run = row["run_id"].as_str().unwrap_or_default();
                self.client.close(run, Some("the demo ends")).await.map_err(Trouble::call(doing))?;
                closed += 1;
            }
        }
        Ok(closed)
    }

    /// Takes everything down. Checks that it is gone.
    pub async fn strike(&mut self, checks: &mut Checks, keep_log: bool) {
        let telling = self.telling.clone();
        let busy = telling.busy("tidying up");
        if let Err(trouble) = self.close_runs().await {
            checks.that(&telling, false, "what was open can be closed", &trouble.to_string());
        }
        if let Some(mut replica) = self.replica.take() {
            let good_order = replica.stop().await;
            // One that never served has told its trouble already.
            if self.served {
                checks.that(&telling, good_order, "the replica ended when it was asked to", "");
            }
        }
        let left = self.remains().await;
        self.remove(&left).await;
        let tidied = self.folder.tidy(keep_log);
        drop(busy);
        let detail = match &tidied {
            Ok(()) => left.join(", "),
            Err(error) => format!("{} {error}", left.join(", ")),
        };
        let claim = "no process, container or temporary file is left";
        checks.that(&telling, left.is_empty() && tidied.is_ok(), claim, &detail);
    }

    /// Closes what is open, for which a replica that is down has to be up once more: only it knows.
    async fn close_runs(&mut self) -> Result<(), Trouble> {
        let Some(replica) = &mut self.replica else { return Ok(()) };
        if replica.ended().is_some() && self.served {
            self.start_replica().await?;
        }
        if self.served { self.close_all().await.map(drop) } else { Ok(()) }
    }

    /// The last resort for what should have been gone: it is the demo's, and nobody else will.
    async fn remove(&self, left: &[String]) {
        if left.is_empty() {
            return;
        }
        for process in self.processes() {
            if let Some(pid) = Pid::from_raw(process.pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        for name in self.containers().await {
            census::remove_container(&name).await;
        }
    }
}
