//! Two NICs in one process, each on its own socket, driven in turn by one thread.

#![allow(dead_code, reason = "each test file uses its own part of the harness")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pcap_file::pcap::PcapReader;
use rnic_base::Psn;
use rnic_engine::{
    Access, Completion, CqId, PdId, QpAttributes, QpConnection, QpTiming, RecvRequest, RnrTimer, SendFlags, SendOp,
    SendRequest, Service, Sge, Transport, WcStatus,
};
use rnic_host::{
    Connection, ConnectionConfig, ConnectionEvent, ConnectionId, Impairment, Nic, NicConfig, Region, TransportChoice,
};
use rnic_wire::Qpn;

/// The service that tests listen to.
pub const PORT: u16 = 7_471;
/// Bytes of each side's memory: tests send from the first half and receive into the second.
pub const MEMORY: usize = 1 << 20;
pub const HALF: usize = MEMORY / 2;
/// Time limit for every wait in a test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// One side: a NIC, memory, a completion queue.
pub struct Side {
    pub nic: Nic,
    pub pd: PdId,
    pub cq: CqId,
    pub region: Region,
}

impl Side {
    pub fn open(config: NicConfig) -> Self {
        let mut nic = Nic::open(config).expect("a free address");
        let pd = nic.verbs().create_pd().expect("a protection domain");
        let cq = nic.verbs().create_cq(1 << 14).expect("a legal size");
        let region = nic.verbs().register(pd, MEMORY, Access::all()).expect("a megabyte");
        for (index, byte) in nic.bytes_mut(&region).iter_mut().enumerate() {
            *byte = (index * 7 + index / 256) as u8;
        }
        Self { nic, pd, cq, region }
    }

    pub fn at(address: &str) -> Self {
        Self::open(NicConfig::at(address.parse().expect("an address")))
    }

    pub fn addr(&self) -> SocketAddr {
        self.nic.local_addr()
    }

    pub fn config(&self, transport: &str) -> ConnectionConfig {
        let choice = TransportChoice::named(transport, &[]).expect("a transport that exists");
        ConnectionConfig::new(self.pd, self.cq).with_transports(vec![choice])
    }

    pub fn sge(&self, offset: usize, len: u32) -> Sge {
        self.region.sge(offset, len)
    }

    pub fn post(&mut self, qpn: Qpn, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let request = SendRequest { wr_id, op, sges, flags: SendFlags::SIGNALED };
        self.nic.verbs().post_send(qpn, &request).expect("room in the send queue");
    }

    pub fn post_recv(&mut self, qpn: Qpn, wr_id: u64, sges: &[Sge]) {
        self.nic.verbs().post_recv(qpn, &RecvRequest { wr_id, sges }).expect("room in the receive queue");
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.nic.verbs().poll_cq_one(self.cq)).collect()
    }

    pub fn event(&mut self) -> Option<ConnectionEvent> {
        self.nic.poll_connection_event()
    }
}

/// Drives both sides until `done` returns a value.
pub fn drive<T>(left: &mut Side, right: &mut Side, mut done: impl FnMut(&mut Side, &mut Side) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let moved = left.nic.progress() | right.nic.progress();
        if let Some(found) = done(left, right) {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "still not done after {TEST_TIMEOUT:?}: {:?}", left.nic.stats());
        if !moved {
            std::thread::yield_now();
        }
    }
}

/// Drives both sides for a while.
pub fn drive_for(left: &mut Side, right: &mut Side, span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        let _ = left.nic.progress() | right.nic.progress();
    }
}

/// Returns the established connection if `event` is there, and panics if it is another event.
pub fn established(event: Option<ConnectionEvent>) -> Option<Connection> {
    match event? {
        ConnectionEvent::Established(connection) => Some(connection),
        event => panic!("{event:?} instead of an established connection"),
    }
}

/// Two sides and a connection between them.
pub struct Pair {
    pub left: Side,
    pub right: Side,
    pub from: Connection,
    pub to: Connection,
}

impl Pair {
    pub fn connected(left: Side, right: Side, transport: &str) -> Self {
        let (from, to) = (left.config(transport), right.config(transport));
        Self::connected_with(left, right, &from, &to)
    }

    pub fn connected_with(mut left: Side, mut right: Side, from: &ConnectionConfig, to: &ConnectionConfig) -> Self {
        right.nic.listen(PORT, 128).expect("a free service");
        let (from, to) = connect(&mut left, &mut right, from, to);
        Self { left, right, from, to }
    }

