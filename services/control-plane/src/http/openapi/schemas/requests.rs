//! What callers send.

use serde_json::{Value, json};

use super::{closed, or_null, reference, text_or_null};

/// The longest wait, idle time and turn that can be asked for.
const MAX_SECONDS: u64 = 30 * 24 * 3_600;

pub fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let wait = json!({ "type": ["integer", "null"], "minimum": 0, "maximum": MAX_SECONDS * 1_000 });
    let seconds = json!({ "type": ["integer", "null"], "minimum": 1, "maximum": MAX_SECONDS });
    let limit = json!({ "type": ["integer", "null"], "minimum": 1, "maximum": u64::MAX });
    let prompt = json!({ "type": "string", "minLength": 1 });
    let label = json!({ "type": ["string", "null"], "maxLength": 512 });
    json!({
        "Nothing": closed(&[], json!({})),
        "CreateRun": one_prompt(closed(&["agent"], json!({
            "agent": reference("AgentName"),
            "prompt": { "type": ["string", "null"] },
            "segments": {
                "type": ["array", "null"], "items": text,
                "description": "Parts of the prompt, joined by blank lines; instead of `prompt`.",
            },
            "session_id": or_null("Id"),
            "interactive": { "type": "boolean", "default": false },
            "user_id": label,
            "metadata": { "type": ["object", "null"] },
            "isolation": or_null("Isolation"),
            "sandbox": or_null("SandboxSpec"),
            "run_timeout_seconds": seconds,
            "wait_ms": wait,
            "cancel_on_disconnect": { "type": "boolean", "default": false },
        }))),
        "OpenResident": closed(&["agent", "prompt"], json!({
            "agent": reference("AgentName"),
            "prompt": prompt,
            "parent_run_id": or_null("Id"),
            "idle_ttl_seconds": seconds,
            "timeout_ms": wait,
            "isolation": or_null("Isolation"),
            "sandbox": or_null("SandboxSpec"),
        })),
        "Send": closed(&["prompt"], json!({ "prompt": prompt, "timeout_ms": wait })),
        "Input": closed(&["text"], json!({ "text": prompt, "mode": { "enum": ["queue", "steer"], "default": "queue" } })),
        "Cancel": closed(&[], json!({ "reason": label, "turn_id": or_null("Id") })),
        "Close": closed(&[], json!({ "reason": label })),
        "SessionMessage": closed(
            &["prompt"],
            json!({ "prompt": prompt, "agent": or_null("AgentName"), "wait_ms": wait }),
        ),
        "ReplaySession": closed(&["agent"], json!({
            "agent": reference("AgentName"), "compress": { "type": "boolean", "default": false },
        })),
        "TakeSnapshot": closed(&[], json!({ "workspaces": { "type": "boolean", "default": false } })),
        "CloseRun": closed(&["root_run_id"], json!({ "root_run_id": reference("Id") })),
        "AgentDefinition": closed(&["name"], definition(false)),
        "AgentOverrides": closed(&[], definition(true)),
        "CloneAgent": closed(&["name"], {
            let mut fields = definition(true);
            fields["name"] = reference("AgentName");
            fields
        }),
        "NewSkill": closed(&["name", "description", "body"], json!({
            "name": reference("SkillName"),
            "description": text,
            "body": { "type": "string", "maxLength": 1_048_576 },
        })),
        "SkillOverrides": closed(&[], json!({
            "description": text_or_null(),
            "body": { "type": ["string", "null"], "maxLength": 1_048_576 },
        })),
        "SandboxSpec": closed(&[], json!({
            "scope": { "enum": ["shared", "own", null] },
            "isolation": or_null("Isolation"),
            "image": { "type": ["string", "null"], "pattern": "[!-~]" },
            "workspace": { "type": ["string", "null"], "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$" },
            "network": { "enum": ["none", "egress", null] },
            "limits": or_null("SandboxLimits"),
            "read_only": { "type": ["boolean", "null"] },
        })),
        "SandboxOverride": closed(&[], json!({
            "scope": { "enum": ["shared", "own", null] },
            "isolation": or_null("Isolation"),
            "image": { "type": ["string", "null"], "pattern": "^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$" },
            "workspace": { "type": ["string", "null"], "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$" },
            "read_only": { "type": ["boolean", "null"] },
        })),
        "SandboxLimits": closed(&[], json!({
            "cpu": { "type": ["number", "null"], "exclusiveMinimum": 0 },
            "mem_mb": limit,
            "pids": limit,
            "tmpfs_mb": limit,
        })),
    })
}

/// A run takes either of the two, and not nothing.
fn one_prompt(mut schema: Value) -> Value {
    schema["oneOf"] = json!([
        {
            "required": ["prompt"],
            "properties": { "prompt": { "type": "string", "minLength": 1 }, "segments": { "type": "null" } },
        },
        {
            "required": ["segments"],
            "properties": {
                "prompt": { "type": "null" },
                "segments": { "type": "array", "minItems": 1, "contains": { "type": "string", "minLength": 1 } },
            },
        },
    ]);
    schema
}

/// The fields of a definition; overrides may leave each away, or say nothing with null.
fn definition(overrides: bool) -> Value {
    let text = if overrides { text_or_null() } else { json!({ "type": "string" }) };
    let list = |items: Value| {
        let kind = if overrides { json!(["array", "null"]) } else { json!("array") };
        json!({ "type": kind, "items": items })
    };
    let number = json!({ "type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX });
    let object = json!({ "type": ["object", "null"] });
    json!({
        // An override may repeat the name and may not change it.
        "name": if overrides { json!({ "type": "null" }) } else { reference("AgentName") },
        "description": text,
        "system_prompt": text,
        "provider": text_or_null(),
        "model": text_or_null(),
        "tools": list(json!({ "type": "string", "pattern": "^([!-)+-~]+[*]?|[*])$", "maxLength": 256 })),
        "skills": list(reference("SkillName")),
        "max_iterations": number,
        "max_concurrent_children": { "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX },
        "code": text_or_null(),
        "sandbox": or_null("SandboxSpec"),
        "guardrails": object,
        "acceptance": object,
        "failover": object,
    })
}
