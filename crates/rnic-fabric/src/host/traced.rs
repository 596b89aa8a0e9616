//! A host whose queue pairs are traced: the same steps as without a trace, after each of which the host's log says what
//! has changed at its engine.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use rnic_base::{Seq, Time};
use rnic_engine::{Latencies, OperationTimes};
use rnic_wire::Qpn;

use super::classed::Classed;
use super::event_loop::{HostModel, Plain};
use super::falcon::WithFalcon;
use super::nic::{WithFalconAndNic, WithNic};
use super::{Host, Meter};
use crate::entry::Entry;
use crate::network::Network;
use crate::trace::log::{DepartureRecord, HostRecord, PacketSummary};

/// A host of type `S` whose queue pairs are traced.
pub(super) struct Traced<S>(PhantomData<S>);

/// Events of a host since the trace was last written.
#[derive(Debug, Default)]
pub(crate) struct HostLog {
    records: Vec<HostRecord>,
    /// Queue pairs that have sent data, by number.
    queue_pairs: BTreeMap<u32, Watched>,
    /// Queue pairs that are recovering.
    recovering: Vec<u32>,
    /// Timeouts of all queue pairs at the last event.
    timeouts: u64,
    /// Time of the last event.
    now: Time,
}

/// A queue pair that has sent data.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    timeouts: u32,
    /// The recovery in progress: its start, and the packet before which everything was sent then.
    recovery: Option<(Time, Seq)>,
    /// First request that has not arrived from the peer.
    expected: Seq,
}

impl<S: HostModel> HostModel for Traced<S> {
    fn begin(host: &mut Host, now: Time) {
        Latencies::of(&mut host.engine).set_clock(now);
        S::begin(host, now);
    }

    fn due(host: &Host) -> Time {
        S::due(host)
    }

    fn step(host: &mut Host, now: Time, network: &mut Network) {
        let before = discarded(host);
        S::step(host, now, network);
        let after = discarded(host);
        if let Some(log) = host.log.as_mut().filter(|_| after[0] > before[0]) {
            log.records.push(HostRecord::Damaged { at: now, packet: None });
        }
    }

    fn prefetch_ahead(host: &Host, network: &Network) {
        S::prefetch_ahead(host, network);
    }

    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        let packet = (!entry.is_pause_frame()).then(|| PacketSummary::of(entry, network));
        let before = discarded(host);
        S::arrive(host, now, entry, network);
        let after = discarded(host);
        if let (Some(packet), Some(log)) = (packet, &mut host.log) {
            if after[0] > before[0] {
                log.records.push(HostRecord::Damaged { at: now, packet: Some(packet) });
            } else if after[1] > before[1] {
                log.records.push(HostRecord::Dropped { at: now, packet });
            } else if let Some(qpn) = packet.qpn.filter(|_| packet.is_nack) {
                log.records.push(HostRecord::Nack { at: now, qpn, psn: packet.psn });
                start_recovery(host, now, qpn);
            }
        }
    }

    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        S::offer(host, now, network);
        log_changes(host, now);
    }
}

/// Processes all events of a traced host before `horizon`.
#[cold]
#[inline(never)]
pub(super) fn run(host: &mut Host, horizon: Time, network: &mut Network) {
    if host.classes.is_some() {
        return host.turn::<Traced<Classed>>(horizon, network);
    }
    match host.falcon {
        Some(_) if host.nic.is_some() => host.turn::<Traced<WithFalconAndNic>>(horizon, network),
        Some(_) => host.turn::<Traced<WithFalcon>>(horizon, network),
        None if host.nic.is_some() => host.turn::<Traced<WithNic>>(horizon, network),
        None => host.turn::<Traced<Plain>>(horizon, network),
    }
}

/// Starts to log the events of queue pairs, with `meter` as the meter unless the host has one.
pub(crate) fn start_log(host: &mut Host, meter: impl FnOnce() -> Box<Meter>) {
    Latencies::of(&mut host.engine).collect(OPERATIONS_MAX);
    host.meter.get_or_insert_with(meter).list_served();
    host.codec.departures = Some(Vec::new());
    host.log = Some(Box::default());
    host.has_model = true;
}

