//! State shared by all queue pairs of an engine: memory, queues, packets to send, timers.
//!
//! The methods of a queue pair get `&mut Core` in addition to themselves; a queue pair never accesses another queue
//! pair.

pub(crate) mod classes;

use std::collections::BTreeMap;

use rnic_base::{Absence, Psn, Seq, Serial, Time};
use rnic_wire::{Aeth, Headers, LossCause, LossReportFields, NakCode, Packet, PacketFlags, Qpn, Syndrome};

use crate::completion::Completion;
use crate::config::EngineConfig;
use crate::cq::{Added, is_solicited};
use crate::dma::Segments;
use crate::error::DropReason;
use crate::event::AsyncEvent;
use crate::fifo::Fifo;
use crate::latency::OperationTimers;
use crate::ledger::Ledger;
use crate::messages::exchange::Exchange;
use crate::namespace::Namespaces;
use crate::objects::Objects;
use crate::packet::Transmit;
use crate::peer::Peers;
use crate::processors::Processors;
use crate::pulls::PullQueue;
use crate::ready::Ready;
use crate::signals::Collector;
use crate::srq::Target;
use crate::stats::{EngineStats, WaitReason};
use crate::timer::Timers;
use crate::watch::Monitor;
use crate::window::{Lost, Pools};
use crate::{CqId, PeerId};

use classes::ClassQueues;

/// Maximum number of acknowledgements that wait to be sent. A queue pair whose acknowledgement does not fit sends a
/// later one that covers it, so none is lost permanently. 40 us of minimal packets at 100 Gbit/s can require 4096 of
/// them.
pub(crate) const CONTROL_QUEUE_MAX: usize = 4_096;

/// An acknowledgement that waits to be sent: its content and its queue pair. The packet is built when it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlPacket {
    /// Slot of the sending queue pair, which provides the address and the path when the packet is sent.
    pub(crate) slot: u32,
    pub(crate) from: Qpn,
    /// Sequence number that the receiver expects next.
    pub(crate) expected: Seq,
    pub(crate) msn: u32,
    pub(crate) content: Control,
}

// One of these is queued and removed for each packet. With 32 bytes, two of them fit in a cache line, and the address
// of an entry is computed by a shift.
const _: () = assert!(size_of::<ControlPacket>() == 32);

/// Types of packets that carry no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// An acknowledgement of requests.
    Ack {
        /// Content of the acknowledgement.
        kind: AckKind,
        /// `true` if the packet that caused the acknowledgement was congestion-marked and its sender requested the
        /// echo.
        echo: bool,
    },
    /// An acknowledgement of responses.
    ReadAck {
        /// Content of the acknowledgement.
        kind: AckKind,
        /// True if the congestion mark of a response is echoed, as `echo` of [`Control::Ack`].
        echo: bool,
    },
    /// A congestion notification.
    Cnp,
}

impl ControlPacket {
    pub(crate) const BLANK: Self =
        Self { slot: 0, from: Qpn::new(0), expected: Seq::UNSET, msn: 0, content: Control::Cnp };

    /// Writes the packet, except for its destination, into `packet`.
    #[inline(always)]
    pub(crate) fn write(&self, packet: &mut Packet) {
        match self.content {
            Control::Ack { kind, echo } => {
                write_ack(packet, self.expected, self.msn, kind, false);
                packet.flags.becn = echo;
            }
            Control::ReadAck { kind, echo } => {
                write_ack(packet, self.expected, 0, kind, true);
                packet.flags.becn = echo;
            }
            Control::Cnp => {
                packet.psn = Psn::new(0);
                packet.flags = PacketFlags { becn: true, ..PacketFlags::default() };
                packet.payload_len = 0;
                packet.headers = Headers::Cnp;
            }
        }
    }
}

