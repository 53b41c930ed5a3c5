//! Rows of lists, and the lists.

use serde_json::{Map, Value, json};

use super::{count, open, or_null, reference, text_or_null};

pub fn schemas() -> Value {
    let mut all = Map::new();
    for part in [rows(), snapshots(), members()] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

fn list(name: &str, item: &str) -> Value {
    open(
        &[name, "next_cursor", "as_of"],
        json!({
            name: { "type": "array", "items": reference(item) },
            "next_cursor": text_or_null(),
            "as_of": reference("Time"),
            "partial": { "const": true, "description": "A store could not be asked." },
        }),
    )
}

fn rows() -> Value {
    json!({
        "RunList": list("runs", "Run"),
        "ResidentList": list("resident", "Resident"),
        "AgentList": list("agents", "Agent"),
        "SkillList": list("skills", "Skill"),
        "ReplicaList": list("replicas", "Replica"),
        "NodeList": list("nodes", "Node"),
        "SandboxList": list("sandboxes", "Sandbox"),
        "WorkspaceList": list("workspaces", "Workspace"),
        "Workspace": open(WORKSPACE, json!({
            "name": reference("WorkspaceName"),
            "tenant_id": { "type": "string" },
            "node": { "type": "string" },
            "size_bytes": count(),
            "files": count(),
            "limit_bytes": count(),
            "measured_at": reference("Time"),
            "created_at": reference("Time"),
            "sessions": { "type": "array", "items": reference("WorkspaceUse") },
        })),
        "WorkspaceUse": open(&["session_id", "root_run_id", "read_only"], json!({
            "session_id": reference("Id"), "root_run_id": or_null("Id"), "read_only": { "type": "boolean" },
        })),
        "WorkspaceRemoved": open(&["name", "deleted"], json!({
            "name": reference("WorkspaceName"), "deleted": { "const": true },
        })),
        "WorkspaceImported": open(&["name", "node", "files", "size_bytes"], json!({
            "name": reference("WorkspaceName"), "node": { "type": "string" }, "files": count(), "size_bytes": count(),
        })),
        "Run": open(RUN, json!({
            "run_id": reference("Id"),
            "session_id": reference("Id"),
            "root_run_id": reference("Id"),
            "parent_run_id": or_null("Id"),
            "agent": { "type": "string" },
            "tenant_id": { "type": "string" },
            "state": reference("RunState"),
            "last_turn": or_null("LastTurn"),
            "resident": { "type": "boolean" },
            "resident_state": { "enum": ["active", "passivated", null] },
            "owner_replica": or_null("Id"),
            "epoch": count(),
            "turns": count(),
            "user_id": text_or_null(),
            "metadata": { "type": "object" },
            "created_at": reference("Time"),
            "last_used_at": reference("Time"),
            "usage": reference("Usage"),
            "trace_id": text_or_null(),
        })),
        "Resident": open(RESIDENT, json!({
            "child_run_id": reference("Id"),
            "agent": { "type": "string" },
            "state": reference("RunState"),
            "parent_run_id": or_null("Id"),
            "root_run_id": reference("Id"),
            "tenant_id": { "type": "string" },
            "idle_ttl_seconds": count(),
            "last_used_at": reference("Time"),
            "opened_at": reference("Time"),
            "owner_replica": or_null("Id"),
            "epoch": count(),
            "turns": count(),
            "sandbox_session_id": or_null("Id"),
        })),
    })
}

const SNAPSHOT: &[&str] = &[
    "snapshot_id",
    "run_id",
    "agent",
    "tenant_id",
    "subject",
    "created_at",
    "runs",
    "size_bytes",
    "sha256",
    "workspaces",
    "left_out",
    "imported",
];

fn snapshots() -> Value {
    json!({
        "SnapshotList": list("snapshots", "Snapshot"),
        "Snapshot": open(SNAPSHOT, json!({
            "snapshot_id": reference("Id"),
            "run_id": reference("Id"),
            "agent": { "type": "string" },
            "tenant_id": { "type": "string" },
            "subject": { "type": "string" },
            "created_at": reference("Time"),
            "runs": count(),
            "size_bytes": count(),
            "sha256": { "type": "string" },
            "workspaces": { "type": "array", "items": reference("WorkspaceName") },
            "left_out": { "type": "array", "items": { "type": "string" } },
            "imported": { "type": "boolean" },
        })),
        "SnapshotRemoved": open(&["snapshot_id", "removed"], json!({
            "snapshot_id": reference("Id"), "removed": { "const": true },
        })),
        "ResumeAnswer": open(&["snapshot_id", "run_id", "session_id", "state", "runs", "workspaces"], json!({
            "snapshot_id": reference("Id"),
            "run_id": reference("Id"),
            "session_id": reference("Id"),
            "state": reference("RunState"),
            "runs": { "type": "array", "items": reference("ResumedRun") },
            "workspaces": { "type": "array", "items": reference("ResumedWorkspace") },
        })),
        "ResumedRun": open(&["from", "run_id"], json!({ "from": reference("Id"), "run_id": reference("Id") })),
        "ResumedWorkspace": open(&["name", "restored"], json!({
            "name": reference("WorkspaceName"), "restored": { "type": "boolean" },
        })),
    })
}

const WORKSPACE: &[&str] =
    &["name", "tenant_id", "node", "size_bytes", "files", "limit_bytes", "measured_at", "created_at", "sessions"];

const RUN: &[&str] = &[
    "run_id",
    "session_id",
    "root_run_id",
    "parent_run_id",
    "agent",
    "tenant_id",
    "state",
    "last_turn",
    "resident",
    "resident_state",
    "owner_replica",
    "epoch",
    "turns",
    "user_id",
    "metadata",
    "created_at",
    "last_used_at",
    "usage",
    "trace_id",
];
const RESIDENT: &[&str] = &[
    "child_run_id",
    "agent",
    "state",
    "parent_run_id",
    "root_run_id",
    "tenant_id",
    "idle_ttl_seconds",
    "last_used_at",
    "opened_at",
    "owner_replica",
    "epoch",
    "turns",
    "sandbox_session_id",
];

fn members() -> Value {
    let strings = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "Document": { "type": "object", "required": ["openapi", "paths"] },
        "Ok": open(&["ok"], json!({ "ok": { "type": "boolean" } })),
        "Health": open(&["ok"], json!({
            "ok": { "type": "boolean" },
            "replicas": { "type": "array", "items": reference("Replica") },
            "partial": { "const": true },
        })),
        "Replica": open(&["replica_id", "url", "version", "started_at", "draining", "active_residents", "running_turns"], json!({
            "replica_id": reference("Id"),
            "url": text_or_null(),
            "version": { "type": "string" },
            "started_at": reference("Time"),
            "draining": { "type": "boolean" },
            "active_residents": count(),
            "running_turns": count(),
        })),
        "Node": node(),
        "Skill": open(&["name", "description", "body", "origin"], json!({
            "name": reference("SkillName"),
            "description": { "type": "string" },
            "body": { "type": "string" },
            "origin": { "enum": ["bundled", "dynamic"] },
        })),
        "Retired": open(&["name", "retired"], json!({ "name": { "type": "string" }, "retired": { "const": true } })),
        "Agent": open(&["name", "def_id", "origin"], json!({
            "def_id": { "type": "string" },
            "origin": { "enum": ["built_in", "bundled", "dynamic"] },
            "name": { "type": "string" },
            "description": { "type": "string" },
            "system_prompt": { "type": "string" },
            "provider": { "type": "string" },
            "model": { "type": "string" },
            "tools": strings,
            "skills": strings,
            "max_iterations": count(),
            "max_concurrent_children": count(),
            "code": { "type": "string" },
            "sandbox": reference("SandboxSpec"),
            "guardrails": true,
            "acceptance": true,
            "failover": true,
        })),
        "Sandbox": open(SANDBOX, json!({
            "session_id": reference("Id"),
            "principal": { "type": "string" },
            "root_run_id": or_null("Id"),
            "workspace": text_or_null(),
            "image": text_or_null(),
            "isolation": reference("Isolation"),
            "runtime": { "type": "string" },
            "network": { "type": "string" },
            "node": { "type": "string" },
            "created_at": reference("Time"),
            "last_used_at": reference("Time"),
            "expires_at": reference("Time"),
            "idle_expires_at": reference("Time"),
            "running": count(),
            "usage": { "oneOf": [{ "type": "null" }, open(&["cpu_seconds", "memory_bytes", "processes"], json!({
                "cpu_seconds": { "type": "number", "minimum": 0 },
                "memory_bytes": count(),
                "processes": count(),
                "disk_bytes": { "oneOf": [{ "type": "null" }, count()] },
            }))] },
        })),
        "SandboxClosed": open(&["session_id", "state"], json!({ "session_id": reference("Id"), "state": { "const": "closed" } })),
        "SandboxesClosed": open(&["closed"], json!({ "closed": count() })),
    })
}

