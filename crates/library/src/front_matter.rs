//! Where a file's front matter is, and what its YAML says.
//!
//! The YAML is handed to the parser at the line where it stands in the file, so that every place that
//! the parser names is a place in the file.

use serde::de::DeserializeOwned;

use crate::FileError;

/// A file in its two parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// As many empty lines as stand before the front matter, then its text.
    pub yaml: String,
    /// What follows the front matter; for a program the whole file.
    pub body: &'a str,
}

/// Decodes a file's bytes; a fault names the line of the first byte that is not UTF-8.
pub(crate) fn decode<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, FileError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        FileError::at(file, line_after(before), "the file is not UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn line_after(before: &[u8]) -> u32 {
    let breaks = before.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(breaks).unwrap_or(u32::MAX - 1) + 1
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

/// Markdown: front matter between two lines `---`, the first of which begins the file.
pub(crate) fn of_markdown<'a>(file: &str, text: &'a str) -> Result<Parts<'a>, FileError> {
    let mut lines = text.split_inclusive('\n');
    if !lines.next().is_some_and(is_fence) {
        return Err(FileError::at(file, 1, "the file must begin with a line `---`, its front matter and a line `---`"));
    }
    let mut yaml = String::from("\n");
    for line in lines.by_ref() {
        if is_fence(line) {
            let read = text.len() - lines.map(str::len).sum::<usize>();
            return Ok(Parts { yaml, body: text.get(read..).unwrap_or_default() });
        }
        yaml.push_str(line);
    }
    Err(FileError::at(file, 1, "the front matter that begins here is not ended by a line `---`"))
}

/// A program: front matter in the block comment that the file begins with, as it is, between fences
/// `---`, or with a `*` before each line. A program that does not begin with one has no front matter.
pub(crate) fn of_program<'a>(file: &str, text: &'a str) -> Result<Parts<'a>, FileError> {
    let start = text.len() - text.trim_start().len();
    let line = line_after(text.get(..start).unwrap_or_default().as_bytes());
    let Some(comment) = text.get(start..).and_then(|rest| rest.strip_prefix("/*")) else {
        return Ok(Parts { yaml: String::new(), body: text });
    };
    let Some((inside, _)) = comment.split_once("*/") else {
        return Err(FileError::at(file, line, "the block comment that begins here is not ended by `*/`"));
    };
    let mut yaml = "\n".repeat(line.saturating_sub(1) as usize);
    yaml.push_str(&without_fences(file, line, &without_stars(inside))?);
    Ok(Parts { yaml, body: text })
}

/// Takes a `*` before every line away. The two characters that opened the comment become spaces, so
/// that a mapping that begins beside them lines up with its next lines.
fn without_stars(inside: &str) -> String {
    let inside = format!("  {}", inside.strip_prefix('*').map(|rest| format!(" {rest}")).as_deref().unwrap_or(inside));
    let mut rest = inside.lines().skip(1).filter(|line| !line.trim().is_empty()).peekable();
    let starred = rest.peek().is_some() && rest.all(|line| line.trim_start().starts_with('*'));
    if !starred {
        return inside;
    }
    let plain = |line: &str| match line.trim_start().strip_prefix('*') {
        Some(text) => text.strip_prefix(' ').unwrap_or(text).to_owned(),
        None => line.to_owned(),
    };
    inside.lines().map(plain).collect::<Vec<_>>().join("\n")
}

fn without_fences(file: &str, first_line: u32, inside: &str) -> Result<String, FileError> {
    let lines: Vec<&str> = inside.lines().collect();
    let Some(open) = lines.iter().position(|line| !line.trim().is_empty()) else { return Ok(String::new()) };
    if lines.get(open).is_none_or(|line| line.trim() != "---") {
        return Ok(inside.to_owned());
    }
    let within = lines.get(open + 1..).unwrap_or_default();
    let Some(close) = within.iter().position(|line| line.trim() == "---") else {
        let line = first_line.saturating_add(u32::try_from(open).unwrap_or(u32::MAX));
        return Err(FileError::at(file, line, "the front matter that begins here is not ended by a line `---`"));
    };
    Ok("\n".repeat(open + 1) + &within.get(..close).unwrap_or_default().join("\n"))
}

/// Reads the fields out of the front matter.
pub(crate) fn fields<T: DeserializeOwned + Default>(file: &str, yaml: &str) -> Result<T, FileError> {
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if yaml.lines().all(blank) {
        return Ok(T::default());
    }
    serde_yaml_ng::from_str(yaml).map_err(|error| {
        let reason = error.to_string();
        let place = error.location().map(|place| u32::try_from(place.line()).unwrap_or(u32::MAX));
        let line = second_line_of_a_duplicate(yaml, &reason).or(place);
        FileError::at(file, line.unwrap_or_else(|| first_line(yaml)), reason)
    })
}

/// For a field that is given twice the parser names the line where the mapping begins.
fn second_line_of_a_duplicate(yaml: &str, reason: &str) -> Option<u32> {
    let (_, rest) = reason.split_once("duplicate field `")?;
    let (field, _) = rest.split_once('`')?;
    let index = yaml.lines().enumerate().filter(|(_, line)| is_field(line, field)).nth(1)?.0;
    u32::try_from(index + 1).ok()
}

