//! Two engines, honest connections, connections under attack, and the attacker.

use std::collections::VecDeque;
use std::sync::Arc;

use rnic_base::{Duration, Probability, Psn, RandomStream, RandomStreams, Time};
use rnic_engine::*;
use rnic_wire::{Format, Qpn};

use crate::attack::{Aim, PAYLOAD_MAX, invented, mutated};
use crate::heap;
use crate::node::{ATOMIC, LOCAL, Node, READ, SOURCE, WRITE};

/// Simulated time of one step.
const STEP: Duration = Duration::from_ns(60);
/// Peer ids that the two engines use for each other.
const PEERS: [PeerId; 2] = [PeerId(1), PeerId(2)];
/// Index of the protection domain of the connections under attack.
const EXPOSED: usize = 0;
/// Index of the protection domain of the other connections.
pub const SAFE: usize = 1;
/// Steps in each period during which the honest side moves packets.
const MOVING: u64 = 4_400;
/// Steps of a period. In the remaining ones the honest side pauses and the attacker continues, so that
/// acknowledgements pile up.
const PERIOD: u64 = 5_000;
/// Largest number of bytes by which the memory of the engines may have grown at the end of the run since its first
/// quarter.
const GROWTH_BYTES_MAX: i64 = 128 << 10;

/// A connection: its queue pair on each node.
#[derive(Clone, Copy)]
pub struct Connection {
    pub numbers: [Qpn; 2],
    mtu: u32,
    format: Format,
    domain: usize,
}

pub struct World {
    pub nodes: [Node; 2],
    attacked: Vec<Connection>,
    pub honest: Vec<Honest>,
    srqs: [Vec<SrqId>; 2],
    /// Packets in flight to each node.
    wires: [VecDeque<(Transmit, Vec<u8>)>; 2],
    /// Honest packets to each node that the attacker has seen.
    seen: [Vec<Transmit>; 2],
    pub random: RandomStream,
    now: Time,
    payload: Vec<u8>,
}

pub use crate::honest::Honest;

impl World {
    pub fn new(seed: u64, transports: &[(&str, &[(&str, &str)])]) -> Self {
        let mut world = Self {
            nodes: [Node::new(seed), Node::new(seed + 1_000)],
            attacked: Vec::new(),
            honest: Vec::new(),
            srqs: [Vec::new(), Vec::new()],
            wires: [VecDeque::new(), VecDeque::new()],
            seen: [Vec::new(), Vec::new()],
            random: RandomStreams::new(seed).stream("hostile"),
            now: Time::ZERO,
            payload: vec![0xee; PAYLOAD_MAX as usize],
        };
        for node in &mut world.nodes {
            assert_eq!([node.add_domain(), node.add_domain()], [EXPOSED, SAFE]);
        }
        for (name, options) in transports {
            let connection = world.connect_new(name, options, EXPOSED);
            world.attacked.push(connection);
        }
        for (index, name) in ["roce-gbn", "irn"].iter().enumerate() {
            let connection = world.connect_new(name, &[], SAFE);
            world.honest.push(Honest::new(connection, index as u64));
        }
        world
    }

    fn connect_new(&mut self, name: &str, options: &[(&str, &str)], domain: usize) -> Connection {
        let profile = match name {
            "ndp-test" => crate::common::ndp::profile(4),
            _ => rnic_transports::select(name, options.iter().copied()).expect("the transport is registered"),
        };
        let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
        let format = transport.format();
        let numbers = [0, 1].map(|side: usize| {
            let node = &mut self.nodes[side];
            let pd = node.domains[domain].pd;
            let shares = domain == EXPOSED && self.random.below(2) == 0;
            let srq = shares.then(|| node.engine.objects_mut().create_srq(pd, 64, 2).expect("a legal size"));
            self.srqs[side].extend(srq);
            let attributes = QpAttributes {
                pd,
                send_cq: node.cq,
                recv_cq: node.cq,
                srq,
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                signal_all: true,
                service: Service::ReliableConnection,
                transport: Arc::clone(&transport),
                number: None,
                nvme: None,
            };
            let number = node.engine.create_qp(&attributes).expect("legal attributes");
            node.owners.push((number, domain));
            number
        });
        let mtu = if domain == SAFE { 256 } else { [256, 1_024][self.random.below(2) as usize] };
        let connection = Connection { numbers, mtu, format, domain };
        self.reconnect(&connection);
        connection
    }

