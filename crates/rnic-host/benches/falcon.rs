//! Falcon on sockets against its bars: `cargo bench -p rnic-host --bench falcon [-- ROUNDS]`.
//!
//! * at 1 % loss and 5 % reordering: goodput of 64 KiB Writes against that without faults, and against that of `irn`;
//! * 16 senders to one receiver on loopback, each with one 64 KiB Write at a time: the 99th percentile against that
//!   of kernel TCP for the same transfers (64 KiB one way, a byte back). Every sender has a thread of its own, which
//!   sleeps when there is nothing to do. Receivers come in two layouts, for Falcon and TCP alike: a thread (and, for
//!   Falcon, a NIC) for each connection, or one for all, which for TCP polls the connections one after the other. The
//!   result is the median of the senders' percentiles; the better layout of each is judged.
//!
//! The same is measured for Falcon through the shared memory of NICs on one machine, which packets between processes
//! use by default (`--bypass off` disables it): those results do not measure UDP, and are not judged.
//!
//! The bench also measures bare UDP sockets, with the same packet trains and a thread for each, as a lower limit of
//! the cost of any transport over such sockets: nothing is checked, ordered or retransmitted there.
//!
//! A sender with one transfer at a time, among 16 that share the capacity of the machine, waits for 16 transfers: the
//! mean time is 16 times 64 KiB divided by the goodput of all together, and is printed beside the percentile.
//!
//! Every round measures all of them one after the other; ratios are computed within one round, and their medians are
//! judged. Run it on an idle machine: 17 to 32 threads on few processors measure the scheduler too.

#[path = "common/figures.rs"]
mod figures;
#[path = "common/hosts.rs"]
mod hosts;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::Probability;
use rnic_engine::{Access, CqId, RemoteMemory, SendFlags, SendOp, SendRequest, WcStatus};
use rnic_host::baseline::Transfers;
use rnic_host::perf::{Length, PerfConfig, PerfReport, ServeConfig, measure, serve};
use rnic_host::{ConnectionConfig, ConnectionEvent, Impairment, Nic, NicConfig, Region, TransportChoice};
use rnic_wire::Qpn;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WRITE_BYTES: usize = 64 << 10;
const SENDERS: usize = 16;
/// The service that the receiver listens to.
const SERVICE: u16 = 7_471;
/// Duration of a measurement.
const RUN_TIME: rnic_base::Duration = rnic_base::Duration::from_ms(1_000);
/// Operations of each sender of an incast.
const OPERATIONS: u64 = 300;

fn main() {
    let Some(rounds) = figures::rounds(5) else { return };
    let mut figures = figures::Figures::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        lossy(&mut figures);
        incast(&mut figures);
    }
    figures.print();
    println!();
    print_verdict("falcon, bad network / its own without, at least 0.85", figures.median(IMPAIRED_RATIO) >= 0.85);
    print_verdict("falcon / irn on the bad network, above 1", figures.median(IRN_RATIO) > 1.0);
    print_verdict("falcon / kernel TCP, 99th percentile of an incast, at most 0.5", {
        let best = |of: &str| LAYOUTS.map(|layout| figures.median(&p99_of(of, layout))).into_iter().reduce(f64::min);
        best(FALCON).expect("two layouts") <= 0.5 * best(TCP).expect("two layouts")
    });
}

const IMPAIRED_RATIO: &str = "falcon, bad network / without";
const IRN_RATIO: &str = "falcon / irn, bad network";
const FALCON: &str = "falcon";
const TCP: &str = "kernel TCP";
const BYPASS: &str = "falcon by memory";

/// How many threads a receiver has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Each,
    One,
}

const LAYOUTS: [Layout; 2] = [Layout::Each, Layout::One];

impl Layout {
    const fn name(self) -> &'static str {
        match self {
            Self::Each => "a thread each",
            Self::One => "one for all",
        }
    }
}

fn p99_of(transport: &str, layout: Layout) -> String {
    format!("{transport}, incast p99, {}, us", layout.name())
}

fn print_verdict(criterion: &str, holds: bool) {
    println!("{}: {criterion}", if holds { "holds" } else { "FAILS" });
}

