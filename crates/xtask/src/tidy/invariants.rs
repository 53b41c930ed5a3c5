//! docs/INVARIANTS.md maps every promise to code and tests that are there.
//!
//! In it, a code span with a `/` is a path of this repository, and a span of at least three words
//! joined by `_` is the name of a test.

use std::path::Path;

use super::Fault;
use super::tree::{SourceText, Tree};

const PLACE: &str = "docs/INVARIANTS.md";
const PROMISES: [&str; 8] = ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8"];

pub fn check(tree: &Tree, root: &Path) -> Vec<Fault> {
    let Some(document) = tree.files.iter().find(|file| file.path == PLACE) else {
        return vec![format!("{PLACE}: is missing")];
    };
    let mut faults = missing_names(tree, root, document);
    faults.extend(PROMISES.iter().filter_map(|promise| incomplete(document, promise)));
    faults
}

pub(super) fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_path(span: &str) -> bool {
    span.contains('/') && !span.contains(' ')
}

pub(super) fn is_test(span: &str) -> bool {
    let words: Vec<&str> = span.split('_').collect();
    let plain = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    words.len() >= 3 && words.iter().all(plain)
}

fn missing_names(tree: &Tree, root: &Path, document: &SourceText) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in document.lines() {
        for span in spans(line) {
            if is_path(span) && !root.join(span).exists() {
                faults.push(format!("{PLACE}:{number}: there is no `{span}`"));
            }
            let definition = format!("fn {span}(");
            if is_test(span) && !tree.of_kind("rs").any(|file| file.text.contains(&definition)) {
                faults.push(format!("{PLACE}:{number}: there is no test `{span}`"));
            }
        }
    }
    faults
}

/// The section of a promise names a place that enforces it and a test that tries to break it.
fn incomplete(document: &SourceText, promise: &str) -> Option<Fault> {
    let is_heading = |line: &&str| line.starts_with("## ");
    let heading = format!("## {promise} ");
    let mut lines = document.text.lines().skip_while(|line| !line.starts_with(&heading));
    if lines.next().is_none() {
        return Some(format!("{PLACE}: {promise} has no section"));
    }
    let section = lines.take_while(|line| !is_heading(line)).collect::<Vec<_>>().join("\n");
    let (paths, tests) =
        (spans(&section).filter(|span| is_path(span)).count(), spans(&section).filter(|s| is_test(s)).count());
    (paths == 0 || tests == 0).then(|| format!("{PLACE}: {promise} names {paths} places and {tests} tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<Fault> {
        let file = |path: &str, text: &str| SourceText { path: path.to_owned(), text: text.to_owned() };
        let tree =
            Tree { files: vec![file(PLACE, text), file("src/a.rs", "#[test]\nfn a_stale_epoch_is_refused() {}\n")] };
        check(&tree, Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    #[test]
    fn each_promise_names_code_and_tests_that_are_there() {
        let section = |id: &str, test: &str| format!("## {id} Title\n`src/main.rs` and `{test}`\n");
        let good: String = PROMISES.iter().map(|id| section(id, "a_stale_epoch_is_refused")).collect();
        assert_eq!(faults(&good), Vec::<Fault>::new());
        assert_eq!(faults(&good.replace("## P3 ", "## Q3 ")).len(), 1);
        assert_eq!(faults(&good.replace("src/main.rs", "src/gone.rs")).len(), 8);
        assert_eq!(faults(&good.replacen("a_stale_epoch_is_refused", "a_test_of_nothing", 1)).len(), 1);
        assert_eq!(faults(&good.replacen("a_stale_epoch_is_refused", "words", 1)).len(), 1);
    }
}
