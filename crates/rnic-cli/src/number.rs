//! Formats numbers for users.

/// Formats `value` with about three significant digits: `0.0123`, `1.23`, `12.3`, `1230`.
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 99.95 || m == 0.0 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        _ => 3,
    };
    grouped_text(&format!("{value:.decimals$}"))
}

/// Formats `value` with a thin space between thousands: `1 234 567`.
pub fn grouped(value: u64) -> String {
    grouped_text(&value.to_string())
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
    fn short_keeps_three_digits() {
        let shown = [0.0, 0.0123, 1.0, 9.999, 12.34, 99.99, 123.4].map(short);
        assert_eq!(shown, ["0", "0.012", "1.00", "10.0", "12.3", "100", "123"]);
    }

    #[test]
    fn thousands_are_grouped_from_five_digits() {
        assert_eq!([1234, 12_345, 1_234_567].map(grouped), ["1234", "12\u{202f}345", "1\u{202f}234\u{202f}567"]);
        assert_eq!(grouped_text("-12345.678"), "-12\u{202f}345.678");
    }

    #[test]
    fn quantities_pick_their_unit() {
        assert_eq!([0.5, 12.3, 4_560.0, 2e6].map(micros), ["500 ns", "12.3 us", "4.56 ms", "2.00 s"]);
        assert_eq!([0.01, 0.0025].map(percent), ["1\u{a0}%", "0.25\u{a0}%"]);
        assert_eq!([12, 1_500, 38_400_000].map(size), ["12 B", "1.50 kB", "38.4 MB"]);
    }
}
