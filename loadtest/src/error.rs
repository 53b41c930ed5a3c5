//! Why a measurement could not be made.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be done; the message says what is allowed.
    #[error("{0}")]
    Usage(String),
    #[error("interrupted")]
    Interrupted,
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{what}: {reason}")]
    Program { what: String, reason: String },
    #[error("the target: {0}")]
    Client(#[from] hearth_client::Error),
    #[error("the target answered what it should not: {0}")]
    Answer(String),
    #[error("HTTP: {0}")]
    Http(#[from] reqwest::Error),
    #[error("NATS: {0}")]
    Nats(String),
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the journal: {0}")]
    Journal(#[from] hearth_journal::Error),
    #[error("the Docker Engine: {0}")]
    Engine(#[from] bollard::errors::Error),
    #[error("the sandbox: {0}")]
    Sandbox(String),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn program(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Program { what: what.into(), reason: reason.into() }
    }
}

impl From<hearth_types::Fault> for Error {
    fn from(fault: hearth_types::Fault) -> Self {
        Self::Sandbox(format!("{}: {}", fault.code.as_str(), fault.message))
    }
}
