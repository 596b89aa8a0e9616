//! The twelve signals, as records of 48 bytes.
//!
//! Source: SCR (NSDI'25), section 4.3.1 (the three domains and their signals). The fields of a record are OpenRNIC's.
//!
//! Restrictions: a record has no reference to a queue pair or a packet. It names its subject by a number that the
//! driver assigned: the index of a flow, or, for kinds that belong to a node, the number of a peer, a tenant or a bus.

use core::fmt;

use rnic_base::Time;

/// The kind of a signal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Packets were sent: bytes on the wire; `value` is not used.
    Tx,
    /// Packets were received, by the counters of the host: bytes on the wire.
    Rx,
    /// Congestion notifications (CNPs) were received.
    Cnp,
    /// Acknowledgements arrived: bytes acknowledged, `value` is the round trip in picoseconds, zero if not measured.
    Ack,
    /// Negative acknowledgements were received.
    Nack,
    /// A probe was answered: `value` is its round trip in picoseconds, `level` its path.
    Rtt,
    /// An application's hint: `value` is its rate cap in bits per second, `level` its weight in Q16.
    Hint,
    /// The local bus: `value` is the latency of a read in picoseconds, `level` the utilisation in Q16.
    Bus,
    /// The local NIC: `value` is the number of context misses, `level` the utilisation in Q16.
    Nic,
    /// A receiver granted a rate: `value` in bits per second.
    Credit,
    /// The bus of a peer, as [`Kind::Bus`].
    PeerBus,
    /// The NIC of a peer, as [`Kind::Nic`].
    PeerNic,
}

/// The part of the network about which a signal informs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// The path of a flow: TX, RX, CNP, ACK, NACK, RTT.
    Fabric,
    /// This host: hints of applications, its bus, its NIC.
    Host,
    /// The receiver: its credits, its bus, its NIC.
    Peer,
}

/// The type of subject of a signal: a flow, a NIC, or the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One flow, which is a queue pair at this NIC.
    Flow,
    /// A node: this host or a peer.
    Node,
}

