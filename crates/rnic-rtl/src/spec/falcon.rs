//! Falcon's receive window and its detection of losses by time, with the state of the circuits in `rtl/falcon`.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 and 4.3; specification Rev 0.9 sections 9.2.1, 9.2.2. The decisions are
//! those of rnic-falcon's `delivery/receiver/rx_window.rs` and `delivery/sender/recover.rs`, for windows of at most 128
//! packets.

use std::collections::BTreeSet;

/// Packets from the base on that a window can record.
pub const TRACKED: u32 = 128;

/// Position of a packet relative to a window, in the order of its codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Already acknowledged.
    Acknowledged,
    /// Received, but not acknowledged.
    Received,
    /// New, within the window.
    New,
    /// New, beyond the window.
    Beyond,
    /// Beyond what can be recorded.
    Outside,
}

/// Operations on a window, in the order of their codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A packet arrives, and is kept if it is new.
    Arrive,
    /// A received packet may be released by its sender.
    Acknowledge,
    /// A packet arrives for which there are no resources.
    Refuse,
    /// An acknowledgement with bitmaps is sent.
    Report,
}

impl Operation {
    /// All operations, by code.
    pub const ALL: [Self; 4] = [Self::Arrive, Self::Acknowledge, Self::Refuse, Self::Report];
}

/// A window of a receiver: sets of packet numbers, as distances from the base.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// The oldest packet that is not acknowledged.
    pub base: u32,
    /// Packets beyond the window were dropped since the last report.
    pub dropped: bool,
    received: BTreeSet<u32>,
    acknowledged: BTreeSet<u32>,
}

impl Window {
    /// Returns an empty window.
    pub fn new(base: u32) -> Self {
        Self { base, ..Self::default() }
    }

    /// Returns the position of packet `psn` in a window of `width` packets.
    pub fn position(&self, psn: u32, width: u32) -> Position {
        let offset = psn.wrapping_sub(self.base);
        if offset >= 1 << 31 || self.acknowledged.contains(&offset) {
            return Position::Acknowledged;
        }
        match offset {
            _ if offset >= TRACKED => Position::Outside,
            _ if self.received.contains(&offset) => Position::Received,
            _ if offset < width => Position::New,
            _ => Position::Beyond,
        }
    }

    /// Performs an operation; with `acknowledged`, an arriving packet is acknowledged at once. Returns the packet's
    /// position before it.
    pub fn operate(&mut self, operation: Operation, psn: u32, acknowledged: bool, width: u32) -> Position {
        let position = self.position(psn, width);
        let offset = psn.wrapping_sub(self.base);
        match operation {
            Operation::Arrive if matches!(position, Position::New | Position::Beyond) => {
                self.received.insert(offset);
                if acknowledged {
                    self.acknowledge(offset);
                }
            }
            Operation::Acknowledge if position == Position::Received => self.acknowledge(offset),
            Operation::Arrive => self.dropped |= position == Position::Outside,
            Operation::Refuse => self.dropped |= matches!(position, Position::Outside | Position::Beyond),
            Operation::Report => self.dropped = false,
            Operation::Acknowledge => {}
        }
        position
    }

    fn acknowledge(&mut self, offset: u32) {
        self.acknowledged.insert(offset);
        while self.acknowledged.remove(&0) {
            self.base = self.base.wrapping_add(1);
            self.received.remove(&0);
            for set in [&mut self.received, &mut self.acknowledged] {
                *set = set.iter().map(|offset| offset - 1).collect();
            }
        }
    }

    /// Returns a bit for each packet received from the base on.
    pub fn received(&self) -> u128 {
        self.received.iter().map(|offset| 1 << offset).sum()
    }

    /// Returns a bit for each packet acknowledged from the base on.
    pub fn acknowledged(&self) -> u128 {
        self.acknowledged.iter().map(|offset| 1 << offset).sum()
    }
}

/// Number of different times.
pub const TIMES: u32 = 1 << 24;

/// A rule that declares packets lost by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Packets to which it applies, from the oldest on.
    pub count: u32,
    /// Latest time of transmission.
    pub sent_until: u32,
    /// Time since transmission after which a packet is lost.
    pub age: u32,
}

/// Result of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Search {
    /// Lost packets, as distances from the oldest.
    pub lost: Vec<u32>,
    /// Time until the next packet is lost.
    pub due: Option<u32>,
    /// Number of packets whose time was read.
    pub visited: u32,
}

/// Applies a rule to the packets that have not arrived; `sent` has the time of each, by distance from the oldest.
pub fn search(rule: Rule, sent: impl Fn(u32) -> u32, arrived: u128, now: u32) -> Search {
    let mut found = Search::default();
    for at in (0..rule.count.min(TRACKED)).filter(|at| arrived >> at & 1 == 0) {
        found.visited += 1;
        let after_last = sent(at).wrapping_sub(rule.sent_until) % TIMES;
        if (1..TIMES / 2).contains(&after_last) {
            continue;
        }
        let elapsed = now.wrapping_sub(sent(at)) % TIMES;
        if elapsed >= rule.age {
            found.lost.push(at);
        } else {
            let left = rule.age - elapsed;
            found.due = Some(found.due.map_or(left, |due| due.min(left)));
        }
    }
    found
}
