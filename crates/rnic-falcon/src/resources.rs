//! Transaction resources of a NIC: contexts and buffers, divided into pools that cannot starve each other.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4.5, 4.6 and figure 6; specification Rev 0.9 section 8.2. Mechanisms F-31 to
//! F-35.
//!
//! A *context* (here: packet) is space for the state of one packet, and a *buffer* is a unit of space for payload or
//! gather lists. Both exist for sending and for receiving, and each of these is divided between requests and
//! responses. This results in four parts ([`ResourcePart`]). Three rules guarantee progress (CR#1 to CR#3 of the
//! specification): received and sent packets never wait for each other; requests and responses of one direction never
//! wait for each other; and the request next in order ([head of line](zone)) is admitted even if others are not.
//!
//! A fourth rule is added by this project: a small amount is [reserved for messages already
//! started](ResourceConfig::reserve). Sends to a receiver that is not ready hold their contexts for an unlimited
//! time. If the receiver uses a shared receive queue and its receives are assigned to messages of other connections,
//! it waits for these messages, whose remaining packets in turn wait for contexts. Neither paper nor specification
//! defines how this deadlock is resolved.
//!
//! Lifetime of held resources (Falcon mechanism F-33): accepting a request from the upper layer reserves resources for
//! the packet to send *and* for its response; a target allocates resources as packets arrive and as its upper layer
//! responds. Receive resources are released on delivery to the upper layer, send resources when the packet is
//! acknowledged.
//!
//! Deviations and choices:
//!
//! * two zones, as in the specification; the public simulator has a third, in which not even all requests at the head
//!   of their line are admitted; neither paper nor specification has it;
//! * a Push occupies one buffer for each full or partial unit of its length. The public simulator stores the first 64
//!   bytes and eight gather entries in the context; the specification's table does not do so;
//! * no credits (specification 2.4 has counters of a connection, a function and a host): a connection's share and the
//!   pools are checked when a request is submitted, and Xoff is returned, so no request fails for lack of resources;
//! * the resources of a connection are limited when its upper layer submits requests ([`threshold`]); packets from
//!   the network are limited by the sender's windows and by the zones.

pub mod cost;
pub mod level;
pub mod threshold;
pub mod zone;

#[cfg(test)]
#[path = "resources/tests.rs"]
mod tests;

use level::Level;
use zone::{Zone, Zones};

/// An amount of resources: packets (contexts) and buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Number of contexts.
    pub packets: u32,
    /// Number of buffers, in units of the buffer size of their direction.
    pub buffers: u32,
}

impl Amount {
    /// No packets and no buffers.
    pub const NONE: Self = Self { packets: 0, buffers: 0 };

    /// Returns one packet with this number of buffers.
    #[inline]
    pub const fn packet(buffers: u32) -> Self {
        Self { packets: 1, buffers }
    }

    /// Returns `true` if neither number of `other` exceeds that of `self`.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.packets >= other.packets && self.buffers >= other.buffers
    }

    /// Adds `other`.
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }

    /// Subtracts `other`, which must not exceed `self`.
    #[inline]
    pub(crate) fn subtract(&mut self, other: Self) {
        *self = self.minus(other);
    }

    #[inline]
    const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, buffers: self.buffers + other.buffers }
    }

    /// Returns the minimum of the two amounts, separately for packets and buffers.
    #[inline]
    fn min(self, other: Self) -> Self {
        Self { packets: self.packets.min(other.packets), buffers: self.buffers.min(other.buffers) }
    }

    /// Returns the difference; `other` must not exceed `self`.
    #[inline]
    const fn minus(self, other: Self) -> Self {
        Self { packets: self.packets - other.packets, buffers: self.buffers - other.buffers }
    }
}

/// A part of the resources, by direction and purpose (figure 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ResourcePart {
    /// For sending requests of the local upper layer: Pull Requests, Push Data.
    RequestTx,
    /// For sending responses to remote requests: Pull Data.
    DataTx,
    /// For receiving responses to local requests: completions, Pull Data.
    ResponseRx,
    /// For receiving remote requests.
    RequestRx,
}

