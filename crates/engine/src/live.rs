//! The text of the step that runs now, shared by the driver that writes it and the actor that shows
//! it when somebody polls or cancels.

use std::sync::{Arc, Mutex, PoisonError};

use hearth_types::limits;

#[derive(Debug, Clone, Default)]
pub struct LiveOutput(Arc<Mutex<String>>);

impl LiveOutput {
    /// Appends, up to the bound on a turn's output.
    pub fn push(&self, text: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = limits::MAX_OUTPUT_BYTES.saturating_sub(held.len());
        let cut = text.floor_char_boundary(room.min(text.len()));
        held.push_str(&text[..cut]);
    }

    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
