//! How a chore can fail.

use std::fmt;
use std::path::PathBuf;

use crate::{USAGE, image};

#[derive(Debug)]
pub enum Failure {
    Usage(String),
    Image(image::Error),
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A program that could not be started, or that ended badly.
    Program {
        line: String,
        reason: String,
    },
    /// What a program printed is not what was expected.
    Output {
        line: String,
        reason: String,
    },
    /// A check found faults, and has printed them.
    Findings {
        check: &'static str,
        count: usize,
    },
    /// The tests failed, and the runner has said so.
    Tests,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(reason) => write!(f, "{reason}\n{USAGE}"),
            Self::Image(error) => error.fmt(f),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Program { line, reason } | Self::Output { line, reason } => write!(f, "`{line}`: {reason}"),
            Self::Findings { check, count } => write!(f, "{check}: {count} faults"),
            Self::Tests => f.write_str("tests failed"),
        }
    }
}

impl std::error::Error for Failure {}
