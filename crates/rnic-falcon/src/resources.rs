//! Transaction resources of a NIC: contexts and buffers, divided into pools that cannot starve each other.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4.5, 4.6 and figure 6; specification Rev 0.9 section 8.2. Mechanisms F-31 to
//! F-35.
//!
//! A *context* (here: packet) is space for the state of one packet, a *buffer* a unit of space for payload or gather
//! lists. Both exist for sending and for receiving, and each is divided again between requests and responses. That
//! makes four parts ([`Part`]), and three rules that guarantee progress (CR#1 to CR#3 of the specification): received
//! and sent packets never wait for each other; requests and responses of one direction never wait for each other; and
//! the request next in order ([head of line](zone)) is admitted when others are not.
//!
//! A fourth rule is the project's own: a small amount is [reserved for messages already
//! started](ResourceConfig::reserve). Sends to a receiver that is not ready hold their contexts for an unlimited time.
//! When its receives are assigned to messages of other connections (a shared receive queue), it waits for these
//! messages, whose remaining packets wait for contexts; neither paper nor specification defines how this deadlock is
//! resolved.
//!
//! Lifetime of held resources (F-33): accepting a request from the upper layer reserves resources for the packet to
//! send *and* for its response; a target takes resources as packets arrive and as its upper layer responds. Receive
//! resources are released on delivery to the upper layer, send resources when the packet is acknowledged.
//!
//! Deviations and choices:
//!
//! * two zones, as in the specification; the public simulator has a third, in which not even every head of line is
//!   admitted, which is in neither paper nor specification;
//! * a Push takes one buffer for each started unit of its length. The public simulator stores the first 64 bytes and
//!   eight gather entries in the context; the specification's table does not;
//! * no credits (specification 2.4 has counters of a connection, a function and a host): a connection's share and the
//!   pools are checked when a request is submitted, and Xoff is returned, so no request fails for lack of resources;
//! * the resources of a connection are counted where its upper layer submits requests ([`threshold`]); packets from the
//!   network are bounded by the sender's windows and by zones.

pub mod cost;
pub mod level;
pub mod threshold;
pub mod zone;

#[cfg(test)]
#[path = "resources/tests.rs"]
mod tests;

use level::Level;
use zone::{Zone, Zones};

/// A number of packets and buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Number of contexts.
    pub packets: u32,
    /// Number of buffers, in the units of their direction.
    pub buffers: u32,
}

impl Amount {
    /// No packets and no buffers.
    pub const NONE: Self = Self { packets: 0, buffers: 0 };

    /// Returns one packet with `buffers`.
    #[inline]
    pub const fn packet(buffers: u32) -> Self {
        Self { packets: 1, buffers }
    }

    /// Returns whether neither number of `other` exceeds that of `self`.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.packets >= other.packets && self.buffers >= other.buffers
    }

    /// Adds `other`.
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }

    /// Subtracts `other`, which must be covered.
    #[inline]
    pub(crate) fn subtract(&mut self, other: Self) {
        *self = self.minus(other);
    }

    #[inline]
    const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, buffers: self.buffers + other.buffers }
    }

    /// Returns the minimum of each number.
    #[inline]
    fn min(self, other: Self) -> Self {
        Self { packets: self.packets.min(other.packets), buffers: self.buffers.min(other.buffers) }
    }

    /// Returns the difference; both numbers of `other` must be covered.
    #[inline]
    const fn minus(self, other: Self) -> Self {
        Self { packets: self.packets - other.packets, buffers: self.buffers - other.buffers }
    }
}

/// A part of the resources, by direction and purpose (figure 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// For sending requests of the local upper layer: Pull Requests, Push Data.
    RequestTx,
    /// For sending responses to remote requests: Pull Data.
    DataTx,
    /// For receiving responses to local requests: completions, Pull Data.
    ResponseRx,
    /// For receiving remote requests.
    RequestRx,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::RequestTx, Self::DataTx, Self::ResponseRx, Self::RequestRx];
}

