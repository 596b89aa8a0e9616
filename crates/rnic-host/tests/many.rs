//! Very many queue pairs: as many as there are numbers for one port.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Side;
use rnic_base::Probability;
use rnic_engine::{
    Access, CqId, QpAttributes, QpConnection, QpTiming, RemoteMemory, ResourceError, RnrTimer, SendFlags, SendOp,
    SendRequest, Service, Transport, WcStatus,
};
use rnic_host::{Impairment, NicConfig, Region, TransportChoice};
use rnic_wire::Qpn;

/// Bytes of one Write: several packets.
const WRITE_BYTES: usize = 4_096;

/// A NIC with `count` queue pairs, and memory for each of the `busy` ones that get work.
struct QueuePairs {
    side: Side,
    cq: CqId,
    region: Region,
    qpns: Vec<Qpn>,
    /// Number of consecutive timeouts before a peer is considered dead.
    retries: u32,
}

impl QueuePairs {
    fn open(config: NicConfig, transport: &str, count: u32, busy: usize) -> Self {
        let mut side = Side::open(config);
        let cq = side.nic.verbs().create_cq(1 << 16).expect("a legal size");
        let region = side.nic.verbs().register(side.pd, busy * WRITE_BYTES, Access::all()).expect("memory");
        let choice = TransportChoice::named(transport, &[]).expect("a transport that exists");
        let silence_unit = choice.profile.silence_unit().expect("reliable transports have one");
        let retries = u32::try_from(PEER_TIMEOUT.as_ps().div_ceil(silence_unit.as_ps())).expect("it fits 32 bits");
        let transport = Arc::new(Transport::new(choice.profile).expect("a complete profile"));
        let attributes = QpAttributes {
            pd: side.pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: 4,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: false,
            service: Service::ReliableConnection,
            transport,
            number: None,
            nvme: None,
        };
        let begin = Instant::now();
        let mut qpns: Vec<Qpn> =
            (0..count).map(|_| side.nic.verbs().create_qp(&attributes).expect("a free number")).collect();
        println!("{count} queue pairs made in {:?}", begin.elapsed());
        if count == side.nic.queue_pairs_max() {
            let refused = side.nic.verbs().create_qp(&attributes);
            let all = u64::from(count);
            assert_eq!(refused, Err(ResourceError::Exhausted { what: "queue pairs", limit: all }), "one QP too many");
        }
        // The highest numbers first.
        qpns.sort_by_key(|qpn| std::cmp::Reverse(qpn.get()));
        Self { side, cq, region, qpns, retries }
    }

    /// Connects the `index`-th queue pair to its like at the other end.
    fn connect(&mut self, index: usize, to: &Self) {
        let (qpn, dest_qpn) = (self.qpns[index], to.qpns[index]);
        let nic = &mut self.side.nic;
        let peer = nic.acquire_host("127.0.0.1".parse().expect("an address"), None).expect("loopback");
        let connection = QpConnection {
            peer,
            dest_qpn,
            rq_psn: rnic_base::Psn::new(77),
            mtu: 1_024,
            min_rnr_timer: RnrTimer::at_least(rnic_base::Duration::from_us(100)),
            max_dest_rd_atomic: 1,
        };
        let timing =
            QpTiming { sq_psn: rnic_base::Psn::new(77), retry_count: self.retries, rnr_retry: None, max_rd_atomic: 1 };
        nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
        nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
        nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
    }

    fn write(&mut self, index: usize, remote: RemoteMemory) {
        let sges = [self.region.sge(index * WRITE_BYTES, WRITE_BYTES as u32)];
        let op = SendOp::Write { remote, immediate: None };
        let request = SendRequest { wr_id: index as u64, op, sges: &sges, flags: SendFlags::SIGNALED };
        self.side.nic.verbs().post_send(self.qpns[index], &request).expect("room in the send queue");
    }
}

