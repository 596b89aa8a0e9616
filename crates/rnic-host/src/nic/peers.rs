//! The peers of a NIC: acquired and released by the callers that connect queue pairs.

use std::net::{IpAddr, SocketAddr};

use rnic_engine::PeerId;
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, Qpn};

use super::device::Device;
use crate::bypass::{is_own_address, ring_window};
use crate::config::NicConfig;
use crate::error::NicError;
use crate::impair::{Impairment, PeerImpairment};
use crate::link::Ports;
use crate::mtu::{falcon_wire_mtu, ib_mtu, wire_mtu};
use crate::notice::Notice;
use crate::ports::{is_port_of_nic, port_of};
use crate::sys::{self, Route};
use crate::window;

impl Device {
    /// See [`Nic::acquire_peer`](super::Nic::acquire_peer).
    pub(super) fn acquire_peer(&mut self, address: SocketAddr) -> Result<PeerId, NicError> {
        let (addresses, _) = self.addresses_to(address)?;
        self.acquire_peer_at(&addresses)
    }

    /// See [`Nic::release_peer`](super::Nic::release_peer).
    ///
    /// # Panics
    /// When the peer is not acquired.
    pub(super) fn release_peer(&mut self, peer: PeerId) {
        if self.link.peers.release(peer) {
            self.link.credits.forget_peer(peer);
            self.settle_credits();
            self.engine.set_peer_limit(peer, None);
            self.keepalive.forget(peer);
            if let Some(bypass) = &mut self.link.bypass {
                bypass.forget_peer(peer);
            }
        }
    }

    /// Returns the number of the peer with `addresses`; creates the peer if it has not been acquired yet.
    ///
    /// # Errors
    /// When there are too many peers.
    pub(super) fn acquire_peer_at(&mut self, addresses: &Addresses) -> Result<PeerId, NicError> {
        let Self { link, config, .. } = self;
        let from = link.source_of(addresses);
        let make = |number| make_impairment(config, number);
        link.peers.acquire(addresses, from, make).ok_or(NicError::TooManyPeers)
    }

    /// See [`Nic::set_impairment`](super::Nic::set_impairment).
    pub(super) fn set_impairment(&mut self, impairment: Impairment) {
        self.config.impairment = impairment;
        self.link.peers.impair_all(|number| make_impairment(&self.config, number));
    }

    /// Returns the path to `address`: the local and the remote address, and the properties of the kernel's route.
    pub(super) fn addresses_to(&self, address: SocketAddr) -> Result<(Addresses, Route), NicError> {
        if self.config.shared && !self.config.real_roce_peers {
            return Err(NicError::Mode(
                "this call requires a NIC with its own address (NicConfig::at); a shared NIC (NicConfig::shared) has \
                 no connection manager, and its peers are hosts (acquire_host)",
            ));
        }
        let address = self.link.peer_at(address);
        let local = self.link.lanes[self.link.lane_of(address.ip())].sender().local_addr();
        if local.is_ipv4() != address.is_ipv4() {
            return Err(NicError::IpVersion(address));
        }
        let route = sys::route(local, address)
            .map_err(|error| NicError::System { doing: "determining the route to the peer", error })?;
        let source = SocketAddr::new(route.source, local.port());
        let addresses = Addresses::new(source, address).map_err(|_| NicError::IpVersion(address))?;
        Ok((addresses, route))
    }

    /// See [`Nic::acquire_host`](super::Nic::acquire_host).
    pub(super) fn acquire_host(&mut self, remote: IpAddr, local: Option<IpAddr>) -> Result<PeerId, NicError> {
        if !self.config.shared {
            return Err(NicError::Mode(
                "this call requires a shared NIC (NicConfig::shared); on a NIC with its own address use acquire_peer, \
                 with the peer's address and port",
            ));
        }
        let to = SocketAddr::new(remote.to_canonical(), UDP_PORT);
        let carrying = self.link.lanes.iter().find(|lane| lane.carries(to.ip())).map(|lane| lane.sender().local_addr());
        let source = carrying.ok_or(NicError::IpVersion(to))?;
        let from = local.map_or(source.ip(), |ip| ip.to_canonical());
        if from.is_ipv4() != to.is_ipv4() {
            return Err(NicError::IpVersion(to));
        }
        let system = |error| NicError::System { doing: "determining the route to the peer", error };
        let route = sys::route(SocketAddr::new(from, 0), to).map_err(system)?;
        let addresses = Addresses::new(SocketAddr::new(route.source, source.port()), to);
        let addresses = addresses.map_err(|_| NicError::IpVersion(to))?;
        let mtu_of = if self.config.carries_falcon { falcon_wire_mtu } else { wire_mtu };
        let mtu = mtu_of(route.mtu_bytes, addresses.ip_version(), self.config.mtu_max_bytes);
        let mtu = mtu.ok_or(NicError::PathMtuTooSmall { to: remote, mtu_bytes: route.mtu_bytes })?;
        let mtu = if self.config.real_roce_peers { ib_mtu(mtu) } else { mtu };
        let peer = self.acquire_peer_at(&addresses)?;
        let is_new = self.link.peers.get(peer).wire_mtu == 0;
        if is_new {
            let is_local = self.link.bypass.is_some() && is_own_address(to.ip());
            let known = self.link.peers.get_mut(peer);
            (known.wire_mtu, known.is_local) = (mtu, is_local);
            self.share_windows();
        }
        Ok(peer)
    }

    /// Divides the total number of packets that may be in flight among all peers.
    fn share_windows(&mut self) {
        let peers = self.link.peers.len();
        for id in self.link.peers.ids() {
            let peer = self.link.peers.get(id);
            let window = window::share(self.receive_window(peer.wire_mtu), peers);
            let window = if peer.is_local { window.min(ring_window(peer.wire_mtu)) } else { window };
            self.engine.set_peer_limit(id, Some(u64::from(window)));
        }
    }

    /// Warns when a queue pair is about to be connected to a number that cannot belong to an OpenRNIC NIC.
    pub(super) fn warn_of_real_peer(&mut self, peer: PeerId, dest_qpn: Qpn) {
        if self.link.ports == Ports::OfQueuePair
            && !is_port_of_nic(port_of(dest_qpn))
            && let Some(known) = self.link.peers.look_up(peer)
        {
            let notice = Notice::RealRocePeer(known.addresses.dst().ip(), dest_qpn);
            self.link.notices.push(notice);
        }
    }
}

/// Returns the impairment of packets to the `number`-th peer, if any is configured.
fn make_impairment(config: &NicConfig, number: u64) -> Option<Box<PeerImpairment>> {
    let impairment = &config.impairment;
    (!impairment.is_none()).then(|| PeerImpairment::new(impairment, &config.name, number))
}