/// The part of an engine that its queue pairs share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    /// Time of the latest input.
    pub(crate) now: Time,
    /// Last period in which the engine was not driven.
    pub(crate) absence: Absence,
    /// `true` if the packet being processed was congestion-marked and its acknowledgement must report this.
    pub(crate) packet_was_marked: bool,
    /// `true` if the acknowledgement being processed reports that a packet sent by this end was congestion-marked.
    pub(crate) ack_echoes_mark: bool,
    pub(crate) objects: Objects,
    /// Targets of extended reliable connections, by queue pair number.
    pub(crate) targets: BTreeMap<u32, Target>,
    pub(crate) control: Fifo<ControlPacket>,
    /// Number of acknowledgements for which there is space in `control`.
    pub(crate) control_max: usize,
    /// Queues of classes, when queue pairs have classes.
    pub(crate) classes: Option<Box<ClassQueues>>,
    pub(crate) ready: Ready,
    pub(crate) pulls: PullQueue,
    pub(crate) timers: Timers,
    pub(crate) peers: Peers,
    pub(crate) pools: Pools,
    pub(crate) namespaces: Namespaces,
    /// The packet to be returned next. It is built in this field, to avoid copies between calls.
    pub(crate) out: Transmit,
    /// Payload of the packet in `out`.
    pub(crate) segments: Segments,
    pub(crate) stats: EngineStats,
    pub(crate) watch: Monitor,
    /// Times of send requests, while the driver collects them.
    pub(crate) times: Option<Box<OperationTimers>>,
    /// Sums over the queue pairs whose scheduler processes events.
    pub(crate) ledger: Ledger,
    /// Threads on which schedulers run; `None` if schedulers run immediately.
    pub(crate) processors: Option<Box<Processors>>,
    /// Messages exchanged with the NICs of peers, if the driver has enabled them.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// Collectors of signals, while a program or a log uses them.
    pub(crate) signals: Option<Box<Collector>>,
    /// True when messages or signals have to count each sent packet: a copy of that state, so that each packet costs
    /// one test.
    pub(crate) counts_sent: bool,
    /// Completion queues that have overflowed and whose queue pairs must fail.
    pub(crate) overrun_cqs: Vec<CqId>,
    /// Slots of the queue pairs with several flows that the engine must serve: a request for a flow is next, a flow has
    /// completed one, or one of them has failed.
    pub(crate) flows_due: Vec<u32>,
    /// `true` if a queue pair has failed, a completion queue has overflowed, or flows are due, while the current input
    /// was processed: these must be handled after the input.
    pub(crate) is_unsettled: bool,
}

impl Core {
    pub(crate) fn new(config: EngineConfig) -> Self {
        Self {
            objects: Objects::new(config.secret),
            processors: config.processors.as_ref().map(|place| Box::new(Processors::new(place, config.line_rate))),
            ledger: Ledger::new(config.line_rate, config.idle_after),
            config,
            now: Time::ZERO,
            absence: Absence::default(),
            packet_was_marked: false,
            ack_echoes_mark: false,
            targets: BTreeMap::new(),
            control: Fifo::new(ControlPacket::BLANK),
            control_max: CONTROL_QUEUE_MAX,
            classes: None,
            ready: Ready::default(),
            pulls: PullQueue::default(),
            timers: Timers::default(),
            peers: Peers::default(),
            pools: Pools::default(),
            namespaces: Namespaces::new(),
            out: Transmit::BLANK,
            segments: Segments::default(),
            stats: EngineStats::default(),
            watch: Monitor::default(),
            times: None,
            exchange: None,
            signals: None,
            counts_sent: false,
            overrun_cqs: Vec::new(),
            flows_due: Vec::new(),
            is_unsettled: false,
        }
    }

    #[inline(always)]
    pub(crate) fn complete(&mut self, cq: CqId, completion: Completion) {
        let queue = self.objects.cqs[cq.0 as usize].as_mut().expect("a queue pair keeps its completion queue alive");
        let added = queue.push(completion, is_solicited(&completion));
        if added != Added::Quietly {
            self.raise_completion_event(cq, added);
        }
    }

    /// Removes the newest completion of `cq` if it is that of request `wr_id` of `qpn`: the request has failed,
    /// although its completion was already generated.
    #[cold]
    pub(crate) fn remove_newest(&mut self, cq: CqId, qpn: Qpn, wr_id: u64) {
        let queue = self.objects.cqs[cq.0 as usize].as_mut().expect("a queue pair keeps its completion queue alive");
        queue.remove_newest(|newest| newest.qpn == qpn && newest.wr_id == wr_id);
    }

    #[cold]
    fn raise_completion_event(&mut self, cq: CqId, added: Added) {
        if let Added::ForFlows(slot) = added {
            self.serve_flows_later(slot);
        } else if added == Added::Overrun {
            self.overrun_cqs.push(cq);
            self.is_unsettled = true;
            self.raise_event(AsyncEvent::CqOverrun(cq));
        } else {
            self.raise_event(AsyncEvent::CqNotify(cq));
        }
    }

    /// Has the engine serve the flows of the queue pair in `slot`, or of that of which it is a flow, after the current
    /// input. Its requests complete in `send_cq`.
    #[cold]
    pub(crate) fn note_flows(&mut self, send_cq: CqId, slot: u32) {
        self.serve_flows_later(self.objects.flows_of(send_cq).unwrap_or(slot));
    }

    fn serve_flows_later(&mut self, slot: u32) {
        self.is_unsettled = true;
        if self.flows_due.last() != Some(&slot) {
            self.flows_due.push(slot);
        }
    }

    #[cold]
    pub(crate) fn raise_event(&mut self, event: AsyncEvent) {
        self.objects.raise_event(event);
    }

    #[inline]
    pub(crate) fn drop_packet(&mut self, reason: DropReason) -> DropReason {
        self.stats.drops[reason as usize] += 1;
        reason
    }

