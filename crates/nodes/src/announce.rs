//! What this node tells the registry of itself, at each beat.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_registry::{NodeRow, NodeUsage, SharedRegistry, WorkspaceHome};
use hearth_sandbox::SharedDriver;
use hearth_sandbox::node::{Homes, Node, NodeOptions, workspace_store};
use hearth_types::{Timestamp, check_id};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;
use crate::nodes::workspace_key;

/// What changes seldom is looked at every so many beats.
const SELDOM: u64 = 40;
/// Workspaces that are told of; more are found by those who open them.
const MAX_WORKSPACES: usize = 100_000;

/// Renews a node's row in the registry until the end, and then takes it away.
pub struct Announcer {
    registry: SharedRegistry,
    node: Arc<Node>,
    row: NodeRow,
    lease: Duration,
    machine: Machine,
    root: Option<PathBuf>,
    /// The workspaces that the registry was told of, and those that it is still to be told of.
    told: HashSet<String>,
    untold: Vec<(String, String)>,
    /// How long the registry has to keep what it was told before it says so, and since when it has.
    settles_after: Duration,
    kept_since: Option<Instant>,
    settled: bool,
    /// Whether other nodes of the registry may take over what this one has.
    has_peers: bool,
}

impl Announcer {
    /// `url` is where replicas reach the node.
    ///
    /// # Errors
    /// The storage of workspaces cannot be used.
    pub fn new(
        registry: SharedRegistry,
        node: Arc<Node>,
        options: &NodeOptions,
        drivers: &[SharedDriver],
        url: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Self, hearth_sandbox::Error> {
        let known = ["runc", "crun", "runsc", "kata"];
        let has = |name: &&str| drivers.iter().any(|driver| driver.has_runtime(name));
        let root = options.workspace_root.clone();
        let row = NodeRow {
            node: options.name.clone(),
            url,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now,
            draining: false,
            sessions: 0,
            max_sessions: options.max_sessions.get() as u64,
            levels: drivers.iter().map(|driver| driver.isolation()).collect(),
            runtimes: known.iter().filter(|name| has(name)).map(|name| (*name).to_owned()).collect(),
            image: options.image.clone(),
            images: Vec::new(),
            workspaces: root.is_some(),
            store: root.as_deref().map(workspace_store).transpose()?,
            pool: 0,
            usage: NodeUsage::default(),
        };
        let machine = Machine::new(root.as_ref().unwrap_or(&options.state_dir));
        Ok(Self {
            registry,
            node,
            row,
            lease,
            machine,
            root,
            told: HashSet::new(),
            untold: Vec::new(),
            settles_after: lease,
            kept_since: None,
            settled: false,
            has_peers: true,
        })
    }

    /// For the one node of a registry that lives and dies with it: no other can be late to tell what it has, or take it
    /// over.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { settles_after: Duration::ZERO, has_peers: false, ..self }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let mut beat: u64 = 0;
        let mut cut_off = false;
        let mut known_since = Instant::now();
        while !stop.is_cancelled() {
            if beat.is_multiple_of(SELDOM) {
                self.look_around().await;
            }
            beat += 1;
            let began = Instant::now();
            let pause = if self.beat().await {
                if self.has_peers {
                    // A process that stood still may have been absent meanwhile.
                    if !cut_off && known_since.elapsed() >= self.lease {
                        self.let_go("this node was absent from its cluster").await;
                    }
                    self.lease_workspaces(began).await;
                }
                (known_since, cut_off) = (began, false);
                self.tell_workspaces().await;
                self.lease / 4
            } else {
                if self.has_peers && !cut_off && known_since.elapsed() >= self.lease / 2 {
                    cut_off = true;
                    self.let_go("this node is cut off from its cluster").await;
                }
                self.lease / 12
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        // Once it has taken its leave, another node may open what is on a storage of both.
        self.let_go("this node ends").await;
        if let Err(error) = self.registry.withdraw(&self.row.node).await {
            tracing::debug!(%error, "this node could not take its leave; its lease runs out");
        }
    }

    /// Renews the row; whether that is known to have worked.
    async fn beat(&mut self) -> bool {
        self.row.draining = self.node.is_draining();
        self.row.sessions = self.node.sessions() as u64;
        self.row.pool = self.node.pooled().len() as u64;
        self.row.usage = self.machine.look(self.node.execs());
        let announced = tokio::time::timeout(self.lease / 4, self.registry.announce(self.row.clone(), self.lease));
        match announced.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "this node could not be registered; it tries again");
                false
            }
            Err(_) => {
                tracing::warn!("this node could not be registered in time; it tries again");
                false
            }
        }
    }

    /// What began `began` ago stands for a lease; whoever uses a workspace knows it to be the node's for less.
    async fn lease_workspaces(&self, began: Instant) {
        let told = self.node.registered(began + self.lease / 4 * 3);
        if tokio::time::timeout(self.lease / 4, told).await.is_err() {
            tracing::warn!("not all sessions could be told in time that their workspaces are still theirs");
        }
    }

    async fn let_go(&self, why: &str) {
        let ended = self.node.leave_shared_workspaces().await;
        if ended > 0 {
            tracing::warn!(ended, why, "sessions with workspaces on a shared storage were ended");
        }
    }

    async fn look_around(&mut self) {
        // An engine that hangs must not keep the node from its beat.
        match tokio::time::timeout(self.lease / 4, self.node.images()).await {
            Ok(Ok(images)) => self.row.images = images,
            Ok(Err(error)) => tracing::debug!(%error, "the images are not known now"),
            Err(_) => tracing::debug!("the images are not known now: the engine did not answer in time"),
        }
        self.find_workspaces().await;
    }

    /// Workspaces that clients of this node have made since it looked last, and, at its start, all that there are.
    async fn find_workspaces(&mut self) {
        let Some(root) = self.root.clone() else { return };
        if let Ok(found) = tokio::task::spawn_blocking(move || workspaces(&root)).await {
            self.untold.extend(found.into_iter().filter(|(owner, name)| {
                let key = workspace_key(owner, name);
                !self.told.contains(&key)
            }));
        }
    }

    /// The registry learns of the workspaces on this storage, and one that has lost everything learns of all of them
    /// again before replicas rely on it: they look for the mark of each node. Homes that it knows it keeps, unless the
    /// storage says that the workspace has moved since.
    async fn tell_workspaces(&mut self) {
        let (Some(root), Some(store)) = (self.root.clone(), self.row.store.clone()) else { return };
        let mark = told_mark(&self.row.node);
        let own = WorkspaceHome { node: self.row.node.clone(), store, generation: 0 };
        let marked = match self.registry.home(&mark).await {
            Ok(known) => known.is_some_and(|known| known == own),
            Err(_) => return,
        };
        if !marked {
            self.told.clear();
            (self.kept_since, self.settled) = (None, false);
            self.find_workspaces().await;
            // One of an earlier storage would stand in the way.
            if self.registry.forget_home(&mark).await.is_err() {
                return;
            }
        }
        for (principal, name) in std::mem::take(&mut self.untold) {
            let (homes, of) = (Homes::on(&root), (principal.clone(), name.clone()));
            let Ok(Ok(home)) = tokio::task::spawn_blocking(move || homes.of(&of.0, &of.1)).await else { continue };
            let home = home.map_or_else(
                || own.clone(),
                |home| WorkspaceHome { node: home.node, generation: home.generation, ..own.clone() },
            );
            let key = workspace_key(&principal, &name);
            if self.registry.move_home(&key, home).await.is_err() {
                self.told.clear();
                return;
            }
            self.told.insert(key);
        }
        // The last, so that what broke off is done again.
        if !marked && self.registry.move_home(&mark, own.clone()).await.is_err() {
            return;
        }
        let kept_since = *self.kept_since.get_or_insert_with(Instant::now);
        if !self.settled && kept_since.elapsed() >= self.settles_after {
            self.settled = self.registry.move_home(SETTLED, own).await.is_ok();
        }
    }
}

