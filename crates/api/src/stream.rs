//! The event stream of a run: what the journal holds, then what happens, each journaled event once.

use std::collections::VecDeque;

use futures::stream::{BoxStream, StreamExt};
use hearth_bus::{Subject, Subscription};
use hearth_journal::{LogKey, Position, SharedJournal};
use hearth_residency::{Error, LiveItem};
use hearth_run_core::{Event, Frame, Recorded, Run};
use hearth_types::{Fault, RunId, RunState, Seq, Timestamp, TurnId};
use serde_json::{Value, json};

use crate::answers::StreamEvent;
use crate::{Caller, Hearth, StreamFrom};

/// Frames that one read asks for; what it gives waits in memory until the reader takes it.
const BATCH: usize = 64;
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
        let key = LogKey::Run(self.run_id.clone());
        let frames = self.journal.read(&key, self.position, BATCH).await.map_err(Error::from)?;
        self.stale = frames.len() == BATCH;
        for stored in frames {
            let run = self.run_id.to_string();
            let frame = Frame::decode(&stored.frame).map_err(|source| Error::Fold { run, source })?;
            self.position = stored.position;
            self.give(frame);
        }
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

    /// A snapshot after events that were not given: they were folded into it, and are gone.
    fn resync(&mut self, recorded: &Recorded, run: &Run) {
        self.next = recorded.seq.next();
        self.live_turn = run.current.as_ref().map(|turn| turn.turn_id.clone());
        let data =
            json!({ "seq": recorded.seq, "run_id": self.run_id, "at": timestamp(recorded.at), "run": folded(run) });
        self.ready.push_back(StreamEvent { id: Some(recorded.seq.0), name: "resync", data });
    }

    fn give(&mut self, frame: Frame) {
        let skips = frame.first_seq > self.next;
        let mut step_text = String::new();
        for recorded in frame.recorded() {
            // What a run hears of its children after its own end is not told: `done` is the last word.
            if self.over {
                return;
            }
            if let (true, Event::Snapshot { run, .. }) = (skips, &recorded.event) {
                self.resync(&recorded, run);
                continue;
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

/// The folded state as a reader needs it to go on from.
fn folded(run: &Run) -> Value {
    let spec = &run.spec;
    let mut data = json!({
        "session_id": spec.session_id, "agent": spec.agent.name, "root_run_id": spec.root_run_id,
        "parent_run_id": spec.parent.as_ref().map(|parent| &parent.run_id), "resident": spec.interactive,
        "state": run.state, "turns": run.turns, "queued": run.queue.len(),
        "usage": { "input_tokens": run.usage.input_tokens, "output_tokens": run.usage.output_tokens },
        "turn": null, "last_turn": null,
    });
    if let Some(turn) = &run.current {
        let open: Vec<Value> = turn.open_calls().map(|call| json!({ "call_id": call.id, "name": call.name })).collect();
        data["turn"] = json!({
            "turn_id": turn.turn_id, "started_at": timestamp(turn.started_at), "text": turn.text_so_far(),
            "open_calls": open,
        });
    }
    if let Some(turn) = run.last_ended() {
        data["last_turn"] = json!({
            "turn_id": turn.turn_id, "outcome": turn.outcome, "output": turn.output, "truncated": turn.truncated,
            "ended_at": timestamp(turn.ended_at),
        });
    }
    data
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
        | Event::SandboxOverridden { .. }
        | Event::SandboxForgotten
        | Event::KeyUsed { .. } => return None,
    })
}
