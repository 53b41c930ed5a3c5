//! The tasks that bring messages from the connection to their subscribers and servers. Each reads its
//! own bounded buffer, so that one that is slow holds up nothing else on the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::parts::Assembly;
use super::reply;
use crate::{Incoming, metrics};

/// Requests of one subject that are being answered; past them requests get no answer.
const MAX_UNANSWERED: usize = 16_384;

/// Ends when the subscription is dropped or the connection is closed for good.
pub(super) async fn deliver(
    mut subscriber: Subscriber,
    messages: mpsc::Sender<Bytes>,
    dropped: Arc<AtomicU64>,
    subject: &'static str,
) {
    loop {
        let message = tokio::select! {
            () = messages.closed() => return,
            message = subscriber.next() => message,
        };
        let Some(message) = message else { return };
        match messages.try_send(message.payload) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                dropped.fetch_add(1, Ordering::Relaxed);
                metrics::dropped(subject, 1);
            }
            Err(TrySendError::Closed(_)) => return,
        }
    }
}

/// Ends when the requests' receiver is dropped and everything that it took is answered. While the
/// receiver has no room, requests wait in the subscriber's own buffer; past that they are dropped.
pub(super) async fn serve(
    subscriber: Subscriber,
    requests: mpsc::Sender<Incoming>,
    client: Client,
    subject: &'static str,
) {
    let mut answers = FuturesUnordered::new();
    let mut subscriber = Some(subscriber);
    let mut held: Option<Incoming> = None;
    let mut assembly = Assembly::default();
    loop {
        // Nothing more is taken once the receiver is gone; dropping the subscriber tells the server.
        let listening = subscriber.is_some();
        if !listening && answers.is_empty() {
            return;
        }
        tokio::select! {
            Some(()) = answers.next(), if !answers.is_empty() => {}
            () = requests.closed(), if listening => {
                subscriber = None;
                held = None;
            }
            Ok(room) = requests.reserve(), if held.is_some() => {
                if let Some(incoming) = held.take() {
                    room.send(incoming);
                }
            }
            message = next(&mut subscriber), if listening && held.is_none() => {
                let Some(message) = message else {
                    subscriber = None;
                    continue;
                };
                let whole = assembly.take(&message);
                let (Some(payload), Some(inbox)) = (whole, message.reply) else { continue };
                if answers.len() >= MAX_UNANSWERED {
                    metrics::dropped(subject, 1);
                    continue;
                }
                let (answer, answered) = oneshot::channel();
                held = Some(Incoming { payload, answer });
                let client = client.clone();
                answers.push(async move { reply(&client, inbox, answered.await.ok()).await });
            }
        }
    }
}

async fn next(subscriber: &mut Option<Subscriber>) -> Option<Message> {
    match subscriber {
        Some(subscriber) => subscriber.next().await,
        None => None,
    }
}
