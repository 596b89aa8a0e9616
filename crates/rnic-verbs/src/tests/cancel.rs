//! Threads that are cancelled during a call.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::bench::{Bench, Options, Side};
use crate::abi::*;
use crate::rdmacm::{rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event};
use crate::{channel, poll};

/// Body of a program's thread. No object in it has a destructor: it is unwound as C code is.
type Body = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

// SAFETY: the signatures are those of POSIX; functions that a cancellation may unwind are declared accordingly.
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

/// Starts `body`, cancels it during its calls, and waits for its end.
fn cancel(body: Body, argument: *mut c_void, has_begun: &AtomicBool) {
    let mut thread = 0;
    // SAFETY: the argument has the type that the body expects and outlives it, since the thread is joined.
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

static IS_POLLING: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn polls(cq: *mut c_void) -> *mut c_void {
    let mut wc = ibv_wc::default();
    loop {
        // Enough iterations to reach every system call that a poll makes occasionally.
        for _ in 0..10_000 {
            IS_POLLING.store(true, Ordering::Release);
            // SAFETY: a valid completion queue, space for a completion.
            unsafe { poll::poll_cq(cq.cast(), 1, &raw mut wc) };
        }
        // SAFETY: no object here has a destructor.
        unsafe { pthread_testcancel() };
    }
}

#[test]
fn a_polling_thread_is_cancelled_between_two_calls() {
    let bench = Bench::new(&Options::default());
    cancel(polls, bench.a.cq.cast(), &IS_POLLING);
    assert_eq!(bench.a.post(&mut bench.write(1, 8)), Ok(()), "the cancelled thread still holds the lock");
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
}

static IS_WAITING: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_completions(channel: *mut c_void) -> *mut c_void {
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    IS_WAITING.store(true, Ordering::Release);
    // SAFETY: a valid channel, space for the result.
    unsafe { channel::ibv_get_cq_event(channel.cast(), &raw mut cq, &raw mut context) };
    ptr::null_mut()
}

static IS_WAITING_FOR_ASYNC: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_async_events(context: *mut c_void) -> *mut c_void {
    let mut event = std::mem::MaybeUninit::<ibv_async_event>::uninit();
    IS_WAITING_FOR_ASYNC.store(true, Ordering::Release);
    // SAFETY: an open context, space for the result.
    unsafe { channel::ibv_get_async_event(context.cast(), event.as_mut_ptr()) };
    ptr::null_mut()
}

static IS_WAITING_FOR_CM: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_connections(channel: *mut c_void) -> *mut c_void {
    let mut event = ptr::null_mut();
    IS_WAITING_FOR_CM.store(true, Ordering::Release);
    // SAFETY: a valid channel, space for the result.
    unsafe { rdma_get_cm_event(channel.cast(), &raw mut event) };
    ptr::null_mut()
}

#[test]
fn a_thread_is_cancelled_while_it_waits_for_events() {
    let bench = Bench::new(&Options { until: IBV_QPS_INIT, is_alone: true, ..Options::default() });
    let Side { channel, context, .. } = bench.a;
    cancel(waits_for_completions, channel.cast(), &IS_WAITING);
    cancel(waits_for_async_events, context.cast(), &IS_WAITING_FOR_ASYNC);
    let channel = rdma_create_event_channel();
    cancel(waits_for_connections, channel.cast(), &IS_WAITING_FOR_CM);
    // SAFETY: created above, and no thread waits on it.
    unsafe { rdma_destroy_event_channel(channel) };
}
