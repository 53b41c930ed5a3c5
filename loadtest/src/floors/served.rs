//! The way of a `send` without Hearth: an HTTP server, a NATS hop to another process where there is one,
//! the appends, and an event back. Each part is a process of its own, as with Hearth.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use clap::{Args, ValueEnum};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::jetstream::{BareJetStream, nats};
use super::sqlite::BareSqlite;
use super::{Payload, filler};
use crate::Error;
use crate::processes::{Program, tied};

/// What a floor does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FloorKind {
    /// Answers.
    Echo,
    /// Makes the two commits of a turn in SQLite, then answers.
    Sqlite,
    /// Makes the two appends of a turn in JetStream, then answers.
    Local,
    /// Asks an `owner` over NATS, waits for its event, then answers.
    Gateway,
    /// Is asked over NATS: appends, answers, appends, tells by an event. Serves no HTTP.
    Owner,
}

/// Serve one floor until it is ended: the bare work of a `send`, for comparison
#[derive(Debug, Args)]
pub struct FloorArgs {
    /// What to do with a request
    kind: FloorKind,
    /// The file of `sqlite`; it must not be there yet
    #[arg(long, value_name = "FILE", default_value = "floor.db")]
    file: PathBuf,
    /// The NATS servers, for `local`, `gateway` and `owner`
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222")]
    nats: String,
    #[command(flatten)]
    payload: Payload,
}

#[derive(Debug, Serialize, Deserialize)]
struct Told {
    port: u16,
}

/// Serves; tells its port in one line of JSON.
pub async fn serve_floor(args: FloorArgs) -> Result<(), Error> {
    let answer = filler(args.payload.answer);
    let work = match args.kind {
        FloorKind::Echo => Work::Echo,
        FloorKind::Sqlite => Work::Sqlite(BareSqlite::open(&args.file, args.payload)?, Logs::default()),
        FloorKind::Local => Work::Local(BareJetStream::connect(&args.nats, args.payload).await?, Logs::default()),
        FloorKind::Gateway => Work::Gateway(Gateway::connect(&args.nats).await?),
        FloorKind::Owner => {
            let owner = BareJetStream::connect(&args.nats, args.payload).await?;
            return serve_owner(&args.nats, owner).await;
        }
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(Error::io("a port"))?;
    let port = listener.local_addr().map_err(Error::io("a port"))?.port();
    println!("{}", serde_json::to_string(&Told { port })?);
    let floor = Arc::new(Floor { work, answer });
    // The log that a request is for is its path: two of one log never meet.
    let app = Router::new().route("/{log}", post(turn)).with_state(floor);
    axum::serve(listener, app).await.map_err(Error::io("the floor's server"))
}

struct Floor {
    work: Work,
    answer: String,
}

enum Work {
    Echo,
    /// With the turns of each log so far.
    Sqlite(BareSqlite, Logs),
    Local(BareJetStream, Logs),
    Gateway(Gateway),
}

/// Where each log stands.
#[derive(Default)]
struct Logs(Mutex<HashMap<u64, u64>>);

impl Logs {
    fn last(&self, log: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&log).copied().unwrap_or(0)
    }

    fn set(&self, log: u64, last: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(log, last);
    }
}

