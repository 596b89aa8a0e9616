//! Compares two NICs that share a machine with the kernel's own transports, in one process: `cargo bench -p rnic-host
//! --bench wire [-- rounds=N udp bypass mtu=BYTES,BYTES]`.
//!
//! Like `contest`, but without the connection manager: queue pairs are connected as verbs programs connect them. Two
//! threads at a time, each on a processor of its own. Every result is the median over rounds, printed with the
//! minimum and the maximum.

#[path = "common/figures.rs"]
mod figures;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rnic_base::Psn;
use rnic_base::limits::MTU_MAX;
use rnic_engine::{
    Access, CqId, PdId, QpAttributes, QpConnection, QpTiming, RecvRequest, RemoteMemory, RnrTimer, SendFlags, SendOp,
    SendRequest, Service, Transport, WcStatus,
};
use rnic_host::baseline::OnProcessor;
use rnic_host::{Nic, NicConfig, Region, TransportChoice, baseline};
use rnic_wire::Qpn;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const RUN_TIME: Duration = Duration::from_millis(1_000);
const WRITE_BYTES: u32 = 64 << 10;

fn main() {
    // `cargo test` builds benches too, and runs them without this argument.
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let value = |name: &str| arguments.iter().find_map(|argument| argument.strip_prefix(name)).map(str::to_owned);
    let rounds = value("rounds=").and_then(|text| text.parse().ok()).unwrap_or(3);
    let mtus: Vec<u32> =
        value("mtu=").map_or(vec![MTU_MAX], |text| text.split(',').filter_map(|mtu| mtu.parse().ok()).collect());
    let receive_buffer_bytes = value("rcvbuf=").and_then(|text| text.parse().ok()).unwrap_or(4 << 20);
    let wires: Vec<bool> = [("udp", false), ("bypass", true)]
        .into_iter()
        .filter(|(name, _)| arguments.iter().any(|argument| argument == name))
        .map(|(_, bypass)| bypass)
        .collect();
    let wires = if wires.is_empty() { vec![false, true] } else { wires };
    let only = value("only=");
    let mut figures = figures::Figures::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
        if wanted("floor") {
            let tcp =
                baseline::tcp_stream(LOOPBACK, WRITE_BYTES as usize, RUN_TIME).expect("loopback works").goodput_gbps();
            figures.add("kernel TCP, Gbit/s", tcp);
            let bare_udp = baseline::udp_ping_pong(LOOPBACK, 8, 100_000).expect("loopback works");
            figures.add("bare UDP 8 B, one way, us", bare_udp.value_at_quantile(0.5) as f64 / 1e3);
        }
        for bypass in &wires {
            for mtu in &mtus {
                let config =
                    NicConfig { bypass: *bypass, mtu_max_bytes: *mtu, receive_buffer_bytes, ..NicConfig::shared() };
                let wire = if *bypass { "memory" } else { "UDP" };
                if wanted("bw") {
                    let rate = writes(&config, WRITE_BYTES, 32);
                    figures
                        .add(&format!("{wire} {mtu}: Write 64 KiB, Gbit/s"), rate * f64::from(WRITE_BYTES) * 8.0 / 1e9);
                }
                if wanted("rate") {
                    figures.add(&format!("{wire} {mtu}: Write 8 B, million/s"), writes(&config, 8, 256) / 1e6);
                }
                if wanted("lat") {
                    let latency = ping_pong(&config, 100_000);
                    figures
                        .add(&format!("{wire} {mtu}: Send 8 B p50, us"), latency.value_at_quantile(0.5) as f64 / 1e3);
                    figures
                        .add(&format!("{wire} {mtu}: Send 8 B p99, us"), latency.value_at_quantile(0.99) as f64 / 1e3);
                }
            }
        }
    }
    figures.print();
}

/// Connection data that the two sides exchange out of band.
#[derive(Clone, Copy)]
struct Card {
    qpn: Qpn,
    memory: RemoteMemory,
}

struct Side {
    nic: Nic,
    cq: CqId,
    region: Region,
    qpn: Qpn,
    remote: RemoteMemory,
}

impl Side {
    fn open(config: &NicConfig, sender: &Sender<Card>, receiver: &Receiver<Card>) -> Self {
        let mut nic = Nic::open(config.clone()).expect("a free port");
        let pd = nic.verbs().create_pd().expect("a protection domain");
        let cq = nic.verbs().create_cq(4_096).expect("a legal size");
        let region = nic.verbs().register(pd, MEMORY, Access::all()).expect("memory");
        nic.bytes_mut(&region).fill(7);
        let qpn = nic.verbs().create_qp(&attributes(pd, cq)).expect("a free number");
        nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
        sender.send(Card { qpn, memory: region.remote(0) }).expect("the receiver exists");
        let peer = receiver.recv().expect("the sender exists");
        let host = nic.acquire_host(LOOPBACK, None).expect("loopback");
        let connection = QpConnection {
            peer: host,
            dest_qpn: peer.qpn,
            rq_psn: Psn::new(5),
            mtu: nic.wire_mtu_to(host),
            min_rnr_timer: RnrTimer::at_least(rnic_base::Duration::from_us(100)),
            max_dest_rd_atomic: 16,
        };
        nic.verbs().modify_to_rtr(qpn, &connection).expect("valid");
        let timing = QpTiming { sq_psn: Psn::new(5), retry_count: 200, rnr_retry: None, max_rd_atomic: 16 };
        nic.verbs().modify_to_rts(qpn, &timing).expect("valid");
        Self { nic, cq, region, qpn, remote: peer.memory }
    }
}