/// Returns the events since the last call, and the operations that have completed since then.
pub(crate) fn take_log(host: &mut Host) -> (Vec<HostRecord>, Vec<OperationTimes>) {
    let records = host.log.as_mut().map(|log| core::mem::take(&mut log.records)).unwrap_or_default();
    (records, Latencies::of(&mut host.engine).take().collect())
}

/// Returns the number of packets discarded because they were damaged, and because the modelled NIC was full.
fn discarded(host: &Host) -> [u64; 2] {
    [host.stats.corrupt, host.nic.as_ref().map_or(0, |nic| nic.dropped())]
}

/// Records that queue pair `qpn` has noticed a loss, unless it recovers already.
fn start_recovery(host: &mut Host, now: Time, qpn: u32) {
    let Some(info) = host.engine.query_qp(Qpn::new(qpn)) else { return };
    let Some(log) = &mut host.log else { return };
    let Some(watched) = log.queue_pairs.get_mut(&qpn) else { return };
    if watched.recovery.is_none() && info.una < info.next {
        watched.recovery = Some((now, info.next));
        log.recovering.push(qpn);
    }
}

/// Logs what has changed since the last event.
fn log_changes(host: &mut Host, now: Time) {
    log_arrived(host, now);
    log_departures(host, now);
    log_timeouts(host, now);
    let Some(log) = &mut host.log else { return };
    log.now = now;
    let HostLog { recovering, queue_pairs, records, .. } = &mut **log;
    recovering.retain(|qpn| {
        let una = host.engine.query_qp(Qpn::new(*qpn)).map(|info| info.una);
        let watched = queue_pairs.get_mut(qpn);
        let Some((from, until)) = watched.as_ref().and_then(|watched| watched.recovery) else { return false };
        let recovers = una.is_some_and(|una| una < until);
        if !recovers {
            records.push(HostRecord::Recovery { from, until: now, qpn: *qpn });
            watched.into_iter().for_each(|watched| watched.recovery = None);
        }
        recovers
    });
}

fn log_departures(host: &mut Host, now: Time) {
    let Some(departures) = host.codec.departures.as_mut().filter(|departures| !departures.is_empty()) else {
        return;
    };
    let departed = core::mem::take(departures);
    for departure @ DepartureRecord { qpn, is_retransmission, .. } in departed {
        if let Some(log) = &mut host.log {
            log.queue_pairs.entry(qpn).or_default();
            log.records.push(HostRecord::Departure(departure));
        }
        if is_retransmission {
            start_recovery(host, now, qpn);
        }
    }
}

/// Logs up to where queue pairs have received the requests of their peers.
fn log_arrived(host: &mut Host, now: Time) {
    while let Some(qpn) = host.meter.as_mut().and_then(|meter| meter.take_served()) {
        let (Some(info), Some(log)) = (host.engine.query_qp(qpn), &mut host.log) else { continue };
        let watched = log.queue_pairs.entry(qpn.get()).or_default();
        if watched.expected != info.expected {
            watched.expected = info.expected;
            log.records.push(HostRecord::Expected { at: now, qpn: qpn.get(), expected: info.expected });
        }
    }
}

fn log_timeouts(host: &mut Host, now: Time) {
    let Some(log) = &mut host.log else { return };
    let timeouts = host.engine.stats().timeouts;
    if log.timeouts == timeouts {
        return;
    }
    log.timeouts = timeouts;
    let mut expired = Vec::new();
    for (qpn, watched) in &mut log.queue_pairs {
        let timeouts = host.engine.query_qp(Qpn::new(*qpn)).map_or(0, |info| info.stats.timeouts);
        if timeouts > watched.timeouts {
            let count = timeouts - watched.timeouts;
            log.records.push(HostRecord::Timeout { at: now, qpn: *qpn, count });
            watched.timeouts = timeouts;
            expired.push(*qpn);
        }
    }
    expired.into_iter().for_each(|qpn| start_recovery(host, now, qpn));
}

impl HostLog {
    /// Ends the log of a queue pair that is destroyed.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        let Some(watched) = self.queue_pairs.remove(&qpn.get()) else { return };
        if let Some((from, _)) = watched.recovery {
            self.records.push(HostRecord::Recovery { from, until: self.now, qpn: qpn.get() });
            self.recovering.retain(|other| *other != qpn.get());
        }
    }
}

/// Most operations that complete at a host in one window of time.
const OPERATIONS_MAX: usize = 1 << 20;
