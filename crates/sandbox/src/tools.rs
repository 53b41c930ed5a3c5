//! The `sandbox_*` tools: names, schemas, and the way from JSON to the port. Runs use them as
//! `mcp__sandbox__sandbox_exec` and so on; a node's MCP serves them as they are.

use std::sync::LazyLock;

use hearth_types::{Fault, FaultCode, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::init::{MAX_FILE_BYTES, MAX_OUTPUT_BYTES};
use crate::node::{MAX_POLL_MS, MIN_CPU, MIN_MEM_MB, MIN_PIDS};
use crate::port::{
    Caller, CloseRunArgs, ExecArgs, KillArgs, OpenArgs, PollArgs, ReadArgs, Sandboxes, SessionArgs, WriteArgs,
};

/// One tool as a model or an MCP client sees it.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    pub name: &'static str,
    pub description: &'static str,
    /// A JSON schema of type `object`; other fields than its own are refused.
    pub input_schema: Value,
}

static TOOLS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    vec![
        spec("sandbox_open", OPEN, &[], open_fields()),
        spec("sandbox_exec", EXEC, &["session_id", "command"], exec_fields()),
        spec(
            "sandbox_poll",
            "The state of a command: its output so far, or its result. Waits up to `timeout_ms` for its end.",
            &["session_id", "exec_id"],
            json!({
                "session_id": text("the session"),
                "exec_id": text("the command"),
                "timeout_ms": between(0, MAX_POLL_MS, "how long to wait for its end; absent or 0: a snapshot"),
            }),
        ),
        spec(
            "sandbox_kill",
            "Ends a command and everything it started; answers with its result. The result of a command that has ended \
             stays as it is, and what it has left running ends.",
            &["session_id", "exec_id"],
            json!({ "session_id": text("the session"), "exec_id": text("the command") }),
        ),
        spec("sandbox_write", WRITE, &["session_id", "path", "content"], write_fields()),
        spec("sandbox_read", READ, &["session_id", "path"], read_fields()),
        spec(
            "sandbox_touch",
            "Renews the session's idle time and answers with the new expiry; runs nothing.",
            &["session_id"],
            json!({ "session_id": text("the session") }),
        ),
        spec(
            "sandbox_close",
            "Closes a session and ends what runs in it. A durable workspace stays. Can be repeated.",
            &["session_id"],
            json!({ "session_id": text("the session") }),
        ),
        spec(
            "sandbox_close_run",
            "Closes all sessions of one of the caller's own run trees; answers with their count. Can be repeated.",
            &["root_run_id"],
            json!({ "root_run_id": text("the root run of the tree") }),
        ),
        spec("sandbox_list", "Lists the caller's own sessions; renews nothing.", &[], json!({})),
    ]
});

const OPEN: &str = "Opens a sandbox session: a container with its own /work. A run tree has one shared session per \
    (image, workspace): opening again returns it with `warm: true`, unless `own` asks for another. Arguments may only \
    tighten what the operator allows.";
const EXEC: &str = "Runs a shell command in /work of a session. stdout and stderr come interleaved as written. With \
    `background` it answers at once; find the result with sandbox_poll. The same `exec_id` again re-attaches.";
const WRITE: &str = "Writes a file in the session's /work; makes the folders on its way. Symbolic links out of /work \
    are refused.";
const READ: &str = "Reads a file in the session's /work. `changed_by` names another run that changed it since this \
    one last saw it.";

/// The tools in the order of the contract.
pub fn tools() -> &'static [ToolSpec] {
    &TOOLS
}

