//! Whether the answer to a call has gone out.
//!
//! A client that goes away during a call learns nothing of what the call made. The toolbox says what is to be done
//! then, and it is done unless the client takes the stream of its answer up again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::sessions::Sessions;

/// How long a client may take to ask for the stream that it lost; the protocol tells it to wait for three seconds.
const GRACE: Duration = Duration::from_secs(10);

enum Stage {
    /// The call is under way, and its client is there.
    Awaited,
    /// There is an answer, and it is on its way.
    Answered(BoxFuture<'static, ()>),
    /// A piece of the response went out after there was an answer.
    Sent,
    /// Nobody reads the response any more.
    Lost(Instant),
}

/// The half of a request's handler.
#[derive(Clone)]
pub(crate) struct Receipt(Arc<Shared>);

struct Shared {
    stage: Mutex<Stage>,
    /// The MCP session in which a lost answer can be asked for again.
    session: Option<(Arc<Sessions>, String)>,
}

/// The half that goes with the response, wherever that ends.
pub(crate) struct Delivery(Receipt);

impl Delivery {
    pub(crate) fn new(session: Option<(Arc<Sessions>, String)>) -> Self {
        Self(Receipt(Arc::new(Shared { stage: Mutex::new(Stage::Awaited), session })))
    }

    pub(crate) fn receipt(&self) -> Receipt {
        self.0.clone()
    }

    /// A piece of the response is handed to the connection.
    pub(crate) fn carried(&self) {
        let mut stage = self.0.stage();
        if let Stage::Answered(_) = *stage {
            *stage = Stage::Sent;
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let now = Instant::now();
        let before = {
            let mut stage = self.0.stage();
            match *stage {
                Stage::Sent => return,
                _ => std::mem::replace(&mut *stage, Stage::Lost(now)),
            }
        };
        if let Stage::Answered(unread) = before {
            self.0.carry_out(unread, now);
        }
    }
}

impl Receipt {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is an answer; `unread` is what to do if it cannot be delivered.
    pub(crate) fn answered(&self, unread: BoxFuture<'static, ()>) {
        let lost = {
            let mut stage = self.stage();
            match *stage {
                Stage::Lost(at) => at,
                _ => {
                    *stage = Stage::Answered(unread);
                    return;
                }
            }
        };
        self.carry_out(unread, lost);
    }

    fn carry_out(&self, unread: BoxFuture<'static, ()>, lost: Instant) {
        if tokio::runtime::Handle::try_current().is_err() {
            // The process ends.
            return;
        }
        let shared = self.0.clone();
        drop(hearth_telemetry::task::spawn("mcp-unread", async move {
            if let Some((sessions, id)) = &shared.session {
                tokio::time::sleep(GRACE).await;
                if sessions.taken_up_since(id, lost) {
                    return;
                }
            }
            unread.await;
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Owner;

    fn noted() -> (Arc<AtomicBool>, BoxFuture<'static, ()>) {
        let done = Arc::new(AtomicBool::new(false));
        let of = done.clone();
        (done, Box::pin(async move { of.store(true, Ordering::Relaxed) }))
    }

    async fn after_the_grace(done: &AtomicBool) -> bool {
        tokio::time::sleep(GRACE * 2).await;
        done.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_went_out_is_not_undone_and_one_that_did_not_is() {
        let delivery = Delivery::new(None);
        let (sent, undo) = noted();
        delivery.carried();
        delivery.receipt().answered(undo);
        delivery.carried();
        drop(delivery);
        assert!(!after_the_grace(&sent).await);

        let delivery = Delivery::new(None);
        let (unsent, undo) = noted();
        delivery.carried();
        delivery.receipt().answered(undo);
        drop(delivery);
        assert!(after_the_grace(&unsent).await, "what went out before the answer was not the answer");

        let delivery = Delivery::new(None);
        let (late, undo) = noted();
        let receipt = delivery.receipt();
        drop(delivery);
        receipt.answered(undo);
        assert!(after_the_grace(&late).await, "the client had gone before there was an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_its_stream_up_again_keeps_what_its_call_made() {
        let sessions = Sessions::new(4, Duration::from_secs(600));
        let owner = Owner("ann".to_owned());
        sessions.reserve(&owner).unwrap().fill("s", &owner);
        for taken_up in [true, false] {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let delivery = Delivery::new(Some((sessions.clone(), "s".to_owned())));
            let (done, undo) = noted();
            let receipt = delivery.receipt();
            drop(delivery);
            receipt.answered(undo);
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(!done.load(Ordering::Relaxed), "it has time for that");
            if taken_up {
                sessions.taken_up("s");
            }
            assert_eq!(after_the_grace(&done).await, !taken_up);
        }
    }
}
