//! Ends on NICs that share one machine and exchange queue pair numbers as programs do: their packets go through shared
//! memory.
#![allow(dead_code, reason = "each bench uses its own part")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rnic_base::{Duration, Psn};
use rnic_engine::{
    Access, CqId, PdId, QpAttributes, QpConnection, QpTiming, RemoteMemory, RnrTimer, Service, Transport,
};
use rnic_host::{Nic, NicConfig, Region, TransportChoice};
use rnic_wire::Qpn;

/// A NIC with memory and the queue pairs created on it.
pub struct Host {
    pub nic: Nic,
    pub cq: CqId,
    pub region: Region,
    pd: PdId,
    transport: Arc<Transport>,
    /// Entries of each send queue.
    depth: u32,
}

impl Host {
    /// Opens a NIC for queue pairs of Falcon.
    pub fn open(name: &str, bytes: usize) -> Self {
        Self::with(name, bytes, TransportChoice::named("falcon", &[]).expect("a transport"), 64)
    }

    /// Opens a NIC for queue pairs of a transport, each of which sends `depth` requests at a time.
    pub fn with(name: &str, bytes: usize, choice: TransportChoice, depth: u32) -> Self {
        let config = NicConfig { name: name.to_owned(), ..NicConfig::shared() }.with_environment().expect("on or off");
        let mut nic = Nic::open(config).expect("a free port");
        let (pd, cq) = (
            nic.verbs().create_pd().expect("a protection domain"),
            nic.verbs().create_cq(1_024).expect("a legal size"),
        );
        let region = nic.verbs().register(pd, bytes, Access::all()).expect("some memory");
        let transport = Arc::new(Transport::new(choice.profile).expect("a complete profile"));
        Self { nic, cq, region, pd, transport, depth }
    }

    /// Creates a queue pair that is not connected.
    pub fn create_qp(&mut self) -> Qpn {
        let attributes = QpAttributes {
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            max_send_wr: self.depth,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: false,
            service: Service::ReliableConnection,
            transport: Arc::clone(&self.transport),
            number: None,
            nvme: None,
        };
        let qpn = self.nic.verbs().create_qp(&attributes).expect("a free number");
        self.nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
        qpn
    }

    /// Connects queue pair `qpn` to `dest_qpn` of the same machine.
    pub fn join(&mut self, qpn: Qpn, dest_qpn: Qpn) {
        let peer = self.nic.acquire_host(IpAddr::V4(Ipv4Addr::LOCALHOST), None).expect("loopback");
        let connection = QpConnection {
            peer,
            dest_qpn,
            rq_psn: Psn::new(0),
            mtu: self.nic.wire_mtu_to(peer),
            min_rnr_timer: RnrTimer::at_least(Duration::from_us(100)),
            max_dest_rd_atomic: 16,
        };
        self.nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
        let timing = QpTiming { sq_psn: Psn::new(0), retry_count: 7, rnr_retry: None, max_rd_atomic: 16 };
        self.nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
    }

    /// Moves packets, or sleeps until there are some.
    pub fn turn(&mut self) {
        if !self.nic.progress() {
            self.nic.wait(Duration::from_ms(1)).expect("the sockets can be polled");
        }
    }
}

/// A request for a queue pair: the number of the sender's own queue pair, and the channel for the response.
type Request = (Qpn, Sender<(Qpn, RemoteMemory)>);

/// A receiver of Writes from any number of senders, on a thread of its own.
pub struct Receiver {
    ask: Sender<Request>,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Receiver {
    pub fn start(bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ask, requests) = channel::<Request>();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut host = Host::open("receiver", bytes);
            while !stopped.load(Ordering::Relaxed) {
                for (peer, answer) in requests.try_iter() {
                    let qpn = host.create_qp();
                    host.join(qpn, peer);
                    answer.send((qpn, host.region.remote(0))).expect("the receiver exists");
                }
                host.turn();
            }
        });
        Self { ask, stop, thread }
    }

    /// Returns the channel for senders' requests.
    pub fn door(&self) -> Sender<Request> {
        self.ask.clone()
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread has not panicked");
    }
}

/// Returns a sender's queue pair on `host`, connected through the receiver of `door`, and the memory to write to.
pub fn connect(host: &mut Host, door: &Sender<Request>) -> (Qpn, RemoteMemory) {
    let qpn = host.create_qp();
    let (answer, answered) = channel();
    door.send((qpn, answer)).expect("a receiver");
    let (dest_qpn, remote) = answered.recv().expect("the other end responds");
    host.join(qpn, dest_qpn);
    (qpn, remote)
}
