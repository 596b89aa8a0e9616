//! Two engines that exchange Writes over a network that loses packets: every packet that they send is the one that the
//! specification sends, and the circuit processes the same events.

use std::collections::BTreeMap;

use rnic_base::{Duration, Psn, RandomStream, RandomStreams, Time};
use rnic_engine::{RxMeta, SendFlags, SendOp, SendRequest, Transmit, Transport, observe};
use rnic_rtl::spec::fasr::sr::Sr;
use rnic_rtl::spec::fasr::{CAP, Endpoint, Event, Kind};
use rnic_rtl::tools::are_installed;
use rnic_rtl::waves::Recorder;
use rnic_wire::{Packet, Qpn};

use super::bench::{Bench, Job, Pair as Record};
use super::common::{DELAY, Pair, Setup, Side};
use super::{events, verilated};

/// Packets of a Write: long enough for several losses.
const MESSAGE: u32 = 300;
const MTU: u32 = 256;
const FIRST: u32 = 0xff_fffa;

/// The specification of one side of the connections.
struct Model {
    name: &'static str,
    sr: Sr,
    qps: BTreeMap<Qpn, Qp>,
    bench: Option<Bench>,
    events: u64,
    timeouts: u64,
}

/// A queue pair of the specification, and the number of its engine's timeouts.
struct Qp {
    endpoint: Endpoint,
    timeouts: u32,
}

impl Model {
    /// Processes an event of a queue pair, in the circuit too.
    fn step(&mut self, qpn: Qpn, event_of: impl FnOnce(&Endpoint) -> Event) {
        let endpoint = &mut self.qps.get_mut(&qpn).expect("the queue pair exists").endpoint;
        let event = event_of(endpoint);
        let before = Record { context: *endpoint.context(), next: endpoint.next(), timer: Endpoint::timer() };
        let (free, units) = (self.sr.free_blocks(), self.sr.units_taken());
        assert!(endpoint.owed().is_empty(), "an acknowledgement was not sent");
        let outcome = endpoint.step(&mut self.sr, &event);
        self.events += 1;
        if let Some(bench) = &mut self.bench {
            let after = *endpoint.context();
            let lane = Some(self.sr.lane(&after, event.kind == Kind::Data));
            bench.pass(Job { event, before, after, outcome, lane, free, units });
        }
    }

    fn receive(&mut self, packet: &Packet) {
        self.step(packet.dest_qpn, |endpoint| endpoint.event_of(packet).expect("no other packets are sent"));
    }

    /// Compares a packet that the engine sends.
    fn sent(&mut self, sent: &Transmit) {
        let qp = self.qps.get_mut(&sent.from).expect("the queue pair exists");
        qp.endpoint.sent(sent).unwrap_or_else(|difference| panic!("{}: {difference}", self.name));
    }
}

/// Two sides, their specifications and a wire.
struct World {
    pair: Pair,
    models: [Model; 2],
    wire: BTreeMap<(Time, u64), (usize, Transmit)>,
    order: u64,
    random: RandomStream,
    /// Losses, and duplicates or delays, in 10,000 packets.
    faults: [u64; 2],
    left_to_post: Vec<(usize, Qpn, u32)>,
}

impl World {
    fn side(&mut self, at: usize) -> &mut Side {
        if at == 0 { &mut self.pair.left } else { &mut self.pair.right }
    }

    /// Sends what side `at` has to send.
    fn drain(&mut self, at: usize) {
        let now = self.pair.now;
        while let Some(sent) = self.side(at).engine.transmit(now).and_then(rnic_engine::Departure::roce).copied() {
            self.models[at].sent(&sent);
            let is_lost = self.random.below(10_000) < self.faults[0];
            if is_lost {
                continue;
            }
            let is_late = self.random.below(10_000) < self.faults[1];
            let extra = if is_late { Duration::from_ns(self.random.below(20_000)) } else { Duration::ZERO };
            // A link of one packet in 20 ns.
            self.order += 1;
            let sent_at = now + Duration::from_ns(self.order % 64 * 20);
            self.wire.insert((sent_at + DELAY + extra, self.order), (1 - at, sent));
        }
        for model in &self.models {
            let late = model.qps.values().map(|qp| qp.endpoint.marked()).find(|marked| !marked.is_empty());
            assert!(late.is_none(), "{} does not send {late:?}", model.name);
        }
    }

