//! Client of `rnic perf` for streams.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rnic_base::{Duration, Time};

use super::channel::Channel;
use super::data::Data;
use super::{Answer, Order, VERSION};
use crate::nic::Nic;
use crate::perf::client::{choice_of, sent, wait_for_disconnect};
use crate::perf::plan::Outcome;
use crate::perf::report::{LatencyKind, PerfReport};
use crate::perf::setup::{SILENCE_TIMEOUTS, reject_client};
use crate::perf::{Latency, Length, PerfConfig, PerfError, protection};
use crate::stream::{StreamConfig, Streams};

/// Checks whether `config` describes a measurement of a stream.
///
/// # Errors
/// The setting that is invalid.
pub(in crate::perf) fn check(config: &PerfConfig) -> Result<(), PerfError> {
    let wrong = |what, given: u64, expected| Err(PerfError::Plan { what, given, expected });
    match config {
        PerfConfig { size_bytes: 0, .. } => wrong("size of an operation of a stream", 0, "at least 1"),
        PerfConfig { qps, .. } if *qps != 1 => wrong("number of queue pairs of a stream", (*qps).into(), "1"),
        PerfConfig { depth: 0, .. } => wrong("depth", 0, "at least 1"),
        _ => Ok(()),
    }
}

/// Measures a stream to the NIC at `to`.
pub(in crate::perf) fn measure(nic: &mut Nic, to: SocketAddr, config: &PerfConfig) -> Result<PerfReport, PerfError> {
    check(config)?;
    let choice = choice_of(nic, config)?;
    protection::check_choice(nic, &choice)?;
    nic.set_impairment(config.impairment);
    let before = sent(nic);
    let measured = Streams::new(nic, StreamConfig { connect_timeout: config.timeout, ..StreamConfig::over(choice) })
        .map_err(PerfError::from)
        .and_then(|mut streams| {
            let id = match streams.connect(nic, to, config.port, (0, 0)) {
                Ok(id) => id,
                Err(error) => {
                    streams.close_all(nic);
                    return Err(error.into());
                }
            };
            let patience = config.timeout.saturating_mul(SILENCE_TIMEOUTS);
            let mut channel = Channel::new(nic, (streams, id, to), patience, config.sleeps_at_once);
            let result = run(nic, &mut channel, config);
            let agreed = channel.negotiated();
            channel.close(nic);
            result.map(|measured| (measured, agreed))
        });
    nic.set_impairment(crate::impair::Impairment::default());
    wait_for_disconnect(nic);
    let (measured, (transport, segment_bytes)) = measured?;
    let after = sent(nic);
    let packets = (after.0 - before.0, after.1 - before.1);
    Ok(report(nic, config, &measured, packets, (transport, segment_bytes)))
}

/// Values measured at both ends.
struct Measured {
    ops: u64,
    elapsed: Duration,
    latency: Latency,
    /// Operations whose data arrived wrong at this end.
    wrong: u64,
    outcome: Outcome,
}

fn run(nic: &mut Nic, channel: &mut Channel, config: &PerfConfig) -> Result<Measured, PerfError> {
    while !channel.is_established() {
        step(nic, channel)?;
    }
    let order = Order {
        version: VERSION,
        size_bytes: config.size_bytes,
        ping_pong: config.ping_pong,
        verify: config.verify,
        impairment: (&config.impairment).into(),
    };
    channel.send(nic, &order)?;
    match receive(nic, channel)? {
        Answer::Ready => {}
        Answer::Refused { reason } => return Err(PerfError::Refused { peer: channel.peer(), reason }),
        Answer::Outcome(_) => return Err(channel.violation("the peer sent an outcome before any data".to_owned())),
    }
    let run = Run { config, data: Data::new(), start: nic.now() };
    if config.ping_pong { run.ping_pong(nic, channel) } else { run.bulk(nic, channel) }
}

fn step(nic: &mut Nic, channel: &mut Channel) -> Result<(), PerfError> {
    channel.step(nic, |nic, id| reject_client(nic, id, "this end only measures"))
}

fn receive(nic: &mut Nic, channel: &mut Channel) -> Result<Answer, PerfError> {
    loop {
        if let Some(answer) = channel.receive(nic)? {
            return Ok(answer);
        }
        step(nic, channel)?;
    }
}

/// One measurement over a stream.
struct Run<'a> {
    config: &'a PerfConfig,
    data: Data,
    start: Time,
}

