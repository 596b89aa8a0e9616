//! Registered memory that is no longer accessible when it is used: each kind of loss, each path between two NICs,
//! each operation, on each side. The process survives, the request fails with the right status on the right side, and
//! another queue pair continues to work.
//!
//! An unguarded access would end the process, and so the test, with a signal.
#![expect(unsafe_code, reason = "it unmaps registered memory")]

mod common;

use std::ffi::c_void;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{HALF, Side, drive};
use rnic_base::{BitRate, Duration, Psn};
use rnic_engine::{
    Access, AsyncEvent, Completion, DatagramAddress, DeviceConfig, DeviceService, NamespaceConfig, NvmeFailure,
    NvmeInitiator, NvmeReads, NvmeRole, PeerId, QpAttributes, QpConnection, QpTiming, RecvRequest, RemoteMemory,
    RnrTimer, SendOp, Service, Sge, SrqId, Transport, WcStatus,
};
use rnic_host::{NicConfig, Region, TransportChoice};
use rnic_wire::Qpn;

const PAGE: usize = 4_096;
/// Pages of the region; the last half becomes inaccessible.
const PAGES: usize = 16;
const QKEY: u32 = 7;

/// How the memory became inaccessible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Unmapped,
    Protected,
    ReadOnly,
    Replaced,
    Shortened,
}

const KINDS: [Kind; 5] = [Kind::Unmapped, Kind::Protected, Kind::ReadOnly, Kind::Replaced, Kind::Shortened];

/// A registered region of memory that belongs to the program.
struct TestMemory {
    region: Region,
    start: *mut u8,
    file: i32,
}

impl TestMemory {
    /// Maps pages at an address chosen by the test, far below those that the kernel chooses, each used once: the
    /// kernel would soon fill a hole in its own range with a mapping of another thread.
    fn register(side: &mut Side) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let wanted = std::ptr::without_provenance_mut(NEXT.fetch_add(PAGES * PAGE, Ordering::Relaxed));
        // SAFETY: creating a file, and a mapping that replaces none, affects no existing memory.
        let (file, start) = unsafe {
            let file = libc::memfd_create(c"rnic-gone".as_ptr(), 0);
            assert_eq!(libc::ftruncate(file, (PAGES * PAGE) as i64), 0);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            (file, libc::mmap(wanted, PAGES * PAGE, rights, flags, file, 0))
        };
        let start = NonNull::new(start.cast::<u8>()).filter(|start| start.as_ptr().cast() != libc::MAP_FAILED);
        let start = start.expect("a mapping");
        // SAFETY: the mapping has that many bytes.
        unsafe { start.as_ptr().write_bytes(0x5a, PAGES * PAGE) };
        let (pd, addr) = (side.pd, start.as_ptr() as u64);
        // SAFETY: whatever is mapped there belongs to the test and may be written.
        let region = unsafe { side.nic.verbs().register_raw(pd, start, PAGES * PAGE, addr, Access::all()) };
        Self { region: region.expect("a legal region"), start: start.as_ptr(), file }
    }

    /// Makes the second half inaccessible.
    fn make_inaccessible(&self, kind: Kind) {
        let (at, len) = (self.start.wrapping_add(PAGES * PAGE / 2).cast::<c_void>(), PAGES * PAGE / 2);
        let map_flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the pages are the test's own, and no reference points into them.
        let done = unsafe {
            match kind {
                Kind::Unmapped => libc::munmap(at, len) == 0,
                Kind::Protected => libc::mprotect(at, len, libc::PROT_NONE) == 0,
                Kind::ReadOnly => libc::mprotect(at, len, libc::PROT_READ) == 0,
                Kind::Replaced => libc::mmap(at, len, libc::PROT_NONE, map_flags, -1, 0) == at,
                Kind::Shortened => libc::ftruncate(self.file, (PAGES * PAGE / 2) as i64) == 0,
            }
        };
        assert!(done, "{kind:?}: {}", std::io::Error::last_os_error());
    }

    /// Returns a part that is still accessible.
    fn accessible_sge(&self) -> Sge {
        self.region.sge(0, 8)
    }
}

impl Drop for TestMemory {
    fn drop(&mut self) {
        // SAFETY: whatever is left of it is the test's own.
        unsafe {
            libc::munmap(self.start.cast(), PAGES * PAGE);
            libc::close(self.file);
        }
    }
}

/// The transport, service and path of packets.
#[derive(Clone, Copy, Debug)]
struct Way {
    transport: &'static str,
    options: &'static [(&'static str, &'static str)],
    service: Service,
    bypass: bool,
}