    /// Takes both ends from any state to `ReadyToSend`.
    fn reconnect(&mut self, connection: &Connection) {
        let psns = [0, 1].map(|_| Psn::new(self.random.bits() as u32));
        for side in [0, 1] {
            let engine = &mut self.nodes[side].engine;
            let qpn = connection.numbers[side];
            let parameters = QpConnection {
                peer: PEERS[1 - side],
                dest_qpn: connection.numbers[1 - side],
                rq_psn: psns[1 - side],
                mtu: connection.mtu,
                min_rnr_timer: RnrTimer::from_code(1),
                max_dest_rd_atomic: 3,
            };
            let timing = QpTiming { sq_psn: psns[side], retry_count: 7, rnr_retry: None, max_rd_atomic: 3 };
            engine.modify_to_reset(qpn).expect("legal in every state");
            engine.modify_to_init(qpn).expect("from reset");
            engine.modify_to_rtr(qpn, &parameters).expect("from init");
            engine.modify_to_rts(self.now, qpn, &timing).expect("from ready to receive");
        }
    }

    pub fn run(&mut self, steps: u64) {
        let mut live = 0;
        for step in 0..steps {
            self.step(step % PERIOD < MOVING);
            if step == steps / 4 {
                self.quiet();
                live = heap::live_bytes();
            }
        }
        self.quiet();
        let grown = heap::live_bytes() - live;
        assert!(grown < GROWTH_BYTES_MAX, "the engines hold {grown} bytes more than after a quarter of the run");
        self.check_served(steps);
    }

    fn step(&mut self, moves: bool) {
        self.now += STEP;
        if self.random.below(400) == 0 {
            // Long enough for one or two timeouts.
            self.now += Duration::from_ns(self.random.below(400_000));
        }
        for _ in 0..if moves { 1 } else { 24 } {
            self.attack();
        }
        if self.random.below(200) == 0 {
            self.disturb();
        }
        if self.random.below(2) == 0 {
            self.revive();
            self.work_attacked();
        }
        self.work_honest();
        if moves {
            (0..3).for_each(|_| self.move_packets());
        }
        self.nodes.iter_mut().for_each(|node| node.engine.tick(self.now));
        self.collect();
    }

    /// Delivers one hostile packet.
    fn attack(&mut self) {
        let side = self.random.below(2) as usize;
        let random = &mut self.random;
        // Packets of the safe connections cannot be forged, so for these connections the attacker uses another peer
        // address.
        let forged = random.below(8) > 0;
        let target = if forged {
            self.attacked[random.below(self.attacked.len() as u64) as usize]
        } else {
            self.honest[random.below(self.honest.len() as u64) as usize].connection
        };
        let info = self.nodes[side].engine.query_qp(target.numbers[side]).expect("it exists");
        let aim = Aim { victim: &self.nodes[side], info, domain: target.domain, mtu: target.mtu };
        let seen = &self.seen[side];
        let mut transmit = if seen.is_empty() || random.below(2) == 0 {
            let other = if target.format == Format::Irn { Format::RoceV2 } else { Format::Irn };
            let format = if random.below(10) == 0 { other } else { target.format };
            invented(random, &aim, format)
        } else {
            let honest = seen[random.below(seen.len() as u64) as usize];
            mutated(random, &aim, &honest)
        };
        if random.below(50) == 0 {
            transmit.packet.dest_qpn = Qpn::new(random.bits() as u32);
        }
        let to_safe = self.honest.iter().any(|honest| honest.connection.numbers[side] == transmit.packet.dest_qpn);
        let stranger = to_safe || random.below(20) == 0;
        let peer = if stranger { PeerId(random.below(4) as u32 + 3) } else { PEERS[1 - side] };
        let meta = RxMeta { peer, congested: random.below(4) == 0 };
        let payload = &self.payload[..transmit.packet.payload_len as usize];
        let outcome = self.nodes[side].receive(self.now, &transmit, meta, payload);
        assert!(!stranger || matches!(outcome, RxOutcome::Dropped(_)), "{outcome:?} from a stranger");
    }

