//! NewReno: the program against TCP in bytes (T-R10, T-R11).

use rnic_base::{Duration, Probability, Time};
use rnic_fabric::Simulation;
use rnic_fabric::host::tcp::{DelayedAcks, PositionLoss, RtoLimits, TcpHost, TcpParameters};
use rnic_tonic::{FlowId, Nic};
use serde::Deserialize;

use super::compare::{common, distance, mean, trace_difference, variation};
use super::host::TonicHost;
use super::wire::{Wire, WireFlow};
use super::{Network, NicSpec, duration, duration_of_cycle, parse};
use crate::trial::{Trial, TrialKind, read, within};

/// The trial of NewReno.
pub const TRIAL: Trial = Trial {
    name: "tonic-new-reno",
    kind: TrialKind::Simulated,
    numbers: &[
        "window_difference_percent",
        "whole_window_difference_percent",
        "window_difference_by_time_percent",
        "common_repeats_percent",
        "throughput_distance",
        "repeats_distance",
        "variation_ratio",
        "tonic_gbps",
        "independent_gbps",
        "tonic_window",
        "independent_window",
        "tonic_repeats",
        "independent_repeats",
        "independent_timeouts",
    ],
    series: &[
        "slices.tonic_window",
        "slices.independent_window",
        "slices.tonic_segments",
        "slices.independent_segments",
        "flows.tonic_mbps",
        "flows.independent_mbps",
        "flows.tonic_repeats",
        "flows.independent_repeats",
    ],
    cost: |arguments| Ok(2 * checked(arguments)?.network.bytes()?),
    run: |arguments, seed| checked(arguments)?.run(seed),
};

/// Arguments of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The network.
    pub network: Network,
    /// Share of arriving segments that the receiving NIC loses, by their positions.
    pub loss: String,
    /// Minimum retransmission timeout.
    pub rto_min: String,
    /// Segments of the first window.
    pub first_window: u32,
}

/// Reads and checks the arguments of a run.
///
/// # Errors
/// A key that is missing or unknown, or a value that is out of range.
pub fn checked(arguments: &toml::Table) -> Result<Arguments, String> {
    let arguments: Arguments = read(arguments)?;
    arguments.network.check()?;
    within("first_window", arguments.first_window, 1, u32::from(WINDOW))?;
    within("rto_min", arguments.rto_min()?, Duration::from_us(10), Duration::from_secs(1))?;
    let _: Probability = parse("loss", &arguments.loss)?;
    Ok(arguments)
}

/// Segments of the template's window, and of the receive window of TCP, so that both have the same limit.
const WINDOW: u16 = 128;

/// Measurements of one of the two implementations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Side {
    /// Window of the first flow in segments, by sample: TCP's, in bytes, has fractions of them.
    pub windows: Vec<f64>,
    /// Bytes that the first flow's sender knew to have arrived, by sample.
    pub positions: Vec<u64>,
    /// Bytes that each flow has delivered, by sample.
    pub delivered: Vec<Vec<u64>>,
    /// Repeated segments of each flow, counted from its start.
    pub repeats: Vec<Vec<u64>>,
    /// Number of bytes of each flow that have been acknowledged.
    pub acknowledged: Vec<u64>,
    /// Number of expired timers, where this is known.
    pub timeouts: u64,
    /// Hash of everything that was transmitted, and when.
    pub trace_hash: String,
}

impl Side {
    /// Returns the window of the first flow when each multiple of `step` bytes of its stream was acknowledged: the two
    /// implementations drift apart in time, but can be compared by position.
    fn windows_by_position(&self, step: u64) -> Vec<f64> {
        let mut windows = Vec::new();
        for (window, position) in self.windows.iter().zip(&self.positions) {
            while (windows.len() as u64) < position / step.max(1) {
                windows.push(*window);
            }
        }
        windows
    }

    /// Returns the bytes that each flow has delivered in the whole run.
    fn totals(&self) -> Vec<f64> {
        self.delivered.last().map_or_else(Vec::new, |last| last.iter().map(|bytes| *bytes as f64).collect())
    }

