//! Formats numbers for users.

use crate::judge::Stat;

/// Formats with about three significant digits: `0.012`, `1.23`, `12.3`, `1230`; `never` for infinite values.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "not a number" } else { "never" }.to_owned();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 99.95 || m == 0.0 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.0995 => 3,
        // Three significant digits, regardless of leading zeros.
        m => (2 - m.log10().floor() as i32).clamp(3, 9) as usize,
    };
    let text = format!("{value:.decimals$}");
    if magnitude < 0.0995 && text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Formats a value with its unit, `3.01 x`; an empty unit adds no blank.
pub fn with_unit(value: f64, unit: &str) -> String {
    let blank = if unit.is_empty() || !value.is_finite() { "" } else { "\u{a0}" };
    let unit = if value.is_finite() { unit } else { "" };
    format!("{}{blank}{unit}", short(value))
}

/// Formats the mean with its range, `3.01 x (2.80 to 3.20)`; for one value only that value.
pub fn spread(stat: &Stat, unit: &str) -> String {
    let mean = with_unit(stat.mean, unit);
    if stat.count < 2 {
        return mean;
    }
    format!("{mean} ({} to {})", short(stat.min), short(stat.max))
}

/// Formats a duration: `0.8 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7_200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.0, 0.0123, 0.000_456, 0.5, 1.0, 12.34, 123.4, 12_345.6, -0.7, f64::INFINITY].map(short);
        assert_eq!(shown, ["0", "0.0123", "0.000456", "0.500", "1.00", "12.3", "123", "12346", "-0.700", "never"]);
    }

    #[test]
    fn spreads_and_times() {
        let stat = Stat { mean: 3.0, min: 2.5, max: 3.5, count: 3 };
        assert_eq!(spread(&stat, "x"), "3.00\u{a0}x (2.50 to 3.50)");
        assert_eq!(spread(&Stat { count: 1, ..stat }, ""), "3.00");
        assert_eq!([0.84, 42.0, 200.0, 7_500.0].map(seconds), ["0.8 s", "42 s", "3 min 20 s", "2 h 5 min"]);
    }
}
