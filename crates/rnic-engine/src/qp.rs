//! The queue pair: routes only. Who owns what:
//!
//! * [`requester`]: the send queue and the request window; makes request packets;
//! * [`completer`]: what comes back for them: acknowledgements, responses; completes the send queue;
//! * [`responder`]: the peer's requests: order, placement, receive queue, acknowledgements;
//! * [`fetch`]: the peer's reads and atomics, and the responses to them; FaSR's are sent by the requester;
//! * [`regulator`]: congestion control, scheduling, pacing, when the transport has any;
//! * [`clock`]: the deadlines of all of these;
//! * [`credits`]: receives that are posted at the other end, where that is told;
//! * [`local`]: requests of which nothing travels;
//! * [`placement`]: atomic writes and flushes;
//! * [`shared`]: targets of extended reliable connections (XRC);
//! * [`extra`]: what only some have, behind one pointer;
//! * [`unreliable`]: both halves of queue pairs of unreliable services, on the same queues;
//! * [`state`]: the table of legal state changes; [`fail`]: the way into the error state; [`fault`]: memory that a body
//!   could not read.

pub(crate) mod clock;
pub(crate) mod completer;
pub(crate) mod credits;
pub(crate) mod extra;
pub(crate) mod fail;
mod fault;
pub(crate) mod fetch;
pub(crate) mod gather;
pub(crate) mod local;
pub(crate) mod placement;
pub(crate) mod regulator;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod shared;
pub(crate) mod state;
pub(crate) mod unreliable;

use std::sync::Arc;

use rnic_base::Seq;
use rnic_policy::{PathEvent, PathLabel, PathView};
use rnic_wire::{Headers, Packet, Qpn, RnrTimer};

use crate::config::QpAttributes;
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::mr::Access;
use crate::stats::QpStats;
use crate::timer::Deadline;
use crate::transport::{Service, Transport};
use crate::{CqId, PdId, PeerId, SrqId};

use completer::ResponseWindow;
use extra::Extra;
use regulator::Regulator;
use requester::Requester;
use responder::Responder;
pub use state::QpState;
use unreliable::Unreliable;

/// What can be asked about a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInfo {
    /// Its number.
    pub number: Qpn,
    /// Its state.
    pub state: QpState,
    /// What it promises.
    pub service: Service,
    /// What its peer may do by the rights of the queue pair itself.
    pub access: Access,
    /// The key that datagrams for it must have.
    pub qkey: u32,
    /// The queue pair it is connected to.
    pub dest_qpn: Qpn,
    /// The first request packet not yet acknowledged.
    pub una: Seq,
    /// The next request packet that has never been sent.
    pub next: Seq,
    /// Entries of the send queue of which something has been sent and that are not complete. Where answers share the
    /// window, packets can be under way without any.
    pub requests_under_way: u32,
    /// The request packet expected next from the peer.
    pub expected: Seq,
    /// Messages of the peer completed here, modulo 2^24.
    pub msn: u32,
    /// The response (rPSN) expected next, in split sequence spaces; else the same as `una`.
    pub response_expected: Seq,
    /// Counters.
    pub stats: QpStats,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: Qpn,
    /// Index in the engine's table: how timers and rings name it.
    pub(crate) slot: u32,
    pub(crate) state: QpState,
    /// What the peer may do, whatever a key grants.
    pub(crate) access: Access,
    /// Who is at the other end: [`PeerId::NOBODY`] in unreliable services, whose packets come in by another way.
    pub(crate) peer: PeerId,
    pub(crate) dest_qpn: Qpn,
    mtu: u16,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) srq: Option<SrqId>,
    pub(crate) signal_all: bool,
    pub(crate) min_rnr_timer: RnrTimer,
    /// Packets in a turn, and how many of the present one are left.
    pub(crate) turn_packets: u16,
    pub(crate) turn_left: u16,
    pub(crate) label: PathLabel,
    /// Where this queue pair's entry in the timer heap stands.
    pub(crate) armed: Deadline,
    pub(crate) transport: Arc<Transport>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Responses to our reads, in split sequence spaces; made with the first read.
    pub(crate) responses: Option<Box<ResponseWindow>>,
    pub(crate) regulator: Option<Box<Regulator>>,
    /// The state of the path policy, if it keeps any; or the connection, when its packets are Falcon's. Then requester
    /// and responder are in no ring, and `peer` is nobody, as in unreliable services.
    pub(crate) extra: Extra,
    /// What only unreliable services need.
    pub(crate) unreliable: Unreliable,
    pub(crate) stats: QpStats,
}

