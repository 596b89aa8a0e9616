//! Unreliable connections, at the receiver.
//!
//! Source: InfiniBand Architecture volume 1, section 9.8.2 (validation: any packet that is not the one expected ends
//! the current message, and the next first packet starts another), table 38 (Sends and Writes only). The receive that
//! the lost message was using is reused; data already written by a lost Write remains in memory.
//!
//! Deviation: a first packet that is older than the one expected, by up to [`OLD_PACKETS_MAX`], is a delayed packet or
//! a duplicate and is dropped. Under the specification it would start a message, because an InfiniBand network does not
//! reorder packets. An IP network does, so a message would be delivered twice, or after a later one.

use rnic_base::Seq;
use rnic_wire::{Headers, Packet, Position, Reth, SendTail};

use super::{UnreliableEnd, fail_oldest_receive, next_receive};
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::error::DropReason;
use crate::mr::Access;
use crate::verbs::Verbs;
use crate::verbs::gather::for_each_segment;
use crate::verbs::recv::Message;
use crate::wq::{RecvDone, RecvTail};

impl UnreliableEnd {
    /// Handles a packet of the peer.
    pub(super) fn receive_unacknowledged<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), DropReason> {
        let (Headers::Send { position, .. } | Headers::Write { position, .. }) = packet.headers else {
            return Err(DropReason::WrongFormat);
        };
        verbs.recv.note_first_packet(&verbs.head, core);
        let expected = self.expected;
        let mut seq = packet.psn.extend(expected);
        if seq < expected {
            if expected.since(seq) <= OLD_PACKETS_MAX {
                return Err(DropReason::Duplicate);
            }
            // The number is so far behind the expected one that it must be ahead of it, after a wraparound: very many
            // packets of the peer were lost.
            seq += PSN_COUNT;
        }
        if seq != expected || position.starts() {
            verbs.recv.message = Message::None;
        }
        self.expected = seq + 1;
        if !position.starts() && verbs.recv.message == Message::None {
            return Err(DropReason::OutOfOrder);
        }
        let result = self.receive_part(verbs, core, seq, packet, dma);
        if result.is_err() {
            verbs.recv.message = Message::None;
        }
        result
    }

    /// Places the next packet of a message, which may be the first one.
    fn receive_part<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        seq: Seq,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), DropReason> {
        let len = packet.payload_len;
        let (position, counter, bytes, tail) = match packet.headers {
            Headers::Send { position, tail, .. } => {
                verbs.head.check_payload(position, len).map_err(|_| DropReason::Refused)?;
                let (counter, bytes) = self.place_send_part(verbs, core, len, dma)?;
                let tail = match tail {
                    SendTail::Plain => RecvTail::Send,
                    SendTail::Immediate(word) => RecvTail::SendImm(word),
                    SendTail::Invalidate(_) => return Err(DropReason::Refused),
                };
                (position, Some(counter), bytes, tail)
            }
            Headers::Write { position, reth, immediate, .. } => {
                verbs.head.check_payload(position, len).map_err(|_| DropReason::Refused)?;
                let counter = if immediate.is_some() { Some(next_receive(verbs, core)?) } else { None };
                let bytes = self.place_write_part(verbs, core, position, reth, len, dma)?;
                (position, counter, bytes, RecvTail::WriteImm(immediate.unwrap_or(0)))
            }
            _ => return Err(DropReason::WrongFormat),
        };
        if !position.ends() {
            return Ok(());
        }
        verbs.recv.message = Message::None;
        let Verbs { head, recv, .. } = verbs;
        match counter {
            Some(counter) => {
                let done = RecvDone { last: seq, byte_len: bytes, tail, solicited: packet.flags.solicited };
                recv.complete_unordered(head, core, counter, &done);
            }
            None => recv.msn = recv.msn.wrapping_add(1),
        }
        Ok(())
    }

    /// Places `len` bytes of a Send; returns the receive that it uses and the number of bytes of the message so far.
    fn place_send_part<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        len: u32,
        dma: &mut D,
    ) -> Result<(u32, u32), DropReason> {
        let offset = match verbs.recv.message {
            Message::None => 0,
            Message::Send { bytes } => bytes,
            Message::Write { .. } => return Err(DropReason::Refused),
        };
        let counter = next_receive(verbs, core)?;
        let queue = &verbs.recv.queue;
        let end = offset + u64::from(len);
        if end > queue.get(counter).capacity || end > rnic_base::limits::MESSAGE_BYTES_MAX {
            return Err(DropReason::Refused);
        }
        let (sges, access) = (queue.sges(counter), Access::LOCAL_WRITE);
        let placed =
            for_each_segment(&core.objects.mrs, verbs.head.pd, sges, offset as u32, len, access, |at, segment| {
                dma.place(at, segment)
            });
        if placed.is_err() {
            return Err(fail_oldest_receive(verbs, core));
        }
        verbs.recv.message = Message::Send { bytes: end };
        Ok((counter, end as u32))
    }

    /// Places `len` bytes of a Write; returns the number of bytes of the complete message.
    fn place_write_part<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &Core,
        position: Position,
        reth: Option<Reth>,
        len: u32,
        dma: &mut D,
    ) -> Result<u32, DropReason> {
        let access = Access::REMOTE_WRITE;
        let (va, rkey, left, length) = match verbs.recv.message {
            Message::None => {
                let Reth { va, rkey, dma_len } = reth.ok_or(DropReason::Refused)?;
                // The complete range is checked before its first byte is written.
                let granted = dma_len == 0
                    || core
                        .objects
                        .mrs
                        .resolve_remote(verbs.head.granted(), rkey, va, u64::from(dma_len), access)
                        .is_ok();
                if !granted || !verbs.head.access.contains(access) {
                    return Err(DropReason::Refused);
                }
                (va, rkey, dma_len, dma_len)
            }
            Message::Write { va, rkey, left, length } => (va, rkey, left, length),
            Message::Send { .. } => return Err(DropReason::Refused),
        };
        let is_valid_length = if position.ends() { len == left } else { len < left };
        if !is_valid_length {
            return Err(DropReason::Refused);
        }
        if len > 0 {
            let local = core
                .objects
                .mrs
                .resolve_remote(verbs.head.granted(), rkey, va, u64::from(len), access)
                .map_err(|_| DropReason::Refused)?;
            dma.place(0, Segment { local, len }).map_err(|_| DropReason::Refused)?;
        }
        verbs.recv.message = Message::Write { va: va.wrapping_add(u64::from(len)), rkey, left: left - len, length };
        Ok(length)
    }
}

/// Distance behind the expected packet, in packets, up to which a packet counts as old: far more than a network
/// delays packets, but small enough that a peer whose sequence numbers are no longer known is soon accepted again.
const OLD_PACKETS_MAX: u64 = 1 << 16;

/// Number of different packet sequence numbers.
const PSN_COUNT: u64 = 1 << 24;
