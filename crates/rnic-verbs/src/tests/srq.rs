//! Shared receive queues: sizes and limits.

use std::ptr;

use super::bench::{Bench, Options, sge};
use crate::abi::*;
use crate::{post, qp, srq};

fn post_recv(bench: &Bench, queue: *mut ibv_srq) -> i32 {
    let mut entry = sge(&bench.a, 8);
    let mut wr = ibv_recv_wr { wr_id: 1, next: ptr::null_mut(), sg_list: &raw mut entry, num_sge: 1 };
    let mut bad = ptr::null_mut();
    // SAFETY: a valid queue and a request.
    unsafe { post::post_srq_recv(queue, &raw mut wr, &raw mut bad) }
}

#[test]
fn the_limit_is_disarmed_when_it_is_reached() {
    let bench = Bench::new(&Options { until: IBV_QPS_INIT, ..Options::default() });
    let attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
    // SAFETY: valid objects, destroyed at the end.
    unsafe {
        let queue = srq::ibv_create_srq(bench.a.pd, &raw mut init);
        let mut wish = bench.init();
        (wish.srq, wish.cap.max_recv_wr, wish.cap.max_recv_sge) = (queue, 1 << 20, 500);
        let served = qp::ibv_create_qp(bench.a.pd, &raw mut wish);
        assert!(!served.is_null(), "creation with receive attributes failed");
        assert_eq!((wish.cap.max_recv_wr, wish.cap.max_recv_sge), (0, 0));
        bench.connect_to(served);
        (0..3).for_each(|_| assert_eq!(post_recv(&bench, queue), 0));
        let limit = || {
            let mut now = ibv_srq_attr::default();
            assert_eq!(srq::ibv_query_srq(queue, &raw mut now), 0);
            now.srq_limit
        };
        let mut arm = ibv_srq_attr { srq_limit: 3, ..ibv_srq_attr::default() };
        assert_eq!(srq::ibv_modify_srq(queue, &raw mut arm, IBV_SRQ_LIMIT as i32), 0);
        assert_eq!(limit(), 3);
        for wr_id in 0..2 {
            assert_eq!(bench.b.post(&mut bench.send_from_b(wr_id)), Ok(()));
            assert_eq!(bench.b.wait().status, IBV_WC_SUCCESS);
        }
        assert_eq!(bench.a.async_events(20_000), [IBV_EVENT_SRQ_LIMIT_REACHED], "not exactly one event");
        assert_eq!(limit(), 0, "the limit is still armed");
        assert_eq!(qp::ibv_destroy_qp(served), 0);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
    }
}

#[test]
fn a_change_that_fails_in_part_changes_nothing() {
    let bench = Bench::new(&Options::default());
    let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
    // SAFETY: valid objects, destroyed at the end.
    unsafe {
        let queue = srq::ibv_create_srq(bench.a.pd, &raw mut init);
        (0..3).for_each(|_| assert_eq!(post_recv(&bench, queue), 0));
        let modify = |max_wr: u32, srq_limit: u32| {
            let mut attr = ibv_srq_attr { max_wr, max_sge: 0, srq_limit };
            let errno = srq::ibv_modify_srq(queue, &raw mut attr, (IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) as i32);
            assert_eq!(srq::ibv_query_srq(queue, &raw mut attr), 0);
            (errno, attr.max_wr, attr.srq_limit)
        };
        assert_eq!(modify(4, 2), (0, 4, 2));
        for (max_wr, limit) in [(2, 1), (6, 7), (0, 0), (1 << 30, 1), (8, 1 << 30)] {
            assert_eq!(modify(max_wr, limit), (libc::EINVAL, 4, 2), "{max_wr} with {limit}");
        }
        assert_eq!(modify(3, 3), (0, 3, 3), "shrinking with a higher limit failed");
        assert_eq!(modify(6, 6), (0, 6, 6), "growing with a limit above the old size failed");
        assert_eq!(modify(3, 0), (0, 3, 0));
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
    }
}

#[test]
fn a_resized_queue_keeps_its_limit() {
    let bench = Bench::new(&Options::default());
    let attr = ibv_srq_attr { max_wr: 2, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
    // SAFETY: valid objects, destroyed at the end.
    unsafe {
        let queue = srq::ibv_create_srq(bench.a.pd, &raw mut init);
        assert!(!queue.is_null());
        assert_eq!(
            [post_recv(&bench, queue), post_recv(&bench, queue), post_recv(&bench, queue)],
            [0, 0, libc::ENOMEM]
        );
        let modify = |max_wr: u32, srq_limit: u32, mask: u32| {
            let mut attr = ibv_srq_attr { max_wr, max_sge: 0, srq_limit };
            srq::ibv_modify_srq(queue, &raw mut attr, mask as i32)
        };
        assert_eq!(modify(0, 3, IBV_SRQ_LIMIT), libc::EINVAL, "a limit above the size was accepted");
        assert_eq!(modify(4, 3, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
        assert_eq!(post_recv(&bench, queue), 0);
        assert_eq!(modify(1, 0, IBV_SRQ_MAX_WR), libc::EINVAL, "shrunk below the queued receives");
        let mut now = ibv_srq_attr::default();
        assert_eq!(srq::ibv_query_srq(queue, &raw mut now), 0);
        assert_eq!((now.max_wr, now.max_sge, now.srq_limit), (4, 1, 3));
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
    }
}
