//! Verification of the owner of a peer's control socket, before any memory is sent there.
//!
//! A process of any user can bind any abstract name, and a ring exposes every packet in it to the process that
//! receives its memory. So the memory is sent only after the kernel has confirmed that the process that owns the
//! control socket belongs to this user:
//!
//! ```text
//!   writer                                         reader
//!     Ask: nonce  ------ connected socket ------>  control socket      the kernel reports the sending process
//!     control socket   <----- Answer: nonce, ticket --                 likewise
//!     Offer: ticket, memory -- same socket ----->
//! ```
//!
//! A connected socket sends to the socket that had the name at the time of the connection, and never to another one
//! that is bound to the name later. The nonce was sent only to that socket. An answer comes from a process of this
//! user that received the nonce, and no process of this user answers a probe from another user's process. So the
//! memory goes to the process that received the nonce. The ticket in turn proves to the reader that the writer owns
//! the control socket that it has named.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;

use arrayvec::ArrayVec;
use rnic_base::Time;
use rnic_engine::PeerId;

use super::control_messages::{ControlAddress, ControlMessage, NAMES, Nonce};
use crate::sys::unix;

/// Pending ownership probes.
#[derive(Debug, Default)]
pub(super) struct OwnershipProbes(Vec<OwnershipProbe>);

/// An ownership probe, sent to every socket that is bound to one of the control socket names of a NIC; one of these
/// sockets may belong to the NIC.
#[derive(Debug)]
pub(super) struct OwnershipProbe {
    pub(super) target: (PeerId, u16),
    /// Source of the packets that the ring will carry.
    pub(super) source: SocketAddr,
    /// Address to which packets are sent through the ring if the other process owns it.
    pub(super) to: IpAddr,
    pub(super) nonce: Nonce,
    probed: ArrayVec<(ControlAddress, UnixDatagram), { NAMES as usize }>,
    /// Time at which the probe is abandoned.
    until: Time,
}

impl OwnershipProbes {
    /// Sends a probe on behalf of the NIC at `from` to each socket that is bound to a control socket name of
    /// `target`. Returns `true` if there is at least one.
    pub(super) fn probe(
        &mut self,
        now: Time,
        from: ControlAddress,
        target: (PeerId, u16),
        (source, to): (SocketAddr, IpAddr),
        (nonce, until): (Nonce, Time),
    ) -> bool {
        self.0.retain(|known| known.until > now && known.target != target);
        if self.0.len() >= OWNERSHIP_PROBES_MAX {
            return false;
        }
        let text = ControlMessage::Probe { from, nonce }.emit();
        let send_probe = |address: ControlAddress| {
            let wake_socket = unix::connect_control_socket(&address.socket_name()).ok()?;
            wake_socket.send(&text).ok().map(|_| (address, wake_socket))
        };
        let probed: ArrayVec<_, { NAMES as usize }> = ControlAddress::all(target.1).filter_map(send_probe).collect();
        let has_reader = !probed.is_empty();
        if has_reader {
            self.0.push(OwnershipProbe { target, source, to, nonce, probed, until });
        }
        has_reader
    }

    /// Handles an answer with `nonce`, from a process of this user whose socket has this `name`. Returns the probe,
    /// which is no longer pending, and the socket that is connected to the process that answered.
    pub(super) fn on_reply(&mut self, nonce: &Nonce, name: &[u8]) -> Option<(OwnershipProbe, UnixDatagram)> {
        let index = self.0.iter().position(|known| known.nonce == *nonce)?;
        let at = self.0[index].probed.iter().position(|(address, _)| address.socket_name() == name)?;
        let mut probe = self.0.swap_remove(index);
        let (_, wake_socket) = probe.probed.swap_remove(at);
        Some((probe, wake_socket))
    }

    /// Discards the pending probes to the targets for which `is_gone` returns `true`.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&(PeerId, u16)) -> bool) {
        self.0.retain(|known| !is_gone(&known.target));
    }
}

/// Maximum number of pending probes; each holds one or more sockets.
const OWNERSHIP_PROBES_MAX: usize = 128;
