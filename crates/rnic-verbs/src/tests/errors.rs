//! Requests that complete with errors, and their status.

use std::time::{Duration, Instant};

use super::bench::{BYTES, Bench, Options};
use crate::abi::*;

/// Posts `wr` at `a`, which must complete with `status` and put `a` into the error state; a request that is posted
/// afterwards is flushed.
#[track_caller]
fn fails(bench: &Bench, wr: &mut ibv_send_wr, status: u32) {
    assert_eq!(bench.a.post(wr), Ok(()));
    let wc = bench.a.wait();
    assert_eq!((wc.wr_id, wc.status), (wr.wr_id, status));
    assert_eq!(bench.a.state(), IBV_QPS_ERR);
    assert_eq!(bench.a.post(&mut bench.send(1_000, 8)), Ok(()), "posting in the error state failed");
    let flushed = bench.a.wait();
    assert_eq!((flushed.wr_id, flushed.status), (1_000, IBV_WC_WR_FLUSH_ERR));
}

#[test]
fn sends_are_refused_before_the_queue_pair_is_ready() {
    for state in [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR] {
        let bench = Bench::new(&Options { until: state, ..Options::default() });
        assert_eq!(bench.a.state(), state);
        assert_eq!(bench.a.post(&mut bench.write(1, 8)), Err(libc::EINVAL), "in state {state}");
        let may_receive = state != IBV_QPS_RESET;
        assert_eq!(bench.a.post_recv(1, 8).is_ok(), may_receive, "in state {state}");
    }
}

#[test]
fn malformed_requests_are_refused() {
    let bench = Bench::new(&Options::default());
    let mut wr = bench.write(1, 8);
    wr.opcode = 77;
    assert_eq!(bench.a.post(&mut wr), Err(libc::EINVAL));
    let mut entries = [super::sge(&bench.a, 8); 3];
    let mut wr = bench.write(1, 0);
    (wr.sg_list, wr.num_sge) = (entries.as_mut_ptr(), 3);
    assert_eq!(bench.a.post(&mut wr), Err(libc::EINVAL), "more entries than granted were accepted");
    wr.num_sge = -1;
    assert_eq!(bench.a.post(&mut wr), Err(libc::EINVAL));
    assert_eq!(bench.a.state(), IBV_QPS_RTS, "a refused request changed the state");
}

#[test]
fn posting_to_a_full_receive_queue_fails() {
    let bench = Bench::new(&Options { entries: 4, ..Options::default() });
    for wr_id in 0..4 {
        assert_eq!(bench.b.post_recv(wr_id, 8), Ok(()));
    }
    assert_eq!(bench.b.post_recv(4, 8), Err(libc::ENOMEM));
}

#[test]
fn keys_ranges_and_rights_are_checked() {
    let bench = Bench::new(&Options::default());
    let mut wr = bench.write(1, 8);
    // SAFETY: the list was created by the bench.
    unsafe { (*wr.sg_list).lkey ^= 1 };
    fails(&bench, &mut wr, IBV_WC_LOC_PROT_ERR);

    let bench = Bench::new(&Options::default());
    let mut wr = bench.write(2, 8);
    // SAFETY: every bit pattern is a valid number.
    unsafe { wr.wr.rdma.rkey ^= 1 };
    fails(&bench, &mut wr, IBV_WC_REM_ACCESS_ERR);

    let bench = Bench::new(&Options::default());
    let mut wr = bench.write(3, 8);
    // SAFETY: as above.
    unsafe { wr.wr.rdma.remote_addr += BYTES as u64 - 7 };
    fails(&bench, &mut wr, IBV_WC_REM_ACCESS_ERR);

    let bench = Bench::new(&Options { access: IBV_ACCESS_LOCAL_WRITE, ..Options::default() });
    fails(&bench, &mut bench.remote(4, IBV_WR_RDMA_READ, 8), IBV_WC_REM_ACCESS_ERR);
}

