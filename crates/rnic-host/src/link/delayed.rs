//! Packets that are not sent immediately, because impairment delays them, or they wait for the link that several NICs
//! share.

use rnic_base::Time;
use rnic_engine::{MemoryFault, PeerId};
use rnic_wire::{Addresses, Decoded, net};

use crate::bypass::{RecordKind, RingResult};
use crate::datagram::Datagram;
use crate::impair::{DelayedCopy, ImpairmentOutcome};

use super::batch::{Acks, Batch, SendPath};
use super::{Link, WaitingForRing};

impl Link {
    /// Returns the time at which the next delayed packet is due.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.delay_line.next_due()
    }

    /// Discards the delayed packets.
    pub(crate) fn drop_delayed(&mut self) {
        self.delay_line.clear();
    }

    /// Queues a packet of `len` bytes that is sent on `path` for the shared link, if there is one, and then applies
    /// impairment to it. When a copy is needed, `copy` writes the datagram to a buffer, which may contain old data.
    /// Returns whether the packet itself has to be sent now.
    ///
    /// # Errors
    /// When `copy` fails: no copy of the packet is queued then.
    pub(crate) fn impair(
        &mut self,
        now: Time,
        path: SendPath,
        len: u32,
        copy: impl FnOnce(&Addresses, &mut Vec<u8>) -> Result<(), MemoryFault>,
    ) -> Result<bool, MemoryFault> {
        let addresses = self.addresses_of(path);
        let Self { peers, delay_line, free_buffers, stats, share, .. } = self;
        let peer = peers.get_mut(path.peer);
        let version = peer.addresses.ip_version();
        let leaves = share.as_mut().map_or(now, |share| share.enqueue(now, net::link_len(version, len)));
        let mut outcome = match peer.impairment.as_mut().filter(|impairment| impairment.concerns(path.path)) {
            Some(impairment) => {
                let outcome = impairment.decide_faults(leaves, version, len, &mut stats.impairment);
                delay_line.overtake(impairment, now);
                outcome
            }
            None => ImpairmentOutcome { passes: true, ..ImpairmentOutcome::default() },
        };
        // Earlier packets may still be in the delay line although they have left the shared link.
        let may_overtake = share.as_ref().is_some_and(|share| share.has_link()) && delay_line.next_due().is_some();
        if outcome.passes && (leaves > now || may_overtake) {
            outcome.passes = false;
            outcome.copies.push(DelayedCopy { due: leaves, flip: None, overtaken_by: None });
        }
        if let Some((last, others)) = outcome.copies.split_last() {
            let mut bytes = free_buffers.pop().unwrap_or_default();
            copy(&addresses, &mut bytes)?;
            let datagram = Datagram { addresses, bytes, ip_fields: path.ip_fields };
            let mut insert = |late, datagram| {
                let is_inserted = delay_line.insert(late, datagram, peer.impairment.as_deref_mut());
                stats.impairment.queue_full += u64::from(!is_inserted);
            };
            others.iter().for_each(|late| insert(late, datagram.clone()));
            insert(last, datagram);
        }
        Ok(outcome.passes)
    }

    /// Applies the impairment of received packets to a packet from `peer`, whose payload may be trimmed. Returns
    /// whether the packet is congestion-marked.
    #[inline]
    pub(crate) fn impair_received(&mut self, peer: PeerId, decoded: &mut Decoded) -> bool {
        let Self { peers, stats, .. } = self;
        let impairment = &mut peers.get_mut(peer).impairment;
        impairment.as_mut().is_some_and(|impairment| impairment.receive(decoded, &mut stats.impairment))
    }

    /// Returns whether impairment marks a packet received from `peer` with `payload_len` bytes of payload.
    #[inline]
    pub(crate) fn marks_received(&mut self, peer: PeerId, payload_len: u32) -> bool {
        let Self { peers, stats, .. } = self;
        let impairment = &mut peers.get_mut(peer).impairment;
        impairment.as_mut().is_some_and(|impairment| impairment.marks(payload_len, &mut stats.impairment))
    }

    /// Adds datagrams whose delay has expired to the batch, where they follow the packets that are already in it and
    /// cost the kernel no more than those. Datagrams that are sent through shared memory, whose ICRC is only right
    /// for a datagram that is sent alone, or that do not fit are sent later ([`Self::send_waiting`]).
    pub(crate) fn join_delayed(&mut self, now: Time, batch: &mut Batch<'_>, acks: &Acks) {
        while let Some((addresses, ip_fields)) =
            self.delay_line.first_due(now).map(|datagram| (datagram.addresses, datagram.ip_fields))
            && batch.has_room(acks)
            && let Some(peer) = self.peers.find(self.peer_at(addresses.dst()), addresses.src().ip())
            && !self.peers.get(peer).is_local
            && !self.is_numbered(peer)
            && let Some(Datagram { bytes, .. }) = self.delay_line.pop_due(now)
        {
            let path = self.lanes[self.lane_of(addresses.dst().ip())].path_from(addresses.src().port());
            let path = SendPath { peer, port: addresses.dst().port(), path, ip_fields };
            let copied = batch.add_with(path, bytes.len() as u32, self.segmentation, |out| {
                out.copy_from_slice(&bytes);
                Ok(())
            });
            copied.expect("NIC memory is mapped");
            self.reuse(bytes);
        }
    }

    fn reuse(&mut self, buffer: Vec<u8>) {
        if self.free_buffers.len() < FREE_BUFFERS_MAX {
            self.free_buffers.push(buffer);
        }
    }

    /// Removes datagrams that are due at `due` or earlier from the delay line, and sends or queues them; returns
    /// whether any datagram was sent through shared memory.
    pub(super) fn end_delays(&mut self, now: Time, due: Time) -> bool {
        let mut any = false;
        while let Some(datagram) = self.delay_line.pop_due(due) {
            self.capture_with_fields(now, &datagram.addresses, &datagram.bytes, datagram.ip_fields);
            if self.send_sealed(now, &datagram) {
                any = true;
            } else {
                self.tx_backlog.push_back(datagram);
            }
        }
        any
    }

    /// Sends a complete datagram through shared memory if its peer is on this machine. Returns false if the peer is
    /// not; otherwise the datagram has been sent, queued or lost.
    fn send_sealed(&mut self, now: Time, datagram: &Datagram) -> bool {
        let path = &datagram.addresses;
        let peer_address = self.peer_at(path.dst());
        let Self { bypass: Some(bypass), peers, stats, ring_backlog, .. } = self else { return false };
        let Some(peer) = peers.find(peer_address, path.src().ip()).filter(|peer| peers.get(*peer).is_local) else {
            return false;
        };
        let (bytes, target) = (&datagram.bytes, (peer, path.dst().port()));
        let kind = RecordKind { is_sealed: true, ip_fields: datagram.ip_fields };
        let result = bypass.send_from_nic(now, target, bytes, kind);
        stats.count_bypass(result, bytes.len());
        if result == RingResult::Full {
            ring_backlog.push_back(WaitingForRing { target, bytes: bytes.clone(), kind, since: now });
        }
        result != RingResult::NoRing
    }
}

/// Maximum number of buffers kept for reuse: as many as the packets of a window that impairment typically delays.
const FREE_BUFFERS_MAX: usize = 64;
