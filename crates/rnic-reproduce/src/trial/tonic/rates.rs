//! RoCEv2 with DCQCN: the program against an engine with go-back-N and DCQCN (T-R12, T-R13, T-R14); and, for tests,
//! other programs whose receivers are engines.

use rnic_base::{BitRate, Bytes, Duration, Time};
use rnic_engine::{
    Access, MemoryRegion, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, SignalKind, SignalSettings, Signals,
};
use rnic_fabric::Simulation;
use rnic_fabric::simulation::QueuePairSpec;
use rnic_tonic::FlowId;
use rnic_wire::net::{IpVersion, link_len};
use rnic_wire::{Format, Qpn};
use serde::Deserialize;

use super::compare::{distance, mean, spread, trace_difference};
use super::host::TonicHost;
use super::wire::{Wire, WireFlow};
use super::{Network, duration, parse, rate_word};
use crate::trial::{Trial, TrialKind, read, within};

/// The trial of DCQCN.
pub const TRIAL: Trial = Trial {
    name: "tonic-dcqcn",
    kind: TrialKind::Simulated,
    numbers: &[
        "rate_difference_percent",
        "throughput_difference_percent",
        "tonic_gbps",
        "independent_gbps",
        "tonic_convergence_percent",
        "independent_convergence_percent",
        "tonic_spread_percent",
        "independent_spread_percent",
        "cnps_distance",
        "tonic_cnps",
        "independent_cnps",
        "tonic_utilization_percent",
    ],
    series: &["slices.tonic_gbps", "slices.independent_gbps"],
    cost: |arguments| Ok(2 * checked(arguments)?.network.bytes()?),
    run: |arguments, seed| checked(arguments)?.run(seed),
};

/// Arguments of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The network.
    pub network: Network,
    /// Further keys of the plan's switch, such as `ecn` and `pfc`.
    pub switch: toml::Table,
    /// Segments of the template's window, and packets in flight of the engine: 64, 128 or 256.
    pub window: u16,
    /// Number of segments of a message.
    pub message: u32,
    /// Retransmission timeout of both sides.
    pub rto: String,
    /// Minimum sending rate, the same for both sides.
    pub rate_min: String,
    /// Payload of a round of the byte counter of both sides.
    pub byte_counter: String,
    /// Period of the rate and alpha timers of both sides. The template counts in 160 ns and visits flows in turn: a
    /// multiple of the time of a round is exact.
    pub timer: String,
}

pub(super) fn checked(arguments: &toml::Table) -> Result<Arguments, String> {
    let arguments: Arguments = read(arguments)?;
    arguments.network.check()?;
    within("message", arguments.message, 1, 65_536)?;
    within("window", arguments.window, 64, 256)?;
    within("rate_min", arguments.rate_min()?, BitRate::bps(1_000_000), BitRate::gbps(10))?;
    let least = u64::from(arguments.network.segment);
    within("timer", arguments.timer()?, Duration::from_us(1), Duration::from_ms(100))?;
    within("byte_counter", arguments.byte_counter()?, least, least * 8_000_000)?;
    within("rto", duration("rto", &arguments.rto)?, Duration::from_us(10), Duration::from_secs(1))?;
    Ok(arguments)
}

/// Step of the additive increase: the default of OpenRNIC's DCQCN, and of the paper's reference \[44\].
const RATE_AI: BitRate = BitRate::bps(40_000_000);
const RATE_HAI: BitRate = BitRate::bps(200_000_000);

/// Length of the base transport header in bytes (IBA 9.2).
const BTH_LEN: u32 = 12;
/// Length of the RETH in bytes (IBA 9.3.3).
const RETH_LEN: u32 = 16;
/// Length of the ICRC in bytes (IBA 9.2).
const ICRC_LEN: u32 = 4;

/// Packets after which an acknowledgement is requested, on both sides.
const ACKNOWLEDGED: u32 = 16;

