//! Packed structures of the circuits, as words of a record.

use super::{Ack, Context, Event, Lane, Lost, Retransmission, Timer, Unit};

/// Words of the widest structure.
const WORDS: usize = 4;

/// Bits of a packed structure, at most 256: the first field is in the highest bits.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pack {
    /// Lowest bits first.
    bits: [u64; WORDS],
    /// Bits that are compared.
    known: [u64; WORDS],
    width: u32,
}

impl Pack {
    /// Appends a field of `width` bits.
    #[must_use]
    pub fn field(self, value: u64, width: u32) -> Self {
        self.field_if(true, value, width)
    }

    /// Appends a field of `width` bits, which are not compared unless `is_known`.
    #[must_use]
    pub fn field_if(self, is_known: bool, value: u64, width: u32) -> Self {
        let mask = mask(width);
        let (mut bits, mut known) = ([0; WORDS], [0; WORDS]);
        bits[0] = value & mask[0];
        if is_known {
            known = mask;
        }
        self.followed_by(Self { bits, known, width })
    }

    /// Appends the fields of `other`.
    ///
    /// # Panics
    /// When more than 256 bits are the result.
    #[must_use]
    pub fn followed_by(self, other: Self) -> Self {
        let width = self.width + other.width;
        assert!(width <= 64 * WORDS as u32, "{width} bits are more than a structure has");
        let (mut bits, mut known) = (shifted(self.bits, other.width), shifted(self.known, other.width));
        for at in 0..WORDS {
            bits[at] |= other.bits[at];
            known[at] |= other.known[at];
        }
        Self { bits, known, width }
    }

    fn flag(self, value: bool) -> Self {
        self.field(value.into(), 1)
    }

    fn psn(self, value: u32) -> Self {
        self.field(value.into(), 24)
    }

    fn lost(self, lost: Lost) -> Self {
        self.flag(lost.overflow).field(lost.count.into(), 3)
    }

    fn lane(self, lane: &Lane) -> Self {
        self.flag(lane.open)
            .flag(lane.fallen)
            .flag(lane.slow)
            .lost(lane.lost)
            .psn(lane.high)
            .field(lane.run.into(), 10)
            .field_if(lane.slow, lane.base.into(), 24)
            .field_if(lane.slow, lane.last.into(), 24)
            .field_if(lane.slow, lane.head.into(), 7)
            .field_if(lane.slow, lane.tail.into(), 7)
    }

    /// Returns the bits in words of a record, lowest bits first.
    pub fn words(&self) -> Vec<u64> {
        self.bits[..self.words_used()].to_vec()
    }

    /// Returns whether `found`, words of a record, has the same bits where they are known.
    pub fn is_equal(&self, found: &[u64]) -> bool {
        let pairs = self.bits.iter().zip(self.known).zip(found);
        found.len() == self.words_used() && pairs.into_iter().all(|((bits, known), found)| (bits ^ found) & known == 0)
    }

    /// Returns the number of bits.
    pub const fn width(&self) -> u32 {
        self.width
    }

    const fn words_used(&self) -> usize {
        self.width.div_ceil(64) as usize
    }
}

/// Returns the lowest `width` bits.
fn mask(width: u32) -> [u64; WORDS] {
    core::array::from_fn(|at| match width.saturating_sub(64 * at as u32) {
        0 => 0,
        left @ 1..64 => (1 << left) - 1,
        64.. => u64::MAX,
    })
}

/// Returns `bits` without the highest `by`, and as many zeros below.
fn shifted(bits: [u64; WORDS], by: u32) -> [u64; WORDS] {
    let (words, by) = ((by / 64) as usize, by % 64);
    core::array::from_fn(|at| {
        let word = |below: usize| at.checked_sub(below).map_or(0, |at| bits[at]);
        let carried = if by == 0 { 0 } else { word(words + 1) >> (64 - by) };
        word(words) << by | carried
    })
}

impl From<Lost> for Pack {
    fn from(lost: Lost) -> Self {
        Self::default().lost(lost)
    }
}

impl From<&Lane> for Pack {
    fn from(lane: &Lane) -> Self {
        Self::default().lane(lane)
    }
}

impl From<&Unit> for Pack {
    fn from(unit: &Unit) -> Self {
        Self::default().lane(&unit.tx).lane(&unit.rx)
    }
}

impl From<&Context> for Pack {
    fn from(context: &Context) -> Self {
        Self::default()
            .psn(context.rcv_nxt)
            .flag(context.gap_at.is_some())
            .field_if(context.gap_at.is_some(), context.gap_at.unwrap_or(0).into(), 24)
            .flag(context.refuses_to.is_some())
            .field_if(context.refuses_to.is_some(), context.refuses_to.unwrap_or(0).into(), 24)
            .psn(context.una)
            .flag(context.recovering)
            .flag(context.acted)
            .lost(context.lost)
            .flag(context.unit.is_some())
            .field_if(context.unit.is_some(), context.unit.unwrap_or(0).into(), 5)
    }
}

impl From<&Timer> for Pack {
    fn from(timer: &Timer) -> Self {
        Self::default().flag(timer.on).field_if(timer.on, timer.extended.into(), 1).field_if(
            timer.on,
            timer.deadline.into(),
            24,
        )
    }
}

impl From<&Event> for Pack {
    fn from(event: &Event) -> Self {
        Self::default()
            .field(event.qp.into(), 10)
            .field(event.kind as u64, 4)
            .psn(event.cumulative)
            .psn(event.psn)
            .lost(event.lost)
    }
}

impl From<&Ack> for Pack {
    fn from(ack: &Ack) -> Self {
        Self::default()
            .field(ack.qp.into(), 10)
            .field(ack.say as u64, 3)
            .flag(ack.placed)
            .psn(ack.cumulative)
            .psn(ack.psn)
            .lost(ack.lost)
    }
}

impl From<&Retransmission> for Pack {
    fn from(sent: &Retransmission) -> Self {
        Self::default().field(sent.qp.into(), 10).psn(sent.psn).flag(sent.is_map).field(sent.argument.into(), 10)
    }
}
