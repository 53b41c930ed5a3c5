//! Reading values from text. Each function gives `None` for what is not allowed.

use std::time::Duration;

pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// Digits only: no sign, no blank, no underscore.
pub(super) fn number(text: &str, least: u64, most: u64) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = text.parse::<u64>().ok().filter(|_| digits)?;
    (least..=most).contains(&value).then_some(value)
}

pub(super) fn milliseconds(text: &str, least: u64, most: u64) -> Option<Duration> {
    number(text, least, most).map(Duration::from_millis)
}

/// `500ms`, `30s`, `15m`, `8h`, `1d`; from a millisecond to a day.
pub(super) fn duration(text: &str) -> Option<Duration> {
    const DAY_MS: u64 = 86_400_000;
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_at);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        _ => return None,
    };
    let ms = count.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    (1..=DAY_MS).contains(&ms).then(|| Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_with_a_unit() {
        assert_eq!(duration("15m"), Some(Duration::from_secs(900)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "15", "m", "-1s", "1.5h", "1h30m", "0s", "2d", "99999999999999999999s", "1 s", "1S"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_number_is_digits_within_its_range() {
        assert_eq!(number("8", 0, 8), Some(8));
        for bad in ["", "9", "+8", "-1", "8 ", "1_0", "0x8", "1e1", "18446744073709551616"] {
            assert_eq!(number(bad, 0, 8), None, "{bad:?}");
        }
    }
}