impl ResourcePart {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::RequestTx, Self::DataTx, Self::ResponseRx, Self::RequestRx];
}

/// Selects which parts have their own pool. All variants but the first exist to demonstrate the failures that they
/// cause (`tests/deadlock.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carving {
    /// Each part has its own pool, as in figure 6.
    #[default]
    Full,
    /// A direction's parts share pools with the other's: one pool for requests, one pool for responses.
    SharedDirections,
    /// Requests and responses share pools: one pool for sending, one pool for receiving.
    SharedClasses,
    /// All parts share one pool.
    None,
}

impl Carving {
    /// Returns the index of the pool used by `part`.
    const fn pool(self, part: ResourcePart) -> usize {
        match (self, part) {
            (Self::Full, _) => part as usize,
            (Self::SharedDirections, ResourcePart::RequestTx | ResourcePart::RequestRx) => 0,
            (Self::SharedDirections, ResourcePart::DataTx | ResourcePart::ResponseRx) => 1,
            (Self::SharedClasses, ResourcePart::RequestTx | ResourcePart::DataTx) => 0,
            (Self::SharedClasses, ResourcePart::ResponseRx | ResourcePart::RequestRx) => 1,
            (Self::None, _) => 0,
        }
    }
}

/// Amount of resources and its division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceConfig {
    /// Capacity of each part, in the order of [`ResourcePart::ALL`].
    pub capacity: [Amount; 4],
    /// Selects which parts share a pool.
    pub carving: Carving,
    /// Occupancy from which on remote requests must be at the head of their line.
    pub zones: Zones,
    /// Part of the resources for local requests that is reserved for requests that continue a message which
    /// the peer is already receiving, on a connection that holds no other resources. The peer never delays such
    /// requests, so their resources are always released. One packet is enough.
    pub reserve: cost::Transaction,
    /// Size of a buffer in bytes.
    pub units: cost::Units,
}

impl ResourceConfig {
    /// A NIC of 200 Gbit/s as in the public simulator's examples.
    ///
    /// Payload to be sent remains in the host's memory until its packet is sent: for sending, a transaction of any
    /// length occupies one buffer, which contains its headers and the list of its payload addresses. This is why the
    /// examples have as many buffers as contexts for sending; they assume 64 bytes of inline data.
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

/// Size of a send buffer in bytes, larger than any transaction.
const TX_UNIT: u32 = 1 << 16;

/// Resources held by a caller, to be returned with [`Resources::release`]; if the value is dropped without that, the
/// resources are lost, and [`Resources::is_idle`] remains false.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "what is held must be released"]
pub struct Held {
    part: ResourcePart,
    amount: Amount,
}

impl Held {
    /// Returns the amount held.
    #[inline]
    pub const fn amount(&self) -> Amount {
        self.amount
    }
}

/// Resources held for one packet, in the compact form of a ring entry: the number of buffers plus one, or 0 if no
/// resources are held.
#[derive(Debug)]
pub(crate) struct CompactHeld(u16);

impl CompactHeld {
    /// No resources are held.
    pub(crate) const NONE: Self = Self(0);

    /// Stores `held`, the resources of one packet of valid length.
    #[inline]
    pub(crate) fn of(held: Held) -> Self {
        let Amount { packets, buffers } = held.amount;
        assert!(packets == 1 && buffers <= PACKET_BUFFERS_MAX, "{held:?} exceeds the resources of one packet");
        Self(buffers as u16 + 1)
    }

