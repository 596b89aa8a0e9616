//! Whether the processes at the other ends still live.
//!
//! A queue pair that only waits for receives sends nothing, so it would never learn that the process at its other end
//! has been killed, nor would one whose peer only writes. But that process's NIC had a UDP port of its own, which the
//! kernel has taken back, whether it shares its machine with others or has its address for itself. So a port that
//! nothing has come from for a while is sent a probe: if nobody has it any more, its host answers with ICMP "port
//! unreachable", and after some such answers in a row the queue pairs that are connected there fail. A process that
//! is merely stopped keeps its port: its host drops the probe, or keeps it for later, and says nothing.
//!
//! A probe is a congestion notification for a queue pair that cannot exist. It leaves from the port that is ours alone:
//! the kernel would tell any of the NICs that share port 4791 about what left from there. It is not impaired: loss of
//! a probe means nothing, and loss of packets says nothing about processes. It is not sealed either.
//!
//! **Proof.** Anybody can send an ICMP message, and the kernel compares nothing but addresses and ports. But such a
//! message quotes the datagram that it is about, and a probe carries 128 bits that were drawn for it. What does not
//! quote them counts for nothing, so whoever is not on the path between the two hosts has one chance in 2^128. Hosts of
//! other systems, and routers, that quote no more than eight bytes of a datagram (RFC 792) are not believed either:
//! processes there are found out by retransmission alone. Whoever is on the path sees probes and can answer them: a NIC
//! that seals its packets asks within its own machine only.
//!
//! What it does not see: a host that is gone, or one whose firewall keeps silent (an answer is needed); a process
//! whose port has been taken by another NIC at once; and a process that has left the port to a child.
//!
//! Packets cost nothing here: queue pairs count what they receive anyway, and the counts are compared.

use std::collections::BTreeMap;

use rnic_base::{Duration, Psn, Time};
use rnic_engine::PeerId;
use rnic_wire::{Addresses, Format, Headers, ICRC_LEN, Packet, PacketFlags, Qpn, codec, icrc};

/// A UDP port of a peer: where a process lives.
pub(crate) type Place = (PeerId, u16);

/// What is known of the processes that queue pairs are connected to.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    watched: BTreeMap<Place, Watched>,
    /// When to look next; `None` while no queue pair is connected.
    due: Option<Time>,
    /// When to look at all of them next, not only at those that seem to be gone.
    all_due: Time,
    /// The place that was probed last, when there were more than are probed at once.
    last: Option<Place>,
}

/// One such process.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// What its queue pairs had sent when it was looked at last, packets.
    heard: u64,
    /// What the probe says that is under way.
    asked: Option<Nonce>,
    /// Probes in a row that were answered with "nobody is here".
    refusals: u32,
    /// When the last of them was.
    refused_at: Time,
}

