//! How a journal operation can end other than well.

use crate::Position;

/// The three ways an append ends are `Ok`, [`Error::Fenced`] and [`Error::Unknown`]; the other kinds
/// say that the store certainly did not take it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else appended: the log's last position is not the expected one.
    #[error("the log stands at {last}, not at the expected position")]
    Fenced { last: Position },
    /// The store may or may not hold the frame. Append the identical bytes again under the same
    /// append id until the answer is another one.
    #[error("the outcome of the append is unknown: {reason}")]
    Unknown { reason: String },
    /// The store cannot be reached now; nothing was written.
    #[error("the journal is out of reach: {reason}")]
    Unavailable { reason: String },
    /// The store has no room; nothing was written. Reads go on.
    #[error("the journal has no room: {reason}")]
    Full { reason: String },
    /// The frame is larger than the store takes.
    #[error("a frame of {bytes} bytes is over the journal's limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// What the store holds is not what was written.
    #[error("the journal is damaged at {place}: {reason}")]
    Corrupt { place: String, reason: String },
}

impl Error {
    /// The kind's name, for metrics and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "fenced",
            Self::Unknown { .. } => "unknown",
            Self::Unavailable { .. } => "unavailable",
            Self::Full { .. } => "full",
            Self::TooLarge { .. } => "too_large",
            Self::Corrupt { .. } => "corrupt",
        }
    }

    /// Whether the same append may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Unavailable { .. } | Self::Full { .. })
    }
}
