//! IRN's four modules with the state of the circuits in `rtl/irn`: 24-bit ids and ring bitmaps.
//!
//! Source: IRN (SIGCOMM'18) sections 3.1, 4.1, 5.3.3 and 6.2.1; mechanisms I-4 to I-7 and I-21 to I-25. The decisions
//! are those of the transport `irn`.
//!
//! A window has at most as many packets as its [`Ring`] has bits. Bits of packets outside of a window are zero, and so
//! is that of its first packet.

use rnic_wire::{Headers, NakCode, Packet, Syndrome};

/// Width of the transport's bitmaps, and largest number of packets in a window.
pub const WINDOW: u32 = 128;

/// Mask of an id.
pub const ID_MASK: u32 = (1 << 24) - 1;

/// Returns the number of steps from `from` to `id`.
pub const fn distance(from: u32, id: u32) -> u32 {
    id.wrapping_sub(from) & ID_MASK
}

/// Returns the id `steps` after `id`.
pub const fn later(id: u32, steps: u32) -> u32 {
    id.wrapping_add(steps) & ID_MASK
}

/// Returns whether `id` follows `other`, in serial arithmetic.
pub const fn is_after(id: u32, other: u32) -> bool {
    let steps = distance(other, id);
    steps != 0 && steps < 1 << 23
}

/// A ring bitmap of `W` bits, at most 256: a power of two. The bit of a packet is at its id modulo `W`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ring<const W: u32 = WINDOW>([u64; 4]);

impl<const W: u32> Ring<W> {
    /// Returns a map from its words, in which bits beyond the width are dropped.
    pub fn new(words: [u64; 4]) -> Self {
        let mut map = Self(words);
        map.0[(W / 64) as usize..].fill(0);
        map
    }

    /// Returns the words of the map, as many as its width needs.
    pub fn words(&self) -> &[u64] {
        &self.0[..(W / 64) as usize]
    }

    /// Returns whether the bit of packet `id` is set.
    pub const fn has(&self, id: u32) -> bool {
        self.0[(id % W / 64) as usize] >> (id % 64) & 1 == 1
    }

    /// Sets or clears the bit of packet `id`.
    pub const fn put(&mut self, id: u32, is_set: bool) {
        let word = &mut self.0[(id % W / 64) as usize];
        *word = *word & !(1 << (id % 64)) | (is_set as u64) << (id % 64);
    }
}

/// Code of a received packet in the 2-bitmap: its effect when all packets before it have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Effect {
    /// Nothing.
    None = 1,
    /// The packet ends a message.
    EndsMessage = 2,
    /// The packet ends a message and completes a receive.
    CompletesReceive = 3,
}

impl Effect {
    /// Returns the effect of `packet` at its receiver; `None` for packets other than those of Sends and Writes.
    pub fn of(packet: &Packet) -> Option<Self> {
        Some(match packet.headers {
            Headers::Send { position, .. } if position.ends() => Self::CompletesReceive,
            Headers::Write { position, immediate: Some(_), .. } if position.ends() => Self::CompletesReceive,
            Headers::Write { position, .. } if position.ends() => Self::EndsMessage,
            Headers::Send { .. } | Headers::Write { .. } => Self::None,
            _ => return None,
        })
    }
}

/// Receiver's context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveContext<const W: u32 = WINDOW> {
    /// The oldest packet that has not arrived.
    pub expected: u32,
    /// Number of messages that have arrived.
    pub msn: u32,
    /// High bits of the packets' codes.
    pub high: Ring<W>,
    /// Low bits of the packets' codes.
    pub low: Ring<W>,
}

/// Acknowledgement that a receiver sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Answer {
    /// All packets before the expected one have arrived.
    Ack = 0,
    /// So has this later packet.
    Nack = 1,
    /// A packet beyond the window was dropped.
    NackOutside = 2,
}

/// Outputs of [`ReceiveContext::receive_data`], besides the cumulative and the message sequence number, which are those
/// of the context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The acknowledgement.
    pub answer: Answer,
    /// The packet that a [`Answer::Nack`] acknowledges, otherwise zero.
    pub selective: u32,
    /// Number of receives that are complete now.
    pub completions: u32,
    /// True when the payload is to be placed.
    pub place: bool,
}

