//! The use cases, without transport: every surface calls these and differs in encoding only.

mod answers;
mod requests;

pub use answers::{
    Answer, CancelAnswer, CloseAnswer, InputAnswer, LastTurn, Listing, ReplicaView, ResidentView, RunAnswer, RunView,
    StreamEvent, Transcript, TranscriptMessage,
};
pub use requests::{
    Caller, Cancel, Close, CreateRun, Input, Key, ListRuns, OpenResident, Page, Poll, Send, SessionMessage,
};

use futures::stream::BoxStream;
use hearth_sandbox::SessionRow;
use hearth_types::{AgentDefinition, Envelope, Fault};

/// The use cases of one replica. Cheap to clone.
#[derive(Clone)]
pub struct Hearth {}

/// Where a stream starts. Neither: at the first event.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamFrom {
    /// `from_seq`, inclusive. `Last-Event-ID` N is `from_seq` N + 1.
    pub seq: u64,
}

impl Hearth {
    pub async fn create_run(&self, _caller: &Caller, _request: CreateRun) -> Result<Answer<RunAnswer>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    /// Accepts a run and returns at once, for callers that stream it.
    pub async fn start_run(&self, _caller: &Caller, _request: CreateRun) -> Result<Answer<RunAnswer>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn get_run(&self, _caller: &Caller, _run: &str) -> Result<RunView, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn list_runs(&self, _caller: &Caller, _request: ListRuns) -> Result<Listing<RunView>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    /// Ends after `done`. A reader that falls behind gets a last item `Err`, and can resume.
    pub async fn stream(
        &self,
        _caller: &Caller,
        _run: &str,
        _from: StreamFrom,
    ) -> Result<BoxStream<'static, Result<StreamEvent, Fault>>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn input(&self, _caller: &Caller, _run: &str, _request: Input) -> Result<Answer<InputAnswer>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    /// `child` says whether the answer names `child_run_id` too (the `_resident` paths).
    pub async fn cancel(
        &self,
        _caller: &Caller,
        _run: &str,
        _request: Cancel,
        _child: bool,
    ) -> Result<Answer<CancelAnswer>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn close(
        &self,
        _caller: &Caller,
        _run: &str,
        _request: Close,
        _child: bool,
    ) -> Result<Answer<CloseAnswer>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn message(
        &self,
        _caller: &Caller,
        _session: &str,
        _request: SessionMessage,
    ) -> Result<Answer<RunAnswer>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn transcript(&self, _caller: &Caller, _session: &str, _page: Page) -> Result<Transcript, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn open(&self, _caller: &Caller, _request: OpenResident) -> Result<Answer<Envelope>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn send(&self, _caller: &Caller, _run: &str, _request: Send) -> Result<Answer<Envelope>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn poll(&self, _caller: &Caller, _run: &str, _request: Poll) -> Result<Envelope, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn list_residents(&self, _caller: &Caller, _request: ListRuns) -> Result<Listing<ResidentView>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn list_agents(&self, _caller: &Caller, _page: Page) -> Result<Listing<AgentDefinition>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn get_agent(&self, _caller: &Caller, _name: &str) -> Result<AgentDefinition, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn list_replicas(&self, _caller: &Caller, _page: Page) -> Result<Listing<ReplicaView>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    pub async fn list_sandboxes(&self, _caller: &Caller, _page: Page) -> Result<Listing<SessionRow>, Fault> {
        Err(Fault::internal("not built yet"))
    }
    /// `POST /v1/_sandboxes/{id}/close`.
    pub async fn close_sandbox(&self, _caller: &Caller, _session: &str) -> Result<(), Fault> {
        Err(Fault::internal("not built yet"))
    }
    /// `POST /v1/_sandboxes/close_run`: how many sessions it closed.
    pub async fn close_run_sandboxes(&self, _caller: &Caller, _root_run: &str) -> Result<u64, Fault> {
        Err(Fault::internal("not built yet"))
    }
    /// Whether this replica can serve; the fault says why not.
    pub async fn ready(&self) -> Result<(), Fault> {
        Err(Fault::internal("not built yet"))
    }
}
