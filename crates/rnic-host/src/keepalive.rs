//! Detection of remote processes that have exited.
//!
//! A queue pair that only waits for receives sends nothing, so it would never learn that the process at its remote end
//! has been killed, nor would one whose peer only writes. But that process's NIC had its own UDP port, which the kernel
//! has closed, whether it shares its machine with others or has its address for itself. So a port from which no packet
//! has arrived for a while is sent a probe: if the port is closed, its host responds with ICMP "port unreachable", and
//! after some such responses in a row the queue pairs that are connected there fail. A process that is merely stopped
//! keeps its port: its host drops the probe, or queues it, and sends nothing.
//!
//! A probe is a congestion notification for a queue pair that cannot exist. It is sent from the NIC's own port, because
//! the kernel could report an error about a packet from the shared port 4791 to any of the NICs that share it. It is
//! not impaired: loss of a probe means nothing, and packet loss does not indicate that a process has exited. It is not
//! sealed either.
//!
//! **Proof.** Any host can send an ICMP message, and the kernel compares only addresses and ports. But such a message
//! quotes the datagram that it is about, and a probe carries 128 bits that were generated for it. A message that does
//! not quote them is ignored, so a host that is not on the path between the two hosts has one chance in 2^128. Messages
//! of hosts with other systems, and of routers, that quote no more than eight bytes of a datagram (RFC 792) are ignored
//! too: exited processes there are detected by retransmission timeouts alone. A host on the path sees probes and can
//! respond to them: a NIC that seals its packets sends probes within its own machine only.
//!
//! Limits: a host that is down, or one whose firewall drops the response (a response is needed); a process whose port
//! has immediately been bound by another NIC; and a process that has left the port to a child are not detected.
//!
//! There is no cost per packet: queue pairs count the packets they receive anyway, and the counts are compared.

use std::collections::BTreeMap;

use rnic_base::{Duration, Psn, Time};
use rnic_engine::PeerId;
use rnic_wire::{Addresses, Format, Headers, ICRC_LEN, Packet, PacketFlags, Qpn, codec, icrc};

/// A UDP port of a peer, which identifies a process.
pub(crate) type PeerProcess = (PeerId, u16);

/// State of the processes to which queue pairs are connected.
#[derive(Debug, Default)]
pub(crate) struct Keepalive {
    watched: BTreeMap<PeerProcess, Watched>,
    /// Time of the next check; `None` while no queue pair is connected.
    due: Option<Time>,
    /// Time of the next check of all processes, not only of those that seem to have exited.
    all_due: Time,
    /// The port that was probed last, when there were more than are probed in one call.
    last: Option<PeerProcess>,
}

/// State of one such process.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Number of packets that its queue pairs had sent at the last check.
    heard: u64,
    /// Nonce of the probe that is in flight.
    asked: Option<Nonce>,
    /// Number of consecutive probes answered with "port unreachable".
    refusals: u32,
    /// Time of the last such response.
    refused_at: Time,
}

impl Keepalive {
    /// Returns the time of the next comparison of counts.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// Removes a peer whose number is about to be reused.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.watched.retain(|(known, _), _| *known != peer);
    }

    /// Compares the packet counts with those of the last check; returns the ports to probe.
    pub(crate) fn compare(&mut self, now: Time, heard: &BTreeMap<PeerProcess, u64>) -> Vec<PeerProcess> {
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

    /// Returns the ports to probe now: all of them, or some, starting after the last one probed.
    fn choose(&mut self, mut silent: Vec<PeerProcess>) -> Vec<PeerProcess> {
        if silent.len() > PROBES_AT_ONCE {
            let first = self.last.map_or(0, |last| silent.partition_point(|place| *place <= last));
            silent.rotate_left(first);
            silent.truncate(PROBES_AT_ONCE);
            self.last = silent.last().copied();
        }
        silent
    }

    /// Records the nonce of a probe that is about to be sent.
    pub(crate) fn ask(&mut self, place: PeerProcess, nonce: Nonce) {
        self.watched.entry(place).and_modify(|known| known.asked = Some(nonce));
    }

    /// Handles a report that quotes the probe with `nonce`: UDP port `port` of these peers is closed. Returns those for
    /// which this has been reported often enough.
    pub(crate) fn refuse(&mut self, now: Time, peers: &[PeerId], port: u16, nonce: &Nonce) -> Vec<PeerProcess> {
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

    /// Starts the checks, when the first queue pair has been connected.
    pub(crate) fn start(&mut self, now: Time) {
        if self.due.is_none() {
            let due = now + LOOK_EVERY;
            (self.due, self.all_due) = (Some(due), due);
        }
    }

    /// Removes a process that has exited; returns the number of packets that had come from it at the last check.
    pub(crate) fn remove(&mut self, place: PeerProcess) -> Option<u64> {
        self.watched.remove(&place).map(|known| known.heard)
    }
}

/// Random value in a probe that only a host that has seen the probe can know.
pub(crate) type Nonce = [u8; 16];

/// Returns a probe: a congestion notification, with the nonce in its reserved bytes.
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

/// Returns the nonce of a quoted datagram, if it is a probe and the quote is long enough.
pub(crate) fn quoted_nonce(quoted: &[u8]) -> Option<Nonce> {
    let is_probe = quoted.get(5..8)? == &PROBED.get().to_be_bytes()[1..];
    quoted.get(NONCE)?.try_into().ok().filter(|_| is_probe)
}

/// Returns whether both ends of `way` are on this machine, so that no other host can send packets with either address.
pub(crate) fn is_here(way: &Addresses) -> bool {
    way.dst().ip().is_loopback() || way.dst().ip() == way.src().ip()
}

/// Returns whether a packet is a probe.
#[inline]
pub(crate) fn is_probe(packet: &Packet) -> bool {
    packet.dest_qpn == PROBED && packet.headers == Headers::Cnp
}

/// Destination queue pair of probes: not a management queue pair, and its number encodes port 0, which no process has.
const PROBED: Qpn = Qpn::new(2);

/// Position of the nonce: behind the base transport header.
const NONCE: std::ops::Range<usize> = 12..28;

/// Interval of silence after which a process is probed, and of the probes after that: an idle program is woken as
/// often, and an exited one is detected in little more.
const LOOK_EVERY: Duration = Duration::from_ms(500);

/// Time until the next probe after "port unreachable".
const ASK_AGAIN_AFTER: Duration = Duration::from_ms(150);

/// Number of consecutive responses that are believed: a single one may come from a network that is being changed.
const REFUSALS: u32 = 3;

/// Time for which a response counts when no other follows. Hosts send only a few such messages a second to each other
/// host, so some of many probes stay without response.
const REFUSAL_STANDS: Duration = Duration::from_secs(10);

/// Maximum number of probes sent by one call: less than a millisecond of work.
const PROBES_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests;
