//! A call does all of what it says, or nothing: after an error the state is what it was before.

use super::bench::{Bench, Options, Side, sge};
use crate::abi::*;
use crate::{object, wr};

const OPERATIONS: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;

fn extended() -> Bench {
    Bench::new(&Options { send_ops: OPERATIONS, inline: 64, entries: 8, ..Options::default() })
}

/// A queue pair with the functions of the extended interface, between `wr_start` and `wr_complete`.
struct Batch<'a> {
    bench: &'a Bench,
    qp: *mut ibv_qp_ex,
    c: &'a ibv_qp_ex,
}

impl<'a> Batch<'a> {
    fn start(bench: &'a Bench) -> Self {
        let qp: *mut ibv_qp_ex = bench.a.qp.cast();
        // SAFETY: the queue pair was made with these functions.
        let c = unsafe { &object::qp_ex(qp).c };
        let batch = Self { bench, qp, c };
        // SAFETY: as above.
        unsafe { (c.wr_start.expect("made with it"))(qp) };
        batch
    }

    fn name(&self, wr_id: u64) {
        // SAFETY: fields that a program sets before each request.
        unsafe { ((*self.qp).wr_id, (*self.qp).wr_flags) = (wr_id, IBV_SEND_SIGNALED) };
    }

    fn remote(&self) -> (u32, u64) {
        // SAFETY: a living region.
        (unsafe { (*self.bench.b.mr).rkey }, self.bench.b.memory as u64)
    }

    fn write(&self, wr_id: u64) {
        let (rkey, addr) = self.remote();
        self.name(wr_id);
        // SAFETY: between start and complete.
        unsafe { (self.c.wr_rdma_write.expect("made with it"))(self.qp, rkey, addr) };
    }

    fn read(&self, wr_id: u64) {
        let (rkey, addr) = self.remote();
        self.name(wr_id);
        // SAFETY: as above.
        unsafe { (self.c.wr_rdma_read.expect("made with it"))(self.qp, rkey, addr) };
    }

    fn add(&self, wr_id: u64) {
        let (rkey, addr) = self.remote();
        self.name(wr_id);
        // SAFETY: as above.
        unsafe { (self.c.wr_atomic_fetch_add.expect("made with it"))(self.qp, rkey, addr, 1) };
    }

    fn inline(&self, data: &[u8], length: usize) {
        let addr = data.as_ptr().cast_mut().cast();
        // SAFETY: as above; of a length that is refused nothing is read.
        unsafe { (self.c.wr_set_inline_data.expect("always there"))(self.qp, addr, length) };
    }

    fn list(&self, count: usize, length: u32) {
        let entries = [sge(&self.bench.a, length); 40];
        // SAFETY: as above, and so many entries.
        unsafe { (self.c.wr_set_sge_list.expect("always there"))(self.qp, count, entries.as_ptr()) };
    }

    fn complete(self) -> i32 {
        // SAFETY: after start.
        unsafe { (self.c.wr_complete.expect("always there"))(self.qp) }
    }
}

/// A name, and how a request is added to a batch.
type Bad = (&'static str, fn(&Batch<'_>));

/// What may be wrong with the last request of a batch; the ones before it are right.
const BAD: [Bad; 9] = [
    ("inline data for a Read", |batch| {
        batch.read(9);
        batch.inline(&[1; 8], 8);
    }),
    ("inline data for an atomic", |batch| {
        batch.add(9);
        batch.inline(&[1; 8], 8);
    }),
    ("more inline data than was granted", |batch| {
        batch.write(9);
        batch.inline(&[1; 65], 65);
    }),
    ("inline data of nobody's memory", |batch| {
        batch.write(9);
        batch.inline(&[], usize::MAX);
    }),
    ("more entries than were granted", |batch| {
        batch.write(9);
        batch.list(3, 8);
    }),
    ("more entries than there can be", |batch| {
        batch.write(9);
        batch.list(40, 8);
    }),
    ("an atomic of the wrong length", |batch| {
        batch.add(9);
        batch.list(1, 4);
    }),
    ("a message that is too long", |batch| {
        batch.write(9);
        batch.list(2, u32::MAX);
    }),
    ("data without a request", |batch| {
        batch.c.wr_start.expect("always there");
        // SAFETY: a datagram's address, which this queue pair does not take.
        unsafe { (batch.c.wr_set_ud_addr.expect("always there"))(batch.qp, std::ptr::null_mut(), 1, 1) };
    }),
];

