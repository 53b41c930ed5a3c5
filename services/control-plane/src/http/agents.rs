//! `/v1/agents`.

use axum::extract::State;
use axum::http::StatusCode;
use hearth_api::{AgentOverrides, CloneAgent};
use hearth_types::AgentDefinition;
use serde_json::json;

use super::call::Call;
use super::disconnect;
use super::gateway::Gateway;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    let operation = |id, summary| Operation::new(Tag::Agents, id, summary);
    let named = |id, summary| operation(id, summary).path("name", "AgentName");
    table
        .get("/v1/agents", list, operation("listAgents", "Definitions of agents").pages().answers("AgentList"))
        .post(
            "/v1/agents",
            create,
            operation("createAgent", "Makes a dynamic definition").body("AgentDefinition").answers("Agent"),
        )
        .get(
            "/v1/agents/{name}",
            get,
            named("getAgent", "One definition; a `/` in its name is written %2F").answers("Agent"),
        )
        .patch(
            "/v1/agents/{name}",
            patch,
            named("changeAgent", "Changes a dynamic definition; open runs keep theirs")
                .optional_body("AgentOverrides")
                .answers("Agent"),
        )
        .delete(
            "/v1/agents/{name}",
            retire,
            named("retireAgent", "Retires a dynamic definition; open runs go on").answers("Retired"),
        )
        .post(
            "/v1/agents/{name}/fork",
            fork,
            named("forkAgent", "A new version of the same agent, which may only narrow")
                .optional_body("AgentOverrides")
                .answers("Agent"),
        )
        .post(
            "/v1/agents/{name}/clone",
            clone,
            named("cloneAgent", "A new agent without a tie to its source").body("CloneAgent").answers("Agent"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("agents", &call.gateway.hearth().list_agents(&caller, page).await?)
}

async fn get(call: Call) -> Reply {
    let caller = call.question()?;
    reply::json(StatusCode::OK, &call.gateway.hearth().get_agent(&caller, &call.agent_name()?).await?)
}

async fn create(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, definition) = call.command::<AgentDefinition>()?;
    let hearth = gateway.hearth().clone();
    let command = async move { hearth.create_agent(&caller, definition).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "create_agent", call.place.take(), command).await?)
}

async fn patch(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, overrides) = call.command::<AgentOverrides>()?;
    let (hearth, name) = (gateway.hearth().clone(), call.agent_name()?);
    let command = async move { hearth.patch_agent(&caller, &name, overrides).await };
    reply::json(StatusCode::OK, &disconnect::run(&gateway, "patch_agent", call.place.take(), command).await?)
}

async fn retire(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let caller = call.question()?;
    let (hearth, name) = (gateway.hearth().clone(), call.agent_name()?);
    let answer = json!({ "name": name, "retired": true });
    let command = async move { hearth.delete_agent(&caller, &name).await };
    disconnect::run(&gateway, "delete_agent", call.place.take(), command).await?;
    reply::json(StatusCode::OK, &answer)
}

async fn fork(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, overrides) = call.command::<AgentOverrides>()?;
    let (hearth, name) = (gateway.hearth().clone(), call.agent_name()?);
    let command = async move { hearth.fork_agent(&caller, &name, overrides).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "fork_agent", call.place.take(), command).await?)
}

async fn clone(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<CloneAgent>()?;
    let (hearth, name) = (gateway.hearth().clone(), call.agent_name()?);
    let command = async move { hearth.clone_agent(&caller, &name, request).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "clone_agent", call.place.take(), command).await?)
}