/// Selects the parts that have a pool of their own. All variants but the first exist to demonstrate the failures that
/// they cause (`tests/deadlock.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carving {
    /// Each part has its own pool, as in figure 6.
    #[default]
    Full,
    /// Sending and receiving share: one pool for requests, one pool for responses.
    SharedDirections,
    /// Requests and responses share: one pool for sending, one pool for receiving.
    SharedClasses,
    /// All parts share one pool.
    None,
}

impl Carving {
    /// Returns the index of the pool that `part` uses.
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

/// Amount of resources, and their division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceConfig {
    /// Capacity of each part, in the order of [`Part::ALL`].
    pub capacity: [Amount; 4],
    /// Parts that share a pool.
    pub carving: Carving,
    /// Condition under which remote requests must be at the head of their line.
    pub zones: Zones,
    /// Share of the resources for local requests that is reserved for requests that continue a message which the peer
    /// is receiving, of a connection that holds nothing else: the peer never delays them, so their resources are
    /// released. One packet is enough.
    pub reserve: cost::Transaction,
    /// Size of a buffer in bytes.
    pub units: cost::Units,
}

impl ResourceConfig {
    /// A NIC of 200 Gbit/s as in the public simulator's examples.
    ///
    /// Payload to be sent stays in the host's memory until its packet is sent: to send, a transaction of any length
    /// takes one buffer, for its headers and the list of its payload addresses. This is why the examples have as many
    /// buffers as contexts for sending; they assume 64 bytes of inline data.
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

/// Size of a send buffer in bytes, longer than any transaction.
const TX_UNIT: u32 = 1 << 16;

/// Resources held by a caller, to be returned with [`Resources::release`]; dropping the value without that loses them,
/// which [`Resources::is_idle`] reveals.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "what is held must be released"]
pub struct Held {
    part: Part,
    amount: Amount,
}

impl Held {
    /// Returns the amount held.
    #[inline]
    pub const fn amount(&self) -> Amount {
        self.amount
    }
}

/// Resources held for one packet, in the compact form of a ring entry: the number of buffers plus one; 0 when nothing
/// is held.
#[derive(Debug)]
pub(crate) struct Room(u16);

impl Room {
    /// Nothing is held.
    pub(crate) const NONE: Self = Self(0);

    /// Stores `held`, which belongs to one packet of valid length.
    #[inline]
    pub(crate) fn of(held: Held) -> Self {
        let Amount { packets, buffers } = held.amount;
        assert!(packets == 1 && buffers <= BUFFERS_OF_PACKET_MAX, "{held:?} is more than one packet's");
        Self(buffers as u16 + 1)
    }

    /// Takes the resources out as those of `part`, to which they belong; `None` when nothing is held (any more).
    #[inline]
    pub(crate) fn take(&mut self, part: Part) -> Option<Held> {
        let buffers = self.0.checked_sub(1)?;
        self.0 = 0;
        Some(Held { part, amount: Amount::packet(buffers.into()) })
    }
}

/// Maximum number of buffers that a [`Room`] can store. A transaction has less than 64 KB, so only buffers of one byte
/// could exceed it.
const BUFFERS_OF_PACKET_MAX: u32 = 0xfffe;

/// All resources of a NIC.
#[derive(Debug)]
pub struct Resources {
    config: ResourceConfig,
    /// Pool index by part, see [`Carving::pool`].
    pools: [u8; 4],
    /// Free amount by pool.
    free: [Amount; 4],
    capacity: [Amount; 4],
    /// Minimum of the free amount so far, by pool.
    least_free: [Amount; 4],
    /// Amount held by remote requests, which determines the zone.
    requests_held: Amount,
    /// Number of these buffers with data that is still being written to the host's memory.
    backlog: u32,
    level: Level,
    refused: u64,
}

impl Resources {
    /// Creates resources that are all free.
    ///
    /// # Panics
    /// When there is a reserve, and parts share pools, or nothing is left besides the reserve.
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

