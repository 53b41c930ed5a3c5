//! Sizes, leftovers and white space.

use super::Fault;
use super::tree::{SourceText, Tree};

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 90;

/// The project that the demo writes for its builder; it is no crate of this one.
const SAMPLE: &str = "services/hearth/demo/";

/// What is never left behind. Split, so that this file does not find itself.
const LEFTOVERS: [(&str, &str); 7] = [
    (concat!("TO", "DO"), "finish it, or file it"),
    (concat!("FIX", "ME"), "mend it, or file it"),
    (concat!("X", "XX"), "say what is meant"),
    (concat!("todo", "!("), "finish it"),
    (concat!("unimplemented", "!("), "finish it"),
    (concat!("dbg", "!("), "remove it"),
    (concat!("allow(dead", "_code)"), "remove what is not used"),
];

pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in &tree.files {
        white_space(file, &mut faults);
        leftovers(file, &mut faults);
        if file.has_kind("rs") {
            sizes(file, &mut faults);
        }
        if file.path.ends_with("/lib.rs") && !file.path.starts_with(SAMPLE) {
            first_sentence(file, &mut faults);
        }
    }
    faults
}

fn white_space(file: &SourceText, faults: &mut Vec<Fault>) {
    let path = &file.path;
    for (number, line) in file.lines() {
        if line.ends_with([' ', '\t']) {
            faults.push(format!("{path}:{number}: white space at the end of the line"));
        }
        if line.contains('\t') && !path.ends_with("Makefile") {
            faults.push(format!("{path}:{number}: a tab"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        faults.push(format!("{path}: no end of line at its end"));
    }
}

fn leftovers(file: &SourceText, faults: &mut Vec<Fault>) {
    for (number, line) in file.lines() {
        for (mark, advice) in LEFTOVERS {
            if contains_word(line, mark) {
                faults.push(format!("{}:{number}: `{mark}`: {advice}", file.path));
            }
        }
    }
}

/// Whether the mark stands in the line and is not part of a longer word.
pub fn contains_word(line: &str, mark: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let opens_word = mark.starts_with(|c: char| c.is_alphanumeric());
    let closes_word = mark.ends_with(|c: char| c.is_alphanumeric());
    line.match_indices(mark).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + mark.len()..).and_then(|text| text.chars().next());
        !(opens_word && is_part(before) || closes_word && is_part(after))
    })
}

fn sizes(file: &SourceText, faults: &mut Vec<Fault>) {
    let lines: Vec<&str> = file.text.lines().collect();
    if lines.len() > MAX_FILE_LINES {
        faults.push(format!("{}: {} lines, at most {MAX_FILE_LINES}: it has two subjects", file.path, lines.len()));
    }
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| begins_function(line)) {
        let length = function_length(lines.get(start..).unwrap_or_default());
        if length > MAX_FUNCTION_LINES {
            let name = line.trim().split('(').next().unwrap_or_default();
            let place = format!("{}:{}", file.path, start + 1);
            faults.push(format!("{place}: `{name}` has {length} lines, at most {MAX_FUNCTION_LINES}"));
        }
    }
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || matches!(*word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
    });
    words.next() == Some("fn")
}

/// Lines of the function that begins the slice. Formatted code closes a function, or ends a
/// declaration, at the indentation at which it began.
fn function_length(lines: &[&str]) -> usize {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let Some((first, rest)) = lines.split_first() else { return 0 };
    if first.ends_with([';', '}']) {
        return 1;
    }
    let depth = indentation(first);
    let ends = |line: &&str| {
        !line.is_empty() && indentation(line) <= depth && (line.trim_start().starts_with('}') || line.ends_with(';'))
    };
    rest.iter().position(ends).map_or(lines.len(), |index| index + 2)
}

fn first_sentence(file: &SourceText, faults: &mut Vec<Fault>) {
    let doc: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let opening = doc.first().map_or("", |line| line.trim());
    if opening.split_whitespace().count() < 4 {
        faults.push(format!("{}:1: it must open with a sentence on what the crate is for", file.path));
        return;
    }
    let text = doc.join(" ").to_lowercase();
    let denies = ["not", "no", "never", "nothing", "nobody", "nor"];
    if !text.split(|c: char| !c.is_alphabetic()).any(|word| denies.contains(&word)) {
        faults.push(format!("{}:1: it must say what the crate deliberately does not do", file.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Fault> {
        check(&Tree { files: vec![SourceText { path: path.to_owned(), text: text.to_owned() }] })
    }

    #[test]
    fn leftovers_are_found_as_words_only() {
        assert_eq!(found("a.rs", concat!("// TO", "DO: more\n")).len(), 1);
        assert_eq!(found("a.rs", concat!("    todo", "!(\"x\")\n")).len(), 1);
        assert_eq!(found("a.rs", "mktemp dirXXXXXX and MASTODONS\n").len(), 0);
    }

    #[test]
    fn a_long_function_is_found_and_a_declaration_is_none() {
        let long = format!("    pub async fn x(\n        a: u8,\n    ) {{\n{}    }}\n", "        f();\n".repeat(100));
        assert_eq!(found("a.rs", &long).len(), 1, "{:?}", found("a.rs", &long));
        let short = format!("    fn x(\n        a: u8,\n    );\n{}", "    f();\n".repeat(100));
        assert_eq!(found("a.rs", &short).len(), 0);
    }

    #[test]
    fn a_long_file_tabs_and_white_space_are_found() {
        assert_eq!(found("a.rs", &"x();\n".repeat(601)).len(), 1);
        assert_eq!(found("a.md", "a \n\tb\nc").len(), 3);
    }

    #[test]
    fn a_crate_must_say_what_it_does_and_does_not() {
        assert_eq!(found("crates/a/src/lib.rs", "//! placeholder\n").len(), 1);
        assert_eq!(found("crates/a/src/lib.rs", "//! Reads the files of agents.\n").len(), 1);
        assert_eq!(
            found("crates/a/src/lib.rs", "//! Reads the files of agents.\n//!\n//! It runs nothing.\n").len(),
            0
        );
    }
}
