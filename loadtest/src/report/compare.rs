//! Two results side by side.

use std::path::{Path, PathBuf};

use clap::Args;

use super::html::document;
use super::svg::{Chart, Line};
use super::{escaped, number};
use crate::Error;
use crate::load::{FORMAT, Operation, Outcome, Stage};

/// Compare two results of `run --json`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier one
    a: PathBuf,
    /// The later one
    b: PathBuf,
    /// Write the comparison here as a page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// One operation of one stage, in both.
struct Pair<'o> {
    stage: String,
    a: &'o Operation,
    b: &'o Operation,
}

pub fn compare(args: &CompareArgs) -> Result<(), Error> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    if a.scenario != b.scenario {
        return Err(Error::Usage(format!("{} and {} are different scenarios", a.scenario, b.scenario)));
    }
    if a.settings != b.settings {
        println!("the settings differ: {} and {}", a.settings, b.settings);
    }
    if a.stages.len() != b.stages.len() {
        println!("{} stages and {}: what only one of them has is left out", a.stages.len(), b.stages.len());
    }
    let pairs: Vec<Pair> = a.stages.iter().zip(&b.stages).flat_map(|(a, b)| pairs(a, b)).collect();
    println!("{:<16} {:<16} {:>20} {:>20} {:>20} {:>12}", "stage", "operation", "1/s", "p50 ms", "p99 ms", "errors");
    for pair in &pairs {
        let (a, b) = (pair.a, pair.b);
        println!(
            "{:<16} {:<16} {:>20} {:>20} {:>20} {:>12}",
            pair.stage,
            a.name,
            change(a.per_s, b.per_s),
            change(a.ms.p50, b.ms.p50),
            change(a.ms.p99, b.ms.p99),
            format!("{} → {}", a.failed(), b.failed()),
        );
    }
    if let (Some(was), Some(is)) = (a.sustained_per_s, b.sustained_per_s) {
        println!("kept up with: {}", change(was, is));
    }
    if let Some(path) = &args.html {
        let text = page(&a, &b, &pairs);
        std::fs::write(path, text).map_err(Error::io(path.display().to_string()))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Outcome, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path.display().to_string()))?;
    let outcome: Outcome = serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("{} is no result of `run --json`: {error}", path.display())))?;
    match outcome.format {
        FORMAT => Ok(outcome),
        other => Err(Error::Usage(format!("{} has format {other}; this program reads {FORMAT}", path.display()))),
    }
}

fn pairs<'o>(a: &'o Stage, b: &'o Stage) -> Vec<Pair<'o>> {
    let same = |of: &'o Operation| b.operations.iter().find(|other| other.name == of.name).map(|other| (of, other));
    let stage = if a.name == b.name { a.name.clone() } else { format!("{} → {}", a.name, b.name) };
    a.operations.iter().filter_map(same).map(|(of, other)| Pair { stage: stage.clone(), a: of, b: other }).collect()
}

fn change(was: f64, is: f64) -> String {
    let share = if was > 0.0 { format!(" {:+.0} %", (is / was - 1.0) * 100.0) } else { String::new() };
    format!("{} → {}{share}", number(was), number(is))
}

fn page(a: &Outcome, b: &Outcome, pairs: &[Pair]) -> String {
    let row = |pair: &Pair| {
        let cell = |was: f64, is: f64, grows: bool| {
            let better = if grows { is > was * 1.05 } else { is < was * 0.95 };
            let worse = if grows { is < was * 0.95 } else { is > was * 1.05 };
            let class = if better {
                "good"
            } else if worse {
                "bad"
            } else {
                ""
            };
            format!("<td class=\"{class}\">{}</td>", change(was, is))
        };
        let (a, b) = (pair.a, pair.b);
        format!(
            "<tr><td>{}</td><td>{}</td>{}{}{}<td>{} → {}</td></tr>",
            escaped(&pair.stage),
            escaped(&a.name),
            cell(a.per_s, b.per_s, true),
            cell(a.ms.p50, b.ms.p50, false),
            cell(a.ms.p99, b.ms.p99, false),
            a.failed(),
            b.failed(),
        )
    };
    let curve = |pair: &Pair| {
        let line = |name: &str, operation: &Operation| Line {
            name: name.to_owned(),
            points: operation.curve.iter().map(|(at, ms)| (1.0 / (1.0 - at).max(1e-6), *ms)).collect(),
        };
        let chart = Chart {
            title: format!("{}, {}", pair.a.name, pair.stage),
            x: "one call in so many takes longer".to_owned(),
            y: "ms".to_owned(),
            log_x: true,
            log_y: true,
            lines: vec![line("before", pair.a), line("after", pair.b)],
            marks: Vec::new(),
        };
        format!("<div class=\"chart\">{}</div>", chart.draw())
    };
    let rows: String = pairs.iter().map(row).collect();
    let curves: String = pairs.iter().map(curve).collect();
    let body = format!(
        "<h1>{}: before and after</h1><p>{} and {}</p><div class=\"wide\"><table><tr><th>stage</th><th>operation</th>\
         <th>1/s</th><th>p50 ms</th><th>p99 ms</th><th>errors</th></tr>{rows}</table></div><div class=\"pair\">{curves}</div>",
        escaped(&a.scenario),
        escaped(&a.started_at),
        escaped(&b.started_at),
    );
    document("before and after", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_its_share() {
        assert_eq!(change(2.0, 3.0), "2.00 → 3.00 +50 %");
        assert_eq!(change(0.0, 3.0), "0 → 3.00");
    }
}
