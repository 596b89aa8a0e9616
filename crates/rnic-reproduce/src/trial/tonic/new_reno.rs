//! NewReno: the program against TCP in bytes (T-R10, T-R11).

use rnic_base::{Duration, Probability, Time};
use rnic_fabric::Simulation;
use rnic_fabric::host::tcp::{DelayedAcks, PositionLoss, RtoLimits, TcpHost, TcpParameters};
use rnic_tonic::FlowId;
use serde::Deserialize;

use super::compare::{common, distance, mean, trace_difference, variation};
use super::host::TonicHost;
use super::wire::{Wire, WireFlow};
use super::{Network, duration, duration_of_cycle, parse};
use crate::trial::{Trial, TrialKind, read, within};

/// The trial of NewReno.
pub const TRIAL: Trial = Trial {
    name: "tonic-new-reno",
    kind: TrialKind::Simulated,
    numbers: &[
        "window_difference_percent",
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
    /// Least retransmission timeout.
    pub rto_min: String,
    /// Segments of the first window.
    pub first_window: u32,
}

fn checked(arguments: &toml::Table) -> Result<Arguments, String> {
    let arguments: Arguments = read(arguments)?;
    arguments.network.check()?;
    within("first_window", arguments.first_window, 1, u32::from(WINDOW))?;
    within("rto_min", arguments.rto_min()?, Duration::from_us(10), Duration::from_secs(1))?;
    let _: Probability = parse("loss", &arguments.loss)?;
    Ok(arguments)
}

/// Segments of the template's window, and of the receive window of TCP, so that both have the same limit.
const WINDOW: u16 = 128;

/// Measurements of one side.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Usable window of the first flow in segments, by sample.
    pub windows: Vec<f64>,
    /// Bytes that each flow has delivered, by sample.
    pub delivered: Vec<Vec<u64>>,
    /// Repeated segments of each flow, counted from its start.
    pub repeats: Vec<Vec<u64>>,
    /// Expiries of timers, where they are known.
    pub timeouts: u64,
}

impl Side {
    /// Returns the window of the first flow at each position in its stream that is a multiple of `step` bytes, when it
    /// had been delivered up to there: the sides drift apart in time, not in position.
    fn windows_by_position(&self, step: u64) -> Vec<f64> {
        let mut positions = Vec::new();
        for (window, delivered) in self.windows.iter().zip(&self.delivered) {
            let reached = delivered.first().map_or(0, |bytes| bytes / step.max(1));
            while (positions.len() as u64) < reached {
                positions.push(*window);
            }
        }
        positions
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

    /// Returns the repeated segments of all flows, each with the number of its flow.
    fn named_repeats(&self) -> Vec<u64> {
        let of_flow =
            |(flow, repeats): (u64, &Vec<u64>)| repeats.iter().map(move |segment| flow << 40 | segment).collect();
        let all: Vec<Vec<u64>> = (0..).zip(&self.repeats).map(of_flow).collect();
        all.concat()
    }
}

impl Arguments {
    fn rto_min(&self) -> Result<Duration, String> {
        duration("rto_min", &self.rto_min)
    }

    fn run(&self, seed: u64) -> Result<serde_json::Value, String> {
        let (tonic, independent) = (self.tonic(seed)?, self.independent(seed)?);
        let skip = self.network.skip;
        let after = |windows: &[f64]| windows.get(skip..).unwrap_or_default().to_vec();
        let seconds = self.network.duration()?.as_secs_f64();
        let gbps = |side: &Side| side.totals().iter().sum::<f64>() * 8e-9 / seconds;
        let counts = |side: &Side| side.repeats.iter().map(|repeats| repeats.len() as f64).collect::<Vec<_>>();
        let (one, other) = (after(&independent.windows), after(&tonic.windows));
        // A sample's worth of data at the rate of the link.
        let step = self.network.bytes()? / (self.network.duration()?.as_ps() / self.network.sample()?.as_ps()).max(1);
        let at = |side: &Side| after(&side.windows_by_position(step));
        Ok(serde_json::json!({
            "window_difference_percent": trace_difference(&at(&independent), &at(&tonic)),
            "window_difference_by_time_percent": trace_difference(&one, &other),
            "common_repeats_percent": common(&independent.named_repeats(), &tonic.named_repeats()),
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
        }))
    }

    /// Simulates senders with the program in the template.
    ///
    /// # Errors
    /// An argument that no network or template can have.
    pub fn tonic(&self, seed: u64) -> Result<Side, String> {
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
            let template = self.network.template("new-reno", &parameters, WINDOW)?;
            let host = TonicHost::new(template, self.network.host_settings()?, Wire::Tcp, flows);
            simulation.attach(sender, Box::new(host.map_err(|error| error.to_string())?));
        }
        let mut side = self.sample(&mut simulation, |simulation| {
            let host: &TonicHost = simulation.endpoint(0)?;
            Some(f64::from(host.flow(0).ok()?.window))
        })?;
        let of_sender = |sender, flow: FlowId| {
            let host: &TonicHost = simulation.endpoint(sender)?;
            Some(host.counts(flow)?.repeats.to_vec())
        };
        side.repeats = self.of_flows(of_sender).collect::<Option<_>>().ok_or("a flow is missing")?;
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
            // Only full segments are sent.
            Some((sender.cwnd.min(sender.receive_window) / u64::from(segment)) as f64)
        })?;
        let of_sender = |sender, flow| {
            let view = simulation.endpoint::<TcpHost>(sender)?.sender(self.connection(sender, flow))?;
            let repeats = view.repeats.iter().map(|position| position / u64::from(segment));
            Some((repeats.collect::<Vec<_>>(), view.timeouts))
        };
        let flows: Vec<_> = self.of_flows(of_sender).collect::<Option<_>>().ok_or("a connection is missing")?;
        side.timeouts = flows.iter().map(|(_, timeouts)| timeouts).sum();
        side.repeats = flows.into_iter().map(|(repeats, _)| repeats).collect();
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
        let mut simulation = self.network.simulation("\"roce-gbn\"", "", seed)?;
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

    /// Runs the simulation, and samples the window that `window` reads and what the receiver has got.
    fn sample(&self, simulation: &mut Simulation, window: impl Fn(&Simulation) -> Option<f64>) -> Result<Side, String> {
        let (step, end) = (self.network.sample()?, Time::ZERO + self.network.duration()?);
        let mut side = Side::default();
        let mut now = Time::ZERO;
        while now < end {
            now += step;
            simulation.advance(now);
            side.windows.push(window(simulation).ok_or("the first sender is missing")?);
            let receiver: &TcpHost = simulation.endpoint(self.network.receiver()).ok_or("the receiver is missing")?;
            let bytes = |sender, flow| Some(receiver.receiver(self.connection(sender, flow))?.bytes);
            side.delivered.push(self.of_flows(bytes).collect::<Option<_>>().ok_or("a connection is missing")?);
        }
        Ok(side)
    }
}

/// Longest timeout of both sides: half of the circle of the template's times with cycles of 100 ns is 13 s.
const RTO_MAX: Duration = Duration::from_secs(10);