    fn post(&mut self, at: usize, qpn: Qpn) {
        let (here, there) = match at {
            0 => (&self.pair.left, &self.pair.right),
            _ => (&self.pair.right, &self.pair.left),
        };
        let (sge, remote) = (here.sge(0, MESSAGE * MTU), there.remote(500_000));
        let op = SendOp::Write { remote, immediate: None };
        let request = SendRequest { wr_id: 0, op, sges: &[sge], flags: SendFlags::SIGNALED };
        self.side(at).engine.post_send(qpn, &request).expect("the queue is not full");
    }

    /// Handles everything that happens next, at one point of time; returns whether there was anything.
    fn advance(&mut self) -> bool {
        let timers = [0, 1].map(|at| self.side(at).engine.next_timeout());
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let Some(next) = arrival.into_iter().chain(timers.into_iter().flatten()).min() else { return false };
        self.pair.now = self.pair.now.max(next);
        let now = self.pair.now;
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= now) {
            let (at, sent) = entry.remove();
            self.models[at].receive(&sent.packet);
            let payload = vec![0x5a; sent.packet.payload_len as usize];
            let meta = RxMeta { peer: sent.peer, congested: false };
            self.side(at).receive(now, sent.format, &sent.packet, meta, &payload);
            self.complete(at);
            self.drain(at);
        }
        for at in 0..2 {
            self.side(at).engine.tick(now);
            let timed_out = self.timed_out(at);
            for qpn in timed_out {
                self.models[at].timeouts += 1;
                self.models[at].step(qpn, Endpoint::timeout);
            }
            self.drain(at);
        }
        true
    }

    /// Returns the queue pairs whose timeout has just caused a retransmission.
    fn timed_out(&mut self, at: usize) -> Vec<Qpn> {
        let side = if at == 0 { &self.pair.left } else { &self.pair.right };
        let mut found = Vec::new();
        for (qpn, qp) in &mut self.models[at].qps {
            let timeouts = side.engine.query_qp(*qpn).expect("it exists").stats.timeouts;
            if timeouts != qp.timeouts {
                assert_eq!(timeouts, qp.timeouts + 1);
                qp.timeouts = timeouts;
                found.push(*qpn);
            }
        }
        found.sort_by_key(|qpn| self.models[at].qps[qpn].endpoint.index());
        found
    }

    /// Posts the next Write of a queue pair whose last one is complete.
    fn complete(&mut self, at: usize) {
        for completion in self.side(at).completions() {
            assert_eq!(completion.status, rnic_engine::WcStatus::Success);
            let entry = self
                .left_to_post
                .iter_mut()
                .find(|(side, qpn, left)| *side == at && *qpn == completion.qpn && *left > 0);
            if let Some((_, qpn, left)) = entry {
                *left -= 1;
                let qpn = *qpn;
                self.post(at, qpn);
            }
        }
    }
}

/// Returns `qps` connections that send so many messages in both directions.
fn world(seed: u64, qps: usize, messages: u32, faults: [u64; 2], with_circuit: bool) -> World {
    let setup = Setup { mtu: MTU, psn: Psn::new(FIRST), retry_count: 7, ..Setup::new("fasr", &[]) };
    let mut pair = Pair::new(&setup);
    let mut qpns = vec![(pair.left.qpn, pair.right.qpn)];
    qpns.extend((1..qps).map(|_| pair.another(&setup)));
    let models = [("left", 0), ("right", 1)].map(|(name, at)| {
        let qp = |(index, (left, right)): (usize, &(Qpn, Qpn))| {
            let qp = Qp { endpoint: Endpoint::new(index as u16, FIRST, CAP), timeouts: 0 };
            (if at == 0 { *left } else { *right }, qp)
        };
        let bench = with_circuit.then(verilated).flatten().map(|verilated| {
            let mut bench = Bench::new(verilated.start("fasr_sr", 7).expect("the model starts"), seed);
            bench.clock = Default::default();
            bench
        });
        let qps = qpns.iter().enumerate().map(qp).collect();
        Model { name, sr: Sr::default(), qps, bench, events: 0, timeouts: 0 }
    });
    let random = RandomStreams::new(seed).stream("network");
    let left_to_post = qpns.into_iter().flat_map(|(left, right)| [(0, left, messages), (1, right, messages)]).collect();
    World { pair, models, wire: BTreeMap::new(), order: 0, random, faults, left_to_post }
}

