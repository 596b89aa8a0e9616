//! Moves Falcon packets between the engine and the wire (UDP sockets or shared memory), in both directions.

use rnic_base::Time;
use rnic_engine::{Departure, Engine, FalconTransmit, MemoryFault};
use rnic_wire::Qpn;
use rnic_wire::falcon::psp;

use crate::bypass::{RecordKind, RingResult};
use crate::falcon::Falcon;
use crate::ip_fields::PackedIpFields;
use crate::link::Link;
use crate::link::batch::{Batch, SendPath};
use crate::memory::Memory;

/// The parts of a NIC from which packets are built.
pub(super) struct Out<'a, 'slab> {
    pub(super) engine: &'a mut Engine,
    pub(super) memory: &'a Memory,
    pub(super) link: &'a mut Link,
    pub(super) falcon: &'a mut Falcon,
    pub(super) batch: &'a mut Batch<'slab>,
}

impl Out<'_, '_> {
    /// Adds to the batch the packet that the engine returned last. If its payload memory has been unmapped, adds the
    /// packet that replaces it.
    #[inline]
    pub(super) fn add_or_fault(&mut self, now: Time, transmit: &FalconTransmit) {
        if self.add(now, transmit).is_err() {
            self.link.stats.payload_faults += 1;
            // The replacement has no payload.
            if let Some(instead) = self.engine.fault_payload().and_then(Departure::falcon).copied() {
                let _ = self.add(now, &instead);
            }
        }
    }

    /// Adds a packet to the batch, unless impairment drops or delays it, or it is sent through shared memory or as a
    /// datagram that may be fragmented.
    ///
    /// # Errors
    /// When its payload memory has been unmapped: then the packet is not sent.
    #[inline]
    fn add(&mut self, now: Time, transmit: &FalconTransmit) -> Result<(), MemoryFault> {
        let peer = self.link.peers.get(transmit.peer);
        let (is_local, is_special) = (peer.is_local, peer.is_special() || self.link.has_shared_link());
        let len = self.falcon.datagram_len(&transmit.packet, peer.addresses.ip_version());
        let port = self.link.port_of(peer, Qpn::new(transmit.packet.cid.get()));
        if !self.falcon.can_write(transmit) {
            self.link.stats.datagrams_refused += 1;
            return Ok(());
        }
        let mut ip_fields = PackedIpFields::NONE;
        if is_special {
            ip_fields = self.link.classes.of(transmit.from);
            let path = self.send_path_of(transmit, port, ip_fields);
            let Self { engine, memory, link, falcon, .. } = self;
            if let Some(share) = &mut link.share {
                share.count_payload(engine.segments().iter().map(|segment| u64::from(segment.len)).sum());
            }
            let copy = |_: &_, bytes: &mut Vec<u8>| write_datagram(falcon, now, transmit, engine, memory, len, bytes);
            if !link.impair(now, path, len, copy)? {
                return Ok(());
            }
        }
        if is_local && self.send_through_ring(now, transmit, len, port)? {
            return Ok(());
        }
        if is_special && self.link.exceeds_path_mtu(now, transmit.peer, len) {
            let addresses = self.link.peers.get(transmit.peer).path(port);
            let bytes = self.whole(now, transmit, len)?;
            self.link.send_fragmentable(now, &addresses, bytes, ip_fields);
            return Ok(());
        }
        let path = self.send_path_of(transmit, port, ip_fields);
        let Self { engine, memory, link, falcon, batch, .. } = self;
        batch.add_with(path, len, link.segmentation, |out| falcon.write(now, transmit, engine.segments(), memory, out))
    }

    /// Returns the path on which a packet is sent over UDP.
    #[inline]
    fn send_path_of(&mut self, transmit: &FalconTransmit, port: u16, ip_fields: PackedIpFields) -> SendPath {
        let path = self.falcon.path_of(transmit);
        if path > 0 {
            let lane = self.link.lane_of(self.link.peers.get(transmit.peer).addresses.dst().ip());
            self.link.lanes[lane].open_path(path);
        }
        SendPath { peer: transmit.peer, port, path, ip_fields }
    }

