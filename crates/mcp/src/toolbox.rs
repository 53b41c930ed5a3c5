//! What a server offers, and to whom.

use async_trait::async_trait;
use futures::future::BoxFuture;
use hearth_types::Fault;
use rmcp::model::Tool;
use serde_json::Value;

/// The tools of a server.
///
/// Dropping the future of a call, because its caller cancelled it, leaves behind what the tool says.
#[async_trait]
pub trait Toolbox: Send + Sync + 'static {
    /// Who calls; found among the extensions of the HTTP request.
    type Caller: Clone + Send + Sync + 'static;

    /// All tools, in the order in which they are listed.
    fn tools(&self) -> &[Tool];

    /// Calls one of [`tools`](Self::tools) with a JSON object.
    async fn call(&self, caller: &Self::Caller, tool: &str, arguments: Value) -> Result<Value, Fault>;

    /// What to do if the result of a call can be told to nobody, because its client has gone away and does not
    /// come back for it. None where that is to be found another way, or does not matter.
    fn if_unread(&self, _caller: &Self::Caller, _tool: &str, _result: &Value) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Whose a request is. An MCP session can be used by the one who began it only, as its streams hold the
/// answers to earlier calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(pub String);
