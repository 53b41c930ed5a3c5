//! Schemas against the types that are read and written.

use std::collections::BTreeSet;

use hearth_api::{
    AgentOverrides, AgentView, Cancel, CancelAnswer, Close, CloseAnswer, CreateRun, Input, InputAnswer, LastTurn,
    NodeView, OpenResident, OverrideView, ReplayAnswer, ReplaySession, ReplicaView, ResidentView, ResumeAnswer,
    ResumedRun, ResumedWorkspace, RunAnswer, RunView, SandboxOverride, Send, SessionMessage, SkillOverrides, SkillView,
    SnapshotView, TakeSnapshot, Transcript, TranscriptMessage,
};
use hearth_library::{Origin, Skill};
use hearth_registry::NodeUsage;
use hearth_sandbox::{Imported, SessionRow, WorkspaceRow, WorkspaceUse};
use hearth_types::{
    AgentDefinition, Blocker, Envelope, Fault, FaultCode, Isolation, ReplicaId, RunId, RunState, SandboxId,
    SandboxLimits, SandboxSpec, SessionId, SnapshotId, Timestamp, ToolPattern, TurnError, TurnId, TurnOutcome, Usage,
};
use serde::de::value::Error as Silent;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use serde_json::json;

use super::*;
use crate::http::call::Nothing;
use crate::http::sandboxes::CloseRun;

