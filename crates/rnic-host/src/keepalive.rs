//! Detection of remote processes that have exited.
//!
//! A queue pair that only waits for receives sends no packets, so it cannot detect through retransmission timeouts
//! that the process at its remote end has been killed. The same is true if the peer only writes. But that process's
//! NIC had its own UDP port, which the kernel has closed, whether it shares its machine with other NICs or uses its
//! address alone. So a probe is sent to each port from which no packet has arrived for some time: if the port is
//! closed, its host responds with ICMP "port unreachable", and after some such responses in a row the queue pairs
//! that are connected to the process fail. The port of a process that is merely stopped remains open: its host drops
//! or queues the probe, and sends no response.
//!
//! A probe is a congestion notification packet (CNP) for a queue pair that cannot exist. It is sent from the NIC's
//! own port, because the kernel could report an error about a packet from the shared port 4791 to any of the NICs
//! that share it. Impairment is not applied to probes, because the loss of a probe has no meaning and packet loss
//! does not indicate that a process has exited. Probes are not encrypted either.
//!
//! **Proof.** Any host can send an ICMP message, and the kernel checks only its addresses and ports. But such a
//! message quotes the datagram to which it refers, and a probe carries 128 bits that were generated for it. A message
//! that does not quote them is ignored, so a host that is not on the path between the two hosts succeeds with a
//! probability of 2^-128. Some operating systems and routers quote only eight bytes of a datagram (RFC 792); their
//! messages are ignored too, so exited processes on such hosts are detected by retransmission timeouts alone. A host
//! on the path sees probes and can forge responses to them: a NIC that encrypts its packets sends probes within its
//! own machine only.
//!
//! Limits. The following are not detected: a host that is down, or whose firewall drops the response, because a
//! response is needed; a process whose port was immediately bound by another NIC; a process whose child still has the
//! port open.
//!
//! There is no cost per packet: queue pairs count received packets in any case, and these counts are compared.

use std::collections::BTreeMap;

use rnic_base::{Duration, Psn, Time};
use rnic_engine::PeerId;
use rnic_wire::{Addresses, Format, Headers, ICRC_LEN, Packet, PacketFlags, Qpn, codec, icrc};

/// A UDP port of a peer, which identifies a process.
pub(crate) type PeerProcess = (PeerId, u16);

/// Keepalive state of the processes to which queue pairs are connected.
#[derive(Debug, Default)]
pub(crate) struct Keepalive {
    watched: BTreeMap<PeerProcess, Watched>,
    /// Time of the next check; `None` while no queue pair is connected.
    due: Option<Time>,
    /// Time of the next check of all processes; checks before that cover only processes that seem to have exited.
    all_due: Time,
    /// Port that was probed last, if there were more ports than can be probed in one call.
    last: Option<PeerProcess>,
}

/// Keepalive state of one process.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Number of packets that the process had sent to local queue pairs at the last check.
    packets_received: u64,
    /// Nonce of the probe that is in flight.
    probe_nonce: Option<Nonce>,
    /// Number of consecutive probes to which the response was "port unreachable".
    refusals: u32,
    /// Time of the last such response.
    refused_at: Time,
}

