//! The gRPC surface of a node: decode, call the node, encode.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use hearth_proto::v1::sandbox_node_server::{SandboxNode, SandboxNodeServer};
use hearth_proto::v1::{
    CallReply, CallRequest, Caller as WireCaller, CloseTreeReply, CloseTreeRequest, DrainReply, DrainRequest,
    ExportPart, ImportPart, ListAllReply, ListAllRequest, ListWorkspacesRequest, WorkspaceName, call_reply,
    close_tree_reply, drain_reply, export_part, import_part, list_all_reply,
};
use hearth_sandbox::{Caller, Needs, SharedSandboxes, TarStream, Workspaces};
use hearth_types::{Fault, FaultCode, Isolation, RunId, TraceContext};
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;

use crate::client::MAX_MESSAGE_BYTES;

/// Serves a node's sandboxes to replicas. The token is checked in front of it.
pub struct NodeService {
    sandboxes: SharedSandboxes,
}

impl NodeService {
    /// The service, to be added to a router.
    pub fn server(sandboxes: SharedSandboxes) -> SandboxNodeServer<Self> {
        SandboxNodeServer::new(Self { sandboxes })
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

fn span<T>(request: &Request<T>, tool: &str) -> tracing::Span {
    let span = tracing::info_span!("node.call", tool, otel.kind = "server");
    let parent = request.metadata().get("traceparent").and_then(|value| value.to_str().ok());
    if let Some(parent) = parent.and_then(TraceContext::parse) {
        hearth_telemetry::set_parent(&span, &parent);
    }
    span
}

fn encode(value: &impl serde::Serialize) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(value).map_err(|error| Status::internal(error.to_string()))
}

fn caller_of(caller: Option<WireCaller>) -> Result<Caller, Fault> {
    let caller = caller.ok_or_else(|| Fault::missing("caller", "who the call is for"))?;
    let run = |field: &str, text: &str| match text {
        "" => Ok(None),
        text => RunId::parse(text).map(Some).map_err(|error| Fault::invalid(field, text, &error.to_string())),
    };
    let isolation = match caller.isolation.as_str() {
        "" => None,
        level => {
            let known = [Isolation::L1, Isolation::L2, Isolation::L3].into_iter().find(|known| known.as_str() == level);
            Some(known.ok_or_else(|| Fault::invalid("isolation", level, "L1, L2 or L3"))?)
        }
    };
    Ok(Caller {
        needs: Needs { isolation, own: caller.own, read_only: caller.read_only, no_network: caller.no_network },
        root_run: run("root_run", &caller.root_run)?,
        run: run("run", &caller.run)?,
        call: Some(caller.call).filter(|call| !call.is_empty()),
        principal: caller.principal,
        secrets: caller.secrets.into_iter().collect(),
    })
}

fn reply<T: serde::Serialize>(result: Result<T, Fault>) -> Result<Response<CallReply>, Status> {
    let outcome = match result {
        Ok(value) => call_reply::Outcome::Result(encode(&value)?),
        Err(fault) => call_reply::Outcome::Fault(encode(&fault)?),
    };
    Ok(Response::new(CallReply { outcome: Some(outcome) }))
}

fn part(piece: Result<Bytes, Fault>) -> Result<ExportPart, Status> {
    let part = match piece {
        Ok(data) => export_part::Part::Data(data.into()),
        Err(fault) => export_part::Part::Fault(encode(&fault)?),
    };
    Ok(ExportPart { part: Some(part) })
}

/// The archive of an import. Its end is said; a stream that stops before broke off.
fn archive(parts: Streaming<ImportPart>) -> TarStream {
    let broke_off = || Fault::new(FaultCode::InvalidArgument, "the archive broke off");
    futures::stream::unfold(Some(parts), move |parts| async move {
        let mut parts = parts?;
        match parts.message().await.map(|part| part.and_then(|part| part.part)) {
            Ok(Some(import_part::Part::Data(data))) => Some((Ok(data.into()), Some(parts))),
            Ok(Some(import_part::Part::End(true))) => None,
            _ => Some((Err(broke_off()), None)),
        }
    })
    .boxed()
}

impl NodeService {
    fn workspaces(&self) -> Result<&dyn Workspaces, Status> {
        self.sandboxes.workspaces().ok_or_else(|| Status::unimplemented("this node keeps no workspaces"))
    }
}

#[tonic::async_trait]
impl SandboxNode for NodeService {
    async fn call(&self, request: Request<CallRequest>) -> Result<Response<CallReply>, Status> {
        let span = span(&request, &request.get_ref().tool);
        let message = request.into_inner();
        let result = async {
            let caller = caller_of(message.caller)?;
            let arguments = serde_json::from_slice(&message.arguments)
                .map_err(|error| Fault::invalid("arguments", error, "a JSON object"))?;
            Box::pin(hearth_sandbox::tools::call(&*self.sandboxes, &caller, &message.tool, arguments)).await
        }
        .instrument(span)
        .await;
        let outcome = match result {
            Ok(value) => call_reply::Outcome::Result(encode(&value)?),
            Err(fault) => call_reply::Outcome::Fault(encode(&fault)?),
        };
        Ok(Response::new(CallReply { outcome: Some(outcome) }))
    }

