//! What the Falcon connections of a NIC share.

use std::sync::Arc;

use rnic_base::Time;
use rnic_fae::FaeError;
use rnic_falcon::adaptive::{AdaptiveEngine, EventCounts};
use rnic_falcon::delivery::Wheel;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::seam::Context;
use rnic_policy::{AdaptivePlace, FalconShape};
use rnic_wire::Qpn;
use rnic_wire::falcon::{self, Body, FlowLabel, PacketType, ResyncCode, Timestamp, UlpProtocol, WindowBases};

use crate::PeerId;
use crate::config::EngineConfig;
use crate::dma::Dma;
use crate::error::ResourceError;
use crate::fifo::Fifo;
use crate::packet::{FalconTransmit, TransmitKind};
use crate::ready::Ready;
use crate::stats::FalconStats;
use crate::timer::{Deadline, Timers};
use crate::transport::Transport;

/// The name of a NIC among the slots that wait for their time.
pub(crate) const SLOT: u32 = u32::MAX;

/// What a queue pair may wait for: each has a ring of its own, for what frees one of them helps none of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// Room to send an answer.
    Answer,
    /// Room for a request.
    Request,
    /// Even the [reserve](ResourceConfig::reserve) is taken.
    Reserve,
    /// What is there is not for it: it holds its share (F-34). It stands in the way of nobody who waits for room; of
    /// those that hold theirs one tries at a time, for what each of them waits for most are acknowledgements of its
    /// own.
    Share,
}

impl Lack {
    const ALL: [Self; 4] = [Self::Answer, Self::Request, Self::Reserve, Self::Share];

    /// Returns what a queue pair in the ring of those that can send waited for, by the tag of its entry.
    #[inline]
    pub(crate) fn of_tag(tag: u32) -> Option<Self> {
        tag.checked_sub(1).map(|lack| Self::ALL[lack as usize])
    }

    const fn tag(self) -> u32 {
        self as u32 + 1
    }
}

/// The rings that a queue pair is in.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Lacks(u8);

impl Lacks {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn has(self, lack: Lack) -> bool {
        self.0 & (1 << lack as u8) != 0
    }

    pub(super) fn add(&mut self, lack: Lack) {
        self.0 |= 1 << lack as u8;
    }

    pub(super) fn remove(&mut self, lack: Lack) {
        self.0 &= !(1 << lack as u8);
    }
}

/// See the module. Made with the first queue pair that needs it, and there from then on.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(super) resources: Resources,
    /// How many those are: [`FalconShape::resources_percent`] of the first user.
    resources_percent: u32,
    /// Queue pairs that share this.
    users: u32,
    /// One for each transport.
    pub(super) adaptives: Vec<(Arc<Transport>, AdaptiveEngine)>,
    /// Queue pairs that found no resources, by [`Lack`].
    waiting: [Fifo<u32>; Lack::ALL.len()],
    /// Queue pairs for whose next packet it is too early; made with the first.
    pub(super) wheel: Option<Box<Wheel>>,
    /// What connections did that have ended.
    pub(super) ended: FalconStats,
    /// What became of the events of adaptive engines that have ended.
    events: EventCounts,
    /// Times that a queue pair began to wait for resources.
    pauses: u64,
    /// Payload whose connection has ended, by handle.
    pub(super) released: Vec<u64>,
    /// The packet on its way out.
    pub(crate) out: FalconTransmit,
    /// It is the last packet that the engine has handed out.
    pub(crate) is_out: bool,
    /// Names the transaction whose packet that is, if it is one's.
    pub(super) out_context: Option<Context>,
    /// Where the NIC's own entry in the timer heap stands.
    pub(crate) armed: Deadline,
}

/// What lies in a NIC before the first packet.
const BLANK: FalconTransmit = FalconTransmit {
    packet: falcon::Packet {
        cid: falcon::Cid::new(0),
        function: 0,
        protocol: UlpProtocol::Rdma,
        ack_request: false,
        bases: WindowBases { data: rnic_base::Psn32::new(0), request: rnic_base::Psn32::new(0) },
        timestamp: Timestamp::new(0),
        payload_len: 0,
        body: Body::Resync {
            psn: rnic_base::Psn32::new(0),
            rsn: falcon::Rsn::new(0),
            code: ResyncCode::LocalXlr,
            of: PacketType::PushData,
            vendor: 0,
        },
    },
    peer: PeerId::NOBODY,
    label: FlowLabel::new(0),
    from: Qpn::new(0),
    kind: TransmitKind::Request,
};

impl Nic {
    pub(crate) fn new(shape: &FalconShape) -> Self {
        Self {
            resources: Resources::new(ResourceConfig::of(shape)),
            resources_percent: shape.resources_percent,
            users: 0,
            adaptives: Vec::new(),
            waiting: Lack::ALL.map(|_| Fifo::new(0)),
            wheel: None,
            ended: FalconStats::default(),
            events: EventCounts::default(),
            pauses: 0,
            released: Vec::new(),
            out: BLANK,
            is_out: false,
            out_context: None,
            armed: Deadline::NEVER,
        }
    }

    /// Whether a queue pair with this `shape` can do with what there is. One whose resources nobody chose can, and so
    /// can the first.
    pub(crate) fn check(&self, shape: &FalconShape) -> Result<(), ResourceError> {
        let (has, asked) = (self.resources_percent, shape.resources_percent);
        if self.users > 0 && shape.resources_given && asked != has {
            return Err(ResourceError::FalconResources { asked, has });
        }
        Ok(())
    }

    /// A queue pair with `shape`, which has been checked, shares this. The first one sizes the resources; the backlog
    /// of the host's memory is lost by that, and the body reports it again with the next packet.
    pub(crate) fn join(&mut self, shape: &FalconShape) {
        if self.users == 0 && self.resources_percent != shape.resources_percent {
            self.resources_percent = shape.resources_percent;
            self.resources = Resources::new(ResourceConfig::of(shape));
        }
        self.users += 1;
    }

