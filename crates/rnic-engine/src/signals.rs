//! Signals: events of queue pairs and of the host, as the records by which programs decide.
//!
//! Source: SCR (NSDI'25) section 4.3.1, mechanism S-4 (twelve signals) and S-5 (RX by counters). Collectors observe
//! (SCR mechanism S-3): they add no packet and draw no random number, and no decision of the engine depends on them.
//!
//! | kind | collected |
//! |---|---|
//! | TX, RX | for each packet with payload that is sent, or received by the queue pair that it names |
//! | ACK, NACK, CNP | for each such packet of the peer; an ACK with the newly acknowledged bytes, in full packets |
//! | RTT | for each answered probe of a queue pair, with the label of its path |
//! | hint | when the driver reports one ([`crate::Signals::note_hint`]) |
//! | bus, NIC | when the load that the driver reports ([`crate::Messages::report_load`]) has changed |
//! | credit, peer's bus, peer's NIC | for each accepted grant or report of a peer |
//!
//! The subject of a flow's signal is the number of its queue pair. That of a node's is the number of the peer
//! ([`crate::PeerId`]), or for this host 0; hints have the number that the driver gives them.
//!
//! Signals of the same kind and subject within a time that the driver sets become one record ([`Strategy::of`]), as the
//! hardware of the source accumulates them.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::{Duration, Seq, Time};
use rnic_scr::{Kind, Signal, Strategy};
use rnic_wire::Qpn;
use rnic_wire::scr::NodeReport;

use crate::NicId;
use crate::messages::exchange::HostLoad;

/// Settings for collecting the congestion signals (RTT, ECN marks, queue delay ...) that processors and observers read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalSettings {
    /// Time within which signals of a kind and subject are merged into one record; with zero, each is a separate
    /// record.
    pub fold_within: Duration,
    /// Time within which signals about received packets (RX), which adapters report by counters, are combined into one
    /// (SCR mechanism S-5).
    pub fold_rx_within: Duration,
    /// Maximum number of records that wait to be read. Further ones are counted as lost.
    pub records_max: usize,
    /// Time at which collecting stops.
    pub until: Time,
}

impl Default for SignalSettings {
    fn default() -> Self {
        Self {
            fold_within: Duration::ZERO,
            fold_rx_within: Duration::from_us(20),
            records_max: 1 << 16,
            until: Time::from_ps(u64::MAX),
        }
    }
}

/// The collectors of an engine, and the records that wait to be read.
#[derive(Debug)]
pub(crate) struct Collector {
    settings: SignalSettings,
    /// Records into which signals are still merged.
    open: BTreeMap<(Kind, u32), Signal>,
    complete: VecDeque<Signal>,
    /// Number of the first request of each queue pair that was not acknowledged at the last ACK.
    acknowledged: BTreeMap<Qpn, Seq>,
    load: HostLoad,
    lost: u64,
}

impl Collector {
    pub(crate) fn new(settings: SignalSettings) -> Self {
        Self {
            settings,
            open: BTreeMap::new(),
            complete: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            load: HostLoad::default(),
            lost: 0,
        }
    }

