//! Calls through the C interface, as a program makes them, including calls that must fail.

mod atomicity;
mod bench;
mod cancel;
mod datagrams;
mod errors;
mod events;
mod hints;
mod many;
mod newer;
mod outputs;
mod programs;
mod rate_limits;
mod sharing;
mod srq;

use std::ptr;
use std::time::{Duration, Instant};

use crate::abi::*;
use bench::{Bench, Options, Side, failed_with, sge};

#[test]
fn a_write_arrives_and_completes() {
    let bench = Bench::new(&Options::default());
    bench.a.memory(|bytes| bytes[..5].copy_from_slice(b"hello"));
    let mut wr = bench.write(7, 5);
    assert_eq!(bench.a.post(&mut wr), Ok(()));
    let wc = bench.a.wait();
    assert_eq!((wc.status, wc.opcode, wc.wr_id), (IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 7));
    assert_eq!(wc.qp_num, bench.a.qpn());
    bench.b.memory(|bytes| assert_eq!(&bytes[..5], b"hello"));
}

#[test]
fn a_send_delivers_its_immediate_in_network_byte_order() {
    let bench = Bench::new(&Options::default());
    bench.b.post_recv(1, 64).expect("the receive queue has a free entry");
    let mut wr = bench.send(2, 16);
    (wr.opcode, wr.imm_data) = (IBV_WR_SEND_WITH_IMM, 0x1122_3344_u32.to_be());
    assert_eq!(bench.a.post(&mut wr), Ok(()));
    let wc = bench.b.wait();
    assert_eq!((wc.opcode, wc.byte_len, wc.wc_flags), (IBV_WC_RECV, 16, IBV_WC_WITH_IMM));
    assert_eq!(u32::from_be(wc.imm_data), 0x1122_3344);
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
}

#[test]
fn inline_data_may_change_after_the_call() {
    let bench = Bench::new(&Options { inline: 64, ..Options::default() });
    let mut data = *b"before";
    for round in 0..40 {
        // More rounds than entries, so that entries are reused.
        data.copy_from_slice(if round % 2 == 0 { b"before" } else { b"second" });
        let sent = data;
        let mut entry = ibv_sge { addr: data.as_ptr() as u64, length: 6, lkey: 0xdead };
        let mut wr = bench.write(round, 0);
        (wr.sg_list, wr.num_sge) = (&raw mut entry, 1);
        wr.send_flags |= IBV_SEND_INLINE;
        assert_eq!(bench.a.post(&mut wr), Ok(()));
        data.copy_from_slice(b"change");
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
        bench.b.memory(|bytes| assert_eq!(&bytes[..6], &sent));
    }
    let mut entry = sge(&bench.a, 65);
    let mut wr = bench.write(99, 0);
    (wr.sg_list, wr.num_sge) = (&raw mut entry, 1);
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(bench.a.post(&mut wr), Err(libc::EINVAL), "more inline data than granted was accepted");
}

#[test]
fn a_list_is_posted_up_to_the_first_that_is_refused() {
    let bench = Bench::new(&Options { entries: 4, ..Options::default() });
    let mut wrs: Vec<ibv_send_wr> = (0..6).map(|wr_id| bench.write(wr_id, 8)).collect();
    for index in 0..5 {
        wrs[index].next = &raw mut wrs[index + 1];
    }
    let mut bad = ptr::null_mut();
    let qp = bench.a.qp;
    // SAFETY: a valid queue pair and a list of requests.
    let errno = unsafe { crate::post::post_send(qp, &raw mut wrs[0], &raw mut bad) };
    assert_eq!(errno, libc::ENOMEM);
    assert!(ptr::eq(bad, &raw const wrs[4]), "not the first request that was refused");
    for wr_id in 0..4 {
        assert_eq!(bench.a.wait().wr_id, wr_id);
    }
    assert_eq!(bench.a.post(&mut wrs[5]), Ok(()));
}