    /// Takes out the stored resources, which belong to `part`; `None` if no resources are stored (any more).
    #[inline]
    pub(crate) fn take(&mut self, part: ResourcePart) -> Option<Held> {
        let buffers = self.0.checked_sub(1)?;
        self.0 = 0;
        Some(Held { part, amount: Amount::packet(buffers.into()) })
    }
}

/// Maximum number of buffers that a [`CompactHeld`] can store. A transaction is shorter than 64 KB, so more buffers
/// would be needed only if each had one byte.
const PACKET_BUFFERS_MAX: u32 = 0xfffe;

/// All resources of a NIC.
#[derive(Debug)]
pub struct Resources {
    config: ResourceConfig,
    /// Pool index by part, see [`Carving::pool`].
    pools: [u8; 4],
    /// Free amount by pool.
    free: [Amount; 4],
    capacity: [Amount; 4],
    /// Minimum of the free amount since creation, by pool.
    free_min: [Amount; 4],
    /// Amount held by requests from the network, which determines the zone.
    requests_held: Amount,
    /// Number of buffers, included in `requests_held`, whose data is still being written to the host's memory.
    backlog: u32,
    level: Level,
    refused: u64,
}

impl Resources {
    /// Creates the resources of a NIC, all of them free.
    ///
    /// # Panics
    /// If there is a reserve and parts share pools, or the reserve comprises all resources of a part.
    pub fn new(config: ResourceConfig) -> Self {
        let reserve = config.reserve;
        let exceeds = |part: ResourcePart, reserve: Amount| config.capacity[part as usize].packets > reserve.packets;
        let is_sound = exceeds(ResourcePart::RequestTx, reserve.tx) && exceeds(ResourcePart::ResponseRx, reserve.rx);
        let is_fully_carved = config.carving == Carving::Full;
        assert!(reserve == cost::Transaction::NONE || (is_fully_carved && is_sound), "{reserve:?} of {config:?}");
        let mut capacity = [Amount::NONE; 4];
        for part in ResourcePart::ALL {
            let pool = &mut capacity[config.carving.pool(part)];
            *pool = pool.plus(config.capacity[part as usize]);
        }
        Self {
            config,
            pools: ResourcePart::ALL.map(|part| config.carving.pool(part) as u8),
            free: capacity,
            capacity,
            free_min: capacity,
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

    /// Returns the free amount in the pool of `part`, which other parts may share.
    #[inline]
    pub fn free(&self, part: ResourcePart) -> Amount {
        self.free[self.pool(part)]
    }

    #[inline]
    fn pool(&self, part: ResourcePart) -> usize {
        usize::from(self.pools[part as usize] & 3)
    }

    /// Returns the total amount in the pool of `part`, which other parts may share.
    pub fn capacity(&self, part: ResourcePart) -> Amount {
        self.capacity[self.pool(part)]
    }

    /// Returns the highest occupancy so far of the contexts, and of the buffers, of any pool, in thousandths of the
    /// capacity.
    pub fn fullest(&self) -> Amount {
        let per_mille = |held: u32, capacity: u32| (u64::from(held) * 1_000 / u64::from(capacity.max(1))) as u32;
        let mut fullest = Amount::NONE;
        for (capacity, free_min) in self.capacity.iter().zip(self.free_min) {
            let held_max = capacity.minus(free_min);
            fullest.packets = fullest.packets.max(per_mille(held_max.packets, capacity.packets));
            fullest.buffers = fullest.buffers.max(per_mille(held_max.buffers, capacity.buffers));
        }
        fullest
    }

    /// Returns `true` if no resources are held.
    pub fn is_idle(&self) -> bool {
        self.free == self.capacity
    }

    /// Returns the number of refusals for lack of resources.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Allocates `amount` of `part`, if it is available.
    #[inline]
    pub fn hold(&mut self, part: ResourcePart, amount: Amount) -> Option<Held> {
        self.hold_above(part, amount, Amount::NONE)
    }

    /// Allocates `amount` of `part`, if it is available and at least `reserved` remains free.
    #[inline]
    fn hold_above(&mut self, part: ResourcePart, amount: Amount, reserved: Amount) -> Option<Held> {
        let pool = self.pool(part);
        let free = &mut self.free[pool];
        if !free.covers(amount.plus(reserved)) {
            self.refused += 1;
            return None;
        }
        *free = free.minus(amount);
        self.free_min[pool] = self.free_min[pool].min(*free);
        if part == ResourcePart::RequestRx {
            self.requests_held = self.requests_held.plus(amount);
            self.level.update(self.requests_held);
        }
        Some(Held { part, amount })
    }

    /// Allocates all resources that a local request needs from acceptance to completion, or none. With
    /// `may_use_reserve`, it may use the [reserve](ResourceConfig::reserve).
    #[inline]
    pub fn hold_transaction(&mut self, need: cost::Transaction, may_use_reserve: bool) -> Option<(Held, Held)> {
        let reserved = if may_use_reserve { cost::Transaction::NONE } else { self.config.reserve };
        let tx = self.hold_above(ResourcePart::RequestTx, need.tx, reserved.tx)?;
        let Some(rx) = self.hold_above(ResourcePart::ResponseRx, need.rx, reserved.rx) else {
            self.release(tx);
            return None;
        };
        Some((tx, rx))
    }

    /// Returns `true` if resources may be available for a local request now. `may_use_reserve` is set for a request
    /// that may use the reserve.
    #[inline]
    pub fn may_hold_transaction(&self, may_use_reserve: bool) -> bool {
        let reserved = if may_use_reserve { cost::Transaction::NONE } else { self.config.reserve };
        let has_free = |part, reserved: Amount| self.free(part).packets > reserved.packets;
        has_free(ResourcePart::RequestTx, reserved.tx) && has_free(ResourcePart::ResponseRx, reserved.rx)
    }

    /// Allocates the resources that a request from the network needs. In a shortage, only requests at the head of
    /// their line are admitted.
    #[inline]
    pub fn hold_arrival(&mut self, need: Amount, head_of_line: bool) -> Option<Held> {
        if !head_of_line && self.zone() == Zone::Red {
            self.refused += 1;
            return None;
        }
        self.hold(ResourcePart::RequestRx, need)
    }

    /// Returns `true` if [`Resources::hold_arrival`] would succeed, for a request that may be passed to its upper
    /// layer immediately. If the request is passed on, call [`Resources::pass_arrival`]; otherwise, allocate its
    /// resources as usual.
    #[inline]
    pub(crate) fn admits_arrival(&mut self, need: Amount, head_of_line: bool) -> bool {
        let admits = (head_of_line || self.zone() == Zone::Green) && self.free(ResourcePart::RequestRx).covers(need);
        self.refused += u64::from(!admits);
        admits
    }

    /// Accounts for an admitted request that was passed to its upper layer immediately, as if its resources had been
    /// held and released.
    #[inline]
    pub(crate) fn pass_arrival(&mut self, need: Amount) {
        self.level.update(self.requests_held.plus(need));
        self.level.update(self.requests_held);
        let pool = self.pool(ResourcePart::RequestRx);
        self.free_min[pool] = self.free_min[pool].min(self.free[pool].minus(need));
    }

    /// Sets the number of `buffers` filled with payload that upper layers have accepted and that is not yet written to
    /// the host's memory (Falcon mechanism F-18). They count as held by requests from the network, up to the number of
    /// free buffers.
    pub fn set_backlog(&mut self, buffers: u32) {
        let pool = self.pool(ResourcePart::RequestRx);
        let free = &mut self.free[pool].buffers;
        let available = *free + self.backlog;
        let taken = buffers.min(available);
        *free = available - taken;
        self.free_min[pool].buffers = self.free_min[pool].buffers.min(*free);
        self.requests_held.buffers = self.requests_held.buffers - self.backlog + taken;
        self.backlog = taken;
        self.level.update(self.requests_held);
    }

    /// Returns the current zone for requests from the network.
    #[inline]
    pub fn zone(&self) -> Zone {
        self.config.zones.zone(self.requests_held)
    }

    /// Returns the smoothed occupancy of the resources for requests from the network, 0 to 31, which acknowledgements
    /// carry (Falcon mechanism F-18).
    #[inline]
    pub fn rx_level(&self) -> u8 {
        self.level.of(self.config.capacity[ResourcePart::RequestRx as usize])
    }

    /// Returns the amount held by requests from the network, from which the occupancy level is computed.
    #[inline]
    pub const fn requests_held(&self) -> Amount {
        self.requests_held
    }

    /// Releases held resources.
    #[inline]
    pub fn release(&mut self, held: Held) {
        if held.part == ResourcePart::RequestRx {
            self.requests_held = self.requests_held.minus(held.amount);
            self.level.update(self.requests_held);
        }
        let pool = self.pool(held.part);
        let free = &mut self.free[pool];
        *free = free.plus(held.amount);
    }
}
