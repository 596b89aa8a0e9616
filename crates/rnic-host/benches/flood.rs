//! Cost of a flood of forged messages between NICs (SCR, rule 9 of the bounds on messages): `cargo bench -p rnic-host
//! --bench flood [-- ROUNDS]`.
//!
//! One NIC writes to another over UDP, each on a processor of its own, while a third thread on the writer's processor
//! sends 50,000 messages a second: to the receiver, or to a port that no process has bound, which costs the machine the
//! same sender. The forged messages have the address of the peer, a port that a NIC could have, the form and the ICRC:
//! a sender that is not the peer can do no more without forging its port, too. A round measures both in turns of
//! 100 ms, so that whatever else the machine does affects both, and the ratio of the two goodputs; the result is the
//! median over rounds.

#[path = "common/figures.rs"]
mod figures;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rnic_base::{Psn, Psn32};
use rnic_engine::{
    Access, CqId, QpAttributes, QpConnection, QpTiming, RnrTimer, SendFlags, SendOp, SendRequest, Service, Transport,
};
use rnic_host::baseline::OnProcessor;
use rnic_host::{MessagesConfig, Nic, NicConfig, Region, RxDrop, TransportChoice};
use rnic_wire::scr::{Body, Cookie, Grant, Message, Records};
use rnic_wire::{Addresses, Qpn};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Time of a turn, and the turns of a round, each in both orders.
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 4;
const WRITE_BYTES: u32 = 64 << 10;
const DEPTH: u32 = 16;
/// Messages a second.
const FLOOD: u32 = 50_000;
/// A port that is a multiple of 16, as those of NICs are.
const FORGED_PORTS: std::ops::Range<u16> = 3_000..4_000;

fn main() {
    let Some(rounds) = figures::rounds(15) else { return };
    let mut figures = figures::Figures::default();
    let mut pair = Pair::connect();
    let receiver = SocketAddr::new(LOOPBACK, pair.receiver_port);
    // Bound and closed again: no process has it.
    let nobody = UdpSocket::bind((LOOPBACK, 0)).and_then(|socket| socket.local_addr()).expect("a free port");
    pair.goodput_gbps();
    for _ in 0..rounds {
        let free = pair.goodput_gbps();
        let (mut gbps, mut per_second) = ([0.0; 2], 0.0);
        for turn in 0..2 * TURNS {
            let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
            for index in order {
                let flood = Flood::start([receiver, nobody][index]);
                gbps[index] += pair.goodput_gbps() / (2 * TURNS) as f64;
                per_second += flood.stop() / (4 * TURNS) as f64;
            }
        }
        figures.add("without a flood, Gbit/s", free);
        figures.add("flood to a port that nobody has, Gbit/s", gbps[1]);
        figures.add("flood to the receiver, Gbit/s", gbps[0]);
        figures.add("1000 messages/s", per_second / 1e3);
        figures.add("flood to the receiver / to nobody", gbps[0] / gbps[1]);
    }
    let dropped = pair.stop();
    figures.print();
    println!("messages dropped by the receiver: {dropped}");
}

/// A writer on this thread, and its receiver on another.
struct Pair {
    nic: Nic,
    cq: CqId,
    region: Region,
    qpn: Qpn,
    remote: rnic_engine::RemoteMemory,
    receiver_port: u16,
    stop: Arc<AtomicBool>,
    receiver: JoinHandle<u64>,
    _pinned: OnProcessor,
}

