//! What a NIC has for transactions: contexts and buffers, carved into pools that cannot starve each other.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4.5, 4.6 and figure 6; specification Rev 0.9 section 8.2. Mechanisms F-31 to
//! F-35.
//!
//! A *context* (here: packet) is room for what is known of one packet, a *buffer* a unit of room for payload or gather
//! lists. Both exist for sending and for receiving, and both are carved once more, between requests and responses. That
//! makes four parts ([`Part`]), and three rules by which something always moves (CR#1 to CR#3 of the specification):
//! what arrives and what leaves never wait for each other; requests and responses of one direction never wait for each
//! other; and the request whose turn it is ([head of line](zone)) is admitted where others are not.
//!
//! A fourth is ours: a little is [left for messages that have begun](ResourceConfig::reserve). Sends to a receiver
//! that is not ready hold their contexts for as long as it pleases. Where its receives are lent to messages of other
//! connections (a shared receive queue), they wait for these messages, whose rest waits for contexts; neither paper nor
//! specification says how that ends.
//!
//! The life of what is held (F-33): who accepts a request from the upper layer reserves room for the packet to send
//! *and* for what will come back; a target takes room as packets arrive and as its upper layer answers. Room to receive
//! returns on delivery to the upper layer, room to send when the packet is acknowledged.
//!
//! Deviations and choices:
//!
//! * two zones, as in the specification; the public simulator has a third, in which not even every head of line is
//!   admitted, that neither paper nor specification know;
//! * a Push takes one buffer for each begun unit of its length. The public simulator lets the first 64 bytes and eight
//!   gather entries ride in the context; the specification's table does not;
//! * no credits (specification 2.4 has counters of a connection, a function and a host): a connection's share and the
//!   pools are asked when a request is handed in, and Xoff is the answer, so nothing fails for want of them;
//! * what a connection may hold is counted where its upper layer hands requests in ([`threshold`]); what comes from
//!   the network is bounded by the sender's windows and by zones.

pub mod cost;
pub mod level;
pub mod threshold;
pub mod zone;

#[cfg(test)]
#[path = "resources/tests.rs"]
mod tests;

use level::Level;
use zone::{Zone, Zones};

/// So many packets and buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Contexts.
    pub packets: u32,
    /// Buffers, in the units of their direction.
    pub buffers: u32,
}

impl Amount {
    /// Nothing.
    pub const NONE: Self = Self { packets: 0, buffers: 0 };

    /// One packet with `buffers`.
    #[inline]
    pub const fn packet(buffers: u32) -> Self {
        Self { packets: 1, buffers }
    }

    /// Whether `other` is no larger in either.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.packets >= other.packets && self.buffers >= other.buffers
    }

    /// More by `other`.
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }

    /// Less by `other`, which must be covered.
    #[inline]
    pub(crate) fn subtract(&mut self, other: Self) {
        *self = self.minus(other);
    }

    #[inline]
    const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, buffers: self.buffers + other.buffers }
    }

    /// The less of each.
    #[inline]
    fn min(self, other: Self) -> Self {
        Self { packets: self.packets.min(other.packets), buffers: self.buffers.min(other.buffers) }
    }

    /// What is left; both must be covered.
    #[inline]
    const fn minus(self, other: Self) -> Self {
        Self { packets: self.packets - other.packets, buffers: self.buffers - other.buffers }
    }
}

/// A part of the resources: which direction, and for what (figure 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// To send requests of our upper layer: Pull Requests, Push Data.
    RequestTx,
    /// To send what others have asked for: Pull Data.
    DataTx,
    /// To receive what our requests bring: completions, Pull Data.
    ResponseRx,
    /// To receive the requests of others.
    RequestRx,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RequestTx, Self::DataTx, Self::ResponseRx, Self::RequestRx];
}

