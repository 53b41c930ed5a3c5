//! Which node takes a session. Pure.

use hearth_registry::{NodeRow, WorkspaceHome};
use hearth_types::{Fault, FaultCode, Isolation, derive_hex};

/// What a session asks of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub isolation: Option<Isolation>,
    pub runtime: Option<String>,
    pub workspace: bool,
    /// Another than the nodes' own.
    pub image: Option<String>,
    /// Where the workspace is, if it is anywhere yet.
    pub home: Option<WorkspaceHome>,
    /// Sessions of one affinity go to one node as long as the nodes stay the same: those that use one
    /// workspace, and an open that is repeated.
    pub affinity: String,
}

/// Sessions of one workspace go where it is, or is to be.
pub(crate) fn workspace_affinity(principal: &str, workspace: &str) -> String {
    derive_hex(&["workspace", principal, workspace])
}

/// The node for a session: of those that can have it, the one that its affinity ranks first.
/// Rendezvous hashing: a node that comes or goes moves only the sessions that it gets or had.
///
/// # Errors
/// `unavailable` without any node, and where no node is there that has the storage of the workspace, `isolation_unavailable` where none has the level or runtime,
/// `quota_exceeded` where all that have it are full.
pub fn choose<'n>(nodes: &'n [NodeRow], wanted: &Wanted) -> Result<&'n NodeRow, Fault> {
    let serving: Vec<&NodeRow> = nodes.iter().filter(|node| !node.draining).collect();
    if serving.is_empty() && !nodes.is_empty() {
        return Err(Fault::unavailable(
            "every sandbox node is being drained and takes no new sessions; try again later",
        ));
    }
    if serving.is_empty() {
        return Err(Fault::unavailable("no sandbox node is there; start one with `hearth node`"));
    }
    let strong: Vec<&NodeRow> = serving.into_iter().filter(|node| has_level(node, wanted)).collect();
    if strong.is_empty() {
        return Err(Fault::new(
            FaultCode::IsolationUnavailable,
            "no sandbox node offers the isolation or runtime asked for; nothing weaker was tried",
        ));
    }
    let fitting: Vec<&NodeRow> = strong.into_iter().filter(|node| !wanted.workspace || node.workspaces).collect();
    if fitting.is_empty() {
        return Err(Fault::new(
            FaultCode::ToolRefused,
            "no sandbox node keeps durable workspaces; leave `workspace` out, or set SANDBOX_WORKSPACE_ROOT on a node",
        ));
    }
    let fitting = with_image(at_home(fitting, wanted)?, wanted);
    let rank = |node: &&NodeRow| derive_hex(&["placement", &wanted.affinity, &node.node]);
    fitting.into_iter().filter(|node| node.sessions < node.max_sessions).max_by_key(rank).ok_or_else(|| {
        Fault::new(FaultCode::QuotaExceeded, "every sandbox node is full; close a session, or try again")
    })
}

/// Those that have the workspace: the node where it is, as long as that takes sessions, so that a workspace
/// is on one node at a time; else the others of the same storage. An empty one elsewhere would pass for it.
fn at_home<'n>(fitting: Vec<&'n NodeRow>, wanted: &Wanted) -> Result<Vec<&'n NodeRow>, Fault> {
    let Some(home) = &wanted.home else { return Ok(fitting) };
    if let Some(node) = fitting.iter().find(|node| node.node == home.node) {
        return Ok(vec![node]);
    }
    let sharing: Vec<&NodeRow> = fitting.into_iter().filter(|node| node.store.as_ref() == Some(&home.store)).collect();
    if sharing.is_empty() {
        let message = format!(
            "the workspace is on sandbox node {}, which takes no sessions now, and no other node has its storage; \
             bring the node back, or use another workspace",
            home.node
        );
        return Err(Fault::unavailable(message).with_details(serde_json::json!({ "node": home.node })));
    }
    Ok(sharing)
}

/// Those that have the image, as far as they have told; where none has, any of them says so.
fn with_image<'n>(fitting: Vec<&'n NodeRow>, wanted: &Wanted) -> Vec<&'n NodeRow> {
    let Some(image) = &wanted.image else { return fitting };
    let latest = format!("{image}:latest");
    let has = |node: &&&NodeRow| node.image == *image || node.images.iter().any(|has| has == image || *has == latest);
    let having: Vec<&NodeRow> = fitting.iter().filter(has).copied().collect();
    if having.is_empty() { fitting } else { having }
}

fn has_level(node: &NodeRow, wanted: &Wanted) -> bool {
    wanted.isolation.is_none_or(|level| node.levels.iter().any(|offered| *offered >= level))
        && wanted.runtime.as_ref().is_none_or(|runtime| node.runtimes.contains(runtime))
}