impl Keepalive {
    /// Returns the time of the next comparison of packet counts.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// Removes a peer whose number is about to be reused.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.watched.retain(|(known, _), _| *known != peer);
    }

    /// Compares the packet counts with those of the last check; returns the ports to probe.
    pub(crate) fn compare(&mut self, now: Time, packets_received: &BTreeMap<PeerProcess, u64>) -> Vec<PeerProcess> {
        let is_full = now >= self.all_due;
        self.watched.retain(|process, _| packets_received.contains_key(process));
        let mut silent = Vec::new();
        for (process, packets_received) in packets_received {
            let new = Watched { packets_received: *packets_received, probe_nonce: None, refusals: 0, refused_at: now };
            let Some(known) = self.watched.get_mut(process) else {
                self.watched.insert(*process, new);
                continue;
            };
            if known.packets_received != *packets_received
                || (known.refusals > 0 && now.since(known.refused_at) > REFUSAL_VALID_FOR)
            {
                *known = new;
            } else if is_full || known.refusals > 0 {
                silent.push(*process);
            }
        }
        if is_full {
            self.all_due = now + PROBE_INTERVAL;
        }
        let chosen = self.choose(silent);
        let has_suspects = self.watched.values().any(|known| known.refusals > 0);
        let next = if has_suspects { self.all_due.min(now + PROBE_RETRY_INTERVAL) } else { self.all_due };
        self.due = (!self.watched.is_empty()).then_some(next);
        chosen
    }

    /// Returns the ports to probe now: all of `silent`, or if these are too many, a part of them, starting after the
    /// port that was probed last.
    fn choose(&mut self, mut silent: Vec<PeerProcess>) -> Vec<PeerProcess> {
        if silent.len() > PROBES_PER_CALL {
            let first = self.last.map_or(0, |last| silent.partition_point(|process| *process <= last));
            silent.rotate_left(first);
            silent.truncate(PROBES_PER_CALL);
            self.last = silent.last().copied();
        }
        silent
    }

    /// Records the nonce of a probe that is about to be sent.
    pub(crate) fn note_probe(&mut self, process: PeerProcess, nonce: Nonce) {
        self.watched.entry(process).and_modify(|known| known.probe_nonce = Some(nonce));
    }

    /// Handles a report that quotes the probe with `nonce`: UDP port `port` of one of these peers is closed. Returns
    /// the processes for which this has been reported often enough.
    pub(crate) fn refuse(&mut self, now: Time, peers: &[PeerId], port: u16, nonce: &Nonce) -> Vec<PeerProcess> {
        let mut exited = Vec::new();
        for process in peers.iter().map(|peer| (*peer, port)) {
            let Some(known) = self.watched.get_mut(&process) else { continue };
            if known.probe_nonce.take_if(|probe_nonce| probe_nonce == nonce).is_none() {
                continue;
            }
            known.refusals += 1;
            known.refused_at = now;
            if known.refusals >= REFUSALS_UNTIL_EXITED {
                exited.push(process);
            }
            let retry_at = now + PROBE_RETRY_INTERVAL;
            self.due = Some(self.due.map_or(retry_at, |due| due.min(retry_at)));
        }
        exited
    }

    /// Starts the checks when the first queue pair is connected.
    pub(crate) fn start(&mut self, now: Time) {
        if self.due.is_none() {
            let due = now + PROBE_INTERVAL;
            (self.due, self.all_due) = (Some(due), due);
        }
    }

    /// Removes a process that has exited; returns the number of packets that it had sent at the last check.
    pub(crate) fn remove(&mut self, process: PeerProcess) -> Option<u64> {
        self.watched.remove(&process).map(|known| known.packets_received)
    }
}

/// Random value in a probe: only a host that has seen the probe can know it.
pub(crate) type Nonce = [u8; 16];

/// Returns a probe: a congestion notification packet with the nonce in its reserved bytes.
pub(crate) fn probe(path: &Addresses, nonce: &Nonce) -> Vec<u8> {
    let flags = PacketFlags { becn: true, ..PacketFlags::default() };
    let packet = Packet { dest_qpn: PROBE_DEST_QPN, psn: Psn::new(0), flags, payload_len: 0, headers: Headers::Cnp };
    let mut bytes = Vec::new();
    codec::assemble(Format::RoceV2, &packet, &[], path, &mut bytes).expect("a probe is a packet");
    bytes[NONCE_RANGE].copy_from_slice(nonce);
    let (len, covered) = (bytes.len() as u32, bytes.len() - ICRC_LEN);
    let icrc = icrc::Icrc::new(path, len, &bytes[..covered]).finish();
    bytes[covered..].copy_from_slice(&icrc);
    bytes
}

/// Returns the nonce from a quoted datagram, if the datagram is a probe and the quote is long enough.
pub(crate) fn quoted_nonce(quoted: &[u8]) -> Option<Nonce> {
    let is_probe = quoted.get(5..8)? == &PROBE_DEST_QPN.get().to_be_bytes()[1..];
    quoted.get(NONCE_RANGE)?.try_into().ok().filter(|_| is_probe)
}

/// Returns whether both addresses of `path` belong to this machine, so that no other host can send packets from these
/// addresses.
pub(crate) fn is_same_host(path: &Addresses) -> bool {
    path.dst().ip().is_loopback() || path.dst().ip() == path.src().ip()
}

/// Returns whether a packet is a probe.
#[inline]
pub(crate) fn is_probe(packet: &Packet) -> bool {
    packet.dest_qpn == PROBE_DEST_QPN && packet.headers == Headers::Cnp
}

/// Destination queue pair of probes: it is not a management queue pair, and its number encodes port 0, which no
/// process can use.
const PROBE_DEST_QPN: Qpn = Qpn::new(2);

/// Byte range of the nonce in the packet: directly after the base transport header (BTH).
const NONCE_RANGE: std::ops::Range<usize> = 12..28;

/// Time without packets after which a process is probed, and interval of the probes after that. An idle program is
/// woken this often, and an exited process is detected only slightly later than this.
const PROBE_INTERVAL: Duration = Duration::from_ms(500);

/// Time until the next probe after "port unreachable".
const PROBE_RETRY_INTERVAL: Duration = Duration::from_ms(150);

/// Number of consecutive responses after which a process counts as exited: a single one may be caused by a change in
/// the network.
const REFUSALS_UNTIL_EXITED: u32 = 3;

/// Time after which a response is discarded if no other follows. A host sends only a few ICMP messages a second to each
/// other host, so if many probes are sent, some get no response.
const REFUSAL_VALID_FOR: Duration = Duration::from_secs(10);

/// Maximum number of probes sent by one call, which takes less than a millisecond.
const PROBES_PER_CALL: usize = 256;

#[cfg(test)]
mod tests;