impl Way {
    /// Returns `true` if `kind` is tested on this path. `irn` and `falcon` without options build packets in different
    /// ways and are tested with every kind; other paths only with unmapped memory.
    fn has_all(self, kind: Kind) -> bool {
        kind == Kind::Unmapped || matches!((self.transport, self.options), ("irn" | "falcon", []))
    }

    fn is_unordered(self) -> bool {
        self.options == [("ordering", "unordered")]
    }
}

const RELIABLE: [(&str, &[(&str, &str)]); 7] = [
    ("irn", &[]),
    ("roce-gbn", &[]),
    ("roce-sr", &[]),
    ("fasr", &[]),
    ("falcon", &[]),
    ("falcon", &[("ordering", "weak")]),
    ("falcon", &[("ordering", "unordered")]),
];

fn reliable() -> impl Iterator<Item = Way> {
    RELIABLE.into_iter().flat_map(|(transport, options)| {
        let service = Service::ReliableConnection;
        [true, false].map(|bypass| Way { transport, options, service, bypass })
    })
}

fn unreliable(service: Service) -> [Way; 2] {
    [true, false].map(|bypass| Way { transport: "irn", options: &[], service, bypass })
}

/// The operation under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Send,
    Write,
    WriteImm,
    Read,
    Atomic,
}

/// Two NICs of one process, a pair of queue pairs under test, and another pair beside it.
struct Bench {
    left: Side,
    right: Side,
    way: Way,
    tested: (Qpn, Qpn),
    other_pair: (Qpn, Qpn),
    there: PeerId,
    back: PeerId,
    srq: Option<SrqId>,
}

impl Bench {
    fn new(way: Way, with_srq: bool) -> Self {
        let open = || {
            Side::open(NicConfig {
                bypass: way.bypass,
                carries_falcon: way.transport == "falcon",
                ..NicConfig::shared()
            })
        };
        let (mut left, mut right) = (open(), open());
        let ip: IpAddr = "127.0.0.1".parse().expect("an address");
        let there = left.nic.acquire_host(ip, None).expect("loopback");
        let back = right.nic.acquire_host(ip, None).expect("loopback");
        let pd = right.pd;
        let srq = with_srq.then(|| right.nic.verbs().create_srq(pd, 16, 4).expect("a shared receive queue"));
        let mut join = |srq: Option<SrqId>| {
            let ends = (new_qp(&mut left, way, None), new_qp(&mut right, way, srq));
            make_ready(&mut left, way, ends.0, ends.1, there);
            make_ready(&mut right, way, ends.1, ends.0, back);
            ends
        };
        let (tested, other_pair) = (join(srq), join(None));
        let mut bench = Self { left, right, way, tested, other_pair, there, back, srq };
        // The path through shared memory is available from the second packet on.
        (0..3).for_each(|_| bench.check_other_pair());
        bench
    }

    /// Checks that a Send on the other pair arrives.
    fn check_other_pair(&mut self) {
        let (from, to) = self.other_pair;
        let (sge, receive_sge) = (self.left.sge(0, 100), self.right.sge(HALF, 200));
        self.right.post_recv(to, 77, &[receive_sge]);
        let op = self.op_to(to, SendOp::Send { immediate: None });
        self.left.post(from, 78, op, &[sge]);
        let [done, received] = self.wait(1, 1);
        assert_eq!(done[0].status, WcStatus::Success, "{:?}", self.way);
        assert_eq!(received[0].status, WcStatus::Success, "{:?}", self.way);
    }

    fn op_to(&self, qpn: Qpn, op: SendOp) -> SendOp {
        match (self.way.service, op) {
            (Service::UnreliableDatagram, SendOp::Send { immediate }) => {
                SendOp::Datagram { to: DatagramAddress { peer: self.there, qpn, qkey: QKEY, mark: 0 }, immediate }
            }
            _ => op,
        }
    }

    /// Waits for this many completions on each side.
    fn wait(&mut self, left: usize, right: usize) -> [Vec<Completion>; 2] {
        let mut found = [Vec::new(), Vec::new()];
        drive(&mut self.left, &mut self.right, |one, other| {
            found[0].extend(one.completions());
            found[1].extend(other.completions());
            (found[0].len() >= left && found[1].len() >= right).then_some(())
        });
        found
    }

    fn events(&mut self) -> [Vec<AsyncEvent>; 2] {
        let all = |side: &mut Side| std::iter::from_fn(|| side.nic.verbs().poll_event()).collect();
        [all(&mut self.left), all(&mut self.right)]
    }
}