impl Pair {
    fn connect() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let ((to_receiver, from_writer), (to_writer, from_receiver)) = (channel::<Qpn>(), channel());
        let receiver = thread::spawn(move || {
            let _pinned = OnProcessor::nth(1);
            let (mut nic, _, region, qpn) = open();
            to_writer.send((qpn, region.remote(0), nic.port())).expect("the writer exists");
            connect(&mut nic, qpn, from_writer.recv().expect("the writer has a queue pair"));
            while !stopped.load(Ordering::Relaxed) {
                turn(&mut nic);
            }
            nic.stats().dropped(RxDrop::Management)
        });
        let pinned = OnProcessor::nth(0);
        let (mut nic, cq, region, qpn) = open();
        let (dest_qpn, remote, receiver_port) = from_receiver.recv().expect("the receiver has a queue pair");
        to_receiver.send(qpn).expect("the receiver exists");
        connect(&mut nic, qpn, dest_qpn);
        Self { nic, cq, region, qpn, remote, receiver_port, stop, receiver, _pinned: pinned }
    }

    /// Writes for a while; returns the rate of the payload.
    fn goodput_gbps(&mut self) -> f64 {
        let op = SendOp::Write { remote: self.remote, immediate: None };
        let sge = [self.region.sge(0, WRITE_BYTES)];
        let request = SendRequest { wr_id: 1, op, sges: &sge, flags: SendFlags::SIGNALED };
        let (start, mut posted, mut done) = (Instant::now(), 0u64, 0u64);
        while start.elapsed() < TURN {
            while posted - done < u64::from(DEPTH) {
                self.nic.verbs().post_send(self.qpn, &request).expect("room in the send queue");
                posted += 1;
            }
            done += turn_and_count(&mut self.nic, self.cq);
        }
        let gbps = done as f64 * f64::from(WRITE_BYTES) * 8.0 / start.elapsed().as_secs_f64() / 1e9;
        while done < posted {
            done += turn_and_count(&mut self.nic, self.cq);
        }
        gbps
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.receiver.join().expect("the receiver has not panicked")
    }
}

fn open() -> (Nic, CqId, Region, Qpn) {
    let config = NicConfig { bypass: false, messages: Some(MessagesConfig::default()), ..NicConfig::shared() };
    let mut nic = Nic::open(config.with_environment().expect("on or off")).expect("a free port");
    let pd = nic.verbs().create_pd().expect("a protection domain");
    let cq = nic.verbs().create_cq(1_024).expect("a legal size");
    let region = nic.verbs().register(pd, WRITE_BYTES as usize, Access::all()).expect("some memory");
    let choice = TransportChoice::named("irn", &[]).expect("a transport");
    let attributes = QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: DEPTH,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        service: Service::ReliableConnection,
        transport: Arc::new(Transport::new(choice.profile).expect("a complete profile")),
        number: None,
        nvme: None,
    };
    let qpn = nic.verbs().create_qp(&attributes).expect("a free number");
    nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
    (nic, cq, region, qpn)
}

fn connect(nic: &mut Nic, qpn: Qpn, dest_qpn: Qpn) {
    let peer = nic.acquire_host(LOOPBACK, None).expect("loopback");
    let connection = QpConnection {
        peer,
        dest_qpn,
        rq_psn: Psn::new(0),
        mtu: nic.wire_mtu_to(peer),
        min_rnr_timer: RnrTimer::at_least(rnic_base::Duration::from_us(100)),
        max_dest_rd_atomic: 16,
    };
    nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
    let timing = QpTiming { sq_psn: Psn::new(0), retry_count: 5_000, rnr_retry: None, max_rd_atomic: 16 };
    nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
}

/// Moves packets, or sleeps until there are some.
fn turn(nic: &mut Nic) {
    if !nic.progress() {
        nic.wait(rnic_base::Duration::from_ms(1)).expect("the sockets can be polled");
    }
}

fn turn_and_count(nic: &mut Nic, cq: CqId) -> u64 {
    turn(nic);
    std::iter::from_fn(|| nic.verbs().poll_cq_one(cq)).count() as u64
}

/// A thread that sends forged messages.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Flood {
    /// Starts the flood, on the processor of the writer, which this thread is: the receiver has its own for itself.
    fn start(target: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || send_forged(target, &stopped));
        Self { stop, thread }
    }

    /// Ends the flood; returns its rate, in messages per second.
    fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread has not panicked")
    }
}

fn send_forged(target: SocketAddr, stop: &AtomicBool) -> f64 {
    let socket = FORGED_PORTS.filter_map(|port| UdpSocket::bind((LOOPBACK, port * 16)).ok()).next();
    let socket = socket.expect("a free port");
    let source = socket.local_addr().expect("it is bound");
    let message = Message {
        dest_qpn: Qpn::GSI,
        source_qpn: Qpn::GSI,
        cookie: Cookie::new(0x5eed),
        announced: None,
        answer_wanted: false,
        is_last: false,
        sequence: Psn32::new(9),
        time: 0,
        body: Body::Grants(Records::new(&[Grant::default()]).expect("one record")),
    };
    let bytes = message.encode(&Addresses::new(source, target).expect("both IPv4")).expect("it can be encoded");
    let (start, mut sent) = (Instant::now(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(FLOOD)) as u64;
        while sent < due {
            // A port that nobody has bound is reported as an error of a later call.
            let _ = socket.send_to(&bytes, target);
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent as f64 / start.elapsed().as_secs_f64()
}
