//! Creation and end of a connection.
//!
//! The connection is created with the first packet in either direction: an idle queue pair needs no more memory than
//! its verbs half.

use rnic_base::{Psn32, Seq};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::DeliveryConfig;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_policy::{FalconOrdering, FalconShape};
use rnic_wire::falcon::{Cid, FlowLabel, Packet, Rsn, UlpProtocol, Window, WindowBases};

use super::credit::CreditUse;
use super::mapping::{Mapping, Rdma};
use super::request::Requests;
use super::serve::Serving;
use super::upper::{NoUpperLayer, handle};
use super::{ARMED_DEADLINES_MAX, Endpoint, FalconEnd, FalconNic, Schedule, TIMER_ENTRIES};
use crate::completion::WcStatus;
use crate::core::Core;
use crate::namespace::NvmeRole;
use crate::nvme::NvmeEnd;
use crate::state::QpState;
use crate::timer::Deadline;
use crate::verbs::Verbs;

/// Timeout of a transaction, never reached in practice: a transaction never fails because of its duration. It is
/// delayed either by packets, which are retransmitted until their attempts are exhausted, or by a receiver that is
/// not ready, for as long as verbs allow it; a target that still has to send data is monitored.
const TRANSACTION_TIMEOUT: rnic_base::Duration = rnic_base::Duration::from_secs(1_000_000);

/// Maximum number of bytes of a transaction beyond its payload.
const HEADERS_MAX: u32 = 64;

/// Maximum length of headers, as [`HEADERS_MAX`], for NVMe with protection information.
const NVME_HEADERS_MAX: u32 = 256;

impl FalconEnd {
    /// Handles the transition of the queue pair to the ready-to-send state.
    #[cold]
    pub(crate) fn begin_sending(&mut self, verbs: &Verbs, core: &mut Core) {
        if let Some(link) = &mut self.link {
            link.connection.set_attempts_max(attempts_max(verbs));
        }
        // The burst depends on the MTU of the connection.
        if let Some(limiter) = self.limiter().copied() {
            self.set_limiter(verbs, core, limiter);
        }
        self.start_scheduler(verbs, core);
        self.on_work(verbs, core);
    }

    /// Retransmits the acknowledgements of all received packets, or the refusal because of which the queue pair has
    /// failed; returns `true` if there is any.
    #[cold]
    pub(crate) fn repeat_acks(&mut self, verbs: &Verbs, core: &mut Core) -> bool {
        let (now, has_failed) = (core.now, verbs.head.state == QpState::Error);
        let repeats = self.link.as_mut().is_some_and(|link| match has_failed {
            true => link.connection.repeat_refusal(),
            false => link.connection.repeat_acknowledgements(now),
        });
        if repeats {
            self.on_work(verbs, core);
        }
        repeats
    }

    /// Returns the connection and its position in the NIC's rings; creates the connection when this is the first
    /// packet. If the start of the local sequence numbers is not set yet, the peer's first request determines it.
    #[inline]
    pub(super) fn link(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        packet: Option<&Packet>,
    ) -> Option<(&mut Schedule, &mut Endpoint)> {
        if self.link.is_none() {
            self.link = Some(begin_link(verbs, core, nic, packet, self.nvme.as_deref())?);
            if self.schedule.scheduling.as_ref().is_none_or(|scheduling| !scheduling.is_started()) {
                self.start_scheduler(verbs, core);
            }
        }
        let Self { schedule, link, .. } = self;
        link.as_deref_mut().map(|link| (schedule, link))
    }

    /// Returns the status with which the oldest entry of the send queue will complete, if it is known that it will
    /// fail.
    pub(crate) fn known_failure(&self, verbs: &Verbs) -> Option<WcStatus> {
        let link = self.link.as_ref()?;
        link.mapping.known_failure(verbs, &link.connection)
    }

    /// Handles failure of the queue pair, after the input during which it failed has been processed.
    #[cold]
    pub(crate) fn stop(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        // Otherwise, a refusal must still be sent.
        if verbs.recv.refused.is_none() {
            self.end(verbs, core, nic);
        }
    }

    /// Ends the connection when the queue pair is destroyed or reset.
    #[cold]
    pub(crate) fn detach(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        self.end(verbs, core, nic);
        core.ready.forget_falcon(verbs.head.slot);
        if let Some(classes) = &mut core.classes {
            classes.forget_falcon(verbs.head.slot);
        }
        nic.forget(verbs.head.slot);
        // The end of the connection may have woken this queue pair itself.
        nic.wake_waiting(&mut core.ready);
    }

    /// Ends the connection: its resources are freed, no more packets are sent, and no requests complete.
    pub(super) fn end(&mut self, verbs: &Verbs, core: &mut Core, nic: &mut FalconNic) {
        if let Some(scheduling) = &mut self.schedule.scheduling {
            scheduling.leave(core);
        }
        let Some(mut link) = self.link.take() else { return };
        let slot = verbs.head.slot;
        core.timers.release_entries(TIMER_ENTRIES);
        link.release_credit(verbs, core);
        if let Some(nvme) = link.mapping.nvme() {
            nvme.detach(verbs, core);
        }
        let Endpoint { connection, adaptive, .. } = &mut *link;
        connection.terminate(core.now, &mut nic.resources, &mut NoUpperLayer);
        nic.released.extend(connection.take_kept_requests().map(|rsn| handle(slot, rsn)));
        nic.ended.add(connection.delivery());
        connection.deregister(&mut nic.adaptives[*adaptive].1);
        self.schedule.alarms = [Deadline::NEVER; ARMED_DEADLINES_MAX];
        self.schedule.set_distant_deadline(slot, core, Deadline::NEVER);
        nic.wake_waiting(&mut core.ready);
    }
}

