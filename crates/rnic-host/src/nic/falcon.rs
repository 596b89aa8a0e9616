//! Falcon's packets between the engine and the sockets, both ways.

use rnic_base::Time;
use rnic_engine::{Engine, FalconArrival, FalconTransmit, ModifyError, QpAttributes, QpConnection, ResourceError};
use rnic_wire::Qpn;

use super::Nic;
use crate::clock::Clock;
use crate::falcon::Falcon;
use crate::link::Link;
use crate::link::batch::{Acks, Batch, Way};
use crate::memory::{Memory, Placement};

impl Nic {
    /// Makes a queue pair in the engine.
    pub(super) fn make_engine_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        let qpn = self.engine.create_qp(attributes)?;
        self.falcon.add(qpn, &attributes.transport);
        Ok(qpn)
    }

    /// Destroys a queue pair of the engine.
    pub(super) fn destroy_engine_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        self.engine.destroy_qp(qpn)?;
        self.falcon.remove(qpn);
        self.link.hellos.gone(qpn);
        Ok(())
    }

    /// Connects a queue pair of the engine.
    pub(super) fn connect_engine_qp(&mut self, qpn: Qpn, connection: &QpConnection) -> Result<(), ModifyError> {
        self.engine.modify_to_rtr(qpn, connection)?;
        if let Some(peer) = self.link.peers.look_up(connection.peer) {
            self.falcon.connect(qpn, connection, &peer.addresses);
        }
        self.greet(qpn, connection);
        self.watch_life();
        Ok(())
    }
}

/// What packets are made from.
pub(super) struct Out<'a, 'slab> {
    pub(super) engine: &'a mut Engine,
    pub(super) memory: &'a Memory,
    pub(super) link: &'a mut Link,
    pub(super) falcon: &'a mut Falcon,
    pub(super) clock: Clock,
    pub(super) batch: &'a mut Batch<'slab>,
}

impl Out<'_, '_> {
    /// Adds packets of the engine to the batch, at most `at_most`, the first ones at `now`; answers how many it gave.
    pub(super) fn add_packets(&mut self, mut now: Time, acks: &Acks, at_most: u32) -> u32 {
        let mut given = 0;
        while given < at_most && self.batch.has_room(acks) && !self.link.is_held_up() {
            let Some(transmit) = self.engine.transmit_falcon(now).copied() else { break };
            given += 1;
            self.add(now, &transmit);
            self.link.join_delayed(now, self.batch, acks);
            if given.is_multiple_of(PACKETS_A_LOOK) {
                now = self.clock.now();
            }
        }
        self.link.stats.key_changes = self.falcon.key_changes;
        given
    }

    /// Adds a packet to the batch, unless something else becomes of it.
    #[inline]
    fn add(&mut self, now: Time, transmit: &FalconTransmit) {
        let Self { engine, memory, link, falcon, batch, .. } = self;
        let payload = engine.segments();
        let peer = link.peers.get(transmit.peer);
        let len = falcon.datagram_len(&transmit.packet, peer.addresses.ip_version());
        let port = link.port_of(peer, Qpn::new(transmit.packet.cid.get()));
        if !falcon.can_write(transmit) {
            link.stats.datagrams_refused += 1;
            return;
        }
        let path = falcon.path_of(transmit);
        if path > 0 {
            let lane = link.lane_of(peer.addresses.dst().ip());
            link.lanes[lane].open_path(path);
        }
        let way = Way { peer: transmit.peer, port, path };
        if link.peers.get(transmit.peer).is_special() {
            let mut copy = |bytes: &mut Vec<u8>| {
                bytes.resize(len as usize, 0);
                falcon.write(now, transmit, payload, memory, bytes);
            };
            if !link.impair(now, way, len, |_, bytes| copy(bytes)) {
                return;
            }
            if link.is_still_narrow(now, transmit.peer, len) {
                let addresses = link.peers.get(transmit.peer).way(port);
                let mut bytes = Vec::new();
                copy(&mut bytes);
                return link.send_fragmentable(now, &addresses, bytes);
            }
        }
        let couple = link.segmentation;
        batch.add_with(way, len, couple, |out| falcon.write(now, transmit, payload, memory, out));
    }
}

/// Takes in a datagram that may be Falcon's; its bytes are a stranger's.
#[inline]
pub(super) fn take_in(
    engine: &mut Engine,
    memory: &mut Memory,
    link: &mut Link,
    falcon: &mut Falcon,
    now: Time,
    source: std::net::IpAddr,
    datagram: &mut [u8],
) {
    link.stats.datagrams_received += 1;
    let admitted = match falcon.admit(source, datagram) {
        Ok(admitted) => admitted,
        Err(reason) => return link.stats.drop_datagram(reason),
    };
    let payload = datagram[admitted.payload].into();
    let mut dma = Placement { memory, grh: None, payload, kept: Some(&mut falcon.kept) };
    let arrival = FalconArrival {
        packet: &admitted.packet,
        peer: admitted.peer,
        label: admitted.label,
        congested: false,
        hops: 0,
    };
    // The engine counts what became of it.
    let _ = engine.receive_falcon(now, &arrival, &mut dma);
}

/// Packets that leave with one look at the clock. They are on the wire together, in one train or two; a look costs as
/// much as a fortieth of a packet.
const PACKETS_A_LOOK: u32 = 8;