fn new_qp(side: &mut Side, way: Way, srq: Option<SrqId>) -> Qpn {
    new_end(side, way, srq, None)
}

/// The same, for a queue pair that may be an end of NVMe.
fn new_end(side: &mut Side, way: Way, srq: Option<SrqId>, nvme: Option<NvmeRole>) -> Qpn {
    let choice = TransportChoice::named(way.transport, way.options).expect("legal options");
    let attributes = QpAttributes {
        pd: side.pd,
        send_cq: side.cq,
        recv_cq: side.cq,
        srq,
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 4,
        max_recv_sge: 4,
        signal_all: false,
        service: way.service,
        transport: Arc::new(Transport::new(choice.profile).expect("a complete profile")),
        number: None,
        nvme,
    };
    let qpn = side.nic.verbs().create_qp(&attributes).expect("a free number");
    side.nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
    qpn
}

fn make_ready(side: &mut Side, way: Way, qpn: Qpn, dest_qpn: Qpn, peer: PeerId) {
    let mtu = side.nic.wire_mtu_to(peer).min(4_096);
    if way.service == Service::UnreliableDatagram {
        side.nic.verbs().set_qkey(qpn, QKEY).expect("a legal key");
        side.nic.verbs().modify_to_rtr_unconnected(qpn, mtu).expect("legal attributes");
    } else {
        let min_rnr_timer = RnrTimer::at_least(Duration::from_us(100));
        let connection =
            QpConnection { peer, dest_qpn, rq_psn: Psn::new(77), mtu, min_rnr_timer, max_dest_rd_atomic: 16 };
        side.nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
    }
    let timing = QpTiming { sq_psn: Psn::new(77), retry_count: 7, rnr_retry: None, max_rd_atomic: 16 };
    side.nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
}

/// Length of the tested message in bytes: several packets, of which the first ones use accessible memory.
fn message_len(way: Way, op: Op) -> u32 {
    match (op, way.service) {
        (Op::Atomic, _) => 8,
        // One packet each.
        (_, Service::UnreliableDatagram) => 3_000,
        _ if way.is_unordered() => 3_000,
        _ => 20_000,
    }
}

/// Offset of the message in the region, chosen so that its end is inaccessible.
fn message_at(len: u32) -> usize {
    let accessible_len = PAGES * PAGE / 2;
    if len == 8 { accessible_len } else { accessible_len - len as usize / 2 }
}

/// Runs `op` with inaccessible memory on one side; returns the status of the request, and that of the receive if one
/// completed.
fn try_one(bench: &mut Bench, kind: Kind, op: Op, is_local: bool) -> (WcStatus, Option<WcStatus>) {
    let Bench { left, right, tested, way, srq, .. } = bench;
    let (from, to) = *tested;
    let memory = TestMemory::register(if is_local { left } else { right });
    let len = message_len(*way, op);
    let at = message_at(len);
    let (local_sge, remote) = if is_local {
        (memory.region.sge(at, len), right.region.remote(HALF))
    } else {
        (left.sge(HALF, len), memory.region.remote(at))
    };
    let receive_sge = if is_local { right.sge(HALF, len + 40) } else { memory.region.sge(at, len + 40) };
    // The request before it uses accessible memory and succeeds; the one after it is flushed.
    let accessible_sge = if is_local { memory.accessible_sge() } else { left.sge(0, 8) };
    if matches!(op, Op::Send | Op::WriteImm) {
        let accessible_sge = right.sge(HALF, 100);
        for (wr_id, sge) in [(11, accessible_sge), (12, receive_sge), (13, accessible_sge)] {
            match srq {
                Some(srq) => right.nic.verbs().post_srq_recv(*srq, &RecvRequest { wr_id, sges: &[sge] }).expect("room"),
                None => right.post_recv(to, wr_id, &[sge]),
            }
        }
    }
    memory.make_inaccessible(kind);
    let accessible_op = match op {
        Op::Send | Op::WriteImm => bench.op_to(to, SendOp::Send { immediate: None }),
        _ => SendOp::Write { remote: bench.right.region.remote(HALF), immediate: None },
    };
    let tested_op = match op {
        Op::Send => bench.op_to(to, SendOp::Send { immediate: None }),
        Op::Write => SendOp::Write { remote, immediate: None },
        Op::WriteImm => SendOp::Write { remote, immediate: Some(5) },
        Op::Read => SendOp::Read { remote },
        Op::Atomic => SendOp::FetchAdd { remote, add: 1 },
    };
    // On an unordered connection the request after it might complete earlier.
    let requests = if bench.way.is_unordered() { 2 } else { 3 };
    let all = [(1, accessible_op, accessible_sge), (2, tested_op, local_sge), (3, accessible_op, accessible_sge)];
    all[..requests].iter().for_each(|(wr_id, op, sge)| bench.left.post(from, *wr_id, *op, &[*sge]));
    let mut received = None;
    let mut completions = Vec::new();
    drive(&mut bench.left, &mut bench.right, |left, right| {
        completions.extend(left.completions());
        for done in right.completions() {
            if done.wr_id == 12 {
                received = Some(done.status);
            }
        }
        (completions.len() == requests).then_some(())
    });
    let case = format!("{:?} {kind:?} {op:?} local {is_local}: {completions:?}", bench.way);
    let status = completions[1].status;
    // Without acknowledgements, the sender does not learn of the receiver's failure.
    let last_status = if status == WcStatus::Success { WcStatus::Success } else { WcStatus::WrFlushed };
    let statuses: Vec<_> = completions.iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(statuses, [(1, WcStatus::Success), (2, status), (3, last_status)][..requests], "{case}");
    // Gives the other side time to finish.
    common::drive_for(&mut bench.left, &mut bench.right, std::time::Duration::from_millis(3));
    for done in bench.right.completions() {
        if done.wr_id == 12 {
            received = Some(done.status);
        }
    }
    bench.left.completions();
    bench.check_other_pair();
    (status, received)
}

