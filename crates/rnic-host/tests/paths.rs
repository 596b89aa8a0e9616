//! Paths that are chosen by probes (SCR A.7, `paths=probed`) on sockets: each label of a queue pair is a source port.
//! The rule by which a NIC accepts data from such a port is tested in `hostile_messages.rs`.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{HALF, Pair, SharedFile, Side, TEST_TIMEOUT, connect_qps, new_qp_of};
use rnic_base::Probability;
use rnic_engine::messages::peer::DropCause;
use rnic_engine::{SendOp, Service, WcStatus};
use rnic_host::{Impairment, MessagesConfig, NicConfig, PathSet, RxDrop, TransportChoice, messages_of};
use rnic_wire::Qpn;
use rnic_wire::net::UDP_PORT;
use rnic_wire::scr::{Type, is_message};

/// Two ends between which a queue pair writes all the time.
struct Flow {
    left: Side,
    right: Side,
    from: Qpn,
    /// Port from which packets leave that are on no further path.
    default_port: u16,
    posted: u64,
    completed: u64,
}

/// Bytes of each Write, and number of those in flight.
const WRITE: usize = 20_000;
const DEPTH: u64 = 16;

fn probed(transport: &str) -> TransportChoice {
    TransportChoice::with_messages(transport, &[("paths", "probed")]).expect("a composition")
}

/// Returns NICs that exchange messages, of which the left one impairs its packets.
fn configs(base: &NicConfig, impairment: Impairment) -> [NicConfig; 2] {
    let messages = Some(MessagesConfig::default());
    let right = NicConfig { messages, bypass: false, ..base.clone() };
    [NicConfig { impairment, ..right.clone() }, right]
}

impl Flow {
    /// Connects two NICs with addresses of their own.
    fn between_addresses(transport: &str, impairment: Impairment) -> Self {
        let [left, right] = configs(&NicConfig::at("127.0.0.1:0".parse().expect("valid")), impairment).map(Side::open);
        let default_port = left.addr().port();
        let config = |side: &Side| side.config("irn").with_transports(vec![probed(transport)]);
        let (from, to) = (config(&left), config(&right));
        let Pair { left, right, from, .. } = Pair::connected_with(left, right, &from, &to);
        Self { left, right, from: from.qpn, default_port, posted: 0, completed: 0 }
    }

    /// Connects two NICs that share their machine, and send from port 4791.
    fn on_one_machine(transport: &str, impairment: Impairment) -> Self {
        let [mut left, mut right] = configs(&NicConfig::shared(), impairment).map(Side::open);
        let numbers = [&mut left, &mut right]
            .map(|side| new_qp_of(side, Service::ReliableConnection, &probed(transport), 2 * DEPTH as u32));
        connect_qps(&mut left, &mut right, numbers.into(), 77);
        Self { left, right, from: numbers[0], default_port: UDP_PORT, posted: 0, completed: 0 }
    }

