//! State and parameters of a program, as described in files, registries and reports.

use std::borrow::Cow;

use crate::graph::is_name;
use crate::value::MULTIPLY_BITS_MAX;

/// Text of a description: a literal in a Rust program, or text read from a program file.
pub type Text = Cow<'static, str>;

/// Maximum size of a program's state block in bytes: the engine needs the rest of a policy's storage for the settings
/// of the flow.
pub const STATE_BYTES_MAX: usize = 48;

/// Maximum value of a parameter, so that its conversion cannot overflow.
const VALUE_MAX: u64 = 1 << 50;

/// Maximum number of parameters of a program, as of every policy.
pub const PARAMETERS_MAX: usize = 17;

/// An initial value.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Initial {
    /// A constant.
    Constant(u64),
    /// The value of the parameter with this name.
    Parameter(Text),
}

/// Condition on a state field under which the periodic function has to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Due {
    /// The field is no deadline.
    #[default]
    No,
    /// The periodic function has to run at the time in the field; zero means no deadline.
    Time,
    /// The periodic function has to run when `total_sent` reaches the value of the field.
    Sent,
}

/// A field of a program's state.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateField {
    /// Name.
    pub name: Text,
    /// Width in bits.
    pub bits: u8,
    /// Value for a new flow.
    pub initial: Initial,
    /// Kind of deadline of the periodic function that the field holds, if any.
    pub due: Due,
}

impl StateField {
    /// Returns the number of bytes of the field in a state block: 1, 2, 4 or 8.
    #[inline]
    fn bytes(&self) -> usize {
        crate::record::stored_bytes(self.bits.into())
    }
}

/// Unit of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// No unit.
    Count,
    /// Nanoseconds; ticks of 160 ns in a transport program.
    Time,
    /// Bits per second; bytes per 65,536 cycles in a transport program.
    Rate,
    /// Nanoseconds, in a law too.
    Nanoseconds,
    /// Bits per second; units of 65,536 bit/s in a law.
    Speed,
}

/// A parameter: constant during the life of a flow, and an input port of the circuit.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Name.
    pub name: Text,
    /// One line of help: the effect, and the source of the default.
    pub help: Text,
    /// Width in bits.
    pub bits: u8,
    /// Unit of the following values; the program receives them converted to words.
    pub unit: Unit,
    /// Default value.
    pub default: u64,
    /// Minimum value.
    pub min: u64,
    /// Maximum value.
    pub max: u64,
}

impl Parameter {
    /// Returns the word that a program receives for `value`, limited to the maximum of the parameter's width.
    pub fn word(&self, value: u64) -> u64 {
        let word = match self.unit {
            Unit::Count => value,
            Unit::Time => crate::interface::ticks(value),
            Unit::Rate => crate::interface::rate(value),
            Unit::Nanoseconds => value,
            Unit::Speed => crate::interface::speed(value),
        };
        word.min(mask(self.bits))
    }

    /// Formats `value` with its unit.
    pub fn show(&self, value: u64) -> String {
        match self.unit {
            Unit::Count => value.to_string(),
            Unit::Time | Unit::Nanoseconds => rnic_base::Duration::from_ps(value.saturating_mul(1_000)).to_string(),
            Unit::Rate | Unit::Speed => rnic_base::BitRate::bps(value).to_string(),
        }
    }

    /// Returns what is wrong with its bounds.
    fn fault(&self) -> Option<String> {
        let [min, default, max] = [self.min, self.default, self.max].map(|value| self.show(value));
        let (largest, bits) = (mask(self.bits), self.bits);
        let fits = self.word(self.max) < largest || (self.unit == Unit::Count && self.max <= largest);
        if self.default < self.min {
            let tick = if self.unit == Unit::Time { ", where a tick is 160 ns" } else { "" };
            return Some(format!("the default, {default}, is less than the minimum, {min}{tick}"));
        }
        if self.max > VALUE_MAX || (self.default <= self.max && !fits) {
            return Some(format!("the maximum, {max}, does not fit into {bits} bits"));
        }
        (self.default > self.max).then(|| format!("the default, {default}, exceeds the maximum, {max}"))
    }
}

