//! Completion events and asynchronous events.

use std::ptr;

use super::bench::{Bench, Options, Side};
use crate::abi::*;
use crate::{channel, poll};

fn is_readable(fd: i32, wait_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, wait_ms) == 1 }
}

/// Arms the completion queue of `side`.
fn arm(side: &Side, solicited_only: bool) {
    // SAFETY: a valid completion queue.
    assert_eq!(unsafe { poll::req_notify_cq(side.cq, i32::from(solicited_only)) }, 0);
}

/// Fetches and acknowledges a completion event.
fn fetch(side: &Side) {
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a valid channel.
    unsafe {
        assert_eq!(channel::ibv_get_cq_event(side.channel, &raw mut cq, &raw mut context), 0);
        assert_eq!(cq, side.cq);
        channel::ibv_ack_cq_events(cq, 1);
    }
}

#[test]
fn an_armed_queue_reports_one_event_without_polling() {
    let bench = Bench::new(&Options::default());
    // SAFETY: a valid channel.
    let fd = unsafe { (*bench.b.channel).fd };
    for wr_id in 0..2 {
        bench.b.post_recv(wr_id, 64).expect("the receive queue has a free entry");
    }
    arm(&bench.b, false);
    assert!(!is_readable(fd, 0));
    assert_eq!(bench.a.post(&mut bench.send(1, 8)), Ok(()));
    // The program makes no call for `b`: the progress thread receives the message.
    assert!(is_readable(fd, 10_000));
    fetch(&bench.b);
    assert_eq!(bench.a.post(&mut bench.send(2, 8)), Ok(()));
    assert!(!is_readable(fd, 100), "more than one event after arming once");
    assert_eq!([bench.b.wait().wr_id, bench.b.wait().wr_id], [0, 1]);
}

#[test]
fn solicited_events_are_only_for_solicited_messages_and_errors() {
    let bench = Bench::new(&Options::default());
    // SAFETY: a valid channel.
    let fd = unsafe { (*bench.b.channel).fd };
    for wr_id in 0..3 {
        bench.b.post_recv(wr_id, 64).expect("the receive queue has a free entry");
    }
    arm(&bench.b, true);
    assert_eq!(bench.a.post(&mut bench.send(1, 8)), Ok(()));
    assert!(!is_readable(fd, 100));
    let mut wr = bench.send(2, 8);
    wr.send_flags |= IBV_SEND_SOLICITED;
    assert_eq!(bench.a.post(&mut wr), Ok(()));
    assert!(is_readable(fd, 10_000));
    fetch(&bench.b);
    arm(&bench.b, true);
    let to_error = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(bench.b.modify(&to_error, IBV_QP_STATE), Ok(()));
    assert!(is_readable(fd, 1_000), "no event for the flushed receive");
    fetch(&bench.b);
}

#[test]
fn a_refused_request_causes_an_event_at_the_responder() {
    let bench = Bench::new(&Options { access: IBV_ACCESS_LOCAL_WRITE, ..Options::default() });
    assert_eq!(bench.a.post(&mut bench.write(1, 8)), Ok(()));
    assert_eq!(bench.a.wait().status, IBV_WC_REM_ACCESS_ERR);
    // SAFETY: an open device.
    assert!(is_readable(unsafe { (*bench.b.context).async_fd }, 10_000));
    let mut event = ibv_async_event { element: ptr::null_mut(), event_type: 0 };
    let mut kinds = Vec::new();
    // SAFETY: an open device, an event that may be written.
    while is_readable(unsafe { (*bench.b.context).async_fd }, 100) {
        // SAFETY: as above.
        unsafe {
            assert_eq!(channel::ibv_get_async_event(bench.b.context, &raw mut event), 0);
            assert_eq!(event.element, bench.b.qp.cast());
            channel::ibv_ack_async_event(&raw mut event);
        }
        kinds.push(event.event_type);
    }
    assert!(kinds.contains(&IBV_EVENT_QP_ACCESS_ERR), "{kinds:?}");
}