fn attributes(pd: PdId, cq: CqId) -> QpAttributes {
    let choice = TransportChoice::named("irn", &[]).expect("a transport that exists");
    QpAttributes {
        service: Service::ReliableConnection,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 512,
        max_recv_wr: 512,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        transport: Arc::new(Transport::new(choice.profile).expect("a complete profile")),
        number: None,
        nvme: None,
    }
}

/// Runs `passive` in a thread of its own, and `active` here, each on its processor.
fn run_sides<T>(config: &NicConfig, passive: fn(&mut Side, &AtomicBool), active: impl FnOnce(&mut Side) -> T) -> T {
    let ((to_passive, from_active), (to_active, from_passive)) = (channel(), channel());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let passive_is_over = &is_over;
        scope.spawn(move || {
            let _pinned = OnProcessor::nth(1);
            passive(&mut Side::open(config, &to_active, &from_active), passive_is_over);
        });
        let _pinned = OnProcessor::nth(0);
        let mut side = Side::open(config, &to_passive, &from_passive);
        let result = active(&mut side);
        is_over.store(true, Ordering::Relaxed);
        if std::env::var_os("RNIC_BENCH_STATS").is_some() {
            eprintln!("{:?}\n{:?}", side.nic.stats(), side.nic.engine_stats());
        }
        result
    })
}

/// Returns Writes per second with `depth` of them in flight.
fn writes(config: &NicConfig, bytes: u32, depth: u64) -> f64 {
    let serve = |side: &mut Side, is_over: &AtomicBool| {
        while !is_over.load(Ordering::Relaxed) {
            side.nic.progress();
        }
    };
    run_sides(config, serve, |side| {
        let (mut posted, mut done, start) = (0, 0, Instant::now());
        loop {
            while posted < done + depth {
                let sges = [side.region.sge((posted % 8) as usize * bytes as usize, bytes)];
                let op = SendOp::Write { remote: side.remote, immediate: None };
                let request = SendRequest { wr_id: posted, op, sges: &sges, flags: SendFlags::SIGNALED };
                side.nic.verbs().post_send(side.qpn, &request).expect("the send queue has space");
                posted += 1;
            }
            side.nic.progress();
            while let Some(completion) = side.nic.verbs().poll_cq_one(side.cq) {
                assert_eq!(completion.status, WcStatus::Success);
                done += 1;
            }
            let elapsed = start.elapsed();
            if elapsed > RUN_TIME {
                return done as f64 / elapsed.as_secs_f64();
            }
        }
    })
}

/// Returns half of each round-trip time for 8 bytes, in nanoseconds.
fn ping_pong(config: &NicConfig, rounds: u64) -> Histogram<u64> {
    fn receive(side: &mut Side) {
        let sges = [side.region.sge(64, 8)];
        side.nic.verbs().post_recv(side.qpn, &RecvRequest { wr_id: 0, sges: &sges }).expect("the queue has space");
    }
    fn send(side: &mut Side) {
        let sges = [side.region.sge(0, 8)];
        let op = SendOp::Send { immediate: None };
        let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
        side.nic.verbs().post_send(side.qpn, &request).expect("the send queue has space");
    }
    /// Waits for a receive completion, and discards send completions in the meantime. Returns `false` when the
    /// measurement is over.
    fn received(side: &mut Side, is_over: &AtomicBool) -> bool {
        loop {
            side.nic.progress();
            while let Some(completion) = side.nic.verbs().poll_cq_one(side.cq) {
                assert_eq!(completion.status, WcStatus::Success);
                if completion.wr_id == 0 {
                    return true;
                }
            }
            if is_over.load(Ordering::Relaxed) {
                return false;
            }
        }
    }
    let answer = |side: &mut Side, is_over: &AtomicBool| {
        (0..8).for_each(|_| receive(side));
        while received(side, is_over) {
            receive(side);
            send(side);
        }
    };
    run_sides(config, answer, |side| {
        let mut histogram = Histogram::new_with_max(60_000_000_000, 3).expect("legal bounds");
        let never = AtomicBool::new(false);
        (0..8).for_each(|_| receive(side));
        for round in 0..rounds {
            let start = Instant::now();
            send(side);
            received(side, &never);
            receive(side);
            if round >= rounds / 10 {
                histogram.saturating_record((start.elapsed().as_nanos() / 2) as u64);
            }
        }
        histogram
    })
}

const MEMORY: usize = 1 << 20;