/// A name that is none, too: the registry has kept what nodes told it for so long that whoever lives has told it.
pub(crate) const SETTLED: &str = "settled";

/// In the registry where homes are, by a name that is none: this node has told of all workspaces that it has.
pub(crate) fn told_mark(node: &str) -> String {
    format!("told-by-{node}")
}

/// The folders at `ROOT/<principal>/<name>`.
fn workspaces(root: &Path) -> Vec<(String, String)> {
    let folders = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let owners = folders(root).into_iter().filter(|name| check_id(name).is_ok());
    let of = |owner: String| folders(&root.join(&owner)).into_iter().map(move |name| (owner.clone(), name));
    owners.flat_map(of).take(MAX_WORKSPACES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_the_folders_of_principals_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("hearth-announce-{}", std::process::id()));
        for folder in ["acme/build", "acme/other", "b/x"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join(".hearth-store"), "store_1").unwrap();
        std::fs::write(root.join("acme/file"), "").unwrap();
        let mut found = workspaces(&root);
        found.sort();
        let pair = |owner: &str, name: &str| (owner.to_owned(), name.to_owned());
        assert_eq!(found, [pair("acme", "build"), pair("acme", "other"), pair("b", "x")]);
        std::fs::remove_dir_all(&root).unwrap();
        assert!(workspaces(&root).is_empty());
    }
}
