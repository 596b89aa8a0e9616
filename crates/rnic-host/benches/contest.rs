//! Compares this NIC with the kernel's own transports, in one process: `cargo bench -p rnic-host --bench contest [--
//! ROUNDS]`.
//!
//! Every round measures all contestants one after the other, so that each ratio compares measurements taken within
//! seconds of each other. All contestants use two threads at a time, each on a processor of its own. Each result is
//! the median over rounds, printed with the best and the worst round.

#[path = "common/figures.rs"]
mod figures;
#[path = "common/unmodified.rs"]
mod unmodified;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rnic_base::{Duration, Probability};
use rnic_host::baseline::OnProcessor;
use rnic_host::perf::{Length, Op, PerfConfig, PerfReport, ServeConfig, measure, serve};
use rnic_host::{Impairment, Nic, NicConfig, baseline};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const RUN_TIME: Duration = Duration::from_ms(1_500);
const WRITE_BYTES: u32 = 64 << 10;

fn main() {
    let Some(rounds) = figures::rounds(5) else { return };
    let mut figures = figures::Figures::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        run_round(&mut figures);
    }
    figures.print();
}

fn run_round(figures: &mut figures::Figures) {
    let span = std::time::Duration::from_millis(1_500);
    let tcp = baseline::tcp_stream(LOOPBACK, WRITE_BYTES as usize, span).expect("loopback works").goodput_gbps();
    let udp = baseline::udp_stream(LOOPBACK, 4_096, span).expect("loopback works").goodput_gbps();
    figures.add("kernel TCP, Gbit/s", tcp);
    figures.add("bare UDP with offload, 4096 B, Gbit/s", udp);
    let mut lossy = Vec::new();
    for transport in ["irn", "roce-gbn"] {
        let free = measure_with_loss(transport, Probability::NEVER);
        figures.add(&format!("{transport} Write 64 KiB, Gbit/s"), free.goodput_gbps);
        figures.add(&format!("{transport} / kernel TCP"), free.goodput_gbps / tcp);
        let lost = measure_with_loss(transport, Probability::ratio(1, 100));
        figures.add(&format!("{transport} at 1 % loss, Gbit/s"), lost.goodput_gbps);
        figures.add(&format!("{transport} at 1 % loss / without"), lost.goodput_gbps / free.goodput_gbps);
        lossy.push(lost.goodput_gbps);
    }
    figures.add("irn / roce-gbn at 1 % loss", lossy[0] / lossy[1]);
    let bare_udp = baseline::udp_ping_pong(LOOPBACK, 8, 200_000).expect("loopback works");
    let bare_us = bare_udp.value_at_quantile(0.5) as f64 / 1e3;
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
        length: Length::Time(RUN_TIME),
        ..PerfConfig::default()
    }
}

fn measure_with_loss(transport: &str, loss: Probability) -> PerfReport {
    against_server(&PerfConfig { impairment: Impairment { loss, ..Impairment::default() }, ..plan(transport) })
}

/// Runs one measurement against a server started for it.
fn against_server(config: &PerfConfig) -> PerfReport {
    let (server, address) = start_server();
    let pinned = OnProcessor::nth(0);
    let report = measure(&mut open("client"), address, config).expect("the server serves");
    drop(pinned);
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
    let (sender, receiver) = std::sync::mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let _pinned = OnProcessor::nth(1);
        let mut nic = open("server");
        sender.send(nic.local_addr()).expect("the receiver exists");
        serve(&mut nic, &ServeConfig::default(), || !stopped.load(Ordering::Relaxed), |_| {}).expect("it can listen");
    });
    (Server { stop, thread }, receiver.recv().expect("it has opened its NIC"))
}

impl Server {
    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread has not panicked");
    }
}
