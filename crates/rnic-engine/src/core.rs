//! State that all queue pairs of an engine share: memory, queues, packets to send, timers.
//!
//! The methods of a queue pair get `&mut Core` in addition to themselves; a queue pair never accesses another queue
//! pair.

use std::collections::BTreeMap;

use rnic_base::{Absence, Psn, Seq, Serial, Time};
use rnic_wire::{Aeth, Headers, LossCause, LossNote, NakCode, Packet, PacketFlags, Qpn, Syndrome};

use crate::completion::Completion;
use crate::config::EngineConfig;
use crate::cq::{Added, is_solicited};
use crate::dma::Segments;
use crate::error::DropReason;
use crate::event::AsyncEvent;
use crate::fifo::Fifo;
use crate::namespace::Drives;
use crate::objects::Objects;
use crate::packet::Transmit;
use crate::peer::Peers;
use crate::ready::Ready;
use crate::srq::Target;
use crate::stats::{EngineStats, WaitReason};
use crate::timer::Timers;
use crate::watch::Watch;
use crate::window::{Lost, Pools};
use crate::{CqId, PeerId};

/// Maximum number of acknowledgements that wait to be sent. When there are more, later ones replace earlier ones of the
/// same queue pair, so none is lost permanently: 4096 is what 40 us of minimal packets at 100 Gbit/s can require.
pub(crate) const CONTROL_QUEUE_MAX: usize = 4_096;

/// An acknowledgement that waits to be sent: its contents and its queue pair. The packet is built when it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlPacket {
    /// Slot of the queue pair that sends it: address and path are looked up when the packet is sent.
    pub(crate) slot: u32,
    pub(crate) from: Qpn,
    /// Sequence number that the receiver expects next.
    pub(crate) expected: Seq,
    pub(crate) msn: u32,
    pub(crate) says: Control,
}

// One is queued and removed for each packet: 32 bytes put two of them in a cache line and let a shift compute the
// address of an entry.
const _: () = assert!(size_of::<ControlPacket>() == 32);

/// Types of packets that carry no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// An acknowledgement of requests.
    Ack {
        /// Content of the acknowledgement.
        kind: AckKind,
        /// Set when the packet that caused the acknowledgement was congestion-marked and its sender requested the echo.
        echo: bool,
    },
    /// An acknowledgement of responses.
    ReadAck {
        /// Content of the acknowledgement.
        kind: AckKind,
        /// As in [`Control::Ack`].
        echo: bool,
    },
    /// A congestion notification.
    Cnp,
}

impl ControlPacket {
    const BLANK: Self = Self { slot: 0, from: Qpn::new(0), expected: Seq::UNSET, msn: 0, says: Control::Cnp };

