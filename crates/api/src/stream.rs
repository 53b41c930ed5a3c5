//! The event stream of a run: what the journal holds, then what happens, each journaled event once.

use std::collections::VecDeque;

use futures::stream::{BoxStream, StreamExt};
use hearth_bus::{Subject, Subscription};
use hearth_journal::{Position, SharedJournal};
use hearth_residency::{LiveItem, each_frame};
use hearth_run_core::{Event, Frame, Recorded};
use hearth_types::{Fault, RunId, RunState, Seq, Timestamp, TurnId};
use serde_json::{Value, json};

use crate::answers::StreamEvent;
use crate::{Caller, Hearth, StreamFrom};

/// Without a word from the bus for this long, the journal is asked: a lost event costs a delay, never
/// the event.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_secs(2);

impl Hearth {
    /// Ends after `done`.
    pub async fn stream(
        &self,
        caller: &Caller,
        run: &str,
        from: StreamFrom,
    ) -> Result<BoxStream<'static, Result<StreamEvent, Fault>>, Fault> {
        let head = self.run_for(caller, run).await?;
        // First the subscription, then the journal: what is appended in between arrives twice and is
        // told apart by its number.
        let live = self.deps.bus.subscribe(&Subject::RunEvents(head.run_id.clone())).await;
        let live = live.map_err(|error| Fault::unavailable(format!("{error}; repeat with Last-Event-ID")))?;
        let reader = Reader {
            journal: self.deps.journal.clone(),
            run_id: head.run_id,
            live,
            next: Seq(from.seq.max(1)),
            position: Position(0),
            ready: VecDeque::new(),
            live_turn: None,
            stale: true,
            over: false,
        };
        Ok(futures::stream::unfold(reader, |mut reader| async move {
            let item = reader.next().await?;
            Some((item, reader))
        })
        .boxed())
    }
}

struct Reader {
    journal: SharedJournal,
    run_id: RunId,
    live: Subscription,
    /// The number of the next journaled event to give.
    next: Seq,
    /// Where the journal was read up to.
    position: Position,
    ready: VecDeque<StreamEvent>,
    /// The turn whose deltas are shown: the one that the given events have started.
    live_turn: Option<TurnId>,
    /// The journal may hold more than was given.
    stale: bool,
    over: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<StreamEvent, Fault>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            if self.stale {
                if let Err(fault) = self.read_journal().await {
                    self.over = true;
                    return Some(Err(fault));
                }
                continue;
            }
            match tokio::time::timeout(ASK_AGAIN, self.live.messages.recv()).await {
                Ok(Some(bytes)) => match LiveItem::decode(&bytes) {
                    Some(item) => self.take(item),
                    None => self.stale = true,
                },
                Ok(None) => {
                    self.over = true;
                    return Some(Err(Fault::unavailable("the stream was cut; repeat with Last-Event-ID")));
                }
                Err(_) => self.stale = true,
            }
        }
    }

    async fn read_journal(&mut self) -> Result<(), Fault> {
        let (journal, run_id, after) = (self.journal.clone(), self.run_id.clone(), self.position);
        let mut frames = Vec::new();
        let position = each_frame(&*journal, &run_id, after, |frame| {
            frames.push(frame);
            Ok(())
        })
        .await?;
        for frame in frames {
            self.give(frame);
        }
        self.position = position;
        self.stale = false;
        Ok(())
    }

    fn take(&mut self, item: LiveItem) {
        let at_delta = |name, turn_id: TurnId, text: String, at| StreamEvent {
            id: None,
            name,
            data: json!({ "run_id": self.run_id, "turn_id": turn_id, "at": at, "delta": text }),
        };
        match item {
            LiveItem::Frame(frame) if frame.first_seq > self.next_unread() => self.stale = true,
            LiveItem::Frame(frame) => self.give(frame),
            LiveItem::Text { turn_id, text, at } if self.live_turn.as_ref() == Some(&turn_id) => {
                self.ready.push_back(at_delta("text", turn_id, text, at));
            }
            LiveItem::Thinking { turn_id, text, at } if self.live_turn.as_ref() == Some(&turn_id) => {
                self.ready.push_back(at_delta("thinking", turn_id, text, at));
            }
            LiveItem::Text { .. } | LiveItem::Thinking { .. } => {}
        }
    }

    /// A stream that starts past the journal's end waits for that event; nothing before it is a gap.
    fn next_unread(&self) -> Seq {
        self.next
    }

    fn give(&mut self, frame: Frame) {
        let mut step_text = String::new();
        for recorded in frame.recorded() {
            // What a run hears of its children after its own end is not told: `done` is the last word.
            if self.over {
                return;
            }
            if let Event::Text { text, .. } = &recorded.event {
                step_text.clone_from(text);
            }
            match &recorded.event {
                Event::TurnStarted { turn_id } => self.live_turn = Some(turn_id.clone()),
                Event::TurnEnded { .. } => self.live_turn = None,
                _ => {}
            }
            let ends = matches!(&recorded.event, Event::TurnEnded { state, .. } if state.is_final())
                || matches!(recorded.event, Event::Closed);
            if recorded.seq >= self.next {
                self.next = recorded.seq.next();
                self.ready.extend(shown(&self.run_id, recorded, &step_text));
            }
            if ends {
                self.over = true;
            }
        }
    }
}