    /// Changes something on the connections under attack: a state, a key or a limit.
    fn disturb(&mut self) {
        let random = &mut self.random;
        let connection = self.attacked[random.below(self.attacked.len() as u64) as usize];
        let side = random.below(2) as usize;
        let (qpn, engine) = (connection.numbers[side], &mut self.nodes[side].engine);
        match random.below(6) {
            0 => engine.modify_to_error(qpn).expect("legal in every state"),
            1 => engine.modify_to_reset(qpn).expect("legal in every state"),
            // The next two may be illegal in the current state.
            2 => _ = engine.modify_to_init(qpn),
            3 => _ = engine.modify_to_sqd(qpn),
            4 => self.nodes[side].renew(EXPOSED),
            _ => {
                let limit = [None, Some(20), Some(40)][random.below(3) as usize];
                engine.set_peer_limit(PEERS[1 - side], limit);
            }
        }
    }

    /// Sets up a connection under attack again when it has failed, mostly after a while.
    fn revive(&mut self) {
        let random = &mut self.random;
        let connection = self.attacked[random.below(self.attacked.len() as u64) as usize];
        let late = random.below(4) == 0;
        let state = |side: usize| {
            let info = self.nodes[side].engine.query_qp(connection.numbers[side]);
            info.expect("it exists").state
        };
        let fallen = state(0) != QpState::ReadyToSend || state(1) != QpState::ReadyToSend;
        // A queue pair that has refused a request and waits for the acknowledgement of a response does not appear to
        // have failed.
        if !late && (fallen || self.random.below(16) == 0) {
            self.reconnect(&connection);
        }
    }

    /// Posts a valid request on a connection under attack; the queue pair may reject it.
    fn work_attacked(&mut self) {
        let random = &mut self.random;
        let connection = self.attacked[random.below(self.attacked.len() as u64) as usize];
        let side = random.below(2) as usize;
        let remote = self.nodes[1 - side].domains[EXPOSED].regions;
        let own = self.nodes[side].domains[EXPOSED].regions;
        let len = random.below(4_000) as u32;
        let (source, sink) = (own[SOURCE].sge(0, len), own[LOCAL].sge(0, len));
        let word = own[LOCAL].sge(8 * random.below(100), 8);
        let (op, sge) = match random.below(6) {
            0 => (SendOp::Write { remote: remote[WRITE].remote(0), immediate: None }, source),
            1 => (SendOp::Write { remote: remote[WRITE].remote(0), immediate: Some(1) }, source),
            2 => (SendOp::Send { immediate: None }, source),
            3 => (SendOp::Read { remote: remote[READ].remote(0) }, sink),
            4 => (SendOp::FetchAdd { remote: remote[ATOMIC].remote(0), add: 1 }, word),
            _ => (SendOp::CompareSwap { remote: remote[ATOMIC].remote(8), compare: 0, swap: 1 }, word),
        };
        let engine = &mut self.nodes[side].engine;
        let request = SendRequest { wr_id: 0, op, sges: &[sge], flags: SendFlags::empty() };
        // All three calls fail when a queue is full or the state does not allow them.
        let _ = engine.post_send(connection.numbers[side], &request);
        let receive = RecvRequest { wr_id: 0, sges: &[own[LOCAL].sge(0, 2_000), own[LOCAL].sge(2_000, 2_000)] };
        let _ = engine.post_recv(connection.numbers[side], &receive);
        for srq in &self.srqs[side] {
            let _ = engine.objects_mut().post_srq_recv(*srq, &receive);
        }
    }

    fn work_honest(&mut self) {
        for honest in &mut self.honest {
            honest.post(&mut self.nodes);
        }
    }

