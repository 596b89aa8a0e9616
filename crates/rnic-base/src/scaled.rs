//! Parser of numbers with units, for all user input.

/// Reason why a quantity such as `100Gbps` could not be parsed. The error message quotes the input and describes
/// valid input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No digits where a number is expected.
    #[error("`{text}` contains no number; expected {expected}")]
    NoNumber {
        /// Text that was parsed.
        text: String,
        /// Description of valid input.
        expected: &'static str,
    },
    /// The suffix is missing or unknown.
    #[error("`{text}` has {}; expected {expected}", unit_found(unit))]
    WrongUnit {
        /// Text that was parsed.
        text: String,
        /// Suffix found, empty when there was none.
        unit: String,
        /// Description of valid input.
        expected: &'static str,
    },
    /// The value has two readings.
    #[error("`{text}` is ambiguous: {readings}")]
    Ambiguous {
        /// Text that was parsed.
        text: String,
        /// Both readings, and how to write each.
        readings: &'static str,
    },
    /// The value exceeds 64 bits of the base unit, or is not a multiple of it.
    #[error("`{text}` is too large, or more precise than this quantity can represent; expected {expected}")]
    OutOfRange {
        /// Text that was parsed.
        text: String,
        /// Description of valid input.
        expected: &'static str,
    },
}

fn unit_found(unit: &str) -> String {
    if unit.is_empty() { "no unit".to_owned() } else { format!("the unknown unit `{unit}`") }
}

/// Parses a decimal number followed by one of `units`, exactly, without floating point.
///
/// `0` needs no unit. An empty unit name in `units` makes a bare number valid.
pub(crate) fn parse_scaled(text: &str, units: &[(&str, u64)], expected: &'static str) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(trimmed.len());
    let (number, unit) = (trimmed[..split].replace('_', ""), trimmed[split..].trim());
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(UnitError::NoNumber { text: text.to_owned(), expected });
    }
    let out_of_range = || UnitError::OutOfRange { text: text.to_owned(), expected };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let is_zero = number.chars().all(|c| c == '0' || c == '.');
    let scale = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() && is_zero => 1,
        None => {
            return Err(UnitError::WrongUnit { text: text.to_owned(), unit: unit.to_owned(), expected });
        }
    };
    let whole: u128 = whole.parse().map_err(|_| out_of_range())?;
    let mut value = whole.checked_mul(u128::from(scale)).ok_or_else(out_of_range)?;
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len()).map_err(|_| out_of_range())?;
        let denominator = 10u128.checked_pow(digits).ok_or_else(out_of_range)?;
        let numerator: u128 = fraction.parse().map_err(|_| out_of_range())?;
        let scaled = numerator.checked_mul(u128::from(scale)).ok_or_else(out_of_range)?;
        if scaled % denominator != 0 {
            return Err(out_of_range());
        }
        value += scaled / denominator;
    }
    u64::try_from(value).map_err(|_| out_of_range())
}
