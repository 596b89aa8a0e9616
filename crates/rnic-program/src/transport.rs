//! Transport programs: two functions, their state and parameters, and how a flow starts.

use std::borrow::Cow;

use crate::bundle::Bundle;
use crate::graph::{Graph, is_name};
use crate::interface::{Actions, Incoming, Periodic, Rate, Ticks};
use crate::record::{Lowering, RecordError, Recorder, Value};
use crate::value::{MULTIPLY_BITS_MAX, Offset};

/// Text of a description: a literal of a program in Rust, or a text of a program file.
pub type Text = Cow<'static, str>;

/// Largest state of a program, in bytes of its block: the rest of what the engine stores for a policy holds the
/// settings of the flow.
pub const STATE_BYTES_MAX: usize = 48;

/// Largest value of a parameter, so that its conversion cannot overflow.
const VALUE_MAX: u64 = 1 << 50;

/// Most parameters of a program: what a policy may have.
pub const PARAMETERS_MAX: usize = 17;

/// Limit that decides when a flow sends (Tonic section 3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// The window alone.
    Window,
    /// A rate: credit grows with time.
    Rate,
    /// Tokens granted by the receiver.
    Token,
}

/// How the receiver treats packets that arrive out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Receiver {
    /// Places and reports them.
    #[default]
    Places,
    /// Drops them and asks for the first missing one, as RoCEv2 does.
    Drops,
}

/// An initial value.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Initial {
    /// This number.
    Constant(u64),
    /// The value of the parameter of this name.
    Parameter(Text),
}

/// Settings of a new flow. A rate of zero stands for the rate of the link.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Segments of the window.
    pub window: Initial,
    /// Sending rate.
    pub rate: Initial,
    /// Duration of the retransmission timer, in ticks.
    pub timer: Initial,
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
    /// Nanoseconds; ticks of 160 ns in the program.
    Time,
    /// Bits per second; bytes per 65,536 cycles in the program.
    Rate,
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
        };
        word.min(mask(self.bits))
    }
}

/// A program as files, registries and reports describe it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Name: lower case, digits and hyphens.
    pub name: Text,
    /// One line, with the source.
    pub summary: Text,
    /// Credit scheme.
    pub scheme: Scheme,
    /// Receiver that it needs.
    pub receiver: Receiver,
    /// Settings of a new flow.
    pub start: Start,
    /// State of a flow.
    pub state: Vec<StateField>,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Lines of its source without blank ones and comments; zero when unknown.
    pub lines: u32,
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

impl Description {
    /// Checks all of it.
    ///
    /// # Errors
    /// When a name, width, bound or initial value is not possible.
    pub fn check(&self) -> Result<(), DescriptionError> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = self.name.bytes().next().is_some_and(|first| first.is_ascii_lowercase());
        if !begins || self.name.len() > 32 || !self.name.bytes().all(letter) {
            return Err(DescriptionError::ProgramName);
        }
        let texts = core::iter::once(&self.summary).chain(self.parameters.iter().map(|parameter| &parameter.help));
        if texts.into_iter().any(|text| text.chars().count() > 200 || text.chars().any(char::is_control)) {
            return Err(DescriptionError::LongText);
        }
        if self.parameters.len() > PARAMETERS_MAX {
            return Err(DescriptionError::ManyParameters(self.parameters.len()));
        }
        check_fields(self.parameters.iter().map(|parameter| (&parameter.name, parameter.bits)))?;
        check_fields(self.state.iter().map(|field| (&field.name, field.bits)))?;
        if self.state_bytes() > STATE_BYTES_MAX {
            return Err(DescriptionError::LargeState(self.state_bytes()));
        }
        for parameter in &self.parameters {
            let Parameter { min, default, max, unit, .. } = parameter;
            let fits =
                parameter.word(*max) < mask(parameter.bits) || (*unit == Unit::Count && *max <= mask(parameter.bits));
            if min > default || default > max || *max > VALUE_MAX || !fits {
                return Err(DescriptionError::Bounds(parameter.name.to_string()));
            }
        }
        for field in &self.state {
            self.check_initial(&field.name, &field.initial, field.bits)?;
            if field.due != Due::No && field.bits != 24 {
                return Err(DescriptionError::Due(field.name.to_string()));
            }
        }
        let Start { window, rate, timer } = &self.start;
        self.check_initial("window", window, 9)?;
        self.check_initial("rate", rate, 23)?;
        self.check_initial("timer", timer, 24)
    }

    fn check_initial(&self, name: &str, initial: &Initial, bits: u8) -> Result<(), DescriptionError> {
        let fits = match initial {
            Initial::Constant(value) => *value <= mask(bits),
            Initial::Parameter(parameter) => {
                self.parameters.iter().any(|known| known.name == *parameter && known.word(known.max) <= mask(bits))
            }
        };
        if fits { Ok(()) } else { Err(DescriptionError::Initial(name.to_owned())) }
    }

    /// Returns the bits of a flow's state.
    pub fn state_bits(&self) -> u32 {
        self.state.iter().map(|field| u32::from(field.bits)).sum()
    }

    /// Returns the bytes of a flow's state block: each field has 1, 2, 4 or 8.
    pub fn state_bytes(&self) -> usize {
        self.state.iter().map(|field| crate::record::stored_bytes(u32::from(field.bits))).sum()
    }

    /// Returns the value of `initial`, given the values of the parameters in their order.
    pub fn initial(&self, initial: &Initial, parameters: &[u64]) -> u64 {
        match initial {
            Initial::Constant(value) => *value,
            Initial::Parameter(name) => {
                let position = self.parameters.iter().position(|parameter| parameter.name == *name);
                position.and_then(|position| parameters.get(position)).copied().unwrap_or(0)
            }
        }
    }

    /// Returns the state block of a new flow.
    pub fn initial_state(&self, parameters: &[u64]) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.state_bytes());
        for field in &self.state {
            let value = self.initial(&field.initial, parameters) & mask(field.bits);
            block.extend(&value.to_le_bytes()[..crate::record::stored_bytes(u32::from(field.bits))]);
        }
        block
    }

    /// Returns the actions of a new flow: its window, rate and timer.
    pub fn initial_actions(&self, parameters: &[u64]) -> Actions {
        Actions {
            window: Offset::new(self.initial(&self.start.window, parameters)),
            rate: Rate::new(self.initial(&self.start.rate, parameters)),
            timer: Ticks::new(self.initial(&self.start.timer, parameters)),
            ..Actions::default()
        }
    }

    /// Returns the words of the defaults of the parameters.
    pub fn defaults(&self) -> Vec<u64> {
        self.parameters.iter().map(|parameter| parameter.word(parameter.default)).collect()
    }

    /// Returns the fields of a state block as words.
    pub fn state_words<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        let mut at = 0;
        self.state.iter().map(move |field| {
            let bytes = crate::record::stored_bytes(u32::from(field.bits));
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&block[at..at + bytes]);
            at += bytes;
            u64::from_le_bytes(word) & mask(field.bits)
        })
    }

    /// Stores words into the fields of a state block.
    pub fn store_state(&self, words: &[u64], block: &mut [u8]) {
        let mut at = 0;
        for (field, word) in self.state.iter().zip(words) {
            let bytes = crate::record::stored_bytes(u32::from(field.bits));
            block[at..at + bytes].copy_from_slice(&(word & mask(field.bits)).to_le_bytes()[..bytes]);
            at += bytes;
        }
    }

    /// Returns the positions in a state block of the fields that are deadlines of kind `due`.
    pub fn deadlines(&self, due: Due) -> Vec<usize> {
        let mut at = 0;
        let mut positions = Vec::new();
        for field in &self.state {
            if field.due == due {
                positions.push(at);
            }
            at += crate::record::stored_bytes(u32::from(field.bits));
        }
        positions
    }
}

