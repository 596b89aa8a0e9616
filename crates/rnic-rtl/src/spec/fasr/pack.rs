//! Packed structures of the circuits, as words of a record.

use super::{Ack, Context, Event, Lane, Lost, Retransmission, Timer, Unit};

/// Bits of a packed structure: the first field is in the highest bits.
#[derive(Clone, Default, Debug)]
pub struct Pack {
    bits: Vec<bool>,
    known: Vec<bool>,
}

impl Pack {
    /// Appends a field of `width` bits.
    #[must_use]
    pub fn field(self, value: u64, width: u32) -> Self {
        self.field_if(true, value, width)
    }

    /// Appends a field of `width` bits, which are not compared unless `is_known`.
    #[must_use]
    pub fn field_if(mut self, is_known: bool, value: u64, width: u32) -> Self {
        self.bits.extend((0..width).rev().map(|bit| value.checked_shr(bit).unwrap_or(0) & 1 != 0));
        self.known.extend((0..width).map(|_| is_known));
        self
    }

    /// Appends the fields of `other`.
    #[must_use]
    pub fn followed_by(mut self, other: Self) -> Self {
        self.bits.extend(other.bits);
        self.known.extend(other.known);
        self
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
        words(&self.bits)
    }

    /// Returns whether `found`, words of a record, has the same bits where they are known.
    pub fn is_equal(&self, found: &[u64]) -> bool {
        let (bits, known) = (words(&self.bits), words(&self.known));
        bits.len() == found.len()
            && bits.iter().zip(known).zip(found).all(|((bits, known), found)| (bits ^ found) & known == 0)
    }

    /// Returns the number of bits.
    pub fn width(&self) -> u32 {
        self.bits.len() as u32
    }
}

fn words(bits: &[bool]) -> Vec<u64> {
    let word = |bits: &[bool]| bits.iter().rev().enumerate().map(|(at, bit)| u64::from(*bit) << at).sum();
    bits.rchunks(64).map(word).collect()
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