fn node() -> Value {
    let strings = json!({ "type": "array", "items": { "type": "string" } });
    open(
        NODE,
        json!({
            "node_id": reference("Id"),
            "url": { "type": "string" },
            "version": { "type": "string" },
            "started_at": reference("Time"),
            "draining": { "type": "boolean" },
            "sessions": count(),
            "max_sessions": count(),
            "levels": { "type": "array", "items": reference("Isolation") },
            "runtimes": strings,
            "image": { "type": "string" },
            "images": strings,
            "workspaces": { "type": "boolean" },
            "store": text_or_null(),
            "pool": count(),
            "usage": open(NODE_USAGE, json!({
                "cpus": count(),
                "cpus_used": { "type": "number", "minimum": 0 },
                "memory_bytes": count(),
                "memory_used_bytes": count(),
                "disk_bytes": count(),
                "disk_used_bytes": count(),
                "execs": count(),
            })),
        }),
    )
}

const NODE: &[&str] = &[
    "node_id",
    "url",
    "version",
    "started_at",
    "draining",
    "sessions",
    "max_sessions",
    "levels",
    "runtimes",
    "image",
    "images",
    "workspaces",
    "store",
    "pool",
    "usage",
];
const NODE_USAGE: &[&str] =
    &["cpus", "cpus_used", "memory_bytes", "memory_used_bytes", "disk_bytes", "disk_used_bytes", "execs"];

const SANDBOX: &[&str] = &[
    "session_id",
    "principal",
    "root_run_id",
    "workspace",
    "image",
    "isolation",
    "runtime",
    "network",
    "node",
    "created_at",
    "last_used_at",
    "expires_at",
    "idle_expires_at",
    "running",
    "usage",
];
