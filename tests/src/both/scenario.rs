//! The same work on the fabric and on sockets.

use std::sync::Arc;

use rnic_base::{BitRate, Duration, Probability, Psn};
use rnic_engine::{
    Access, BurstDefault, Engine, QpConnection, QpTiming, RemoteMemory, RnrTimer, SendFlags, SendOp, SendRequest, Sge,
    Transport, WcStatus,
};
use rnic_fabric::Plan;
use rnic_fabric::fault::{FaultKind, FaultPlan, Target};
use rnic_host::{Impairment, NicConfig, TransportChoice};

use super::recording::{Recorder, Recording};
use super::replay::Objects;
use crate::backend::{Backend, Fabric, Sockets};

/// A transport and a seed of the faults.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the transport.
    pub transport: &'static str,
    /// Options of the transport.
    pub options: &'static [(&'static str, &'static str)],
    /// True when the link marks packets, as a switch with a full queue does.
    pub marks: bool,
    /// Seed of all random decisions.
    pub seed: u64,
}

/// Rate of the link.
const RATE: BitRate = BitRate::bps(200_000_000);

/// Delay of the link: long enough that it is most of the time even where the system runs other processes in between.
const DELAY: Duration = Duration::from_ms(5);

/// Probability that a packet is lost, and that one is overtaken.
const LOSS: Probability = Probability::ratio(1, 100);
const REORDER: Probability = Probability::ratio(1, 100);

/// Probability that a packet with data is marked (ECN) in cases with marks.
const MARK: Probability = Probability::ratio(1, 100);

/// Time by which an overtaken packet is late: that of some packets.
const HOLD: Duration = Duration::from_ms(4);

/// Dequeue rates of the two queue pairs, in Mbit/s, and the number of their messages. The link is faster: a train of
/// packets waits in the queue of a link that sockets imitate, but in the engine of a simulated host.
const FLOWS: [(u64, u32); 2] = [(12, 60), (4, 20)];

/// Bytes of a message, and payload bytes of a full packet.
const MESSAGE_BYTES: u32 = 16 << 10;
const MTU: u32 = 1_024;

/// Messages of a queue pair in flight.
const IN_FLIGHT: u32 = 2;

/// Time between two polls of the completion queues.
const POLL: Duration = Duration::from_us(20);

/// Time after which a run is considered stuck: hundreds of timeouts.
const STUCK: Duration = Duration::from_secs(60);

/// Results of a queue pair.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Times of its messages, from their post to their completion.
    pub times: Vec<Duration>,
    /// Time from the first post to the last completion.
    pub elapsed: Duration,
}

impl Flow {
    /// Returns the payload that was delivered, in Mbit/s.
    pub fn goodput_mbps(&self) -> f64 {
        let bits = self.times.len() as f64 * f64::from(MESSAGE_BYTES) * 8.0;
        bits / (self.elapsed.as_ps() as f64 / 1e6)
    }
}

/// A run and its recording. Host 0 sends, host 1 receives.
#[derive(Clone, Debug)]
pub struct Run {
    /// The queue pairs of host 0.
    pub flows: [Flow; 2],
    /// The calls of the engine of each host.
    pub recordings: [Recording; 2],
    /// The objects of each host.
    pub objects: [Objects; 2],
}

impl Case {
    fn transport(&self) -> Arc<Transport> {
        let choice = TransportChoice::named(self.transport, self.options).expect("the options are valid");
        let mut profile = choice.profile;
        profile.set_line_rate(RATE);
        Arc::new(Transport::new(profile).expect("the composition is valid"))
    }

    fn plan(&self) -> Plan {
        let name = if self.transport == "falcon" { "falcon" } else { "irn" };
        let text = format!(
            "name = \"both\"\nmtu = {MTU}\npayload = \"checked\"\nwire = \"encoded\"\n\
             topology = {{ kind = \"point-to-point\" }}\nlinks = {{ rate = \"200Mbps\", delay = \"5ms\" }}\n\
             transport = {{ name = \"{name}\" }}\nworkload = {{ kind = \"manual\" }}\nrun = {{ limit = \"1000s\" }}\n"
        );
        let mut plan = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        plan.transport = self.transport().profile().clone();
        let reorder = FaultKind::Reorder { probability: REORDER, delay: HOLD };
        let mut kinds = vec![FaultKind::Drop(LOSS), reorder];
        kinds.extend(self.marks.then_some(FaultKind::Mark(MARK)));
        let ends = ["host-0>*", "host-1>*"].map(str::to_owned);
        plan.faults = ends
            .into_iter()
            .flat_map(|links| kinds.iter().map(move |kind| (*kind, links.clone())))
            .map(|(kind, links)| FaultPlan { kind, target: Target::All, links })
            .collect();
        plan
    }

    fn fabric(&self) -> Fabric {
        Fabric::new(&self.plan(), self.seed, 1).expect("the plan is valid")
    }

    fn configs(&self) -> Vec<NicConfig> {
        let impairment = Impairment {
            seed: self.seed,
            loss: LOSS,
            reorder: REORDER,
            // The packet is late by the time, however many others pass it.
            reorder_packets: 1_000,
            reorder_hold: HOLD,
            delay: DELAY,
            rate: Some(RATE),
            mark: if self.marks { MARK } else { Probability::NEVER },
            ..Impairment::default()
        };
        let config = |host: u64| NicConfig {
            name: format!("host-{host}"),
            line_rate: RATE,
            impairment,
            secret: Some(self.seed + host),
            ..NicConfig::at(([127, 0, 0, 1], 0).into())
        };
        vec![config(0), config(1)]
    }