impl<const W: u32> ReceiveContext<W> {
    /// Handles the arrival of packet `psn`.
    pub fn receive_data(&mut self, psn: u32, effect: Effect) -> Received {
        let mut received = Received { answer: Answer::Ack, selective: 0, completions: 0, place: false };
        if psn == self.expected {
            received.place = true;
            self.set_code(psn, effect as u8);
            while self.code(self.expected) != 0 {
                let code = self.code(self.expected);
                self.msn = later(self.msn, u32::from(code >= Effect::EndsMessage as u8));
                received.completions += u32::from(code == Effect::CompletesReceive as u8);
                self.set_code(self.expected, 0);
                self.expected = later(self.expected, 1);
            }
        } else if is_after(psn, self.expected) {
            if distance(self.expected, psn) >= W {
                received.answer = Answer::NackOutside;
            } else if self.code(psn) == 0 {
                self.set_code(psn, effect as u8);
                received.answer = Answer::Nack;
                received.selective = psn;
                received.place = true;
            }
        }
        received
    }

    fn code(&self, psn: u32) -> u8 {
        u8::from(self.high.has(psn)) * 2 + u8::from(self.low.has(psn))
    }

    fn set_code(&mut self, psn: u32, code: u8) {
        self.high.put(psn, code & 2 != 0);
        self.low.put(psn, code & 1 != 0);
    }
}

/// Change of a sender's timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Timer {
    /// None.
    Keep = 0,
    /// The timer runs from now on, for RTO_low.
    Restart = 1,
    /// The timer stops.
    Stop = 2,
    /// The timer runs from now on, for the difference between RTO_high and RTO_low.
    Extend = 3,
}

/// Sender's context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendContext<const W: u32 = WINDOW> {
    /// The oldest packet that is not acknowledged.
    pub una: u32,
    /// The next new packet.
    pub next: u32,
    /// Distance from `una` to the packet where the look-ahead continues.
    pub again: u32,
    /// Distance from `una` to the end of the lost packets.
    pub lost: u32,
    /// Distance from `una` to the end of the packets that were sent before the last timeout.
    pub presumed: u32,
    /// Recovery ends when `una` is after this packet.
    pub recovery: u32,
    /// True in recovery.
    pub recovering: bool,
    /// True when the timer was extended.
    pub extended: bool,
    /// True from a timeout to the next acknowledgement: the lost packets end at the highest one in `sacked`, and `lost`
    /// is not valid.
    pub timed_out: bool,
    /// Packets that are acknowledged selectively.
    pub sacked: Ring<W>,
}

/// An acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledgement {
    /// True when it reports that a packet is missing.
    pub is_nack: bool,
    /// All packets before this one have arrived.
    pub cumulative: u32,
    /// So has this one, if it is a NACK.
    pub selective: Option<u32>,
}

impl Acknowledgement {
    /// Returns the acknowledgement in `packet` and its message sequence number; `None` for other packets, and for NAKs
    /// that report something else than a missing packet.
    pub fn of(packet: &Packet) -> Option<(Self, u32)> {
        let Headers::Ack { aeth, sack } = packet.headers else { return None };
        let is_nack = match aeth.syndrome {
            Syndrome::Ack { .. } => false,
            Syndrome::Nak(NakCode::PsnSequenceError) => true,
            _ => return None,
        };
        let cumulative = if is_nack { packet.psn.value() } else { later(packet.psn.value(), 1) };
        let selective = sack.map(rnic_base::Psn::value);
        Some((Self { is_nack, cumulative, selective }, aeth.msn.value()))
    }
}

/// Outputs of [`SendContext::receive_ack`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// Number of packets that are acknowledged cumulatively for the first time.
    pub packets: u32,
    /// True when a packet is acknowledged selectively for the first time.
    pub is_new_selective: bool,
    /// Change of the timer.
    pub timer: Timer,
}

/// A packet that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Id of the packet.
    pub psn: u32,
    /// True when it has been sent before.
    pub is_again: bool,
    /// Change of the timer.
    pub timer: Timer,
}

/// Outputs of [`SendContext::timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expired {
    /// True when the recovery has started.
    pub acts: bool,
    /// Change of the timer.
    pub timer: Timer,
}

impl<const W: u32> SendContext<W> {
    /// Returns the context of a queue pair whose first packet is `psn`.
    pub fn new(psn: u32) -> Self {
        Self { una: psn, next: psn, ..Self::default() }
    }

    /// Returns the number of packets in flight.
    pub const fn in_flight(&self) -> u32 {
        distance(self.una, self.next)
    }

    fn is_sacked(&self, steps: u32) -> bool {
        self.sacked.has(later(self.una, steps))
    }

