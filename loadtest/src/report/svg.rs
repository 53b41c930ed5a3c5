//! Line charts as SVG, with nothing outside of them.

use super::{escaped, number};

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 44.0;

/// Told apart by people who do not see all colours, too.
const COLOURS: [&str; 6] = ["#2f6fde", "#d9682b", "#1f9d72", "#a3459f", "#b8860b", "#5a6472"];

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    pub log_x: bool,
    pub log_y: bool,
    pub lines: Vec<Line>,
    /// Moments that are drawn across all lines, with what happened then.
    pub marks: Vec<(f64, String)>,
}

/// One direction: values to places.
struct Axis {
    from: f64,
    to: f64,
    log: bool,
    at: f64,
    span: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, log: bool, at: f64, span: f64) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite() && (!log || *value > 0.0)).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if least.is_finite() { (least, most) } else { (0.1, 1.0) };
        if log {
            let (low, high) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
            let ticks = (0..=steps(high - low)).map(|step| 10_f64.powf(low + f64::from(step))).collect();
            return Self { from: low, to: high, log, at, span, ticks };
        }
        let low = least.min(0.0);
        let step = nice((most - low).max(1e-9) / 5.0);
        let high = (most / step).ceil().max(1.0) * step;
        let ticks = (0..=steps((high - low) / step)).map(|tick| low + f64::from(tick) * step).collect();
        Self { from: low, to: high, log, at, span, ticks }
    }

    fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-12).log10() } else { value };
        self.at + self.span * (value - self.from) / (self.to - self.from).max(1e-12)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a handful of ticks")]
fn steps(count: f64) -> u32 {
    count.round().clamp(1.0, 20.0) as u32
}

/// 1, 2 or 5 times a power of ten, at least as large.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step).unwrap_or(step)
}

impl Chart {
    /// With its own colours, which follow the reader's preference for light or dark.
    pub(crate) fn draw(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let x = Axis::new(points().map(|point| point.0), self.log_x, LEFT, WIDTH - LEFT - RIGHT);
        let y = Axis::new(points().map(|point| point.1), self.log_y, HEIGHT - BOTTOM, TOP + BOTTOM - HEIGHT);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <style>text{{fill:#3a4350}}.grid{{stroke:#dfe3e8}}.mark{{stroke:#c8372d;stroke-dasharray:4 4;opacity:.6}}\
             @media (prefers-color-scheme: dark){{text{{fill:#c9d1da}}.grid{{stroke:#39424d}}}}</style>\n\
             <text x=\"8\" y=\"18\" font-size=\"15\" font-weight=\"600\">{title}</text>\n",
            title = escaped(&self.title),
        );
        for tick in &y.ticks {
            let at = y.place(*tick);
            out.push_str(&format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                short(*tick),
            ));
        }
        for tick in &x.ticks {
            out.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                x.place(*tick),
                HEIGHT - BOTTOM + 16.0,
                short(*tick),
            ));
        }
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"8\" y=\"{:.1}\">{}</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            HEIGHT - 8.0,
            escaped(&self.x),
            TOP - 14.0,
            escaped(&self.y),
        ));
        for (at, what) in self.marks.iter().filter(|(at, _)| at.is_finite() && (x.from..=x.to).contains(at)) {
            out.push_str(&format!(
                "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"><title>{}</title></line>\n",
                HEIGHT - BOTTOM,
                escaped(what),
                at = x.place(*at),
            ));
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            out.push_str(&self.line(line, colour, &x, &y));
        }
        out.push_str(&self.legend());
        out.push_str("</svg>");
        out
    }

    fn line(&self, line: &Line, colour: &str, x: &Axis, y: &Axis) -> String {
        let fits = |point: &&(f64, f64)| {
            point.0.is_finite()
                && point.1.is_finite()
                && (!self.log_x || point.0 > 0.0)
                && (!self.log_y || point.1 > 0.0)
        };
        let places: Vec<(f64, f64, f64, f64)> = line
            .points
            .iter()
            .filter(fits)
            .map(|point| (x.place(point.0), y.place(point.1), point.0, point.1))
            .collect();
        let path: Vec<String> = places.iter().map(|place| format!("{:.1},{:.1}", place.0, place.1)).collect();
        let mut out = format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" points=\"{}\"/>\n",
            path.join(" "),
        );
        if places.len() <= 60 {
            for (at_x, at_y, value_x, value_y) in places {
                out.push_str(&format!(
                    "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"2.6\" fill=\"{colour}\"><title>{}: {} at {}</title></circle>\n",
                    escaped(&line.name),
                    number(value_y),
                    number(value_x),
                ));
            }
        }
        out
    }

    fn legend(&self) -> String {
        let mut out = String::new();
        let mut at = WIDTH - RIGHT;
        for (number, line) in self.lines.iter().enumerate().rev() {
            let colour = COLOURS[number % COLOURS.len()];
            #[allow(clippy::cast_precision_loss, reason = "a short name")]
            let width = line.name.chars().count() as f64 * 7.0 + 24.0;
            at -= width;
            out.push_str(&format!(
                "<rect x=\"{at:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                TOP - 23.0,
                at + 14.0,
                TOP - 14.0,
                escaped(&line.name),
            ));
        }
        out
    }
}

/// `1k` for a thousand.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e9 => format!("{}G", number(value / 1e9).trim_end_matches(".00").trim_end_matches(".0")),
        large if large >= 1e6 => format!("{}M", number(value / 1e6).trim_end_matches(".00").trim_end_matches(".0")),
        large if large >= 1e3 => format!("{}k", number(value / 1e3).trim_end_matches(".00").trim_end_matches(".0")),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool, points: Vec<(f64, f64)>) -> String {
        let lines = vec![Line { name: "p50 <of> & more".to_owned(), points }];
        Chart { title: "T".into(), x: "x".into(), y: "y".into(), log_x: log, log_y: log, lines, marks: Vec::new() }
            .draw()
    }

    #[test]
    fn points_lie_within_the_picture_and_names_are_escaped() {
        for log in [false, true] {
            let drawn = chart(log, vec![(1.0, 0.5), (1_000.0, 12.0), (1e6, 3_456.0)]);
            assert!(drawn.contains("p50 &lt;of&gt; &amp; more") && !drawn.contains("<of>"));
            let points = drawn.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            for place in points.split(' ') {
                let (x, y) = place.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!(
                    (LEFT - 0.1..=WIDTH).contains(&x) && (TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y),
                    "{place}"
                );
            }
        }
    }

    #[test]
    fn nothing_and_zeros_are_drawn_too() {
        assert!(chart(true, Vec::new()).ends_with("</svg>"));
        assert!(!chart(true, vec![(0.0, 0.0), (1.0, f64::NAN)]).contains("NaN"));
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([0.0, 0.5, 20.0, 1_500.0, 2e6].map(short), ["0", "0.5", "20", "1.50k", "2M"]);
    }
}
