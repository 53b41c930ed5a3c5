//! What all callers share: the replicas, the results, and what has to be closed in the end.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use hearth_client::{Client, Error as CallError, ListRuns, OpenResident, Send};
use tokio::time::Instant;

use super::options::Plan;
use super::record::{Moments, Recorder};
use crate::Error;
use crate::floors::filler;
use crate::processes::client;
use crate::stop::Stop;

/// Residents that are opened or closed at once, before and after the load.
const WIDTH: usize = 32;
/// A caller that finds nobody there does not ask again at once: its failures would be all that is measured.
const BREATH: Duration = Duration::from_millis(100);
/// How long the closing may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub clients: Vec<Client>,
    pub recorder: Recorder,
    filler: String,
    turn_ms: u64,
    next: AtomicU64,
    calls: AtomicU64,
    max_calls: u64,
    opened: Mutex<BTreeSet<String>>,
    stop: Stop,
}

impl World {
    pub(super) fn new(plan: &Plan, stop: Stop) -> Result<Self, Error> {
        let token = plan.token.clone().unwrap_or_default();
        let clients = plan.urls.iter().map(|url| client(url, &token)).collect::<Result<_, _>>()?;
        Ok(Self {
            clients,
            recorder: Recorder::default(),
            filler: filler(plan.prompt_bytes),
            turn_ms: plan.turn_ms,
            next: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            max_calls: plan.max_calls,
            opened: Mutex::default(),
            stop,
        })
    }

    /// Asks each target whether it is there and knows the token: with neither, all of a run would be failures.
    pub(super) async fn reach(&self) -> Result<(), Error> {
        for client in &self.clients {
            client.list_residents(&ListRuns { limit: Some(1), ..ListRuns::default() }).await?;
        }
        Ok(())
    }

    /// Whether one more round may begin.
    pub(super) fn admit(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) < self.max_calls
    }

    /// The next replica in turns.
    pub(crate) fn replica(&self) -> &Client {
        let next = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        &self.clients[next % self.clients.len()]
    }

    /// What a turn of this number outputs: no two are the same.
    pub(crate) fn output(&self, number: u64) -> String {
        let mark = format!("{number:016x}");
        format!("{mark}{}", self.filler.get(mark.len()..).unwrap_or_default())
    }

    /// The prompt that leads to it.
    pub(crate) fn prompt(&self, number: u64) -> String {
        if self.turn_ms == 0 {
            return self.output(number);
        }
        serde_json::json!({ "mock": { "latency_ms": self.turn_ms, "output": self.output(number) } }).to_string()
    }

    /// Makes a call and keeps what became of it under the operation's name.
    pub(crate) async fn timed<T>(
        &self,
        operation: &'static str,
        intended: Instant,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Option<T> {
        let began = Instant::now();
        let result = call.await;
        let moments = Moments { intended, began, ended: Instant::now() };
        match result {
            Ok(value) => {
                self.recorder.record(operation, moments, None);
                Some(value)
            }
            Err(error) => {
                self.recorder.record(operation, moments, Some(&code_of(&error)));
                breathe(&error).await;
                None
            }
        }
    }

    /// A `send` whose output must be the one that was asked for.
    pub(crate) async fn send(
        &self,
        operation: &'static str,
        client: &Client,
        resident: &str,
        number: u64,
        intended: Instant,
    ) {
        let request = Send { prompt: self.prompt(number), ..Send::default() };
        let began = Instant::now();
        let answer = client.send(resident, &request).await;
        let moments = Moments { intended, began, ended: Instant::now() };
        let failed = match &answer {
            Ok(answer) if answer.body.output == self.output(number) => None,
            Ok(_) => Some("wrong_answer".to_owned()),
            Err(error) => Some(code_of(error)),
        };
        self.recorder.record(operation, moments, failed.as_deref());
        if let Err(error) = &answer {
            breathe(error).await;
        }
    }

    /// Opens residents before the load, on the replicas in turns.
    pub(crate) async fn open_many(&self, count: usize) -> Result<Vec<String>, Error> {
        let opening = (0..count).map(async |number| self.open_on(&self.clients[number % self.clients.len()]).await);
        let opened: Vec<Result<String, Error>> = stream::iter(opening).buffered(WIDTH).collect().await;
        opened.into_iter().collect()
    }

    pub(crate) async fn open_on(&self, client: &Client) -> Result<String, Error> {
        self.open_below(client, None).await
    }

    /// Opens none once the end was asked for; one that is under way then is waited for.
    pub(crate) async fn open_below(&self, client: &Client, parent: Option<String>) -> Result<String, Error> {
        if self.stop.asked() {
            return Err(Error::Interrupted);
        }
        let request = OpenResident {
            agent: "mock".to_owned(),
            prompt: "begin".to_owned(),
            parent_run_id: parent,
            ..OpenResident::default()
        };
        let id = client.open(&request).await?.body.run_id.to_string();
        self.opened(&id);
        Ok(id)
    }

    /// Remembers a run that has to be closed in the end.
    pub(crate) fn opened(&self, run: &str) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned());
    }

    pub(crate) fn closed(&self, run: &str) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }

    /// Closes what is still open; says what could not be closed.
    pub(super) async fn close_all(&self) {
        let left = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        let count = left.len();
        let close = async |run: String| self.replica().close(&run, Some("the load test is over")).await.is_ok();
        let closing = stream::iter(left.into_iter().map(close)).buffer_unordered(WIDTH);
        let closed = tokio::time::timeout(CLOSE_WITHIN, closing.filter(|closed| std::future::ready(*closed)).count());
        let closed = closed.await.unwrap_or(0);
        if closed < count {
            eprintln!("{} of {count} residents could not be closed; their idle time closes them", count - closed);
        }
    }
}

/// Waits a moment after a call that nobody answered.
pub(crate) async fn breathe(error: &CallError) {
    if matches!(error, CallError::Unreachable(_)) {
        tokio::time::sleep(BREATH).await;
    }
}

/// The contract's code, or what kind of silence it was.
pub(crate) fn code_of(error: &CallError) -> String {
    match error {
        CallError::Api(error) => error.code.clone(),
        CallError::Unreachable(_) => "unreachable".to_owned(),
        CallError::Protocol(_) => "outside_the_contract".to_owned(),
    }
}