fn is_writing(op: Op, is_local: bool) -> bool {
    match op {
        Op::Send | Op::Write | Op::WriteImm => !is_local,
        Op::Read => is_local,
        Op::Atomic => true,
    }
}

fn supports(way: Way, op: Op) -> bool {
    match way.service {
        Service::ReliableConnection => true,
        Service::UnreliableConnection => matches!(op, Op::Send | Op::Write | Op::WriteImm),
        Service::UnreliableDatagram => op == Op::Send,
    }
}

const OPS: [Op; 5] = [Op::Send, Op::Write, Op::WriteImm, Op::Read, Op::Atomic];

fn rows(ways: impl IntoIterator<Item = Way>) -> impl Iterator<Item = (Way, Op, Kind)> {
    ways.into_iter().flat_map(|way| {
        OPS.into_iter().filter(move |op| supports(way, *op)).flat_map(move |op| {
            KINDS.into_iter().filter(move |kind| way.has_all(*kind)).map(move |kind| (way, op, kind))
        })
    })
}

#[test]
fn unmapped_requester_memory_fails_the_request() {
    for (way, op, kind) in rows(reliable()).filter(|(_, op, kind)| *kind != Kind::ReadOnly || is_writing(*op, true)) {
        let mut bench = Bench::new(way, false);
        let (status, received) = try_one(&mut bench, kind, op, true);
        assert_eq!(status, WcStatus::LocalProtection, "{way:?} {op:?} {kind:?}");
        assert_ne!(received, Some(WcStatus::Success), "{way:?} {op:?} {kind:?}");
        let faults = bench.left.nic.stats().payload_faults;
        assert_eq!(faults > 0, !is_writing(op, true), "{way:?} {op:?} {kind:?}: {faults} payloads were not read");
    }
}

#[test]
fn unmapped_responder_memory_fails_the_request() {
    for (way, op, kind) in rows(reliable()).filter(|(_, op, kind)| *kind != Kind::ReadOnly || is_writing(*op, false)) {
        let case = format!("{way:?} {op:?} {kind:?}");
        let mut bench = Bench::new(way, false);
        let (status, received) = try_one(&mut bench, kind, op, false);
        let (refused, receive, event) = match op {
            Op::Send => (WcStatus::RemoteOperational, Some(WcStatus::LocalProtection), "fatal"),
            Op::WriteImm if !way.is_unordered() => (WcStatus::RemoteAccess, Some(WcStatus::WrFlushed), "access"),
            _ => (WcStatus::RemoteAccess, None, "access"),
        };
        // On an unordered connection, a queue pair survives the requests that it refuses.
        let event = if way.is_unordered() { "none" } else { event };
        assert_eq!((status, received), (refused, receive), "{case}");
        let [left_events, right_events] = bench.events();
        assert_eq!(left_events, [], "{case}");
        let expected = match event {
            "fatal" => vec![AsyncEvent::QpFatal(bench.tested.1)],
            "access" => vec![AsyncEvent::QpAccessError(bench.tested.1)],
            _ => vec![],
        };
        assert_eq!(right_events, expected, "{case}");
    }
}