    /// Returns the distance of the highest packet that is acknowledged selectively, or zero.
    fn highest(&self) -> u32 {
        (0..W).rev().find(|steps| self.is_sacked(*steps)).unwrap_or(0)
    }

    /// Returns the distance of the end of the lost packets.
    fn end_of_lost(&self) -> u32 {
        if self.timed_out { self.highest().max(1) } else { self.lost }
    }

    /// Handles an opportunity to send: with `has_new`, there is a new packet, and at most `cap` packets may be in
    /// flight.
    pub fn tx_free(&mut self, has_new: bool, cap: u32) -> Option<Sent> {
        let mut lost = self.again..self.end_of_lost();
        if let Some(steps) = lost.find(|steps| !self.is_sacked(*steps)).filter(|_| self.recovering) {
            self.again = steps + 1;
            return Some(Sent { psn: later(self.una, steps), is_again: true, timer: Timer::Keep });
        }
        if !has_new || self.in_flight() >= cap {
            return None;
        }
        let timer = if self.in_flight() == 0 { Timer::Restart } else { Timer::Keep };
        let psn = self.next;
        self.next = later(psn, 1);
        Some(Sent { psn, is_again: false, timer })
    }

    /// Handles an acknowledgement.
    pub fn receive_ack(&mut self, ack: Acknowledgement) -> Acknowledged {
        let mut acknowledged = Acknowledged { packets: 0, is_new_selective: false, timer: Timer::Keep };
        let offset = distance(self.una, ack.cumulative);
        let is_fresh = offset <= self.in_flight();
        let is_stale = is_after(self.una, ack.cumulative);
        let has_effect = if ack.is_nack { is_fresh || is_stale } else { is_fresh && offset > 0 };
        if !has_effect {
            return acknowledged;
        }
        self.lost = self.end_of_lost();
        self.timed_out = false;
        if is_fresh && offset > 0 {
            acknowledged.packets = self.advance(offset);
            acknowledged.timer = if self.in_flight() == 0 { Timer::Stop } else { Timer::Restart };
        }
        if let Some(selective) = ack.selective.filter(|_| ack.is_nack) {
            let steps = distance(self.una, selective);
            if steps > 0 && steps < self.in_flight() {
                acknowledged.is_new_selective = !self.is_sacked(steps);
                self.sacked.put(selective, true);
            }
        }
        if ack.is_nack && self.una == ack.cumulative && self.in_flight() > 0 {
            if !self.recovering {
                self.recovering = true;
                (self.again, self.lost, self.presumed) = (0, 0, 0);
            }
            self.find_lost();
        }
        acknowledged
    }

    /// Moves `una` by `steps`, and past directly following packets that are acknowledged selectively; returns by how
    /// many packets in total.
    fn advance(&mut self, steps: u32) -> u32 {
        let mut packets = 0;
        while packets < steps || self.is_sacked(0) {
            self.sacked.put(self.una, false);
            self.una = later(self.una, 1);
            packets += 1;
        }
        for distance in [&mut self.again, &mut self.lost, &mut self.presumed] {
            *distance = distance.saturating_sub(packets);
        }
        self.extended = false;
        if self.recovering {
            if is_after(self.una, self.recovery) || self.in_flight() == 0 {
                self.recovering = false;
            } else if self.highest() > 0 || self.presumed > 0 {
                self.find_lost();
            }
        }
        packets
    }

    /// Extends the lost packets up to the highest one that is acknowledged selectively, and at least to that at `una`.
    fn find_lost(&mut self) {
        let end = self.highest().max(1);
        if (self.lost..end).any(|steps| !self.is_sacked(steps)) {
            self.recovery = later(self.next, ID_MASK);
        }
        self.lost = self.lost.max(end);
    }

    /// Handles the expiry of the timer; RTO_low holds with fewer than `low_packets` in flight.
    pub fn timeout(&mut self, low_packets: u32) -> Expired {
        let in_flight = self.in_flight();
        if in_flight == 0 {
            return Expired { acts: false, timer: Timer::Keep };
        }
        if in_flight >= low_packets && !self.extended {
            self.extended = true;
            return Expired { acts: false, timer: Timer::Extend };
        }
        (self.recovering, self.timed_out, self.extended) = (true, true, false);
        (self.again, self.lost, self.presumed) = (0, 1, in_flight);
        self.recovery = later(self.next, ID_MASK);
        Expired { acts: true, timer: Timer::Restart }
    }
}