    /// Sends a packet whose datagram has `len` bytes to another NIC of this machine through shared memory; returns
    /// whether it has been sent or queued. If packets are protected by a key, the same datagram is transferred as
    /// over UDP; otherwise its check value is omitted.
    #[inline]
    fn send_through_ring(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        len: u32,
        port: u16,
    ) -> Result<bool, MemoryFault> {
        if self.falcon.protects() || self.link.capture.is_some() {
            return self.send_copy_through_ring(now, transmit, len, port);
        }
        let Self { engine, memory, link, falcon, .. } = self;
        let Link { bypass: Some(bypass), peers, stats, .. } = &mut **link else { return Ok(false) };
        let (target, len) = ((transmit.peer, port), len as usize - psp::ICV_LEN);
        let result = bypass.send(now, target, len, RecordKind::default(), |writer| {
            falcon.write_cleartext(now, transmit, engine.segments(), memory, writer)
        })?;
        stats.count_bypass(result, len);
        match result {
            RingResult::NoRing => bypass.prepare(now, transmit.peer, &peers.get(transmit.peer).path(port)),
            RingResult::Full => {
                let mut bytes = Vec::with_capacity(len);
                falcon.write_cleartext(now, transmit, engine.segments(), memory, &mut bytes)?;
                link.queue_for_ring(now, target, bytes, RecordKind::default());
            }
            RingResult::Sent | RingResult::Dropped => {}
        }
        Ok(result != RingResult::NoRing)
    }

    /// The same as `send_through_ring`, but with a copy of the complete datagram. The copy is not made before a reader
    /// is attached, because a packet must not be encrypted twice with the same key.
    #[inline(never)]
    fn send_copy_through_ring(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        len: u32,
        port: u16,
    ) -> Result<bool, MemoryFault> {
        let target = (transmit.peer, port);
        let path = self.link.peers.get(transmit.peer).path(port);
        let Some(bypass) = &mut self.link.bypass else { return Ok(false) };
        if !bypass.reaches(now, target) {
            bypass.prepare(now, transmit.peer, &path);
            return Ok(false);
        }
        let mut bytes = self.whole(now, transmit, len)?;
        self.link.capture(now, &path, &bytes);
        let kind = if self.falcon.protects() { RecordKind::SEALED } else { RecordKind::default() };
        if !kind.is_sealed {
            bytes.truncate(bytes.len() - psp::ICV_LEN);
        }
        let Link { bypass: Some(bypass), stats, .. } = &mut *self.link else { return Ok(false) };
        let result = bypass.send_from_nic(now, target, &bytes, kind);
        stats.count_bypass(result, bytes.len());
        match result {
            RingResult::Full => self.link.queue_for_ring(now, target, bytes, kind),
            // The reader has detached in the meantime, so the packet is lost.
            RingResult::NoRing => stats.count_bypass(RingResult::Dropped, bytes.len()),
            RingResult::Sent | RingResult::Dropped => {}
        }
        Ok(true)
    }

    /// Returns a copy of a packet's datagram, which has `len` bytes.
    fn whole(&mut self, now: Time, transmit: &FalconTransmit, len: u32) -> Result<Vec<u8>, MemoryFault> {
        let mut bytes = Vec::new();
        write_datagram(self.falcon, now, transmit, self.engine, self.memory, len, &mut bytes)?;
        Ok(bytes)
    }
}

/// Writes the datagram of a packet, which has `len` bytes, to `bytes`.
fn write_datagram(
    falcon: &mut Falcon,
    now: Time,
    transmit: &FalconTransmit,
    engine: &Engine,
    memory: &Memory,
    len: u32,
    bytes: &mut Vec<u8>,
) -> Result<(), MemoryFault> {
    bytes.resize(len as usize, 0);
    falcon.write(now, transmit, engine.segments(), memory, bytes)
}
