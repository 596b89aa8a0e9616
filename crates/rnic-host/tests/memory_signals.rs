//! Signals that are not about registered memory: a program with a handler of its own, installed before ours or after,
//! finds everything as without us. Each case is a process of its own, because most of them end by a signal.

#![cfg(target_arch = "x86_64")]

mod common;

use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, exit};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Pair;
use rnic_engine::{Access, SendOp, WcStatus};

const CASE: &str = "RNIC_TEST_SIGNAL_CASE";
const PAGE: usize = 4_096;

/// What ours was before the program's took its place.
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Ends with 40 for a fault at address 16, 41 for another one, and 42 for a signal that was sent.
extern "C" fn tells(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the arguments are those of a handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(if code <= 0 { 42 } else { 40 + c_int::from(address != 16) }) }
}

/// Hands everything on to whom it has replaced, and is not to be called twice for one signal.
extern "C" fn hands_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if CALLS.fetch_add(1, Ordering::Relaxed) > 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(50) };
    }
    // SAFETY: what `install` has found there, a handler with these arguments.
    let before: Handler = unsafe { std::mem::transmute::<usize, Handler>(BEFORE.load(Ordering::Relaxed)) };
    before(signal, info, context);
}

fn install(signal: c_int, handler: Handler) {
    // SAFETY: whole structures of plain bits.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        new.sa_sigaction = handler as usize;
        new.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &raw const new, &raw mut old), 0);
        BEFORE.store(old.sa_sigaction, Ordering::Relaxed);
    }
}

/// Sends from memory that goes away, again and again: the process lives.
fn touch_what_is_gone() {
    let mut pair = Pair::loopback("irn");
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches nothing that exists.
    let start = unsafe { libc::mmap(null_mut(), PAGE, rights, flags, -1, 0) };
    let start = NonNull::new(start.cast::<u8>()).expect("a mapping");
    let (pd, addr) = (pair.left.pd, start.as_ptr() as u64);
    // SAFETY: nothing else is mapped there while the region lives.
    let region =
        unsafe { pair.left.nic.verbs().register_raw(pd, start, PAGE, addr, Access::all()) }.expect("a legal region");
    // The program may have replaced our handler: that is seen within a millisecond of work.
    common::drive_for(&mut pair.left, &mut pair.right, std::time::Duration::from_millis(5));
    // SAFETY: the page is the test's own.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), PAGE) }, 0);
    let remote = pair.right.region.remote(0);
    pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[region.sge(0, 100)]);
    assert_eq!(pair.left_completions(1)[0].status, WcStatus::LocalProtection);
}

fn fault() {
    // SAFETY: it is not safe; that is the point.
    unsafe { (16 as *const u8).read_volatile() };
}

/// A read beyond the end of a file.
fn bus_error() {
    // SAFETY: as above.
    unsafe {
        let file = libc::memfd_create(c"rnic-bus".as_ptr(), 0);
        let start = libc::mmap(null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        start.cast::<u8>().read_volatile();
    }
}

fn send(signal: c_int) {
    // SAFETY: to ourselves.
    unsafe { libc::raise(signal) };
}

/// A number, or a signal.
type Ended = Result<i32, i32>;

/// What a program does, and how it ends: with a number or by a signal.
const CASES: [(&str, fn(), Ended); 10] = [
    ("nothing of its own, and lives", || {}, Ok(0)),
    ("a fault", fault, Err(libc::SIGSEGV)),
    ("a bus error", bus_error, Err(libc::SIGBUS)),
    ("a signal that is sent", || send(libc::SIGSEGV), Err(libc::SIGSEGV)),
    ("a handler of its own, a fault", fault, Ok(40)),
    ("a handler of its own, a bus error", bus_error, Ok(41)),
    ("a handler of its own, a signal that is sent", || send(libc::SIGBUS), Ok(42)),
    ("a later handler, a fault", fault, Ok(40)),
    ("a later handler that hands on, a fault", fault, Err(libc::SIGSEGV)),
    ("a later handler that hands on, between two, a fault", fault, Ok(40)),
];

/// Not a test of its own: what a case's process does.
#[test]
fn child() {
    let Ok(name) = std::env::var(CASE) else { return };
    let (name, ends, _) = CASES.iter().find(|(case, ..)| *case == name).expect("a case");
    // Rust's own handler, which tells of full stacks, is not in the way.
    // SAFETY: whole structures of plain bits.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, &raw const default, null_mut());
        libc::sigaction(libc::SIGBUS, &raw const default, null_mut());
        // A core file is of no use to anybody.
        libc::setrlimit(libc::RLIMIT_CORE, &raw const NO_CORE);
    }
    if name.starts_with("a handler") || name.contains("between two") {
        install(libc::SIGSEGV, tells);
        install(libc::SIGBUS, tells);
    }
    touch_what_is_gone();
    if name.starts_with("a later handler,") {
        install(libc::SIGSEGV, tells);
    }
    if name.starts_with("a later handler that hands on") {
        install(libc::SIGSEGV, hands_on);
    }
    touch_what_is_gone();
    ends();
    exit(0);
}

static NO_CORE: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };

fn run(case: &str) -> ExitStatus {
    let me = std::env::current_exe().expect("this test");
    let mut child = Command::new(me);
    child.args(["--exact", "child", "--nocapture", "--test-threads", "1"]).env(CASE, case);
    child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    child.status().expect("it starts")
}

#[test]
fn a_signal_that_is_not_ours_goes_where_it_went_before() {
    for (case, _, expected) in CASES {
        let status = run(case);
        let ended = status.code().ok_or_else(|| status.signal().unwrap_or(0));
        assert_eq!(ended, expected, "{case}; to see what it says: {CASE}={case:?} with --exact child --nocapture");
    }
}
