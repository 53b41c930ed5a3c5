//! What this node tells the registry of itself, at each beat.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_registry::{NodeRow, NodeUsage, SharedRegistry, WorkspaceHome};
use hearth_sandbox::SharedDriver;
use hearth_sandbox::node::{Node, NodeOptions, workspace_store};
use hearth_types::{Timestamp, check_id};
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
    /// The workspaces that the registry was told of.
    told: HashSet<String>,
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
        Ok(Self { registry, node, row, lease, machine, root, told: HashSet::new() })
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let mut beat: u64 = 0;
        while !stop.is_cancelled() {
            if beat.is_multiple_of(SELDOM) {
                self.look_around().await;
            }
            beat += 1;
            self.row.draining = self.node.is_draining();
            self.row.sessions = self.node.sessions() as u64;
            self.row.pool = self.node.pooled().len() as u64;
            self.row.usage = self.machine.look(self.node.execs());
            if let Err(error) = self.registry.announce(self.row.clone(), self.lease).await {
                tracing::warn!(%error, "this node could not be registered; the next beat tries again");
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.lease / 4) => {}
            }
        }
        if let Err(error) = self.registry.withdraw(&self.row.node).await {
            tracing::debug!(%error, "this node could not take its leave; its lease runs out");
        }
    }

    async fn look_around(&mut self) {
        match self.node.images().await {
            Ok(images) => self.row.images = images,
            Err(error) => tracing::debug!(%error, "the images are not known now"),
        }
        self.tell_workspaces().await;
    }

    /// The registry learns of workspaces that clients of this node made, and one that lost everything learns
    /// of all again. Those that it knows keep the home that they have: it is of a higher generation.
    async fn tell_workspaces(&mut self) {
        let (Some(root), Some(store)) = (self.root.clone(), self.row.store.clone()) else { return };
        let mark = format!("told-by-{}", self.row.node);
        let home = WorkspaceHome { node: self.row.node.clone(), store, generation: 0 };
        match self.registry.home(&mark).await {
            Ok(Some(known)) if known.store == home.store => {}
            Ok(_) => self.told.clear(),
            Err(_) => return,
        }
        let Ok(names) = tokio::task::spawn_blocking(move || workspaces(&root)).await else { return };
        for (principal, name) in names {
            let key = workspace_key(&principal, &name);
            if self.told.contains(&key) {
                continue;
            }
            if self.registry.move_home(&key, home.clone()).await.is_err() {
                return;
            }
            self.told.insert(key);
        }
        // The last, so that what broke off is done again.
        self.registry.move_home(&mark, home).await.ok();
    }
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
