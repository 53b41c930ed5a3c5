//! Kills replicas while others work, and starts them again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::world::World;
use crate::processes::{Member, restart_member, signal};

/// From a kill to the new start: longer than a lease, so that the others have to take over.
const DOWN: Duration = Duration::from_secs(4);

/// Who is killed, and how often.
#[derive(Debug, Clone)]
pub(crate) struct Kills {
    pub replicas: Vec<Member>,
    pub hearth: PathBuf,
    pub data: PathBuf,
    pub every: Duration,
}

/// The task that kills. Its last victim is started again before it ends.
pub(super) struct Chaos {
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Chaos {
    pub(super) async fn end(self) {
        self.stop.notify_one();
        self.task.await.ok();
    }
}

pub(super) static KILLS: AtomicU64 = AtomicU64::new(0);

pub(super) fn start(kills: Kills, world: Arc<World>) -> Chaos {
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    #[allow(clippy::disallowed_methods, reason = "its handle is kept, and awaited at the end")]
    let task = tokio::spawn(async move {
        let mut members = kills.replicas.clone();
        for victim in (0..members.len()).cycle() {
            tokio::select! {
                () = tokio::time::sleep(kills.every) => {}
                () = stopped.notified() => return,
            }
            let id = members[victim].id.clone();
            eprintln!("\nkill -9 {id}");
            signal(members[victim].pid, Signal::KILL);
            KILLS.fetch_add(1, Ordering::Relaxed);
            world.recorder.mark(format!("kill -9 {id}"));
            tokio::time::sleep(DOWN).await;
            match restart_member(&kills.hearth, &kills.data, &id).await {
                Ok(member) => {
                    world.recorder.mark(format!("{id} is back"));
                    members[victim] = member;
                }
                Err(error) => {
                    eprintln!("\n{id} could not be started again: {error}");
                    return;
                }
            }
        }
    });
    Chaos { stop, task }
}
