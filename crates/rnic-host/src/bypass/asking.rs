//! Who has the letterbox of a peer, before anything is sent there.
//!
//! Any user can bind any abstract name, and a ring shows whoever has it every byte that goes through it. So its memory
//! leaves only when the kernel has said that the process behind the letterbox is this user's:
//!
//! ```text
//!   writer                                         reader
//!     Ask: nonce  ------ connected socket ------>  letterbox      the kernel says whose process has sent it
//!     letterbox   <----- Answer: nonce, ticket --                 likewise
//!     Offer: ticket, memory -- same socket ----->
//! ```
//!
//! A connected socket leads to the socket that had the name when it was connected, and never to another that takes the
//! name later. The nonce went to that one alone. An answer comes from a process of this user, which got the nonce, and
//! no process of this user answers a question that another user's has asked. So the memory goes where the nonce went.
//! The ticket shows the reader in turn that the writer has the letterbox that it has named.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;

use arrayvec::ArrayVec;
use rnic_base::Time;
use rnic_engine::PeerId;

use super::letters::{NAMES, Nonce, Place, Words};
use crate::sys::unix;

/// Questions that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Questions(Vec<Question>);

/// A question to everybody who has a letterbox of one NIC: one of them may be it.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) target: (PeerId, u16),
    /// Where our packets will come from.
    pub(super) source: SocketAddr,
    /// Where they will go.
    pub(super) to: IpAddr,
    pub(super) nonce: Nonce,
    asked: ArrayVec<(Place, UnixDatagram), { NAMES as usize }>,
    /// When it is given up.
    until: Time,
}

impl Questions {
    /// Asks whoever has the letterbox of `target`, in the name of the NIC at `from`. Returns whether there is anybody.
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
        let words = Words::Ask { from, nonce }.emit();
        let ask = |place: Place| {
            let bell = unix::connect_letterbox(&place.socket_name()).ok()?;
            bell.send(&words).ok().map(|_| (place, bell))
        };
        let asked: ArrayVec<_, { NAMES as usize }> = Place::all(target.1).filter_map(ask).collect();
        let is_anybody_there = !asked.is_empty();
        if is_anybody_there {
            self.0.push(Question { target, source, to, nonce, asked, until });
        }
        is_anybody_there
    }

    /// An answer with `nonce` has come from the socket called `name`, from a process of this user. Returns the
    /// question, which waits no longer, and the socket that leads to whoever has answered.
    pub(super) fn answered(&mut self, nonce: &Nonce, name: &[u8]) -> Option<(Question, UnixDatagram)> {
        let index = self.0.iter().position(|known| known.nonce == *nonce)?;
        let at = self.0[index].asked.iter().position(|(place, _)| place.socket_name() == name)?;
        let mut question = self.0.swap_remove(index);
        let (_, bell) = question.asked.swap_remove(at);
        Some((question, bell))
    }

    /// Gives up the questions about some targets.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&(PeerId, u16)) -> bool) {
        self.0.retain(|known| !is_gone(&known.target));
    }
}

/// Questions that may wait at a time: each holds a socket or a few.
const QUESTIONS_MAX: usize = 128;
