//! One of two engines that stand back to back.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::sync::Arc;

use rnic_base::{Psn, Time};
use rnic_engine::*;
use rnic_wire::Qpn;

/// Bytes of a packet's payload.
pub const MTU: u32 = 4_096;

/// An engine with its queue pairs, and memory at address 0 to which its peer has every kind of access.
pub struct End {
    pub engine: Engine,
    pub cq: CqId,
    pub qpns: Vec<Qpn>,
    pub key: u32,
}

impl End {
    /// Creates an end with this number of `connections` of a `transport`, each with room for `depth` work requests.
    pub fn new(transport: &Arc<Transport>, connections: usize, depth: u32, secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let pd = engine.objects_mut().create_pd().expect("a protection domain");
        let cq = engine.objects_mut().create_cq(4_096).expect("a legal size");
        let region = MemoryRegion { pd, addr: 0, len: 1 << 30, local: 0, access: Access::all() };
        let key = engine.objects_mut().register(region).expect("a legal region").0;
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: false,
            service: Service::ReliableConnection,
            transport: Arc::clone(transport),
            number: None,
            nvme: None,
        };
        let qpns = (0..connections).map(|_| engine.create_qp(&attributes).expect("legal attributes")).collect();
        Self { engine, cq, qpns, key }
    }

    /// Connects each queue pair with one of `others`, for this number of outstanding Reads.
    pub fn connect(&mut self, others: &[Qpn], reads: u32) {
        let (psn, peer, min_rnr_timer) = (Psn::new(0), PeerId(0), RnrTimer::from_code(1));
        let timing = QpTiming { sq_psn: psn, retry_count: 7, rnr_retry: None, max_rd_atomic: reads };
        for (qpn, dest_qpn) in self.qpns.iter().zip(others) {
            let dest_qpn = *dest_qpn;
            let connection =
                QpConnection { peer, dest_qpn, rq_psn: psn, mtu: MTU, min_rnr_timer, max_dest_rd_atomic: reads };
            self.engine.modify_to_init(*qpn).expect("from reset");
            self.engine.modify_to_rtr(*qpn, &connection).expect("from init");
            self.engine.modify_to_rts(Time::ZERO, *qpn, &timing).expect("from ready to receive");
        }
    }
}

/// Creates two ends with `transport`, or for `transport+controller` with another controller, and connects their queue
/// pairs.
pub fn back_to_back(transport: &str, connections: usize, depth: u32, reads: u32) -> (End, End) {
    let (name, control) = transport.split_once('+').map_or((transport, None), |(name, control)| (name, Some(control)));
    let options = control.map(|control| ("control", control));
    let profile = rnic_transports::select(name, options).expect("the transport is registered");
    let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
    let [mut left, mut right] = [1, 2].map(|secret| End::new(&transport, connections, depth, secret));
    left.connect(&right.qpns, reads);
    right.connect(&left.qpns, reads);
    (left, right)
}

/// Carries every packet that `from` has over to `to`; returns whether there was any.
pub fn carry(from: &mut Engine, to: &mut Engine, now: Time) -> bool {
    let peer = PeerId(0);
    let mut any = false;
    while let Some(departure) = from.transmit(now) {
        let arrival = match departure {
            Departure::Roce(Transmit { packet, format, .. }) => {
                Arrival::Roce(*format, packet, RxMeta { peer, congested: false })
            }
            Departure::Falcon(FalconTransmit { packet, label, .. }) => {
                Arrival::Falcon(FalconArrival { packet, peer, label: *label, congested: false, hops: 1, csig: None })
            }
            Departure::Message(MessageTransmit { message, label, .. }) => {
                Arrival::Message(MessageArrival { message, nic: NicId::of(peer), label: *label })
            }
        };
        to.receive(now, arrival, &mut NoDma);
        any = true;
    }
    any
}
