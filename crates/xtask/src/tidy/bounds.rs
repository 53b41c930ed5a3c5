//! docs/BOUNDS.md names metrics, settings and tests that are there.
//!
//! In it, a code span that begins with `hearth_` is a metric, one that is a test's name a test, and what
//! is in brackets or in capitals a setting.

use super::Fault;
use super::invariants::{is_test, spans};
use super::tree::Tree;

const PLACE: &str = "docs/BOUNDS.md";
/// Where the settings of replicas are; those of nodes are read by their names.
const SETTINGS: &str = "services/control-plane/src/config/table.rs";

pub fn check(tree: &Tree) -> Vec<Fault> {
    let Some(document) = tree.files.iter().find(|file| file.path == PLACE) else {
        return vec![format!("{PLACE}: is missing")];
    };
    let mut faults = Vec::new();
    for (number, line) in document.lines() {
        for span in spans(line) {
            if let Some(kind) = missing(tree, line, span) {
                faults.push(format!("{PLACE}:{number}: there is no {kind} `{span}`"));
            }
        }
        let has_test = spans(line).any(|span| is_test(span) && says(tree, &format!("fn {span}(")));
        let is_row = line.starts_with("| ") && !line.starts_with("| what |");
        if is_row && !has_test {
            faults.push(format!("{PLACE}:{number}: no test shows this bound"));
        }
    }
    faults
}

/// What a span names and is not there.
fn missing(tree: &Tree, line: &str, span: &str) -> Option<&'static str> {
    let quoted = format!("\"{span}\"");
    let says = |text: &str| says(tree, text);
    let in_brackets = line.contains(&format!("(`{span}`"));
    if span.starts_with("hearth_") {
        return (!says(&quoted)).then_some("metric");
    }
    if span.starts_with("SANDBOX_") {
        return (!says(&quoted)).then_some("setting");
    }
    if in_brackets {
        let table = tree.files.iter().find(|file| file.path == SETTINGS)?;
        return (!table.text.contains(&quoted)).then_some("setting");
    }
    // A code may have as many words as a test.
    (is_test(span) && !says(&format!("fn {span}(")) && !says(&quoted)).then_some("test")
}

fn says(tree: &Tree, text: &str) -> bool {
    tree.of_kind("rs").any(|file| file.text.contains(text))
}

#[cfg(test)]
mod tests {
    use super::super::tree::SourceText;
    use super::*;

    fn faults(text: &str) -> usize {
        let file = |path: &str, text: &str| SourceText { path: path.to_owned(), text: text.to_owned() };
        let code = "fn a_queue_is_full() {} const A: &str = \"hearth_queue_depth\"; const B: &str = \"SANDBOX_MAX\";";
        let files = vec![file(PLACE, text), file("src/a.rs", code), file(SETTINGS, "\"max_streams\"")];
        check(&Tree { files }).len()
    }

    #[test]
    fn each_bound_names_metrics_settings_and_tests_that_are_there() {
        let row = "| a queue | 5 (`max_streams`, `SANDBOX_MAX`) | `queue_full` | `hearth_queue_depth` | | `a_queue_is_full` |\n";
        assert_eq!(faults(row), 0);
        for gone in ["max_streams", "SANDBOX_MAX", "hearth_queue_depth"] {
            assert_eq!(faults(&row.replace(gone, &format!("{gone}_s"))), 1, "{gone}");
        }
        // It is not there, and so the row has none.
        assert_eq!(faults(&row.replace("a_queue_is_full", "a_queue_is_empty")), 2);
        assert_eq!(faults(&row.replace("`a_queue_is_full`", "")), 1);
    }
}
