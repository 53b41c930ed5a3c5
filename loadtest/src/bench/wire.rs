//! A node in this process by its gRPC, as replicas call it.

use std::sync::Arc;

use hearth_nodes::NodeService;
use hearth_proto::v1::sandbox_node_client::SandboxNodeClient;
use hearth_proto::v1::{CallRequest, Caller as WireCaller, call_reply};
use hearth_sandbox::node::Node;
use hearth_types::SandboxId;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Server};

use super::paired::Caller;
use crate::Error;
use crate::processes::free_ports;

/// It serves as long as it is there.
pub(super) struct Wire {
    client: SandboxNodeClient<Channel>,
    server: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Wire {
    pub(super) async fn serve(node: &Arc<Node>) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::program("the node's gRPC", error.to_string());
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], free_ports(0)?));
        let serving = Server::builder().add_service(NodeService::server(node.clone())).serve(address);
        #[allow(clippy::disallowed_methods, reason = "the drop ends it")]
        let server = tokio::spawn(async move {
            if let Err(error) = serving.await {
                eprintln!("   the node's gRPC: {error}");
            }
        });
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| failed(&error))?;
        let mut tries = 0;
        let channel = loop {
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(_) if tries < 100 => {
                    tries += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                Err(error) => return Err(failed(&error)),
            }
        };
        Ok(Self { client: SandboxNodeClient::new(channel), server })
    }

    /// Runs a command each time that it is called.
    pub(super) fn commands(&self, session: &SandboxId, line: &'static str) -> Caller {
        let (client, session) = (self.client.clone(), session.clone());
        Arc::new(move |_, _| {
            let (mut client, session) = (client.clone(), session.clone());
            Box::pin(async move {
                let arguments = json!({ "session_id": session, "command": line });
                let request = CallRequest {
                    caller: Some(WireCaller { principal: "default".to_owned(), ..WireCaller::default() }),
                    tool: "sandbox_exec".to_owned(),
                    arguments: arguments.to_string().into_bytes(),
                };
                let reply = client.call(request).await;
                let reply = reply.map_err(|status| Error::program("the node's gRPC", status.to_string()))?.into_inner();
                let Some(call_reply::Outcome::Result(result)) = reply.outcome else {
                    return Err(Error::Answer(format!("{line:?} over gRPC: {:?}", reply.outcome)));
                };
                let result: Value = serde_json::from_slice(&result)?;
                if result["exit_code"] == 0 { Ok(()) } else { Err(Error::Answer(format!("{line:?} gave {result}"))) }
            })
        })
    }
}
