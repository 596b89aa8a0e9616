//! Random events for programs: plausible histories of a flow, and invalid events.
//!
//! They drive the comparison of native code, interpreter and circuits, and the check that a loaded program keeps the
//! contract. A history is that of a window whose segments are acknowledged, lost and acknowledged out of order, from
//! near the wrap of ids on; in an invalid event, some fields have extreme values, or those of other fields.

use rnic_base::{RandomStream, RandomStreams};

use crate::bundle::Bundle;
use crate::fields::{Fields, Parameter, mask};
use crate::graph::{Kind, Port};
use crate::interface::{Actions, Id, Incoming, Periodic, Rate, Ticks};
use crate::value::{MAP_WORDS, Map, Offset, U};

/// Maximum window of a generated history, in segments.
const WINDOW: u64 = 128;

/// A generator of events for one flow.
#[derive(Debug)]
pub struct Stimuli {
    rng: RandomStream,
    start: u64,
    /// Number of segments in flight.
    outstanding: u64,
    acked: u128,
    marked: u128,
    total_sent: u64,
    now: u64,
    /// Values of the parameters; numbers in invalid events are drawn near them.
    parameters: Vec<u64>,
    /// Share of invalid events, in 1/256.
    invalid: u64,
}

impl Stimuli {
    /// Creates a generator whose events depend on `seed` alone. One event in eight is invalid.
    pub fn new(seed: u64) -> Self {
        Self::with_invalid(seed, 32)
    }

    /// Creates a generator of which `invalid` in 256 events are invalid.
    pub fn with_invalid(seed: u64, invalid: u64) -> Self {
        let mut rng = RandomStreams::new(seed).stream("stimuli");
        let start = 0xFF_FF00 + rng.below(0x200);
        Self {
            rng,
            start,
            outstanding: 0,
            acked: 0,
            marked: 0,
            total_sent: start,
            now: 0,
            parameters: Vec::new(),
            invalid,
        }
    }

    /// Returns values for the parameters: often the defaults, otherwise random values within their bounds.
    pub fn parameters(&mut self, parameters: &[Parameter]) -> Vec<u64> {
        let usual = self.rng.below(2) == 0;
        let mut draw = |parameter: &Parameter| match self.rng.below(4) {
            _ if usual => parameter.word(parameter.default),
            0 => parameter.word(parameter.min),
            1 => parameter.word(parameter.max),
            _ => parameter.word(parameter.min + self.rng.below(parameter.max - parameter.min + 1)),
        };
        self.parameters = parameters.iter().map(&mut draw).collect();
        self.parameters.clone()
    }

    /// Returns a state block with any contents.
    pub fn state(&mut self, program: &impl Fields) -> Vec<u8> {
        let mut block = Vec::with_capacity(program.state_bytes());
        let mut others = self.parameters.clone();
        others.extend([self.start, self.start + self.outstanding, self.now]);
        for field in program.state() {
            let value = self.number(u32::from(field.bits), &others);
            block.extend(&value.to_le_bytes()[..crate::record::stored_bytes(u32::from(field.bits))]);
        }
        block
    }

    /// Returns any words for these ports, of which none is a map.
    pub fn words(&mut self, ports: &[Port]) -> Vec<u64> {
        let others = self.parameters.clone();
        let mut word = |port: &Port| match port.kind {
            Kind::Bits(bits) => self.number(u32::from(bits), &others),
            Kind::Map => 0,
        };
        ports.iter().map(&mut word).collect()
    }

    /// Returns any settings of a flow, often close to a parameter.
    pub fn actions(&mut self) -> Actions {
        let others = self.parameters.clone();
        let [window, rate, timer] = [9, 23, 24].map(|bits| self.number(bits, &others));
        Actions { window: Offset::new(window), rate: Rate::new(rate), timer: Ticks::new(timer), ..Actions::default() }
    }

    /// Returns the next packet.
    pub fn incoming(&mut self) -> Incoming {
        self.pass_time();
        let old_start = self.start;
        let kind = self.rng.below(16);
        let (mut sack, mut sack_new, mut newly) = (0, false, 0);
        let sacked = kind >= 6 && self.outstanding > 1;
        if kind < 6 {
            newly = self.advance();
        } else if sacked {
            sack = 1 + self.rng.below(self.outstanding - 1);
            sack_new = self.acked >> sack & 1 == 0;
            newly = u64::from(sack_new);
            self.acked |= 1 << sack;
            self.marked &= !(1 << sack);
            sack += self.start;
        }
        let incoming = Incoming {
            ack: kind < 11,
            nack: kind >= 8,
            trimmed: kind == 7 || kind == 15,
            cnp: self.rng.below(8) == 0,
            sacked,
            sack_new,
            cum: Id::new(self.start),
            sack: Id::new(sack),
            start: Id::new(self.start),
            old_start: Id::new(old_start),
            next: Id::new(self.start + self.outstanding),
            total_sent: Id::new(self.total_sent),
            now: Ticks::new(self.now),
            newly: Offset::new(newly),
            times_sent: U::new(self.rng.below(4)),
            acked: Map::from_u128(self.acked),
            marked: Map::from_u128(self.marked),
        };
        self.distort(incoming)
    }