impl Liveness {
    /// Returns when to compare counts next.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// The number of a peer is about to be somebody else's.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.watched.retain(|(known, _), _| *known != peer);
    }

    /// Compares with what has been heard by now; answers whom to ask.
    pub(crate) fn look(&mut self, now: Time, heard: &BTreeMap<Place, u64>) -> Vec<Place> {
        let is_full = now >= self.all_due;
        self.watched.retain(|place, _| heard.contains_key(place));
        let mut silent = Vec::new();
        for (place, heard) in heard {
            let new = Watched { heard: *heard, asked: None, refusals: 0, refused_at: now };
            let Some(known) = self.watched.get_mut(place) else {
                self.watched.insert(*place, new);
                continue;
            };
            if known.heard != *heard || (known.refusals > 0 && now.since(known.refused_at) > REFUSAL_STANDS) {
                *known = new;
            } else if is_full || known.refusals > 0 {
                silent.push(*place);
            }
        }
        if is_full {
            self.all_due = now + LOOK_EVERY;
        }
        let chosen = self.choose(silent);
        let suspects = self.watched.values().any(|known| known.refusals > 0);
        let next = if suspects { self.all_due.min(now + ASK_AGAIN_AFTER) } else { self.all_due };
        self.due = (!self.watched.is_empty()).then_some(next);
        chosen
    }

    /// Those that are asked now: all, or some, beginning after the last one.
    fn choose(&mut self, mut silent: Vec<Place>) -> Vec<Place> {
        if silent.len() > PROBES_AT_ONCE {
            let first = self.last.map_or(0, |last| silent.partition_point(|place| *place <= last));
            silent.rotate_left(first);
            silent.truncate(PROBES_AT_ONCE);
            self.last = silent.last().copied();
        }
        silent
    }

    /// A probe with this in it is about to leave.
    pub(crate) fn ask(&mut self, place: Place, nonce: Nonce) {
        self.watched.entry(place).and_modify(|known| known.asked = Some(nonce));
    }

    /// Nobody is at UDP port `port` of these peers, says somebody who has seen the probe with `nonce`: those that this
    /// has been said of often enough.
    pub(crate) fn refuse(&mut self, now: Time, peers: &[PeerId], port: u16, nonce: &Nonce) -> Vec<Place> {
        let mut gone = Vec::new();
        for place in peers.iter().map(|peer| (*peer, port)) {
            let Some(known) = self.watched.get_mut(&place) else { continue };
            if known.asked.take_if(|asked| asked == nonce).is_none() {
                continue;
            }
            known.refusals += 1;
            known.refused_at = now;
            if known.refusals >= REFUSALS {
                gone.push(place);
            }
            let soon = now + ASK_AGAIN_AFTER;
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
        gone
    }

    /// Begins to watch, when the first queue pair has been connected.
    pub(crate) fn start(&mut self, now: Time) {
        if self.due.is_none() {
            let due = now + LOOK_EVERY;
            (self.due, self.all_due) = (Some(due), due);
        }
    }

    /// Forgets a process that is gone; returns the packets that had come from it when it was looked at last.
    pub(crate) fn remove(&mut self, place: Place) -> Option<u64> {
        self.watched.remove(&place).map(|known| known.heard)
    }
}

/// What is in a probe that nobody can know who has not seen it.
pub(crate) type Nonce = [u8; 16];

/// A probe: a congestion notification, with the nonce in its reserved bytes.
pub(crate) fn probe(way: &Addresses, nonce: &Nonce) -> Vec<u8> {
    let flags = PacketFlags { becn: true, ..PacketFlags::default() };
    let packet = Packet { dest_qpn: PROBED, psn: Psn::new(0), flags, payload_len: 0, headers: Headers::Cnp };
    let mut bytes = Vec::new();
    codec::assemble(Format::RoceV2, &packet, &[], way, &mut bytes).expect("a probe is a packet");
    bytes[NONCE].copy_from_slice(nonce);
    let (len, covered) = (bytes.len() as u32, bytes.len() - ICRC_LEN);
    let icrc = icrc::Icrc::new(way, len, &bytes[..covered]).finish();
    bytes[covered..].copy_from_slice(&icrc);
    bytes
}

/// The nonce of the probe that begins so, if it is one and long enough.
pub(crate) fn quoted_nonce(quoted: &[u8]) -> Option<Nonce> {
    let is_probe = quoted.get(5..8)? == &PROBED.get().to_be_bytes()[1..];
    quoted.get(NONCE)?.try_into().ok().filter(|_| is_probe)
}

/// Returns whether both ends of `way` are on this machine: nobody outside it can be heard in the name of either.
pub(crate) fn is_here(way: &Addresses) -> bool {
    way.dst().ip().is_loopback() || way.dst().ip() == way.src().ip()
}

/// Whether a packet is a probe.
#[inline]
pub(crate) fn is_probe(packet: &Packet) -> bool {
    packet.dest_qpn == PROBED && packet.headers == Headers::Cnp
}

/// The queue pair that probes are for: not one of management, and by its number on port 0, where nobody lives.
const PROBED: Qpn = Qpn::new(2);

/// Where the nonce is: behind the base transport header.
const NONCE: std::ops::Range<usize> = 12..28;

/// How long somebody may be silent before being asked, and how often he is asked then: an idle program is woken as
/// often, and a dead one is found in little more.
const LOOK_EVERY: Duration = Duration::from_ms(500);

/// How soon to ask again after "nobody is here".
const ASK_AGAIN_AFTER: Duration = Duration::from_ms(150);

/// So many answers in a row are believed: a single one may come from a network that is being changed.
const REFUSALS: u32 = 3;

/// How long an answer counts when no other follows. Hosts send a few such messages a second to each other host, so some
/// probes of many stay without answer.
const REFUSAL_STANDS: Duration = Duration::from_secs(10);

/// Probes that one call sends, at most: less than a millisecond's worth.
const PROBES_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests;