/// The way in which the NIC receives a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Band {
    /// In the flow's own packets, or measured from them.
    InBand,
    /// In separate packets (probes, messages between NICs), or read by the host.
    OutOfBand,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 12;

    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Tx,
        Self::Rx,
        Self::Cnp,
        Self::Ack,
        Self::Nack,
        Self::Rtt,
        Self::Hint,
        Self::Bus,
        Self::Nic,
        Self::Credit,
        Self::PeerBus,
        Self::PeerNic,
    ];

    /// Returns the number of the kind, less than [`Kind::COUNT`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the kind with number `index`.
    #[inline]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self::ALL[index]) } else { None }
    }

    /// Returns the name of the kind in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Rx => "rx",
            Self::Cnp => "cnp",
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Rtt => "rtt",
            Self::Hint => "hint",
            Self::Bus => "bus",
            Self::Nic => "nic",
            Self::Credit => "credit",
            Self::PeerBus => "peer-bus",
            Self::PeerNic => "peer-nic",
        }
    }

    /// Returns the domain of the kind.
    pub const fn domain(self) -> Domain {
        match self {
            Self::Tx | Self::Rx | Self::Cnp | Self::Ack | Self::Nack | Self::Rtt => Domain::Fabric,
            Self::Hint | Self::Bus | Self::Nic => Domain::Host,
            Self::Credit | Self::PeerBus | Self::PeerNic => Domain::Peer,
        }
    }

    /// Returns the type of subject of signals of the kind.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Hint | Self::Bus | Self::Nic | Self::PeerBus | Self::PeerNic => Scope::Node,
            Self::Tx | Self::Rx | Self::Cnp | Self::Ack | Self::Nack | Self::Rtt | Self::Credit => Scope::Flow,
        }
    }

    /// Returns the way in which the NIC receives signals of the kind. A round trip that an acknowledgement measured in
    /// band is the value of [`Kind::Ack`]; [`Kind::Rtt`] is the answer to a probe.
    pub const fn band(self) -> Band {
        match self {
            Self::Tx | Self::Rx | Self::Cnp | Self::Ack | Self::Nack => Band::InBand,
            Self::Rtt | Self::Hint | Self::Bus | Self::Nic | Self::Credit | Self::PeerBus | Self::PeerNic => {
                Band::OutOfBand
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A record: one signal, or several of the same subject and kind that were merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// Kind of the signal.
    pub kind: Kind,
    /// Index of the flow, or number of the node, by [`Kind::scope`].
    pub subject: u32,
    /// Number of signals in the record (packets, acknowledgements, answers); zero for a wake-up, which only informs a
    /// program that time has passed.
    pub count: u32,
    /// Second value, by kind; zero if the kind has none.
    pub level: u32,
    /// Number of bytes to which the signals refer.
    pub bytes: u64,
    /// Value, whose meaning depends on the kind.
    pub value: u64,
    /// Time of the first signal in the record.
    pub first: Time,
    /// Time of the last signal in the record.
    pub last: Time,
}

const _: () = assert!(size_of::<Signal>() <= 64);

/// Number of words of a [`Signal`] in memory shared by two threads.
pub(crate) const SIGNAL_WORDS: usize = 6;

impl Signal {
    /// Returns a record of one signal at time `at`, without bytes and value.
    pub const fn new(kind: Kind, subject: u32, at: Time) -> Self {
        Self { kind, subject, count: 1, level: 0, bytes: 0, value: 0, first: at, last: at }
    }

    /// Returns a wake-up at time `at`.
    pub const fn wake_up(kind: Kind, subject: u32, at: Time) -> Self {
        Self { count: 0, ..Self::new(kind, subject, at) }
    }

    /// Returns the record with `bytes`.
    #[must_use]
    pub const fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the record with `value` and `level`.
    #[must_use]
    pub const fn with_value(self, value: u64, level: u32) -> Self {
        Self { value, level, ..self }
    }

    /// Merges `newer`, a record of the same subject and kind: bytes and counts are summed, and the time of the last
    /// signal is that of `newer`, whichever value is kept. Merging therefore never loses bytes.
    #[inline]
    pub fn fold(&mut self, newer: &Self, kept: KeptValue) {
        debug_assert!((self.kind, self.subject) == (newer.kind, newer.subject), "records of different queues");
        if newer.count == 0 {
            // A program that has a record to process needs no wake-up.
            return;
        }
        if self.count == 0 {
            *self = *newer;
            return;
        }
        self.count = self.count.saturating_add(newer.count);
        self.bytes = self.bytes.saturating_add(newer.bytes);
        self.last = newer.last;
        if kept == KeptValue::Latest {
            (self.value, self.level) = (newer.value, newer.level);
        }
    }

    /// Returns the record as words.
    #[inline]
    pub(crate) const fn to_words(self) -> [u64; SIGNAL_WORDS] {
        [
            self.subject as u64 | (self.count as u64) << 32,
            self.level as u64 | (self.kind as u64) << 32,
            self.bytes,
            self.value,
            self.first.as_ps(),
            self.last.as_ps(),
        ]
    }

    /// Returns the record in `words`; an unknown kind, which no writer stores, is read as [`Kind::Tx`].
    #[inline]
    pub(crate) fn from_words(words: [u64; SIGNAL_WORDS]) -> Self {
        let [subject_and_count, level_and_kind, bytes, value, first, last] = words;
        Self {
            kind: Kind::from_index((level_and_kind >> 32) as usize).unwrap_or(Kind::Tx),
            subject: subject_and_count as u32,
            count: (subject_and_count >> 32) as u32,
            level: level_and_kind as u32,
            bytes,
            value,
            first: Time::from_ps(first),
            last: Time::from_ps(last),
        }
    }
}

/// Selection of the signal whose value a merged record keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptValue {
    /// The last signal.
    Latest,
    /// The first signal.
    Oldest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_twelve_signals_of_three_domains() {
        let of = |domain| Kind::ALL.into_iter().filter(move |kind| kind.domain() == domain).map(Kind::name);
        assert_eq!(of(Domain::Fabric).collect::<Vec<_>>(), ["tx", "rx", "cnp", "ack", "nack", "rtt"]);
        assert_eq!(of(Domain::Host).collect::<Vec<_>>(), ["hint", "bus", "nic"]);
        assert_eq!(of(Domain::Peer).collect::<Vec<_>>(), ["credit", "peer-bus", "peer-nic"]);
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind.index(), Kind::from_index(index)), (index, Some(kind)));
        }
        assert_eq!(Kind::from_index(Kind::COUNT), None);
    }

    #[test]
    fn s4_signals_of_hosts_and_of_peers_nodes_belong_to_no_flow() {
        let nodes: Vec<_> = Kind::ALL.into_iter().filter(|kind| kind.scope() == Scope::Node).collect();
        assert_eq!(nodes, [Kind::Hint, Kind::Bus, Kind::Nic, Kind::PeerBus, Kind::PeerNic]);
        let in_band: Vec<_> = Kind::ALL.into_iter().filter(|kind| kind.band() == Band::InBand).collect();
        assert_eq!(in_band, [Kind::Tx, Kind::Rx, Kind::Cnp, Kind::Ack, Kind::Nack]);
    }

    #[test]
    fn s10_a_wake_up_is_lost_in_a_record_and_changes_none() {
        let at = Time::from_us;
        let packet = Signal::new(Kind::Tx, 3, at(5)).with_bytes(100);
        let mut record = packet;
        record.fold(&Signal::wake_up(Kind::Tx, 3, at(9)), KeptValue::Latest);
        assert_eq!(record, packet, "the time is that of the last packet");
        let mut record = Signal::wake_up(Kind::Tx, 3, at(2));
        record.fold(&packet, KeptValue::Latest);
        assert_eq!(record, packet);
    }

    #[test]
    fn s4_a_record_has_48_bytes_and_survives_as_words() {
        assert_eq!(size_of::<Signal>(), SIGNAL_WORDS * 8);
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            let record = Signal {
                count: u32::MAX,
                bytes: u64::MAX - 1,
                last: Time::from_ps(u64::MAX),
                ..Signal::new(kind, u32::MAX - number as u32, Time::from_us(7)).with_value(1 << 63, 0xffff_0001)
            };
            assert_eq!(Signal::from_words(record.to_words()), record);
        }
    }
}