#[test]
fn unmapped_memory_of_a_shared_receive_fails_the_send() {
    for way in reliable() {
        let mut bench = Bench::new(way, true);
        let (status, received) = try_one(&mut bench, Kind::Unmapped, Op::Send, false);
        let expected = (WcStatus::RemoteOperational, Some(WcStatus::LocalProtection));
        assert_eq!((status, received), expected, "{way:?}");
    }
}

#[test]
fn unmapped_memory_with_unreliable_services_fails_the_work_request() {
    for service in [Service::UnreliableConnection, Service::UnreliableDatagram] {
        for (way, op, kind) in rows(unreliable(service)) {
            if kind != Kind::ReadOnly {
                let (status, received) = try_one(&mut Bench::new(way, false), kind, op, true);
                assert_eq!((status, received.is_none()), (WcStatus::LocalProtection, true), "{way:?} {op:?} {kind:?}");
            }
            let (status, received) = try_one(&mut Bench::new(way, false), kind, op, false);
            let expected = match op {
                Op::Send => Some(WcStatus::LocalProtection),
                // The message is dropped, and the next one uses the receive.
                _ => None,
            };
            let received = received.filter(|_| op != Op::WriteImm);
            assert_eq!((status, received), (WcStatus::Success, expected), "{way:?} {op:?} {kind:?}");
        }
    }
}

/// The file of a namespace becomes too short: each command beyond its end completes with a media error status, while
/// commands before the end continue, as does RDMA traffic beside them (F-2).
#[test]
fn f2_a_truncated_namespace_file_fails_only_the_commands_beyond_its_end() {
    for (bypass, reads) in [(false, NvmeReads::Push), (true, NvmeReads::Push), (false, NvmeReads::Pull)] {
        let way = Way { transport: "falcon", options: &[], service: Service::ReliableConnection, bypass };
        let mut bench = Bench::new(way, false);
        let memory = TestMemory::register(&mut bench.right);
        let service = DeviceService { latency: Duration::from_us(5), bandwidth: BitRate::gbps(100) };
        let device = DeviceConfig { read: service, write: service, queue_depth: 32, block_log2: 9 };
        let (blocks, pd) = ((PAGES * PAGE / 512) as u64, bench.right.pd);
        let (addr, key) = (memory.region.addr(), memory.region.key());
        let config = NamespaceConfig { number: 3, blocks, pd, addr, key, device };
        let namespace = bench.right.nic.verbs().nvme().create_namespace(&config).expect("a legal namespace");
        let role = NvmeInitiator { namespace: 3, block_log2: 9, reads, timeout: Duration::from_secs(5) };
        let from = new_end(&mut bench.left, way, None, Some(NvmeRole::Initiator(role)));
        let to = new_end(&mut bench.right, way, None, Some(NvmeRole::Target(namespace)));
        make_ready(&mut bench.left, way, from, to, bench.there);
        make_ready(&mut bench.right, way, to, from, bench.back);
        let half = PAGES * PAGE / 2;
        let command = |bench: &mut Bench, write: bool, at: usize| {
            let remote = RemoteMemory { addr: at as u64, rkey: 0 };
            let op = if write { SendOp::Write { remote, immediate: None } } else { SendOp::Read { remote } };
            let sge = bench.left.sge(HALF, 8_192);
            bench.left.post(from, 5, op, &[sge]);
            let [done, _] = bench.wait(1, 0);
            (done[0].status, done[0].nvme_failure())
        };
        let fine = (WcStatus::Success, None);
        let status = |status| (WcStatus::RemoteOperational, Some(NvmeFailure::Status(status)));
        assert_eq!(command(&mut bench, true, half), fine, "{way:?}");
        memory.make_inaccessible(Kind::Shortened);
        for _ in 0..2 {
            assert_eq!(command(&mut bench, false, half - 4_096), status(UNRECOVERED_READ), "{way:?} {reads:?}");
            assert_eq!(command(&mut bench, true, half), status(WRITE_FAULT), "{way:?} {reads:?}");
            assert_eq!(command(&mut bench, true, half - 8_192), fine, "{way:?} {reads:?}");
            assert_eq!(command(&mut bench, false, 0), fine, "{way:?} {reads:?}");
            bench.check_other_pair();
        }
        assert!(bench.events().iter().all(Vec::is_empty), "a queue pair failed: {way:?}");
    }
}

/// Status field of NVMe's media error for Writes.
const WRITE_FAULT: u16 = 0x280;
const UNRECOVERED_READ: u16 = 0x281;