/// Size of the receiver's memory: no message is longer.
const MEMORY: u64 = 1 << 40;

/// A flow: its queue pairs at the sender and at the receiver, the key of the receiver's memory, and of the sender's.
type Pair = (Qpn, Qpn, u32, u32);

/// Work requests of a queue pair of the independent side.
const DEPTH: u32 = 4;

/// Measurements of one of the two implementations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Side {
    /// Rate of the first flow in Gbit/s, by sample.
    pub rates: Vec<f64>,
    /// Bytes that each flow has delivered, by sample.
    pub delivered: Vec<Vec<u64>>,
    /// Congestion notifications of each flow.
    pub cnps: Vec<u64>,
    /// Number of bytes of each flow that have been acknowledged.
    pub acknowledged: Vec<u64>,
    /// Segments that the template has repeated.
    pub repeats: u64,
    /// Hash of everything that was transmitted, and when.
    pub trace_hash: String,
}

impl Side {
    /// Returns the throughput of each flow from sample `skip` on, in bytes.
    fn totals(&self, skip: usize) -> Vec<f64> {
        let (Some(first), Some(last)) = (self.delivered.get(skip), self.delivered.last()) else { return Vec::new() };
        first.iter().zip(last).map(|(first, last)| (last - first) as f64).collect()
    }
}

impl Arguments {
    fn run(&self, seed: u64) -> Result<serde_json::Value, String> {
        let (tonic, independent) = (self.tonic("dcqcn", seed)?, self.independent(seed)?);
        let skip = self.network.skip;
        let after = |rates: &[f64]| rates.get(skip..).unwrap_or_default().to_vec();
        let rate: BitRate = parse("rate", &self.network.rate)?;
        let samples = tonic.delivered.len().saturating_sub(skip + 1) as u64;
        let seconds = self.network.sample()?.saturating_mul(samples).as_secs_f64().max(f64::MIN_POSITIVE);
        let gbps = |side: &Side| side.totals(skip).iter().sum::<f64>() * 8e-9 / seconds;
        let fair = rate.as_gbps_f64() / (f64::from(self.network.senders) * f64::from(self.network.flows));
        // The mean rate of the second half of the run, by how many percent it differs from the fair one.
        let convergence = |side: &Side| {
            let late = side.rates.get(side.rates.len() / 2..).unwrap_or_default();
            100.0 * (mean(late) / fair - 1.0).abs()
        };
        let counts = |side: &Side| side.cnps.iter().map(|count| *count as f64).collect::<Vec<_>>();
        let throughput = |side: &Side| -> Vec<f64> {
            let first = |flows: &Vec<u64>| flows.first().map_or(0.0, |bytes| *bytes as f64);
            let steps = side.delivered.windows(2).map(|pair| first(&pair[1]) - first(&pair[0]));
            steps.skip(skip.saturating_sub(1)).collect()
        };
        Ok(serde_json::json!({
            "throughput_difference_percent": trace_difference(&throughput(&independent), &throughput(&tonic)),
            "rate_difference_percent": trace_difference(&after(&independent.rates), &after(&tonic.rates)),
            "tonic_gbps": gbps(&tonic),
            "independent_gbps": gbps(&independent),
            "tonic_convergence_percent": convergence(&tonic),
            "independent_convergence_percent": convergence(&independent),
            "tonic_spread_percent": spread(&tonic.totals(skip)),
            "independent_spread_percent": spread(&independent.totals(skip)),
            "cnps_distance": distance(&counts(&independent), &counts(&tonic)),
            "tonic_cnps": counts(&tonic).iter().sum::<f64>(),
            "independent_cnps": counts(&independent).iter().sum::<f64>(),
            "tonic_utilization_percent": 100.0 * gbps(&tonic) / self.payload_gbps()?,
            "slices": {
                "slice_us": self.network.sample()?.as_us_f64(),
                "tonic_gbps": self.network.traced(&tonic.rates)?,
                "independent_gbps": self.network.traced(&independent.rates)?,
            },
        }))
    }

