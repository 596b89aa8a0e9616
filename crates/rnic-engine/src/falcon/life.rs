//! Begin and end of a connection.
//!
//! It is made with the first packet in either direction: an idle queue pair takes no more than its verbs half.

use rnic_base::{Psn32, Seq};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::DeliveryConfig;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_policy::{FalconOrdering, FalconShape};
use rnic_wire::falcon::{Cid, FlowLabel, Packet, Rsn, UlpProtocol, Window, WindowBases};

use super::request::Requests;
use super::room::Room;
use super::serve::Serving;
use super::upper::{Nobody, handle};
use super::{ALARMS_MAX, Link, Mapping, Nic, TIMER_ENTRIES};
use crate::core::Core;
use crate::qp::{Qp, QpState};
use crate::timer::Deadline;

/// A transaction is never given up for taking long: what holds it up is either repeated until its packet's attempts are
/// exhausted, or a receiver that is not ready, for as long as verbs allow it; a target that owes data is watched.
const TRANSACTION_TIMEOUT: rnic_base::Duration = rnic_base::Duration::from_secs(1_000_000);

/// Bytes of a transaction beyond its payload, at most.
const HEADERS_MAX: u32 = 64;

impl Qp {
    /// Something may be sent.
    pub(crate) fn wake_falcon(&mut self, core: &mut Core) {
        self.enlist(core);
    }

    /// As [`Qp::wake_falcon`], after a change of state.
    #[cold]
    pub(crate) fn begin_sending_falcon(&mut self, core: &mut Core) {
        let attempts = self.attempts_max();
        if let Some(link) = self.extra.falcon_mut().and_then(|falcon| falcon.link.as_mut()) {
            link.connection.set_attempts_max(attempts);
        }
        self.wake_falcon(core);
    }

    /// Acknowledges once more all that has come, or says once more why it has failed; whether there is any.
    #[cold]
    pub(crate) fn repeat_acks_falcon(&mut self, core: &mut Core) -> bool {
        let (now, has_failed) = (core.now, self.state == QpState::Error);
        let link = self.extra.falcon_mut().and_then(|falcon| falcon.link.as_mut());
        let repeats = link.is_some_and(|link| match has_failed {
            true => link.connection.repeat_refusal(),
            false => link.connection.repeat_acknowledgements(now),
        });
        if repeats {
            self.wake_falcon(core);
        }
        repeats
    }

    /// In the state [`crate::QpState::SendQueueDrained`], perhaps there is nothing to wait for.
    #[cold]
    pub(crate) fn drain_falcon(&mut self, core: &mut Core) {
        self.notice_drained(core);
    }

    fn attempts_max(&self) -> u16 {
        // One more than that is counted.
        self.requester.retry_count.clamp(1, u32::from(u16::MAX) - 1) as u16
    }

