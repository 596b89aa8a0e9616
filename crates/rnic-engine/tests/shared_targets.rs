//! Extended reliable connections (XRC): each message names the shared receive queue that its receive is taken from.

mod common;

use common::*;
use rnic_base::Time;
use rnic_engine::*;
use rnic_wire::Qpn;

const TRANSPORTS: [&str; 4] = ["roce-gbn", "roce-sr", "irn", "fasr"];
const DOMAIN: u32 = 3;

/// A shared receive queue of the right side, with its own completion queue and protection domain, and the key of all
/// memory there.
struct Queue {
    srq: SrqId,
    cq: CqId,
    key: u32,
}

impl Queue {
    fn new(pair: &mut Pair, domain: u32) -> Self {
        let engine = &mut pair.right.engine;
        let pd = engine.objects_mut().create_pd().expect("the limit is not reached");
        let cq = engine.objects_mut().create_cq(1_024).expect("legal");
        let srq = engine.objects_mut().create_shared_srq(pd, (domain, cq), 256, 2).expect("legal");
        let region = MemoryRegion { pd, addr: BASE, len: MEMORY as u64, local: 0, access: Access::all() };
        Self { srq, cq, key: engine.objects_mut().register(region).expect("legal").0 }
    }

    fn post(&self, pair: &mut Pair, wr_id: u64, offset: u64, len: u32) {
        let sge = Sge { addr: BASE + offset, len, lkey: self.key };
        let posted = pair.right.engine.objects_mut().post_srq_recv(self.srq, &RecvRequest { wr_id, sges: &[sge] });
        posted.expect("the queue is not full");
    }

    fn take(&self, pair: &mut Pair) -> Vec<(u64, WcStatus, u32)> {
        std::iter::from_fn(|| pair.right.engine.objects_mut().poll_cq_one(self.cq))
            .map(|done| (done.wr_id, done.status, done.byte_len))
            .collect()
    }
}

/// Creates an initiator on the left side and its target on the right side.
fn connect(pair: &mut Pair, setup: &Setup) -> (Qpn, Qpn) {
    let [left, right] = [&mut pair.left, &mut pair.right]
        .map(|side| side.engine.create_qp(&default_attributes(setup, side.pd, side.cq)).expect("legal attributes"));
    pair.right.engine.make_target(right, DOMAIN).expect("the queue pair is new");
    pair.left.connect_qp(left, setup, right);
    pair.right.connect_qp(right, setup, left);
    (left, right)
}

fn send(pair: &mut Pair, qpn: Qpn, wr_id: u64, op: SendOp, (offset, len): (u64, u32), srqn: u32) {
    let sges = [pair.left.sge(offset, len)];
    let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
    pair.left.engine.post_send_shared(qpn, &request, srqn).expect("the queue is not full");
}

const SEND: SendOp = SendOp::Send { immediate: None };

#[test]
fn messages_consume_receives_of_the_queue_that_they_name() {
    for transport in TRANSPORTS {
        for loses in [false, true] {
            let setup = Setup::new(transport, &[]);
            let mut pair = Pair::new(&setup);
            if loses {
                let mut nth = 0u32;
                pair.wire(move |_| {
                    nth += 1;
                    if nth.is_multiple_of(5) { Fate::Drop } else { Fate::Deliver }
                });
            }
            let queues = [Queue::new(&mut pair, DOMAIN), Queue::new(&mut pair, DOMAIN)];
            let (left, _) = connect(&mut pair, &setup);
            for round in 0..60u64 {
                queues[(round % 2) as usize].post(&mut pair, 100 + round, 500_000 + round * 4_096, 4_096);
            }
            for round in 0..60u64 {
                let srqn = queues[(round % 2) as usize].srq.number();
                send(&mut pair, left, round, SEND, (round * 7, 3_000 + round as u32), srqn);
            }
            pair.run();
            let done = pair.left.statuses();
            assert_eq!(done, (0..60).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>(), "{transport} {loses}");
            for (which, queue) in queues.iter().enumerate() {
                let expected: Vec<_> = (0..60u64)
                    .filter(|round| *round as usize % 2 == which)
                    .map(|round| (100 + round, WcStatus::Success, 3_000 + round as u32))
                    .collect();
                assert_eq!(queue.take(&mut pair), expected, "{transport} {loses}");
            }
            for round in 0..60usize {
                let at = 500_000 + round * 4_096;
                assert_eq!(pair.right.memory[at..at + 3_000], pair.left.memory[round * 7..round * 7 + 3_000]);
            }
        }
    }
}

