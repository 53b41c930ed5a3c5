//! The report of one run: one page, no script, nothing fetched.

use super::svg::{Chart, Line};
use super::{escaped, number};
use crate::load::{Mark, Operation, Outcome, Stage, Tick};

const STYLE: &str = "\
:root{--ink:#1c2430;--soft:#5a6472;--paper:#fbfbf9;--card:#fff;--rule:#e3e6ea;--good:#1f9d72;--bad:#c8372d}\
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa5b1;--paper:#14181d;--card:#1c2229;--rule:#2e3740;--good:#3fc492;--bad:#ff7a6e}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:1120px;margin:0 auto;padding:40px 20px 80px}h1{font-size:26px;margin:0}h2{font-size:18px;margin:44px 0 12px}\
p,.soft{color:var(--soft)}.say{font-size:18px;color:var(--ink);margin:14px 0 0}.cards{display:flex;flex-wrap:wrap;gap:12px;margin:24px 0}\
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 18px;min-width:130px}\
.card b{display:block;font-size:24px;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:13px}\
.chart{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px;margin:12px 0}\
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:12px;margin-top:14px}.pair .chart{margin:0}\
svg{width:100%;height:auto;display:block}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{text-align:right;padding:6px 10px;border-bottom:1px solid var(--rule)}th{color:var(--soft);font-weight:500}\
th:first-child,td:first-child{text-align:left}.good{color:var(--good)}.bad{color:var(--bad)}.wide{overflow-x:auto}";

pub(crate) fn page(outcome: &Outcome) -> String {
    let mut body = head(outcome);
    body.push_str(&format!("<p class=\"say\">{}</p>", escaped(&verdict(outcome))));
    body.push_str(&cards(outcome));
    if !outcome.checks.is_empty() {
        body.push_str(&checks(outcome));
    }
    if outcome.stages.len() > 1 {
        body.push_str(&ramp(&outcome.stages));
    }
    for stage in &outcome.stages {
        body.push_str(&stage_section(stage));
    }
    body.push_str(&settings(outcome));
    document(&format!("{} on Hearth", outcome.scenario), &body)
}

/// A whole page around a body.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title>\
         <style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n",
        escaped(title),
    )
}

fn head(outcome: &Outcome) -> String {
    let machine = &outcome.machine;
    format!(
        "<h1>{}</h1><p>{} · {} · {} cores, {} · {}</p>",
        escaped(&outcome.scenario),
        escaped(&outcome.started_at),
        escaped(&outcome.targets.join(", ")),
        machine.cores,
        escaped(&machine.processor),
        escaped(&machine.kernel),
    )
}

/// What came of it, in a sentence or two.
fn verdict(outcome: &Outcome) -> String {
    let operations = || outcome.stages.iter().flat_map(|stage| &stage.operations);
    let calls: u64 = operations().map(|operation| operation.count).sum();
    let failed: u64 = operations().map(Operation::failed).sum();
    let mut said = match (outcome.sustained_per_s, outcome.saturated) {
        (Some(rate), true) => format!("Kept up with {} rounds a second; more was too much.", number(rate)),
        (Some(rate), false) => format!("Kept up with {} rounds a second, and more was not tried.", number(rate)),
        (None, true) => "Even the lowest rate was too much.".to_owned(),
        (None, false) if failed == 0 => format!("All of {calls} calls were answered well."),
        (None, false) => {
            #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
            let share = failed as f64 * 100.0 / (calls + failed) as f64;
            format!("{failed} of {} calls failed: {} %.", calls + failed, number(share))
        }
    };
    let broken: Vec<&str> =
        outcome.checks.iter().filter(|check| !check.held).map(|check| check.what.as_str()).collect();
    if !broken.is_empty() {
        said.push_str(&format!(" Did not hold: {}.", broken.join("; ")));
    }
    said
}

/// Milliseconds, or seconds where those would be many.
fn span(ms: f64) -> String {
    if ms < 10_000.0 { format!("{} ms", number(ms)) } else { format!("{} s", number(ms / 1e3)) }
}

