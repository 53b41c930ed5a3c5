//! The driver's way to its actor.

use std::sync::Arc;

use async_trait::async_trait;
use hearth_bus::Subject;
use hearth_engine::{Stopped, ToolAck, TurnPort};
use hearth_models::Delta;
use hearth_run_core::{StepReport, ToolReport};
use hearth_types::{RunId, TurnId};
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::actor::Message;
use crate::live::LiveItem;
use crate::residents::Inner;

pub(crate) struct ActorPort {
    pub inner: Arc<Inner>,
    pub run_id: RunId,
    pub actor: ActorRef<Message>,
}

impl ActorPort {
    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<Result<T, Stopped>>) -> Message) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.actor.cast(message(reply)).map_err(|_| Stopped)?;
        let answer = answer.await.map_err(|_| Stopped)??;
        self.inner.trusted().await;
        Ok(answer)
    }
}

#[async_trait]
impl TurnPort for ActorPort {
    async fn step(&self, report: StepReport) -> Result<bool, Stopped> {
        self.ask(|reply| Message::Step { report: Box::new(report), reply }).await
    }

    async fn tool(&self, report: ToolReport) -> Result<ToolAck, Stopped> {
        self.ask(|reply| Message::Tool { report: Box::new(report), reply }).await
    }

    async fn delta(&self, turn_id: &TurnId, delta: Delta) {
        let subject = Subject::RunEvents(self.run_id.clone());
        if !self.inner.bus.may_be_heard(&subject) {
            return;
        }
        let (turn_id, at) = (turn_id.clone(), self.inner.clock.now());
        let item = match delta {
            Delta::Text(text) => LiveItem::Text { turn_id, text, at },
            Delta::Thinking(text) => LiveItem::Thinking { turn_id, text, at },
        };
        if let Some(bytes) = item.encode() {
            // A lost delta is superseded by its step.
            self.inner.bus.publish(&subject, bytes).await.ok();
        }
    }
}
