//! Formats numbers for users.

use std::cell::Cell;

thread_local! {
    /// `true` while thousands are separated.
    static GROUPS: Cell<bool> = const { Cell::new(true) };
}

/// Calls `make` and returns its result; numbers that are formatted meanwhile, on this thread, have plain digits, for
/// programs that read them.
pub fn plain<T>(make: impl FnOnce() -> T) -> T {
    let before = GROUPS.replace(false);
    let made = make();
    GROUPS.set(before);
    made
}

/// Formats `value` with about three significant digits: `0.0123`, `1.23`, `12.3`, `1230`; `never` for infinite values.
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
    let text = fixed(value, decimals);
    if magnitude < 0.0995 && text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Formats `value` with a fixed number of decimals and a thin space between thousands: `12 345.7`.
pub fn fixed(value: f64, decimals: usize) -> String {
    grouped_text(&format!("{value:.decimals$}"))
}

/// Formats `value` with a thin space between thousands: `1 234 567`.
pub fn grouped(value: u64) -> String {
    grouped_text(&value.to_string())
}

/// Formats a value with its unit, `3.01 x`; an empty unit adds no blank.
pub fn with_unit(value: f64, unit: &str) -> String {
    let blank = if unit.is_empty() || !value.is_finite() { "" } else { "\u{a0}" };
    let unit = if value.is_finite() { unit } else { "" };
    format!("{}{blank}{unit}", short(value))
}

/// Formats microseconds in a suitable unit: `820 ns`, `12.3 us`, `4.56 ms`, `1.2 s`.
pub fn micros(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us if us >= 1.0 || us == 0.0 => (us, "us"),
        us => (us * 1e3, "ns"),
    };
    format!("{} {unit}", short(value))
}

/// Formats a duration of a command: `0.8 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..120 => format!("{whole} s"),
        120..7_200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// Formats a decimal size: `38.4 MB`.
pub fn size(bytes: u64) -> String {
    let (scale, unit) = match bytes {
        b if b >= 1_000_000_000 => (1e9, "GB"),
        b if b >= 1_000_000 => (1e6, "MB"),
        b if b >= 1_000 => (1e3, "kB"),
        _ => return format!("{bytes} B"),
    };
    format!("{} {unit}", short(bytes as f64 / scale))
}

/// Formats a fraction from 0 to 1 as a percentage: `1 %`.
pub fn percent(share: f64) -> String {
    format!("{}\u{a0}%", (share * 1e6).round() / 1e4)
}

fn grouped_text(number: &str) -> String {
    if !GROUPS.get() {
        return number.to_owned();
    }
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        // Numbers of four digits are not grouped: a single leading digit is harder to read.
        if index > 0 && digits.len() > 4 && (digits.len() - index).is_multiple_of(3) {
            text.push(THIN_SPACE);
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Narrow non-breaking space, which keeps a number on one line.
const THIN_SPACE: char = '\u{202f}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_have_no_separators() {
        assert_eq!(plain(|| (grouped(1_234_567), fixed(12_345.67, 1))), ("1234567".to_owned(), "12345.7".to_owned()));
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn short_keeps_three_digits() {
        let shown = [0.0, 0.0123, 0.000_456, 0.5, 1.0, 9.999, 12.34, 99.99, 123.4, -0.7].map(short);
        assert_eq!(shown, ["0", "0.0123", "0.000456", "0.500", "1.00", "10.0", "12.3", "100", "123", "-0.700"]);
        assert_eq!([12_345.6, f64::INFINITY, f64::NAN].map(short), ["12\u{202f}346", "never", "not a number"]);
    }

    #[test]
    fn thousands_are_grouped_from_five_digits() {
        assert_eq!([1234, 12_345, 1_234_567].map(grouped), ["1234", "12\u{202f}345", "1\u{202f}234\u{202f}567"]);
        assert_eq!(fixed(-12_345.678, 3), "-12\u{202f}345.678");
    }

    #[test]
    fn quantities_use_a_suitable_unit() {
        assert_eq!([0.5, 12.3, 4_560.0, 2e6].map(micros), ["500 ns", "12.3 us", "4.56 ms", "2.00 s"]);
        assert_eq!([0.01, 0.0025].map(percent), ["1\u{a0}%", "0.25\u{a0}%"]);
        assert_eq!([12, 1_500, 38_400_000].map(size), ["12 B", "1.50 kB", "38.4 MB"]);
        assert_eq!([0.84, 42.0, 200.0, 7_500.0].map(seconds), ["0.8 s", "42 s", "3 min 20 s", "2 h 5 min"]);
    }

    #[test]
    fn units_follow_finite_values_only() {
        assert_eq!(with_unit(3.0, "x"), "3.00\u{a0}x");
        assert_eq!(with_unit(3.0, ""), "3.00");
        assert_eq!(with_unit(f64::INFINITY, "x"), "never");
    }
}
