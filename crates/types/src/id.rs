//! Ids. Every id is 1–128 characters of `[A-Za-z0-9_-]`, so that it is a path segment, a subject
//! token, a file name and a header value without escaping.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

/// What an id may be, in words.
const ALLOWED: &str = "1 to 128 characters of A-Z a-z 0-9 _ -";

/// An id that does not have the permitted form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id is 1 to 128 characters of A-Z a-z 0-9 _ -")]
pub struct IdError;

/// Checks the permitted form of an id.
pub fn check_id(text: &str) -> Result<(), IdError> {
    let fits =
        (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits { Ok(()) } else { Err(IdError) }
}

/// 32 hex digits that depend on all the parts and on where each part ends.
///
/// Used for ids that must come out the same on every replica and after every crash: each part is
/// hashed after its length, so that `("ab", "c")` and `("a", "bc")` differ.
pub fn derive_hex(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(&hash.finalize()[..16])
}

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// A fresh id, ordered by time.
            pub fn generate() -> Self {
                Self(format!("{}{}", $prefix, uuid::Uuid::now_v7().simple()).into())
            }

            /// The id that these parts always give.
            pub fn derive(parts: &[&str]) -> Self {
                Self(format!("{}{}", $prefix, derive_hex(parts)).into())
            }

            pub fn parse(text: &str) -> Result<Self, IdError> {
                check_id(text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                // Told with the value, as all that does not fit its field is.
                Self::parse(&text).map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), &ALLOWED))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }
    };
}

string_id!(
    /// One agent execution.
    RunId, "run_"
);
string_id!(
    /// The conversation of a run, or of several runs one after the other.
    SessionId, "sess_"
);
string_id!(
    /// From an input to the moment the run parks again.
    TurnId, "turn_"
);
string_id!(
    /// One tool call of a turn.
    CallId, "call_"
);
string_id!(
    /// One sandbox session: a container and its `/work`.
    SandboxId, "sbx_"
);
string_id!(
    /// One command that runs in a sandbox session.
    ExecId, "exec_"
);
string_id!(
    /// What was taken of a run tree, to go on with elsewhere.
    SnapshotId, "snap_"
);
string_id!(
    /// One control-plane process.
    ReplicaId, "replica-"
);

impl SessionId {
    /// The session that a run starts when it joins none.
    pub fn of_run(run: &RunId) -> Self {
        let text = run.as_str();
        let tail = text.strip_prefix("run_").unwrap_or(text);
        Self(format!("sess_{tail}").chars().take(128).collect::<String>().into())
    }
}

/// The number of an activation: grows by one with every take-over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an event in the journal of its run, from 1. It is the SSE id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_outside_the_permitted_form_is_refused() {
        for bad in ["", "a/b", "a b", "ä", "a\0", &"x".repeat(129)] {
            assert_eq!(RunId::parse(bad), Err(IdError), "{bad:?}");
        }
        assert!(RunId::parse(&"x".repeat(128)).is_ok());
    }

    #[test]
    fn derived_ids_depend_on_where_the_parts_end() {
        assert_ne!(RunId::derive(&["ab", "c"]), RunId::derive(&["a", "bc"]));
        assert_eq!(RunId::derive(&["ab", "c"]), RunId::derive(&["ab", "c"]));
    }
}