    /// Writes until `done` returns true; each Write has other data, which are compared when it has completed.
    fn write_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.step();
            assert!(start.elapsed() < TEST_TIMEOUT, "{what}: {:?}", messages_of(&self.left.nic).map(|m| *m.stats()));
        }
    }

    /// Waits until all Writes have completed.
    fn finish(&mut self) {
        let start = Instant::now();
        while self.completed < self.posted {
            let _ = self.left.nic.progress() | self.right.nic.progress();
            self.compare();
            assert!(start.elapsed() < TEST_TIMEOUT, "{} of {}", self.completed, self.posted);
        }
    }

    fn step(&mut self) {
        while self.posted < self.completed + DEPTH {
            self.post();
        }
        let _ = self.left.nic.progress() | self.right.nic.progress();
        self.compare();
    }

    fn post(&mut self) {
        let at = (self.posted % DEPTH) as usize * WRITE;
        let data = pattern(self.posted);
        self.left.nic.bytes_mut(&self.left.region)[at..at + WRITE].copy_from_slice(&data);
        let (sge, remote) = (self.left.sge(at, WRITE as u32), self.right.region.remote(HALF + at));
        self.left.post(self.from, self.posted, SendOp::Write { remote, immediate: None }, &[sge]);
        self.posted += 1;
    }

    fn compare(&mut self) {
        for completion in self.left.completions() {
            assert_eq!((completion.status, completion.wr_id), (WcStatus::Success, self.completed));
            let at = HALF + (self.completed % DEPTH) as usize * WRITE;
            let written = &self.right.nic.bytes(&self.right.region)[at..at + WRITE];
            assert!(written == pattern(self.completed), "wrong data of Write {}", self.completed);
            self.completed += 1;
        }
    }

    /// Writes a few times; returns the source ports of the data that arrives.
    fn ports_of_data(&mut self) -> BTreeSet<u16> {
        // Packets in flight, or in a buffer, may be from another port.
        let posted = self.posted;
        self.write_until("the last Writes", |flow| flow.completed > posted);
        let file = SharedFile::default();
        self.right.nic.start_capture(Box::new(file.clone())).expect("memory");
        let posted = self.posted;
        self.write_until("some Writes", |flow| flow.completed >= posted + DEPTH / 2);
        self.right.nic.stop_capture();
        // Ethernet 14, IPv4 20, UDP 8.
        let data = file.frames().into_iter().filter(|frame| frame.len() > 1_000 && !is_message(&frame[42..]));
        data.map(|frame| u16::from_be_bytes([frame[34], frame[35]])).collect()
    }

    /// Returns whether data leaves from a further port, and only from that.
    fn is_on_further_path(&mut self) -> bool {
        let ports = self.ports_of_data();
        ports.len() == 1 && !ports.contains(&self.default_port)
    }

    fn is_on_default_path(&mut self) -> bool {
        self.ports_of_data() == BTreeSet::from([self.default_port])
    }

    /// Returns the packets that arrived out of order.
    fn reordered(&self) -> u64 {
        self.right.nic.engine_stats().packets_out_of_order
    }

    fn probes_lost(&self) -> u64 {
        messages_of(&self.left.nic).expect("messages are on").stats().probes_lost
    }

    /// Returns the packets that the right end has dropped because of their source port.
    fn foreign(&self) -> u64 {
        [RxDrop::ForeignPort, RxDrop::UnknownPeer].map(|reason| self.right.nic.stats().dropped(reason)).iter().sum()
    }
}

fn pattern(number: u64) -> Vec<u8> {
    (0..WRITE as u64).map(|at| (number.wrapping_mul(31) + at * 7 + at / 251) as u8).collect()
}

fn delayed(paths: impl IntoIterator<Item = u8>) -> Impairment {
    let delay = rnic_base::Duration::from_ms(3);
    Impairment { delay, paths: PathSet::of(paths), ..Impairment::default() }
}

fn lost(paths: impl IntoIterator<Item = u8>) -> Impairment {
    Impairment { loss: Probability::ALWAYS, paths: PathSet::of(paths), ..Impairment::default() }
}

/// The path of the first packets is delayed, then the path that is used instead fails, then the first one is delayed
/// again. The delays are those of one direction.
#[test]
fn s24_data_moves_to_the_faster_path_leaves_one_that_fails_and_returns() {
    for (transport, start) in [
        ("irn", Flow::on_one_machine as fn(&str, Impairment) -> Flow),
        ("irn", Flow::between_addresses),
        ("roce-gbn", Flow::on_one_machine),
    ] {
        let is_undisturbed = (0..10).any(|_| moves_and_returns(transport, start));
        assert!(is_undisturbed, "{transport}: this machine is too busy: probes are always lost");
    }
}

