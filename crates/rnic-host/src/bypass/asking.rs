//! Verification of the owner of a peer's control socket, before any memory is sent there.
//!
//! Any user can bind any abstract name, and a ring exposes to that process every byte that goes through it. So the
//! memory is sent only after the kernel has confirmed that the process behind the control socket belongs to this user:
//!
//! ```text
//!   writer                                         reader
//!     Ask: nonce  ------ connected socket ------>  control socket      the kernel says whose process has sent it
//!     control socket   <----- Answer: nonce, ticket --                 likewise
//!     Offer: ticket, memory -- same socket ----->
//! ```
//!
//! A connected socket leads to the socket that had the name when it was connected, and never to another that binds the
//! name later. The nonce was sent to that socket alone. An answer comes from a process of this user that received the
//! nonce, and no process of this user answers a probe from another user's process. So the memory goes to the process
//! that received the nonce. The ticket in turn proves to the reader that the writer owns the control socket that it has
//! named.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;

use arrayvec::ArrayVec;
use rnic_base::Time;
use rnic_engine::PeerId;

use super::control_messages::{ControlText, NAMES, Nonce, Place};
use crate::sys::unix;

/// Ownership probes that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Questions(Vec<Question>);

/// An ownership probe to every socket that has bound a control socket name of one NIC; one of them may be the NIC.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) target: (PeerId, u16),
    /// Source of the packets that the ring will carry.
    pub(super) source: SocketAddr,
    /// Destination address of those packets.
    pub(super) to: IpAddr,
    pub(super) nonce: Nonce,
    asked: ArrayVec<(Place, UnixDatagram), { NAMES as usize }>,
    /// Time at which the probe is abandoned.
    until: Time,
}

impl Questions {
    /// Probes every owner of a control socket name of `target`, on behalf of the NIC at `from`. Returns whether there
    /// is any.
    pub(super) fn ask(
        &mut self,
        now: Time,
        from: Place,
        target: (PeerId, u16),
        (source, to): (SocketAddr, IpAddr),
        (nonce, until): (Nonce, Time),
    ) -> bool {
        self.0.retain(|known| known.until > now && known.target != target);
        if self.0.len() >= QUESTIONS_MAX {
            return false;
        }
        let words = ControlText::Ask { from, nonce }.emit();
        let ask = |place: Place| {
            let bell = unix::connect_control_socket(&place.socket_name()).ok()?;
            bell.send(&words).ok().map(|_| (place, bell))
        };
        let asked: ArrayVec<_, { NAMES as usize }> = Place::all(target.1).filter_map(ask).collect();
        let has_reader = !asked.is_empty();
        if has_reader {
            self.0.push(Question { target, source, to, nonce, asked, until });
        }
        has_reader
    }

    /// Handles an answer with `nonce` from the socket called `name`, from a process of this user. Returns the probe,
    /// which is no longer pending, and the socket that is connected to the process that answered.
    pub(super) fn answered(&mut self, nonce: &Nonce, name: &[u8]) -> Option<(Question, UnixDatagram)> {
        let index = self.0.iter().position(|known| known.nonce == *nonce)?;
        let at = self.0[index].asked.iter().position(|(place, _)| place.socket_name() == name)?;
        let mut question = self.0.swap_remove(index);
        let (_, bell) = question.asked.swap_remove(at);
        Some((question, bell))
    }

    /// Discards the pending probes to the targets for which `is_gone` returns true.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&(PeerId, u16)) -> bool) {
        self.0.retain(|known| !is_gone(&known.target));
    }
}

/// Maximum number of pending probes; each holds one or a few sockets.
const QUESTIONS_MAX: usize = 128;
