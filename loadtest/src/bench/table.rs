//! The figures for a person, in a terminal.

use super::figure::Figure;
use super::record::Recorded;
use crate::report::number;

pub(super) fn rows(figures: &[Figure], last: Option<&Recorded>) -> Vec<[String; 7]> {
    let optional = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
    let row = |figure: &Figure| {
        let met = match figure.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let worse = last.and_then(|last| last.worse(figure)).map(|share| format!("worse by {:.0} %", share * 100.0));
        let remark = figure.reason.clone().or(worse).unwrap_or_default();
        [
            figure.figure.clone(),
            figure.value.map_or_else(|| "–".to_owned(), |value| format!("{} {}", number(value), figure.unit)),
            optional(figure.floor),
            figure.ratio.map_or_else(
                || "–".to_owned(),
                |ratio| {
                    let noise = figure.noise.map(|noise| format!(" ±{:.0} %", noise * 100.0)).unwrap_or_default();
                    format!("{}{noise}", number(ratio))
                },
            ),
            figure.target.clone().unwrap_or_default(),
            met.to_owned(),
            remark,
        ]
    };
    figures.iter().map(row).collect()
}

pub(super) const HEADINGS: [&str; 7] = ["figure", "value", "floor", "ratio", "target", "met", "remark"];

pub(super) fn print(figures: &[Figure], last: Option<&Recorded>) {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows(figures, last));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    println!();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