/// Which parts have room of their own. All but the first are there to show what they break (`tests/deadlock.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carving {
    /// Each: as in figure 6.
    #[default]
    Full,
    /// Sending and receiving share: requests have a pool, responses have a pool.
    SharedDirections,
    /// Requests and responses share: sending has a pool, receiving has a pool.
    SharedClasses,
    /// One pool.
    None,
}

impl Carving {
    /// Which pool `part` draws from.
    const fn pool(self, part: Part) -> usize {
        match (self, part) {
            (Self::Full, _) => part as usize,
            (Self::SharedDirections, Part::RequestTx | Part::RequestRx) => 0,
            (Self::SharedDirections, Part::DataTx | Part::ResponseRx) => 1,
            (Self::SharedClasses, Part::RequestTx | Part::DataTx) => 0,
            (Self::SharedClasses, Part::ResponseRx | Part::RequestRx) => 1,
            (Self::None, _) => 0,
        }
    }
}

/// How much there is, and how it is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceConfig {
    /// What each part has, in the order of [`Part::ALL`].
    pub capacity: [Amount; 4],
    /// Which parts share.
    pub carving: Carving,
    /// When requests of others must be at the head of their line.
    pub zones: Zones,
    /// Of what requests of our upper layer need, left for those that go on with a message that the peer takes in, of
    /// a connection that holds nothing else: they are never put off, so what they hold comes back. One packet's is
    /// enough.
    pub reserve: cost::Transaction,
    /// Bytes of a buffer.
    pub units: cost::Units,
}

impl ResourceConfig {
    /// A NIC of 200 Gbit/s as the public simulator's examples have it.
    ///
    /// Payload to be sent stays in the host's memory until its packet leaves: to send, a transaction of any length
    /// takes one buffer, for its headers and the list of where its payload lies. That is how the examples come to
    /// have as many buffers as contexts to send with; they count 64 bytes of what is written inline.
    pub const GBPS_200: Self = Self {
        capacity: [
            Amount { packets: 5_775, buffers: 5_775 },
            Amount { packets: 2_640, buffers: 2_640 },
            Amount { packets: 5_775, buffers: 8_192 },
            Amount { packets: 8_393, buffers: 11_264 },
        ],
        carving: Carving::Full,
        zones: Zones { green: Amount { packets: 7_943, buffers: 10_678 }, head_of_line_only: true },
        reserve: cost::Units { tx: TX_UNIT, rx: 256 }.push(TX_UNIT),
        units: cost::Units { tx: TX_UNIT, rx: 256 },
    };
}

/// Longer than any transaction.
const TX_UNIT: u32 = 1 << 16;

/// Room that somebody holds. It goes back with [`Resources::release`]; who forgets it has lost it, which
/// [`Resources::is_idle`] tells.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "what is held must be released"]
pub struct Held {
    part: Part,
    amount: Amount,
}

impl Held {
    /// How much.
    #[inline]
    pub const fn amount(&self) -> Amount {
        self.amount
    }
}

/// What is held for one packet, as short as an entry of a ring wants it: buffers and one; 0 when nothing is held.
#[derive(Debug)]
pub(crate) struct Room(u16);

impl Room {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);

    /// Keeps `held`, which is of one packet no longer than any there is.
    #[inline]
    pub(crate) fn of(held: Held) -> Self {
        let Amount { packets, buffers } = held.amount;
        assert!(packets == 1 && buffers <= BUFFERS_OF_PACKET_MAX, "{held:?} is more than one packet's");
        Self(buffers as u16 + 1)
    }

    /// Gives it out as `part`'s, which it was taken of; none when there is none (any more).
    #[inline]
    pub(crate) fn take(&mut self, part: Part) -> Option<Held> {
        let buffers = self.0.checked_sub(1)?;
        self.0 = 0;
        Some(Held { part, amount: Amount::packet(buffers.into()) })
    }
}

/// What a [`Room`] can say. A transaction has less than 64 KB, so that buffers would have to be of one byte to be more.
const BUFFERS_OF_PACKET_MAX: u32 = 0xfffe;

