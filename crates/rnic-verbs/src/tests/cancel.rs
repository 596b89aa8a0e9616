//! Threads that are cancelled while they call.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::bench::{Bench, Options, Side};
use crate::abi::*;
use crate::rdmacm::{rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event};
use crate::{channel, poll};

/// A program's thread. Nothing in it has a destructor: it is unwound as C's is.
type Body = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

// SAFETY: the signatures are those of POSIX; what may be unwound by a cancellation says so.
unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const c_void,
        body: Body,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_testcancel();
}

/// `PTHREAD_CANCELED`.
const CANCELLED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// Starts `body`, cancels it in the middle and waits for its end.
fn cancel(body: Body, argument: *mut c_void, has_begun: &AtomicBool) {
    let mut thread = 0;
    // SAFETY: the body gets what it expects, which outlives it: it is waited for.
    assert_eq!(unsafe { pthread_create(&raw mut thread, ptr::null(), body, argument) }, 0);
    while !has_begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    let mut result = ptr::null_mut();
    // SAFETY: a thread that has not been joined.
    unsafe {
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    assert_eq!(result, CANCELLED);
}

static POLLS: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn polls(cq: *mut c_void) -> *mut c_void {
    let mut wc = ibv_wc::default();
    loop {
        // Long enough for every call of the kernel that a turn makes now and then.
        for _ in 0..10_000 {
            POLLS.store(true, Ordering::Release);
            // SAFETY: a living completion queue, room for a completion.
            unsafe { poll::poll_cq(cq.cast(), 1, &raw mut wc) };
        }
        // SAFETY: nothing here has a destructor.
        unsafe { pthread_testcancel() };
    }
}

#[test]
fn a_thread_that_polls_is_cancelled_between_two_calls() {
    let bench = Bench::new(&Options::default());
    cancel(polls, bench.a.cq.cast(), &POLLS);
    assert_eq!(bench.a.post(&mut bench.write(1, 8)), Ok(()), "the lock is free");
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
}

static WAITS: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_completions(channel: *mut c_void) -> *mut c_void {
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    WAITS.store(true, Ordering::Release);
    // SAFETY: a living channel, room for the answer.
    unsafe { channel::ibv_get_cq_event(channel.cast(), &raw mut cq, &raw mut context) };
    ptr::null_mut()
}

static WAITS_FOR_ASYNC: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_async_events(context: *mut c_void) -> *mut c_void {
    let mut event = std::mem::MaybeUninit::<ibv_async_event>::uninit();
    WAITS_FOR_ASYNC.store(true, Ordering::Release);
    // SAFETY: an open context, room for the answer.
    unsafe { channel::ibv_get_async_event(context.cast(), event.as_mut_ptr()) };
    ptr::null_mut()
}

static WAITS_FOR_CM: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_connections(channel: *mut c_void) -> *mut c_void {
    let mut event = ptr::null_mut();
    WAITS_FOR_CM.store(true, Ordering::Release);
    // SAFETY: a living channel, room for the answer.
    unsafe { rdma_get_cm_event(channel.cast(), &raw mut event) };
    ptr::null_mut()
}

#[test]
fn a_thread_that_waits_for_events_is_cancelled_while_it_waits() {
    let bench = Bench::new(&Options { until: IBV_QPS_INIT, is_alone: true, ..Options::default() });
    let Side { channel, context, .. } = bench.a;
    cancel(waits_for_completions, channel.cast(), &WAITS);
    cancel(waits_for_async_events, context.cast(), &WAITS_FOR_ASYNC);
    let channel = rdma_create_event_channel();
    cancel(waits_for_connections, channel.cast(), &WAITS_FOR_CM);
    // SAFETY: made above, and nobody waits any more.
    unsafe { rdma_destroy_event_channel(channel) };
}