/// Whether a line begins with the key `field`.
fn is_field(line: &str, field: &str) -> bool {
    let key = line.trim_start().trim_start_matches(['"', '\'', '{']);
    key.strip_prefix(field).is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
}

fn first_line(yaml: &str) -> u32 {
    let index = yaml.lines().position(|line| !line.trim().is_empty()).unwrap_or(0);
    u32::try_from(index).unwrap_or(u32::MAX - 1) + 1
}

/// The line of a field, or of the entry of it that is meant.
pub(crate) fn line_of(yaml: &str, field: &str, value: &str) -> u32 {
    let lines: Vec<&str> = yaml.lines().collect();
    let Some(start) = lines.iter().position(|line| is_field(line, field)) else { return first_line(yaml) };
    let offset =
        if value.is_empty() { 0 } else { lines.iter().skip(start).position(|line| line.contains(value)).unwrap_or(0) };
    u32::try_from(start + offset).unwrap_or(u32::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_is_front_matter_and_body() {
        let parts = of_markdown("a.md", "---\nmodel: x\n---\nHello\n---\nmore\n").unwrap();
        assert_eq!(parts, Parts { yaml: "\nmodel: x\n".to_owned(), body: "Hello\n---\nmore\n" });
        assert_eq!(of_markdown("a.md", "---\r\nmodel: x\r\n---\r\nHi").unwrap().body, "Hi");
        assert_eq!(of_markdown("a.md", "---\n---").unwrap().body, "");
    }

    #[test]
    fn markdown_without_a_beginning_or_an_end_is_refused() {
        for text in ["", "Hello", "---\nmodel: x\n", "----\nmodel: x\n---\n", "\n---\nmodel: x\n---\n"] {
            assert_eq!(of_markdown("a.md", text).unwrap_err().line, Some(1), "{text:?}");
        }
    }

    #[test]
    fn the_front_matter_of_a_program_may_be_written_in_each_usual_way() {
        for text in [
            "/*\nmodel: x\ntools: [Agent]\n*/\nfunction run() {}",
            "\n\n/* model: x\n   tools: [Agent] */ function run() {}",
            "/*\n---\nmodel: x\ntools: [Agent]\n---\nWords.\n*/",
            "/**\n * ---\n * model: x\n * tools: [Agent]\n * ---\n */",
            "/**\n * model: x\n * tools: [Agent]\n */",
            "/*\r\nmodel: x\r\ntools: [Agent]\r\n*/",
        ] {
            let parts = of_program("a.js", text).unwrap();
            let read: crate::DefinitionFields = fields("a.js", &parts.yaml).unwrap();
            assert_eq!(read.model.as_deref(), Some("x"), "{text:?}");
            assert_eq!(read.tools.map(|tools| tools.len()), Some(1), "{text:?}");
            assert_eq!(parts.body, text);
        }
    }

    #[test]
    fn a_program_may_have_no_front_matter_but_not_an_endless_one() {
        assert_eq!(of_program("a.js", "function run() {}").unwrap().yaml, "");
        assert_eq!(of_program("a.js", "\n/*\nmodel: x\n").unwrap_err().line, Some(2));
        assert_eq!(of_program("a.js", "/*\n---\nmodel: x\n*/").unwrap_err().line, Some(2));
    }

    #[test]
    fn a_fault_names_its_line_in_the_file() {
        let line = |yaml: &str| fields::<crate::DefinitionFields>("a", yaml).unwrap_err().line;
        assert_eq!(line("\n\nmodel: x\ncolour: red\n"), Some(4));
        assert_eq!(line("\nmodel: x\ntools: Agent\n"), Some(3));
        assert_eq!(line("\nmodel: [x\n"), Some(2));
        assert_eq!(line("\njust words\n"), Some(2));
        assert_eq!(line("\nsandbox:\n  isolation: L2\n  colour: red\n"), Some(4));
        assert_eq!(line("\nmodel: x\nmodel: y\n"), Some(3));
        assert_eq!(decode("a", b"one\ntwo\xff\n").unwrap_err().line, Some(2));
    }

    #[test]
    fn a_semantic_fault_is_found_at_its_entry() {
        let yaml = "\ndescription: a*b\ntools:\n  - Agent\n  - a*b\n";
        assert_eq!(line_of(yaml, "tools", "a*b"), 5);
        assert_eq!(line_of(yaml, "tools", "gone"), 3);
        assert_eq!(line_of(yaml, "absent", ""), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_read_or_refused_and_a_fault_is_inside_the_file(text in "(---|/\\*|\\*/|[-*: \\[\\]{}&a\n\r\t'\"#|>%@])*") {
            // For YAML a carriage return alone ends a line, too.
            let breaks = text.replace("\r\n", "\n").matches(['\r', '\n']).count();
            let lines = u32::try_from(breaks).unwrap() + 2;
            for split in [of_markdown("x", &text), of_program("x", &text)] {
                let outcome = split.and_then(|parts| fields::<crate::DefinitionFields>("x", &parts.yaml));
                if let Err(fault) = outcome {
                    prop_assert!((1..=lines).contains(&fault.line.unwrap()), "{fault}");
                }
            }
        }
    }
}