fn lossy(figures: &mut figures::Figures) {
    let percent = |percent| Probability::ratio(percent, 100);
    let bad = Impairment { loss: percent(1), reorder: percent(5), ..Impairment::default() };
    let goodput = |transport: &str, impairment| {
        let server = Server::start();
        let report = measured(transport, server.address, impairment);
        server.stop();
        report.goodput_gbps
    };
    let [irn, falcon] = ["irn", "falcon"].map(|transport| {
        let (free, lost) = (goodput(transport, Impairment::default()), goodput(transport, bad));
        figures.add(&format!("{transport}, Gbit/s"), free);
        figures.add(&format!("{transport}, bad network, Gbit/s"), lost);
        figures.add(&format!("{transport}, bad network / without"), lost / free);
        lost
    });
    figures.add(IRN_RATIO, falcon / irn);
}

fn incast(figures: &mut figures::Figures) {
    for layout in LAYOUTS {
        let falcon = falcon_incast(layout);
        let tcp = tcp_incast(layout);
        for (name, times) in [(FALCON, falcon), (TCP, tcp)] {
            figures.add(&p99_of(name, layout), times.p99_us);
            figures.add(&format!("{name}, incast mean, {}, us", layout.name()), times.mean_us);
        }
        figures.add(&format!("falcon / kernel TCP, incast p99, {}", layout.name()), falcon.p99_us / tcp.p99_us);
        let by_memory = memory_incast(layout);
        figures.add(&p99_of(BYPASS, layout), by_memory.p99_us);
        figures.add(&format!("{BYPASS}, incast mean, {}, us", layout.name()), by_memory.mean_us);
        figures.add(&format!("{BYPASS} / kernel TCP, incast p99, {}", layout.name()), by_memory.p99_us / tcp.p99_us);
        if layout == Layout::Each {
            let bare_udp = bare_incast();
            figures.add("bare UDP, incast p99, a thread each, us", bare_udp.p99_us);
            figures.add("bare UDP, incast mean, a thread each, us", bare_udp.mean_us);
            figures.add("bare UDP / kernel TCP, incast p99, a thread each", bare_udp.p99_us / tcp.p99_us);
        }
    }
}

fn falcon_incast(layout: Layout) -> Times {
    let receivers: Vec<_> = (0..if layout == Layout::Each { SENDERS } else { 1 }).map(|_| Receiver::start()).collect();
    let times = median_of_senders(|sender, start| send_by_falcon(&receivers[sender % receivers.len()], start));
    receivers.into_iter().for_each(Receiver::stop);
    times
}

fn memory_incast(layout: Layout) -> Times {
    let receivers: Vec<_> =
        (0..if layout == Layout::Each { SENDERS } else { 1 }).map(|_| hosts::Receiver::start(WRITE_BYTES)).collect();
    let request_senders: Vec<_> =
        (0..SENDERS).map(|sender| Mutex::new(receivers[sender % receivers.len()].door())).collect();
    let times = median_of_senders(|sender, start| {
        let mut host = hosts::Host::open("sender", WRITE_BYTES);
        let request_sender = request_senders[sender].lock().expect("no thread has panicked").clone();
        let (qpn, remote) = hosts::connect(&mut host, &request_sender);
        start.wait();
        let hosts::Host { nic, cq, region, .. } = &mut host;
        let times = writes(nic, *cq, qpn, region, remote);
        start.wait();
        times
    });
    receivers.into_iter().for_each(hosts::Receiver::stop);
    times
}

fn bare_incast() -> Times {
    thread::scope(|scope| {
        let (address_senders, address_receivers): (Vec<_>, Vec<_>) = (0..SENDERS).map(|_| channel()).unzip();
        let addresses: Vec<SocketAddr> = address_receivers
            .into_iter()
            .map(|receiver| {
                let mut end = Transfers::open(LOOPBACK).expect("a free port");
                let address = end.local_addr();
                scope.spawn(move || {
                    let from = receiver.recv().expect("the sender reports its address");
                    end.answer(from, WRITE_BYTES).expect("loopback loses no datagram");
                });
                address
            })
            .collect();
        median_of_senders(|sender, start| send_by_bare_udp(addresses[sender], &address_senders[sender], start))
    })
}