    fn rate_min(&self) -> Result<BitRate, String> {
        parse("rate_min", &self.rate_min)
    }

    fn timer(&self) -> Result<Duration, String> {
        duration("timer", &self.timer)
    }

    fn byte_counter(&self) -> Result<u64, String> {
        Ok(parse::<Bytes>("byte_counter", &self.byte_counter)?.get())
    }

    /// Returns the payload that fits onto the link.
    fn payload_gbps(&self) -> Result<f64, String> {
        let rate: BitRate = parse("rate", &self.network.rate)?;
        Ok(rate.as_gbps_f64() * f64::from(self.network.segment) / f64::from(self.on_wire()))
    }

    /// Returns the bytes that a segment occupies on a link: Ethernet with preamble and gap, IPv4, UDP, BTH, ICRC, and a
    /// RETH in messages of one segment.
    fn on_wire(&self) -> u32 {
        let reth = if self.message == 1 { RETH_LEN } else { 0 };
        link_len(IpVersion::V4, BTH_LEN + reth + u32::from(self.network.segment) + ICRC_LEN)
    }

    /// Converts a rate on the link to the program's unit: rates of the Tonic model count the bytes of segments, those
    /// of the transport engine whole packets.
    fn payload_word(&self, rate: BitRate) -> u64 {
        u64::from(rate_word(rate)) * u64::from(self.network.segment) / u64::from(self.on_wire())
    }

    fn transport(&self, program: &str) -> String {
        let Self { window, rto, rate_min, byte_counter, timer, .. } = self;
        match program {
            "irn" | "sack" => format!("{{ name = \"irn\", cap_packets = {window} }}"),
            "ndp" => "\"tonic-ndp\"".to_owned(),
            _ => format!(
                "{{ name = \"roce-gbn\", control = \"dcqcn\", cap_packets = {window}, rto = \"{rto}\", \
                 dcqcn_timer = \"{timer}\", rate_min = \"{rate_min}\", byte_counter = \"{byte_counter}\", \
                 ack_every_packets = {ACKNOWLEDGED} }}"
            ),
        }
    }

    /// Builds the network with its queue pairs, by sender and flow.
    fn connected(&self, program: &str, seed: u64) -> Result<(Simulation, Vec<Pair>), String> {
        let mut simulation = self.network.simulation(&self.transport(program), &self.switch, seed)?;
        let receiver = self.network.receiver();
        let keys: Vec<u32> = (0..=receiver).map(|host| memory_key(&mut simulation, host)).collect::<Result<_, _>>()?;
        let spec = QueuePairSpec { sends: DEPTH, receives: 0, sges: 1 };
        let mut pairs = Vec::new();
        for sender in 0..self.network.senders {
            for _ in 0..self.network.flows {
                let (own, peer) = simulation.connect_manually(sender, receiver, spec);
                pairs.push((own, peer, keys[receiver as usize], keys[sender as usize]));
            }
        }
        Ok((simulation, pairs))
    }