    /// Returns the next visit.
    pub fn periodic(&mut self) -> Periodic {
        self.pass_time();
        let visit = Periodic {
            expired: self.rng.below(3) == 0,
            start: Id::new(self.start),
            next: Id::new(self.start + self.outstanding),
            total_sent: Id::new(self.total_sent),
            now: Ticks::new(self.now),
            acked: Map::from_u128(self.acked),
            marked: Map::from_u128(self.marked),
        };
        self.distort(visit)
    }

    /// Applies the outputs of a program, so that later events contain the marks.
    pub fn apply(&mut self, actions: &Actions) {
        let (from, to) = (actions.from - Id::new(self.start), actions.to - Id::new(self.start));
        if actions.mark && from < to && to <= self.outstanding {
            let range = (u128::MAX >> (128 - (to - from).get())) << from.get();
            self.marked |= range & !self.acked;
        }
    }

    /// Sends some new and some marked segments, and advances the time.
    fn pass_time(&mut self) {
        self.now += if self.rng.below(16) == 0 { self.rng.below(1 << 23) } else { self.rng.below(64) };
        let new = self.rng.below(8).min(WINDOW - self.outstanding);
        self.outstanding += new;
        self.total_sent += new;
        while self.marked != 0 && self.rng.below(4) != 0 {
            self.marked &= self.marked - 1;
            self.total_sent += 1;
        }
    }

    /// Acknowledges cumulatively, usually a few segments, and returns how many of them had not been acknowledged.
    fn advance(&mut self) -> u64 {
        let most = if self.rng.below(16) == 0 { self.outstanding } else { self.outstanding.min(4) };
        let least = if self.rng.below(4) == 0 { 0 } else { 1 };
        let mut count = least.min(most) + self.rng.below(most.saturating_sub(least) + 1);
        count = count.min(self.outstanding);
        let passed = if count == 0 { 0 } else { u128::MAX >> (128 - count) };
        let newly = count - u64::from((self.acked & passed).count_ones());
        // A segment that has arrived is acknowledged with those before it.
        let shift = |map: u128, by: u64| map.checked_shr(by as u32).unwrap_or(0);
        let run = u64::from(shift(self.acked, count).trailing_ones());
        let total = (count + if count == 0 { 0 } else { run }).min(self.outstanding);
        self.acked = shift(self.acked, total);
        self.marked = shift(self.marked, total);
        self.start += total;
        self.outstanding -= total;
        newly
    }

    /// Replaces some fields of an event with random values, if this event is to be invalid.
    fn distort<E: Bundle>(&mut self, event: E) -> E {
        if self.rng.below(256) >= self.invalid {
            return event;
        }
        let mut words = vec![0; E::WORDS];
        event.write_words(&mut words);
        let mut others = words.clone();
        others.extend(&self.parameters);
        let mut at = 0;
        for field in E::FIELDS {
            let length = if field.bits() == 0 { MAP_WORDS } else { 1 };
            if self.rng.below(3) == 0 {
                let bits = if field.bits() == 0 { 64 } else { field.bits() };
                for word in &mut words[at..(at + length).min(at + 2)] {
                    *word = self.number(bits, &others);
                }
            }
            at += length;
        }
        E::read_words(&words)
    }

    /// Returns a random number of `bits` bits: extreme, near one of `others`, its negative or its inverse, or uniform.
    fn number(&mut self, bits: u32, others: &[u64]) -> u64 {
        let mask = mask(bits as u8);
        let value = match self.rng.below(8) {
            0 => 0,
            1 => mask,
            2 => 1 << self.rng.below(u64::from(bits)),
            3 => self.rng.below(4),
            4 | 5 if !others.is_empty() => {
                let other = others[self.rng.below(others.len() as u64) as usize];
                let base = match self.rng.below(4) {
                    0 | 1 => other,
                    2 => other.wrapping_neg(),
                    _ => other ^ 1 << (bits - 1),
                };
                base.wrapping_add(self.rng.below(5)).wrapping_sub(2)
            }
            _ => self.rng.bits(),
        };
        value & mask
    }
}