#[test]
fn a_forked_child_cannot_use_its_parents_objects() {
    let bench = Bench::new(&Options::default());
    let mut wr = bench.write(1, 8);
    assert_ne!(crate::progress::this_thread(), 0);
    // SAFETY: the child only makes calls that must be refused immediately, and exits without clean-up.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = bench.a.post(&mut wr) == Err(libc::EPERM) && bench.a.poll().is_err();
        // SAFETY: queries a number.
        let refused = refused && crate::progress::this_thread() == unsafe { libc::gettid() };
        // SAFETY: ends the child here.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the test's own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(bench.a.post(&mut wr), Ok(()), "the parent cannot post after the fork");
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
}

/// After a packet loss, two requests can complete at the same time, so a completion queue for which a program
/// requests one entry must have space for more.
#[test]
fn a_completion_queue_of_one_entry_holds_sixteen() {
    let bench = Bench::new(&Options { completions: 1, ..Options::default() });
    // SAFETY: a valid completion queue.
    assert!(unsafe { (*bench.a.cq).cqe } >= 16);
    bench.a.memory(|bytes| bytes[..16].fill(1));
    for wr_id in 0..16 {
        // The last request is longer, so that its arrival can be recognised.
        assert_eq!(bench.a.post(&mut bench.write(wr_id, if wr_id == 15 { 16 } else { 8 })), Ok(()));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut arrived = 0;
    while arrived == 0 {
        assert!(Instant::now() < deadline, "no completion arrived in time");
        std::thread::sleep(Duration::from_millis(1));
        bench.b.memory(|bytes| arrived = bytes[15]);
    }
    // The program does not poll; the progress thread processes the acknowledgements.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(std::array::from_fn(|_| bench.a.wait().wr_id), std::array::from_fn::<u64, 16, _>(|at| at as u64));
    assert_eq!(bench.a.state(), IBV_QPS_RTS, "the completion queue overran");
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let bench = Bench::new(&Options::default());
    let Side { pd, cq, channel, .. } = bench.a;
    // SAFETY: valid objects, each still used by another one.
    unsafe {
        assert_eq!(crate::mr::ibv_dealloc_pd(pd), libc::EBUSY);
        assert_eq!(crate::cq::ibv_destroy_cq(cq), libc::EBUSY);
        assert_eq!(crate::channel::ibv_destroy_comp_channel(channel), libc::EBUSY);
    }
}

#[test]
fn invalid_calls_fail_with_the_right_error_number() {
    let bench = Bench::new(&Options::default());
    let Side { context, pd, memory, .. } = bench.a;
    let none = ptr::null_mut();
    failed_with(libc::EINVAL, crate::cq::ibv_create_cq(context, 0, none, ptr::null_mut(), 0));
    failed_with(libc::EINVAL, crate::cq::ibv_create_cq(context, 1, none, ptr::null_mut(), 1_000));
    failed_with(libc::EINVAL, crate::mr::ibv_reg_mr(pd, memory.cast(), 0, 1));
    failed_with(libc::EINVAL, crate::mr::ibv_reg_mr(pd, memory.cast(), 8, IBV_ACCESS_REMOTE_WRITE as i32));
    failed_with(libc::EFAULT, crate::mr::ibv_reg_mr(pd, ptr::without_provenance_mut(0x1000), 8, 1));
    let mut attr = ibv_ah_attr { port_num: 1, ..ibv_ah_attr::default() };
    // SAFETY: a valid protection domain, attributes that can be read.
    failed_with(libc::EINVAL, unsafe { crate::ah::ibv_create_ah(pd, &raw mut attr) });
    let mut init = bench.init();
    init.qp_type = IBV_QPT_RAW_PACKET;
    // SAFETY: as above, and valid completion queues.
    failed_with(libc::EOPNOTSUPP, unsafe { crate::qp::ibv_create_qp(pd, &raw mut init) });
    init = bench.init();
    init.cap.max_send_wr = 1 << 20;
    // SAFETY: as above.
    failed_with(libc::EINVAL, unsafe { crate::qp::ibv_create_qp(pd, &raw mut init) });
}