/// A right that the queue pair lacks makes the request invalid; a right that only the region lacks is an access
/// error.
#[test]
fn rights_of_queue_pair_and_region_give_different_errors() {
    let all = [
        (IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE),
        (IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ),
        (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC),
    ];
    let rights = all.iter().fold(IBV_ACCESS_LOCAL_WRITE, |all, (_, right)| all | right);
    for (opcode, right) in all {
        let request = |bench: &Bench| match opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD => bench.atomic(1, 0),
            _ => bench.remote(1, opcode, 8),
        };
        let bench = Bench::new(&Options { qp_access: rights & !right, ..Options::default() });
        fails(&bench, &mut request(&bench), IBV_WC_REM_INV_REQ_ERR);
        assert_eq!(bench.b.async_events(20_000)[..1], [IBV_EVENT_QP_REQ_ERR], "opcode {opcode}");

        let bench = Bench::new(&Options { access: rights & !right, ..Options::default() });
        fails(&bench, &mut request(&bench), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(bench.b.async_events(20_000)[..1], [IBV_EVENT_QP_ACCESS_ERR], "opcode {opcode}");
    }
}

#[test]
fn unaligned_atomics_are_refused() {
    let bench = Bench::new(&Options::default());
    assert_eq!(bench.a.post(&mut bench.atomic(1, 8)), Ok(()));
    let wc = bench.a.wait();
    assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, IBV_WC_FETCH_ADD));
    fails(&bench, &mut bench.atomic(2, 4), IBV_WC_REM_INV_REQ_ERR);
}

#[test]
fn a_message_that_is_too_long_fails_at_both_ends() {
    let bench = Bench::new(&Options::default());
    assert_eq!(bench.b.post_recv(9, 8), Ok(()));
    fails(&bench, &mut bench.send(1, 100), IBV_WC_REM_INV_REQ_ERR);
    let wc = bench.b.wait();
    assert_eq!((wc.wr_id, wc.status), (9, IBV_WC_LOC_LEN_ERR));
}

#[test]
fn a_silent_peer_fails_the_queue_pair_after_the_configured_time() {
    // 4.096 us * 2^15 = 134 ms, for the first try and two retries.
    let bench = Bench::new(&Options { is_alone: true, patience: (15, 2), ..Options::default() });
    let begin = Instant::now();
    fails(&bench, &mut bench.write(1, 8), IBV_WC_RETRY_EXC_ERR);
    let took = begin.elapsed();
    assert!((Duration::from_millis(350)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[test]
fn the_queue_pair_fails_when_rnr_retries_are_used_up() {
    let bench = Bench::new(&Options { rnr_retry: 2, ..Options::default() });
    fails(&bench, &mut bench.send(1, 8), IBV_WC_RNR_RETRY_EXC_ERR);
}

#[test]
fn state_changes_require_the_right_attributes() {
    let bench = Bench::new(&Options { until: IBV_QPS_RESET, ..Options::default() });
    let attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, ..ibv_qp_attr::default() };
    let right = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    assert_eq!(bench.a.modify(&attr, right & !IBV_QP_PORT), Err(libc::EINVAL));
    assert_eq!(bench.a.modify(&attr, right | IBV_QP_QKEY), Err(libc::EINVAL));
    assert_eq!(bench.a.modify(&ibv_qp_attr { port_num: 2, ..attr }, right), Err(libc::EINVAL));
    assert_eq!(bench.a.state(), IBV_QPS_RESET);
    assert_eq!(bench.a.modify(&attr, right), Ok(()));
    assert_eq!(bench.a.state(), IBV_QPS_INIT);
    let to_rts = ibv_qp_attr { qp_state: IBV_QPS_RTS, ..attr };
    assert_eq!(bench.a.modify(&to_rts, IBV_QP_STATE), Err(libc::EINVAL));
    let to_error = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..attr };
    assert_eq!(bench.a.modify(&to_error, IBV_QP_STATE), Ok(()));
    assert_eq!(bench.a.state(), IBV_QPS_ERR);
}
