//! New ids for old ones, wherever they stand: in the state, in what was said, in arguments and results.

use std::collections::HashMap;

use hearth_engine::{AgentOp, call_name};
use hearth_run_core::{Run, RunSpec};
use hearth_types::{Fault, RunId, derive_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;

const PREFIX: &str = "run_";
/// Characters of an id that this program makes.
const LENGTH: usize = PREFIX.len() + 32;

/// Old to new.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, RunId>);

impl Names {
    /// The same at every repeat of `base`. Parents come before their children in `runs`. A child that a call in flight
    /// opened gets the id by which the call, asked again, looks for it.
    pub fn new(base: &str, runs: &[&Run]) -> Self {
        let mut names = Self::default();
        for run in runs {
            let old = &run.spec.run_id;
            let new = names.of(old).cloned().unwrap_or_else(|| resumed(base, old));
            names.0.insert(old.to_string(), new.clone());
            for child in run.children.keys() {
                let child_id = called(run, child, &new).unwrap_or_else(|| resumed(base, child));
                names.0.insert(child.to_string(), child_id);
            }
        }
        names
    }

    pub fn of(&self, old: &RunId) -> Option<&RunId> {
        self.0.get(old.as_str())
    }

    /// The value with every old id in it replaced.
    pub fn apply<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<T, Fault> {
        let unreadable = |error: serde_json::Error| Fault::internal(format!("a state cannot be written: {error}"));
        let text = serde_json::to_string(value).map_err(unreadable)?;
        hearth_types::from_own_json(self.text(&text).as_bytes()).map_err(unreadable)
    }

    fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(PREFIX) {
            let end = at + LENGTH;
            match rest.get(at..end).and_then(|id| self.0.get(id)) {
                Some(new) => {
                    out.push_str(&rest[..at]);
                    out.push_str(new.as_str());
                    rest = &rest[end..];
                }
                None => {
                    out.push_str(&rest[..at + PREFIX.len()]);
                    rest = &rest[at + PREFIX.len()..];
                }
            }
        }
        out.push_str(rest);
        out
    }
}

fn resumed(base: &str, old: &RunId) -> RunId {
    RunId::derive(&["resume", base, old.as_str()])
}

/// Whether an id is of the form that is found in texts.
pub(super) fn is_own(run_id: &RunId) -> bool {
    let tail = run_id.as_str().strip_prefix(PREFIX).unwrap_or_default();
    run_id.as_str().len() == LENGTH && tail.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The new id of a child that a call in flight of its parent opened.
fn called(parent: &Run, child: &RunId, new_parent: &RunId) -> Option<RunId> {
    let turn = parent.current.as_deref()?;
    turn.open_calls().filter(|call| call.name == "Agent").find_map(|call| {
        let of = |run: &RunId, index: usize| {
            RunId::derive(&["child", &call_name("child", run, &turn.turn_id, &call.id), &index.to_string()])
        };
        let index =
            (0..hearth_types::limits::MAX_PARALLEL_SPAWNS).find(|index| of(&parent.spec.run_id, *index) == *child)?;
        Some(of(new_parent, index))
    })
}

/// The sends in flight of a run: to whom, and the names of the call under each of two ids of the run.
pub(super) fn sends(run: &Run, old: &RunId, new: &RunId) -> Vec<(RunId, String, String)> {
    let Some(turn) = run.current.as_deref() else { return Vec::new() };
    let calls = turn.open_calls().filter(|call| call.name == "Agent");
    let named = |run: &RunId, call: &hearth_types::ToolCall| call_name("send", run, &turn.turn_id, &call.id);
    calls
        .filter_map(|call| match AgentOp::parse(&call.arguments) {
            Ok(AgentOp::Send(send)) => Some((send.child_run_id, named(old, call), named(new, call))),
            _ => None,
        })
        .collect()
}

/// What an override and those above it come to.
pub(super) fn merged(overrides: Vec<hearth_types::SandboxSpec>) -> Option<hearth_types::SandboxSpec> {
    overrides.into_iter().reduce(|outer, inner| hearth_types::SandboxSpec {
        scope: inner.scope.or(outer.scope),
        isolation: inner.isolation.max(outer.isolation),
        image: inner.image.or(outer.image),
        workspace: inner.workspace.or(outer.workspace),
        network: inner.network.or(outer.network),
        limits: inner.limits.or(outer.limits),
        read_only: if outer.read_only == Some(true) { outer.read_only } else { inner.read_only.or(outer.read_only) },
    })
}

/// What the new run is called by its caller's key.
pub(super) fn base(key: Option<&hearth_run_core::KeyUse>) -> String {
    key.map_or_else(|| derive_hex(&["resume", RunId::generate().as_str()]), |key| key.id.clone())
}

/// The spec of a run that goes on under a new id. Texts are renamed already.
pub(super) fn respec(spec: &mut RunSpec, new: &RunId, root: &RunId, depth: u32) {
    spec.session_id = hearth_types::SessionId::of_run(new);
    spec.root_run_id = root.clone();
    spec.depth = depth;
    spec.key = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ids_are_replaced_wherever_they_stand_and_nothing_else_is() {
        let (old, new, other) = (RunId::derive(&["old"]), RunId::derive(&["new"]), RunId::derive(&["other"]));
        let names = Names([(old.to_string(), new.clone())].into());
        let text = format!("run_ {old}{old} x{old}y {other} run_ü run_");
        assert_eq!(names.text(&text), text.replace(old.as_str(), new.as_str()));
        assert!(is_own(&old) && !is_own(&RunId::parse("run_x").unwrap()));
    }
}
