//! Probes to the processes at the other ends, and what their answers do to queue pairs: see [`crate::liveness`].

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;

use rnic_base::Time;
use rnic_engine::{PeerId, QpState, QpView, Service};
use rnic_wire::{Addresses, Qpn};
use socket2::SockAddr;

use super::device::Device;
use crate::liveness::{Nonce, Place, is_here, probe, quoted_nonce};
use crate::marking::Marking;
use crate::sys::Outgoing;

impl Device {
    /// A queue pair has been connected.
    pub(super) fn watch_life(&mut self) {
        if !self.config.real_roce_peers {
            self.liveness.start(self.clock.now());
        }
    }

    /// Probes those who have been silent.
    #[cold]
    pub(super) fn probe_silent(&mut self, now: Time) {
        let heard = self.heard();
        for place in self.liveness.look(now, &heard) {
            let nonce = self.secret.cookies.bytes();
            self.liveness.ask(place, nonce);
            self.send_probe(now, place, &nonce);
        }
    }

    /// Packets that have come from the queue pairs of each process that ours are connected to, and that may be probed.
    fn heard(&self) -> BTreeMap<Place, u64> {
        let mut heard = BTreeMap::new();
        for view in self.engine.queue_pairs().filter(|view| is_connected(view) && self.would_believe(view.peer)) {
            let traffic = &view.traffic;
            let count: &mut u64 = heard.entry(self.place_of(&view)).or_default();
            let unused = traffic.packets_duplicate.wrapping_add(traffic.packets_dropped);
            *count = count.wrapping_add(traffic.packets_received).wrapping_add(unused);
        }
        heard
    }

    /// Whether what is said in the name of `peer`'s host is to be believed: where packets are sealed, what is not
    /// sealed counts within this machine alone, where nobody else can say it.
    fn would_believe(&self, peer: PeerId) -> bool {
        self.config.protection.is_none() || self.link.peers.look_up(peer).is_some_and(|peer| is_here(&peer.addresses))
    }

    fn send_probe(&mut self, now: Time, (peer, port): Place, nonce: &Nonce) {
        let link = &mut self.link;
        let Some(known) = link.peers.look_up(peer) else { return };
        let (to, from) = (known.way(port).dst(), known.from);
        let source = SocketAddr::new(known.addresses.src().ip(), link.local_addr().port());
        let Ok(addresses) = Addresses::new(source, to) else { return };
        let bytes = probe(&addresses, nonce);
        let (to, parts) = (SockAddr::from(to), [IoSlice::new(&bytes)]);
        let message = Outgoing { to: &to, from, parts: &parts, segment: None, marking: Marking::NONE };
        let socket = link.lanes[link.lane_of(addresses.dst().ip())].own();
        // The first error may be a late one about an earlier datagram, which is in the queue of errors all the same.
        let tries = (0..SEND_TRIES).map(|_| socket.send(&[message]));
        let failed = tries.take_while(Result::is_err).count();
        link.has_late_errors |= failed > 0;
        if failed < SEND_TRIES {
            link.stats.probes_sent += 1;
            link.capture(now, &addresses, &bytes);
        }
    }

    /// Nobody has the port of `address`, says a report that quotes a datagram of ours that began with `quoted`.
    pub(super) fn note_refusal(&mut self, now: Time, address: SocketAddr, quoted: &[u8]) {
        let Some(nonce) = quoted_nonce(quoted).filter(|_| self.liveness.next_due().is_some()) else { return };
        let peers: Vec<PeerId> = self.link.peers.at(self.link.peer_at(address)).collect();
        let gone = self.liveness.refuse(now, &peers, address.port(), &nonce);
        if gone.is_empty() {
            return;
        }
        let heard = self.heard();
        for place in gone {
            // Otherwise something has come after all, since the last probe but one.
            if self.liveness.remove(place) == heard.get(&place).copied() {
                self.give_up_on(now, place);
            }
        }
    }

    /// Nobody is at `place` any more.
    fn give_up_on(&mut self, now: Time, place: Place) {
        let concerned = |view: &QpView| is_connected(view) && self.place_of(view) == place;
        let qpns: Vec<Qpn> = self.engine.queue_pairs().filter(concerned).map(|view| view.info.number).collect();
        for qpn in qpns {
            self.engine.give_up_on_peer(qpn).expect("it has just been seen");
        }
        if let Some(bypass) = &mut self.link.bypass {
            bypass.give_up(now, place);
        }
        self.link.stats.peers_gone += 1;
    }

    /// Where the process at the far end of a queue pair lives.
    fn place_of(&self, view: &QpView) -> Place {
        // The peer of a queue pair that is connected stays known.
        let port = self.link.peers.look_up(view.peer).map_or(0, |peer| self.link.port_of(peer, view.info.dest_qpn));
        (view.peer, port)
    }
}

fn is_connected(view: &QpView) -> bool {
    let has_peer = !matches!(view.info.state, QpState::Reset | QpState::Init | QpState::Error);
    has_peer && view.info.service != Service::UnreliableDatagram
}

/// Several late errors may wait on one socket.
const SEND_TRIES: usize = 4;
