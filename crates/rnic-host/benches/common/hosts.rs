//! Ends of Falcon on NICs that share their machine, which exchange numbers as programs do: their packets go through
//! memory.

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

/// A NIC with memory, and whatever queue pairs it makes.
pub struct Host {
    pub nic: Nic,
    pub cq: CqId,
    pub region: Region,
    pd: PdId,
    transport: Arc<Transport>,
}

impl Host {
    pub fn open(name: &str, bytes: usize) -> Self {
        let config = NicConfig { name: name.to_owned(), ..NicConfig::shared() }.with_environment().expect("on or off");
        let mut nic = Nic::open(config).expect("a free port");
        let (pd, cq) = (
            nic.verbs().create_pd().expect("a protection domain"),
            nic.verbs().create_cq(1_024).expect("a legal size"),
        );
        let region = nic.verbs().register(pd, bytes, Access::all()).expect("some memory");
        let choice = TransportChoice::named("falcon", &[]).expect("a transport");
        let transport = Arc::new(Transport::new(choice.profile).expect("a whole profile"));
        Self { nic, cq, region, pd, transport }
    }

    /// A queue pair that is not connected.
    pub fn create_qp(&mut self) -> Qpn {
        let attributes = QpAttributes {
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            max_send_wr: 64,
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
        self.nic.verbs().modify_to_init(qpn).expect("a fresh queue pair");
        qpn
    }

    /// Connects it to `dest_qpn` of this machine.
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
            self.nic.wait(Duration::from_ms(1)).expect("sockets can be waited for");
        }
    }
}

/// Asks for a queue pair: the number of its peer, and where the answer goes.
type Request = (Qpn, Sender<(Qpn, RemoteMemory)>);

/// Who takes Writes of any number of senders, on a thread.
pub struct Receiver {
    ask: Sender<Request>,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Receiver {
    pub fn start(bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ask, asked) = channel::<Request>();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut host = Host::open("receiver", bytes);
            while !stopped.load(Ordering::Relaxed) {
                for (peer, answer) in asked.try_iter() {
                    let qpn = host.create_qp();
                    host.join(qpn, peer);
                    answer.send((qpn, host.region.remote(0))).expect("somebody waits");
                }
                host.turn();
            }
        });
        Self { ask, stop, thread }
    }

    /// Where senders ask.
    pub fn door(&self) -> Sender<Request> {
        self.ask.clone()
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it has not panicked");
    }
}

/// A sender of `host`, connected by whoever is behind `door`: its queue pair, and the memory to write to.
pub fn connect(host: &mut Host, door: &Sender<Request>) -> (Qpn, RemoteMemory) {
    let qpn = host.create_qp();
    let (answer, answered) = channel();
    door.send((qpn, answer)).expect("a receiver");
    let (dest_qpn, remote) = answered.recv().expect("it answers");
    host.join(qpn, dest_qpn);
    (qpn, remote)
}
