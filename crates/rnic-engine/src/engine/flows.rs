//! Queue pairs that use several flows: messages that may be delivered in any order.
//!
//! Source: Tonic (NSDI'20) appendix A. A flow delivers its messages in order. With the transport's option `flows`, a
//! queue pair has that many further flows, each with sequence numbers, windows, timers and a program of its own, and
//! passes its Writes and Reads to the flow with the fewest bytes ([`crate::verbs`], `send/flows.rs`, has the order that
//! remains). Sends, atomics and all else that has an order stay on the queue pair itself.
//!
//! A flow is an entry of the table of queue pairs, whose number is that of its queue pair with other low bits
//! ([`number_of`]): so packets have no field for it, and both ends need the same number of flows. Its head has the
//! number of the queue pair, as which it accesses memory and raises events. Its completions go to a queue of the
//! engine's own, from which they are recorded in the send queue of the queue pair: that completes requests in the order
//! of posting.
//!
//! When a flow fails, its queue pair fails, and when a queue pair fails, all its flows do.

use std::collections::BTreeMap;

use rnic_base::BitRate;
use rnic_wire::Qpn;

use super::Engine;
use super::table::QpTable;
use crate::CqId;
use crate::completion::WcStatus;
use crate::config::QpAttributes;
use crate::core::Core;
use crate::error::ResourceError;
use crate::limiter::{LimitSource, RATE_LIMIT_MIN, RateLimit};
use crate::qp::{ProtocolState, Qp};
use crate::roce::RoceConnection;
use crate::state::QpState;
use crate::verbs::Verbs;
use crate::verbs::send::Course;

/// Flows of the queue pairs that have any, by the slots of these.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<u32, Group>);

/// The flows of a queue pair.
#[derive(Debug)]
struct Group {
    /// Queue of their completions.
    cq: CqId,
    flows: Vec<Flow>,
    /// Limits of the rate of the whole queue pair, by [`LimitSource`].
    limits: [Option<RateLimit>; LimitSource::COUNT],
}

/// A flow of a queue pair whose requests are divided among several flows.
#[derive(Debug)]
struct Flow {
    slot: u32,
    /// Work passed to it that is not complete, in bytes, with [`REQUEST_BYTES`] for each request.
    load: u64,
}

/// Requests that a flow takes at most, if the send queue of its queue pair holds more: those of a full window of Tonic,
/// with a packet each. Beyond that, requests wait for the first flow that has completed some.
const REQUESTS_MAX: u32 = 128;

/// Load that a request adds to a flow besides its data: roughly the bytes of its headers and of its acknowledgement's.
const REQUEST_BYTES: u64 = 128;

/// Numbers that are tried for a queue pair with flows, if the engine chooses it. Each is free unless the engine has
/// millions of queue pairs.
pub(super) const NUMBERS_TRIED: u32 = 64;

/// Returns the number of flow `index` of queue pair `qpn`, among those that differ in the low four bits.
fn number_of(qpn: Qpn, index: usize) -> Qpn {
    Qpn::new(qpn.get() ^ (index as u32 + 1))
}

impl Groups {
    fn of(&self, qps: &QpTable, qpn: Qpn) -> Option<&Group> {
        if self.0.is_empty() { None } else { self.0.get(&qps.slot_of(qpn)) }
    }
}

/// Creates the flows of queue pair `qpn`, which has been created with `attributes`, with the state, rights and weight
/// that it has now.
///
/// # Errors
/// When a number is in use, or there are too many queue pairs or completion queues. There are no flows then.
pub(super) fn create(engine: &mut Engine, qpn: Qpn, attributes: &QpAttributes) -> Result<(), ResourceError> {
    let count = usize::from(attributes.transport.for_service(attributes.service).flows);
    if count < 2 {
        return Ok(());
    }
    let Engine { core, qps, groups, .. } = engine;
    let slot = qps.slot_of(qpn);
    let head = |qp: &Qp| (qp.verbs.head.state, qp.verbs.head.access, qp.verbs.head.weight);
    let (state, access, weight) = qps.at(slot).map(head).ok_or(ResourceError::Unknown("queue pair"))?;
    let requests = attributes.max_send_wr.clamp(1, REQUESTS_MAX);
    let cq = core.objects.create_cq_of_flows(requests * count as u32, slot)?;
    groups.0.insert(slot, Group { cq, flows: Vec::with_capacity(count), limits: [None; LimitSource::COUNT] });
    let attributes = QpAttributes {
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: requests,
        max_recv_wr: 0,
        signal_all: true,
        ..attributes.clone()
    };
    for index in 0..count {
        let mut of_flow = 0;
        let created = qps.insert(Some(number_of(qpn, index)), |_, slot| {
            core.watch.start(slot);
            of_flow = slot;
            let mut qp = Qp::new(qpn, slot, &attributes);
            let head = &mut qp.verbs.head;
            (head.state, head.access, head.weight) = (state, access, weight);
            qp
        });
        if let Err(error) = created {
            destroy(engine, qpn);
            return Err(error);
        }
        if let Some(group) = groups.0.get_mut(&slot) {
            group.flows.push(Flow { slot: of_flow, load: 0 });
        }
    }
    Ok(())
}

