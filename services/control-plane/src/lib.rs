//! The HTTP surface of a replica and its settings: it decodes requests, calls the use cases and
//! encodes their answers.
//!
//! It does not decide anything about runs, keeps no state of them, and does not put a replica
//! together anywhere but in [`wiring`], the one place that knows concrete adapters.
//!
//! What it accepts, where the contract leaves it open:
//! - A body is JSON whatever its content type says, and an absent body is `{}`; a content encoding
//!   is refused.
//! - A query parameter that a path does not know, or that comes twice, is refused.
//! - Of `Last-Event-ID` and `from_seq` the first wins: browsers reconnect to the same address, with
//!   the header added.
//! - A wrong method on a known path is 405 with the code `invalid_argument` and an `Allow` header.
//! - A gRPC call is its HTTP call in another encoding: an absent field says the same there as here. A stream whose
//!   replica ends before the run does ends with `UNAVAILABLE`.

pub mod auth;
pub mod config;
pub mod dev;
pub mod http;
mod metrics;
pub mod wiring;