    /// Simulates senders that run `program` on the Tonic model; the receiver is OpenRNIC's transport engine.
    ///
    /// # Errors
    /// When an argument is invalid for the network or for the Tonic model.
    pub fn tonic(&self, program: &str, seed: u64) -> Result<Side, String> {
        let (mut simulation, pairs) = self.connected(program, seed)?;
        let (format, acknowledged) = match program {
            "dcqcn" => (Format::RoceV2, ACKNOWLEDGED),
            _ => (Format::Irn, 1),
        };
        let wire = Wire::Roce { format, segments: self.message, acknowledged };
        let rate: BitRate = parse("rate", &self.network.rate)?;
        let rates = [("line_rate", rate), ("rate_min", self.rate_min()?), ("rate_ai", RATE_AI), ("rate_hai", RATE_HAI)];
        let rates = rates.map(|(name, rate)| (name, self.payload_word(rate)));
        // A tick of the template has 16 cycles of 10 ns.
        // Deadlines are odd; a tick earlier, so that one that is a multiple of the time of a round of visits is met by
        // the visit at that time.
        let (rto, timer) = (duration("rto", &self.rto)?.as_ns() / 160, self.timer()?.as_ns() / 160 - 1);
        let segments = self.byte_counter()? / u64::from(self.network.segment);
        let timers = [("rto", rto), ("rate_timer", timer), ("alpha_timer", timer)];
        let others = [("window", u64::from(self.window)), ("round_segments", segments)];
        let parameters: Vec<_> = match program {
            "dcqcn" => rates.into_iter().chain(timers).chain(others).collect(),
            _ => Vec::new(),
        };
        for (sender, pairs) in (0..).zip(pairs.chunks(self.network.flows.into())) {
            let mut flows = Vec::new();
            for &(own, peer, rkey, _) in pairs {
                let receiver = self.network.receiver();
                let info = simulation.engine(receiver).query_qp(peer).ok_or("a queue pair is missing")?;
                let first_psn = info.expected.wire();
                flows.push(WireFlow { to: receiver, connection: 0, own_qpn: own, peer_qpn: peer, first_psn, rkey });
            }
            let template = self.network.nic(program, &parameters, self.window)?.model()?;
            let host = TonicHost::new(template, self.network.host_settings()?, wire, flows);
            simulation.attach(sender, Box::new(host.map_err(|error| error.to_string())?));
        }
        let mut side = self.sample(&mut simulation, &pairs, |simulation| {
            let view = simulation.endpoint::<TonicHost>(0)?.flow(0).ok()?;
            Some(f64::from(view.rate) * RATE_UNIT_GBPS * f64::from(self.on_wire()) / f64::from(self.network.segment))
        })?;
        let of_sender = |sender, flow: FlowId| {
            let counts = simulation.endpoint::<TonicHost>(sender)?.counts(flow)?;
            let acknowledged = counts.acknowledged * u64::from(self.network.segment);
            Some((counts.repeats.len() as u64, (counts.cnps, acknowledged)))
        };
        let flows = self.of_flows(of_sender).collect::<Option<Vec<_>>>().ok_or("a flow is missing")?;
        side.repeats = flows.iter().map(|(repeats, _)| repeats).sum();
        (side.cnps, side.acknowledged) = flows.into_iter().map(|(_, counts)| counts).unzip();
        Ok(side)
    }

    /// Simulates engines with go-back-N and DCQCN.
    ///
    /// # Errors
    /// An argument that no network can have.
    pub fn independent(&self, seed: u64) -> Result<Side, String> {
        let (mut simulation, pairs) = self.connected("dcqcn", seed)?;
        let settings = SignalSettings { fold_within: Duration::from_ms(1), ..SignalSettings::default() };
        for sender in 0..self.network.senders {
            simulation.with_engine(sender, |engine, _| Signals::of(engine).collect(settings));
        }
        for (pair, index) in pairs.iter().zip(0u64..) {
            for _ in 0..DEPTH {
                self.post(&mut simulation, index, pair)?;
            }
        }
        let first = pairs.first().ok_or("there is no flow")?.0;
        let rate: BitRate = parse("rate", &self.network.rate)?;
        let side = self.sample(&mut simulation, &pairs, |simulation| {
            let info = simulation.engine(0).query_qp(first)?;
            Some(info.control_rate.unwrap_or(rate).as_gbps_f64())
        })?;
        Ok(side)
    }

    /// Posts a message of flow `index`.
    fn post(&self, simulation: &mut Simulation, index: u64, pair: &Pair) -> Result<(), String> {
        let sender = (index / u64::from(self.network.flows)) as u32;
        let op = SendOp::Write { remote: RemoteMemory { addr: 0, rkey: pair.2 }, immediate: None };
        let sges = [Sge { addr: 0, len: self.message * u32::from(self.network.segment), lkey: pair.3 }];
        let request = SendRequest { wr_id: index, op, sges: &sges, flags: SendFlags::SIGNALED };
        simulation.post_send(sender, pair.0, &request).map_err(|error| error.to_string())
    }

