//! Probes remote processes, and applies the results to queue pairs: see [`crate::keepalive`].

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;

use rnic_base::Time;
use rnic_engine::{PeerId, QpSnapshot, QpState, Service};
use rnic_wire::{Addresses, Qpn};
use socket2::SockAddr;

use super::device::Device;
use crate::ip_fields::PackedIpFields;
use crate::keepalive::{Nonce, PeerProcess, is_same_host, probe, quoted_nonce};
use crate::sys::Outgoing;

impl Device {
    /// Starts the keepalive timer when a queue pair has been connected.
    pub(super) fn start_keepalive(&mut self) {
        if !self.config.real_roce_peers {
            self.keepalive.start(self.clock.now());
        }
    }

    /// Probes the processes from which no packets have arrived for some time.
    #[cold]
    pub(super) fn probe_silent(&mut self, now: Time) {
        let packets_received = self.packets_received();
        for process in self.keepalive.compare(now, &packets_received) {
            let nonce = self.secret.cookies.bytes();
            self.keepalive.note_probe(process, nonce);
            self.send_probe(now, process, &nonce);
        }
    }

    /// Returns, for each remote process to which queue pairs of this NIC are connected and which may be probed, the
    /// number of packets that have arrived from its queue pairs.
    fn packets_received(&self) -> BTreeMap<PeerProcess, u64> {
        let mut packets_received = BTreeMap::new();
        for view in self.engine.queue_pairs().filter(|view| is_connected(view) && self.trusts_icmp_from(view.peer)) {
            let traffic = &view.traffic;
            let count: &mut u64 = packets_received.entry(self.process_of(&view)).or_default();
            let unused = traffic.packets_duplicate.wrapping_add(traffic.packets_dropped);
            *count = count.wrapping_add(traffic.packets_received).wrapping_add(unused);
        }
        packets_received
    }

    /// Returns whether ICMP messages about packets to `peer` are trusted. ICMP is not encrypted, so with packet
    /// protection it is trusted only if the peer is on this machine, where no other host can forge such messages.
    fn trusts_icmp_from(&self, peer: PeerId) -> bool {
        self.config.protection.is_none()
            || self.link.peers.look_up(peer).is_some_and(|peer| is_same_host(&peer.addresses))
    }

    fn send_probe(&mut self, now: Time, (peer, port): PeerProcess, nonce: &Nonce) {
        let link = &mut self.link;
        let Some(known) = link.peers.look_up(peer) else { return };
        let (to, from) = (known.path(port).dst(), known.from);
        let source = SocketAddr::new(known.addresses.src().ip(), link.local_addr().port());
        let Ok(addresses) = Addresses::new(source, to) else { return };
        let bytes = probe(&addresses, nonce);
        let (to, parts) = (SockAddr::from(to), [IoSlice::new(&bytes)]);
        let message = Outgoing { to: &to, from, parts: &parts, segment: None, ip_fields: PackedIpFields::NONE };
        let socket = link.lanes[link.lane_of(addresses.dst().ip())].own();
        // The first error may be a pending one that was caused by an earlier datagram; it is also in the error queue.
        let tries = (0..SEND_TRIES).map(|_| socket.send(&[message]));
        let failed = tries.take_while(Result::is_err).count();
        link.has_pending_errors |= failed > 0;
        if failed < SEND_TRIES {
            link.stats.probes_sent += 1;
            link.capture(now, &addresses, &bytes);
        }
    }

    /// Handles an error report that no process has bound the port of `address`; `quoted` is the start of the datagram
    /// that the report quotes.
    pub(super) fn on_port_unreachable(&mut self, now: Time, address: SocketAddr, quoted: &[u8]) {
        let Some(nonce) = quoted_nonce(quoted).filter(|_| self.keepalive.next_due().is_some()) else { return };
        let peers: Vec<PeerId> = self.link.peers.at(self.link.peer_at(address)).collect();
        let exited = self.keepalive.refuse(now, &peers, address.port(), &nonce);
        if exited.is_empty() {
            return;
        }
        let packets_received = self.packets_received();
        for process in exited {
            // If the counts differ, a packet has arrived after all, since the last probe but one.
            if self.keepalive.remove(process) == packets_received.get(&process).copied() {
                self.on_process_gone(now, process);
            }
        }
    }

    /// Fails the connections to `process`, which no longer exists.
    fn on_process_gone(&mut self, now: Time, process: PeerProcess) {
        let is_affected = |view: &QpSnapshot| is_connected(view) && self.process_of(view) == process;
        let qpns: Vec<Qpn> = self.engine.queue_pairs().filter(is_affected).map(|view| view.info.number).collect();
        for qpn in qpns {
            self.engine.on_peer_gone(qpn).expect("the queue pair exists");
        }
        if let Some(bypass) = &mut self.link.bypass {
            bypass.abandon(now, process);
        }
        self.link.stats.peers_gone += 1;
    }

    /// Returns the peer and port of the process at the remote end of a queue pair.
    fn process_of(&self, view: &QpSnapshot) -> PeerProcess {
        // A peer is not removed from the table while a queue pair is connected to it.
        let port = self.link.peers.look_up(view.peer).map_or(0, |peer| self.link.port_of(peer, view.info.dest_qpn));
        (view.peer, port)
    }
}

fn is_connected(view: &QpSnapshot) -> bool {
    let has_peer = !matches!(view.info.state, QpState::Reset | QpState::Init | QpState::Error);
    has_peer && view.info.service != Service::UnreliableDatagram
}

/// Number of attempts to send one probe: several pending errors may be queued on one socket, and each fails one
/// attempt.
const SEND_TRIES: usize = 4;