    /// Returns the configuration.
    pub const fn config(&self) -> &ResourceConfig {
        &self.config
    }

    /// Returns the free amount of `part` (including parts that share its pool).
    #[inline]
    pub fn free(&self, part: Part) -> Amount {
        self.free[self.pool(part)]
    }

    #[inline]
    fn pool(&self, part: Part) -> usize {
        usize::from(self.pools[part as usize] & 3)
    }

    /// Returns the total amount of `part` (including parts that share its pool).
    pub fn capacity(&self, part: Part) -> Amount {
        self.capacity[self.pool(part)]
    }

    /// Returns the highest occupancy of any pool so far, in thousandths of its capacity: of contexts, and of buffers.
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

    /// Returns whether nothing is held.
    pub fn is_idle(&self) -> bool {
        self.free == self.capacity
    }

    /// Returns the number of refusals for lack of resources.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes `amount` of `part`, when it is available.
    #[inline]
    pub fn hold(&mut self, part: Part, amount: Amount) -> Option<Held> {
        self.hold_above(part, amount, Amount::NONE)
    }

    /// Takes `amount` of `part`, when it is available and `left` remains.
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

    /// Takes the resources that a local request needs from acceptance to completion: all or nothing; with `of_reserve`
    /// from the [reserve](ResourceConfig::reserve) too.
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

    /// Returns whether resources may be available for a local request now: with `of_reserve` for one entitled to the
    /// reserve, otherwise for any other.
    #[inline]
    pub fn may_hold_transaction(&self, of_reserve: bool) -> bool {
        let left = if of_reserve { cost::Transaction::NONE } else { self.config.reserve };
        let has = |part, left: Amount| self.free(part).packets > left.packets;
        has(Part::RequestTx, left.tx) && has(Part::ResponseRx, left.rx)
    }

    /// Takes the resources that a request from the network needs. In a shortage, only requests at the head of their
    /// line are admitted.
    #[inline]
    pub fn hold_arrival(&mut self, need: Amount, head_of_line: bool) -> Option<Held> {
        if !head_of_line && self.zone() == Zone::Red {
            self.refused += 1;
            return None;
        }
        self.hold(Part::RequestRx, need)
    }

    /// Returns whether [`Resources::hold_arrival`] would succeed, for a request that may be passed to its upper layer
    /// immediately. If it is passed on, [`Resources::pass_arrival`] follows; if not, its resources are held as usual.
    #[inline]
    pub(crate) fn admits_arrival(&mut self, need: Amount, head_of_line: bool) -> bool {
        let admits = (head_of_line || self.zone() == Zone::Green) && self.free(Part::RequestRx).covers(need);
        self.refused += u64::from(!admits);
        admits
    }

    /// Accounts for an admitted request that was passed to its upper layer immediately, as if its resources had been
    /// held and released.
    #[inline]
    pub(crate) fn pass_arrival(&mut self, need: Amount) {
        self.level.update(self.requests_held.plus(need));
        self.level.update(self.requests_held);
        let pool = self.pool(Part::RequestRx);
        self.least_free[pool] = self.least_free[pool].min(self.free[pool].minus(need));
    }

    /// Sets the number of `buffers` filled with payload that upper layers have accepted and that is not yet written to
    /// the host's memory (F-18). They count as held by requests from the network, as far as free buffers exist.
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

    /// Returns the current zone for requests from the network.
    #[inline]
    pub fn zone(&self) -> Zone {
        self.config.zones.zone(self.requests_held)
    }

    /// Returns the smoothed occupancy of the resources for requests from the network, 0 to 31: carried in
    /// acknowledgements (F-18).
    #[inline]
    pub fn rx_level(&self) -> u8 {
        self.level.of(self.config.capacity[Part::RequestRx as usize])
    }

    /// Returns the amount held by requests from the network, from which the receive level is computed.
    #[inline]
    pub const fn requests_held(&self) -> Amount {
        self.requests_held
    }

    /// Releases held resources.
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