impl Qp {
    pub(crate) fn new(number: Qpn, slot: u32, attributes: &QpAttributes) -> Self {
        let transport = attributes.transport.for_service(attributes.service);
        let start = Seq::UNSET;
        let reliable = transport.service == Service::ReliableConnection;
        let is_falcon = reliable && transport.profile.protocol.falcon().is_some();
        let mut qp = Self {
            number,
            slot,
            state: QpState::Reset,
            access: Access::all(),
            peer: if reliable && !is_falcon { PeerId::default() } else { PeerId::NOBODY },
            dest_qpn: Qpn::default(),
            // Nothing is cut into packets before a connection says how; what is posted in the error state is still
            // measured.
            mtu: rnic_base::limits::MTU_MIN as u16,
            pd: attributes.pd,
            send_cq: attributes.send_cq,
            recv_cq: attributes.recv_cq,
            srq: attributes.srq,
            signal_all: attributes.signal_all,
            min_rnr_timer: RnrTimer::from_code(0),
            turn_packets: 1,
            turn_left: 1,
            label: PathLabel::default(),
            armed: Deadline::NEVER,
            requester: Requester::new(attributes, start, &transport),
            responder: Responder::new(attributes, start, &transport),
            responses: None,
            regulator: None,
            extra: if is_falcon { Extra::new_falcon() } else { Extra::default() },
            unreliable: Unreliable::default(),
            transport,
            stats: QpStats::default(),
        };
        (qp.requester.queued, qp.responder.queued) = (is_falcon, is_falcon);
        qp
    }

    /// What it would be made of once more.
    fn attributes(&self) -> QpAttributes {
        QpAttributes {
            pd: self.pd,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            max_send_wr: self.requester.queue.limit(),
            max_recv_wr: self.responder.queue.limit(),
            max_send_sge: self.requester.queue.sge_limit() as u32,
            max_recv_sge: self.responder.queue.sge_limit() as u32,
            signal_all: self.signal_all,
            service: self.transport.service,
            transport: Arc::clone(&self.transport),
            number: Some(self.number),
        }
    }

    /// Another transport of reliable connections, of the same family, before there is a connection.
    pub(crate) fn adopt(&mut self, transport: &Arc<Transport>) {
        self.transport = Arc::clone(transport);
        if self.srq.is_some() {
            // Nothing is posted to it: what it claims is by the transport's window.
            self.responder = Responder::new(&self.attributes(), Seq::UNSET, &self.transport);
        }
    }

    /// Back to `Reset`, with the same queues.
    pub(crate) fn reset(&mut self) {
        let attributes = self.attributes();
        // Timers may still name this slot: a spurious wake-up does nothing.
        let is_target = self.responder.is_target;
        *self = Self::new(self.number, self.slot, &attributes);
        self.responder.is_target = is_target;
    }

    pub(crate) fn info(&self) -> QpInfo {
        let una = self.requester.window.una;
        let info = QpInfo {
            number: self.number,
            state: self.state,
            service: self.transport.service,
            access: self.access,
            qkey: if self.transport.service == Service::UnreliableDatagram { self.unreliable.qkey() } else { 0 },
            dest_qpn: self.dest_qpn,
            una,
            next: self.requester.window.next,
            requests_under_way: self.requester.queue.under_way(),
            expected: self.responder.window.expected,
            msn: self.responder.msn & 0xff_ffff,
            response_expected: match &self.responses {
                Some(responses) if !self.transport.scheduled => responses.window.expected,
                _ => una,
            },
            stats: self.stats,
        };
        match self.extra.falcon() {
            None => info,
            Some(falcon) => falcon.fill(info, self.requester.start, self.responder.start),
        }
    }

