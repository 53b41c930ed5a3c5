//! Cancel and close, the same for runs and residents.

use hearth_run_core::{Cancel as CancelCommand, Close as CloseCommand};
use hearth_types::{Envelope, Fault, RunId};

use crate::answers::{Answer, CancelAnswer, CloseAnswer};
use crate::start::after_acceptance;
use crate::{Caller, Cancel, Close, Hearth, check};

impl Hearth {
    /// Ends a turn; the run stays. `child` says whether the answer names `child_run_id` too.
    pub async fn cancel(
        &self,
        caller: &Caller,
        run: &str,
        request: Cancel,
        child: bool,
    ) -> Result<Answer<CancelAnswer>, Fault> {
        check::label("reason", request.reason.as_deref())?;
        let head = self.run_for(caller, run).await?;
        let command = CancelCommand {
            turn_id: request.turn_id,
            reason: request.reason,
            key: Some(Self::key_for_once(caller)),
            partial: String::new(),
        };
        let cancelled = self.residents().cancel(&head.run_id, command).await?;
        let mut envelope = self.envelope_of(&head.run_id, cancelled.turn_id.as_ref()).await?;
        if let (Some(turn_id), true, None) = (&cancelled.turn_id, cancelled.stopped, envelope.outcome) {
            // Told by an activation that was superseded before the cancel; the journal knows better.
            envelope = self.residents().turn_in_journal(&head.run_id, turn_id).await?;
        }
        if child {
            envelope.child_run_id = Some(head.run_id.clone());
        }
        let mut replayed = cancelled.replayed;
        if !cancelled.stopped && !replayed && envelope.state.is_final() {
            replayed = self.bind_key(caller).await?;
        }
        let body = CancelAnswer { envelope, stopped: cancelled.stopped };
        Ok(Answer { body, replayed })
    }

    /// The turn's envelope; the run's own where it has no such turn.
    async fn envelope_of(&self, run_id: &RunId, turn_id: Option<&hearth_types::TurnId>) -> Result<Envelope, Fault> {
        if let Some(turn_id) = turn_id {
            match self.residents().turn(run_id, turn_id).await {
                Err(hearth_residency::Error::NotFound) => {}
                known => return Ok(known?),
            }
        }
        let (run, live) = self.residents().look(run_id).await?;
        let newest = run.newest_turn.as_ref().and_then(|turn_id| run.envelope(turn_id, &live));
        Ok(newest.unwrap_or_else(|| run.turnless_envelope()))
    }

    /// Ends a run with its subtree; answers once all of it is final.
    pub async fn close(
        &self,
        caller: &Caller,
        run: &str,
        request: Close,
        child: bool,
    ) -> Result<Answer<CloseAnswer>, Fault> {
        check::label("reason", request.reason.as_deref())?;
        let head = self.run_for(caller, run).await?;
        let command =
            CloseCommand { reason: request.reason, key: Some(Self::key_for_once(caller)), partial: String::new() };
        let (initiated, mut replayed) = self.residents().close(&head.run_id, command).await?;
        let (state, closed) = self.residents().await_end(&head.run_id).await.map_err(after_acceptance)?;
        if !initiated && !replayed {
            // A run that has ended takes no more frames; neither does it change.
            replayed = self.bind_key(caller).await?;
        }
        let body = CloseAnswer {
            child_run_id: child.then(|| head.run_id.clone()),
            run_id: head.run_id,
            state,
            closed_descendants: if initiated { closed } else { 0 },
        };
        Ok(Answer { body, replayed })
    }
}