fn shown(run_id: &RunId, recorded: Recorded, step_text: &str) -> Option<StreamEvent> {
    let Recorded { seq, at, event } = recorded;
    let turn_id = event.turn_id().cloned();
    let (name, mut data) = body(event, step_text)?;
    data["seq"] = seq.0.into();
    data["run_id"] = run_id.as_str().into();
    data["at"] = timestamp(at);
    if let Some(turn_id) = turn_id {
        data["turn_id"] = turn_id.as_str().into();
    }
    Some(StreamEvent { id: Some(seq.0), name, data })
}

fn timestamp(at: Timestamp) -> Value {
    Value::String(at.to_string())
}

/// The name and the fields of an event as users see it; `None` for what only Hearth needs.
fn body(event: Event, step_text: &str) -> Option<(&'static str, Value)> {
    Some(match event {
        Event::Created { spec } => (
            "session",
            json!({
                "session_id": spec.session_id, "agent": spec.agent.name, "root_run_id": spec.root_run_id,
                "parent_run_id": spec.parent.map(|parent| parent.run_id), "resident": spec.interactive,
            }),
        ),
        Event::TurnStarted { .. } => ("started", json!({})),
        Event::Text { text, .. } => ("text", json!({ "text": text })),
        Event::Thinking { text, .. } => ("thinking", json!({ "text": text })),
        Event::ToolCalled { call, .. } => {
            ("tool_call", json!({ "call_id": call.id, "name": call.name, "arguments": call.arguments }))
        }
        Event::ToolFinished { call_id, output, .. } => {
            ("tool_result", json!({ "call_id": call_id, "content": output.content, "is_error": output.is_error }))
        }
        Event::UsageCounted { usage, .. } => {
            ("usage", json!({ "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens }))
        }
        Event::Steered { text, .. } => ("steer", json!({ "text": text })),
        Event::TurnCancelled { reason, .. } => ("turn_cancelled", json!({ "reason": reason })),
        Event::Blocked { blocker, .. } => ("blocked", json!({ "blocker": blocker })),
        Event::TurnEnded { outcome, output, truncated, error, blocker, state, .. } => {
            let output = output.unwrap_or_else(|| step_text.to_owned());
            let mut data = json!({ "state": state, "outcome": outcome, "output": output, "truncated": truncated });
            if let Some(error) = error {
                data["error"] = json!(error);
            }
            if let Some(blocker) = blocker {
                data["blocker"] = json!(blocker);
            }
            (if state.is_final() { "done" } else { "awaiting_input" }, data)
        }
        Event::ChildOpened { spec, kind, turn_id, .. } => (
            "spawn_child_started",
            json!({
                "child_run_id": spec.run_id, "agent": spec.agent.name, "child_turn_id": turn_id, "kind": kind,
            }),
        ),
        Event::ChildEnded { child_run_id, state, .. } => {
            ("spawn_child_result", json!({ "child_run_id": child_run_id, "state": state }))
        }
        Event::Closed => ("done", json!({ "state": RunState::Closed, "outcome": null, "output": "" })),
        Event::Activated { .. }
        | Event::TurnAccepted { .. }
        | Event::StepFinished { .. }
        | Event::ChildConfirmed { .. }
        | Event::ChildRefused { .. }
        | Event::Closing { .. }
        | Event::Released
        | Event::Snapshot { .. }
        | Event::SandboxBound { .. }
        | Event::KeyUsed { .. } => return None,
    })
}