/// Asks a type for the names of its fields instead of giving it any.
struct Ask<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Ask<'_> {
    type Error = Silent;
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Silent> {
        self.0.extend(fields);
        Err(Silent::custom("asked"))
    }
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Silent> {
        Err(Silent::custom("not a struct"))
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn properties(schema: &str) -> BTreeSet<String> {
    let all = schemas();
    all[schema]["properties"].as_object().unwrap_or_else(|| panic!("{schema}")).keys().cloned().collect()
}

fn reads<'de, T: Deserialize<'de>>(schema: &str) {
    let mut fields = Vec::new();
    assert!(T::deserialize(Ask(&mut fields)).is_err());
    let fields: BTreeSet<String> = fields.into_iter().map(str::to_owned).collect();
    assert_eq!(properties(schema), fields, "{schema}");
    assert_eq!(schemas()[schema]["additionalProperties"], false, "{schema}");
}

#[test]
fn a_request_is_described_with_exactly_the_fields_that_are_read() {
    reads::<CreateRun>("CreateRun");
    reads::<OpenResident>("OpenResident");
    reads::<Send>("Send");
    reads::<Input>("Input");
    reads::<Cancel>("Cancel");
    reads::<Close>("Close");
    reads::<SessionMessage>("SessionMessage");
    reads::<ReplaySession>("ReplaySession");
    reads::<TakeSnapshot>("TakeSnapshot");
    reads::<SandboxSpec>("SandboxSpec");
    reads::<SandboxLimits>("SandboxLimits");
    reads::<SandboxOverride>("SandboxOverride");
    reads::<CloseRun>("CloseRun");
    reads::<AgentDefinition>("AgentDefinition");
    reads::<AgentOverrides>("AgentOverrides");
    reads::<Skill>("NewSkill");
    reads::<SkillOverrides>("SkillOverrides");
    assert_eq!(properties("CloneAgent"), properties("AgentOverrides"));
    reads::<Nothing>("Nothing");
}

/// A full value writes every property; a sparse one at least the required ones.
fn writes(schema: &str, full: &impl Serialize, sparse: &impl Serialize) {
    let fields = |value: Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let (full, sparse) = (serde_json::to_value(full).unwrap(), serde_json::to_value(sparse).unwrap());
    assert_eq!(properties(schema), fields(full), "{schema}");
    let required = schemas()[schema]["required"].as_array().unwrap().clone();
    let required: BTreeSet<String> = required.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    assert_eq!(required, fields(sparse), "{schema}");
}

fn run() -> RunId {
    RunId::parse("run_1").unwrap()
}

fn turn() -> TurnId {
    TurnId::parse("turn_1").unwrap()
}

fn error() -> TurnError {
    TurnError { code: FaultCode::Internal, message: "m".into() }
}

fn blocker() -> Blocker {
    Blocker { tripped: "t".into(), last_safe_state: "l".into(), next_action: "n".into() }
}

fn envelope(full: bool) -> Envelope {
    Envelope {
        run_id: run(),
        child_run_id: full.then(run),
        state: RunState::AwaitingInput,
        turn_id: Some(turn()),
        outcome: Some(TurnOutcome::Finished),
        output: "o".into(),
        truncated: false,
        error: full.then(error),
        blocker: full.then(blocker),
    }
}

fn last_turn(full: bool) -> LastTurn {
    let at = Timestamp::from_millis(0);
    LastTurn {
        turn_id: turn(),
        outcome: TurnOutcome::Finished,
        output: "o".into(),
        truncated: false,
        error: full.then(error),
        started_at: at,
        ended_at: at,
    }
}

#[test]
fn the_answers_about_turns_are_described_as_they_are_written() {
    writes("Envelope", &envelope(true), &envelope(false));
    let session = SessionId::parse("sess_1").unwrap();
    let answer = |full| RunAnswer {
        envelope: envelope(full),
        session_id: session.clone(),
        root_run_id: run(),
        usage: Usage::default(),
    };
    writes("RunAnswer", &answer(true), &answer(false));
    let cancelled = |full| CancelAnswer { envelope: envelope(full), stopped: true };
    writes("CancelAnswer", &cancelled(true), &cancelled(false));
    let closed = |full: bool| CloseAnswer {
        run_id: run(),
        child_run_id: full.then(run),
        state: RunState::Closed,
        closed_descendants: 0,
    };
    writes("CloseAnswer", &closed(true), &closed(false));
    let input = InputAnswer { run_id: run(), turn_id: turn(), delivered: "now" };
    writes("InputAnswer", &input, &input);
    let replayed = ReplayAnswer { session_id: session.clone(), events_copied: 2, compressed: false };
    writes("ReplayAnswer", &replayed, &replayed);
    let snapshot = SnapshotView {
        snapshot_id: SnapshotId::generate(),
        run_id: run(),
        agent: "mock".to_owned(),
        tenant_id: "default".to_owned(),
        subject: "ann".to_owned(),
        created_at: Timestamp::from_millis(0),
        runs: 1,
        size_bytes: 1,
        sha256: "00".to_owned(),
        workspaces: vec!["build".to_owned()],
        left_out: Vec::new(),
        imported: false,
    };
    writes("Snapshot", &snapshot, &snapshot);
    let resumed_run = ResumedRun { from: run(), run_id: run() };
    writes("ResumedRun", &resumed_run, &resumed_run);
    let workspace = ResumedWorkspace { name: "build".to_owned(), restored: true };
    writes("ResumedWorkspace", &workspace, &workspace);
    let resumed = ResumeAnswer {
        snapshot_id: SnapshotId::generate(),
        run_id: run(),
        session_id: session.clone(),
        state: RunState::Running,
        runs: vec![resumed_run],
        workspaces: vec![workspace],
    };
    writes("ResumeAnswer", &resumed, &resumed);
    writes("LastTurn", &last_turn(true), &last_turn(false));
    writes("TurnError", &error(), &error());
    writes("Blocker", &blocker(), &blocker());
    writes("Usage", &Usage::default(), &Usage::default());
    let message = TranscriptMessage {
        role: "user".into(),
        content: json!("c"),
        run_id: run(),
        turn_id: None,
        at: Timestamp::from_millis(0),
    };
    writes("TranscriptMessage", &message, &message);
    let transcript = Transcript { session_id: session, messages: vec![], next_cursor: None };
    writes("Transcript", &transcript, &transcript);
    let fault = Fault::unavailable("m").with_details(json!({})).to_body();
    let described: BTreeSet<String> =
        schemas()["Error"]["properties"]["error"]["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(described, fault["error"].as_object().unwrap().keys().cloned().collect());
}

#[test]
fn the_row_of_a_node_is_described_as_it_is_written() {
    let at = Timestamp::from_millis(0);
    let row = NodeView {
        node_id: "node-0".into(),
        url: "http://127.0.0.1:9000".into(),
        version: "0".into(),
        started_at: at,
        draining: false,
        sessions: 1,
        max_sessions: 8,
        levels: vec![Isolation::L2],
        runtimes: vec!["runc".into()],
        image: "hearth-session:latest".into(),
        images: Vec::new(),
        workspaces: true,
        store: None,
        pool: 0,
        usage: NodeUsage::default(),
    };
    writes("Node", &row, &row);
}

#[test]
fn the_rows_of_lists_are_described_as_they_are_written() {
    let at = Timestamp::from_millis(0);
    let row = RunView {
        run_id: run(),
        session_id: SessionId::parse("sess_1").unwrap(),
        root_run_id: run(),
        parent_run_id: None,
        agent: "mock".into(),
        tenant_id: "default".into(),
        state: RunState::Running,
        last_turn: Some(last_turn(true)),
        resident: true,
        resident_state: Some("active"),
        owner_replica: None,
        epoch: 1,
        turns: 1,
        user_id: None,
        metadata: std::collections::BTreeMap::new(),
        created_at: at,
        last_used_at: at,
        usage: Usage::default(),
        trace_id: None,
    };
    writes("Run", &row, &row);
    let row = ResidentView {
        child_run_id: run(),
        agent: "mock".into(),
        state: RunState::Running,
        parent_run_id: None,
        root_run_id: run(),
        tenant_id: "default".into(),
        idle_ttl_seconds: 1,
        last_used_at: at,
        opened_at: at,
        owner_replica: None,
        epoch: 1,
        turns: 1,
        sandbox_session_id: None,
    };
    writes("Resident", &row, &row);
    let row = ReplicaView {
        replica_id: ReplicaId::parse("replica-0").unwrap(),
        url: None,
        version: "0".into(),
        started_at: at,
        draining: false,
        active_residents: 0,
        running_turns: 0,
    };
    writes("Replica", &row, &row);
    let row = SessionRow {
        session_id: SandboxId::parse("sbx_1").unwrap(),
        principal: "default".into(),
        root_run_id: None,
        workspace: None,
        image: None,
        isolation: Isolation::L2,
        runtime: "runc".into(),
        network: "none".into(),
        node: "node-0".into(),
        created_at: at,
        last_used_at: at,
        expires_at: at,
        idle_expires_at: at,
        running: 0,
        usage: None,
    };
    writes("Sandbox", &row, &row);
    let definition = AgentDefinition {
        name: "a".into(),
        description: "d".into(),
        system_prompt: "s".into(),
        provider: Some("p".into()),
        model: Some("m".into()),
        tools: vec![ToolPattern("*".into())],
        skills: vec!["s".into()],
        max_iterations: Some(1),
        max_concurrent_children: Some(1),
        code: Some("c".into()),
        sandbox: Some(SandboxSpec::default()),
        guardrails: Some(json!({})),
        acceptance: Some(json!({})),
        failover: Some(json!({})),
    };
    let view = |definition| AgentView { definition, def_id: "d".into(), origin: Origin::Dynamic };
    writes("Agent", &view(definition), &view(AgentDefinition { name: "a".into(), ..AgentDefinition::default() }));
    let skill = Skill { name: "s".into(), description: "d".into(), body: "b".into() };
    let row = SkillView { skill, origin: "dynamic" };
    writes("Skill", &row, &row);
}

#[test]
fn workspaces_and_overrides_are_described_as_they_are_written() {
    let at = Timestamp::from_millis(1_000);
    let of = WorkspaceUse { session_id: SandboxId::parse("sbx_1").unwrap(), root_run_id: None, read_only: false };
    writes("WorkspaceUse", &of, &of);
    let row = WorkspaceRow {
        name: "w".into(),
        tenant_id: "default".into(),
        node: "node-0".into(),
        size_bytes: 1,
        files: 1,
        limit_bytes: 2,
        measured_at: at,
        created_at: at,
        sessions: vec![of],
    };
    writes("Workspace", &row, &row);
    let imported = Imported { name: "w".into(), node: "node-0".into(), files: 1, size_bytes: 1 };
    writes("WorkspaceImported", &imported, &imported);
    let overridden = OverrideView { run_id: run(), sandbox: None };
    writes("OverrideAnswer", &overridden, &overridden);
}

#[test]
fn the_codes_are_those_of_the_table() {
    for code in FAULT_CODES {
        let parsed: FaultCode = serde_json::from_value(json!(code)).unwrap();
        assert_eq!(parsed.as_str(), *code);
    }
    assert_eq!(FAULT_CODES.len(), 18);
}
