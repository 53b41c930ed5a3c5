//! Links in documents lead to something.

use std::path::{Component, Path, PathBuf};

use super::Fault;
use super::tree::{SourceText, Tree};

pub fn check(tree: &Tree, root: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in tree.of_kind("md") {
        for (number, target) in links(file) {
            if let Some(reason) = fault_of(tree, root, file, &target) {
                faults.push(format!("{}:{number}: the link {target:?} {reason}", file.path));
            }
        }
    }
    faults
}

/// Targets of inline links, outside of code.
fn links(file: &SourceText) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(file) {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let mut rest = plain.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let (target, tail) = after.split_once(')').unwrap_or((after, ""));
            found.push((number, target.split_whitespace().next().unwrap_or_default().to_owned()));
            rest = tail;
        }
    }
    found
}

/// The lines of a document without its blocks of code.
pub fn prose(file: &SourceText) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

fn fault_of(tree: &Tree, root: &Path, file: &SourceText, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (place, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if place.is_empty() { file.path.clone() } else { resolve(&file.path, place)? };
    let document = tree.files.iter().find(|other| other.path == path);
    if document.is_none() && !root.join(&path).exists() {
        return Some("leads nowhere");
    }
    let known = anchor.is_empty() || document.is_none_or(|document| anchors(document).any(|known| known == anchor));
    (!known).then_some("names a heading that is not there")
}

fn resolve(from: &str, place: &str) -> Option<String> {
    let mut path = PathBuf::from(from);
    path.pop();
    for part in Path::new(place).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path.to_str().map(str::to_owned)
}

/// Headings as links name them: lower case, spaces as `-`, other signs gone.
fn anchors(file: &SourceText) -> impl Iterator<Item = String> {
    prose(file).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_file_and_a_heading() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "# The words\n[a](src/main.rs) [b](gone.md) `[c](gone.md)` [d](#the-words) [e](#else) [f](https://x.y)\n\
                    ```\n[g](gone.md)\n```\n";
        let tree = Tree { files: vec![SourceText { path: "a.md".to_owned(), text: text.to_owned() }] };
        let faults = check(&tree, root);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults.iter().all(|fault| fault.starts_with("a.md:2: ")), "{faults:?}");
    }

    #[test]
    fn a_link_is_resolved_from_its_document() {
        assert_eq!(resolve("docs/adr/one.md", "../../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("README.md", "./docs/A.md").as_deref(), Some("docs/A.md"));
    }
}