    async fn close_tree(&self, request: Request<CloseTreeRequest>) -> Result<Response<CloseTreeReply>, Status> {
        let span = span(&request, "close_tree");
        let message = request.into_inner();
        let result = async {
            let caller = caller_of(message.caller)?;
            let root = RunId::parse(&message.root_run)
                .map_err(|error| Fault::invalid("root_run", &message.root_run, &error.to_string()))?;
            self.sandboxes.close_run(&caller, &root, message.tombstone).await
        }
        .instrument(span)
        .await;
        let outcome = match result {
            Ok(result) => close_tree_reply::Outcome::Closed(result.closed),
            Err(fault) => close_tree_reply::Outcome::Fault(encode(&fault)?),
        };
        Ok(Response::new(CloseTreeReply { outcome: Some(outcome) }))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainReply>, Status> {
        let outcome = match self.sandboxes.drain(&request.into_inner().node).await {
            Ok(()) => drain_reply::Outcome::Draining(true),
            Err(fault) => drain_reply::Outcome::Fault(encode(&fault)?),
        };
        Ok(Response::new(DrainReply { outcome: Some(outcome) }))
    }

    async fn list_all(&self, _request: Request<ListAllRequest>) -> Result<Response<ListAllReply>, Status> {
        let outcome = match self.sandboxes.list_all().await {
            Ok(rows) => list_all_reply::Outcome::Sessions(encode(&rows)?),
            Err(fault) => list_all_reply::Outcome::Fault(encode(&fault)?),
        };
        Ok(Response::new(ListAllReply { outcome: Some(outcome) }))
    }

    async fn list_workspaces(&self, request: Request<ListWorkspacesRequest>) -> Result<Response<CallReply>, Status> {
        let principal = Some(request.into_inner().principal).filter(|principal| !principal.is_empty());
        reply(self.workspaces()?.list_workspaces(principal.as_ref()).await)
    }

    async fn delete_workspace(&self, request: Request<WorkspaceName>) -> Result<Response<CallReply>, Status> {
        let WorkspaceName { principal, name } = request.into_inner();
        reply(self.workspaces()?.delete_workspace(&principal, &name).await)
    }

    type ExportWorkspaceStream = BoxStream<'static, Result<ExportPart, Status>>;

    async fn export_workspace(
        &self,
        request: Request<WorkspaceName>,
    ) -> Result<Response<Self::ExportWorkspaceStream>, Status> {
        let WorkspaceName { principal, name } = request.into_inner();
        let pieces = match self.workspaces()?.export_workspace(&principal, &name).await {
            Ok(pieces) => pieces,
            Err(fault) => futures::stream::iter([Err(fault)]).boxed(),
        };
        Ok(Response::new(pieces.map(part).boxed()))
    }

    async fn import_workspace(&self, request: Request<Streaming<ImportPart>>) -> Result<Response<CallReply>, Status> {
        let mut parts = request.into_inner();
        let first = parts.message().await?.and_then(|part| part.part);
        let Some(import_part::Part::Workspace(WorkspaceName { principal, name })) = first else {
            return Err(Status::invalid_argument("the first part names the workspace"));
        };
        reply(self.workspaces()?.import_workspace(&principal, &name, archive(parts)).await)
    }
}