    /// Returns the mean, over flows, of the variation of the throughput from sample to sample.
    fn variation(&self) -> f64 {
        let flows = self.delivered.first().map_or(0, Vec::len);
        let of_flow = |flow: usize| {
            let steps = self.delivered.windows(2).map(|pair| (pair[1][flow] - pair[0][flow]) as f64);
            variation(&steps.collect::<Vec<_>>())
        };
        mean(&(0..flows).map(of_flow).collect::<Vec<_>>())
    }

    /// Returns the repeated segments of each flow below `ends`, with the number of the flow.
    fn repeats_below(&self, ends: &[u64]) -> Vec<u64> {
        let of_flow = |(flow, (repeats, end)): (u64, (&Vec<u64>, &u64))| {
            repeats.iter().filter(|segment| **segment < *end).map(|segment| flow << 40 | segment).collect()
        };
        let all: Vec<Vec<u64>> = (0..).zip(self.repeats.iter().zip(ends)).map(of_flow).collect();
        all.concat()
    }
}

impl Arguments {
    /// Returns the number of cycles of a run.
    ///
    /// # Errors
    /// When a duration is invalid.
    pub fn cycles(&self) -> Result<u64, String> {
        Ok(self.network.duration()?.as_ps() / duration_of_cycle(&self.network)?.as_ps().max(1))
    }

    fn rto_min(&self) -> Result<Duration, String> {
        duration("rto_min", &self.rto_min)
    }

    fn run(&self, seed: u64) -> Result<serde_json::Value, String> {
        let (tonic, independent) = (self.tonic("new-reno", seed)?, self.independent(seed)?);
        let skip = self.network.skip;
        let after = |windows: &[f64]| windows.get(skip..).unwrap_or_default().to_vec();
        let samples = self.network.round_trip()?.as_ps().div_ceil(self.network.sample()?.as_ps()) as usize;
        let by_round_trip = |windows: &[f64]| windows.iter().copied().step_by(samples).skip(skip).collect::<Vec<_>>();
        let seconds = self.network.duration()?.as_secs_f64();
        let gbps = |side: &Side| side.totals().iter().sum::<f64>() * 8e-9 / seconds;
        let mbps = |side: &Side| side.totals().iter().map(|bytes| bytes * 8e-6 / seconds).collect::<Vec<_>>();
        let counts = |side: &Side| side.repeats.iter().map(|repeats| repeats.len() as f64).collect::<Vec<_>>();
        let (one, other) = (by_round_trip(&independent.windows), by_round_trip(&tonic.windows));
        // Bytes that the link carries in a round trip.
        let step =
            self.network.bytes()? / (self.network.duration()?.as_ps() / self.network.round_trip()?.as_ps()).max(1);
        // The part of each flow that both sides have delivered.
        let both = independent.acknowledged.iter().zip(&tonic.acknowledged);
        let ends: Vec<u64> = both.map(|(one, other)| one.min(other) / u64::from(self.network.segment)).collect();
        let at = |side: &Side| after(&side.windows_by_position(step));
        let whole = |side: &Side| at(side).into_iter().map(f64::floor).collect::<Vec<_>>();
        Ok(serde_json::json!({
            "window_difference_percent": trace_difference(&at(&independent), &at(&tonic)),
            "whole_window_difference_percent": trace_difference(&whole(&independent), &whole(&tonic)),
            "window_difference_by_time_percent": trace_difference(&one, &other),
            "common_repeats_percent": common(&independent.repeats_below(&ends), &tonic.repeats_below(&ends)),
            "throughput_distance": distance(&independent.totals(), &tonic.totals()),
            "repeats_distance": distance(&counts(&independent), &counts(&tonic)),
            "variation_ratio": independent.variation() / tonic.variation().max(f64::MIN_POSITIVE),
            "tonic_gbps": gbps(&tonic),
            "independent_gbps": gbps(&independent),
            "tonic_window": mean(&other),
            "independent_window": mean(&one),
            "tonic_repeats": counts(&tonic).iter().sum::<f64>(),
            "independent_repeats": counts(&independent).iter().sum::<f64>(),
            "independent_timeouts": independent.timeouts,
            "slices": {
                "slice_us": self.network.sample()?.as_us_f64(),
                "tonic_window": self.network.traced(&tonic.windows)?,
                "independent_window": self.network.traced(&independent.windows)?,
                "tonic_segments": self.network.traced(&self.segments(&tonic))?,
                "independent_segments": self.network.traced(&self.segments(&independent))?,
            },
            "flows": {
                "tonic_mbps": mbps(&tonic),
                "independent_mbps": mbps(&independent),
                "tonic_repeats": counts(&tonic),
                "independent_repeats": counts(&independent),
            },
        }))
    }

