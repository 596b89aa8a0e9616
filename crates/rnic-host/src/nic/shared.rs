//! A NIC that shares its machine's addresses with others: hosts as peers, numbers that name ports, and what somebody
//! needs who drives the NIC from an event loop of their own.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rnic_base::limits::QUEUE_PAIRS_MAX;
use rnic_base::{Duration, Time};
use rnic_engine::{PeerId, QpAttributes, QpConnection, ResourceError};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, Qpn};

use super::{HELD_UP_WAIT, Nic};
use crate::bypass::{is_own_address, ring_window};
use crate::cm::GsiPort;
use crate::error::NicError;
use crate::link::lane::Lane;
use crate::link::{Link, Ports};
use crate::mtu::{falcon_wire_mtu, ib_mtu, wire_mtu};
use crate::notice::Notice;
use crate::ports::{is_port_of_nic, number_on, port_of, queue_pairs_of};
use crate::sys;
use crate::window;

impl Nic {
    /// The number of the peer that has the address `remote`, for queue pairs that are connected without the connection
    /// manager; packets go there from our address `local`, or the one that the system chooses. It stays until
    /// [`Nic::release_peer`].
    ///
    /// Nothing is agreed on: both ends take the wire MTU from the path ([`Nic::wire_mtu_to`]), and each takes the other
    /// for its like ([`crate::Notice::PeerDiffers`] tells when it is not): what may be under way to a peer is what this
    /// NIC's own receive buffer takes, shared by the peers that it has now. A peer with a smaller buffer, or with many
    /// more peers, loses packets, which are sent again.
    ///
    /// # Errors
    /// When there is no way to it, `local` is not ours, there are too many peers, or this NIC has one address only.
    pub fn acquire_host(&mut self, remote: IpAddr, local: Option<IpAddr>) -> Result<PeerId, NicError> {
        if !self.config.shared {
            return Err(NicError::Mode(
                "has one address knows peers by address and port (acquire_peer); one that shares its machine \
                 (NicConfig::shared) has hosts as peers",
            ));
        }
        let to = SocketAddr::new(remote.to_canonical(), UDP_PORT);
        let carrying = self.link.lanes.iter().find(|lane| lane.carries(to.ip())).map(|lane| lane.sender().local_addr());
        let source = carrying.ok_or(NicError::IpVersion(to))?;
        let from = local.map_or(source.ip(), |ip| ip.to_canonical());
        if from.is_ipv4() != to.is_ipv4() {
            return Err(NicError::IpVersion(to));
        }
        let system = |error| NicError::System { doing: "looking for a way to the peer", error };
        let route = sys::route(SocketAddr::new(from, 0), to).map_err(system)?;
        let addresses = Addresses::new(SocketAddr::new(route.source, source.port()), to);
        let addresses = addresses.map_err(|_| NicError::IpVersion(to))?;
        let mtu_of = if self.config.carries_falcon { falcon_wire_mtu } else { wire_mtu };
        let mtu = mtu_of(route.mtu_bytes, addresses.ip_version(), self.config.mtu_max_bytes);
        let mtu = mtu.ok_or(NicError::PathTooNarrow { to: remote, mtu_bytes: route.mtu_bytes })?;
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

    /// Payload bytes of a full packet on the path to a peer from [`Nic::acquire_host`]: what its route carried when it
    /// was first acquired, at most [`crate::NicConfig::mtu_max_bytes`]. Both ends must come to the same, so both must
    /// see the same path and have the same setting. With real RoCEv2 peers it is the most that the path carries, and
    /// programs say what they have agreed on.
    pub fn wire_mtu_to(&self, peer: PeerId) -> u32 {
        self.link.peers.get(peer).wire_mtu
    }

    /// The UDP port that packets for this NIC come to.
    pub fn port(&self) -> u16 {
        self.link.local_addr().port()
    }

    /// Queue pairs that this NIC can have at a time: where it shares its machine, as many as numbers name its port.
    pub fn queue_pairs_max(&self) -> u32 {
        if self.config.shared { queue_pairs_of(self.port()) } else { QUEUE_PAIRS_MAX }
    }

    /// The general services interface: with real RoCEv2 peers, connection management comes there.
    pub fn gsi_port(&self) -> Option<&Arc<GsiPort>> {
        self.link.gsi.as_ref()
    }

    /// NICs of this machine that packets go to through memory now.
    pub fn bypass_rings(&self) -> usize {
        self.link.bypass.as_ref().map_or(0, |bypass| bypass.rings())
    }

    /// What an event loop of somebody else's waits for: when one is readable, or reports an error, [`Nic::progress`]
    /// has work. Ask [`Nic::wants_progress`] immediately before waiting.
    pub fn raw_fds(&self) -> ArrayVec<RawFd, RAW_FDS_MAX> {
        let sockets = self.link.lanes.iter().flat_map(Lane::receivers).map(AsRawFd::as_raw_fd);
        sockets.chain(self.link.bypass.as_ref().map(|bypass| bypass.fd())).collect()
    }

    /// How long until [`Nic::progress`] has work even if nothing comes in; `None` when only packets can make some.
    pub fn next_deadline(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.next_due(now).map(|due| due.since(now))
    }

    /// When [`Nic::progress`] has work, even if nothing comes in.
    fn next_due(&self, now: Time) -> Option<Time> {
        if self.engine.has_packets() && !self.link.is_held_up() {
            return Some(now);
        }
        let held_up_until = self.link.is_held_up().then(|| now + HELD_UP_WAIT);
        let due = [
            self.engine.next_timeout(),
            self.cm.next_timeout(),
            self.link.next_due(),
            self.link.credits.next_due(),
            self.link.hellos.next_due(),
            self.liveness.next_due(),
            held_up_until,
        ];
        due.into_iter().flatten().min()
    }

    /// Sends what has been posted, and nothing else: for whoever posts and will not call [`Nic::progress`] soon. What
    /// is posted between two of these calls leaves together, which costs the kernel little more than one packet.
    #[inline]
    pub fn doorbell(&mut self) {
        let now = self.clock.now();
        self.flush(now);
    }

    /// Sends what is ready; answers whether there is more to do at once. When not, and until the next call of
    /// [`Nic::progress`], whatever comes in makes one of [`Nic::raw_fds`] readable: only then may one sleep on them.
    /// Peers on this machine then pay a call of the kernel for waking this NIC, so it is for those who do sleep;
    /// whoever only wants to send calls [`Nic::doorbell`].
    pub fn wants_progress(&mut self) -> bool {
        let now = self.clock.now();
        // What was received last may have called for answers.
        if self.flush(now) && !self.link.is_held_up() {
            return true;
        }
        // Whoever comes back has been woken by one of them, perhaps.
        self.link.lanes.iter_mut().for_each(Lane::wake);
        let has_come = self.link.bypass.as_mut().is_some_and(|bypass| bypass.fall_asleep() && bypass.wake_up());
        if !has_come {
            let due = self.next_due(now);
            self.presence.sleep(due);
        }
        has_come
    }

    /// Makes a queue pair with a number that cannot be predicted: of the NIC's own range where it shares its machine.
    pub(super) fn make_numbered_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        let port = self.config.shared.then(|| self.port());
        let limit = self.queue_pairs_max();
        let mut attributes = attributes.clone();
        let first = self.secret.numbers.bits() as u32;
        for step in 0..limit {
            // Drawn anew at first, then one after the other, so that the last free number is found too.
            let index = if step < DRAWS { self.secret.numbers.bits() as u32 } else { first.wrapping_add(step) };
            attributes.number = Some(port.map_or(Qpn::new(index), |port| number_on(port, index)));
            match self.engine.create_qp(&attributes) {
                Err(ResourceError::NumberTaken(_)) => {}
                made => return made,
            }
        }
        Err(ResourceError::Exhausted { what: "queue pairs", limit: u64::from(limit) })
    }

