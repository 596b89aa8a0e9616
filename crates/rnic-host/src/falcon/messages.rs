//! Messages between NICs ([`rnic_wire::scr`]) on a NIC with a key: sealed as packets are, within a connection to the
//! NIC that they are for.
//!
//! ```text
//!  0 | opcode of messages | destination connection | the word with which Falcon packets begin; the opcode is no
//!                                                    version of Falcon, so other receivers drop it
//!  4 | the message, 124 bytes, without its ICRC
//! ```
//!
//! A message about a queue pair is sealed with the key of its connection, one about a whole NIC with that of any
//! connection to the NIC. The key proves who has sent it; the cookies in messages only match them to connections.

use std::ops::Range;

use rnic_base::{Duration, Time};
use rnic_engine::PeerId;
use rnic_engine::messages::peer::PEERS_MAX;
use rnic_psp::SecurityFormat;
use rnic_wire::falcon::{FlowLabel, esp, psp};
use rnic_wire::scr::{self, MESSAGE_LEN, Message};
use rnic_wire::{ICRC_LEN, Qpn};

use super::guard::Guard;
use super::{Falcon, Opened};
use crate::stats::RxDrop;

/// Connection within which a message is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Within {
    /// The connection of this queue pair.
    QueuePair(Qpn),
    /// One to this peer, and to a queue pair on this port if numbers encode ports.
    Nic(PeerId, Option<u16>),
}

impl Falcon {
    /// Returns the datagram that carries the complete message in `bytes`, including its ICRC; `None` if there is no
    /// such connection, or it has no key.
    pub(crate) fn seal_message(&mut self, now: Time, within: Within, bytes: &[u8; MESSAGE_LEN]) -> Option<Vec<u8>> {
        let form = self.form()?;
        let qpn = match within {
            Within::QueuePair(qpn) => qpn,
            Within::Nic(peer, port) => self.connection_to((peer, port), now)?,
        };
        let guard = self.guards.get_mut(&qpn).filter(|guard| guard.has_keys())?;
        let (_, dest_qpn) = guard.remote()?;
        let start = match form {
            SecurityFormat::Psp => psp::LEN_MAX,
            SecurityFormat::Esp => esp::LEN,
        };
        let message = start..start + SEALED_LEN;
        let end = match form {
            SecurityFormat::Psp => message.end + psp::ICV_LEN,
            SecurityFormat::Esp => esp::encapsulation_len(SEALED_LEN) + SEALED_LEN,
        };
        let mut datagram = vec![0; end];
        let [_, cid @ ..] = dest_qpn.get().to_be_bytes();
        datagram[start] = scr::OPCODE;
        datagram[start + 1..start + WORD].copy_from_slice(&cid);
        datagram[start + WORD..message.end].copy_from_slice(&bytes[..MESSAGE_LEN - ICRC_LEN]);
        self.key_changes += u64::from(guard.seal(now, FlowLabel::new(0), message, &mut datagram));
        Some(datagram)
    }

    /// Returns a queue pair that is connected to a NIC and has a key: the one that was used last, if it still exists.
    /// After some time, the next one is returned, because the peer may have closed its end of the last one.
    fn connection_to(&mut self, nic: (PeerId, Option<u16>), now: Time) -> Option<Qpn> {
        let leads_there = |guard: &Guard| {
            let (peer, port) = nic;
            let is_on = |dest_qpn| port.is_none_or(|port| crate::ports::port_of(dest_qpn) == port);
            guard.has_keys() && guard.remote().is_some_and(|(at, dest_qpn)| at == peer && is_on(dest_qpn))
        };
        let last = self.to_nics.get(&nic).copied();
        let is_current = |(qpn, since): &(Qpn, Time)| {
            now.since(*since) < CONNECTION_KEPT && self.guards.get(qpn).is_some_and(leads_there)
        };
        if let Some((last, _)) = last.filter(is_current) {
            return Some(last);
        }
        let after = last.map_or(0, |(qpn, _)| qpn.get());
        let leading = self.guards.iter().filter(|(_, guard)| leads_there(guard)).map(|(qpn, _)| *qpn);
        let found = leading.min_by_key(|qpn| (qpn.get() <= after, qpn.get()));
        // Entries of NICs to which nothing is connected any more are not needed.
        if self.to_nics.len() >= PEERS_MAX {
            self.to_nics.clear();
        }
        match found {
            Some(qpn) => self.to_nics.insert(nic, (qpn, now)),
            None => self.to_nics.remove(&nic),
        };
        found
    }
}

impl Opened {
    /// Returns whether an authentic datagram contains a message of a NIC.
    #[inline]
    pub(crate) fn is_message(&self, datagram: &[u8]) -> bool {
        datagram.get(self.message.start) == Some(&scr::OPCODE)
    }

    /// Parses the message of a NIC in an authentic datagram.
    ///
    /// # Errors
    /// When it is not a message.
    pub(crate) fn read_message(&self, datagram: &[u8]) -> Result<Message, RxDrop> {
        let Range { start, end } = self.message.clone();
        let inner: &[u8; SEALED_LEN] =
            datagram.get(start..end).and_then(|inner| inner.try_into().ok()).ok_or(RxDrop::Malformed)?;
        let (word, message) = inner.split_at(WORD);
        // With ESP, the index must identify the same connection.
        if word[1..] != self.qpn.get().to_be_bytes()[1..] {
            return Err(RxDrop::Malformed);
        }
        let mut copy = [0; MESSAGE_LEN];
        copy[..message.len()].copy_from_slice(message);
        Message::parse(&copy).map_err(|_| RxDrop::Malformed)
    }
}

/// Time after which messages about a NIC use another connection to that NIC, if one exists.
const CONNECTION_KEPT: Duration = Duration::from_secs(1);

/// Length in bytes of the first word.
const WORD: usize = psp::CLEAR_LEN;

/// Length in bytes of a message with this word, in encrypted form.
const SEALED_LEN: usize = WORD + MESSAGE_LEN - ICRC_LEN;

const _: () = assert!(scr::OPCODE >> 4 != 1, "a version of Falcon");