/// All resources of a NIC.
#[derive(Debug)]
pub struct Resources {
    config: ResourceConfig,
    /// By part, see [`Carving::pool`].
    pools: [u8; 4],
    /// By pool.
    free: [Amount; 4],
    capacity: [Amount; 4],
    /// The least that there was free, by pool.
    least_free: [Amount; 4],
    /// What others' requests hold: zones go by that.
    requests_held: Amount,
    /// Of these, buffers of what is on its way into the host's memory.
    backlog: u32,
    level: Level,
    refused: u64,
}

impl Resources {
    /// Everything free.
    ///
    /// # Panics
    /// When there is a reserve, and parts share pools, or nothing is left for anybody else.
    pub fn new(config: ResourceConfig) -> Self {
        let reserve = config.reserve;
        let leaves = |part: Part, reserve: Amount| config.capacity[part as usize].packets > reserve.packets;
        let is_sound = leaves(Part::RequestTx, reserve.tx) && leaves(Part::ResponseRx, reserve.rx);
        let has_parts = config.carving == Carving::Full;
        assert!(reserve == cost::Transaction::NONE || (has_parts && is_sound), "{reserve:?} of {config:?}");
        let mut capacity = [Amount::NONE; 4];
        for part in Part::ALL {
            let pool = &mut capacity[config.carving.pool(part)];
            *pool = pool.plus(config.capacity[part as usize]);
        }
        Self {
            config,
            pools: Part::ALL.map(|part| config.carving.pool(part) as u8),
            free: capacity,
            capacity,
            least_free: capacity,
            requests_held: Amount::NONE,
            backlog: 0,
            level: Level::default(),
            refused: 0,
        }
    }

    /// What it was made of.
    pub const fn config(&self) -> &ResourceConfig {
        &self.config
    }

    /// What `part` has left (with whom it shares).
    #[inline]
    pub fn free(&self, part: Part) -> Amount {
        self.free[self.pool(part)]
    }

    #[inline]
    fn pool(&self, part: Part) -> usize {
        usize::from(self.pools[part as usize] & 3)
    }

    /// What `part` has in all (with whom it shares).
    pub fn capacity(&self, part: Part) -> Amount {
        self.capacity[self.pool(part)]
    }

    /// How full the fullest part has been, in thousandths of what it has: of its contexts, and of its buffers.
    pub fn fullest(&self) -> Amount {
        let share = |held: u32, of: u32| (u64::from(held) * 1_000 / u64::from(of.max(1))) as u32;
        let mut fullest = Amount::NONE;
        for (capacity, least_free) in self.capacity.iter().zip(self.least_free) {
            let most = capacity.minus(least_free);
            fullest.packets = fullest.packets.max(share(most.packets, capacity.packets));
            fullest.buffers = fullest.buffers.max(share(most.buffers, capacity.buffers));
        }
        fullest
    }

    /// Whether nothing is held.
    pub fn is_idle(&self) -> bool {
        self.free == self.capacity
    }

    /// How often somebody was refused for want of room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes `amount` of `part`, when it is there.
    #[inline]
    pub fn hold(&mut self, part: Part, amount: Amount) -> Option<Held> {
        self.hold_above(part, amount, Amount::NONE)
    }

    /// Takes `amount` of `part`, when it is there and `left` stays.
    #[inline]
    fn hold_above(&mut self, part: Part, amount: Amount, left: Amount) -> Option<Held> {
        let pool = self.pool(part);
        let free = &mut self.free[pool];
        if !free.covers(amount.plus(left)) {
            self.refused += 1;
            return None;
        }
        *free = free.minus(amount);
        self.least_free[pool] = self.least_free[pool].min(*free);
        if part == Part::RequestRx {
            self.requests_held = self.requests_held.plus(amount);
            self.level.update(self.requests_held);
        }
        Some(Held { part, amount })
    }