    /// Runs the work on the fabric. Queue pairs whose rate is limited have the burst of the fabric's hosts, or `burst`.
    ///
    /// # Panics
    /// When a message fails, or the run is stuck.
    pub fn on_fabric(&self, burst: Option<BurstDefault>) -> Run {
        let mut fabric = self.fabric();
        if let Some(burst) = burst {
            fabric.with_engine(0, |engine, _| engine.sharing().set_burst(burst));
        }
        self.drive(&mut fabric)
    }

    /// Runs the work on sockets, between two NICs of this process.
    ///
    /// # Panics
    /// As [`Self::on_fabric`], and when there are no sockets.
    pub fn on_sockets(&self) -> Run {
        self.drive(&mut Sockets::new(self.configs()).expect("sockets can be opened"))
    }

    /// Calls `action` with an engine as the fabric configures it for its hosts.
    pub fn with_fabric_engine<T>(&self, action: impl FnOnce(&mut Engine) -> T) -> T {
        self.fabric().with_engine(0, |engine, _| action(engine))
    }

    /// Calls `action` with an engine as a NIC on sockets configures it.
    ///
    /// # Panics
    /// When there are no sockets.
    pub fn with_socket_engine<T>(&self, action: impl FnOnce(&mut Engine) -> T) -> T {
        let config = self.configs().swap_remove(0);
        action(&mut Engine::from(rnic_host::Nic::open(config).expect("a socket can be opened")))
    }

    fn drive<B: Backend>(&self, backend: &mut B) -> Run {
        let recorders = [Recorder::default(), Recorder::default()];
        for (host, recorder) in recorders.iter().enumerate() {
            backend.observe(host, Box::new(recorder.clone()));
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let transport = self.transport();
        let hosts = [0, 1].map(|host| {
            let region = backend.register(host, MESSAGE_BYTES as usize, access);
            (backend.region(host, region), backend.create_cq(host, super::replay::DEPTH))
        });
        let qpns = [0, 1].map(|host| {
            let owner = (backend.domain(host), hosts[host].1);
            FLOWS.map(|_| backend.create_qp(host, &Objects::attributes(owner, &transport, None)))
        });
        let objects = [0, 1].map(|host| {
            let (addr, key) = hosts[host].0;
            let queue_pairs = (0..FLOWS.len()).map(|flow| {
                let connection = self.connection(qpns[1 - host][flow], backend.peer(host, 1 - host));
                (qpns[host][flow], Arc::clone(&transport), connection)
            });
            let region = (addr, u64::from(MESSAGE_BYTES), rnic_engine::Key(key), access);
            Objects { region, queue_pairs: queue_pairs.collect() }
        });
        for (host, objects) in objects.iter().enumerate() {
            for (qpn, _, connection) in &objects.queue_pairs {
                backend.connect_qp(host, *qpn, 1 - host, connection, &TIMING);
            }
        }
        for (flow, (mbps, _)) in FLOWS.into_iter().enumerate() {
            backend.set_rate_limit(0, qpns[0][flow], Some(BitRate::bps(mbps * 1_000_000)));
        }
        let flows = work(backend, hosts.map(|(region, _)| region), hosts[0].1, qpns[0]);
        Run { flows, recordings: recorders.map(|recorder| recorder.take()), objects }
    }

    fn connection(&self, dest_qpn: rnic_wire::Qpn, peer: rnic_engine::PeerId) -> QpConnection {
        let rq_psn = Psn::new(FIRST_PSN);
        QpConnection { peer, dest_qpn, rq_psn, mtu: MTU, min_rnr_timer: RnrTimer::from_code(12), max_dest_rd_atomic: 1 }
    }
}

/// First sequence number in both directions.
const FIRST_PSN: u32 = 0xff_fff0;

const TIMING: QpTiming = QpTiming { sq_psn: Psn::new(FIRST_PSN), retry_count: 7, rnr_retry: Some(7), max_rd_atomic: 1 };

/// Posts all messages and waits for their completions.
fn work<B: Backend>(
    backend: &mut B,
    [own, remote]: [(u64, u32); 2],
    cq: rnic_engine::CqId,
    qpns: [rnic_wire::Qpn; 2],
) -> [Flow; 2] {
    let mut flows = [Flow::default(), Flow::default()];
    let mut posted = [0u32; 2];
    let mut posts = [Vec::new(), Vec::new()];
    let start = backend.now();
    while flows.iter().zip(FLOWS).any(|(flow, (_, messages))| flow.times.len() < messages as usize) {
        for flow in 0..FLOWS.len() {
            while posted[flow] < FLOWS[flow].1 && posted[flow] - (flows[flow].times.len() as u32) < IN_FLIGHT {
                let sges = [Sge { addr: own.0, len: MESSAGE_BYTES, lkey: own.1 }];
                let remote = RemoteMemory { addr: remote.0, rkey: remote.1 };
                let op = SendOp::Write { remote, immediate: None };
                let request = SendRequest { wr_id: flow as u64, op, sges: &sges, flags: SendFlags::SIGNALED };
                backend.post_send(0, qpns[flow], &request).expect("the queue has space");
                posts[flow].push(backend.now());
                posted[flow] += 1;
            }
        }
        backend.advance(POLL);
        let now = backend.now();
        assert!(now.since(start) < STUCK, "nothing completes: {flows:?}");
        while let Some(completion) = backend.poll(0, cq) {
            assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
            let flow = &mut flows[completion.wr_id as usize];
            let post = posts[completion.wr_id as usize][flow.times.len()];
            flow.times.push(now.since(post));
            flow.elapsed = now.since(start);
        }
    }
    flows
}
