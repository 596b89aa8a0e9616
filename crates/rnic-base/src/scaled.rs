//! The one parser that reads numbers with units from people.

/// Why a quantity such as `100Gbps` could not be read. The text says what was found and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No digits where a number should stand.
    #[error("`{text}` has no number; expected {expected}")]
    NoNumber {
        /// The text that was read.
        text: String,
        /// A description of valid input.
        expected: &'static str,
    },
    /// The suffix is missing or not one we know.
    #[error("`{text}` has {}; expected {expected}", unit_found(unit))]
    WrongUnit {
        /// The text that was read.
        text: String,
        /// The suffix that was found, empty when there was none.
        unit: String,
        /// A description of valid input.
        expected: &'static str,
    },
    /// More than 64 bits of the base unit, or a fraction of it.
    #[error("`{text}` is out of range or finer than the unit allows; expected {expected}")]
    OutOfRange {
        /// The text that was read.
        text: String,
        /// A description of valid input.
        expected: &'static str,
    },
}

fn unit_found(unit: &str) -> String {
    if unit.is_empty() { "no unit".to_owned() } else { format!("the unknown unit `{unit}`") }
}

/// Reads a decimal number followed by one of `units`, exactly, without floating point.
///
/// `0` needs no unit. The empty unit name in `units` makes a bare number legal.
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
