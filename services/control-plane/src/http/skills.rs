//! `/v1/skills`.

use axum::extract::State;
use axum::http::StatusCode;
use hearth_api::SkillOverrides;
use hearth_library::Skill;
use serde_json::json;

use super::call::Call;
use super::disconnect;
use super::gateway::Gateway;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    let operation = |id, summary| Operation::new(Tag::Agents, id, summary);
    let named = |id, summary| operation(id, summary).path("name", "SkillName");
    table
        .get("/v1/skills", list, operation("listSkills", "Skills").pages().answers("SkillList"))
        .post("/v1/skills", create, operation("createSkill", "Makes a dynamic skill").body("NewSkill").answers("Skill"))
        .get("/v1/skills/{name}", get, named("getSkill", "One skill").answers("Skill"))
        .patch(
            "/v1/skills/{name}",
            patch,
            named("changeSkill", "Changes a dynamic skill").optional_body("SkillOverrides").answers("Skill"),
        )
        .delete("/v1/skills/{name}", retire, named("retireSkill", "Retires a dynamic skill").answers("Retired"))
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("skills", &call.gateway.hearth().list_skills(&caller, page).await?)
}

async fn get(call: Call) -> Reply {
    let caller = call.question()?;
    reply::json(StatusCode::OK, &call.gateway.hearth().get_skill(&caller, &call.skill_name()?).await?)
}

async fn create(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, skill) = call.command::<Skill>()?;
    let hearth = gateway.hearth().clone();
    let command = async move { hearth.create_skill(&caller, skill).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "create_skill", call.place.take(), command).await?)
}

async fn patch(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, overrides) = call.command::<SkillOverrides>()?;
    let (hearth, name) = (gateway.hearth().clone(), call.skill_name()?);
    let command = async move { hearth.patch_skill(&caller, &name, overrides).await };
    reply::json(StatusCode::OK, &disconnect::run(&gateway, "patch_skill", call.place.take(), command).await?)
}

async fn retire(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let caller = call.question()?;
    let (hearth, name) = (gateway.hearth().clone(), call.skill_name()?);
    let answer = json!({ "name": name, "retired": true });
    let command = async move { hearth.delete_skill(&caller, &name).await };
    disconnect::run(&gateway, "delete_skill", call.place.take(), command).await?;
    reply::json(StatusCode::OK, &answer)
}