impl Run<'_> {
    /// Returns whether another operation has to be started after `started` operations.
    fn goes_on(&self, now: Time, started: u64) -> bool {
        match self.config.length {
            Length::Count(count) => started < count,
            Length::Time(time) => started == 0 || now.since(self.start) < time,
        }
    }

    /// Writes operation after operation; the latency of one is the time until all of its bytes are delivered.
    fn bulk(&self, nic: &mut Nic, channel: &mut Channel) -> Result<Measured, PerfError> {
        let size = u64::from(self.config.size_bytes);
        let mut latency = Latency::default();
        // Starts of the operations that are not delivered.
        let mut in_flight: VecDeque<Time> = VecDeque::new();
        let (mut started, mut written, mut done, mut is_finished) = (0, 0, 0, false);
        loop {
            while !is_finished {
                let now = nic.now();
                if written == started * size {
                    if in_flight.len() >= self.config.depth as usize {
                        break;
                    }
                    if !self.goes_on(now, started) {
                        channel.finish(nic);
                        is_finished = true;
                        break;
                    }
                    started += 1;
                    in_flight.push_back(now);
                }
                let taken = channel.write(nic, self.data.at(written, started * size - written))?;
                written += taken as u64;
                if taken == 0 {
                    break;
                }
            }
            step(nic, channel)?;
            let (now, delivered) = (nic.now(), written - channel.undelivered_bytes());
            while done < started && (done + 1) * size <= delivered {
                done += 1;
                in_flight.pop_front().into_iter().for_each(|start| latency.record(now.since(start)));
            }
            if is_finished && let Some(answer) = channel.receive(nic)? {
                let elapsed = nic.now().since(self.start);
                let outcome = outcome(channel, answer)?;
                in_flight.into_iter().for_each(|start| latency.record(nic.now().since(start)));
                return self.end(nic, channel, Measured { ops: started, elapsed, latency, wrong: 0, outcome });
            }
        }
    }

    /// Writes one operation and waits until the other end has returned it, again and again.
    fn ping_pong(&self, nic: &mut Nic, channel: &mut Channel) -> Result<Measured, PerfError> {
        let size = u64::from(self.config.size_bytes);
        let (mut latency, mut ops, mut wrong) = (Latency::default(), 0, 0);
        let mut buffer = vec![0; BUFFER_BYTES];
        while self.goes_on(nic.now(), ops) {
            let (from, start) = (ops * size, nic.now());
            let (mut written, mut read, mut is_wrong) = (0, 0, false);
            while read < size {
                if written < size {
                    written += channel.write(nic, self.data.at(from + written, size - written))? as u64;
                }
                step(nic, channel)?;
                let most = (size - read).min(BUFFER_BYTES as u64) as usize;
                let len = channel.read(nic, &mut buffer[..most])?;
                if len == 0 && channel.is_at_end() {
                    return Err(PerfError::Ended { peer: channel.peer() });
                }
                is_wrong |= self.config.verify && self.data.first_wrong(from + read, &buffer[..len]).is_some();
                read += len as u64;
            }
            latency.record(Duration::from_ps(nic.now().since(start).as_ps() / 2));
            ops += 1;
            wrong += u64::from(is_wrong);
        }
        let elapsed = nic.now().since(self.start);
        channel.finish(nic);
        let answer = receive(nic, channel)?;
        let outcome = outcome(channel, answer)?;
        self.end(nic, channel, Measured { ops, elapsed, latency, wrong, outcome })
    }

    /// Waits until both directions have ended.
    fn end(&self, nic: &mut Nic, channel: &mut Channel, measured: Measured) -> Result<Measured, PerfError> {
        while !(channel.is_over() && channel.is_at_end()) {
            step(nic, channel)?;
        }
        Ok(measured)
    }
}

fn outcome(channel: &Channel, answer: Answer) -> Result<Outcome, PerfError> {
    match answer {
        Answer::Outcome(outcome) => Ok(outcome),
        other => Err(channel.violation(format!("the peer sent {other:?} instead of an outcome"))),
    }
}

fn report(
    nic: &Nic,
    config: &PerfConfig,
    measured: &Measured,
    packets: (u64, u64),
    (transport, segment_bytes): (&str, u32),
) -> PerfReport {
    let Measured { ops, elapsed, latency, wrong, outcome } = measured;
    let elapsed_s = elapsed.as_secs_f64();
    let bytes = ops * u64::from(config.size_bytes);
    let wrong = (wrong + outcome.wrong).min(*ops);
    PerfReport {
        transport: transport.to_owned(),
        op: "stream".to_owned(),
        wire: "udp".to_owned(),
        size_bytes: config.size_bytes,
        qps: 1,
        depth: config.depth,
        loss: config.impairment.loss.as_f64(),
        reorder: config.impairment.reorder.as_f64(),
        ops: *ops,
        bytes,
        elapsed_s,
        goodput_gbps: bytes as f64 * 8.0 / elapsed_s.max(f64::MIN_POSITIVE) / 1e9,
        ops_per_s: *ops as f64 / elapsed_s.max(f64::MIN_POSITIVE),
        latency_us: latency.summary(),
        latency_kind: if config.ping_pong { LatencyKind::HalfRoundTrip } else { LatencyKind::Operation },
        packets_sent: packets.0 + outcome.packets_sent,
        packets_retransmitted: packets.1 + outcome.packets_retransmitted,
        verified: config.verify && wrong == 0 && outcome.verified == *ops,
        ops_verified: outcome.verified,
        ops_wrong: wrong,
        wire_mtu_bytes: segment_bytes,
        segmentation: nic.uses_segmentation(),
        flows: Vec::new(),
    }
}

/// Bytes that are read together.
const BUFFER_BYTES: usize = 64 << 10;
