//! The bus as one replica reaches it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hearth_bus::{Bus, Error, Fate, FaultyBus, Incoming, LocalBus, Operation, Requests, Subject, Subscription};
use hearth_telemetry::task;
use hearth_types::ReplicaId;
use tokio::sync::{mpsc, oneshot};

use crate::gate::Power;
use crate::plan::Fault;
use crate::world::{Line, Peer};

const BUFFER: usize = 1_024;

/// Loses, delays and doubles messages before they reach the wire.
pub fn flaky_bus(line: Line, bus: LocalBus) -> FaultyBus<FarBus> {
    let world = line.world.clone();
    FaultyBus::new(FarBus { line, bus }, move |operation| {
        if world.befalls(Fault::FlakyBus, 60) {
            Fate::Lose
        } else if operation == Operation::Request && world.befalls(Fault::FlakyBus, 80) {
            Fate::LoseAnswer
        } else if operation == Operation::Request && world.befalls(Fault::FlakyBus, 80) {
            Fate::Repeat
        } else if world.befalls(Fault::FlakyBus, 60) {
            Fate::Delay(Duration::from_millis(world.below(1_500)))
        } else {
            Fate::Pass
        }
    })
}

pub struct FarBus {
    line: Line,
    bus: LocalBus,
}

/// A publication with its sender, so that who is split from it hears nothing.
fn signed(sender: &ReplicaId, payload: &Bytes) -> Bytes {
    let name = sender.as_str().as_bytes();
    let mut message = vec![u8::try_from(name.len()).unwrap()];
    message.extend_from_slice(name);
    message.extend_from_slice(payload);
    Bytes::from(message)
}

fn unsigned(message: &Bytes) -> (ReplicaId, Bytes) {
    let len = usize::from(message[0]);
    let sender = std::str::from_utf8(&message[1..=len]).unwrap();
    (ReplicaId::parse(sender).unwrap(), message.slice(len + 1..))
}

impl FarBus {
    fn timed_out(subject: &Subject) -> Error {
        Error::Timeout { subject: subject.to_string() }
    }

    fn reaches(&self, subject: &Subject) -> bool {
        let Line { world, replica, .. } = &self.line;
        let split = matches!(subject, Subject::Commands(other) if world.is_split(replica, other));
        !split && !world.is_cut(replica, Peer::Bus)
    }

    async fn exchange(&self, subject: &Subject, payload: Bytes, deadline: Duration) -> Result<Bytes, Error> {
        let world = &self.line.world;
        world.way().await;
        if !self.reaches(subject) {
            return std::future::pending().await;
        }
        if world.befalls(Fault::FlakyBus, 40) {
            // It arrives when nobody waits for it any more.
            let (bus, subject) = (self.bus.clone(), subject.clone());
            let late = Duration::from_millis(world.below(9_000));
            task::spawn("late message", async move {
                tokio::time::sleep(late).await;
                bus.request(&subject, payload, deadline).await.ok();
            });
            return std::future::pending().await;
        }
        let answer = self.bus.request(subject, payload, deadline).await?;
        world.way().await;
        if self.reaches(subject) { Ok(answer) } else { std::future::pending().await }
    }
}

#[async_trait]
impl Bus for FarBus {
    async fn publish(&self, subject: &Subject, payload: Bytes) -> Result<(), Error> {
        self.line.gate.pass().await;
        if self.line.world.is_cut(&self.line.replica, Peer::Bus) {
            return Err(Error::Unavailable { reason: "cut off".into() });
        }
        self.bus.publish(subject, signed(&self.line.replica, &payload)).await
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, Error> {
        self.line.gate.pass().await;
        let Subscription { mut messages, dropped } = self.bus.subscribe(subject).await?;
        let (forward, heard) = mpsc::channel(BUFFER);
        let line = self.line.clone();
        task::spawn("subscription", async move {
            loop {
                let message = tokio::select! {
                    biased;
                    () = forward.closed() => return,
                    message = messages.recv() => message,
                };
                let Some(message) = message else { return };
                let (sender, payload) = unsigned(&message);
                line.world.way().await;
                line.gate.pass().await;
                let cut = line.world.is_cut(&line.replica, Peer::Bus);
                if !cut && !line.world.is_split(&line.replica, &sender) && forward.send(payload).await.is_err() {
                    return;
                }
            }
        });
        Ok(Subscription { messages: heard, dropped })
    }

    async fn request(&self, subject: &Subject, payload: Bytes, deadline: Duration) -> Result<Bytes, Error> {
        self.line.gate.pass().await;
        let answer = tokio::time::timeout(deadline, self.exchange(subject, payload, deadline)).await;
        self.line.gate.pass().await;
        answer.unwrap_or_else(|_| Err(Self::timed_out(subject)))
    }

    async fn serve(&self, subject: &Subject) -> Result<Requests, Error> {
        self.line.gate.pass().await;
        let Requests { mut incoming } = self.bus.serve(subject).await?;
        let (forward, served) = mpsc::channel(BUFFER);
        let line = Arc::new(self.line.clone());
        task::spawn("server", async move {
            loop {
                // A dead process is no responder; a stopped one lets requests wait.
                let request = tokio::select! {
                    biased;
                    () = line.gate.died() => return,
                    request = incoming.recv() => request,
                };
                let Some(Incoming { payload, answer }) = request else { return };
                if line.gate.power() == Power::Stopped {
                    line.gate.pass().await;
                }
                let (inner, answered) = oneshot::channel();
                let line = line.clone();
                task::spawn("answer", async move {
                    if let Ok(said) = answered.await {
                        line.gate.pass().await;
                        answer.send(said).ok();
                    }
                });
                if forward.send(Incoming { payload, answer: inner }).await.is_err() {
                    return;
                }
            }
        });
        Ok(Requests { incoming: served })
    }
}