/// Destroys the flows of queue pair `qpn`, if there are any.
pub(super) fn destroy(engine: &mut Engine, qpn: Qpn) {
    let Engine { core, qps, groups, .. } = engine;
    if groups.0.is_empty() {
        return;
    }
    let Some(group) = groups.0.remove(&qps.slot_of(qpn)) else { return };
    for index in 0..group.flows.len() {
        if let Some(mut qp) = qps.remove(number_of(qpn, index)) {
            qp.detach(core, None);
        }
    }
    let destroyed = core.objects.destroy_cq(group.cq);
    assert!(destroyed.is_ok(), "no other queue pair uses the completion queue of flows");
}

/// Calls `act` with each flow of queue pair `qpn` and the bits in which its number differs.
pub(super) fn for_each(engine: &mut Engine, qpn: Qpn, mut act: impl FnMut(&mut Core, &mut Qp, u32)) {
    let Engine { core, qps, groups, .. } = engine;
    let Some(group) = groups.of(qps, qpn) else { return };
    for (flow, bits) in group.flows.iter().zip(1..) {
        if let Some(qp) = qps.at_mut(flow.slot) {
            act(core, qp, bits);
        }
    }
}

/// Returns the flows of queue pair `qpn`.
pub(super) fn of(engine: &Engine, qpn: Qpn) -> impl Iterator<Item = &Qp> {
    let flows = engine.groups.of(&engine.qps, qpn).into_iter().flat_map(|group| &group.flows);
    flows.filter_map(|flow| engine.qps.at(flow.slot))
}

/// Returns the limits of the rate of queue pair `qpn`, if it has flows, among which they are divided.
pub(super) fn limits_of(engine: &Engine, qpn: Qpn) -> Option<[Option<RateLimit>; LimitSource::COUNT]> {
    engine.groups.of(&engine.qps, qpn).map(|group| group.limits)
}

/// Resets the flows of queue pair `qpn`, which is reset.
pub(super) fn reset(engine: &mut Engine, qpn: Qpn) {
    for_each(engine, qpn, |core, qp, _| {
        qp.detach(core, None);
        qp.reset(core);
    });
    let Engine { core, qps, groups, .. } = engine;
    if let Some(group) = groups.0.get_mut(&qps.slot_of(qpn)) {
        while core.objects.poll_cq_one(group.cq).is_some() {}
        group.flows.iter_mut().for_each(|flow| flow.load = 0);
        group.limits[LimitSource::Program as usize] = None;
    }
}

/// Divides a limit of the rate of queue pair `qpn` among its flows and itself; returns the part of each.
pub(super) fn divide_limit(
    engine: &mut Engine,
    qpn: Qpn,
    source: LimitSource,
    limit: Option<RateLimit>,
) -> Option<RateLimit> {
    let Engine { qps, groups, .. } = engine;
    let Some(group) = groups.0.get_mut(&qps.slot_of(qpn)) else { return limit };
    group.limits[source as usize] = limit;
    let parts = group.flows.len() as u64 + 1;
    let part = limit.map(|RateLimit { rate, burst_bytes }| {
        let rate = BitRate::bps((rate.as_bps() / parts).max(RATE_LIMIT_MIN.as_bps()));
        RateLimit { rate, burst_bytes }
    });
    for_each(engine, qpn, |core, qp, _| qp.set_rate_limit(core, source, part));
    part
}

/// Serves all queue pairs whose flows are due.
#[cold]
#[inline(never)]
pub(super) fn serve(engine: &mut Engine) {
    let Engine { core, qps, groups, .. } = engine;
    while let Some(slot) = core.flows_due.pop() {
        if let Some(group) = groups.0.get_mut(&slot) {
            group.serve(core, qps, slot);
        }
    }
}

