//! `rnic signals`: prints the signals that a running process collects. Also the format of a signal in a log.

use std::thread;
use std::time::{Duration, Instant};

use rnic_engine::{Signal, SignalKind};
use rnic_host::observe::{self, Endpoint, ObserveError};
use serde::Serialize;

use crate::args::SignalsArgs;
use crate::console;
use crate::failure::Failure;

/// A line of a log, with the fields of this kind of signal.
#[derive(Debug, Default, Serialize)]
pub struct Line<'h> {
    /// Time of the last signal in the record, in microseconds.
    t_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'h str>,
    signal: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_pair: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<u32>,
    /// Number of signals in the record.
    count: u32,
    /// Time of the first signal, if it differs from that of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<f64>,
    /// Label of the path, as the path policy names it: in simulations the source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    /// Rate limit or grant in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<f64>,
    /// Share of the time or of the rate, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    utilisation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_misses: Option<u64>,
}

impl<'h> Line<'h> {
    /// Returns the output line for `signal`; `host` is `None` when there is only one host.
    pub fn new(host: Option<&'h str>, signal: &Signal) -> Self {
        let Signal { kind, subject, count, level, bytes, value, first, last } = *signal;
        let us = |ps: u64| ps as f64 / 1e6;
        let of_16_bits = |value: u32| f64::from(value) / 65_536.0;
        let line = Self {
            t_us: us(last.as_ps()),
            host,
            signal: kind.name(),
            count,
            since_us: (first != last).then(|| us(first.as_ps())),
            ..Self::default()
        };
        let flow = Self { queue_pair: Some(subject), ..line };
        match kind {
            SignalKind::Tx | SignalKind::Rx => Self { bytes: Some(bytes), ..flow },
            SignalKind::Ack => Self { bytes: Some(bytes), rtt_us: (value > 0).then(|| us(value)), ..flow },
            SignalKind::Cnp | SignalKind::Nack => flow,
            SignalKind::Rtt => Self { rtt_us: Some(us(value)), path: Some(level), ..flow },
            SignalKind::Credit => Self { rate_bps: Some(value), ..flow },
            SignalKind::Hint => Self {
                queue_pair: None,
                tenant: host.map(|_| subject),
                weight: Some(of_16_bits(level)),
                rate_bps: (value > 0).then_some(value),
                ..flow
            },
            SignalKind::Bus | SignalKind::PeerBus | SignalKind::Nic | SignalKind::PeerNic => {
                let is_bus = matches!(kind, SignalKind::Bus | SignalKind::PeerBus);
                Self {
                    queue_pair: None,
                    peer: matches!(kind, SignalKind::PeerBus | SignalKind::PeerNic).then_some(subject),
                    latency_us: is_bus.then(|| us(value)),
                    context_misses: (kind == SignalKind::Nic).then_some(value),
                    utilisation: Some(of_16_bits(level)),
                    ..flow
                }
            }
        }
    }

    /// Returns the line as JSON, with its end.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a line has string keys and finite numbers") + "\n"
    }
}

/// Runs `rnic signals`.
///
/// # Errors
/// When the process has not opened the device, or does not answer.
pub fn run(args: &SignalsArgs) -> Result<(), Failure> {
    let devices = observe::devices_of(args.pid).map_err(Failure::input)?;
    let end = args.time.map(|time| Instant::now() + Duration::from_nanos(time.as_ps() / 1_000));
    let (mut lost, mut has_answered) = (vec![0; devices.len()], false);
    loop {
        let (mut answers, mut refusal) = (0, None);
        for (device, lost) in devices.iter().zip(&mut lost) {
            match print_signals(device, lost) {
                Ok(true) => answers += 1,
                Ok(false) => return Ok(()),
                // The process has ended, or this one of its devices was closed, or is a copy.
                Err(error) => refusal = Some(error),
            }
        }
        if let Some(error) = refusal.filter(|_| answers == 0 && !has_answered) {
            return Err(Failure::input(error.to_string()));
        }
        has_answered = true;
        if answers == 0 || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        thread::sleep(INTERVAL);
    }
    let lost: u64 = lost.iter().sum();
    if lost > 0 {
        console::line(&format!("rnic: {lost} signals were lost, because they came faster than they were read"));
    }
    Ok(())
}

/// Prints the signals of `device` since the last call, and stores the number of those lost; returns false when the
/// output has been closed.
fn print_signals(device: &Endpoint, lost: &mut u64) -> Result<bool, ObserveError> {
    let batch = observe::fetch_signals(device, RECORDS, TIMEOUT)?;
    *lost = batch.lost;
    let text: String = batch
        .records
        .iter()
        .filter_map(|record| record.signal())
        .map(|signal| Line::new(None, &signal).to_text())
        .collect();
    Ok(console::try_print(&text))
}

/// Time between two requests.
const INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of records of an answer.
const RECORDS: u32 = 1 << 14;

/// Maximum time for an answer: a process that is stopped does not answer.
const TIMEOUT: Duration = Duration::from_secs(1);
