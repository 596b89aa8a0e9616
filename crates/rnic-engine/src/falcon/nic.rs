//! State that the Falcon connections of a NIC share.

use std::sync::Arc;

use rnic_base::Time;
use rnic_fae::FaeError;
use rnic_falcon::adaptive::{AdaptiveEngine, EventCounts};
use rnic_falcon::delivery::Wheel;
use rnic_falcon::interface::Context;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_policy::{AdaptivePlace, FalconShape};
use rnic_wire::Qpn;
use rnic_wire::falcon::{self, FlowLabel};

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

/// Slot value that represents the NIC itself in the timers.
pub(crate) const NIC_TIMER_SLOT: u32 = u32::MAX;

/// Resources that a queue pair may be blocked on. Each resource has a ring of its own, because a queue pair that is
/// blocked on one cannot proceed when another is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockedOn {
    /// Buffer space for a response.
    Response,
    /// Buffer space for a request.
    Request,
    /// Buffer space in the [reserve](ResourceConfig::reserve), all of which is in use.
    Reserve,
    /// The queue pair's share of the resources, which it has used up: it may not use the resources that are free
    /// (Falcon mechanism F-34). Queue pairs that wait for resources are not blocked by it. Of the queue pairs that have
    /// used up their share, one at a time tries again, because each of them mainly waits for acknowledgements of its
    /// own packets.
    Share,
}

impl BlockedOn {
    const ALL: [Self; 4] = [Self::Response, Self::Request, Self::Reserve, Self::Share];

    /// Returns the resource for which a queue pair waited before it entered the ring of queue pairs that can send,
    /// given the `tag` of its ring entry.
    #[inline]
    pub(crate) fn of_tag(tag: u32) -> Option<Self> {
        tag.checked_sub(1).map(|blocked_on| Self::ALL[blocked_on as usize])
    }

    const fn tag(self) -> u32 {
        self as u32 + 1
    }
}

/// The set of rings of blocked queue pairs that contain a queue pair.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct BlockedSet(u8);

impl BlockedSet {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn has(self, blocked_on: BlockedOn) -> bool {
        self.0 & (1 << blocked_on as u8) != 0
    }

    pub(super) fn add(&mut self, blocked_on: BlockedOn) {
        self.0 |= 1 << blocked_on as u8;
    }

    pub(super) fn remove(&mut self, blocked_on: BlockedOn) {
        self.0 &= !(1 << blocked_on as u8);
    }
}

/// State that the Falcon connections of a NIC share. It is created with the first Falcon queue pair, and exists as
/// long as the engine.
#[derive(Debug)]
pub(crate) struct FalconNic {
    pub(super) resources: Resources,
    /// Amount of `resources`, in percent: [`FalconShape::resources_percent`] of the first queue pair.
    resources_percent: u32,
    /// [`EngineConfig::falcon_receive_bytes`].
    receive_bytes: Option<u64>,
    /// Number of queue pairs that share this state.
    users: u32,
    /// Adaptive engines, one for each transport.
    pub(super) adaptives: Vec<(Arc<Transport>, AdaptiveEngine)>,
    /// Queue pairs that are blocked on resources, by [`BlockedOn`].
    waiting: [Fifo<u32>; BlockedOn::ALL.len()],
    /// Queue pairs whose next packet is paced to a later time; created when the first packet is paced.
    pub(super) wheel: Option<Box<Wheel>>,
    /// Statistics of connections that have ended.
    pub(super) ended: FalconStats,
    /// Event counters of adaptive engines that no longer exist.
    events: EventCounts,
    /// Number of times that a queue pair started to wait for resources.
    pauses: u64,
    /// Handles of payload that the driver still keeps for connections that have ended.
    pub(super) released: Vec<u64>,
    /// The packet to be sent next.
    pub(crate) out: FalconTransmit,
    /// `true` while `out` is the last packet that the engine has returned.
    pub(crate) is_out: bool,
    /// Transaction that the packet in `out` belongs to, if any.
    pub(super) out_context: Option<Context>,
    /// Deadline of the NIC's own entry in the timer heap.
    pub(crate) armed: Deadline,
}

/// Content of `out` before the first packet.
const BLANK: FalconTransmit = FalconTransmit {
    packet: falcon::Packet::BLANK,
    peer: PeerId::NONE,
    label: FlowLabel::new(0),
    from: Qpn::new(0),
    kind: TransmitKind::Request,
};

/// Returns free resources for connections of `shape`, with `receive_bytes` of buffers for requests from the network,
/// when they are given.
fn resources_of(shape: &FalconShape, receive_bytes: Option<u64>) -> Resources {
    let config = ResourceConfig::of(shape);
    Resources::new(receive_bytes.map_or(config, |bytes| config.with_receive_bytes(bytes)))
}