    /// One that did is gone. Adaptive engines end with the last: their latencies and tables were its transport's.
    pub(crate) fn part(&mut self) {
        self.users -= 1;
        if self.users == 0 {
            self.events = self.events();
            self.adaptives.clear();
        }
    }

    /// `bytes` of payload are on their way into the host's memory.
    pub(crate) fn set_backlog(&mut self, bytes: u64) {
        let buffers = bytes.div_ceil(u64::from(self.resources.config().units.rx));
        self.resources.set_backlog(u32::try_from(buffers).unwrap_or(u32::MAX));
    }

    /// Puts `slot` at the end of the ring of those who wait for that.
    pub(super) fn push_waiting(&mut self, slot: u32, lack: Lack) {
        self.pauses += 1;
        self.waiting[lack as usize].push(slot);
    }

    /// Resources may have come free: of each ring, whoever has waited longest tries again.
    #[inline]
    pub(crate) fn wake_waiting(&mut self, ready: &mut Ready) {
        Lack::ALL.into_iter().for_each(|lack| self.wake(ready, lack));
    }

    /// Whoever has waited for that longest tries again, if there is any.
    #[inline]
    pub(super) fn wake(&mut self, ready: &mut Ready, lack: Lack) {
        if self.waiting[lack as usize].is_empty() {
            return;
        }
        let may_find = match lack {
            Lack::Answer | Lack::Share => true,
            Lack::Request => self.resources.may_hold_transaction(false),
            Lack::Reserve => self.resources.may_hold_transaction(true),
        };
        if may_find && let Some(slot) = self.waiting[lack as usize].pop() {
            ready.push_falcon(slot, lack.tag());
        }
    }

    /// Lets go of payload whose connection has ended.
    #[inline]
    pub(crate) fn release_ended<D: Dma>(&mut self, dma: &mut D) {
        for handle in self.released.drain(..) {
            dma.release(handle);
        }
    }

    fn events(&self) -> EventCounts {
        let mut events = self.events;
        self.adaptives.iter().for_each(|(_, engine)| events.add(engine.counts()));
        events
    }

    /// All but what connections did that live.
    pub(crate) fn stats(&self) -> FalconStats {
        FalconStats {
            is_idle: self.resources.is_idle(),
            refused: self.resources.refused(),
            rx_level: self.resources.rx_level(),
            pauses: self.pauses,
            fullest: self.resources.fullest(),
            events: self.events(),
            ..self.ended
        }
    }

    /// The adaptive engine for connections of `transport`.
    pub(super) fn adaptive_of(&mut self, transport: &Arc<Transport>, config: &EngineConfig, mtu: u32) -> usize {
        let known = self.adaptives.iter().position(|(other, _)| Arc::ptr_eq(other, transport));
        known.unwrap_or_else(|| {
            let made = (Arc::clone(transport), make_adaptive(transport, config, mtu));
            // In place of one that nobody needs any more: there are as many as transports at a time.
            if let Some(index) = self.adaptives.iter().position(|(_, engine)| engine.is_idle()) {
                self.events.add(self.adaptives[index].1.counts());
                self.adaptives[index] = made;
                return index;
            }
            self.adaptives.push(made);
            self.adaptives.len() - 1
        })
    }

    /// `slot` may send at `departure`, and not before; now is `now`.
    pub(super) fn pace(&mut self, timers: &mut Timers, now: Time, slot: u32, departure: Time) {
        let wheel = self.wheel.get_or_insert_with(|| Box::new(Wheel::new(0)));
        // By doubling: slots are taken one after the other.
        wheel.grow((slot as usize + 1).next_power_of_two().max(WHEEL_FIRST));
        wheel.wait(now, slot, departure);
        self.arm(timers);
    }

    /// The next queue pair whose time to send has come.
    pub(super) fn due(&mut self, now: Time) -> Option<u32> {
        self.wheel.as_mut()?.take(now)
    }

    /// Makes sure that the NIC wakes when something of its own is due.
    pub(super) fn arm(&mut self, timers: &mut Timers) {
        let departure = self.wheel.as_ref().and_then(|wheel| wheel.deadline());
        let answers = self.adaptives.iter().filter_map(|(_, engine)| engine.next_at());
        if let Some(next) = answers.chain(departure).min() {
            timers.arm(SLOT, Deadline::at(next), &mut self.armed);
        }
    }

    /// Nothing that stands in any ring is meant for the queue pair that will be in `slot` next.
    pub(super) fn forget(&mut self, slot: u32) {
        self.waiting.iter_mut().for_each(|ring| ring.retain(|other| *other != slot));
        if let Some(wheel) = &mut self.wheel {
            wheel.grow(slot as usize + 1);
            wheel.cancel(slot);
        }
    }
}

/// An adaptive engine for connections of `transport`.
///
/// A system that gives no thread just now is no reason to fail connections: answers are the same without, and come at
/// once.
fn make_adaptive(transport: &Transport, config: &EngineConfig, mtu: u32) -> AdaptiveEngine {
    let shape = transport.profile.protocol.falcon().expect("its transport is Falcon");
    let make = |shape| AdaptiveEngine::of(&transport.profile, shape, config.line_rate, mtu, config.adaptive_thread);
    let engine = match make(shape) {
        Err(FaeError::NoThread) => make(&FalconShape { fae_place: AdaptivePlace::Datapath, ..*shape }),
        made => made,
    };
    engine.expect("the profile has been checked")
}

/// Queue pairs that a wheel has room for at first.
const WHEEL_FIRST: usize = 16;