fn cards(outcome: &Outcome) -> String {
    let operations = || outcome.stages.iter().flat_map(|stage| &stage.operations);
    let calls: u64 = operations().map(|operation| operation.count).sum();
    let failed: u64 = operations().map(Operation::failed).sum();
    let busiest = outcome.stages.last().and_then(|stage| stage.operations.iter().max_by_key(|each| each.count));
    let best = outcome.stages.iter().map(|stage| stage.achieved_per_s).fold(0.0, f64::max);
    let mut cards = vec![(calls.to_string(), "calls answered".to_owned(), "")];
    cards.push((failed.to_string(), "calls failed".to_owned(), if failed == 0 { "good" } else { "bad" }));
    match outcome.sustained_per_s {
        Some(rate) => cards.push((number(rate), "rounds a second kept up with".to_owned(), "")),
        None => cards.push((number(best), "rounds a second".to_owned(), "")),
    }
    if let Some(operation) = busiest {
        cards.push((span(operation.ms.p50), format!("{}, the middle", operation.name), ""));
        cards.push((span(operation.ms.p99), format!("{}, 99 of 100", operation.name), ""));
    }
    let card = |(value, label, class): (String, String, &str)| {
        format!(
            "<div class=\"card\"><b class=\"{class}\">{}</b><span>{}</span></div>",
            escaped(&value),
            escaped(&label)
        )
    };
    format!("<div class=\"cards\">{}</div>", cards.into_iter().map(card).collect::<String>())
}

fn checks(outcome: &Outcome) -> String {
    let row = |check: &crate::load::Check| {
        let (class, word) = if check.held { ("good", "held") } else { ("bad", "broken") };
        format!(
            "<tr><td>{}</td><td class=\"{class}\">{word}</td><td>{}</td></tr>",
            escaped(&check.what),
            escaped(&check.detail)
        )
    };
    let rows: String = outcome.checks.iter().map(row).collect();
    format!("<h2>Checks</h2><div class=\"wide\"><table>{rows}</table></div>")
}

/// How times grow with the rate.
fn ramp(stages: &[Stage]) -> String {
    let of = |name: &str, value: fn(&Stage) -> f64| Line {
        name: name.to_owned(),
        points: stages
            .iter()
            .map(|stage| (stage.offered_per_s.unwrap_or(stage.achieved_per_s), value(stage)))
            .collect(),
    };
    let times = Chart {
        title: "Times of the slowest operation by rate".to_owned(),
        x: "rounds that were to begin in a second".to_owned(),
        y: "ms".to_owned(),
        log_x: true,
        log_y: true,
        lines: vec![
            of("p50", |stage| slowest(stage, |operation| operation.ms.p50)),
            of("p99", |stage| slowest(stage, |operation| operation.ms.p99)),
        ],
        marks: Vec::new(),
    };
    let rates = Chart {
        title: "What was kept up with".to_owned(),
        x: "rounds that were to begin in a second".to_owned(),
        y: "rounds that ended in a second".to_owned(),
        log_x: true,
        log_y: true,
        lines: vec![
            of("ended", |stage| stage.achieved_per_s),
            of("asked for", |stage| stage.offered_per_s.unwrap_or(stage.achieved_per_s)),
        ],
        marks: Vec::new(),
    };
    format!("<h2>Ramp</h2><div class=\"pair\">{}{}</div>", framed(&times), framed(&rates))
}

fn slowest(stage: &Stage, at: fn(&Operation) -> f64) -> f64 {
    stage.operations.iter().map(at).fold(0.0, f64::max)
}

fn framed(chart: &Chart) -> String {
    format!("<div class=\"chart\">{}</div>", chart.draw())
}

