//! Words that the project does not use, each with its reason: see `crates/xtask/words.txt`.

use super::Fault;
use super::code::contains_word;
use super::tree::Tree;

const LIST: &str = "crates/xtask/words.txt";

pub fn check(tree: &Tree) -> Vec<Fault> {
    let Some(list) = tree.files.iter().find(|file| file.path == LIST) else {
        return vec![format!("{LIST}: is missing")];
    };
    let words: Vec<(&str, &str)> = entries(&list.text).collect();
    let mut faults = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != LIST) {
        for (number, line) in file.lines() {
            for (word, reason) in &words {
                if contains_term(line, word) {
                    faults.push(format!("{}:{number}: `{word}`: {reason}", file.path));
                }
            }
        }
    }
    faults
}

/// `WORD: REASON` lines; `#` begins a remark.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "))
}

/// `*Word` is the end of the name of a type that is declared here; anything else is a word by itself.
fn contains_term(line: &str, term: &str) -> bool {
    match term.strip_prefix('*') {
        None => contains_word(line, term),
        Some(end) => declared_name(line).is_some_and(|name| name.len() > end.len() && name.ends_with(end)),
    }
}

fn declared_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    let rest = words.next()?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    matches!(keyword, "struct" | "enum" | "trait" | "type" | "class" | "interface").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_a_word_or_the_end_of_a_name() {
        assert!(contains_term("pub(crate) struct SessionKeeper<T> {", "*Keeper"));
        assert!(contains_term("type SessionKeeper = u8;", "*Keeper"));
        assert!(!contains_term("use other::SessionKeeper;", "*Keeper"));
        assert!(!contains_term("struct SessionKeepers {", "*Keeper"));
        assert!(contains_term("a shiny start", "shiny"));
        assert_eq!(
            entries("# remark\n*Thing: it names nothing\n").collect::<Vec<_>>(),
            [("*Thing", "it names nothing")]
        );
    }
}
