//! A call has its complete effect or none: after an error the state is the same as before.

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
        // SAFETY: the queue pair was created with these functions.
        let c = unsafe { &object::qp_ex(qp).c };
        let batch = Self { bench, qp, c };
        // SAFETY: as above.
        unsafe { (c.wr_start.expect("the function is set"))(qp) };
        batch
    }

    fn set_wr_id(&self, wr_id: u64) {
        // SAFETY: fields that a program sets before each request.
        unsafe { ((*self.qp).wr_id, (*self.qp).wr_flags) = (wr_id, IBV_SEND_SIGNALED) };
    }

    fn remote(&self) -> (u32, u64) {
        // SAFETY: a valid region.
        (unsafe { (*self.bench.b.mr).rkey }, self.bench.b.memory as u64)
    }

    fn write(&self, wr_id: u64) {
        let (rkey, addr) = self.remote();
        self.set_wr_id(wr_id);
        // SAFETY: between start and complete.
        unsafe { (self.c.wr_rdma_write.expect("the function is set"))(self.qp, rkey, addr) };
    }

    fn read(&self, wr_id: u64) {
        let (rkey, addr) = self.remote();
        self.set_wr_id(wr_id);
        // SAFETY: as above.
        unsafe { (self.c.wr_rdma_read.expect("the function is set"))(self.qp, rkey, addr) };
    }

    fn add(&self, wr_id: u64) {
        let (rkey, addr) = self.remote();
        self.set_wr_id(wr_id);
        // SAFETY: as above.
        unsafe { (self.c.wr_atomic_fetch_add.expect("the function is set"))(self.qp, rkey, addr, 1) };
    }

    fn inline(&self, data: &[u8], length: usize) {
        let addr = data.as_ptr().cast_mut().cast();
        // SAFETY: as above; for a rejected length no memory is read.
        unsafe { (self.c.wr_set_inline_data.expect("the function is set"))(self.qp, addr, length) };
    }

    fn list(&self, count: usize, length: u32) {
        let entries = [sge(&self.bench.a, length); 40];
        // SAFETY: as above, with that many entries.
        unsafe { (self.c.wr_set_sge_list.expect("the function is set"))(self.qp, count, entries.as_ptr()) };
    }

    fn complete(self) -> i32 {
        // SAFETY: after start.
        unsafe { (self.c.wr_complete.expect("the function is set"))(self.qp) }
    }
}

/// Name of an error, and a function that adds an invalid request to a batch.
type InvalidRequest = (&'static str, fn(&Batch<'_>));

/// Errors of the last request of a batch; the requests before it are valid.
const INVALID_REQUESTS: [InvalidRequest; 9] = [
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
    ("inline data longer than the address space", |batch| {
        batch.write(9);
        batch.inline(&[], usize::MAX);
    }),
    ("more entries than were granted", |batch| {
        batch.write(9);
        batch.list(3, 8);
    }),
    ("more entries than the device supports", |batch| {
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
        batch.c.wr_start.expect("the function is set");
        // SAFETY: the address of a datagram, which this queue pair rejects.
        unsafe { (batch.c.wr_set_ud_addr.expect("the function is set"))(batch.qp, std::ptr::null_mut(), 1, 1) };
    }),
];

#[test]
fn a_batch_with_one_bad_request_posts_none() {
    let bench = extended();
    bench.a.memory(|bytes| bytes[..8].fill(7));
    for (name, add_invalid) in INVALID_REQUESTS {
        let batch = Batch::start(&bench);
        batch.write(1);
        batch.inline(b"inlined", 7);
        batch.write(2);
        batch.list(1, 8);
        add_invalid(&batch);
        assert_eq!(batch.complete(), libc::EINVAL, "{name}");
    }
    // More requests than the queue has entries.
    let batch = Batch::start(&bench);
    for wr_id in 0..9 {
        batch.write(wr_id);
        batch.list(1, 8);
    }
    assert_eq!(batch.complete(), libc::ENOMEM);
    // All entries are free, and the first completion is that of the request posted now.
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
    bench.a.memory(|bytes| assert_eq!(bytes[..8], [0; 8], "a rejected batch has written"));
    assert!(wr::supports(IBV_QPT_RC, OPERATIONS));
}

/// Returns the attributes that `ibv_query_qp` returns, as far as a program sets them.
fn settings(side: &Side) -> String {
    format!("{:?}", side.attributes())
}

#[test]
fn a_rejected_modify_changes_no_attribute() {
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
    // An address vector to another destination, among valid attributes.
    let mut elsewhere = bench.a.to_itself();
    elsewhere.grh.dgid = crate::wire::gid_of([127, 0, 0, 9].into());
    let attr = ibv_qp_attr { ah_attr: elsewhere, retry_cnt: 1, ..drain };
    assert_eq!(bench.a.modify(&attr, IBV_QP_AV | IBV_QP_RETRY_CNT), Err(libc::EINVAL));
    let attr = ibv_qp_attr { max_dest_rd_atomic: 9, retry_cnt: 1, ..drain };
    assert_eq!(bench.a.modify(&attr, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_RETRY_CNT), Err(libc::EINVAL));
    assert_eq!(settings(&bench.a), before);
    let attr = ibv_qp_attr { ah_attr: bench.a.to_itself(), retry_cnt: 1, ..drain };
    assert_eq!(bench.a.modify(&attr, IBV_QP_AV | IBV_QP_RETRY_CNT), Ok(()), "setting the same address again failed");
    assert_eq!(bench.a.attributes().retry_cnt, 1);
}

/// A peer of another vendor may serve more Reads at the same time than this device supports: `max_rd_atomic` is
/// limited.
#[test]
fn reads_in_flight_are_limited_by_both_ends() {
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