fn stage_section(stage: &Stage) -> String {
    let mut out = format!("<h2>{}</h2>", escaped(&stage.name));
    if stage.unstarted > 0 {
        out.push_str(&format!(
            "<p class=\"bad\">{} rounds never began: the target or the driving machine did not keep up.</p>",
            stage.unstarted
        ));
    }
    if stage.cut_off > 0 {
        out.push_str(&format!(
            "<p class=\"bad\">{} rounds were not answered in time, and are in no line below.</p>",
            stage.cut_off
        ));
    }
    out.push_str(&table(&stage.operations));
    out.push_str(&marks(&stage.marks));
    let curve = Chart {
        title: "Times by quantile".to_owned(),
        x: "one call in so many takes longer".to_owned(),
        y: "ms".to_owned(),
        log_x: true,
        log_y: true,
        lines: stage.operations.iter().map(curve).collect(),
        marks: Vec::new(),
    };
    out.push_str("<div class=\"pair\">");
    out.push_str(&framed(&curve));
    out.push_str(&framed(&over_time(stage, "Answers", "in a second", false, |tick| count(tick.count))));
    out.push_str(&framed(&over_time(stage, "The middle time", "ms", true, |tick| tick.p50)));
    out.push_str(&framed(&over_time(stage, "The slowest hundredth", "ms", true, |tick| tick.p99)));
    if stage.operations.iter().any(|operation| operation.failed() > 0) {
        out.push_str(&framed(&over_time(stage, "Failures", "in a second", false, |tick| count(tick.errors))));
    }
    out.push_str("</div>");
    out
}

fn over_time(stage: &Stage, title: &str, y: &str, log_y: bool, value: fn(&Tick) -> f64) -> Chart {
    let line = |operation: &Operation| Line {
        name: operation.name.clone(),
        points: operation.timeline.iter().map(|tick| (f64::from(tick.second), value(tick))).collect(),
    };
    Chart {
        title: format!("{title} over time"),
        x: "seconds".to_owned(),
        y: y.to_owned(),
        log_x: false,
        log_y,
        lines: stage.operations.iter().map(line).collect(),
        marks: stage.marks.iter().map(|mark| (mark.second, mark.what.clone())).collect(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a count of calls")]
fn count(calls: u64) -> f64 {
    calls as f64
}

/// What was done to the target, in words; the charts show when.
fn marks(marks: &[Mark]) -> String {
    if marks.is_empty() {
        return String::new();
    }
    let said: Vec<String> =
        marks.iter().map(|mark| format!("{} s {}", number(mark.second), escaped(&mark.what))).collect();
    format!("<p>Dashed lines: {}.</p>", said.join(" · "))
}

fn curve(operation: &Operation) -> Line {
    let points = operation.curve.iter().map(|(quantile, ms)| (1.0 / (1.0 - quantile).max(1e-6), *ms)).collect();
    Line { name: operation.name.clone(), points }
}

fn table(operations: &[Operation]) -> String {
    let row = |operation: &Operation| {
        let errors: Vec<String> =
            operation.errors.iter().map(|(code, count)| format!("{} {}", count, escaped(code))).collect();
        let class = if errors.is_empty() { "good" } else { "bad" };
        let of = &operation.ms;
        let times: String =
            [of.p50, of.p90, of.p99, of.p999, of.max, operation.service_ms.p50, operation.service_ms.p99]
                .map(|ms| format!("<td>{}</td>", number(ms)))
                .concat();
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td>{times}<td class=\"{class}\">{}</td></tr>",
            escaped(&operation.name),
            operation.count,
            number(operation.per_s),
            if errors.is_empty() { "none".to_owned() } else { errors.join("<br>") },
        )
    };
    format!(
        "<div class=\"wide\"><table><tr><th>operation</th><th>count</th><th>1/s</th><th>p50 ms</th><th>p90</th><th>p99</th>\
         <th>p99.9</th><th>max</th><th>p50 from its begin</th><th>p99 from its begin</th><th>errors</th></tr>{}</table></div>",
        operations.iter().map(row).collect::<String>(),
    )
}

fn settings(outcome: &Outcome) -> String {
    let rows: String = outcome
        .settings
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            format!("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value.to_string().trim_matches('"')))
        })
        .chain(
            outcome
                .machine
                .versions
                .iter()
                .map(|(name, version)| format!("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(version))),
        )
        .collect();
    format!(
        "<h2>How</h2><p>Times count from the moment at which a call was to begin, so that a call that had to wait for \
         others shows it. The two columns from its begin leave that wait out.</p><div class=\"wide\"><table>{rows}</table></div>"
    )
}
