//! Why the demo could not go on.

use hearth_client::Error;

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The server refused, or was away for too long.
    #[error("{doing}: {source}")]
    Call { doing: &'static str, source: Error },
    /// What came back is not what the contract says.
    #[error("{doing}: {detail}")]
    Answer { doing: &'static str, detail: String },
    /// Something on this machine.
    #[error("{0}")]
    Here(String),
    #[error("interrupted")]
    Interrupted,
}

impl Trouble {
    pub fn call(doing: &'static str) -> impl FnOnce(Error) -> Self {
        move |source| Self::Call { doing, source }
    }

    pub fn answer(doing: &'static str, detail: impl Into<String>) -> Self {
        Self::Answer { doing, detail: detail.into() }
    }
}
