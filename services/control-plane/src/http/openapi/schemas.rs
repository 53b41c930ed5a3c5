//! The schemas of requests and answers. Tests hold them against the types that are really read and
//! written.

mod lists;
mod requests;

use hearth_types::limits;
use serde_json::{Map, Value, json};

pub fn schemas() -> Value {
    let mut all = Map::new();
    for part in [scalars(), requests::schemas(), turns(), lists::schemas()] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn or_null(schema: &str) -> Value {
    json!({ "anyOf": [reference(schema), { "type": "null" }] })
}

/// An object in which `required` fields have to be there and fields not listed must not.
fn closed(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

/// An object that may get more fields in later versions.
fn open(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn text_or_null() -> Value {
    json!({ "type": ["string", "null"] })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn scalars() -> Value {
    let id = json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_-]{1,128}$" });
    json!({
        "Id": id,
        "AgentName": {
            "type": "string", "minLength": 1, "maxLength": 128,
            "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){0,7}$",
        },
        "SkillName": {
            "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        },
        "WorkspaceName": { "type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$" },
        "Flag": { "type": "boolean" },
        "Limit": { "type": "integer", "minimum": 1, "maximum": limits::LIST_LIMIT_MAX, "default": limits::LIST_LIMIT },
        "RunCursor": { "type": "string", "pattern": "^[0-9a-f]{1,13}[.][A-Za-z0-9_-]{1,128}$" },
        "Cursor": { "type": "string", "pattern": "^o[0-9]{1,9}$" },
        "EventId": { "type": "integer", "minimum": 0, "maximum": i64::MAX },
        "Milliseconds": { "type": "integer", "minimum": 0, "maximum": 2_592_000_000u64 },
        "IdempotencyKey": {
            "type": "string", "minLength": 1, "maxLength": limits::MAX_KEY_CHARS, "pattern": "^[!-~]([ -~]*[!-~])?$",
        },
        "Time": { "type": "string", "format": "date-time" },
        "RunState": { "enum": ["running", "awaiting_input", "completed", "failed", "closed"] },
        "TurnOutcome": { "enum": ["finished", "cancelled", "blocked", "rejected", "failed"] },
        "Isolation": { "enum": ["L1", "L2", "L3"] },
        "FaultCode": { "enum": FAULT_CODES },
    })
}

const FAULT_CODES: &[&str] = &[
    "invalid_argument",
    "unauthenticated",
    "permission_denied",
    "not_found",
    "conflict",
    "run_ended",
    "isolation_unavailable",
    "payload_too_large",
    "tool_refused",
    "resident_limit",
    "queue_full",
    "quota_exceeded",
    "circuit_open",
    "draining",
    "unavailable",
    "session_lost",
    "deadline_exceeded",
    "internal",
];

/// The fields of an envelope, which other answers hold too.
fn envelope(more: Value) -> Value {
    let mut properties = json!({
        "run_id": reference("Id"),
        "child_run_id": reference("Id"),
        "state": reference("RunState"),
        "turn_id": or_null("Id"),
        "outcome": or_null("TurnOutcome"),
        "output": { "type": "string" },
        "truncated": { "type": "boolean" },
        "error": reference("TurnError"),
        "blocker": reference("Blocker"),
    });
    let mut required = vec!["run_id", "state", "turn_id", "outcome", "output", "truncated"];
    if let (Value::Object(properties), Value::Object(more)) = (&mut properties, &more) {
        properties.extend(more.clone());
    }
    required.extend(more.as_object().into_iter().flat_map(Map::keys).map(String::as_str));
    open(&required, properties)
}

fn turns() -> Value {
    json!({
        "Error": open(&["error"], json!({
            "error": open(&["code", "message", "retryable"], json!({
                "code": reference("FaultCode"),
                "message": { "type": "string" },
                "retryable": { "type": "boolean" },
                "retry_after_ms": count(),
                "details": { "type": "object" },
            })),
        })),
        "TurnError": open(&["code", "message"], json!({ "code": reference("FaultCode"), "message": { "type": "string" } })),
        "Blocker": open(&["tripped", "last_safe_state", "next_action"], json!({
            "tripped": { "type": "string" },
            "last_safe_state": { "type": "string" },
            "next_action": { "type": "string" },
        })),
        "Usage": open(&["input_tokens", "output_tokens"], json!({ "input_tokens": count(), "output_tokens": count() })),
        "Envelope": envelope(json!({})),
        "RunAnswer": envelope(json!({
            "session_id": reference("Id"), "root_run_id": reference("Id"), "usage": reference("Usage"),
        })),
        "CancelAnswer": envelope(json!({ "stopped": { "type": "boolean" } })),
        "CloseAnswer": open(&["run_id", "state", "closed_descendants"], json!({
            "run_id": reference("Id"),
            "child_run_id": reference("Id"),
            "state": reference("RunState"),
            "closed_descendants": count(),
        })),
        "OverrideAnswer": open(&["run_id", "sandbox"], json!({
            "run_id": reference("Id"), "sandbox": or_null("SandboxSpec"),
        })),
        "InputAnswer": open(&["run_id", "turn_id", "delivered"], json!({
            "run_id": reference("Id"), "turn_id": reference("Id"), "delivered": { "enum": ["now", "queued"] },
        })),
        "LastTurn": open(&["turn_id", "outcome", "output", "truncated", "started_at", "ended_at"], json!({
            "turn_id": reference("Id"),
            "outcome": reference("TurnOutcome"),
            "output": { "type": "string" },
            "truncated": { "type": "boolean" },
            "error": reference("TurnError"),
            "started_at": reference("Time"),
            "ended_at": reference("Time"),
        })),
        "ReplayAnswer": open(&["session_id", "events_copied", "compressed"], json!({
            "session_id": reference("Id"), "events_copied": count(), "compressed": { "type": "boolean" },
        })),
        "Transcript": open(&["session_id", "messages", "next_cursor"], json!({
            "session_id": reference("Id"),
            "messages": { "type": "array", "items": reference("TranscriptMessage") },
            "next_cursor": text_or_null(),
        })),
        "TranscriptMessage": open(&["role", "content", "run_id", "turn_id", "at"], json!({
            "role": { "type": "string" },
            "content": true,
            "run_id": reference("Id"),
            "turn_id": or_null("Id"),
            "at": reference("Time"),
        })),
    })
}

#[cfg(test)]
mod tests;