    fn of_flows<'a, T>(&'a self, of: impl Fn(u32, FlowId) -> T + Copy + 'a) -> impl Iterator<Item = T> + 'a {
        (0..self.network.senders).flat_map(move |sender| (0..self.network.flows).map(move |flow| of(sender, flow)))
    }

    /// Adds the notifications that engines have reported since the last call.
    fn count_cnps(&self, simulation: &mut Simulation, pairs: &[Pair], cnps: &mut [u64]) {
        let flows = usize::from(self.network.flows);
        for (sender, (pairs, cnps)) in (0..).zip(pairs.chunks(flows).zip(cnps.chunks_mut(flows))) {
            simulation.with_engine(sender, |engine, now| {
                if !Signals::of(engine).are_collected() {
                    return;
                }
                for record in Signals::of(engine).take(now, usize::MAX).filter(|record| record.kind == SignalKind::Cnp)
                {
                    if let Some(flow) = pairs.iter().position(|pair| pair.0.get() == record.subject) {
                        cnps[flow] += u64::from(record.count);
                    }
                }
            });
        }
    }

    /// Runs the simulation, posts a message whenever one completes, and samples the rate returned by `rate` and the
    /// bytes that the receivers have received.
    fn sample(
        &self,
        simulation: &mut Simulation,
        pairs: &[Pair],
        rate: impl Fn(&Simulation) -> Option<f64>,
    ) -> Result<Side, String> {
        let (step, end) = (self.network.sample()?, Time::ZERO + self.network.duration()?);
        let receiver = self.network.receiver();
        let firsts = pairs.iter().map(|pair| Some(simulation.engine(receiver).query_qp(pair.1)?.expected));
        let firsts: Vec<_> = firsts.collect::<Option<_>>().ok_or("a queue pair is missing")?;
        let none = vec![0; pairs.len()];
        let mut side = Side { cnps: none.clone(), acknowledged: none, ..Side::default() };
        let mut now = Time::ZERO;
        while now < end {
            now += step;
            while simulation.advance(now) {
                for sender in 0..self.network.senders {
                    while let Some((_, completion)) = simulation.poll(sender) {
                        let flow = completion.wr_id as usize;
                        let pair = pairs.get(flow).ok_or("a completion of no flow")?;
                        side.acknowledged[flow] += u64::from(self.message) * u64::from(self.network.segment);
                        self.post(simulation, completion.wr_id, pair)?;
                    }
                }
            }
            self.count_cnps(simulation, pairs, &mut side.cnps);
            side.rates.push(rate(simulation).ok_or("the first sender is missing")?);
            let delivered = pairs.iter().zip(&firsts).map(|(pair, first)| {
                let info = simulation.engine(receiver).query_qp(pair.1)?;
                Some(u64::from(self.network.segment) * info.expected.since(*first))
            });
            side.delivered.push(delivered.collect::<Option<_>>().ok_or("a queue pair is missing")?);
        }
        side.trace_hash = simulation.trace_hash();
        Ok(side)
    }
}

/// Registers all of a host's memory; returns its key.
fn memory_key(simulation: &mut Simulation, host: u32) -> Result<u32, String> {
    let pd = simulation.protection_domain(host);
    let region = MemoryRegion { pd, addr: 0, len: MEMORY, local: 0, access: Access::all() };
    let key = simulation.with_engine(host, |engine, _| engine.objects_mut().register(region));
    key.map(|key| key.0).map_err(|error| error.to_string())
}

/// Unit of Tonic's rates in Gbit/s: a byte in 2^16 cycles of 10 ns.
const RATE_UNIT_GBPS: f64 = 390_625.0 / 32.0 * 1e-9;
