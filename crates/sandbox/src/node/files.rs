//! `read` and `write`, through the init, which keeps them inside the workspace.

use std::path::{Component, Path};
use std::sync::Arc;

use hearth_types::{Fault, FaultCode};
use serde_json::Value;

use crate::init::MAX_FILE_BYTES;
use crate::node::session::locked;
use crate::node::{Inner, text, usage};
use crate::{Caller, ReadArgs, ReadResult, WriteArgs, WriteResult};

const DEFAULT_READ_BYTES: u64 = 1024 * 1024;
const MAX_PATH_BYTES: usize = 4_095;
/// Set-user-id, set-group-id and sticky are nothing that a tool hands out.
const MAX_MODE: u32 = 0o777;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Base64,
}

pub(crate) async fn write(inner: &Arc<Inner>, caller: &Caller, args: WriteArgs) -> Result<WriteResult, Fault> {
    check_path(&args.path)?;
    let content = match encoding(args.encoding.as_deref())?.unwrap_or(Encoding::Utf8) {
        Encoding::Utf8 => args.content.into_bytes(),
        Encoding::Base64 => text::from_base64(&args.content)
            .ok_or_else(|| Fault::invalid("content", "text that is no base64", "base64, as `encoding` says"))?,
    };
    let bytes_written = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if bytes_written > MAX_FILE_BYTES {
        let message = format!("`content` has {bytes_written} bytes; at most {MAX_FILE_BYTES} go in one write");
        return Err(Fault::new(FaultCode::PayloadTooLarge, message));
    }
    let mode = args.mode.as_ref().map(mode).transpose()?;
    let (session, live) = inner.find(caller, &args.session_id).await?;
    usage::check_room(inner, &session)?;
    let in_use = session.begin(&inner.clock)?;
    let written = live.client.write(&args.path, &content, mode).await;
    drop(in_use);
    match written {
        Ok(stamp) => {
            if let Some(run) = &caller.run {
                let path = one_name(&args.path, &live.started.workspace_path);
                locked(&session.provenance).wrote(run, &path, stamp);
            }
            Ok(WriteResult { bytes_written })
        }
        Err(error) => Err(inner.examine(&session, error).await),
    }
}

pub(crate) async fn read(inner: &Arc<Inner>, caller: &Caller, args: &ReadArgs) -> Result<ReadResult, Fault> {
    check_path(&args.path)?;
    let asked = encoding(args.encoding.as_deref())?;
    let max_bytes = args.max_bytes.unwrap_or(DEFAULT_READ_BYTES);
    if !(1..=MAX_FILE_BYTES).contains(&max_bytes) {
        return Err(Fault::invalid("max_bytes", max_bytes, &format!("1 to {MAX_FILE_BYTES}")));
    }
    let (session, live) = inner.find(caller, &args.session_id).await?;
    let in_use = session.begin(&inner.clock)?;
    let slice = live.client.read(&args.path, args.offset.unwrap_or(0), max_bytes).await;
    drop(in_use);
    let slice = match slice {
        Ok(slice) => slice,
        Err(error) => return Err(no_such_file(inner.examine(&session, error).await)),
    };
    let changed_by = caller.run.as_ref().and_then(|run| {
        let path = one_name(&args.path, &live.started.workspace_path);
        locked(&session.provenance).read(run, &path, slice.stamp)
    });
    let shown = match asked {
        Some(Encoding::Base64) => text::base64(&slice.content),
        _ => text::show(slice.content, slice.truncated),
    };
    Ok(ReadResult {
        content: shown.content,
        encoding: if shown.base64 { "base64" } else { "utf8" }.to_owned(),
        size: slice.size,
        truncated: slice.truncated,
        changed_by,
    })
}

fn no_such_file(fault: Fault) -> Fault {
    match fault.code {
        FaultCode::NotFound => Fault::new(FaultCode::NotFound, "there is no such file in the workspace"),
        _ => fault,
    }
}

fn check_path(path: &str) -> Result<(), Fault> {
    let fits = (1..=MAX_PATH_BYTES).contains(&path.len()) && !path.contains('\0');
    if fits { Ok(()) } else { Err(Fault::invalid("path", path, "1 to 4095 bytes without NUL, inside the workspace")) }
}

fn encoding(asked: Option<&str>) -> Result<Option<Encoding>, Fault> {
    match asked {
        None => Ok(None),
        Some("utf8" | "utf-8") => Ok(Some(Encoding::Utf8)),
        Some("base64") => Ok(Some(Encoding::Base64)),
        Some(other) => Err(Fault::invalid("encoding", other, "utf8 or base64")),
    }
}

fn mode(value: &Value) -> Result<u32, Fault> {
    let bits = match value {
        Value::Number(number) => number.as_u64().and_then(|bits| u32::try_from(bits).ok()),
        Value::String(octal) => u32::from_str_radix(octal.strip_prefix("0o").unwrap_or(octal), 8).ok(),
        _ => None,
    };
    bits.filter(|bits| *bits <= MAX_MODE).ok_or_else(|| {
        Fault::invalid("mode", value, "permission bits: 0 to 511 as a number, \"0\" to \"0777\" as octal text")
    })
}

/// One name for a file however its path is written, for the table of changes only.
fn one_name(path: &str, workspace_path: &str) -> String {
    let path = Path::new(path);
    let inside = path.strip_prefix(workspace_path).or_else(|_| path.strip_prefix("/work")).unwrap_or(path);
    let mut parts: Vec<&str> = Vec::new();
    for component in inside.components() {
        match component {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_has_one_name() {
        for path in ["a/b", "./a//b", "/work/a/b", "/srv/ws/a/b", "a/c/../b"] {
            assert_eq!(one_name(path, "/srv/ws"), "a/b", "{path}");
        }
    }

    #[test]
    fn a_mode_is_permission_bits_in_either_form() {
        assert_eq!(mode(&json!(420)).unwrap(), 0o644);
        assert_eq!(mode(&json!("0755")).unwrap(), 0o755);
        assert_eq!(mode(&json!("0o600")).unwrap(), 0o600);
        for bad in [json!(755), json!("4755"), json!("rwx"), json!(-1), json!(1.5), json!(null), json!("")] {
            assert_eq!(mode(&bad).unwrap_err().code, FaultCode::InvalidArgument, "{bad}");
        }
    }
}