/// Returns the first characters of a text from a file.
fn truncated(text: &str) -> String {
    text.chars().take(40).collect()
}

/// An error in a description.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The program's name is invalid.
    #[error("invalid program name: it must begin with a-z and have at most 32 characters a-z, 0-9 and -")]
    ProgramName,
    /// A text is too long or contains control characters.
    #[error("the summary or a help text is longer than 200 characters, or has control characters")]
    LongText,
    /// A field's name is invalid, or used twice.
    #[error("the field name `{0}` is invalid or used twice")]
    Name(String),
    /// A width is out of range.
    #[error("the width of `{0}` is {1} bits, but must be 1 to 64")]
    Width(String, u8),
    /// The state is too large.
    #[error("the state has {0} bytes, at most {max} are possible", max = STATE_BYTES_MAX)]
    LargeState(usize),
    /// There are too many parameters.
    #[error("{0} parameters, at most {max} are possible", max = PARAMETERS_MAX)]
    ManyParameters(usize),
    /// The initial value of this field is not possible, for this reason.
    #[error("the initial value of `{0}` {1}")]
    Initial(String, String),
    /// The bounds of this parameter are not possible, for this reason.
    #[error("parameter `{0}`: {1}")]
    Bounds(String, String),
    /// A parameter that the NIC reads is no time.
    #[error("parameter `{0}` is a time and has no unit: write one, as in `{0}: 24 = 4 us`")]
    NoTime(&'static str),
    /// A deadline is not a time or a count.
    #[error("`{0}` is a deadline and has not 24 bits")]
    Due(String),
}

/// Returns the largest value of `bits` bits.
pub(crate) const fn mask(bits: u8) -> u64 {
    if bits == 0 || bits > 64 { 0 } else { u64::MAX >> (64 - bits) }
}

fn check_names<'a>(fields: impl Iterator<Item = (&'a Text, u8)> + Clone) -> Result<(), DescriptionError> {
    const { assert!(MULTIPLY_BITS_MAX <= 64) };
    for (at, (name, bits)) in fields.clone().enumerate() {
        if !is_name(name) || name.len() > 32 || fields.clone().take(at).any(|(other, _)| other == name) {
            return Err(DescriptionError::Name(name.chars().take(40).collect()));
        }
        if !(1..=64).contains(&bits) {
            return Err(DescriptionError::Width(name.to_string(), bits));
        }
    }
    Ok(())
}

/// State and parameters of a program: of a transport program, or of a control law.
pub trait Fields {
    /// Returns the fields of the state, in the order of the state block.
    fn state(&self) -> &[StateField];

    /// Returns the parameters.
    fn parameters(&self) -> &[Parameter];

