//! What goes to stdout and stderr: for people (labels, tables, colour) or for machines (JSON).

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use serde_json::Value;

use crate::failure::Failure;

/// Where the output goes. Colour only to a terminal, and never when `NO_COLOR` is set.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    json: bool,
    terminal: bool,
    color: bool,
    color_errors: bool,
}

impl Screen {
    pub fn new(json: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = io::stdout().is_terminal();
        Self { json, terminal, color: terminal && !plain, color_errors: io::stderr().is_terminal() && !plain }
    }

    pub fn json(&self) -> bool {
        self.json
    }

    pub fn terminal(&self) -> bool {
        self.terminal
    }

    pub fn line(&self, text: &str) -> Result<(), Failure> {
        writeln!(io::stdout().lock(), "{text}").map_err(Failure::from)
    }

    /// Text without a line's end, at once.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush().map_err(Failure::from)
    }

    /// One JSON document: indented for a terminal, one line for a pipe.
    pub fn document(&self, value: &Value) -> Result<(), Failure> {
        if self.terminal { self.line(&format!("{value:#}")) } else { self.line(&value.to_string()) }
    }

    /// To stderr. A stderr that cannot be written to leaves nobody to tell.
    pub fn complain(&self, text: &str) {
        writeln!(io::stderr().lock(), "{text}").ok();
    }

    /// Text that a model or a command wrote. A terminal gets it without control characters: an escape
    /// sequence could retitle, hide or retype what stands there. A pipe gets it as it is.
    pub fn foreign(&self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let shown = if self.terminal { printable(text) } else { text.to_owned() };
        self.write(&shown)?;
        if shown.ends_with('\n') { Ok(()) } else { self.write("\n") }
    }

    pub fn labels(&self, rows: &[(&str, String)]) -> Result<(), Failure> {
        let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        for (label, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
            let gap = " ".repeat(width - label.len() + 2);
            let value = one_line(value);
            let shown = match *label {
                "state" | "outcome" => self.state(&value),
                _ => value,
            };
            self.line(&format!("{}{gap}{shown}", self.dim(label)))?;
        }
        Ok(())
    }

    pub fn table(&self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let lines = table_lines(head, rows);
        for (row, line) in lines.iter().enumerate() {
            if row == 0 { self.line(&self.dim(line))? } else { self.line(line)? }
        }
        Ok(())
    }

    pub fn dim(&self, text: &str) -> String {
        self.paint(self.color, "2", text)
    }

    pub fn bold(&self, text: &str) -> String {
        self.paint(self.color, "1", text)
    }

    pub fn green(&self, text: &str) -> String {
        self.paint(self.color, "32", text)
    }

    pub fn yellow(&self, text: &str) -> String {
        self.paint(self.color, "33", text)
    }

    pub fn warning(&self, text: &str) -> String {
        self.paint(self.color, "31", text)
    }

    /// For stderr.
    pub fn red(&self, text: &str) -> String {
        self.paint(self.color_errors, "31", text)
    }

    /// A state or outcome in its colour.
    fn state(&self, word: &str) -> String {
        match word {
            "running" => self.yellow(word),
            "awaiting_input" | "completed" | "finished" => self.green(word),
            _ => word.to_owned(),
        }
    }

    fn paint(&self, on: bool, code: &str, text: &str) -> String {
        if on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// The name under which a person calls this program from where they are.
pub fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "hearth".to_owned())
}

/// Without control characters other than line ends and tabs.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// For a cell or a label: control characters and line ends as spaces.
pub fn one_line(text: &str) -> String {
    text.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// At most `chars` characters; what is left out is said with an ellipsis.
pub fn shortened(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(chars.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// The head and the rows with their columns aligned.
pub fn table_lines(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let names = head.iter().map(|&name| name.to_owned()).collect();
    let cells = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect::<Vec<_>>());
    let lines: Vec<Vec<String>> = std::iter::once(names).chain(cells).collect();
    let widths = widths(&lines);
    lines.iter().map(|line| aligned(line, &widths)).collect()
}

fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let columns = lines.first().map_or(0, Vec::len);
    let longest =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|column| longest(column).unwrap_or(0)).collect()
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        write!(line, "{cell:<width$}  ").ok();
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_sequence_does_not_reach_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\n\tc"), "a\u{fffd}[2Jb\u{fffd}\n\tc");
        assert_eq!(one_line("a\nb\u{7}\n"), "a b ");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["ä".to_owned(), "1".to_owned()], vec!["long".to_owned(), "22".to_owned()]];
        assert_eq!(table_lines(&["A", "BB"], &rows), ["A     BB", "ä     1", "long  22"]);
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
    }
}