    /// Who is at the other end, if there is such a place.
    pub(crate) fn far_end(&self) -> PeerId {
        match self.transport.service {
            Service::UnreliableConnection => self.unreliable.peer(),
            _ => self.extra.falcon().map_or(self.peer, |falcon| falcon.peer),
        }
    }

    /// Why a packet from `peer`, which is not the peer or speaks another protocol, or comes too late for an unreliable
    /// service, is none of ours.
    #[cold]
    pub(crate) fn why_foreign(&self, peer: PeerId) -> DropReason {
        let expected = if self.transport.service == Service::UnreliableDatagram { peer } else { self.far_end() };
        match self.state {
            QpState::Reset | QpState::Init => DropReason::State,
            _ if expected != peer => DropReason::WrongPeer,
            QpState::Error if self.peer == PeerId::NOBODY => DropReason::State,
            _ => DropReason::WrongFormat,
        }
    }

    /// Takes a packet that names this queue pair and comes from its peer.
    #[inline]
    pub(crate) fn receive<D: Dma>(
        &mut self,
        core: &mut Core,
        now: rnic_base::Time,
        packet: &Packet,
        congested: bool,
        dma: &mut D,
    ) -> RxOutcome {
        core.echo = congested && self.notify_congestion(core, now);
        core.echoed = packet.flags.becn;
        match packet.headers {
            Headers::Send { .. }
            | Headers::Write { .. }
            | Headers::ReadRequest { .. }
            | Headers::AtomicRequest { .. }
            | Headers::PlacementRequest { .. }
            | Headers::SharedSend { .. }
            | Headers::SharedWrite { .. } => {
                if self.state.receives() {
                    self.receive_request(core, packet, dma)
                } else {
                    self.receive_late(core)
                }
            }
            Headers::Ack { aeth, sack } if self.transmits() => self.receive_ack(core, now, packet.psn, aeth, sack),
            Headers::LossAck { note, .. } if self.transmits() => self.receive_loss_ack(core, now, packet.psn, &note),
            // Serving reads is the receiving half's business.
            Headers::ReadAck { aeth, sack } if self.state.receives() => {
                self.receive_response_ack(core, now, packet.psn, aeth, sack)
            }
            Headers::ReadResponse { .. } | Headers::AtomicResponse { .. } if self.state.sends() => {
                self.receive_response(core, now, packet, dma)
            }
            Headers::Cnp if self.state.sends() => {
                self.heed_congestion(core, now);
                RxOutcome::Accepted
            }
            Headers::ReadResponse { .. } if self.state == QpState::Error => self.receive_late_response(core),
            _ => RxOutcome::Dropped(core.drop_packet(DropReason::State)),
        }
    }

    /// Payload bytes of a full packet.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        u32::from(self.mtu)
    }

    /// Packets are cut to `mtu` from now on.
    pub(crate) fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu as u16;
    }

    /// The label for the next packet.
    #[inline]
    pub(crate) fn choose_path(&mut self, now: rnic_base::Time, retransmission: bool) -> PathLabel {
        if !self.extra.is_none() {
            self.ask_path(now, &PathEvent::Sending { retransmission });
        }
        self.label
    }

    /// A number of this connection's own, the same in every run.
    pub(crate) fn flow_hash(&self) -> u64 {
        let ends = u64::from(self.number.get()) << 32 | u64::from(self.dest_qpn.get());
        let mixed = (ends ^ u64::from(self.peer.0) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    /// Tells the path policy what happened; it may change the label.
    #[cold]
    pub(crate) fn ask_path(&mut self, now: rnic_base::Time, event: &PathEvent) {
        let view = PathView { now, flow_hash: self.flow_hash() };
        if let Some(state) = self.extra.path_mut() {
            let paths = &self.transport.profile.paths;
            let actions = (paths.policy.on_event)(state, event, &view, &paths.params);
            self.label = actions.label.unwrap_or(self.label);
        }
    }
}

// Two of these are a connection, most of them idle at any time: what is needed only after a loss, a read or a
// congestion mark lives behind a pointer that is empty until then.
const _: () = assert!(size_of::<Qp>() <= 456);

const _: () = assert!(rnic_base::limits::MTU_MAX <= u16::MAX as u32);