    /// A queue pair is about to be connected to `dest_qpn`: if that is on this machine, the way through memory is made.
    pub(super) fn prepare_bypass(&mut self, peer: PeerId, dest_qpn: Qpn) {
        let now = self.clock.now();
        let Link { bypass: Some(bypass), peers, .. } = &mut self.link else { return };
        let Some(known) = peers.ids().any(|id| id == peer).then(|| peers.get(peer)) else { return };
        if known.is_local {
            bypass.prepare(now, peer, &known.way(port_of(dest_qpn)));
        }
    }

    /// Queue pair `qpn` has been connected: it holds the way through memory, if there is one.
    pub(super) fn join_ring(&mut self, qpn: Qpn, connection: &QpConnection) {
        if let Some(bypass) = &mut self.link.bypass {
            bypass.join(qpn, (connection.peer, port_of(connection.dest_qpn)));
        }
    }

    /// Queue pair `qpn` is connected no more: the last one to a peer and port takes the way through memory along.
    pub(super) fn leave_ring(&mut self, qpn: Qpn) {
        let Some(bypass) = &mut self.link.bypass else { return };
        if let Some(target) = bypass.part(qpn) {
            let now = self.clock.now();
            self.link.release_ring(now, target);
        }
    }

    /// Divides what may be under way among all peers.
    fn share_windows(&mut self) {
        let Self { link, engine, receive_buffer_bytes, .. } = self;
        let peers = link.peers.len();
        for id in link.peers.ids() {
            let peer = link.peers.get(id);
            let datagram = crate::mtu::datagram_bytes(peer.wire_mtu);
            let window = window::share(window::receive_window(*receive_buffer_bytes, datagram), peers);
            let window = if peer.is_local { window.min(ring_window(peer.wire_mtu)) } else { window };
            engine.set_peer_limit(id, Some(u64::from(window)));
        }
    }
}

/// A queue pair is about to be connected to `dest_qpn`, whose number may say that it cannot be one of ours.
pub(super) fn doubt(link: &mut Link, peer: PeerId, dest_qpn: Qpn) {
    if link.ports == Ports::OfQueuePair
        && !is_port_of_nic(port_of(dest_qpn))
        && let Some(known) = link.peers.look_up(peer)
    {
        let notice = Notice::RealRocePeer(known.addresses.dst().ip(), dest_qpn);
        link.notices.push(notice);
    }
}

/// Sockets of a NIC that packets come to, at most: two IP versions and two ports.
const RAW_FDS_MAX: usize = 4;

/// Numbers drawn before they are tried one after the other.
const DRAWS: u32 = 64;