#[test]
fn a_batch_with_one_bad_request_posts_none() {
    let bench = extended();
    bench.a.memory(|bytes| bytes[..8].fill(7));
    for (name, spoil) in BAD {
        let batch = Batch::start(&bench);
        batch.write(1);
        batch.inline(b"inlined", 7);
        batch.write(2);
        batch.list(1, 8);
        spoil(&batch);
        assert_eq!(batch.complete(), libc::EINVAL, "{name}");
    }
    // More than there is room for.
    let batch = Batch::start(&bench);
    for wr_id in 0..9 {
        batch.write(wr_id);
        batch.list(1, 8);
    }
    assert_eq!(batch.complete(), libc::ENOMEM);
    // All places are free, and the first completion is that of what is posted now.
    let batch = Batch::start(&bench);
    for wr_id in 100..108 {
        batch.read(wr_id);
        batch.list(1, 8);
    }
    assert_eq!(batch.complete(), 0);
    for wr_id in 100..108 {
        let wc = bench.a.wait();
        assert_eq!((wc.wr_id, wc.status), (wr_id, IBV_WC_SUCCESS));
    }
    bench.a.memory(|bytes| assert_eq!(bytes[..8], [0; 8], "what was read back: nothing had been written"));
    assert!(wr::supports(IBV_QPT_RC, OPERATIONS));
}

/// What `ibv_query_qp` says, as far as a program sets it.
fn settings(side: &Side) -> String {
    format!("{:?}", side.attributes())
}

#[test]
fn a_queue_pair_that_cannot_be_changed_stays_as_it_is() {
    let bench = Bench::new(&Options::default());
    let before = settings(&bench.a);
    let attr = ibv_qp_attr { qp_state: IBV_QPS_RTS, cur_qp_state: IBV_QPS_RTS, ..ibv_qp_attr::default() };
    let wrong: [(ibv_qp_attr, u32); 4] = [
        (ibv_qp_attr { min_rnr_timer: 32, ..attr }, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER),
        (ibv_qp_attr { qp_access_flags: 1 << 30, ..attr }, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER),
        (ibv_qp_attr { cur_qp_state: IBV_QPS_SQD, ..attr }, IBV_QP_ACCESS_FLAGS | IBV_QP_CUR_STATE),
        (attr, IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY),
    ];
    for (attr, mask) in wrong {
        assert_eq!(bench.a.modify(&attr, mask | IBV_QP_STATE), Err(libc::EINVAL), "mask {mask:#x}");
        assert_eq!(settings(&bench.a), before, "mask {mask:#x}");
    }
    let drain = ibv_qp_attr { qp_state: IBV_QPS_SQD, ..attr };
    assert_eq!(bench.a.modify(&drain, IBV_QP_STATE), Ok(()));
    let before = settings(&bench.a);
    // An address vector that leads elsewhere, among attributes that are right.
    let mut elsewhere = bench.a.to_itself();
    elsewhere.grh.dgid = crate::wire::gid_of([127, 0, 0, 9].into());
    let attr = ibv_qp_attr { ah_attr: elsewhere, retry_cnt: 1, ..drain };
    assert_eq!(bench.a.modify(&attr, IBV_QP_AV | IBV_QP_RETRY_CNT), Err(libc::EINVAL));
    let attr = ibv_qp_attr { max_dest_rd_atomic: 9, retry_cnt: 1, ..drain };
    assert_eq!(bench.a.modify(&attr, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_RETRY_CNT), Err(libc::EINVAL));
    assert_eq!(settings(&bench.a), before);
    let attr = ibv_qp_attr { ah_attr: bench.a.to_itself(), retry_cnt: 1, ..drain };
    assert_eq!(bench.a.modify(&attr, IBV_QP_AV | IBV_QP_RETRY_CNT), Ok(()), "the same way may be said again");
    assert_eq!(bench.a.attributes().retry_cnt, 1);
}

/// A peer of another make may serve more Reads at a time than this device has places for.
#[test]
fn reads_under_way_are_the_lesser_of_both_ends() {
    let bench = Bench::new(&Options { until: IBV_QPS_RTR, ..Options::default() });
    let attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        max_rd_atomic: 128,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        sq_psn: 0xff_fff0,
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    for side in [&bench.a, &bench.b] {
        assert_eq!(side.modify(&attr, mask | IBV_QP_STATE), Ok(()));
        assert_eq!(side.attributes().max_rd_atomic, 16);
    }
    assert_eq!(bench.a.post(&mut bench.remote(1, IBV_WR_RDMA_READ, 8)), Ok(()));
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
}
