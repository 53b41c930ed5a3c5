//! The wish to stop: Ctrl-C or SIGTERM. What was started is taken down before the program ends.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::Error;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Hears the signals from now on.
    pub(crate) fn on_signals() -> Result<Self, Error> {
        let failed = || Error::io("signals cannot be received");
        let mut term = signal(SignalKind::terminate()).map_err(failed())?;
        let mut int = signal(SignalKind::interrupt()).map_err(failed())?;
        let (tell, told) = watch::channel(false);
        #[allow(clippy::disallowed_methods, reason = "it lives as long as the program")]
        drop(tokio::spawn(async move {
            for again in [false, true] {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                if again {
                    std::process::exit(130);
                }
                eprintln!("stopping; once more stops at once and may leave processes behind");
                tell.send_replace(true);
            }
        }));
        Ok(Self(told))
    }

    pub(crate) fn asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once the end was asked for.
    pub(crate) async fn wait(&self) {
        let mut told = self.0.clone();
        if told.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns so long after the end was asked for.
    pub(crate) async fn wait_and(&self, patience: Duration) {
        self.wait().await;
        tokio::time::sleep(patience).await;
    }

    /// Does the work, unless the end is asked for first.
    pub(crate) async fn unless<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.wait() => Err(Error::Interrupted),
            done = work => done,
        }
    }
}

/// Does the work and waits for it, from a `drop`, which cannot wait by itself: by a thread with a runtime of its own.
pub(crate) fn to_the_end<T: Send>(work: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
    let works = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Error::io("a runtime"))?.block_on(work)
    };
    let done = std::thread::scope(|scope| scope.spawn(works).join());
    done.unwrap_or_else(|_| Err(Error::program("the cleaning up", "it panicked")))
}
