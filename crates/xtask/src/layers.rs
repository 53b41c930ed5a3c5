//! `cargo xtask layers`: a crate depends on lower levels only.
//!
//! The table is the layout of the project; a crate that is not in it has no level and is a fault.

use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;
use crate::process;

/// Level, folder, crate.
const LAYOUT: [(u8, &str, &str); 24] = [
    (0, "crates/types", "hearth-types"),
    (0, "crates/telemetry", "hearth-telemetry"),
    (1, "crates/proto", "hearth-proto"),
    (1, "crates/run-core", "hearth-run-core"),
    (1, "crates/library", "hearth-library"),
    (1, "crates/client", "hearth-client"),
    // A service by what it does; this low because it uses no crate, and its wire is spoken by level 2.
    (1, "services/sandbox-init", "hearth-sandbox-init"),
    (2, "crates/registry", "hearth-registry"),
    (2, "crates/bus", "hearth-bus"),
    (2, "crates/journal", "hearth-journal"),
    (2, "crates/models", "hearth-models"),
    (2, "crates/sandbox", "hearth-sandbox"),
    (2, "crates/mcp", "hearth-mcp"),
    (3, "crates/engine", "hearth-engine"),
    (3, "crates/nodes", "hearth-nodes"),
    (4, "crates/residency", "hearth-residency"),
    (5, "crates/api", "hearth-api"),
    (6, "services/control-plane", "hearth-control-plane"),
    (6, "services/sandbox-node", "hearth-sandbox-node"),
    (6, "services/hearth", "hearth"),
    (6, "loadtest", "hearth-load"),
    (7, "tests", "hearth-tests"),
    (7, "tests/sim", "hearth-sim"),
    (0, "crates/xtask", "xtask"),
];

/// Dependencies inside one level that are meant: the first may use the second.
const WITHIN_A_LEVEL: [(&str, &str); 3] = [
    // The set-up of telemetry speaks of the shared nouns, which know nothing of it.
    ("hearth-telemetry", "hearth-types"),
    // The one program that users run holds the services.
    ("hearth", "hearth-control-plane"),
    ("hearth", "hearth-sandbox-node"),
];

/// Crates that decide and never act, and what would let them act.
const PURE: [&str; 2] = ["hearth-run-core", "hearth-library"];
const IMPURE: [&str; 9] =
    ["tokio", "ractor", "axum", "reqwest", "bollard", "rusqlite", "tracing", "prometheus", "hearth-telemetry"];

pub fn run(root: &Path) -> Result<(), Failure> {
    let mut command = process::cargo(root);
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let text = process::output(&mut command)?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::Output { line: process::line(&command), reason: error.to_string() })?;
    let members = members(root, &metadata);
    let faults = faults(&members);
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() {
        println!("{} crates, each on lower levels only", members.len());
        Ok(())
    } else {
        Err(Failure::Findings { check: "layers", count: faults.len() })
    }
}

#[derive(Debug, Default)]
struct Member {
    name: String,
    folder: String,
    /// Name, and whether it is for tests only.
    dependencies: Vec<(String, bool)>,
}

fn members(root: &Path, metadata: &Value) -> Vec<Member> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let member = |package: Value| {
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().unwrap_or(Path::new(""));
        Member {
            name: text(&package["name"]),
            folder: folder.strip_prefix(root).unwrap_or(folder).display().to_string(),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| (text(&dependency["name"]), dependency["kind"].as_str() == Some("dev")))
                .collect(),
        }
    };
    list(&metadata["packages"]).into_iter().map(member).collect()
}

fn level_of(name: &str) -> Option<u8> {
    LAYOUT.iter().find(|(_, _, known)| *known == name).map(|(level, ..)| *level)
}

fn faults(members: &[Member]) -> Vec<String> {
    let mut faults = Vec::new();
    for member in members {
        let Member { name, folder, .. } = member;
        let Some(level) = level_of(name) else {
            faults.push(format!("{name} ({folder}) has no level: add it to the table in crates/xtask/src/layers.rs"));
            continue;
        };
        if !LAYOUT.iter().any(|(_, place, known)| known == name && place == folder) {
            faults.push(format!("{name} is in {folder}, which is not its place in the layout"));
        }
        for (dependency, tests_only) in &member.dependencies {
            if let Some(other) = level_of(dependency) {
                let meant = WITHIN_A_LEVEL.contains(&(name.as_str(), dependency.as_str()));
                if other > level || (other == level && !tests_only && !meant) {
                    faults.push(format!("{name} (level {level}) depends on {dependency} (level {other})"));
                }
            }
            if !tests_only && PURE.contains(&name.as_str()) && IMPURE.contains(&dependency.as_str()) {
                faults.push(format!("{name} is pure and depends on {dependency}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, folder: &str, dependencies: &[(&str, bool)]) -> Member {
        let dependencies = dependencies.iter().map(|(name, tests_only)| ((*name).to_owned(), *tests_only)).collect();
        Member { name: name.to_owned(), folder: folder.to_owned(), dependencies }
    }

    #[test]
    fn a_dependency_on_a_higher_or_the_same_level_is_a_fault() {
        for (name, folder, dependency, expected) in [
            ("hearth-engine", "crates/engine", ("hearth-models", false), 0),
            ("hearth-engine", "crates/engine", ("hearth-residency", false), 1),
            ("hearth-engine", "crates/engine", ("hearth-residency", true), 1),
            ("hearth-models", "crates/models", ("hearth-sandbox", false), 1),
            ("hearth-models", "crates/models", ("hearth-sandbox", true), 0),
            ("hearth-telemetry", "crates/telemetry", ("hearth-types", false), 0),
            ("hearth-run-core", "crates/run-core", ("tokio", false), 1),
            ("hearth-run-core", "crates/run-core", ("tokio", true), 0),
            ("hearth-engine", "crates/engines", ("serde", false), 1),
            ("hearth-new", "crates/new", ("serde", false), 1),
        ] {
            let found = faults(&[member(name, folder, &[dependency])]);
            assert_eq!(found.len(), expected, "{name} on {dependency:?}: {found:?}");
        }
    }
}
