//! Wire messages, generated from `proto/`.
//!
//! Journal frames are not here: they are JSON and belong to `run-core`.

use std::collections::HashMap;

use serde::{Deserialize as _, Deserializer};
use serde_json::Value;

/// Version 1 of Hearth's own protocol between its members, and of its gRPC surface.
pub mod v1 {
    #![allow(clippy::all, clippy::pedantic, missing_docs, reason = "generated")]
    tonic::include_proto!("hearth.v1");
}

/// An object whose values become texts, those that are none as JSON.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HashMap<String, String>, D::Error> {
    let values = HashMap::<String, Value>::deserialize(deserializer)?;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(values.into_iter().map(|(name, value)| (name, text(value))).collect())
}