    #[inline]
    pub(crate) fn count_wait(&mut self, reason: WaitReason) {
        self.stats.waits[reason as usize] += 1;
    }

    /// Records that `packets` packets to `peer` have arrived, and wakes queue pairs that wait for the credit that
    /// this frees.
    #[inline]
    pub(crate) fn settle(&mut self, peer: PeerId, packets: u64) {
        if self.peers.settled(peer, packets) {
            self.wake_waiting(peer);
        }
    }

    /// Frees the credit of `packets` packets that `peer` has acknowledged, like [`Core::settle`].
    #[inline(always)]
    pub(crate) fn settle_acknowledged(&mut self, peer: PeerId, packets: u64) {
        if self.peers.acknowledged(peer, packets) {
            self.wake_waiting(peer);
        }
    }

    #[cold]
    fn wake_waiting(&mut self, peer: PeerId) {
        for _ in 0..self.peers.available(peer) {
            let Some((half, slot)) = self.peers.pop_waiting(peer) else { break };
            self.ready.requeue(half, slot);
        }
    }

    /// Wakes queue pairs that wait for credit at `peer`, when credit may have become free in another way, or when the
    /// queue pair that was woken for it did not use it.
    #[inline]
    pub(crate) fn wake_for_credit(&mut self, peer: PeerId) {
        self.settle(peer, 0);
    }

    /// Like [`Core::wake_for_credit`], for all peers. Used when the peer is no longer known: an unreliable queue pair
    /// was woken, but its requests, which named the peer, no longer exist.
    #[cold]
    pub(crate) fn wake_for_all_credit(&mut self) {
        for peer in self.peers.limited() {
            self.wake_for_credit(peer);
        }
    }

    /// Removes all entries of `slot` from all queues, so that none applies to the next queue pair in `slot`.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.control.retain(|control| control.slot != slot);
        self.ready.forget(slot);
        if let Some(classes) = &mut self.classes {
            classes.forget(slot);
        }
        self.pulls.forget(slot);
        self.peers.forget(slot);
        // The queue pair may have been woken for credit that other queue pairs can now use.
        self.wake_for_all_credit();
    }

    /// Queues an acknowledgement; returns `false` when the queue is full and the queue pair must record that it still
    /// has to send one.
    #[inline]
    pub(crate) fn push_control(&mut self, control: ControlPacket) -> bool {
        if self.control.len() >= self.control_max {
            self.stats.acks_folded += 1;
            return false;
        }
        self.control.push(control);
        true
    }
}

/// Content of an acknowledgement, before it becomes a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckKind {
    /// All packets before `expected` have been received.
    Ack,
    /// A packet before the current one is missing; the current one is accepted.
    Nack(Psn),
    /// A packet before the current one is missing; the current one is dropped.
    Gap,
    /// A packet that arrived without its payload, because a switch has trimmed it.
    Trimmed(Psn),
    /// FaSR's acknowledgement of a packet, which also reports losses.
    Loss(LossCause, Psn, Lost),
    /// No receive is posted (RNR NAK).
    NotReady(u8),
    /// The request was refused with this NAK code.
    Refused(NakCode),
}

impl AckKind {
    fn syndrome(self) -> Syndrome {
        match self {
            Self::Ack | Self::Loss(LossCause::Repaired, ..) => Syndrome::ACK,
            Self::Nack(_) | Self::Gap | Self::Trimmed(_) | Self::Loss(..) => Syndrome::Nak(NakCode::PsnSequenceError),
            Self::NotReady(timer) => Syndrome::RnrNak { timer },
            Self::Refused(code) => Syndrome::Nak(code),
        }
    }
}

/// Writes the acknowledgement `kind` of a receiver that expects `expected`, except for its destination, into `packet`.
#[inline(always)]
pub(crate) fn write_ack(packet: &mut Packet, expected: Seq, msn: u32, kind: AckKind, acks_responses: bool) {
    let elicited_ack = matches!(kind, AckKind::Ack | AckKind::Loss(LossCause::Repaired, ..));
    let seq = if elicited_ack { expected - 1 } else { expected };
    packet.psn = seq.wire();
    packet.flags = PacketFlags::default();
    packet.payload_len = 0;
    let aeth = Aeth { syndrome: kind.syndrome(), msn: Serial::new(msn) };
    let sack = match kind {
        AckKind::Nack(kept) => Some(kept),
        AckKind::Loss(cause, psn, lost) => {
            let report = LossReportFields { cause, psn, lost: lost.count, overflow: lost.overflow };
            packet.headers = Headers::LossAck { aeth, report };
            return;
        }
        AckKind::Trimmed(trimmed) => {
            packet.headers = Headers::TrimNack { aeth, trimmed, of_response: acks_responses };
            return;
        }
        _ => None,
    };
    packet.headers = if acks_responses { Headers::ReadAck { aeth, sack } } else { Headers::Ack { aeth, sack } };
}