#[test]
fn writes_reads_and_atomics_access_memory_of_the_domain_only() {
    for transport in TRANSPORTS {
        let setup = Setup::new(transport, &[]);
        let mut pair = Pair::new(&setup);
        let (queue, other) = (Queue::new(&mut pair, DOMAIN), Queue::new(&mut pair, DOMAIN + 1));
        let (left, _) = connect(&mut pair, &setup);
        let remote = RemoteMemory { addr: BASE + 4_096, rkey: queue.key };
        queue.post(&mut pair, 9, 500_000, 64);
        let srqn = queue.srq.number();
        send(&mut pair, left, 1, SendOp::Write { remote, immediate: None }, (0, 5_000), 0);
        send(&mut pair, left, 2, SendOp::Write { remote, immediate: Some(77) }, (0, 5_000), srqn);
        send(&mut pair, left, 3, SendOp::FetchAdd { remote, add: 1 }, (700_000, 8), 0);
        send(&mut pair, left, 4, SendOp::Read { remote }, (710_000, 5_000), 0);
        pair.run();
        let ok = WcStatus::Success;
        assert_eq!(pair.left.statuses(), [(1, ok), (2, ok), (3, ok), (4, ok)], "{transport}");
        assert_eq!(queue.take(&mut pair), [(9, ok, 5_000)]);
        assert_eq!(pair.left.memory[710_008..715_000], pair.left.memory[8..5_000]);
        let foreign = RemoteMemory { addr: BASE, rkey: other.key };
        send(&mut pair, left, 5, SendOp::Read { remote: foreign }, (710_000, 8), 0);
        pair.run();
        assert_eq!(pair.left.statuses(), [(5, WcStatus::RemoteAccess)], "{transport}: not refused");
    }
}

#[test]
fn a_message_that_names_an_invalid_queue_is_refused() {
    for transport in TRANSPORTS {
        let setup = Setup::new(transport, &[]);
        let cases: [fn(&mut Pair) -> u32; 4] = [
            |_| 0,
            |_| 60_000,
            |pair| Queue::new(pair, DOMAIN + 1).srq.number(),
            |pair| pair.right.engine.objects_mut().create_srq(pair.right.pd, 16, 1).expect("legal").number(),
        ];
        for (index, case) in cases.iter().enumerate() {
            let mut pair = Pair::new(&setup);
            let (left, right) = connect(&mut pair, &setup);
            let srqn = case(&mut pair);
            send(&mut pair, left, 1, SEND, (0, 8), srqn);
            pair.run();
            assert_eq!(pair.left.statuses(), [(1, WcStatus::RemoteInvalidRequest)], "{transport} case {index}");
            let info = pair.right.engine.query_qp(right).expect("it exists");
            assert_eq!(info.state, QpState::Error);
        }
    }
}

#[test]
fn an_ordinary_queue_pair_refuses_messages_that_name_a_queue() {
    for transport in TRANSPORTS {
        let setup = Setup::new(transport, &[]);
        let mut pair = Pair::new(&setup);
        let queue = Queue::new(&mut pair, DOMAIN);
        let left = pair.left.qpn;
        send(&mut pair, left, 1, SEND, (0, 8), queue.srq.number());
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::RemoteInvalidRequest)], "{transport}");
    }
}

#[test]
fn an_empty_queue_delays_a_message_and_a_destroyed_queue_refuses_it() {
    for transport in TRANSPORTS {
        let setup = Setup::new(transport, &[]);
        let mut pair = Pair::new(&setup);
        let queue = Queue::new(&mut pair, DOMAIN);
        let (left, right) = connect(&mut pair, &setup);
        send(&mut pair, left, 1, SEND, (0, 2_000), queue.srq.number());
        pair.run_until(Time::from_ps(2_000_000_000));
        assert!(pair.left.statuses().is_empty(), "{transport}");
        queue.post(&mut pair, 9, 500_000, 4_096);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
        assert_eq!(queue.take(&mut pair), [(9, WcStatus::Success, 2_000)]);
        assert!(pair.right.engine.objects_mut().destroy_cq(queue.cq).is_err(), "the CQ is not in use");
        pair.right.engine.objects_mut().destroy_srq(queue.srq).expect("it is unused between messages");
        pair.right.engine.objects_mut().destroy_cq(queue.cq).expect("it is unused");
        send(&mut pair, left, 2, SEND, (0, 8), queue.srq.number());
        pair.run();
        assert_eq!(pair.left.statuses(), [(2, WcStatus::RemoteInvalidRequest)], "{transport}");
        pair.right.engine.modify_to_reset(right).expect("from error");
        assert_eq!(pair.right.engine.query_qp(right).map(|info| info.state), Some(QpState::Reset));
        pair.right.engine.destroy_qp(right).expect("it exists");
    }
}