    pub fn loopback(transport: &str) -> Self {
        Self::connected(Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0"), transport)
    }

    pub fn impaired(transport: &str, impairment: Impairment) -> Self {
        let side = |name: &str| {
            let bind = "127.0.0.1:0".parse().expect("an address");
            Side::open(NicConfig { impairment, name: name.to_owned(), ..NicConfig::at(bind) })
        };
        Self::connected(side("left"), side("right"), transport)
    }

    pub fn drive<T>(&mut self, done: impl FnMut(&mut Side, &mut Side) -> Option<T>) -> T {
        drive(&mut self.left, &mut self.right, done)
    }

    /// Waits for `count` completions on the left side.
    pub fn left_completions(&mut self, count: usize) -> Vec<Completion> {
        let mut found = Vec::new();
        self.drive(|left, _| {
            found.extend(left.completions());
            (found.len() >= count).then_some(())
        });
        found
    }

    /// Waits for `count` completions on the left side, all successful.
    pub fn succeed(&mut self, count: usize) {
        let completions = self.left_completions(count);
        assert!(completions.iter().all(|completion| completion.status == WcStatus::Success), "{completions:?}");
    }
}

/// Returns a transport with these options.
pub fn chosen(name: &str, options: &[(&str, &str)]) -> TransportChoice {
    TransportChoice::named(name, options).expect("a transport that exists")
}

/// Creates a queue pair that its program connects itself, with room for `depth` requests each in the send and the
/// receive queue.
pub fn new_qp(side: &mut Side, service: Service, transport: &str, depth: u32) -> Qpn {
    new_qp_of(side, service, &chosen(transport, &[]), depth)
}

/// Creates a queue pair as [`new_qp`] does, with a transport that has options.
pub fn new_qp_of(side: &mut Side, service: Service, choice: &TransportChoice, depth: u32) -> Qpn {
    let attributes = QpAttributes {
        pd: side.pd,
        send_cq: side.cq,
        recv_cq: side.cq,
        srq: None,
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: 2,
        max_recv_sge: 2,
        signal_all: false,
        service,
        transport: Arc::new(Transport::new(choice.profile.clone()).expect("a complete profile")),
        number: None,
        nvme: None,
    };
    let qpn = side.nic.verbs().create_qp(&attributes).expect("a free number");
    side.nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
    qpn
}

/// Connects queue pairs of two NICs that share this machine; the sequence numbers of both begin with `psn`.
pub fn connect_qps(left: &mut Side, right: &mut Side, (from, to): (Qpn, Qpn), psn: u32) {
    connect_qp(left, from, (Ipv4Addr::LOCALHOST, to), psn);
    connect_qp(right, to, (Ipv4Addr::LOCALHOST, from), psn);
}

/// Connects one queue pair to `dest_qpn` at this host address.
pub fn connect_qp(side: &mut Side, qpn: Qpn, (host, dest_qpn): (Ipv4Addr, Qpn), psn: u32) {
    let peer = side.nic.acquire_host(host.into(), None).expect("there is a route to the peer");
    let is_reliable = side.nic.query_qp(qpn).expect("the queue pair exists").service == Service::ReliableConnection;
    let reads = if is_reliable { 16 } else { 0 };
    let connection = QpConnection {
        peer,
        dest_qpn,
        rq_psn: Psn::new(psn),
        mtu: side.nic.wire_mtu_to(peer),
        min_rnr_timer: RnrTimer::at_least(rnic_base::Duration::from_us(100)),
        max_dest_rd_atomic: reads,
    };
    side.nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
    start(side, qpn, psn, reads);
}

/// Makes a queue pair ready to send, with `psn` as its first sequence number.
pub fn start(side: &mut Side, qpn: Qpn, psn: u32, max_rd_atomic: u32) {
    // Enough retries for a busy machine.
    let timing = QpTiming { sq_psn: Psn::new(psn), retry_count: 5_000, rnr_retry: None, max_rd_atomic };
    side.nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
}

/// Establishes another connection from `left` to the listening `right`.
pub fn connect(
    left: &mut Side,
    right: &mut Side,
    from: &ConnectionConfig,
    to: &ConnectionConfig,
) -> (Connection, Connection) {
    let id = left.nic.start_connect(right.addr(), PORT, from).expect("there is a route to the other side");
    let mut ends = (None, None);
    drive(left, right, |left, right| {
        match left.event() {
            Some(ConnectionEvent::Established(connection)) if connection.id == id => ends.0 = Some(connection),
            None => {}
            Some(event) => panic!("{event:?}"),
        }
        match right.event() {
            Some(ConnectionEvent::Requested(request)) => {
                right.nic.accept(request.id, to).expect("an acceptable request");
            }
            Some(ConnectionEvent::Established(connection)) => ends.1 = Some(connection),
            None => {}
            Some(event) => panic!("{event:?}"),
        }
        (ends.0.is_some() && ends.1.is_some()).then_some(())
    });
    (ends.0.expect("both ends are connected"), ends.1.expect("both ends are connected"))
}

/// Returns the id of the connection request in `event`.
pub fn requested(event: Option<ConnectionEvent>) -> Option<ConnectionId> {
    match event? {
        ConnectionEvent::Requested(request) => Some(request.id),
        event => panic!("{event:?} instead of a request"),
    }
}

/// A file in memory that a NIC's capture writes to.
#[derive(Clone, Default)]
pub struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl SharedFile {
    /// All that was written.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("one thread").clone()
    }

    /// The Ethernet frames of a capture.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes();
        let mut reader = PcapReader::new(&bytes[..]).expect("a capture");
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet() {
            frames.push(packet.expect("the packet is complete").data.into_owned());
        }
        frames
    }
}

impl std::io::Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