    /// Returns whether collecting has stopped at `now`.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        now > self.settings.until
    }

    /// Extends the time of collecting to `until`.
    pub(crate) fn keep_until(&mut self, until: Time) {
        self.settings.until = until;
    }

    fn within(&self, kind: Kind) -> Duration {
        if kind == Kind::Rx { self.settings.fold_rx_within } else { self.settings.fold_within }
    }

    fn add(&mut self, signal: Signal) {
        if self.is_over(signal.last) {
            return;
        }
        let within = self.within(signal.kind);
        if within == Duration::ZERO {
            return self.complete(signal);
        }
        let key = (signal.kind, signal.subject);
        match self.open.get_mut(&key) {
            Some(record) if signal.last.since(record.first) < within => {
                record.fold(&signal, Strategy::of(signal.kind).kept_value());
            }
            Some(record) => {
                let record = std::mem::replace(record, signal);
                self.complete(record);
            }
            // Queue pairs and peers are as many as exist, and of those that do not exist any more the records end.
            None => drop(self.open.insert(key, signal)),
        }
    }

    fn complete(&mut self, record: Signal) {
        if self.complete.len() < self.settings.records_max {
            self.complete.push_back(record);
        } else {
            self.lost += u64::from(record.count);
        }
    }

    /// Completes the records that can no longer change at `now`.
    fn complete_until(&mut self, now: Time) {
        let ended = |(kind, _): &(Kind, u32), record: &Signal| now.since(record.first) >= self.within(*kind);
        let ended: Vec<_> = self.open.iter().filter(|(key, record)| ended(key, record)).map(|(key, _)| *key).collect();
        for key in ended {
            if let Some(record) = self.open.remove(&key) {
                self.complete(record);
            }
        }
    }

    /// Collects a signal of `kind` about `bytes` of a queue pair.
    pub(crate) fn on_flow(&mut self, kind: Kind, qpn: Qpn, now: Time, bytes: u64) {
        self.add(Signal::new(kind, qpn.get(), now).with_bytes(bytes));
    }

    /// Collects an acknowledgement of `bytes`, with the last round trip that is known.
    pub(crate) fn on_ack(&mut self, qpn: Qpn, now: Time, bytes: u64, rtt: Option<Duration>) {
        let signal = Signal::new(Kind::Ack, qpn.get(), now).with_bytes(bytes);
        self.add(signal.with_value(rtt.map_or(0, Duration::as_ps), 0));
    }

    /// Returns the number of requests of a queue pair acknowledged since the last call: those before `una`, counted
    /// from `start`.
    pub(crate) fn newly_acknowledged(&mut self, qpn: Qpn, start: Seq, una: Seq) -> u64 {
        let before = self.acknowledged.insert(qpn, una).unwrap_or(start);
        una.get().saturating_sub(before.get())
    }

    /// Collects a rate grant of a peer to a queue pair, in bits per second.
    pub(crate) fn on_credit(&mut self, qpn: Qpn, now: Time, rate_bps: u64) {
        self.add(Signal::new(Kind::Credit, qpn.get(), now).with_value(rate_bps, 0));
    }

    /// Collects the round trip of a probe on the path with `label`.
    pub(crate) fn on_round_trip(&mut self, qpn: Qpn, now: Time, label: u16, rtt: Duration) {
        self.add(Signal::new(Kind::Rtt, qpn.get(), now).with_value(rtt.as_ps(), label.into()));
    }

    /// Collects a hint.
    pub(crate) fn on_hint(&mut self, subject: u32, now: Time, weight: u16, cap_bps: u64) {
        self.add(Signal::new(Kind::Hint, subject, now).with_value(cap_bps, u32::from(weight) << 16));
    }

    /// Collects the load of a peer.
    pub(crate) fn on_report(&mut self, peer: NicId, now: Time, report: &NodeReport) {
        let latency = Duration::from_ns(report.bus_latency_ns.into()).as_ps();
        let node = |kind| Signal::new(kind, peer.peer.0, now);
        self.add(node(Kind::PeerBus).with_value(latency, report.bus_use.into()));
        self.add(node(Kind::PeerNic).with_value(0, report.nic_use.into()));
    }

    /// Collects the load of this host, if it has changed.
    pub(crate) fn on_load(&mut self, now: Time, load: HostLoad) {
        let before = std::mem::replace(&mut self.load, load);
        if (before.bus_latency, before.bus_use) != (load.bus_latency, load.bus_use) {
            let signal = Signal::new(Kind::Bus, 0, now);
            self.add(signal.with_value(load.bus_latency.as_ps(), load.bus_use.into()));
        }
        if (before.nic_use, before.context_misses) != (load.nic_use, load.context_misses) {
            self.add(Signal::new(Kind::Nic, 0, now).with_value(load.context_misses, load.nic_use.into()));
        }
    }

    /// Removes and returns the records that are complete at `now`, in the order of their completion, at most `max` of
    /// them.
    pub(crate) fn take(&mut self, now: Time, max: usize) -> impl Iterator<Item = Signal> {
        self.complete_until(now);
        let count = max.min(self.complete.len());
        self.complete.drain(..count)
    }

    /// Returns the number of signals that were lost because too many records were waiting.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Forgets a queue pair that is reset or destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.acknowledged.remove(&qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(fold_within: Duration, records_max: usize) -> Collector {
        Collector::new(SignalSettings {
            fold_within,
            fold_rx_within: Duration::from_us(20),
            records_max,
            ..SignalSettings::default()
        })
    }

    const FLOW: Qpn = Qpn::new(7);

    #[test]
    fn s4_signals_within_the_time_become_one_record() {
        let mut collector = collector(Duration::from_us(10), 100);
        for us in [0, 4, 9, 10, 30] {
            collector.on_flow(Kind::Tx, FLOW, Time::from_us(us), 100);
        }
        collector.on_round_trip(FLOW, Time::from_us(30), 5, Duration::from_us(3));
        let records: Vec<_> =
            collector.take(Time::from_us(39), 100).map(|record| (record.bytes, record.count)).collect();
        assert_eq!(records, [(300, 3), (100, 1)], "the last one may still grow");
        let rest: Vec<_> = collector.take(Time::from_us(40), 100).map(|record| (record.kind, record.level)).collect();
        assert_eq!(rest, [(Kind::Tx, 0), (Kind::Rtt, 5)]);
    }

    #[test]
    fn s5_packets_received_are_counted_over_a_period() {
        let mut collector = collector(Duration::ZERO, 100);
        for us in [0, 5, 19, 20] {
            collector.on_flow(Kind::Rx, FLOW, Time::from_us(us), 10);
            collector.on_flow(Kind::Ack, FLOW, Time::from_us(us), 1);
        }
        let kinds = |records: Vec<Signal>| records.iter().map(|record| (record.kind, record.count)).collect::<Vec<_>>();
        let now = collector.take(Time::from_us(20), 100).collect();
        assert_eq!(kinds(now), [(Kind::Ack, 1), (Kind::Ack, 1), (Kind::Ack, 1), (Kind::Rx, 3), (Kind::Ack, 1)]);
        assert_eq!(kinds(collector.take(Time::from_us(40), 100).collect()), [(Kind::Rx, 1)]);
    }

    #[test]
    fn s4_records_that_are_not_taken_are_counted_as_lost() {
        let mut collector = collector(Duration::ZERO, 3);
        (0..5).for_each(|us| collector.on_flow(Kind::Cnp, FLOW, Time::from_us(us), 0));
        assert_eq!((collector.take(Time::from_us(5), 2).count(), collector.lost()), (2, 2));
        assert_eq!(collector.take(Time::from_us(5), 9).count(), 1);
    }

    #[test]
    fn s4_nothing_is_collected_after_the_end() {
        let mut collector = collector(Duration::ZERO, 100);
        collector.settings.until = Time::from_us(5);
        collector.keep_until(Time::from_us(7));
        (6..9).for_each(|us| collector.on_flow(Kind::Tx, FLOW, Time::from_us(us), 1));
        assert_eq!(collector.take(Time::from_us(9), 9).count(), 2, "those at 6 and 7 us");
        assert!(collector.is_over(Time::from_us(8)) && !collector.is_over(Time::from_us(7)));
    }

    #[test]
    fn s4_an_unchanged_load_is_no_signal() {
        let mut collector = collector(Duration::ZERO, 100);
        let load = HostLoad { bus_latency: Duration::from_us(1), nic_use: 9, ..HostLoad::default() };
        (0..3).for_each(|us| collector.on_load(Time::from_us(us), load));
        collector.on_load(Time::from_us(3), HostLoad { nic_use: 10, ..load });
        let kinds: Vec<_> = collector.take(Time::from_us(9), 9).map(|record| record.kind).collect();
        assert_eq!(kinds, [Kind::Bus, Kind::Nic, Kind::Nic]);
    }

    #[test]
    fn s4_acknowledged_requests_count_once() {
        let mut collector = collector(Duration::ZERO, 1);
        let at = |number: u64| Seq::start(rnic_base::Psn::new(100)) + number;
        let newly = [3, 3, 8, 5].map(|una| collector.newly_acknowledged(FLOW, at(0), at(una)));
        assert_eq!(newly, [3, 0, 5, 0]);
        collector.forget(FLOW);
        assert_eq!(collector.newly_acknowledged(FLOW, at(0), at(4)), 4);
    }
}
