//! docs/PERFORMANCE.md: the part between two marks is written here, the rest by hand.

use std::path::Path;

use super::figure::{FIGURES, Kind};
use super::record::Recorded;
use super::table::{HEADINGS, rows};
use crate::Error;

const BEGIN: &str = "<!-- figures: written by `cargo xtask bench` -->";
const END: &str = "<!-- end of the figures -->";
const TITLE: &str = "# Performance\n";

pub(super) fn write(root: &Path, now: &Recorded, last: Option<&Recorded>) -> Result<(), Error> {
    let path = root.join("docs/PERFORMANCE.md");
    let before = std::fs::read_to_string(&path).unwrap_or_else(|_| format!("{TITLE}\n{BEGIN}\n{END}\n"));
    let after = replaced(&before, &text(now, last));
    std::fs::write(&path, after).map_err(Error::io(path.display().to_string()))
}

/// The document with another text between the marks; at its end where it has none.
fn replaced(document: &str, text: &str) -> String {
    let marked = format!("{BEGIN}\n\n{text}\n{END}");
    match (document.split_once(BEGIN), document.split_once(END)) {
        (Some((before, _)), Some((_, after))) => format!("{before}{marked}{after}"),
        _ => format!("{}\n\n{marked}\n", document.trim_end()),
    }
}

fn text(now: &Recorded, last: Option<&Recorded>) -> String {
    let machine = &now.machine;
    let versions: Vec<String> =
        machine.versions.iter().map(|(name, version)| format!("| {name} | {version} |")).collect();
    let mut text = format!(
        "Measured on {} with `cargo xtask bench`.\n\n| machine | |\n|---|---|\n| processor | {} cores, {} |\n\
         | memory | {} GiB |\n| kernel | {} |\n{}\n\n",
        now.date,
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.kernel,
        versions.join("\n"),
    );
    text.push_str(&format!("| {} |\n|{}\n", HEADINGS.join(" | "), "---|".repeat(HEADINGS.len())));
    for row in rows(&now.figures, last) {
        let cells = row.map(|cell| cell.replace('|', "/"));
        text.push_str(&format!("| `{}` | {} |\n", cells[0], cells[1..].join(" | ")));
    }
    text.push_str(
        "\n± is half the distance between the quarters of the rounds' ratios.\n\nWhat each is, and its floor:\n\n",
    );
    text.push_str(&FIGURES.iter().map(explained).collect::<Vec<_>>().join("\n"));
    text.push('\n');
    text
}

fn explained(kind: &Kind) -> String {
    format!("- `{}`: {}. Floor: {}.", kind.name, kind.what, kind.floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_by_hand_stays() {
        let first = replaced("# Performance\n\nBy hand.\n", "figures 1\n");
        assert!(first.contains("By hand.") && first.contains("figures 1"), "{first}");
        let by_hand_after = format!("{first}\nMore by hand.\n");
        let second = replaced(&by_hand_after, "figures 2\n");
        assert!(second.contains("By hand.") && second.contains("More by hand.") && second.contains("figures 2"));
        assert!(!second.contains("figures 1"), "{second}");
        assert_eq!(second.matches(BEGIN).count(), 1);
    }
}
