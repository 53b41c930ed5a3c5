//! Calls to one node.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use hearth_proto::v1::sandbox_node_client::SandboxNodeClient;
use hearth_proto::v1::{
    CallReply, CallRequest, Caller as WireCaller, CloseTreeRequest, DrainRequest, ExportPart, ImportPart,
    ListAllRequest, ListWorkspacesRequest, WorkspaceName, call_reply, close_tree_reply, drain_reply, export_part,
    import_part, list_all_reply,
};
use hearth_sandbox::{Caller, TarStream};
use hearth_types::{Fault, RunId, Tenant};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Bytes of one message: a file of 16 MiB as base64, and what is around it.
pub(crate) const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// Pieces of an archive on their way to a node.
const PARTS: usize = 8;
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a connection may be silent before it is probed, and how long the probe may take.
const PROBE_AFTER: Duration = Duration::from_secs(5);

/// Why a call has no outcome. Every call can be repeated.
#[derive(Debug)]
pub(crate) enum NoOutcome {
    /// The node was not reached, or was lost; what became of the call is unknown.
    Lost(String),
    /// The node refused the caller's token.
    Refused(String),
}

/// What a node is asked; the same again when the first answer was lost.
pub(crate) enum Question<'q> {
    Call { caller: &'q Caller, tool: &'static str, args: Value },
    CloseTree { caller: &'q Caller, root_run: &'q RunId, tombstone: bool },
    ListAll,
    Drain { node: &'q str },
    ListWorkspaces { principal: Option<&'q Tenant> },
    DeleteWorkspace { principal: &'q Tenant, name: &'q str },
}

/// The way to one node. Cheap to clone.
#[derive(Clone)]
pub(crate) struct NodeClient {
    inner: SandboxNodeClient<Channel>,
    token: Option<AsciiMetadataValue>,
}

impl NodeClient {
    /// Connects at the first call, and again whenever the connection is lost.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, NoOutcome> {
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| NoOutcome::Lost(format!("{url} is no address: {error}")))?
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(PROBE_AFTER)
            .keep_alive_timeout(PROBE_AFTER)
            .keep_alive_while_idle(true);
        let token = token.and_then(|token| AsciiMetadataValue::try_from(format!("Bearer {token}")).ok());
        let inner = SandboxNodeClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { inner, token })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        if let Some(token) = &self.token {
            metadata.insert("authorization", token.clone());
        }
        let trace = hearth_telemetry::current_trace();
        if let Some(value) = trace.and_then(|trace| AsciiMetadataValue::try_from(trace.as_str()).ok()) {
            metadata.insert("traceparent", value);
        }
        request
    }

    /// The answer as JSON: a tool's result, a count, or a list.
    pub async fn ask(&self, question: &Question<'_>) -> Result<Result<Value, Fault>, NoOutcome> {
        match question {
            Question::Call { caller, tool, args } => self.call(caller, tool, args).await,
            Question::CloseTree { caller, root_run, tombstone } => self.close_tree(caller, root_run, *tombstone).await,
            Question::ListAll => self.list_all().await,
            Question::Drain { node } => self.drain(node).await,
            Question::ListWorkspaces { principal } => {
                let principal = principal.cloned().unwrap_or_default();
                let message = self.request(ListWorkspacesRequest { principal });
                outcome(self.inner.clone().list_workspaces(message).await.map_err(lost)?.into_inner())
            }
            Question::DeleteWorkspace { principal, name } => {
                let message = self.request(workspace(principal, name));
                outcome(self.inner.clone().delete_workspace(message).await.map_err(lost)?.into_inner())
            }
        }
    }

    async fn call(&self, caller: &Caller, tool: &str, args: &Value) -> Result<Result<Value, Fault>, NoOutcome> {
        let message = CallRequest {
            caller: Some(wire_caller(caller)),
            tool: tool.to_owned(),
            arguments: args.to_string().into_bytes(),
        };
        outcome(self.inner.clone().call(self.request(message)).await.map_err(lost)?.into_inner())
    }

    /// The archive of a workspace. What goes wrong on the way ends it with a fault.
    pub async fn export(&self, principal: &str, name: &str) -> Result<TarStream, NoOutcome> {
        let request = self.request(workspace(principal, name));
        let parts = self.inner.clone().export_workspace(request).await.map_err(lost)?.into_inner();
        let piece = |part: Result<ExportPart, Status>| match part {
            Ok(ExportPart { part: Some(export_part::Part::Data(data)) }) => Ok(Bytes::from(data)),
            Ok(ExportPart { part: Some(export_part::Part::Fault(fault)) }) => {
                Err(serde_json::from_slice(&fault).unwrap_or_else(|_| broke_off("a fault that is not understood")))
            }
            Ok(ExportPart { part: None }) => Err(broke_off("an empty part")),
            Err(status) => Err(broke_off(&status.to_string())),
        };
        Ok(parts.map(piece).boxed())
    }

    /// Sends an archive, which can be sent once only.
    pub async fn import(
        &self,
        principal: &str,
        name: &str,
        mut tar: TarStream,
    ) -> Result<Result<Value, Fault>, NoOutcome> {
        let part = |part| ImportPart { part: Some(part) };
        let (sender, receiver) = mpsc::channel(PARTS);
        let first = part(import_part::Part::Workspace(workspace(principal, name)));
        let feed = async move {
            let mut next = Some(first);
            // An archive that breaks off is sent without its last part, and the node gives it up.
            while let Some(sending) = next {
                let last = matches!(sending.part, Some(import_part::Part::End(_)));
                if sender.send(sending).await.is_err() || last {
                    return;
                }
                next = match tar.next().await {
                    Some(Ok(data)) => Some(part(import_part::Part::Data(data.into()))),
                    Some(Err(_)) => None,
                    None => Some(part(import_part::Part::End(true))),
                };
            }
        };
        let mut inner = self.inner.clone();
        let request = self.request(ReceiverStream::new(receiver));
        let (reply, ()) = tokio::join!(inner.import_workspace(request), feed);
        outcome(reply.map_err(lost)?.into_inner())
    }

    async fn close_tree(
        &self,
        caller: &Caller,
        root_run: &RunId,
        tombstone: bool,
    ) -> Result<Result<Value, Fault>, NoOutcome> {
        let message = CloseTreeRequest { caller: Some(wire_caller(caller)), root_run: root_run.to_string(), tombstone };
        let reply = self.inner.clone().close_tree(self.request(message)).await.map_err(lost)?.into_inner();
        match reply.outcome {
            Some(close_tree_reply::Outcome::Closed(closed)) => Ok(Ok(closed.into())),
            Some(close_tree_reply::Outcome::Fault(bytes)) => decode(&bytes).map(Err),
            None => Err(empty()),
        }
    }

    async fn drain(&self, node: &str) -> Result<Result<Value, Fault>, NoOutcome> {
        let message = self.request(DrainRequest { node: node.to_owned() });
        let reply = self.inner.clone().drain(message).await.map_err(lost)?.into_inner();
        match reply.outcome {
            Some(drain_reply::Outcome::Draining(_)) => Ok(Ok(Value::Null)),
            Some(drain_reply::Outcome::Fault(bytes)) => decode(&bytes).map(Err),
            None => Err(empty()),
        }
    }

    async fn list_all(&self) -> Result<Result<Value, Fault>, NoOutcome> {
        let reply = self.inner.clone().list_all(self.request(ListAllRequest {})).await.map_err(lost)?.into_inner();
        match reply.outcome {
            Some(list_all_reply::Outcome::Sessions(bytes)) => decode(&bytes).map(Ok),
            Some(list_all_reply::Outcome::Fault(bytes)) => decode(&bytes).map(Err),
            None => Err(empty()),
        }
    }
}