async fn turn(
    State(floor): State<Arc<Floor>>,
    axum::extract::Path(log): axum::extract::Path<u64>,
    body: Bytes,
) -> Result<String, StatusCode> {
    let done = match &floor.work {
        Work::Echo => Ok(()),
        Work::Sqlite(file, logs) => {
            let turn = logs.last(log);
            logs.set(log, turn + 1);
            file.turn(log, turn).await
        }
        Work::Local(journal, logs) => local_turn(journal, logs, log).await,
        Work::Gateway(gateway) => gateway.turn(log, body).await,
    };
    match done {
        Ok(()) => Ok(floor.answer.clone()),
        Err(error) => {
            eprintln!("the floor: {error}");
            Err(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

async fn local_turn(journal: &BareJetStream, logs: &Logs, log: u64) -> Result<(), Error> {
    let accepted = journal.append(log, logs.last(log), true).await?;
    logs.set(log, journal.append(log, accepted, false).await?);
    Ok(())
}

/// The asking side of the hop.
struct Gateway {
    client: async_nats::Client,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>,
}

impl Gateway {
    async fn connect(url: &str) -> Result<Self, Error> {
        let client = async_nats::connect(url).await.map_err(nats)?;
        let mut events = client.subscribe("floor-event.*").await.map_err(nats)?;
        let waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>> = Arc::default();
        let told = waiting.clone();
        #[allow(clippy::disallowed_methods, reason = "it lives as long as the program")]
        drop(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let log = event.subject.rsplit('.').next().and_then(|text| text.parse().ok());
                let waiter = log.and_then(|log: u64| told.lock().unwrap_or_else(PoisonError::into_inner).remove(&log));
                if let Some(waiter) = waiter {
                    waiter.send(()).ok();
                }
            }
        }));
        Ok(Self { client, waiting })
    }

    async fn turn(&self, log: u64, body: Bytes) -> Result<(), Error> {
        let (done, ended) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(log, done);
        self.client.request(format!("floor-command.{log}"), body).await.map_err(nats)?;
        ended.await.map_err(nats)
    }
}

async fn serve_owner(url: &str, journal: BareJetStream) -> Result<(), Error> {
    let client = async_nats::connect(url).await.map_err(nats)?;
    let mut commands = client.subscribe("floor-command.*").await.map_err(nats)?;
    client.flush().await.map_err(nats)?;
    println!("{}", serde_json::to_string(&Told { port: 0 })?);
    let logs = Arc::new(Logs::default());
    let mut working = tokio::task::JoinSet::new();
    while let Some(command) = commands.next().await {
        let (client, journal, logs) = (client.clone(), journal.clone(), logs.clone());
        working.spawn(async move {
            if let Err(error) = answer(&client, &journal, &logs, command).await {
                eprintln!("the floor: {error}");
            }
        });
        while working.try_join_next().is_some() {}
    }
    Ok(())
}

async fn answer(
    client: &async_nats::Client,
    journal: &BareJetStream,
    logs: &Logs,
    command: async_nats::Message,
) -> Result<(), Error> {
    let log = command.subject.rsplit('.').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let accepted = journal.append(log, logs.last(log), true).await?;
    if let Some(reply) = command.reply {
        client.publish(reply, command.payload.clone()).await.map_err(nats)?;
    }
    logs.set(log, journal.append(log, accepted, false).await?);
    client.publish(format!("floor-event.{log}"), command.payload).await.map_err(nats)
}

/// Where a floor stores what it appends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored<'a> {
    Nowhere,
    InFile(&'a Path),
    OnNats(&'a str),
}

/// A floor that serves, in a process of its own.
#[derive(Debug)]
pub(crate) struct FloorServer {
    _program: Program,
    url: String,
    http: reqwest::Client,
    request: String,
}

impl FloorServer {
    pub(crate) async fn start(
        kind: FloorKind,
        stored: Stored<'_>,
        payload: Payload,
        log: &Path,
    ) -> Result<Self, Error> {
        let mut command = tied(&std::env::current_exe().map_err(Error::io("this program"))?);
        let name = serde_json::to_value(kind)?;
        command.args(["floor", name.as_str().unwrap_or_default()]);
        for (flag, bytes) in [
            ("--request", payload.request),
            ("--answer", payload.answer),
            ("--accept", payload.accept),
            ("--end", payload.end),
            ("--row", payload.row),
        ] {
            command.args([flag, &bytes.to_string()]);
        }
        match stored {
            Stored::Nowhere => {}
            Stored::InFile(file) => {
                command.arg("--file").arg(file);
            }
            Stored::OnNats(url) => {
                command.args(["--nats", url]);
            }
        }
        let (program, told): (_, Told) = Program::start_telling("the floor", command, log).await?;
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let url = format!("http://127.0.0.1:{}", told.port);
        Ok(Self { _program: program, url, http, request: filler(payload.request) })
    }

    /// One request for a log; requests of one log come one after the other.
    pub(crate) async fn turn(&self, log: u64) -> Result<(), Error> {
        let request = self.http.post(format!("{}/{log}", self.url)).body(self.request.clone());
        let answer = request.send().await?.error_for_status()?;
        answer.bytes().await?;
        Ok(())
    }
}
