//! `cargo xtask tidy`: what formatting and clippy do not see.

mod bounds;
mod code;
mod invariants;
mod links;
mod tree;
mod words;

use std::path::Path;

use crate::failure::Failure;
use tree::Tree;

/// One fault, as `path:line: reason`.
type Fault = String;

pub fn run(root: &Path) -> Result<(), Failure> {
    let tree = Tree::read(root)?;
    let mut faults = code::check(&tree);
    faults.extend(words::check(&tree));
    faults.extend(links::check(&tree, root));
    faults.extend(invariants::check(&tree, root));
    faults.extend(bounds::check(&tree));
    faults.sort();
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() {
        println!("{} files, tidy", tree.files.len());
        Ok(())
    } else {
        Err(Failure::Findings { check: "tidy", count: faults.len() })
    }
}
