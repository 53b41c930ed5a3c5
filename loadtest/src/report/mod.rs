//! Results for people: a page to look at, and a comparison of two.

mod compare;
mod html;
pub(crate) mod svg;

pub use compare::{CompareArgs, compare};
pub(crate) use html::page;

/// A number with as many digits as it deserves.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.4}"),
    }
}

/// Text as it stands in a page.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_the_digits_that_say_something() {
        assert_eq!([0.0, 0.0123, 1.234, 56.78, 12_345.6].map(number), ["0", "0.0123", "1.23", "56.8", "12346"]);
    }
}
