//! What the folded state no longer holds, read from the journal.

use hearth_journal::{Journal, Position};
use hearth_models::{Message, MessageRole};
use hearth_run_core::{Event, Frame, Run};
use hearth_types::{Envelope, RunId, TurnId};
use serde_json::Value;

use crate::Error;
use crate::log::each_frame;

/// The envelope of a turn that ended too long ago to be in the folded state, or that never started.
/// `None`: the run knows no such turn, or it has not ended.
pub async fn ended_turn(journal: &dyn Journal, run_id: &RunId, turn_id: &TurnId) -> Result<Option<Envelope>, Error> {
    let (mut run, mut accepted, mut found) = (None, false, None);
    each_frame(journal, run_id, Position(0), |frame: Frame| {
        accepted |=
            frame.events.iter().any(|event| matches!(event, Event::TurnAccepted { turn_id: id, .. } if id == turn_id));
        Run::fold(&mut run, frame)?;
        let ended = run.as_ref().and_then(|run| run.ended.iter().rev().find(|turn| &turn.turn_id == turn_id));
        if found.is_none() && ended.is_some() {
            found = ended.cloned();
        }
        Ok(())
    })
    .await?;
    let Some(run) = run else { return Ok(None) };
    Ok(match found {
        Some(turn) => run.ended_envelope(&turn),
        None if accepted && run.state.is_final() => Some(run.never_started(turn_id)),
        None => None,
    })
}

/// The conversation of a run before its current turn, for models that need it.
pub async fn conversation(journal: &dyn Journal, run_id: &RunId) -> Result<Vec<Message>, Error> {
    let mut messages = Vec::new();
    let mut prompts = std::collections::HashMap::new();
    let mut text = String::new();
    each_frame(journal, run_id, Position(0), |frame: Frame| {
        for event in frame.events {
            match event {
                Event::TurnAccepted { turn_id, prompt, .. } => {
                    prompts.insert(turn_id, prompt);
                }
                Event::TurnStarted { turn_id } => {
                    let prompt = prompts.remove(&turn_id).unwrap_or_default();
                    messages.push(Message { role: MessageRole::User, content: Value::String(prompt) });
                    text.clear();
                }
                Event::Text { text: step, .. } => text = step,
                Event::TurnEnded { output, .. } => {
                    let output = output.unwrap_or_else(|| std::mem::take(&mut text));
                    messages.push(Message { role: MessageRole::Assistant, content: Value::String(output) });
                }
                _ => {}
            }
        }
        Ok(())
    })
    .await?;
    if messages.last().is_some_and(|message| message.role == MessageRole::User) {
        messages.pop();
    }
    Ok(messages)
}