/// Returns the maximum number of transmissions of a packet; it is below `u16::MAX`, because the counter reaches one
/// more than this maximum.
fn attempts_max(verbs: &Verbs) -> u16 {
    verbs.send.retry_count().clamp(1, u32::from(u16::MAX) - 1) as u16
}

#[cold]
#[inline(never)]
fn begin_link(
    verbs: &mut Verbs,
    core: &mut Core,
    nic: &mut FalconNic,
    packet: Option<&Packet>,
    nvme: Option<&NvmeRole>,
) -> Option<Box<Endpoint>> {
    if !verbs.head.state.receives() {
        return None;
    }
    if verbs.send.start == Seq::UNSET {
        let first_packet = packet.filter(|packet| can_be_first(verbs, packet))?;
        verbs.send.start = Seq::start(first_packet.bases.data);
    }
    let mapping = make_mapping(verbs, core, nvme)?;
    core.timers.reserve_entries(TIMER_ENTRIES);
    Some(make_link(verbs, core, nic, mapping))
}

fn make_mapping(verbs: &Verbs, core: &Core, nvme: Option<&NvmeRole>) -> Option<Mapping> {
    let shape = verbs.head.transport.falcon().expect("its transport is Falcon");
    // A target tracks twice as many requests as an initiator may have in flight.
    let requests_max = shape.outstanding * 2;
    let Some(role) = nvme else {
        let serving = Serving::new(requests_max, shape, verbs.recv.start);
        return Some(Mapping::Rdma(Rdma { requests: Requests::new(verbs.send.queue.capacity(), shape), serving }));
    };
    NvmeEnd::new(role, verbs, core, requests_max).map(|end| Mapping::Nvme(Box::new(end)))
}

/// Returns `true` if the peer can have sent `packet` on this connection before it received any packet from this end.
/// This excludes old packets of an earlier connection between the same queue pair numbers, because their bases belong
/// to that connection.
fn can_be_first(verbs: &Verbs, packet: &Packet) -> bool {
    let Some(shape) = verbs.head.transport.falcon() else { return false };
    let (Some(window), Some(psn)) = (packet.body.window(), packet.body.psn()) else { return false };
    let window_packets = match window {
        Window::Request => shape.request_window,
        Window::Data => shape.data_window,
    };
    let start = verbs.recv.start;
    let seq = psn.extend(start);
    packet.bases.data == packet.bases.request && seq >= start && seq.since(start) < u64::from(window_packets)
}

fn make_link(verbs: &Verbs, core: &Core, nic: &mut FalconNic, mapping: Mapping) -> Box<Endpoint> {
    let Verbs { head, send, recv, .. } = verbs;
    let shape = *head.transport.falcon().expect("its transport is Falcon");
    let adaptive = nic.adaptive_of(&head.transport, &core.config, head.mtu());
    let first_rsn: [Rsn; 2] = [send.start.wire(), recv.start.wire()];
    let (protocol, ordering, headers) = match &mapping {
        Mapping::Rdma(_) => (UlpProtocol::Rdma, ordering_of(&shape), HEADERS_MAX),
        Mapping::Nvme(_) => (UlpProtocol::Nvme, Ordering::Unordered, NVME_HEADERS_MAX),
    };
    let mtu = (head.mtu() + headers) as u16;
    let transactions = TransactionConfig {
        ordering,
        protocol,
        mtu,
        outstanding: shape.outstanding,
        timeout: TRANSACTION_TIMEOUT,
        isolation: Isolation::of(&shape, u32::from(mtu), nic.resources.config()),
    };
    let mut delivery = delivery_config(verbs, &shape, first_rsn);
    delivery.ordered = ordering == Ordering::Ordered;
    let config = ConnectionConfig { transactions, delivery, first_rsn };
    let engine = &mut nic.adaptives[adaptive].1;
    let connection = Connection::new(&config, engine, head.slot);
    let connection = connection.expect("an engine has no more queue pairs than an adaptive engine has numbers");
    Box::new(Endpoint { connection, adaptive, mapping, credit: CreditUse::default() })
}

fn delivery_config(verbs: &Verbs, shape: &FalconShape, first_rsn: [Rsn; 2]) -> DeliveryConfig {
    let [ours, theirs]: [Psn32; 2] = first_rsn;
    let hash = verbs.head.flow_hash();
    let mut config = DeliveryConfig::of(&verbs.head.transport.profile, shape);
    config.cid = Cid::new(verbs.head.dest_qpn.get());
    (config.first_sent, config.first_received) = (WindowBases::both(ours), WindowBases::both(theirs));
    config.attempts_max = attempts_max(verbs);
    config.flow_hash = hash;
    config.labels = core::array::from_fn(|flow| {
        // The finaliser of SplitMix64, so that the labels of flows and of neighbouring queue pairs differ in many
        // bits.
        let mut mixed = hash.wrapping_add((flow as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        FlowLabel::new((mixed >> 40) as u32)
    });
    config
}

fn ordering_of(shape: &FalconShape) -> Ordering {
    match shape.ordering {
        FalconOrdering::Ordered => Ordering::Ordered,
        FalconOrdering::Weak | FalconOrdering::Unordered => Ordering::Unordered,
    }
}
