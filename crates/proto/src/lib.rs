//! Wire messages, generated from `proto/`.
//!
//! Journal frames are not here: they are JSON and belong to `run-core`.

/// Version 1 of Hearth's own protocol between its members.
pub mod v1 {
    #![allow(clippy::all, clippy::pedantic, missing_docs, reason = "generated")]
    tonic::include_proto!("hearth.v1");
}