    /// Returns the segments that the first flow has delivered, by sample.
    fn segments(&self, side: &Side) -> Vec<f64> {
        let first = |flows: &Vec<u64>| flows.first().map_or(0.0, |bytes| *bytes as f64);
        side.delivered.iter().map(|flows| first(flows) / f64::from(self.network.segment)).collect()
    }

    /// Simulates senders with `program`, one of those with the parameters of NewReno's, in the template.
    ///
    /// # Errors
    /// An argument that no network or template can have.
    pub fn tonic(&self, program: &str, seed: u64) -> Result<Side, String> {
        self.tonic_with(program, seed, NicSpec::model)
    }

    /// Simulates the same with NICs made by `build`, which may be circuits.
    ///
    /// # Errors
    /// As [`Arguments::tonic`], and those of `build`.
    pub fn tonic_with<N: Nic + 'static>(
        &self,
        program: &str,
        seed: u64,
        mut build: impl FnMut(&NicSpec) -> Result<N, String>,
    ) -> Result<Side, String> {
        let mut simulation = self.network_with_receiver(seed)?;
        let cycle = duration_of_cycle(&self.network)?;
        // A tick of the template has 16 cycles.
        let ticks = |time: Duration| time.as_ps() / (cycle.as_ps() * 16);
        let parameters = [
            ("first_window", u64::from(self.first_window)),
            ("rto_min", ticks(self.rto_min()?)),
            ("rto_max", ticks(RTO_MAX)),
        ];
        for sender in 0..self.network.senders {
            let flow = |flow| WireFlow::tcp(self.network.receiver(), self.connection(sender, flow));
            let flows = (0..self.network.flows).map(flow).collect();
            let nic = build(&self.network.nic(program, &parameters, WINDOW)?)?;
            let host = TonicHost::new(nic, self.network.host_settings()?, Wire::Tcp, flows);
            simulation.attach(sender, Box::new(host.map_err(|error| error.to_string())?));
        }
        let mut side = self.sample(&mut simulation, |simulation| {
            let host: &TonicHost<N> = simulation.endpoint(0)?;
            let acknowledged = host.counts(0)?.acknowledged * u64::from(self.network.segment);
            Some((f64::from(host.flow(0).ok()?.window), acknowledged))
        })?;
        let of_sender = |sender, flow: FlowId| {
            let host: &TonicHost<N> = simulation.endpoint(sender)?;
            let counts = host.counts(flow)?;
            Some((counts.repeats.to_vec(), counts.acknowledged * u64::from(self.network.segment)))
        };
        let flows = self.of_flows(of_sender).collect::<Option<Vec<_>>>().ok_or("a flow is missing")?;
        (side.repeats, side.acknowledged) = flows.into_iter().unzip();
        Ok(side)
    }

    /// Simulates senders with TCP.
    ///
    /// # Errors
    /// An argument that no network can have.
    pub fn independent(&self, seed: u64) -> Result<Side, String> {
        let mut simulation = self.network_with_receiver(seed)?;
        let segment = self.network.segment;
        let parameters = TcpParameters {
            segment,
            first_window: self.first_window,
            receive_window: u32::from(WINDOW) * u32::from(segment),
            rto: RtoLimits { min: self.rto_min()?, max: RTO_MAX, ..RtoLimits::default() },
        };
        for sender in 0..self.network.senders {
            let mut host = TcpHost::new();
            for flow in 0..self.network.flows {
                host.add_sender(self.connection(sender, flow), self.network.receiver(), parameters);
            }
            simulation.attach(sender, Box::new(host));
        }
        let mut side = self.sample(&mut simulation, |simulation| {
            let sender = simulation.endpoint::<TcpHost>(0)?.sender(self.connection(0, 0))?;
            let window = sender.cwnd.min(sender.receive_window) as f64 / f64::from(segment);
            Some((window, sender.acknowledged))
        })?;
        let of_sender = |sender, flow| {
            let view = simulation.endpoint::<TcpHost>(sender)?.sender(self.connection(sender, flow))?;
            let repeats = view.repeats.iter().map(|position| position / u64::from(segment));
            Some((repeats.collect::<Vec<_>>(), view.acknowledged, view.timeouts))
        };
        let flows: Vec<_> = self.of_flows(of_sender).collect::<Option<_>>().ok_or("a connection is missing")?;
        side.timeouts = flows.iter().map(|(.., timeouts)| timeouts).sum();
        side.acknowledged = flows.iter().map(|(_, acknowledged, _)| *acknowledged).collect();
        side.repeats = flows.into_iter().map(|(repeats, ..)| repeats).collect();
        Ok(side)
    }

    fn connection(&self, sender: u32, flow: FlowId) -> u32 {
        sender * u32::from(self.network.flows) + u32::from(flow)
    }

    fn of_flows<'a, T>(&'a self, of: impl Fn(u32, FlowId) -> T + Copy + 'a) -> impl Iterator<Item = T> + 'a {
        (0..self.network.senders).flat_map(move |sender| (0..self.network.flows).map(move |flow| of(sender, flow)))
    }

    /// Builds the network with its receiver: TCP with delayed acknowledgements, in both cases.
    fn network_with_receiver(&self, seed: u64) -> Result<Simulation, String> {
        let mut simulation = self.network.simulation("\"roce-gbn\"", &toml::Table::new(), seed)?;
        let mut host = TcpHost::new();
        for sender in 0..self.network.senders {
            for flow in 0..self.network.flows {
                let window = u32::from(WINDOW) * u32::from(self.network.segment);
                host.add_receiver(self.connection(sender, flow), sender, DelayedAcks::default(), window);
            }
        }
        host.set_loss(PositionLoss::new(parse("loss", &self.loss)?, seed));
        simulation.attach(self.network.receiver(), Box::new(host));
        Ok(simulation)
    }

    /// Runs the simulation, and samples the window returned by `window` and the bytes that the receivers have received.
    fn sample(
        &self,
        simulation: &mut Simulation,
        window: impl Fn(&Simulation) -> Option<(f64, u64)>,
    ) -> Result<Side, String> {
        let (step, end) = (self.network.sample()?, Time::ZERO + self.network.duration()?);
        let mut side = Side::default();
        let mut now = Time::ZERO;
        while now < end {
            now += step;
            simulation.advance(now);
            let (window, position) = window(simulation).ok_or("the first sender is missing")?;
            side.windows.push(window);
            side.positions.push(position);
            let receiver: &TcpHost = simulation.endpoint(self.network.receiver()).ok_or("the receiver is missing")?;
            let bytes = |sender, flow| Some(receiver.receiver(self.connection(sender, flow))?.bytes);
            side.delivered.push(self.of_flows(bytes).collect::<Option<_>>().ok_or("a connection is missing")?);
        }
        side.trace_hash = simulation.trace_hash();
        Ok(side)
    }
}

/// Maximum timeout of both sides: half of the circle of the template's times with cycles of 100 ns is 13 s.
const RTO_MAX: Duration = Duration::from_secs(10);
