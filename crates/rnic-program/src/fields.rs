//! State and parameters of a program, as files, registries and reports describe them.

use std::borrow::Cow;

use crate::graph::is_name;
use crate::value::MULTIPLY_BITS_MAX;

/// Text of a description: a literal of a program in Rust, or a text of a program file.
pub type Text = Cow<'static, str>;

/// Largest state of a program, in bytes of its block: the rest of what the engine stores for a policy holds the
/// settings of the flow.
pub const STATE_BYTES_MAX: usize = 48;

/// Largest value of a parameter, so that its conversion cannot overflow.
const VALUE_MAX: u64 = 1 << 50;

/// Most parameters of a program: what a policy may have.
pub const PARAMETERS_MAX: usize = 17;

/// An initial value.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Initial {
    /// This number.
    Constant(u64),
    /// The value of the parameter of this name.
    Parameter(Text),
}

/// When the periodic function has work that depends on a field of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Due {
    /// Never.
    #[default]
    No,
    /// From the time in the field on; zero stands for no time.
    Time,
    /// Once `total_sent` has reached the field.
    Sent,
}

/// A field of a program's state.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateField {
    /// Name.
    pub name: Text,
    /// Width.
    pub bits: u8,
    /// Value for a new flow.
    pub initial: Initial,
    /// Deadlines of the periodic function.
    pub due: Due,
}

/// Unit of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// None.
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

/// A parameter: constant while a flow exists; an input port of a circuit.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Name.
    pub name: Text,
    /// One line: effect, and source of the default.
    pub help: Text,
    /// Width.
    pub bits: u8,
    /// Unit of the following values, which a program gets as words.
    pub unit: Unit,
    /// Value when none is set.
    pub default: u64,
    /// Smallest legal value.
    pub min: u64,
    /// Largest legal value.
    pub max: u64,
}

impl Parameter {
    /// Returns the word that a program gets for `value`: at most the largest one of its width.
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
}

/// A fault of a description.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The name is not one.
    #[error("the program's name has other characters than a-z, 0-9 and -, begins with another than a-z, or exceeds 32")]
    ProgramName,
    /// A text is too long or has control characters.
    #[error("the summary or a help text is longer than 200 characters, or has control characters")]
    LongText,
    /// A field's name is not one, or occurs twice.
    #[error("`{0}` is not a name, or occurs twice")]
    Name(String),
    /// A width is not possible.
    #[error("`{0}` has {1} bits, 1 to 64 are possible")]
    Width(String, u8),
    /// The state is too large.
    #[error("the state has {0} bytes, at most {max} are possible", max = STATE_BYTES_MAX)]
    LargeState(usize),
    /// Too many parameters.
    #[error("{0} parameters, at most {max} are possible", max = PARAMETERS_MAX)]
    ManyParameters(usize),
    /// An initial value is not possible.
    #[error("the initial value of `{0}` exceeds its width, or names no parameter of at most its width")]
    Initial(String),
    /// The bounds of a parameter are not possible.
    #[error("parameter `{0}`: not min <= default <= max, or max exceeds the width")]
    Bounds(String),
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

/// The state and the parameters of a program: of a transport program, or of a law.
pub trait Fields {
    /// Returns the fields of the state, in the order of the state block.
    fn state(&self) -> &[StateField];

    /// Returns the parameters.
    fn parameters(&self) -> &[Parameter];

    /// Checks names, widths, bounds and initial values, of a program with these texts.
    ///
    /// # Errors
    /// When one of them is not possible.
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
            let Parameter { min, default, max, unit, .. } = parameter;
            let fits =
                parameter.word(*max) < mask(parameter.bits) || (*unit == Unit::Count && *max <= mask(parameter.bits));
            if min > default || default > max || *max > VALUE_MAX || !fits {
                return Err(DescriptionError::Bounds(parameter.name.to_string()));
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

    /// Checks that the initial value of `name` has at most `bits` bits.
    ///
    /// # Errors
    /// When it is wider, or names no parameter of at most that width.
    fn check_initial(&self, name: &str, initial: &Initial, bits: u8) -> Result<(), DescriptionError> {
        let fits = match initial {
            Initial::Constant(value) => *value <= mask(bits),
            Initial::Parameter(parameter) => {
                self.parameters().iter().any(|known| known.name == *parameter && known.word(known.max) <= mask(bits))
            }
        };
        if fits { Ok(()) } else { Err(DescriptionError::Initial(name.to_owned())) }
    }

    /// Returns the bits of a flow's state.
    fn state_bits(&self) -> u32 {
        self.state().iter().map(|field| u32::from(field.bits)).sum()
    }

    /// Returns the bytes of a flow's state block: each field has 1, 2, 4 or 8.
    fn state_bytes(&self) -> usize {
        self.state().iter().map(|field| crate::record::stored_bytes(u32::from(field.bits))).sum()
    }

    /// Returns the value of `initial`, given the values of the parameters in their order.
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
            block.extend(&value.to_le_bytes()[..crate::record::stored_bytes(u32::from(field.bits))]);
        }
        block
    }

    /// Returns the words of the defaults of the parameters.
    fn defaults(&self) -> Vec<u64> {
        self.parameters().iter().map(|parameter| parameter.word(parameter.default)).collect()
    }

    /// Returns the fields of a state block as words.
    fn state_words<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        let mut at = 0;
        self.state().iter().map(move |field| {
            let bytes = crate::record::stored_bytes(u32::from(field.bits));
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&block[at..at + bytes]);
            at += bytes;
            u64::from_le_bytes(word) & mask(field.bits)
        })
    }

    /// Stores words into the fields of a state block.
    fn store_state(&self, words: &[u64], block: &mut [u8]) {
        let mut at = 0;
        for (field, word) in self.state().iter().zip(words) {
            let bytes = crate::record::stored_bytes(u32::from(field.bits));
            block[at..at + bytes].copy_from_slice(&(word & mask(field.bits)).to_le_bytes()[..bytes]);
            at += bytes;
        }
    }

    /// Returns the positions in a state block of the fields that are deadlines of kind `due`.
    fn deadlines(&self, due: Due) -> Vec<usize> {
        let mut at = 0;
        let mut positions = Vec::new();
        for field in self.state() {
            if field.due == due {
                positions.push(at);
            }
            at += crate::record::stored_bytes(u32::from(field.bits));
        }
        positions
    }
}
