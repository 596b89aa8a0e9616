//! Sends and receives credit messages: see [`crate::credit`].

use std::net::SocketAddr;

use rnic_base::{Psn, Time};
use rnic_engine::PeerId;
use rnic_wire::credit::Credit;
use rnic_wire::gsi::{GsiPacket, MAD_LEN};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, Qpn};

use super::device::Device;
use crate::credit::CreditRequest;
use crate::link::{Link, Ports};
use crate::ports::is_port_of_nic;
use crate::stats::RxDrop;

impl Device {
    /// Sends the credit requests that are due, and reports packets that no longer count as in flight to the engine.
    #[cold]
    pub(super) fn process_credits(&mut self, now: Time) {
        let Self { link, engine, secret, .. } = self;
        link.credits.create_requests(now, |peer| engine.peer_limit(peer), || secret.cookies.bits());
        while let Some(CreditRequest { peer, port, cookie }) = link.credits.pop_request() {
            let response_port = link.local_addr().port();
            let path = link.peers.get(peer).path(port);
            link.stats.credit_requests += 1;
            send_mad(link, now, &path, &Credit::Request { cookie, response_port }.emit());
        }
        link.stats.credit_given_up = link.credits.abandoned;
        self.settle_credits();
    }

    /// Retransmits the credit requests to which no response has arrived in time.
    #[cold]
    pub(super) fn retry_credit_requests(&mut self, now: Time) {
        self.link.credits.tick(now, || self.secret.cookies.bits());
    }

    /// Reports packets that no longer count as in flight to the engine.
    pub(super) fn settle_credits(&mut self) {
        while let Some((peer, packets)) = self.link.credits.pop_settled() {
            self.engine.settle(peer, packets);
        }
    }
}

/// Handles a received credit message with a valid checksum.
pub(super) fn receive_credit(link: &mut Link, now: Time, peer: Option<PeerId>, path: &Addresses, message: Credit) {
    match message {
        Credit::Response { cookie } => {
            if !peer.is_some_and(|peer| link.credits.on_response(now, peer, cookie)) {
                link.stats.drop_datagram(RxDrop::Management);
            }
        }
        Credit::Request { cookie, response_port } => {
            // The sender retransmits a request that gets no response, so the request may be dropped here.
            let port = match link.ports {
                Ports::OfPeer => path.src().port(),
                Ports::OfQueuePair => response_port,
                Ports::RoceV2 => UDP_PORT,
            };
            if link.ports == Ports::OfQueuePair && !is_port_of_nic(port) {
                return link.stats.drop_datagram(RxDrop::Management);
            }
            let back = link.reply_addresses(path.dst().ip(), SocketAddr::new(path.src().ip(), port));
            if let Some(back) = back.filter(|_| !link.has_many_queued_responses()) {
                link.stats.credit_answers += 1;
                link.has_responses = true;
                send_mad(link, now, &back, &Credit::Response { cookie }.emit());
            }
        }
    }
}

/// Sends a management datagram. Its sequence number is constant, because no receiver checks it.
pub(super) fn send_mad(link: &mut Link, now: Time, path: &Addresses, mad: &[u8; MAD_LEN]) {
    let packet = GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(0), mad };
    link.queue_datagram(now, path, &packet.encode(path));
}