fn spec(name: &'static str, description: &'static str, required: &[&str], properties: Value) -> ToolSpec {
    let input_schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    ToolSpec { name, description, input_schema }
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn whole(minimum: u64, description: &str) -> Value {
    json!({ "type": "integer", "minimum": minimum, "description": description })
}

fn between(minimum: u64, maximum: u64, description: &str) -> Value {
    json!({ "type": "integer", "minimum": minimum, "maximum": maximum, "description": description })
}

fn one_of(values: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": values, "description": description })
}

fn open_fields() -> Value {
    json!({
        "workspace": json!({
            "type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
            "description": "a durable /work of this name; absent: one that ends with the session",
        }),
        "image": text("a container image that the node has"),
        "network": one_of(&["none", "egress"], "absent: none"),
        "cpu": json!({ "type": "number", "minimum": MIN_CPU, "description": "CPUs, a fraction allowed" }),
        "mem_mb": whole(MIN_MEM_MB, "memory in MiB"),
        "pids": whole(MIN_PIDS, "processes"),
        "tmpfs_mb": whole(1, "size in MiB of a /work that is not durable"),
        "isolation": one_of(&["L1", "L2", "L3"], "the least isolation that will do"),
        "runtime": text("the container runtime by its name, such as runc or runsc"),
        "read_only": flag("/work cannot be written"),
        "own": flag("a session of its own, not the tree's shared one"),
    })
}

fn exec_fields() -> Value {
    json!({
        "session_id": text("the session"),
        "command": text("run by `bash -c`, else `sh -c`"),
        "timeout_seconds": between(1, 3_600, "absent: 30"),
        "max_output_bytes": between(1, MAX_OUTPUT_BYTES, "absent: 1 MiB; what is past it is counted and dropped"),
        "cwd": text("the folder it runs in, inside /work; absent: /work"),
        "env": json!({
            "type": "object", "additionalProperties": { "type": "string" },
            "description": "variables for this command",
        }),
        "stdin": text("its standard input; absent: empty"),
        "background": flag("answer at once"),
        "exec_id": json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$", "description": "absent: a fresh one" }),
    })
}

fn write_fields() -> Value {
    json!({
        "session_id": text("the session"),
        "path": text("relative to /work, or absolute inside it"),
        "content": text("the whole file"),
        "encoding": one_of(&["utf8", "base64"], "of `content`; absent: utf8"),
        "mode": json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "description": "permission bits: a number such as 493, or octal text such as \"0755\"; absent: kept, or 0644",
        }),
    })
}

fn read_fields() -> Value {
    json!({
        "session_id": text("the session"),
        "path": text("relative to /work, or absolute inside it"),
        "encoding": one_of(&["utf8", "base64"], "of the answer; absent: utf8, or base64 where the bytes are not text"),
        "offset": whole(0, "first byte; absent: 0"),
        "max_bytes": between(1, MAX_FILE_BYTES, "absent: 1 MiB"),
    })
}