    /// Writes the packet, except for its destination, into `packet`.
    #[inline(always)]
    pub(crate) fn write(&self, packet: &mut Packet) {
        match self.says {
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

/// The shared part of an engine.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    /// Time of the latest input.
    pub(crate) now: Time,
    /// Last period in which the engine was not driven.
    pub(crate) absence: Absence,
    /// Set when the packet being processed was congestion-marked and its acknowledgement must report this.
    pub(crate) echo: bool,
    /// Set when the acknowledgement being processed reports that a packet sent by this end was congestion-marked.
    pub(crate) echoed: bool,
    pub(crate) objects: Objects,
    /// Targets of extended reliable connections, by queue pair number.
    pub(crate) targets: BTreeMap<u32, Target>,
    pub(crate) control: Fifo<ControlPacket>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    pub(crate) peers: Peers,
    pub(crate) pools: Pools,
    pub(crate) drives: Drives,
    /// The packet to be returned next: built in place, to avoid copies between calls.
    pub(crate) out: Transmit,
    /// Payload of the packet in `out`.
    pub(crate) segments: Segments,
    pub(crate) stats: EngineStats,
    pub(crate) watch: Watch,
    /// Number of queue pairs whose scheduler processes events and whose requester has work: the value that schedulers
    /// receive as `active`.
    pub(crate) active: u32,
    /// Completion queues that have overflowed and whose queue pairs must fail.
    pub(crate) overrun: Vec<CqId>,
    /// Set when a queue pair has failed or a completion queue has overflowed while the current input was processed: the
    /// failures must be settled after the input.
    pub(crate) is_unsettled: bool,
}

impl Core {
    pub(crate) fn new(config: EngineConfig) -> Self {
        Self {
            objects: Objects::new(config.secret),
            config,
            now: Time::ZERO,
            absence: Absence::default(),
            echo: false,
            echoed: false,
            targets: BTreeMap::new(),
            control: Fifo::new(ControlPacket::BLANK),
            ready: Ready::default(),
            timers: Timers::default(),
            peers: Peers::default(),
            pools: Pools::default(),
            drives: Drives::new(),
            out: Transmit::BLANK,
            segments: Segments::default(),
            stats: EngineStats::default(),
            watch: Watch::default(),
            active: 0,
            overrun: Vec::new(),
            is_unsettled: false,
        }
    }

    #[inline(always)]
    pub(crate) fn complete(&mut self, cq: CqId, completion: Completion) {
        let queue = self.objects.cqs[cq.0 as usize].as_mut().expect("a queue pair keeps its completion queue alive");
        let added = queue.push(completion, is_solicited(&completion));
        if added != Added::Quietly {
            self.notice_added(cq, added);
        }
    }

    /// Removes the newest completion of `cq`, if it is that of request `wr_id` of `qpn`, which has failed after all.
    #[cold]
    pub(crate) fn take_back(&mut self, cq: CqId, qpn: Qpn, wr_id: u64) {
        let queue = self.objects.cqs[cq.0 as usize].as_mut().expect("a queue pair keeps its completion queue alive");
        queue.take_back(|newest| newest.qpn == qpn && newest.wr_id == wr_id);
    }

    #[cold]
    fn notice_added(&mut self, cq: CqId, added: Added) {
        if added == Added::Overrun {
            self.overrun.push(cq);
            self.is_unsettled = true;
            self.notice(AsyncEvent::CqOverrun(cq));
        } else {
            self.notice(AsyncEvent::CqNotify(cq));
        }
    }

    #[cold]
    pub(crate) fn notice(&mut self, event: AsyncEvent) {
        self.objects.notice(event);
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

    /// Records that `packets` packets to `peer` have arrived: queue pairs that wait for credit may try again.
    #[inline]
    pub(crate) fn settle(&mut self, peer: PeerId, packets: u64) {
        if self.peers.settled(peer, packets) {
            self.wake_waiting(peer);
        }
    }

    /// As [`Core::settle`], when `peer` has acknowledged the packets.
    #[inline(always)]
    pub(crate) fn settle_acknowledged(&mut self, peer: PeerId, packets: u64) {
        if self.peers.acknowledged(peer, packets) {
            self.wake_waiting(peer);
        }
    }

    #[cold]
    fn wake_waiting(&mut self, peer: PeerId) {
        for _ in 0..self.peers.room(peer) {
            let Some((half, slot)) = self.peers.pop_waiting(peer) else { break };
            self.ready.requeue(half, slot);
        }
    }

    /// Wakes queue pairs that wait for credit at `peer`, when credit may have become free in another way, or was left
    /// unused by the queue pair that was woken for it.
    #[inline]
    pub(crate) fn wake_for_credit(&mut self, peer: PeerId) {
        self.settle(peer, 0);
    }

    /// As [`Core::wake_for_credit`], for all peers, when the peer is no longer known: an unreliable queue pair was
    /// woken and its requests no longer exist.
    #[cold]
    pub(crate) fn pass_on_all_room(&mut self) {
        for peer in self.peers.limited() {
            self.wake_for_credit(peer);
        }
    }

    /// Removes all entries of `slot` from all queues, so that none applies to the next queue pair in `slot`.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.control.retain(|control| control.slot != slot);
        self.ready.forget(slot);
        self.peers.forget(slot);
        // The queue pair may have been woken for credit that others can use now.
        self.pass_on_all_room();
    }

    /// Queues an acknowledgement; returns false when the queue is full and the queue pair must remember that it owes
    /// one.
    #[inline]
    pub(crate) fn push_control(&mut self, control: ControlPacket) -> bool {
        if self.control.len() >= CONTROL_QUEUE_MAX {
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
    /// A packet before the current one is missing; the current one is kept.
    Nack(Psn),
    /// A packet before the current one is missing; the current one is not kept.
    Gap,
    /// An acknowledgement that reports losses, in response to the packet: FaSR.
    Loss(LossCause, Psn, Lost),
    /// No receive is posted (RNR NAK).
    NotReady(u8),
    /// The request was refused, with this NAK code.
    Refused(NakCode),
}

impl AckKind {
    fn syndrome(self) -> Syndrome {
        match self {
            Self::Ack | Self::Loss(LossCause::Repaired, ..) => Syndrome::ACK,
            Self::Nack(_) | Self::Gap | Self::Loss(..) => Syndrome::Nak(NakCode::PsnSequenceError),
            Self::NotReady(timer) => Syndrome::RnrNak { timer },
            Self::Refused(code) => Syndrome::Nak(code),
        }
    }
}

/// Writes the acknowledgement `kind` of a receiver that expects `expected`, except for its destination, into `packet`.
#[inline(always)]
pub(crate) fn write_ack(packet: &mut Packet, expected: Seq, msn: u32, kind: AckKind, of_responses: bool) {
    let elicited_ack = matches!(kind, AckKind::Ack | AckKind::Loss(LossCause::Repaired, ..));
    let seq = if elicited_ack { expected - 1 } else { expected };
    packet.psn = seq.wire();
    packet.flags = PacketFlags::default();
    packet.payload_len = 0;
    let aeth = Aeth { syndrome: kind.syndrome(), msn: Serial::new(msn) };
    let sack = match kind {
        AckKind::Nack(kept) => Some(kept),
        AckKind::Loss(cause, psn, lost) => {
            let note = LossNote { cause, psn, lost: lost.count, overflow: lost.overflow };
            packet.headers = Headers::LossAck { aeth, note };
            return;
        }
        _ => None,
    };
    packet.headers = if of_responses { Headers::ReadAck { aeth, sack } } else { Headers::Ack { aeth, sack } };
}
