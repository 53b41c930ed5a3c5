//! The `local` driver, with bubblewrap where it works and without: real sessions, real processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod commands;
mod ground;
mod life;