    /// The connection, taken out; made when this is the first packet. When nobody has said yet where our numbers start,
    /// the peer's first request does.
    #[inline]
    pub(super) fn take_link(&mut self, core: &mut Core, nic: &mut Nic, packet: Option<&Packet>) -> Option<Box<Link>> {
        match self.extra.falcon_mut()?.link.take() {
            None => self.begin_link(core, nic, packet),
            link => link,
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_link(&mut self, core: &mut Core, nic: &mut Nic, packet: Option<&Packet>) -> Option<Box<Link>> {
        if !self.state.receives() {
            return None;
        }
        if self.requester.start == Seq::UNSET {
            let first = packet.filter(|packet| self.can_be_first(packet))?;
            self.requester.start = Seq::start(first.bases.data);
        }
        core.timers.expect(TIMER_ENTRIES);
        Some(self.make_link(core, nic))
    }

    /// Whether the peer can have sent `packet` on this connection before it has heard anything of us. What is left of
    /// an earlier connection between the same numbers cannot be: it would say where that one stood.
    fn can_be_first(&self, packet: &Packet) -> bool {
        let Some(shape) = self.transport.falcon() else { return false };
        let (Some(window), Some(psn)) = (packet.body.window(), packet.body.psn()) else { return false };
        let width = match window {
            Window::Request => shape.request_window,
            Window::Data => shape.data_window,
        };
        let (seq, start) = (psn.extend(self.responder.start), self.responder.start);
        packet.bases.data == packet.bases.request && seq >= start && seq.since(start) < u64::from(width)
    }

    fn make_link(&self, core: &Core, nic: &mut Nic) -> Box<Link> {
        let shape = *self.transport.profile.protocol.falcon().expect("its transport is Falcon");
        let adaptive = nic.adaptive_of(&self.transport, &core.config, self.mtu());
        let first_rsn: [Rsn; 2] = [self.requester.start.wire(), self.responder.start.wire()];
        let mtu = (self.mtu() + HEADERS_MAX) as u16;
        let transactions = TransactionConfig {
            ordering: ordering_of(&shape),
            protocol: UlpProtocol::Rdma,
            mtu,
            outstanding: shape.outstanding,
            timeout: TRANSACTION_TIMEOUT,
            isolation: Isolation::of(&shape, u32::from(mtu), nic.resources.config()),
        };
        let delivery = self.delivery_config(&shape, first_rsn);
        let config = ConnectionConfig { transactions, delivery, first_rsn };
        let engine = &mut nic.adaptives[adaptive].1;
        let connection = Connection::new(&config, engine, self.slot);
        let connection = connection.expect("an engine has no more queue pairs than an adaptive engine has numbers");
        // A target tells apart twice as many requests as an initiator has under way.
        let serving = Serving::new(shape.outstanding * 2);
        let requests = Requests::new(self.requester.queue.limit());
        let mapping = Mapping { ordering: shape.ordering, errors: shape.errors, requests, serving };
        Box::new(Link { connection, adaptive, mapping, room: Room::default() })
    }

    fn delivery_config(&self, shape: &FalconShape, first_rsn: [Rsn; 2]) -> DeliveryConfig {
        let [ours, theirs]: [Psn32; 2] = first_rsn;
        let hash = self.flow_hash();
        let mut config = DeliveryConfig::of(&self.transport.profile, shape);
        config.cid = Cid::new(self.dest_qpn.get());
        (config.first_sent, config.first_received) = (WindowBases::both(ours), WindowBases::both(theirs));
        config.ordered = shape.ordering == FalconOrdering::Ordered;
        config.attempts_max = self.attempts_max();
        config.flow_hash = hash;
        config.labels = core::array::from_fn(|flow| {
            // The finaliser of SplitMix64: labels of flows, and of neighbouring queue pairs, differ in many bits.
            let mut mixed = hash.wrapping_add((flow as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            FlowLabel::new((mixed >> 40) as u32)
        });
        config
    }

    /// The queue pair has failed, is reset or destroyed, for a reason that is not found while its connection works.
    #[cold]
    pub(crate) fn stop_falcon(&mut self, core: &mut Core, nic: &mut Nic) {
        // A refusal is still to be told.
        if self.responder.refused.is_none() {
            self.end_falcon(core, nic);
        }
    }

    /// As [`Qp::stop_falcon`], for a queue pair that leaves its slot or starts anew.
    #[cold]
    pub(crate) fn leave_falcon(&mut self, core: &mut Core, nic: &mut Nic) {
        self.end_falcon(core, nic);
        core.ready.forget_falcon(self.slot);
        nic.forget(self.slot);
        // Whom its end has woken may have been itself.
        nic.wake_waiting(&mut core.ready);
    }

    /// Ends the connection: what it holds goes back, nothing more is sent, and nothing completes.
    pub(super) fn end_falcon(&mut self, core: &mut Core, nic: &mut Nic) {
        let Some(mut link) = self.extra.falcon_mut().and_then(|falcon| falcon.link.take()) else { return };
        let slot = self.slot;
        core.timers.expect_no_more(TIMER_ENTRIES);
        self.leave_room(core, &link);
        let Link { connection, adaptive, .. } = &mut *link;
        connection.die(core.now, &mut nic.resources, &mut Nobody);
        nic.released.extend(connection.take_kept().map(|rsn| handle(slot, rsn)));
        nic.ended.add(connection.delivery());
        connection.leave(&mut nic.adaptives[*adaptive].1);
        if let Some(falcon) = self.extra.falcon_mut() {
            falcon.alarms = [Deadline::NEVER; ALARMS_MAX];
        }
        nic.wake_waiting(&mut core.ready);
    }
}

fn ordering_of(shape: &FalconShape) -> Ordering {
    match shape.ordering {
        FalconOrdering::Ordered => Ordering::Ordered,
        FalconOrdering::Weak | FalconOrdering::Unordered => Ordering::Unordered,
    }
}
