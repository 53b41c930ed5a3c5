//! Code agents: deterministic programs in JavaScript instead of a model.
//!
//! A program lives on a thread of its own and blocks there while a tool runs, so that a call costs
//! one step and never a re-run. After a crash, or when it had to make room, it runs again from its
//! top on the recorded results; the times and random numbers it sees are the same then.

mod bounds;
mod hosting;
mod pool;
mod record;
mod turn;
mod vm;
mod worker;

use std::sync::Arc;

pub use bounds::CodeBounds;
use hearth_types::derive_hex;
use pool::Pool;
use record::Record;
use turn::CodeTurn;
use vm::Program;
pub use worker::{CodeWorker, serve_code_worker};

use crate::{Error, ErrorKind, Model, ModelTurn, TurnContext};

/// All code agents of this process, which share its bounds.
pub(crate) struct CodeAgents {
    pool: Arc<Pool>,
}

impl CodeAgents {
    pub fn new(bounds: CodeBounds, worker: Option<CodeWorker>) -> Self {
        Self { pool: Pool::new(bounds, worker) }
    }
}

impl Model for CodeAgents {
    fn needs_history(&self) -> bool {
        false
    }

    fn begin(&self, turn: TurnContext) -> Result<Box<dyn ModelTurn>, Error> {
        let steered = turn.recorded.last().map(|recorded| recorded.steered.clone()).unwrap_or_default();
        let record = Record::from_journal(turn.recorded, self.pool.bounds.record_bytes)?;
        let program = Program {
            code: turn.agent.code.clone().unwrap_or_default(),
            prompt: turn.prompt,
            started_at: turn.started_at,
            seed: derive_hex(&["random", turn.run_id.as_str(), turn.turn_id.as_str()]),
        };
        Ok(Box::new(CodeTurn::new(self.pool.clone(), program, record, steered)))
    }
}

/// Whether `source` is a script at all; runs none of it. The error begins with what is wrong and
/// names the place as `agent.js:LINE:COLUMN`. For whoever loads definitions.
pub fn check_code(source: &str) -> Result<(), Error> {
    vm::check(source, &CodeBounds::default()).map_err(|message| Error::new(ErrorKind::Invalid, message))
}
