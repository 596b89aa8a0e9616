//! Probes remote processes, and applies the results to queue pairs: see [`crate::keepalive`].

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;

use rnic_base::Time;
use rnic_engine::{PeerId, QpSnapshot, QpState, Service};
use rnic_wire::{Addresses, Qpn};
use socket2::SockAddr;

use super::device::Device;
use crate::keepalive::{Nonce, PeerProcess, is_here, probe, quoted_nonce};
use crate::marking::Marking;
use crate::sys::Outgoing;

impl Device {
    /// Starts the keepalive timer when a queue pair has been connected.
    pub(super) fn start_keepalive(&mut self) {
        if !self.config.real_roce_peers {
            self.keepalive.start(self.clock.now());
        }
    }

    /// Probes the processes that have been silent.
    #[cold]
    pub(super) fn probe_silent(&mut self, now: Time) {
        let heard = self.heard();
        for place in self.keepalive.compare(now, &heard) {
            let nonce = self.secret.cookies.bytes();
            self.keepalive.ask(place, nonce);
            self.send_probe(now, place, &nonce);
        }
    }

    /// Returns, for each remote process that connected queue pairs of this NIC have as peer and that may be probed, the
    /// number of packets that have arrived from its queue pairs.
    fn heard(&self) -> BTreeMap<PeerProcess, u64> {
        let mut heard = BTreeMap::new();
        for view in self.engine.queue_pairs().filter(|view| is_connected(view) && self.trusts_icmp_from(view.peer)) {
            let traffic = &view.traffic;
            let count: &mut u64 = heard.entry(self.process_of(&view)).or_default();
            let unused = traffic.packets_duplicate.wrapping_add(traffic.packets_dropped);
            *count = count.wrapping_add(traffic.packets_received).wrapping_add(unused);
        }
        heard
    }

    /// Returns whether unsealed messages from the address of `peer`'s host are trusted: with packet protection, an
    /// unsealed message counts only within this machine, where no other host can forge it.
    fn trusts_icmp_from(&self, peer: PeerId) -> bool {
        self.config.protection.is_none() || self.link.peers.look_up(peer).is_some_and(|peer| is_here(&peer.addresses))
    }

    fn send_probe(&mut self, now: Time, (peer, port): PeerProcess, nonce: &Nonce) {
        let link = &mut self.link;
        let Some(known) = link.peers.look_up(peer) else { return };
        let (to, from) = (known.way(port).dst(), known.from);
        let source = SocketAddr::new(known.addresses.src().ip(), link.local_addr().port());
        let Ok(addresses) = Addresses::new(source, to) else { return };
        let bytes = probe(&addresses, nonce);
        let (to, parts) = (SockAddr::from(to), [IoSlice::new(&bytes)]);
        let message = Outgoing { to: &to, from, parts: &parts, segment: None, marking: Marking::NONE };
        let socket = link.lanes[link.lane_of(addresses.dst().ip())].own();
        // The first error may be a pending one about an earlier datagram; that one is also in the error queue.
        let tries = (0..SEND_TRIES).map(|_| socket.send(&[message]));
        let failed = tries.take_while(Result::is_err).count();
        link.has_pending_errors |= failed > 0;
        if failed < SEND_TRIES {
            link.stats.probes_sent += 1;
            link.capture(now, &addresses, &bytes);
        }
    }

    /// Handles an error report that no process has the port of `address`; `quoted` is the beginning of the datagram
    /// that the report quotes.
    pub(super) fn on_port_unreachable(&mut self, now: Time, address: SocketAddr, quoted: &[u8]) {
        let Some(nonce) = quoted_nonce(quoted).filter(|_| self.keepalive.next_due().is_some()) else { return };
        let peers: Vec<PeerId> = self.link.peers.at(self.link.peer_at(address)).collect();
        let gone = self.keepalive.refuse(now, &peers, address.port(), &nonce);
        if gone.is_empty() {
            return;
        }
        let heard = self.heard();
        for place in gone {
            // Otherwise a packet has arrived after all, since the last probe but one.
            if self.keepalive.remove(place) == heard.get(&place).copied() {
                self.give_up_on(now, place);
            }
        }
    }

    /// Fails the connections to `place`, whose process no longer exists.
    fn give_up_on(&mut self, now: Time, place: PeerProcess) {
        let concerned = |view: &QpSnapshot| is_connected(view) && self.process_of(view) == place;
        let qpns: Vec<Qpn> = self.engine.queue_pairs().filter(concerned).map(|view| view.info.number).collect();
        for qpn in qpns {
            self.engine.give_up_on_peer(qpn).expect("it has just been seen");
        }
        if let Some(bypass) = &mut self.link.bypass {
            bypass.give_up(now, place);
        }
        self.link.stats.peers_gone += 1;
    }

    /// Returns the location of the process at the remote end of a queue pair.
    fn process_of(&self, view: &QpSnapshot) -> PeerProcess {
        // A peer stays in the table while a queue pair is connected to it.
        let port = self.link.peers.look_up(view.peer).map_or(0, |peer| self.link.port_of(peer, view.info.dest_qpn));
        (view.peer, port)
    }
}

fn is_connected(view: &QpSnapshot) -> bool {
    let has_peer = !matches!(view.info.state, QpState::Reset | QpState::Init | QpState::Error);
    has_peer && view.info.service != Service::UnreliableDatagram
}

/// Attempts to send one probe: several pending errors may wait on one socket.
const SEND_TRIES: usize = 4;