/// `busy` of `count` queue pairs write `rounds` times at 1 % loss over UDP, all at the same time, and the written
/// data is checked.
fn writes_arrive(transport: &str, count: Option<u32>, busy: usize, rounds: u8) {
    let loss = Probability::ratio(1, 100);
    let impairment = Impairment { loss, seed: 7, ..Impairment::default() };
    let config = |name: &str| NicConfig { bypass: false, impairment, name: name.to_owned(), ..NicConfig::shared() };
    let count = count.unwrap_or(16_384);
    let mut left = QueuePairs::open(config("left"), transport, count, busy);
    let mut right = QueuePairs::open(config("right"), transport, count, busy);
    let begin = Instant::now();
    for index in 0..count as usize {
        left.connect(index, &right);
        right.connect(index, &left);
    }
    println!("all connected in {:?}", begin.elapsed());
    let begin = Instant::now();
    for round in 0..rounds {
        let byte = |index: usize, at: usize| (index * 31 + at * 7 + at / 256 + usize::from(round) * 13) as u8;
        for index in 0..busy {
            let bytes = &mut left.side.nic.bytes_mut(&left.region)[index * WRITE_BYTES..][..WRITE_BYTES];
            bytes.iter_mut().enumerate().for_each(|(at, value)| *value = byte(index, at));
            left.write(index, right.region.remote(index * WRITE_BYTES));
        }
        let mut left_over = busy;
        while left_over > 0 {
            assert!(begin.elapsed() < TIMEOUT, "{left_over} of {busy} are not done: {:?}", left.side.nic.stats());
            let _ = left.side.nic.progress() | right.side.nic.progress();
            while let Some(done) = left.side.nic.verbs().poll_cq_one(left.cq) {
                assert_eq!(done.status, WcStatus::Success, "{done:?}");
                left_over -= 1;
            }
        }
        let arrived = right.side.nic.bytes(&right.region);
        for (index, bytes) in arrived.chunks_exact(WRITE_BYTES).enumerate() {
            assert!(bytes.iter().enumerate().all(|(at, value)| *value == byte(index, at)), "{index} in round {round}");
        }
    }
    let stats = left.side.nic.stats();
    println!("{transport}: {busy} busy, {rounds} Writes of {WRITE_BYTES} bytes each: {:?}", begin.elapsed());
    println!("{} datagrams sent, {} lost", stats.datagrams_sent, stats.impairment.lost);
    let at_least = busy as u64 * u64::from(rounds) * 4 / 100 / 2;
    assert!(stats.impairment.lost >= at_least, "only {} packets were lost", stats.impairment.lost);
    assert_eq!(stats.bypass_bytes_sent, 0, "shared memory was used");
    println!("longest call with nothing to do: {:?}", longest_call(&mut left.side, &mut right.side));
    let begin = Instant::now();
    for queue_pairs in [&mut left, &mut right] {
        for qpn in std::mem::take(&mut queue_pairs.qpns) {
            queue_pairs.side.nic.verbs().destroy_qp(qpn).expect("it exists");
        }
    }
    println!("all of them ended in {:?}", begin.elapsed());
}

/// Returns the duration of the longest call of `progress`, including those that check all queue pairs, twice a
/// second.
fn longest_call(left: &mut Side, right: &mut Side) -> Duration {
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    while begin.elapsed() < Duration::from_millis(1_200) {
        let call = Instant::now();
        left.nic.progress();
        longest = longest.max(call.elapsed());
        right.nic.progress();
    }
    longest
}

#[test]
fn three_hundred_of_five_hundred_queue_pairs_complete_at_one_percent_loss() {
    for transport in ["irn", "falcon"] {
        writes_arrive(transport, Some(500), 300, 2);
    }
}

/// Run by `make long-test`.
#[test]
#[ignore = "for release builds"]
fn five_thousand_of_all_queue_pairs_complete_at_one_percent_loss() {
    for transport in ["irn", "falcon", "roce-gbn"] {
        writes_arrive(transport, None, 5_000, 4);
    }
}

/// The usual setting of programs: a timeout of 67 ms, seven retries.
const PEER_TIMEOUT: rnic_base::Duration = rnic_base::Duration::from_ms(537);

const TIMEOUT: Duration = Duration::from_secs(120);
