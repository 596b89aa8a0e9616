//! Our NIC beside the kernel's own means, in one process run: `cargo bench -p rnic-host --bench contest [-- ROUNDS]`.
//!
//! Every round measures all contestants one after the other, so that each ratio compares things that ran within seconds
//! of each other. Two threads at a time, each on a processor of its own, for all contestants alike. Each figure is the
//! median over rounds; the best and the worst round stand beside it.

#[path = "common/figures.rs"]
mod figures;
#[path = "common/unmodified.rs"]
mod unmodified;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rnic_base::{Duration, Probability};
use rnic_host::floor::OnProcessor;
use rnic_host::perf::{Length, Op, PerfConfig, PerfReport, ServeConfig, measure, serve};
use rnic_host::{Impairment, Nic, NicConfig, floor};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SPAN: Duration = Duration::from_ms(1_500);
const WRITE_BYTES: u32 = 64 << 10;

fn main() {
    // `cargo test` builds benches too, and runs them without this.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(5);
    let mut figures = figures::Figures::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        run_round(&mut figures);
    }
    figures.print();
}

fn run_round(figures: &mut figures::Figures) {
    let span = std::time::Duration::from_millis(1_500);
    let tcp = floor::tcp_stream(LOOPBACK, WRITE_BYTES as usize, span).expect("loopback works").goodput_gbps();
    let udp = floor::udp_stream(LOOPBACK, 4_096, span).expect("loopback works").goodput_gbps();
    figures.add("kernel TCP, Gbit/s", tcp);
    figures.add("bare UDP with offload, 4096 B, Gbit/s", udp);
    let mut lossy = Vec::new();
    for transport in ["irn", "roce-gbn"] {
        let free = contest(transport, Probability::NEVER);
        figures.add(&format!("{transport} Write 64 KiB, Gbit/s"), free.goodput_gbps);
        figures.add(&format!("{transport} / kernel TCP"), free.goodput_gbps / tcp);
        let lost = contest(transport, Probability::ratio(1, 100));
        figures.add(&format!("{transport} at 1 % loss, Gbit/s"), lost.goodput_gbps);
        figures.add(&format!("{transport} at 1 % loss / without"), lost.goodput_gbps / free.goodput_gbps);
        lossy.push(lost.goodput_gbps);
    }
    figures.add("irn / roce-gbn at 1 % loss", lossy[0] / lossy[1]);
    let bare = floor::udp_ping_pong(LOOPBACK, 8, 200_000).expect("loopback works");
    let bare_us = bare.value_at_quantile(0.5) as f64 / 1e3;
    figures.add("bare UDP 8 B, one way, us", bare_us);
    for transport in ["irn", "roce-gbn"] {
        let config = PerfConfig { op: Op::Send, size_bytes: 8, depth: 1, ping_pong: true, ..plan(transport) };
        let report = against_server(&config);
        figures.add(&format!("{transport} Send 8 B, one way, us"), report.latency_us.p50);
        figures.add(&format!("{transport} Send 8 B / bare UDP"), report.latency_us.p50 / bare_us);
    }
    match unmodified::ib_send_lat() {
        Ok(median_us) => {
            figures.add("ib_send_lat 8 B, one way, us", median_us);
            figures.add("ib_send_lat 8 B / bare UDP", median_us / bare_us);
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    let small = against_server(&PerfConfig { size_bytes: 8, depth: 256, ..plan("irn") });
    figures.add("irn Write 8 B, million/s", small.ops_per_s / 1e6);
}

fn plan(transport: &str) -> PerfConfig {
    PerfConfig {
        transport: transport.to_owned(),
        size_bytes: WRITE_BYTES,
        length: Length::Time(SPAN),
        ..PerfConfig::default()
    }
}

fn contest(transport: &str, loss: Probability) -> PerfReport {
    against_server(&PerfConfig { impairment: Impairment { loss, ..Impairment::default() }, ..plan(transport) })
}

/// One measurement against a server of its own.
fn against_server(config: &PerfConfig) -> PerfReport {
    let (server, address) = start_server();
    let stays = OnProcessor::nth(0);
    let report = measure(&mut open("client"), address, config).expect("the server serves");
    drop(stays);
    server.stop();
    report
}

fn open(name: &str) -> Nic {
    let bind = SocketAddr::new(LOOPBACK, 0);
    let config = NicConfig { name: name.to_owned(), ..NicConfig::at(bind) }.with_environment().expect("on or off");
    Nic::open(config).expect("a free port")
}

struct Server {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn start_server() -> (Server, SocketAddr) {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let _stays = OnProcessor::nth(1);
        let mut nic = open("server");
        tell.send(nic.local_addr()).expect("somebody waits");
        serve(&mut nic, &ServeConfig::default(), || !stopped.load(Ordering::Relaxed), |_| {}).expect("it can listen");
    });
    (Server { stop, thread }, told.recv().expect("it has opened its NIC"))
}

impl Server {
    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it has not panicked");
    }
}
