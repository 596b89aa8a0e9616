//! Moves Falcon packets between the engine and the wire (UDP sockets or shared memory), in both directions.

use rnic_base::Time;
use rnic_engine::{Departure, Engine, FalconTransmit, MemoryFault};
use rnic_wire::Qpn;
use rnic_wire::falcon::psp;

use crate::bypass::{Kind, Taken};
use crate::falcon::Falcon;
use crate::link::Link;
use crate::link::batch::{Batch, SendPath};
use crate::marking::Marking;
use crate::memory::Memory;

/// The objects from which packets are built.
pub(super) struct Out<'a, 'slab> {
    pub(super) engine: &'a mut Engine,
    pub(super) memory: &'a Memory,
    pub(super) link: &'a mut Link,
    pub(super) falcon: &'a mut Falcon,
    pub(super) batch: &'a mut Batch<'slab>,
}

impl Out<'_, '_> {
    /// Adds a packet, the last one that the engine returned, to the batch; when its payload memory is no longer mapped,
    /// adds the packet that replaces it.
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

    /// Adds a packet to the batch, unless it is dropped or delayed by impairment, sent through shared memory or
    /// fragmented.
    ///
    /// # Errors
    /// When its payload memory is no longer mapped: then it is not sent.
    #[inline]
    fn add(&mut self, now: Time, transmit: &FalconTransmit) -> Result<(), MemoryFault> {
        let peer = self.link.peers.get(transmit.peer);
        let (is_local, is_special) = (peer.is_local, peer.is_special());
        let len = self.falcon.datagram_len(&transmit.packet, peer.addresses.ip_version());
        let port = self.link.port_of(peer, Qpn::new(transmit.packet.cid.get()));
        if !self.falcon.can_write(transmit) {
            self.link.stats.datagrams_refused += 1;
            return Ok(());
        }
        if is_special {
            let way = self.way_of(transmit, port);
            let Self { engine, memory, link, falcon, .. } = self;
            let copy = |_: &_, bytes: &mut Vec<u8>| write_whole(falcon, now, transmit, engine, memory, len, bytes);
            if !link.impair(now, way, len, copy)? {
                return Ok(());
            }
        }
        if is_local && self.send_by_memory(now, transmit, len, port)? {
            return Ok(());
        }
        if is_special && self.link.is_still_narrow(now, transmit.peer, len) {
            let addresses = self.link.peers.get(transmit.peer).way(port);
            let bytes = self.whole(now, transmit, len)?;
            self.link.send_fragmentable(now, &addresses, bytes, Marking::NONE);
            return Ok(());
        }
        let way = self.way_of(transmit, port);
        let Self { engine, memory, link, falcon, batch, .. } = self;
        batch.add_with(way, len, link.segmentation, |out| falcon.write(now, transmit, engine.segments(), memory, out))
    }

    /// Returns the path that a packet takes over UDP.
    #[inline]
    fn way_of(&mut self, transmit: &FalconTransmit, port: u16) -> SendPath {
        let path = self.falcon.path_of(transmit);
        if path > 0 {
            let lane = self.link.lane_of(self.link.peers.get(transmit.peer).addresses.dst().ip());
            self.link.lanes[lane].open_path(path);
        }
        SendPath { peer: transmit.peer, port, path, marking: Marking::NONE }
    }

    /// Sends a packet whose datagram has `len` bytes to another NIC of this machine through shared memory; returns
    /// whether it has been sent or queued. With a key the datagram is transferred as over UDP; without one, its check
    /// value is left out.
    #[inline]
    fn send_by_memory(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        len: u32,
        port: u16,
    ) -> Result<bool, MemoryFault> {
        if self.falcon.protects() || self.link.capture.is_some() {
            return self.send_whole_by_memory(now, transmit, len, port);
        }
        let Self { engine, memory, link, falcon, .. } = self;
        let Link { bypass: Some(bypass), peers, stats, .. } = &mut **link else { return Ok(false) };
        let (target, len) = ((transmit.peer, port), len as usize - psp::ICV_LEN);
        let taken = bypass.send(now, target, len, Kind::default(), |writer| {
            falcon.put_in_clear(now, transmit, engine.segments(), memory, writer)
        })?;
        stats.count_bypass(taken, len);
        match taken {
            Taken::No => bypass.prepare(now, transmit.peer, &peers.get(transmit.peer).way(port)),
            Taken::Full => {
                let mut bytes = Vec::with_capacity(len);
                falcon.put_in_clear(now, transmit, engine.segments(), memory, &mut bytes)?;
                link.queue_for_ring(now, target, bytes, Kind::default());
            }
            Taken::Yes | Taken::Lost => {}
        }
        Ok(taken != Taken::No)
    }

    /// As `send_by_memory`, but sends a copy of the complete datagram. The copy is not made before a reader is
    /// attached, because a key must not seal a packet twice.
    #[inline(never)]
    fn send_whole_by_memory(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        len: u32,
        port: u16,
    ) -> Result<bool, MemoryFault> {
        let target = (transmit.peer, port);
        let way = self.link.peers.get(transmit.peer).way(port);
        let Some(bypass) = &mut self.link.bypass else { return Ok(false) };
        if !bypass.reaches(now, target) {
            bypass.prepare(now, transmit.peer, &way);
            return Ok(false);
        }
        let mut bytes = self.whole(now, transmit, len)?;
        self.link.capture(now, &way, &bytes);
        let kind = if self.falcon.protects() { Kind::SEALED } else { Kind::default() };
        if !kind.is_sealed {
            bytes.truncate(bytes.len() - psp::ICV_LEN);
        }
        let Link { bypass: Some(bypass), stats, .. } = &mut *self.link else { return Ok(false) };
        let taken = bypass.send_own(now, target, &bytes, kind);
        stats.count_bypass(taken, bytes.len());
        match taken {
            Taken::Full => self.link.queue_for_ring(now, target, bytes, kind),
            // The reader has detached in the meantime.
            Taken::No => stats.count_bypass(Taken::Lost, bytes.len()),
            Taken::Yes | Taken::Lost => {}
        }
        Ok(true)
    }

    /// Returns a copy of a packet's datagram, which has `len` bytes.
    fn whole(&mut self, now: Time, transmit: &FalconTransmit, len: u32) -> Result<Vec<u8>, MemoryFault> {
        let mut bytes = Vec::new();
        write_whole(self.falcon, now, transmit, self.engine, self.memory, len, &mut bytes)?;
        Ok(bytes)
    }
}

/// Writes the datagram of a packet, which has `len` bytes, to `bytes`.
fn write_whole(
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