/// Returns the largest value of `bits` bits.
pub(crate) const fn mask(bits: u8) -> u64 {
    if bits == 0 || bits > 64 { 0 } else { u64::MAX >> (64 - bits) }
}

fn check_fields<'a>(fields: impl Iterator<Item = (&'a Text, u8)> + Clone) -> Result<(), DescriptionError> {
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

/// The graphs of both functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graphs {
    /// The function for packets.
    pub incoming: Graph,
    /// The function for visits.
    pub periodic: Graph,
}

/// A transport program, native or loaded. The state block has [`Description::state_bytes`] bytes at least, and there
/// are as many parameters as described; implementations may panic otherwise.
pub trait Transport: Send + Sync {
    /// Returns the description.
    fn description(&self) -> Description;

    /// Reacts to a packet.
    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions);

    /// Reacts to a visit.
    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions);

    /// Returns the graphs of both functions.
    ///
    /// # Errors
    /// When a function has no graph: a construct without gates, or one that is too long or too deep.
    fn graphs(&self, lowering: Lowering) -> Result<Graphs, RecordError>;

    /// Returns which costly inputs a function reads: the others need not be prepared.
    ///
    /// # Errors
    /// As [`Transport::graphs`].
    fn reads(&self) -> Result<Reads, RecordError> {
        let Graphs { incoming, periodic } = self.graphs(Lowering::Joins)?;
        let reads = |name| incoming.reads(name) || periodic.reads(name);
        Ok(Reads { acked: reads("in_acked"), marked: reads("in_marked"), newly: reads("in_newly") })
    }
}

/// Inputs of a program that cost time to prepare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    /// The map of acknowledged segments.
    pub acked: bool,
    /// The map of marked segments.
    pub marked: bool,
    /// The number of newly acknowledged segments.
    pub newly: bool,
}

/// The recorded form of a function of a transport: of its event, parameters, state and actions.
pub type Recorded<E, P, S> =
    fn(&Recorder, &<E as Value>::Form, &<P as Value>::Form, &mut <S as Value>::Form, &mut <Actions as Value>::Form);

type ActionForm = <Actions as Value>::Form;

/// Records one function of a transport as a graph. Inputs are named `in_`, `cfg_` (parameters), `state_` and `cur_`
/// (window, rate and timer as they are), outputs `next_` (state) and `act_`.
///
/// # Errors
/// When the function is not a graph.
pub fn record<E: Bundle, P: Bundle, S: Bundle>(
    lowering: Lowering,
    function: Recorded<E, P, S>,
) -> Result<Graph, RecordError> {
    let g = Recorder::new(lowering);
    let event = E::inputs(&g, "in");
    let parameters = P::inputs(&g, "cfg");
    let mut state = S::inputs(&g, "state");
    let current = Current::inputs(&g, "cur");
    let mut actions = ActionForm {
        mark: g.flag(false),
        from: g.u(0),
        to: g.u(0),
        window: current.window,
        rate: current.rate,
        restart: g.flag(false),
        timer: current.timer,
    };
    function(&g, &event, &parameters, &mut state, &mut actions);
    S::outputs(&g, "next", state);
    Actions::outputs(&g, "act", actions);
    g.finish()
}

crate::bundle! {
    /// The settings of a flow that actions may change.
    pub(crate) struct Current {
        /// Segments of the window.
        window: Offset,
        /// Sending rate.
        rate: Rate,
        /// Duration of the retransmission timer.
        timer: Ticks,
    }
}
