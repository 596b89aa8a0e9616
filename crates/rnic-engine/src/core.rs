//! What all queue pairs of an engine share: memory, queues, the line to the wire, the clockwork.
//!
//! A queue pair's own methods get `&mut Core` beside themselves; the queue pair never sees another queue pair.

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

/// Acknowledgements that wait for the wire. When there are more, later ones replace earlier ones of the same queue
/// pair, so none is lost for good: 4096 is what 40 us of minimal packets at 100 Gbit/s can call for.
pub(crate) const CONTROL_QUEUE_MAX: usize = 4_096;

/// An acknowledgement on its way out: what it says, and for whom. It becomes a packet when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlPacket {
    /// Whose it is: address and path are looked up when it leaves.
    pub(crate) slot: u32,
    pub(crate) from: Qpn,
    /// What the receiver expects next.
    pub(crate) expected: Seq,
    pub(crate) msn: u32,
    pub(crate) says: Control,
}

// One goes in and out for each packet: two of them in a cache line, and a shift to find one.
const _: () = assert!(size_of::<ControlPacket>() == 32);

/// The kinds of packets that carry no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// An acknowledgement of requests.
    Ack {
        /// What it says.
        kind: AckKind,
        /// The packet that draws it had met congestion, and its sender wants to know.
        echo: bool,
    },
    /// An acknowledgement of responses.
    ReadAck {
        /// What it says.
        kind: AckKind,
        /// As in [`Control::Ack`].
        echo: bool,
    },
    /// A congestion notification.
    Cnp,
}

impl ControlPacket {
    const BLANK: Self = Self { slot: 0, from: Qpn::new(0), expected: Seq::UNSET, msn: 0, says: Control::Cnp };

    /// Makes the packet, but for its destination, in `packet`.
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
    /// The latest instant that an input brought.
    pub(crate) now: Time,
    /// The last time that nobody drove the engine.
    pub(crate) absence: Absence,
    /// The packet at hand met congestion, and its acknowledgement shall say so.
    pub(crate) echo: bool,
    /// The acknowledgement at hand says that a packet of ours met congestion.
    pub(crate) echoed: bool,
    pub(crate) objects: Objects,
    /// Targets of extended reliable connections, by number.
    pub(crate) targets: BTreeMap<u32, Target>,
    pub(crate) control: Fifo<ControlPacket>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    pub(crate) peers: Peers,
    pub(crate) pools: Pools,
    pub(crate) drives: Drives,
    /// The packet on its way out: made here, and not copied from call to call.
    pub(crate) out: Transmit,
    /// Its payload.
    pub(crate) segments: Segments,
    pub(crate) stats: EngineStats,
    pub(crate) watch: Watch,
    /// Queue pairs with a scheduler that listens and a requester that has work: what it sees as `active`.
    pub(crate) active: u32,
    /// Completion queues that overflowed and whose queue pairs must fail.
    pub(crate) overrun: Vec<CqId>,
    /// During the input at hand a queue pair has failed or a completion queue has overflowed: there is something to
    /// settle when it is done.
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

    /// Takes the newest completion of `cq` back, if it is that of request `wr_id` of `qpn`, which has failed after all.
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

    /// Packets to `peer` have arrived: queue pairs that wait for the room may try again.
    #[inline]
    pub(crate) fn settle(&mut self, peer: PeerId, packets: u64) {
        if self.peers.settled(peer, packets) {
            self.wake_waiting(peer);
        }
    }

    /// As [`Core::settle`], because `peer` has acknowledged the packets.
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

    /// Room at `peer` may have come about otherwise, or been left unused by the one who was woken for it.
    #[inline]
    pub(crate) fn pass_on_room(&mut self, peer: PeerId) {
        self.settle(peer, 0);
    }

    /// As [`Core::pass_on_room`], when nobody knows any more at whom it was: an unreliable queue pair was woken and its
    /// requests are gone.
    #[cold]
    pub(crate) fn pass_on_all_room(&mut self) {
        for peer in self.peers.limited() {
            self.pass_on_room(peer);
        }
    }

    /// Nothing that stands in any queue is meant for the queue pair that will be in `slot` next.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.control.retain(|control| control.slot != slot);
        self.ready.forget(slot);
        self.peers.forget(slot);
        // It may have been woken for room that it now leaves to others.
        self.pass_on_all_room();
    }

    /// Queues an acknowledgement; false when there is no room and the queue pair must remember that it owes one.
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

/// What an acknowledgement says, before it becomes a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckKind {
    /// Everything before `expected` is here.
    Ack,
    /// A packet before the present one is missing; the present one is kept.
    Nack(Psn),
    /// A packet before the present one is missing; the present one is not kept.
    Gap,
    /// An acknowledgement that reports on losses, in answer to the packet: FaSR.
    Loss(LossCause, Psn, Lost),
    /// No receive posted.
    NotReady(u8),
    /// Refused.
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

/// Makes the acknowledgement `kind` of a receiver that expects `expected`, but for its destination, in `packet`.
#[inline(always)]
pub(crate) fn write_ack(packet: &mut Packet, expected: Seq, msn: u32, kind: AckKind, of_responses: bool) {
    let says_ack = matches!(kind, AckKind::Ack | AckKind::Loss(LossCause::Repaired, ..));
    let seq = if says_ack { expected - 1 } else { expected };
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
