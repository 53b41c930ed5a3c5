//! What has to hold for the demo to have shown what it claims.

use serde_json::{Value, json};

use super::telling::Telling;

#[derive(Default)]
pub struct Checks {
    held: Vec<String>,
    failed: Vec<String>,
}

impl Checks {
    /// Tells and counts one claim. `detail` says what was seen.
    pub fn that(&mut self, telling: &Telling, holds: bool, claim: &str, detail: &str) {
        let said = if detail.is_empty() { claim.to_owned() } else { format!("{claim}: {detail}") };
        if holds {
            telling.good(&said);
            self.held.push(said);
        } else {
            telling.bad(&said);
            self.failed.push(said);
        }
    }

    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    pub fn count(&self) -> usize {
        self.held.len() + self.failed.len()
    }

    pub fn to_json(&self) -> Value {
        json!({ "held": self.held, "failed": self.failed })
    }
}
