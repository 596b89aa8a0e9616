//! Sends and receives credit messages: see [`crate::credit`].

use std::net::SocketAddr;

use rnic_base::{Psn, Time};
use rnic_engine::PeerId;
use rnic_wire::credit::Credit;
use rnic_wire::gsi::{GsiPacket, MAD_LEN};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, Qpn};

use super::device::Device;
use crate::credit::Ask;
use crate::link::{Link, Ports};
use crate::ports::is_port_of_nic;
use crate::stats::RxDrop;

impl Device {
    /// Sends the credit requests that are due, and returns settled credit to the engine.
    #[cold]
    pub(super) fn process_credits(&mut self, now: Time) {
        let Self { link, engine, secret, .. } = self;
        link.credits.ask(now, |peer| engine.peer_limit(peer), || secret.cookies.bits());
        while let Some(Ask { peer, port, cookie }) = link.credits.pop_ask() {
            let answer_port = link.local_addr().port();
            let way = link.peers.get(peer).way(port);
            link.stats.credit_requests += 1;
            send_mad(link, now, &way, &Credit::Request { cookie, answer_port }.emit());
        }
        link.stats.credit_given_up = link.credits.given_up;
        self.settle_credits();
    }

    /// Retransmits the credit requests that have not been answered in time.
    #[cold]
    pub(super) fn ask_again_for_credit(&mut self, now: Time) {
        self.link.credits.tick(now, || self.secret.cookies.bits());
    }

    /// Returns settled credit to the engine.
    pub(super) fn settle_credits(&mut self) {
        while let Some((peer, packets)) = self.link.credits.pop_settled() {
            self.engine.settle(peer, packets);
        }
    }
}

/// Handles a received credit message with a valid checksum.
pub(super) fn receive_credit(link: &mut Link, now: Time, peer: Option<PeerId>, way: &Addresses, message: Credit) {
    match message {
        Credit::Answer { cookie } => {
            if !peer.is_some_and(|peer| link.credits.answered(now, peer, cookie)) {
                link.stats.drop_datagram(RxDrop::Management);
            }
        }
        Credit::Request { cookie, answer_port } => {
            // A request without a response is retransmitted by its sender, so dropping it here needs no error reply.
            let port = match link.ports {
                Ports::OfPeer => way.src().port(),
                Ports::OfQueuePair => answer_port,
                Ports::RoceV2 => UDP_PORT,
            };
            if link.ports == Ports::OfQueuePair && !is_port_of_nic(port) {
                return link.stats.drop_datagram(RxDrop::Management);
            }
            let back = link.way_back(way.dst().ip(), SocketAddr::new(way.src().ip(), port));
            if let Some(back) = back.filter(|_| !link.is_crowded_by_answers()) {
                link.stats.credit_answers += 1;
                link.has_answers = true;
                send_mad(link, now, &back, &Credit::Answer { cookie }.emit());
            }
        }
    }
}

/// Sends a management datagram. Its sequence number is constant, because no receiver checks it.
pub(super) fn send_mad(link: &mut Link, now: Time, way: &Addresses, mad: &[u8; MAD_LEN]) {
    let packet = GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(0), mad };
    link.send_soon(now, way, &packet.encode(way));
}
