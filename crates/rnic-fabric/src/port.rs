//! A port: the sending end of a link.
//!
//! Sending takes as long as the frame is on the wire, preamble and gap included; the last bit then travels for the
//! link's delay. What a paused port has begun to send it sends to the end (IEEE 802.1Qbb); pause frames themselves are
//! never held back and go before data that waits.

use rnic_base::{BitRate, Duration, Time};

use crate::agenda::Agenda;
use crate::entry::{Entry, Flags};
use crate::fault::FaultChain;
use crate::link::{LinkEnd, Links};
use crate::packets::Packets;

/// What nodes share: the links between them, the agenda, the headers of packets under way.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) links: Links,
    pub(crate) agenda: Agenda,
    pub(crate) packets: Packets,
}

/// What a port has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PortStats {
    /// Packets sent, lost ones included; pause frames not.
    pub(crate) packets: u64,
    /// Of these, lost to a fault.
    pub(crate) faulted: u64,
    /// Pause frames (XOFF) sent.
    pub(crate) pauses_sent: u64,
    /// Time that the neighbour has kept this port from sending.
    pub(crate) paused: Duration,
}

/// The sending end of a link.
#[derive(Debug)]
pub(crate) struct Port {
    /// When the last bit of what is being sent leaves.
    pub(crate) free_at: Time,
    /// Time of one byte; zero when it is not whole, and the rate must be asked.
    byte_time: Duration,
    delay: Duration,
    end: LinkEnd,
    /// Since when the neighbour wants silence.
    paused_since: Option<Time>,
    faults: Option<Box<FaultChain>>,
    rate: BitRate,
    pub(crate) stats: PortStats,
}

impl Port {
    pub(crate) fn new(rate: BitRate, delay: Duration, end: LinkEnd) -> Self {
        // 8 * 10^12 ps are one byte at one bit per second.
        let byte_time =
            if 8_000_000_000_000u64.is_multiple_of(rate.as_bps()) { rate.serialize(1) } else { Duration::ZERO };
        Self {
            free_at: Time::ZERO,
            byte_time,
            delay,
            end,
            paused_since: None,
            faults: None,
            rate,
            stats: PortStats::default(),
        }
    }

    /// From now on `faults` decide what gets through.
    pub(crate) fn set_faults(&mut self, faults: FaultChain) {
        self.faults = Some(Box::new(faults));
    }

    /// From now on everything gets through; behind what faults have delayed there still is no order to rely on.
    pub(crate) fn end_faults(&mut self) {
        if let Some(faults) = &mut self.faults {
            faults.end();
        }
    }

    /// How long `bytes` keep the link busy.
    #[inline]
    fn serialize(&self, bytes: u64) -> Duration {
        if self.byte_time == Duration::ZERO {
            return self.rate.serialize(bytes);
        }
        Duration::from_ps(self.byte_time.as_ps() * bytes)
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    /// What it has done until `now`, a pause that lasts included.
    pub(crate) fn stats_at(&self, now: Time) -> PortStats {
        let lasting = self.paused_since.map_or(Duration::ZERO, |since| now.since(since));
        PortStats { paused: self.stats.paused + lasting, ..self.stats }
    }

    /// Whether data may leave now.
    #[inline]
    pub(crate) fn is_open(&self, now: Time) -> bool {
        self.free_at <= now && !self.is_paused()
    }

    /// Sends a packet; the port is free.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, mut entry: Entry, network: &mut Network) {
        debug_assert!(self.is_open(now));
        self.free_at = now + self.serialize(entry.link_len());
        self.stats.packets += 1;
        entry.at = self.free_at + self.delay;
        if self.faults.is_some() {
            return self.send_faulty(now, entry, network);
        }
        network.links.push(self.end, entry, &mut network.agenda);
    }

    #[cold]
    fn send_faulty(&mut self, now: Time, entry: Entry, network: &mut Network) {
        let gap = self.serialize(entry.link_len());
        let Some(faults) = &mut self.faults else { return };
        let fate = faults.judge(now, &entry);
        if fate.lost {
            self.stats.faulted += 1;
            network.packets.remove(entry.packet);
            return;
        }
        for copy in 0..=fate.copies {
            let mut packet = entry;
            if copy < fate.copies {
                packet.packet = network.packets.duplicate(entry.packet);
            }
            // Copies follow each other as fast as the link allows.
            packet.at = entry.at + fate.delay + gap * u64::from(copy);
            if fate.corrupt {
                packet.set(Flags::CORRUPT);
                faults.flip_bits(network.packets.bytes_mut(packet.packet));
            }
            network.links.insert(self.end, packet, &mut network.agenda);
        }
    }

    /// Sends a pause frame: after what is being sent, before all data that waits.
    pub(crate) fn send_pause_frame(&mut self, now: Time, mut frame: Entry, network: &mut Network) {
        self.free_at = self.free_at.max(now) + self.serialize(frame.link_len());
        frame.at = self.free_at + self.delay;
        network.links.insert(self.end, frame, &mut network.agenda);
    }

    /// The neighbour wants silence.
    pub(crate) fn pause(&mut self, now: Time) {
        self.paused_since.get_or_insert(now);
    }

    /// The neighbour takes packets again.
    pub(crate) fn resume(&mut self, now: Time) {
        if let Some(since) = self.paused_since.take() {
            self.stats.paused += now.since(since);
        }
    }
}