    /// Checks names, widths, bounds and initial values of a program called `name`.
    ///
    /// # Errors
    /// When one of them is invalid.
    fn check_fields(&self, name: &str, summary: &str) -> Result<(), DescriptionError> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = name.bytes().next().is_some_and(|first| first.is_ascii_lowercase());
        if !begins || name.len() > 32 || !name.bytes().all(letter) {
            return Err(DescriptionError::ProgramName);
        }
        let texts = self.parameters().iter().map(|parameter| parameter.help.as_ref());
        if texts.chain([summary]).any(|text| text.chars().count() > 200 || text.chars().any(char::is_control)) {
            return Err(DescriptionError::LongText);
        }
        if self.parameters().len() > PARAMETERS_MAX {
            return Err(DescriptionError::ManyParameters(self.parameters().len()));
        }
        check_names(self.parameters().iter().map(|parameter| (&parameter.name, parameter.bits)))?;
        check_names(self.state().iter().map(|field| (&field.name, field.bits)))?;
        if self.state_bytes() > STATE_BYTES_MAX {
            return Err(DescriptionError::LargeState(self.state_bytes()));
        }
        for parameter in self.parameters() {
            if let Some(fault) = parameter.fault() {
                return Err(DescriptionError::Bounds(parameter.name.to_string(), fault));
            }
        }
        for field in self.state() {
            self.check_initial(&field.name, &field.initial, field.bits)?;
            if field.due != Due::No && field.bits != 24 {
                return Err(DescriptionError::Due(field.name.to_string()));
            }
        }
        Ok(())
    }

    /// Checks that the initial value of the field `name` fits into `bits` bits.
    ///
    /// # Errors
    /// When it is wider, or names no parameter that fits.
    fn check_initial(&self, name: &str, initial: &Initial, bits: u8) -> Result<(), DescriptionError> {
        let fault = match initial {
            Initial::Constant(value) if *value <= mask(bits) => return Ok(()),
            Initial::Constant(value) => format!("is {value}, which does not fit into {bits} bits"),
            Initial::Parameter(parameter) => {
                let parameter = truncated(parameter);
                match self.parameters().iter().find(|known| known.name == parameter) {
                    Some(known) if known.word(known.max) <= mask(bits) => return Ok(()),
                    Some(known) => format!(
                        "is the parameter `{parameter}`, whose maximum, {}, does not fit into {bits} bits",
                        known.show(known.max)
                    ),
                    None => format!("is the parameter `{parameter}`, which does not exist"),
                }
            }
        };
        Err(DescriptionError::Initial(name.to_owned(), fault))
    }

    /// Returns the number of bits of a flow's state.
    fn state_bits(&self) -> u32 {
        self.state().iter().map(|field| u32::from(field.bits)).sum()
    }

    /// Returns the size of a flow's state block in bytes: each field has 1, 2, 4 or 8.
    fn state_bytes(&self) -> usize {
        self.state().iter().map(StateField::bytes).sum()
    }

    /// Returns the number that `initial` stands for, given the values of all parameters.
    fn initial(&self, initial: &Initial, parameters: &[u64]) -> u64 {
        match initial {
            Initial::Constant(value) => *value,
            Initial::Parameter(name) => {
                let position = self.parameters().iter().position(|parameter| parameter.name == *name);
                position.and_then(|position| parameters.get(position)).copied().unwrap_or(0)
            }
        }
    }

    /// Returns the state block of a new flow.
    fn initial_state(&self, parameters: &[u64]) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.state_bytes());
        for field in self.state() {
            let value = self.initial(&field.initial, parameters) & mask(field.bits);
            block.extend(&value.to_le_bytes()[..field.bytes()]);
        }
        block
    }

    /// Returns the default values of the parameters, as words.
    fn defaults(&self) -> Vec<u64> {
        self.parameters().iter().map(|parameter| parameter.word(parameter.default)).collect()
    }

    /// Returns the fields of a state block as words.
    fn state_words<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        let mut at = 0;
        self.state().iter().map(move |field| {
            let (bytes, rest) = (field.bytes(), &block[at..]);
            at += bytes;
            let word = match bytes {
                1 => rest[0].into(),
                2 => u16::from_le_bytes([rest[0], rest[1]]).into(),
                4 => u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]).into(),
                _ => rest.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)),
            };
            word & mask(field.bits)
        })
    }

    /// Stores words into the fields of a state block.
    fn store_state(&self, words: &[u64], block: &mut [u8]) {
        let mut at = 0;
        for (field, word) in self.state().iter().zip(words) {
            let (bytes, word) = (field.bytes(), word & mask(field.bits));
            let rest = &mut block[at..at + bytes];
            match rest {
                [one] => *one = word as u8,
                [one, two] => [*one, *two] = (word as u16).to_le_bytes(),
                _ => rest.copy_from_slice(&word.to_le_bytes()[..bytes]),
            }
            at += bytes;
        }
    }

    /// Returns the position of a field, given by its number, in a state block, and its bytes.
    ///
    /// # Panics
    /// When there is no such field.
    fn place(&self, field: usize) -> (usize, usize) {
        (self.state()[..field].iter().map(StateField::bytes).sum(), self.state()[field].bytes())
    }

    /// Returns the positions in a state block of the fields that are deadlines of kind `due`.
    fn deadlines(&self, due: Due) -> Vec<usize> {
        let fields = (0..self.state().len()).filter(|&field| self.state()[field].due == due);
        fields.map(|field| self.place(field).0).collect()
    }
}