/// Runs a world until all is done; returns events, timeouts and statistics of each side, with the circuits' comparison
/// finished.
fn exchange(mut world: World, seed: u64) -> [(u64, u64, rnic_engine::PoolStats); 2] {
    for number in 0..world.left_to_post.len() {
        world.left_to_post[number].2 -= 1;
        let (at, qpn, _) = world.left_to_post[number];
        world.post(at, qpn);
    }
    world.drain(0);
    world.drain(1);
    while world.advance() {}
    assert!(world.left_to_post.iter().all(|(.., left)| *left == 0), "seed {seed}: not all Writes were posted");
    let stats = [world.pair.left.engine.pool_stats(), world.pair.right.engine.pool_stats()];
    let [left, right] = world.models;
    [(left, stats[0]), (right, stats[1])].map(|(model, stats)| {
        if let Some(bench) = model.bench {
            bench.finish();
        }
        assert_eq!((model.sr.free_blocks(), model.sr.units_taken()), (70, 0), "seed {seed}: something is not returned");
        (model.events, model.timeouts, stats)
    })
}

/// The engine, the specification and the circuit process the same events: over a million packets and acknowledgements
/// of 24 connections, with losses of 1 %; the pool is exhausted on the way.
#[test]
fn r1_r6_r7_r8_r14_r15_engine_specification_and_circuit_send_equal_packets() {
    let messages = (events() / 500_000).max(1) as u32;
    let sides = exchange(world(21, 24, messages, [100, 0], true), 21);
    let events: u64 = sides.iter().map(|(events, ..)| events).sum();
    println!("{events} events, {:?} timeouts", sides.each_ref().map(|(_, timeouts, _)| timeouts));
    assert!(sides.iter().any(|(_, timeouts, _)| *timeouts > 0));
    for (.., stats) in &sides {
        assert!(stats.fallbacks > 0 && stats.misplaced > 0 && stats.overflows > 0, "{stats:?}");
    }
}

/// As above, on few connections that lose little: selective recovery without exhaustion; and with reordered packets,
/// which the receivers take for losses.
#[test]
fn r2_r3_r4_r5_r13_engine_and_specification_send_equal_packets_on_few_connections() {
    for (seed, qps, faults) in [(22, 1, [100, 0]), (23, 4, [50, 0]), (24, 4, [100, 200]), (25, 12, [1_000, 0])] {
        exchange(world(seed, qps, (events() / 125_000).clamp(1, 40) as u32, faults, false), seed);
    }
}

/// As in `rnic rtl trace`, of a flow of a plan: the events of one connection, at both ends, in the circuit that has the
/// contexts of both.
#[test]
fn r17_a_recorded_connection_is_replayed_in_one_circuit() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let profile = rnic_transports::profile("fasr").expect("the transport exists");
    let transport = Transport::new(profile).expect("the profile is valid");
    let recorder = Recorder::new(&transport).expect("the transport has a circuit");
    let mut world = world(26, 1, 8, [1_500, 100], false);
    let Pair { left, right, .. } = &mut world.pair;
    observe(&mut left.engine, Some(recorder.observer(0, left.qpn)));
    observe(&mut right.engine, Some(recorder.observer(1, right.qpn)));
    exchange(world, 26);
    let stimulus = recorder.take().expect("the specification of the connection agrees too");
    assert!(stimulus.counts.iter().all(|count| count.events > 0), "{:?}", stimulus.counts);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let verilated = stimulus.build().expect("the circuit compiles without warnings");
    let answered = stimulus.replay(&verilated, &folder.path().join("fasr.fst")).expect("the circuit agrees");
    assert!(answered.events > 10_000 && answered.compared > 3 * answered.events, "{answered:?}");
}