#[cfg(test)]
mod tests {
    use hearth_registry::NodeUsage;
    use hearth_types::Timestamp;

    use super::*;

    fn node(name: &str) -> NodeRow {
        NodeRow {
            node: name.to_owned(),
            url: String::new(),
            version: String::new(),
            started_at: Timestamp::from_millis(0),
            draining: false,
            sessions: 0,
            max_sessions: 2,
            levels: vec![Isolation::L2],
            runtimes: vec!["runc".to_owned()],
            image: String::new(),
            images: Vec::new(),
            workspaces: true,
            store: Some(format!("store-of-{name}")),
            pool: 0,
            usage: NodeUsage::default(),
        }
    }

    fn affinity(text: &str) -> Wanted {
        Wanted { affinity: text.to_owned(), ..Wanted::default() }
    }

    #[test]
    fn weaker_isolation_than_asked_for_is_never_given() {
        let nodes = [node("a"), NodeRow { levels: vec![Isolation::L1], ..node("b") }];
        for n in 0..50 {
            let wanted = Wanted { isolation: Some(Isolation::L2), ..affinity(&n.to_string()) };
            assert_eq!(choose(&nodes, &wanted).unwrap().node, "a");
        }
        let wanted = Wanted { isolation: Some(Isolation::L3), ..affinity("x") };
        assert_eq!(choose(&nodes, &wanted).unwrap_err().code, FaultCode::IsolationUnavailable);
    }

    #[test]
    fn a_node_that_goes_moves_only_its_own_sessions() {
        let nodes = [node("a"), node("b"), node("c")];
        let mut moved = 0;
        for n in 0..300 {
            let wanted = affinity(&n.to_string());
            let before = choose(&nodes, &wanted).unwrap().node.clone();
            let after = choose(&nodes[..2], &wanted).unwrap().node.clone();
            if before == "c" {
                moved += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert!((50..150).contains(&moved), "{moved}");
    }

    #[test]
    fn a_workspace_stays_where_it_is_and_moves_within_its_storage_only() {
        let shared = |name: &str| NodeRow { store: Some("shared".to_owned()), ..node(name) };
        let nodes = [shared("a"), shared("b"), node("c")];
        let at = |home: &str, store: &str, n: u32| Wanted {
            workspace: true,
            home: Some(WorkspaceHome { node: home.to_owned(), store: store.to_owned(), generation: 1 }),
            ..affinity(&n.to_string())
        };
        for n in 0..50 {
            assert_eq!(choose(&nodes, &at("a", "shared", n)).unwrap().node, "a");
            assert_eq!(choose(&nodes[1..], &at("a", "shared", n)).unwrap().node, "b", "a is gone");
            let refused = choose(&nodes[..2], &at("c", "store-of-c", n)).unwrap_err();
            assert_eq!(refused.code, FaultCode::Unavailable, "an empty one elsewhere would pass for it");
        }
        let full = [NodeRow { sessions: 2, ..shared("a") }, shared("b")];
        assert_eq!(choose(&full, &at("a", "shared", 1)).unwrap_err().code, FaultCode::QuotaExceeded);
        let drains = [NodeRow { draining: true, ..shared("a") }, shared("b")];
        assert_eq!(choose(&drains, &at("a", "shared", 1)).unwrap().node, "b");
    }

    #[test]
    fn a_session_goes_where_its_image_is() {
        let images = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let nodes = [
            NodeRow { images: images(&["a:latest"]), ..node("a") },
            NodeRow { images: images(&["b:1"]), ..node("b") },
            node("c"),
        ];
        for n in 0..50 {
            let wanted = |image: &str| Wanted { image: Some(image.to_owned()), ..affinity(&n.to_string()) };
            assert_eq!(choose(&nodes, &wanted("a")).unwrap().node, "a");
            assert_eq!(choose(&nodes, &wanted("b:1")).unwrap().node, "b");
            choose(&nodes, &wanted("none")).expect("the node says that it has none");
        }
    }

    #[test]
    fn full_and_draining_nodes_get_nothing() {
        let full = NodeRow { sessions: 2, ..node("a") };
        assert_eq!(choose(&[full], &affinity("x")).unwrap_err().code, FaultCode::QuotaExceeded);
        let draining = NodeRow { draining: true, ..node("a") };
        let refused = choose(&[draining], &affinity("x")).unwrap_err();
        assert!(refused.code == FaultCode::Unavailable && refused.message.contains("drained"), "{refused}");
        assert!(choose(&[], &affinity("x")).unwrap_err().message.contains("hearth node"));
    }
}
