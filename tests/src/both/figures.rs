//! Times, and counts that depend on them, in which the runs of one scenario may differ.

use std::collections::BTreeMap;
use std::fmt;

use rnic_base::{Duration, Time};
use rnic_engine::{QpSnapshot, TransmitKind};

use super::recording::What;
use super::scenario::Run;

/// Samples of several runs.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Payload per second of each queue pair, in Mbit/s, a sample for each run.
    pub goodput_mbps: [Vec<f64>; 2],
    /// Times of the messages of each queue pair, in ms.
    pub message_ms: [Vec<f64>; 2],
    /// Round trip that the sender has measured last, at each acknowledgement, in ms.
    pub round_trip_ms: Vec<f64>,
    /// Times from the first transmission of a packet to its first repetition, in ms.
    pub repeat_ms: Vec<f64>,
    /// Request packets that were repeated, in percent of those sent once, a sample for each run.
    pub repeated_percent: Vec<f64>,
}

impl Figures {
    /// Adds the samples of `run`.
    pub fn add(&mut self, run: &Run) {
        for (index, flow) in run.flows.iter().enumerate() {
            self.goodput_mbps[index].push(flow.goodput_mbps());
            self.message_ms[index].extend(flow.times.iter().copied().map(ms));
        }
        let recording = &run.recordings[0];
        for call in &recording.calls {
            let What::Receive(received, _) = &call.what else { continue };
            let of = |snapshot: &&QpSnapshot| snapshot.info.number == received.to();
            let round_trip = recording.states[call.state].iter().find(of).and_then(|snapshot| snapshot.round_trip);
            self.round_trip_ms.extend(round_trip.map(ms));
        }
        let mut firsts: BTreeMap<_, Option<Time>> = BTreeMap::new();
        let (mut sent, mut repeated) = (0u32, 0u32);
        for call in &recording.calls {
            let What::Transmit(Some(packet)) = &call.what else { continue };
            let (from, psn, kind) = packet.summary();
            match kind {
                TransmitKind::Request => {
                    sent += 1;
                    firsts.insert((from, psn), Some(call.now));
                }
                TransmitKind::RequestRetransmission => {
                    repeated += 1;
                    if let Some(first) = firsts.get_mut(&(from, psn)).and_then(Option::take) {
                        self.repeat_ms.push(ms(call.now.since(first)));
                    }
                }
                _ => {}
            }
        }
        self.repeated_percent.push(100.0 * f64::from(repeated) / f64::from(sent));
    }

    fn rows(&self) -> [(&'static str, &[f64]); 7] {
        [
            ("goodput, 12 Mbit/s (Mbit/s)", &self.goodput_mbps[0]),
            ("goodput, 4 Mbit/s (Mbit/s)", &self.goodput_mbps[1]),
            ("message, 12 Mbit/s (ms)", &self.message_ms[0]),
            ("message, 4 Mbit/s (ms)", &self.message_ms[1]),
            ("round trip (ms)", &self.round_trip_ms),
            ("until a packet is repeated (ms)", &self.repeat_ms),
            ("packets repeated (%)", &self.repeated_percent),
        ]
    }
}

fn ms(time: Duration) -> f64 {
    time.as_ps() as f64 / 1e9
}

/// Two sets of samples, one beside the other.
#[derive(Clone, Copy, Debug)]
pub struct SideBySide<'f> {
    /// Samples of the fabric.
    pub simulated: &'f Figures,
    /// Samples of sockets.
    pub real: &'f Figures,
}

impl fmt::Display for SideBySide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| quantity | samples | mean | 10 % | 50 % | 90 % | 99 % | KS |")?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for ((name, simulated), (_, real)) in self.simulated.rows().into_iter().zip(self.real.rows()) {
            let (simulated, real) = (sorted(simulated), sorted(real));
            let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len().max(1) as f64;
            let means = [&simulated, &real].map(|samples| mean(samples));
            write!(f, "| {name} | {} / {} | {:.2} / {:.2} |", simulated.len(), real.len(), means[0], means[1])?;
            for share in [0.1, 0.5, 0.9, 0.99] {
                write!(f, " {:.1} / {:.1} |", quantile(&simulated, share), quantile(&real, share))?;
            }
            writeln!(f, " {:.2} |", distance(&simulated, &real))?;
        }
        Ok(())
    }
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the quantile of sorted samples, by the nearest rank; 0 without samples.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// Returns the largest vertical distance between the distributions of two sets of sorted samples (Kolmogorov and
/// Smirnov).
pub fn distance(one: &[f64], other: &[f64]) -> f64 {
    let share = |sorted: &[f64], value: f64| {
        sorted.partition_point(|sample| *sample <= value) as f64 / sorted.len().max(1) as f64
    };
    let values = one.iter().chain(other);
    values.map(|value| (share(one, *value) - share(other, *value)).abs()).fold(0.0, f64::max)
}