impl Group {
    fn serve(&mut self, core: &mut Core, qps: &mut QpTable, slot: u32) {
        let Some(Qp { verbs, protocol: ProtocolState::Roce(connection) }) = qps.at_mut(slot) else { return };
        self.record_completions(core, verbs, connection);
        self.spread_failure(core, qps, slot);
        self.pass_on(core, qps, slot);
        if let Some(Qp { verbs, protocol: ProtocolState::Roce(connection) }) = qps.at_mut(slot) {
            // A request that waits for a flow is passed on when something has completed.
            if verbs.head.state.sends() && !verbs.send.next_is_on_flow() {
                connection.on_work(verbs, core);
            }
        }
    }

    /// Records what flows have completed in the send queue of the queue pair, which completes it in order.
    fn record_completions(&mut self, core: &mut Core, verbs: &mut Verbs, connection: &RoceConnection) {
        let [una, ..] = connection.numbers(&verbs.head.transport);
        while let Some(done) = core.objects.poll_cq_one(self.cq) {
            let counter = done.wr_id as u32;
            if !verbs.head.state.sends() || !verbs.send.is_pending(counter) {
                continue;
            }
            match done.status {
                WcStatus::Success => {
                    let (flow, bytes) = verbs.send.completed_on_flow(counter);
                    let flow = &mut self.flows[flow as usize];
                    flow.load -= u64::from(bytes) + REQUEST_BYTES;
                }
                // Its cause is a failure before it.
                WcStatus::WrFlushed => {}
                WcStatus::RemoteAccess | WcStatus::RemoteInvalidRequest | WcStatus::RemoteOperational => {
                    verbs.complete_through(core, una);
                    verbs.fail_behind_unfinished(core, counter, done.status);
                }
                status => verbs.fail_entry(core, una, counter, status),
            }
        }
        if verbs.head.state.sends() {
            verbs.complete_through(core, una);
        }
    }

    /// Fails the queue pair in `slot` if one of its flows has refused a request of the peer, and all flows if the queue
    /// pair has failed.
    fn spread_failure(&mut self, core: &mut Core, qps: &mut QpTable, slot: u32) {
        let has_refused = self.flows.iter().any(|flow| {
            let head = qps.at(flow.slot).map(|qp| (&qp.verbs.head.state, qp.verbs.recv.refused));
            head.is_some_and(|(state, refused)| *state == QpState::Error && refused.is_some())
        });
        let Some(qp) = qps.at_mut(slot) else { return };
        if has_refused && qp.verbs.head.state.receives() {
            qp.verbs.fail(core);
        }
        qp.settle_if_failed(core, None);
        if qp.verbs.head.state != QpState::Error {
            return;
        }
        for flow in &self.flows {
            if let Some(qp) = qps.at_mut(flow.slot) {
                qp.fail(core);
                qp.settle_if_failed(core, None);
            }
        }
    }

    /// Passes requests of the queue pair to its flows, in the order in which they were posted, until one has to wait.
    fn pass_on(&mut self, core: &mut Core, qps: &mut QpTable, slot: u32) {
        loop {
            let Some(Qp { verbs, protocol: ProtocolState::Roce(connection) }) = qps.at(slot) else { return };
            let [una, next, ..] = connection.numbers(&verbs.head.transport);
            let send = &verbs.send;
            if !verbs.head.state.sends() || send.known_failure.is_some() || !send.next_is_on_flow() {
                return;
            }
            if let Err(reason) = send.may_begin(&verbs.head, una) {
                reason.into_iter().for_each(|reason| core.count_wait(reason));
                return;
            }
            let course = send.course_of_next(una);
            let bytes = u64::from(send.queue.get(send.queue.next).length) + REQUEST_BYTES;
            let Some(index) = self.choose(qps, course) else { return };
            let Some((qp, of_flow)) = qps.pair_mut(slot, self.flows[index].slot) else { return };
            let Qp { verbs, protocol: ProtocolState::Roce(connection) } = of_flow else { return };
            if let Some(times) = &mut core.times {
                // From here on the request is an ordinary one of its flow.
                times.sent(slot, qp.verbs.send.queue.next, core.now);
            }
            verbs.send.take_over(&mut qp.verbs.send, &qp.verbs.head, next, index as u32);
            connection.on_work(verbs, core);
            self.flows[index].load += bytes;
        }
    }

    /// Returns the flow for a request: the one with the least work that it may go to and that has space for it.
    fn choose(&self, qps: &QpTable, course: Course) -> Option<usize> {
        let has_space = |index: &usize| {
            let qp = qps.at(self.flows[*index].slot);
            qp.is_some_and(|qp| qp.verbs.head.state.sends() && !qp.verbs.send.queue.is_full())
        };
        match course {
            Course::Any => (0..self.flows.len()).filter(has_space).min_by_key(|index| self.flows[*index].load),
            Course::Behind(flow) => Some(flow as usize).filter(has_space),
            Course::Wait => None,
        }
    }
}