impl FalconNic {
    pub(crate) fn new(shape: &FalconShape, receive_bytes: Option<u64>) -> Self {
        Self {
            resources: resources_of(shape, receive_bytes),
            resources_percent: shape.resources_percent,
            receive_bytes,
            users: 0,
            adaptives: Vec::new(),
            waiting: BlockedOn::ALL.map(|_| Fifo::new(0)),
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

    /// Checks whether a queue pair with this `shape` is compatible with the existing resources. A queue pair without
    /// configured resources is always compatible, and so is the first one.
    pub(crate) fn check(&self, shape: &FalconShape) -> Result<(), ResourceError> {
        let (has, requested) = (self.resources_percent, shape.resources_percent);
        if self.users > 0 && shape.resources_given && requested != has {
            return Err(ResourceError::FalconResources { requested, has });
        }
        Ok(())
    }

    /// Counts a further queue pair, whose `shape` has been checked. The first one determines the size of the
    /// resources; if that changes, the backlog of the host's memory is reset until the driver reports it again with
    /// the next packet.
    pub(crate) fn join(&mut self, shape: &FalconShape) {
        if self.users == 0 && self.resources_percent != shape.resources_percent {
            self.resources_percent = shape.resources_percent;
            self.resources = resources_of(shape, self.receive_bytes);
        }
        self.users += 1;
    }

    /// Counts one queue pair less. Adaptive engines are destroyed with the last queue pair, because their latencies
    /// and tables depend on its transport.
    pub(crate) fn remove_user(&mut self) {
        self.users -= 1;
        if self.users == 0 {
            self.events = self.events();
            self.adaptives.clear();
        }
    }

    /// Sets the backlog: `bytes` of payload have not reached the host's memory yet.
    pub(crate) fn set_backlog(&mut self, bytes: u64) {
        let buffers = bytes.div_ceil(u64::from(self.resources.config().units.rx));
        self.resources.set_backlog(u32::try_from(buffers).unwrap_or(u32::MAX));
    }

    /// Appends `slot` to the ring of queue pairs blocked on `blocked_on`.
    pub(super) fn push_waiting(&mut self, slot: u32, blocked_on: BlockedOn) {
        self.pauses += 1;
        self.waiting[blocked_on as usize].push(slot);
    }

    /// Wakes the queue pair that has waited longest in each ring, because resources may have become free.
    #[inline]
    pub(crate) fn wake_waiting(&mut self, ready: &mut Ready) {
        BlockedOn::ALL.into_iter().for_each(|blocked_on| self.wake(ready, blocked_on));
    }

    /// Wakes the queue pair that has waited longest for `blocked_on`, if there is any.
    #[inline]
    pub(super) fn wake(&mut self, ready: &mut Ready, blocked_on: BlockedOn) {
        if self.waiting[blocked_on as usize].is_empty() {
            return;
        }
        let may_continue = match blocked_on {
            BlockedOn::Response | BlockedOn::Share => true,
            BlockedOn::Request => self.resources.may_hold_transaction(false),
            BlockedOn::Reserve => self.resources.may_hold_transaction(true),
        };
        if may_continue && let Some(slot) = self.waiting[blocked_on as usize].pop() {
            ready.push_falcon(slot, blocked_on.tag());
        }
    }

    /// Frees the payload that the driver still keeps for connections that have ended.
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

    /// Returns all statistics except those of existing connections.
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

    /// Returns the index of the adaptive engine for connections of `transport`.
    pub(super) fn adaptive_of(&mut self, transport: &Arc<Transport>, config: &EngineConfig, mtu: u32) -> usize {
        let existing = self.adaptives.iter().position(|(other, _)| Arc::ptr_eq(other, transport));
        existing.unwrap_or_else(|| {
            let new_engine = (Arc::clone(transport), make_adaptive(transport, config, mtu));
            // Replaces an adaptive engine that no connection uses any more, so that there are no more engines than
            // transports in use.
            if let Some(index) = self.adaptives.iter().position(|(_, engine)| engine.is_idle()) {
                self.events.add(self.adaptives[index].1.counts());
                self.adaptives[index] = new_engine;
                return index;
            }
            self.adaptives.push(new_engine);
            self.adaptives.len() - 1
        })
    }

    /// Schedules the queue pair in `slot` to send at `departure`, but not earlier; `now` is the current time.
    pub(super) fn pace(&mut self, timers: &mut Timers, now: Time, slot: u32, departure: Time) {
        let wheel = self.wheel.get_or_insert_with(|| Box::new(Wheel::new(0)));
        // The wheel grows by doubling, because slots are allocated one after the other.
        wheel.grow((slot as usize + 1).next_power_of_two().max(WHEEL_SLOTS_MIN));
        wheel.schedule(now, slot, departure);
        self.arm(timers);
    }

    /// Returns the next queue pair whose pacing time is reached.
    pub(super) fn next_due_slot(&mut self, now: Time) -> Option<u32> {
        self.wheel.as_mut()?.take(now)
    }

    /// Ensures that a timer expires when the next event of the NIC itself is due.
    pub(super) fn arm(&mut self, timers: &mut Timers) {
        let departure = self.wheel.as_ref().and_then(|wheel| wheel.deadline());
        let response_times = self.adaptives.iter().filter_map(|(_, engine)| engine.next_at());
        if let Some(next) = response_times.chain(departure).min() {
            timers.arm(NIC_TIMER_SLOT, Deadline::at(next), &mut self.armed);
        }
    }

    /// Removes the queue pair in `slot` from all rings and from the timing wheel, so that no entry applies to the next
    /// queue pair in that slot.
    pub(super) fn forget(&mut self, slot: u32) {
        self.waiting.iter_mut().for_each(|ring| ring.retain(|other| *other != slot));
        if let Some(wheel) = &mut self.wheel {
            wheel.grow(slot as usize + 1);
            wheel.cancel(slot);
        }
    }
}

/// Returns an adaptive engine for connections of `transport`.
///
/// If the system cannot provide a thread at this time, connections do not fail: without a thread, the adaptive engine
/// gives the same responses, but returns them immediately.
fn make_adaptive(transport: &Transport, config: &EngineConfig, mtu: u32) -> AdaptiveEngine {
    let shape = transport.profile.protocol.falcon().expect("its transport is Falcon");
    let make = |shape| AdaptiveEngine::of(&transport.profile, shape, config.line_rate, mtu, config.adaptive_thread);
    let engine = match make(shape) {
        Err(FaeError::NoThread) => make(&FalconShape { fae_place: AdaptivePlace::Datapath, ..*shape }),
        result => result,
    };
    engine.expect("the profile has been checked")
}

/// Initial number of queue pairs for which a timing wheel has space.
const WHEEL_SLOTS_MIN: usize = 16;