/// Calls a tool by its name. A refusal is the fault; its body is what the caller sees.
pub async fn call(sandboxes: &dyn Sandboxes, caller: &Caller, tool: &str, args: Value) -> Result<Value, Fault> {
    match tool {
        "sandbox_open" => encode(&sandboxes.open(caller, decode::<OpenArgs>(args)?).await?),
        "sandbox_exec" => encode(&sandboxes.exec(caller, decode::<ExecArgs>(args)?).await?),
        "sandbox_poll" => encode(&sandboxes.poll(caller, decode::<PollArgs>(args)?).await?),
        "sandbox_kill" => encode(&sandboxes.kill(caller, decode::<KillArgs>(args)?).await?),
        "sandbox_write" => encode(&sandboxes.write(caller, decode::<WriteArgs>(args)?).await?),
        "sandbox_read" => encode(&sandboxes.read(caller, decode::<ReadArgs>(args)?).await?),
        "sandbox_touch" => encode(&sandboxes.touch(caller, decode::<SessionArgs>(args)?).await?),
        "sandbox_close" => {
            let args = decode::<SessionArgs>(args)?;
            let session = args.session_id.clone();
            sandboxes.close(caller, args).await?;
            Ok(json!({ "session_id": session, "closed": true }))
        }
        "sandbox_close_run" => {
            let root_run = own_root_run(caller, &decode::<CloseRunArgs>(args)?)?;
            encode(&sandboxes.close_run(caller, &root_run, false).await?)
        }
        "sandbox_list" => {
            decode::<NoArgs>(args)?;
            Ok(json!({ "sandboxes": sandboxes.list(caller).await? }))
        }
        _ => {
            Err(Fault::new(FaultCode::NotFound, "there is no sandbox tool of this name; the names begin with sandbox_"))
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

/// A run names its own tree only: another's answers as one that does not exist.
fn own_root_run(caller: &Caller, args: &CloseRunArgs) -> Result<RunId, Fault> {
    let named = RunId::parse(&args.root_run_id)
        .map_err(|error| Fault::invalid("root_run_id", &args.root_run_id, &error.to_string()))?;
    match &caller.root_run {
        Some(own) if *own != named => Err(Fault::not_found()),
        _ => Ok(named),
    }
}

fn encode<T: Serialize>(result: &T) -> Result<Value, Fault> {
    serde_json::to_value(result).map_err(|error| Fault::internal(format!("a result could not be encoded: {error}")))
}

/// Decodes arguments strictly. The fault names the field: the unknown one, the missing one, or the
/// one of a wrong type.
pub fn decode<T: DeserializeOwned>(args: Value) -> Result<T, Fault> {
    let args = if args.is_null() { json!({}) } else { args };
    if !args.is_object() {
        return Err(Fault::invalid("arguments", &args, "a JSON object"));
    }
    hearth_types::decode("arguments", args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: DeserializeOwned>(args: Value) -> (String, String) {
        let fault = decode::<T>(args).err().unwrap();
        assert_eq!(fault.code, FaultCode::InvalidArgument);
        (fault.details.unwrap()["field"].as_str().unwrap().to_owned(), fault.message)
    }

    #[test]
    fn a_refusal_names_the_field() {
        assert_eq!(refused::<OpenArgs>(json!({ "mem": 5 })).0, "mem");
        assert_eq!(refused::<OpenArgs>(json!({ "mem_mb": "big" })).0, "mem_mb");
        assert_eq!(refused::<ExecArgs>(json!({ "session_id": "sbx_1" })).0, "command");
        assert_eq!(refused::<ExecArgs>(json!({ "session_id": "a/b", "command": "true" })).0, "session_id");
        assert_eq!(refused::<ExecArgs>(json!({ "session_id": "a", "command": "b", "env": { "A": 1 } })).0, "env.A");
        assert_eq!(refused::<NoArgs>(json!([])).0, "arguments");
    }

    #[test]
    fn absent_arguments_are_an_empty_object() {
        assert!(decode::<OpenArgs>(Value::Null).is_ok());
        assert!(decode::<OpenArgs>(json!({ "image": null })).is_ok());
    }

    /// A field that the schema does not show could not be used; one that the port does not know would
    /// always be refused.
    #[test]
    fn the_schemas_show_exactly_the_fields_of_the_port() {
        let known = |tool: &str| -> Vec<String> {
            let spec = tools().iter().find(|spec| spec.name == tool).unwrap();
            let mut names: Vec<String> = spec.input_schema["properties"].as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        let expected = |mut error: String| -> Vec<String> {
            error = error.split_once("allowed: ").unwrap().1.to_owned();
            let mut names: Vec<String> = error.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            names.sort();
            names
        };
        assert_eq!(known("sandbox_open"), expected(refused::<OpenArgs>(json!({ "?": 1 })).1));
        assert_eq!(known("sandbox_exec"), expected(refused::<ExecArgs>(json!({ "?": 1 })).1));
        assert_eq!(known("sandbox_poll"), expected(refused::<PollArgs>(json!({ "?": 1 })).1));
        assert_eq!(known("sandbox_write"), expected(refused::<WriteArgs>(json!({ "?": 1 })).1));
        assert_eq!(known("sandbox_read"), expected(refused::<ReadArgs>(json!({ "?": 1 })).1));
    }

    #[test]
    fn a_run_closes_its_own_tree_only() {
        let caller = Caller { root_run: Some(RunId::parse("run_a").unwrap()), ..Caller::default() };
        let of = |id: &str| own_root_run(&caller, &CloseRunArgs { root_run_id: id.to_owned() });
        assert!(of("run_a").is_ok());
        assert_eq!(of("run_b").unwrap_err().code, FaultCode::NotFound);
        assert_eq!(of("").unwrap_err().code, FaultCode::InvalidArgument);
    }
}
