//! The network of a run, and its faults.

use rnic_base::{Duration, Probability, RandomStream, Time};

use super::{Place, one_in, pick};

/// A network without faults, except for buffers that may be too small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// Number of hosts: with two there may be no switch.
    pub hosts: usize,
    /// Bytes of each input buffer of a switch, or of its shared buffer (fabric only); `None` without switches.
    pub switch_buffer: Option<u64>,
    /// True for a fat-tree of four-port switches instead of one switch, with hosts in different pods (fabric only).
    pub is_tree: bool,
    /// True when all ports of a switch share its buffer (fabric only).
    pub shares_buffer: bool,
    /// True when the switch pauses its neighbours before it overflows (fabric only).
    pub pauses: bool,
    /// True when the switch marks packets (fabric only).
    pub marks: bool,
    /// Link rate in Gbit/s (fabric only).
    pub rate_gbps: u64,
    /// Delay of a link (fabric only).
    pub delay: Duration,
    /// Receive buffer of a socket, in bytes (sockets only).
    pub receive_buffer: usize,
    /// True with segmentation and receive offload, GSO/GRO (sockets only).
    pub offload: bool,
}

impl Network {
    pub(super) fn draw(place: Place, random: &mut RandomStream) -> Self {
        let hosts = pick(random, &[2, 2, 3, 4]);
        let switched = place == Place::Fabric && (hosts > 2 || one_in(random, 3));
        let pauses = one_in(random, 4);
        let buffers: &[u64] = if pauses { &[1_000_000] } else { &[10_000, 30_000, 200_000] };
        Self {
            hosts,
            switch_buffer: switched.then(|| pick(random, buffers)),
            is_tree: switched && one_in(random, 3),
            shares_buffer: one_in(random, 3),
            pauses,
            marks: one_in(random, 3),
            rate_gbps: pick(random, &[10, 100, 100]),
            delay: Duration::from_ns(pick(random, &[200, 1_000, 2_000, 8_000])),
            receive_buffer: pick(random, &[8 << 10, 64 << 10, 208 << 10, 1 << 20]),
            offload: !one_in(random, 3),
        }
    }

    /// Returns the minimum delay of a packet between the most distant hosts.
    pub(super) fn least_delay(&self, place: Place) -> Duration {
        let links = match (place, self.switch_buffer, self.is_tree) {
            (Place::Engines | Place::Sockets | Place::Memory, ..) => 0,
            (Place::Fabric, None, _) => 1,
            (Place::Fabric, Some(_), false) => 2,
            (Place::Fabric, Some(_), true) => 6,
        };
        self.delay * links
    }

    /// Returns `mtu`, or a smaller one where a full packet would not fit into the buffers.
    pub(super) fn mtu_at_most(&self, mtu: u32) -> u32 {
        if self.receive_buffer < 64 << 10 { mtu.min(1_024) } else { mtu }
    }
}

/// An interval in which a link is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Down {
    /// Start of the interval.
    pub from: Time,
    /// End of the interval.
    pub until: Time,
}

/// Faults of the packets that a host sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Probability that a packet is lost.
    pub loss: Probability,
    /// Probability that an acknowledgement is lost (fabric only).
    pub ack_loss: Probability,
    /// Probability that a burst of losses starts; after each packet it ends with probability 1/8 (fabric only).
    pub burst: Probability,
    /// Probability that a packet is corrupted.
    pub corrupt: Probability,
    /// Probability that an acknowledgement is corrupted (fabric only).
    pub ack_corrupt: Probability,
    /// Probability that a packet is duplicated.
    pub duplicate: Probability,
    /// Probability that a packet is held back, and so reordered.
    pub reorder: Probability,
    /// Duration for which it is held back (fabric), or the maximum of it (sockets).
    pub hold: Duration,
    /// Number of later packets after which it is released (sockets only).
    pub hold_packets: u32,
    /// Additional delay of every packet.
    pub delay: Duration,
    /// Maximum further random delay of a packet.
    pub jitter: Duration,
    /// Interval in which the link is down (fabric only).
    pub down: Option<Down>,
}

impl Faults {
    /// Returns the maximum additional delay of a packet.
    pub(super) fn latest(&self) -> Duration {
        let held = if self.reorder == Probability::NEVER { Duration::ZERO } else { self.hold };
        self.delay + self.jitter + held
    }

    pub(super) fn draw(place: Place, random: &mut RandomStream) -> Self {
        let mut chance = |permille_max: u64| match random.below(5) {
            0..3 => Probability::NEVER,
            3 => Probability::ratio(random.between(1, 20), 1_000),
            _ => Probability::ratio(random.between(1, permille_max), 1_000),
        };
        let (loss, ack_loss, burst) = (chance(200), chance(300), chance(10));
        let (corrupt, ack_corrupt, duplicate, reorder) = (chance(100), chance(200), chance(300), chance(500));
        let us = |random: &mut RandomStream, fabric: &[u64], sockets: &[u64]| {
            Duration::from_us(pick(random, if place.is_real() { sockets } else { fabric }))
        };
        let from = Time::from_us(random.below(400));
        Self {
            loss,
            ack_loss,
            burst,
            corrupt,
            ack_corrupt,
            duplicate,
            reorder,
            hold: us(random, &[1, 3, 20, 150], &[200, 1_000]),
            hold_packets: pick(random, &[1, 3, 10, 40]),
            delay: if one_in(random, 5) { us(random, &[1, 10, 100], &[100, 500]) } else { Duration::ZERO },
            jitter: if one_in(random, 5) { us(random, &[1, 10, 100], &[50, 300]) } else { Duration::ZERO },
            down: one_in(random, 6).then(|| Down { from, until: from + us(random, &[50, 500, 3_000], &[1]) }),
        }
    }
}