    /// Each node sends a packet, if it has one, and receives one.
    fn move_packets(&mut self) {
        for side in [0, 1] {
            if let Some((transmit, payload)) = self.nodes[side].transmit(self.now) {
                self.put_on_wire(1 - side, transmit, payload);
            }
            if let Some((transmit, payload)) = self.wires[side].pop_front() {
                let meta = RxMeta { peer: PEERS[1 - side], congested: false };
                self.nodes[side].receive(self.now, &transmit, meta, &payload);
            }
        }
    }

    fn put_on_wire(&mut self, to: usize, transmit: Transmit, payload: Vec<u8>) {
        let safe = self.honest.iter().any(|honest| honest.connection.numbers[to] == transmit.packet.dest_qpn);
        if !safe {
            let seen = &mut self.seen[to];
            if seen.len() < 256 {
                seen.push(transmit);
            } else {
                seen[self.random.below(256) as usize] = transmit;
            }
            if self.random.chance(Probability::ratio(1, 50)) {
                return;
            }
        }
        self.wires[to].push_back((transmit, payload));
    }

    fn collect(&mut self) {
        // The receiving side first, while the received bytes are not yet overwritten.
        for side in [1, 0] {
            while let Some(completion) = self.nodes[side].engine.objects_mut().poll_cq_one(self.nodes[side].cq) {
                let mine = |honest: &&mut Honest| honest.connection.numbers[side] == completion.qpn;
                if let Some(honest) = self.honest.iter_mut().find(mine) {
                    honest.check(side, &completion, &self.nodes);
                }
            }
            while self.nodes[side].engine.objects_mut().poll_event().is_some() {}
        }
    }

    /// Delivers every packet that is in flight. There are no attacks meanwhile, and time does not advance.
    fn quiet(&mut self) {
        for _ in 0..200_000 {
            self.move_packets();
            self.collect();
            if self.wires.iter().all(VecDeque::is_empty) && self.random.below(64) == 0 {
                let sent = [0, 1].map(|side| self.nodes[side].transmit(self.now));
                let rests = sent.iter().all(Option::is_none);
                for (side, sent) in sent.into_iter().enumerate() {
                    sent.into_iter().for_each(|(transmit, payload)| self.put_on_wire(1 - side, transmit, payload));
                }
                if rests {
                    return;
                }
            }
        }
        panic!("the engines do not become idle");
    }

    /// Checks that the safe connections have made progress throughout and still do, and that those under attack work
    /// again after a reset.
    fn check_served(&mut self, steps: u64) {
        for honest in &self.honest {
            assert!(honest.done() > steps / 20, "only {} operations in {steps} steps", honest.done());
        }
        for index in 0..self.attacked.len() {
            let connection = self.attacked[index];
            for side in [0, 1] {
                self.nodes[side].engine.set_peer_limit(PEERS[1 - side], None);
            }
            self.reconnect(&connection);
            let (own, remote) = (self.nodes[0].domains[EXPOSED].regions, self.nodes[1].domains[EXPOSED].regions);
            let op = SendOp::Write { remote: remote[WRITE].remote(8), immediate: None };
            let sge = own[SOURCE].sge(0, 3_000);
            let request = SendRequest { wr_id: 77, op, sges: &[sge], flags: SendFlags::SIGNALED };
            self.nodes[0].engine.post_send(connection.numbers[0], &request).expect("the queue is not full");
            let mut status = None;
            for _ in 0..1_000_000 {
                self.now += STEP;
                self.nodes.iter_mut().for_each(|node| node.engine.tick(self.now));
                self.move_packets();
                let completion = self.nodes[0].engine.objects_mut().poll_cq_one(self.nodes[0].cq);
                status = completion.filter(|completion| completion.qpn == connection.numbers[0]);
                if status.is_some() {
                    break;
                }
            }
            let done = status.map(|completion| (completion.wr_id, completion.status));
            assert_eq!(done, Some((77, WcStatus::Success)), "connection {index} after a reset");
        }
    }
}
