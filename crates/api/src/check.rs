//! Checks of what callers send, before it becomes a command.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_types::{Fault, FaultCode, Isolation, SandboxSpec, limits};
use serde_json::Value;

/// Bytes of all metadata of a run.
const MAX_METADATA_BYTES: usize = 16 * 1024;
/// Characters of a reason or a user id.
const MAX_LABEL_CHARS: usize = 512;
/// The longest wait, idle time and turn that can be asked for.
const MAX_SECONDS: u64 = 30 * 24 * 3600;

pub(crate) fn prompt(field: &str, text: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(Fault::invalid(field, "", "text of at least one character"));
    }
    if text.len() > limits::MAX_BODY_BYTES {
        return Err(Fault::new(
            FaultCode::PayloadTooLarge,
            format!("`{field}` has {} bytes; at most {} are taken", text.len(), limits::MAX_BODY_BYTES),
        ));
    }
    Ok(())
}

pub(crate) fn label(field: &str, text: Option<&str>) -> Result<(), Fault> {
    match text {
        Some(text) if text.chars().count() > MAX_LABEL_CHARS => {
            Err(Fault::invalid(field, text, "at most 512 characters"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn metadata(metadata: Option<&BTreeMap<String, Value>>) -> Result<(), Fault> {
    let Some(metadata) = metadata else { return Ok(()) };
    let size = serde_json::to_string(metadata).map(|text| text.len()).unwrap_or(usize::MAX);
    if size > MAX_METADATA_BYTES {
        return Err(Fault::invalid("metadata", format!("{size} bytes"), "at most 16384 bytes of JSON"));
    }
    Ok(())
}

pub(crate) fn seconds(field: &str, value: Option<u64>) -> Result<Option<Duration>, Fault> {
    match value {
        None => Ok(None),
        Some(seconds) if (1..=MAX_SECONDS).contains(&seconds) => Ok(Some(Duration::from_secs(seconds))),
        Some(other) => Err(Fault::invalid(field, other, "1 to 2592000 seconds")),
    }
}

/// A wait: absent or 0 means as long as it takes.
pub(crate) fn wait(field: &str, ms: Option<u64>) -> Result<Option<Duration>, Fault> {
    match ms {
        None | Some(0) => Ok(None),
        Some(ms) if ms <= MAX_SECONDS * 1000 => Ok(Some(Duration::from_millis(ms))),
        Some(other) => Err(Fault::invalid(field, other, "0 to 2592000000 milliseconds")),
    }
}

pub(crate) fn sandbox(isolation: Option<Isolation>, sandbox: Option<&SandboxSpec>) -> Result<(), Fault> {
    let Some(spec) = sandbox else { return Ok(()) };
    if let (Some(outer), Some(inner)) = (isolation, spec.isolation)
        && outer != inner
    {
        return Err(Fault::invalid("sandbox.isolation", inner.as_str(), "the same as `isolation`, or absent"));
    }
    hearth_library::check_sandbox(spec).map_err(|fault| Fault::invalid(fault.field, &fault.value, fault.allowed))
}

/// The name of a durable workspace.
pub(crate) fn workspace(field: &str, name: Option<&str>) -> Result<(), Fault> {
    match name {
        Some(name) if !hearth_sandbox::is_workspace_name(name) => {
            Err(Fault::invalid(field, name, "[a-z0-9][a-z0-9_-]{0,63}"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn image(field: &str, name: Option<&str>) -> Result<(), Fault> {
    match name {
        Some(name) if !hearth_sandbox::is_image_name(name) => {
            Err(Fault::invalid(field, name, "an image's name, such as hearth-session:latest"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn page_limit(limit: Option<u32>) -> Result<u32, Fault> {
    match limit {
        None => Ok(limits::LIST_LIMIT),
        Some(limit) if (1..=limits::LIST_LIMIT_MAX).contains(&limit) => Ok(limit),
        Some(other) => Err(Fault::invalid("limit", other, "a whole number from 1 to 500")),
    }
}