fn outcome(reply: CallReply) -> Result<Result<Value, Fault>, NoOutcome> {
    match reply.outcome {
        Some(call_reply::Outcome::Result(bytes)) => decode(&bytes).map(Ok),
        Some(call_reply::Outcome::Fault(bytes)) => decode(&bytes).map(Err),
        None => Err(empty()),
    }
}

fn workspace(principal: &str, name: &str) -> WorkspaceName {
    WorkspaceName { principal: principal.to_owned(), name: name.to_owned() }
}

fn broke_off(reason: &str) -> Fault {
    Fault::unavailable(format!("the export broke off: {reason}"))
}

fn empty() -> NoOutcome {
    NoOutcome::Lost("an empty answer".to_owned())
}

fn lost(status: Status) -> NoOutcome {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => NoOutcome::Refused(status.message().to_owned()),
        _ => NoOutcome::Lost(status.to_string()),
    }
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, NoOutcome> {
    serde_json::from_slice(bytes).map_err(|error| NoOutcome::Lost(format!("not understood: {error}")))
}

fn wire_caller(caller: &Caller) -> WireCaller {
    let text = |run: &Option<RunId>| run.as_ref().map(ToString::to_string).unwrap_or_default();
    WireCaller {
        principal: caller.principal.clone(),
        root_run: text(&caller.root_run),
        run: text(&caller.run),
        call: caller.call.clone().unwrap_or_default(),
        secrets: caller.secrets.clone().into_iter().collect(),
        isolation: caller.needs.isolation.map(|level| level.as_str().to_owned()).unwrap_or_default(),
        own: caller.needs.own,
        read_only: caller.needs.read_only,
        no_network: caller.needs.no_network,
    }
}