    /// Takes what a request of our upper layer needs from acceptance to completion: all of it or nothing; of the
    /// [reserve](ResourceConfig::reserve) too, if it is for such as this one.
    #[inline]
    pub fn hold_transaction(&mut self, need: cost::Transaction, of_reserve: bool) -> Option<(Held, Held)> {
        let left = if of_reserve { cost::Transaction::NONE } else { self.config.reserve };
        let tx = self.hold_above(Part::RequestTx, need.tx, left.tx)?;
        let Some(rx) = self.hold_above(Part::ResponseRx, need.rx, left.rx) else {
            self.release(tx);
            return None;
        };
        Some((tx, rx))
    }

    /// Whether a request of our upper layer may find room now: of those for whom the reserve is, or of others.
    #[inline]
    pub fn may_hold_transaction(&self, of_reserve: bool) -> bool {
        let left = if of_reserve { cost::Transaction::NONE } else { self.config.reserve };
        let has = |part, left: Amount| self.free(part).packets > left.packets;
        has(Part::RequestTx, left.tx) && has(Part::ResponseRx, left.rx)
    }

    /// Takes what a request from the network needs. Where room is short, only requests at the head of their line are
    /// let in.
    #[inline]
    pub fn hold_arrival(&mut self, need: Amount, head_of_line: bool) -> Option<Held> {
        if !head_of_line && self.zone() == Zone::Red {
            self.refused += 1;
            return None;
        }
        self.hold(Part::RequestRx, need)
    }

    /// As [`Resources::hold_arrival`], for a request that may go on to its upper layer at once: whether there is room.
    /// If it does go on, [`Resources::pass_arrival`] follows; if not, what it needs is held as always.
    #[inline]
    pub(crate) fn admits_arrival(&mut self, need: Amount, head_of_line: bool) -> bool {
        let admits = (head_of_line || self.zone() == Zone::Green) && self.free(Part::RequestRx).covers(need);
        self.refused += u64::from(!admits);
        admits
    }

    /// A request that was admitted is with its upper layer: as if room had been held for it and given back.
    #[inline]
    pub(crate) fn pass_arrival(&mut self, need: Amount) {
        self.level.update(self.requests_held.plus(need));
        self.level.update(self.requests_held);
        let pool = self.pool(Part::RequestRx);
        self.least_free[pool] = self.least_free[pool].min(self.free[pool].minus(need));
    }

    /// Payload that upper layers have taken fills `buffers` until it is in the host's memory (F-18): as many of them as
    /// are free count, as held by requests from the network.
    pub fn set_backlog(&mut self, buffers: u32) {
        let pool = self.pool(Part::RequestRx);
        let free = &mut self.free[pool].buffers;
        let room = *free + self.backlog;
        let taken = buffers.min(room);
        *free = room - taken;
        self.least_free[pool].buffers = self.least_free[pool].buffers.min(*free);
        self.requests_held.buffers = self.requests_held.buffers - self.backlog + taken;
        self.backlog = taken;
        self.level.update(self.requests_held);
    }

    /// The zone that requests from the network meet.
    #[inline]
    pub fn zone(&self) -> Zone {
        self.config.zones.zone(self.requests_held)
    }

    /// How full the room for requests from the network is, 0 to 31, smoothed: travels in acknowledgements (F-18).
    #[inline]
    pub fn rx_level(&self) -> u8 {
        self.level.of(self.config.capacity[Part::RequestRx as usize])
    }

    /// What requests from the network hold: what the receive level is measured by.
    #[inline]
    pub const fn requests_held(&self) -> Amount {
        self.requests_held
    }

    /// Gives back.
    #[inline]
    pub fn release(&mut self, held: Held) {
        if held.part == Part::RequestRx {
            self.requests_held = self.requests_held.minus(held.amount);
            self.level.update(self.requests_held);
        }
        let pool = self.pool(held.part);
        let free = &mut self.free[pool];
        *free = free.plus(held.amount);
    }
}