fn tcp_incast(layout: Layout) -> Times {
    let listener = TcpListener::bind(SocketAddr::new(LOOPBACK, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let receiver = thread::spawn(move || {
        let connections: Vec<_> = (0..SENDERS).map(|_| listener.accept().expect("a sender").0).collect();
        connections.iter().for_each(|connection| connection.set_nodelay(true).expect("a socket"));
        match layout {
            Layout::Each => {
                let threads: Vec<_> = connections.into_iter().map(|one| thread::spawn(|| answer(one))).collect();
                threads.into_iter().for_each(|thread| thread.join().expect("the thread has not panicked"));
            }
            Layout::One => answer_all(connections),
        }
    });
    let times = median_of_senders(|_, start| send_by_tcp(address, start));
    receiver.join().expect("the thread has not panicked");
    times
}

/// Times of one sender's transfers, or the median over several senders.
#[derive(Clone, Copy)]
struct Times {
    p99_us: f64,
    mean_us: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let mean_us = times.iter().map(Duration::as_secs_f64).sum::<f64>() * 1e6 / times.len() as f64;
        Self { p99_us: times[times.len() * 99 / 100].as_secs_f64() * 1e6, mean_us }
    }
}

/// Runs `sender` on as many threads at the same time as there are senders; returns the medians.
fn median_of_senders(sender: impl Fn(usize, &Barrier) -> Times + Sync) -> Times {
    let (start, sender) = (Barrier::new(SENDERS), &sender);
    let start = &start;
    let values: Vec<Times> = thread::scope(|scope| {
        let threads: Vec<_> = (0..SENDERS).map(|number| scope.spawn(move || sender(number, start))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread has not panicked")).collect()
    });
    let median = |of: fn(&Times) -> f64| {
        let mut values: Vec<f64> = values.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Times { p99_us: median(|times| times.p99_us), mean_us: median(|times| times.mean_us) }
}

/// A receiver of TCP transfers: sends a byte for each complete transfer.
fn answer(mut connection: TcpStream) {
    let mut buffer = vec![0; WRITE_BYTES];
    while connection.read_exact(&mut buffer).is_ok() {
        if connection.write_all(&[1]).is_err() {
            break;
        }
    }
}

/// The same for all connections, one after the other.
fn answer_all(mut connections: Vec<TcpStream>) {
    connections.iter().for_each(|connection| connection.set_nonblocking(true).expect("a socket"));
    let (mut buffer, mut had) = (vec![0; WRITE_BYTES], vec![0; connections.len()]);
    let mut open = connections.len();
    while open > 0 {
        let mut moved = false;
        for (connection, had) in connections.iter_mut().zip(&mut had).filter(|(_, had)| **had < CLOSED) {
            match connection.read(&mut buffer[..WRITE_BYTES - *had]) {
                Ok(count) if count > 0 => (*had, moved) = (*had + count, true),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => (*had, open) = (CLOSED, open - 1),
            }
            if *had == WRITE_BYTES {
                *had = 0;
                connection.write_all(&[1]).expect("it is connected");
            }
        }
        if !moved {
            thread::yield_now();
        }
    }
}

/// Larger than any transfer: marks a closed connection.
const CLOSED: usize = usize::MAX;

/// A receiver of Writes from any number of senders.
struct Receiver {
    address: SocketAddr,
    memory: RemoteMemory,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Receiver {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut nic = open("receiver");
            let (pd, cq) = (
                nic.verbs().create_pd().expect("a protection domain"),
                nic.verbs().create_cq(1_024).expect("a legal size"),
            );
            let region = nic.verbs().register(pd, WRITE_BYTES, Access::all()).expect("some memory");
            let config = ConnectionConfig::new(pd, cq).with_transports(vec![falcon()]);
            nic.listen(SERVICE, SENDERS).expect("a free service");
            sender.send((nic.local_addr(), region.remote(0))).expect("the receiver exists");
            while !stopped.load(Ordering::Relaxed) {
                let moved = nic.progress();
                while let Some(event) = nic.poll_connection_event() {
                    if let ConnectionEvent::Requested(request) = event {
                        nic.accept(request.id, &config).expect("an acceptable request");
                    }
                }
                if !moved {
                    nic.wait(rnic_base::Duration::from_ms(1)).expect("the sockets can be polled");
                }
            }
        });
        let (address, memory) = receiver.recv().expect("it has opened its NIC");
        Self { address, memory, stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread has not panicked");
    }
}

fn falcon() -> TransportChoice {
    TransportChoice::named("falcon", &[]).expect("a transport")
}

/// Sends Writes one after the other.
fn send_by_falcon(receiver: &Receiver, start: &Barrier) -> Times {
    let mut nic = open("sender");
    let (pd, cq) =
        (nic.verbs().create_pd().expect("a protection domain"), nic.verbs().create_cq(64).expect("a legal size"));
    let region = nic.verbs().register(pd, WRITE_BYTES, Access::LOCAL_WRITE).expect("some memory");
    let config = ConnectionConfig::new(pd, cq).with_transports(vec![falcon()]);
    let connection = nic.connect(receiver.address, SERVICE, &config).expect("it accepts");
    start.wait();
    let times = writes(&mut nic, cq, connection.qpn, &region, receiver.memory);
    start.wait();
    times
}

/// Sends Writes of `region` to `remote`, one after the other.
fn writes(nic: &mut Nic, cq: CqId, qpn: Qpn, region: &Region, remote: RemoteMemory) -> Times {
    let (op, sges) = (SendOp::Write { remote, immediate: None }, [region.sge(0, WRITE_BYTES as u32)]);
    let times = (0..OPERATIONS).map(|wr_id| {
        let start = Instant::now();
        let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
        nic.verbs().post_send(qpn, &request).expect("room in the queue");
        let completion = loop {
            let moved = nic.progress();
            if let Some(completion) = nic.verbs().poll_cq_one(cq) {
                break completion;
            }
            if !moved {
                nic.wait(rnic_base::Duration::from_ms(1)).expect("the sockets can be polled");
            }
        };
        assert_eq!(completion.status, WcStatus::Success);
        start.elapsed()
    });
    Times::of(times.collect())
}

/// Sends TCP transfers one after the other.
fn send_by_tcp(to: SocketAddr, start: &Barrier) -> Times {
    let mut connection = TcpStream::connect(to).expect("the listener exists");
    connection.set_nodelay(true).expect("a socket");
    start.wait();
    let data = vec![0x5a; WRITE_BYTES];
    let times = (0..OPERATIONS).map(|_| {
        let start = Instant::now();
        connection.write_all(&data).expect("it is connected");
        connection.read_exact(&mut [0]).expect("the other end responds");
        start.elapsed()
    });
    Times::of(times.collect())
}

/// Sends the same transfers in UDP datagrams of 4 KiB.
fn send_by_bare_udp(to: SocketAddr, address_sender: &Sender<SocketAddr>, start: &Barrier) -> Times {
    let mut end = Transfers::open(LOOPBACK).expect("a free port");
    address_sender.send(end.local_addr()).expect("the receiver exists");
    let data = vec![0x5a; WRITE_BYTES];
    start.wait();
    let times = (0..OPERATIONS).map(|_| {
        let start = Instant::now();
        end.send(to, &data, 4 << 10).expect("loopback loses no datagram");
        start.elapsed()
    });
    let times = Times::of(times.collect());
    end.end(to).expect("the listener exists");
    times
}

fn measured(transport: &str, to: SocketAddr, impairment: Impairment) -> PerfReport {
    let config = PerfConfig {
        transport: transport.to_owned(),
        size_bytes: WRITE_BYTES as u32,
        length: Length::Time(RUN_TIME),
        impairment,
        ..PerfConfig::default()
    };
    measure(&mut open("client"), to, &config).expect("the server serves")
}

fn open(name: &str) -> Nic {
    let bind = SocketAddr::new(LOOPBACK, 0);
    let config = NicConfig { name: name.to_owned(), ..NicConfig::at(bind) }.with_environment().expect("on or off");
    Nic::open(config).expect("a free port")
}

struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut nic = open("server");
            sender.send(nic.local_addr()).expect("the receiver exists");
            let keep_serving = || !stopped.load(Ordering::Relaxed);
            serve(&mut nic, &ServeConfig::default(), keep_serving, |_| {}).expect("it can listen");
        });
        Self { address: receiver.recv().expect("it has opened its NIC"), stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread has not panicked");
    }
}