/// Returns whether no probe was lost but those on the path that fails. On a busy machine they are, and a path that
/// works is left at once, which reorders packets.
fn moves_and_returns(transport: &str, start: fn(&str, Impairment) -> Flow) -> bool {
    let mut flow = start(transport, delayed([0]));
    assert!(flow.is_on_default_path(), "{transport}: not on the default port at first");
    flow.write_until("the faster path is not used", Flow::is_on_further_path);
    let mut is_undisturbed = flow.probes_lost() == 0;
    assert!(flow.reordered() == 0 || !is_undisturbed, "{transport}: {} packets by the change", flow.reordered());

    flow.left.nic.set_impairment(lost(1..=16));
    flow.write_until("the failed path is not left", Flow::is_on_default_path);

    // Until what was lost has been repeated.
    flow.finish();
    flow.left.nic.set_impairment(delayed([0]));
    let (reordered, lost) = (flow.reordered(), flow.probes_lost());
    flow.write_until("the path that works again is not used", Flow::is_on_further_path);
    // One on each of three paths was outstanding.
    is_undisturbed &= flow.probes_lost() <= lost + 3;
    let reordered = flow.reordered() - reordered;
    assert!(reordered == 0 || !is_undisturbed, "{transport}: {reordered} packets by the change back");
    assert_eq!(flow.foreign(), 0, "{transport}: data left from a port before it was accepted");
    is_undisturbed
}

/// With more queue pairs, each probes less often: the peer answers a limited number of probes.
#[test]
fn s24_many_queue_pairs_send_no_more_probes_than_the_peer_answers() {
    let mut flow = Flow::on_one_machine("irn", Impairment::default());
    let mut others = Vec::new();
    for psn in 0..40 {
        let numbers = [&mut flow.left, &mut flow.right]
            .map(|side| new_qp_of(side, Service::ReliableConnection, &probed("irn"), 2));
        connect_qps(&mut flow.left, &mut flow.right, numbers.into(), psn);
        others.push(numbers[0]);
    }
    let (remote, sge) = (flow.right.region.remote(HALF - 64), flow.left.sge(HALF - 64, 64));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        for qpn in &others {
            if flow.left.nic.send_queue_space(*qpn).is_some_and(|space| space > 0) {
                flow.left.post(*qpn, 0, SendOp::Write { remote, immediate: None }, &[sge]);
            }
        }
        let _ = flow.left.nic.progress() | flow.right.nic.progress();
        flow.left.completions();
    }
    let stats = messages_of(&flow.right.nic).expect("messages are on").stats();
    assert!(stats.accepted(Type::Probe) > 300, "{stats:?}");
    assert_eq!(stats.dropped(DropCause::RateLimited), 0, "{stats:?}");
}

/// In shared memory there are no ports, so all labels are the same path; probes measure it.
#[test]
fn s24_in_shared_memory_all_labels_are_one_path() {
    let open = || Side::open(NicConfig { messages: Some(MessagesConfig::default()), ..NicConfig::shared() });
    let (mut left, mut right) = (open(), open());
    let numbers = [&mut left, &mut right]
        .map(|side| new_qp_of(side, Service::ReliableConnection, &probed("irn"), 2 * DEPTH as u32));
    connect_qps(&mut left, &mut right, numbers.into(), 77);
    let mut flow = Flow { left, right, from: numbers[0], default_port: UDP_PORT, posted: 0, completed: 0 };
    let probes = |flow: &Flow| messages_of(&flow.left.nic).expect("on").stats().accepted(Type::Answer);
    flow.write_until("probes are answered", |flow| flow.left.nic.bypass_rings() > 0 && probes(flow) > 2);
    // Datagrams that were sent before the ring was attached may still be in the socket.
    let posted = flow.posted;
    flow.write_until("the Writes of before have completed", |flow| flow.completed > posted);
    let (udp, before) = (flow.right.nic.stats().datagrams_received, probes(&flow));
    flow.write_until("probes are answered", |flow| probes(flow) > before + 20);
    assert_eq!((flow.right.nic.stats().datagrams_received, flow.reordered()), (udp, 0));
}
