//! Shared receive queues: sizes and limits.

use std::ptr;

use super::bench::{Bench, Options, sge};
use crate::abi::*;
use crate::{post, srq};

fn post_recv(bench: &Bench, queue: *mut ibv_srq) -> i32 {
    let mut entry = sge(&bench.a, 8);
    let mut wr = ibv_recv_wr { wr_id: 1, next: ptr::null_mut(), sg_list: &raw mut entry, num_sge: 1 };
    let mut bad = ptr::null_mut();
    // SAFETY: a living queue and a request.
    unsafe { post::post_srq_recv(queue, &raw mut wr, &raw mut bad) }
}

#[test]
fn a_queue_changes_its_size_and_keeps_its_limit_below() {
    let bench = Bench::new(&Options::default());
    let attr = ibv_srq_attr { max_wr: 2, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
    // SAFETY: living objects, given up at the end.
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
        assert_eq!(modify(0, 3, IBV_SRQ_LIMIT), libc::EINVAL, "a limit that can never be reached");
        assert_eq!(modify(4, 3, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
        assert_eq!(post_recv(&bench, queue), 0);
        assert_eq!(modify(1, 0, IBV_SRQ_MAX_WR), libc::EINVAL, "three wait");
        let mut now = ibv_srq_attr::default();
        assert_eq!(srq::ibv_query_srq(queue, &raw mut now), 0);
        assert_eq!((now.max_wr, now.max_sge, now.srq_limit), (4, 1, 3));
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
    }
}
