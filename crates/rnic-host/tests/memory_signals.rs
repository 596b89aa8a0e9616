//! Signals that do not concern registered memory: a program with a handler of its own, installed before or after the
//! library's, observes them as without the library. Each case is a process of its own, because most of them end by a
//! signal.

#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "it installs handlers of signals")]

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

/// The handler that was installed before the program's.
static PREVIOUS: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Ends the process with code 40 for a fault at address 16, 41 for another fault, and 42 for a signal that was sent.
extern "C" fn exit_with_code(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes valid arguments to a handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(if code <= 0 { 42 } else { 40 + c_int::from(address != 16) }) }
}

/// Passes the signal on to the handler that it has replaced; must not be called twice for one signal.
extern "C" fn forward_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if CALLS.fetch_add(1, Ordering::Relaxed) > 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(50) };
    }
    // SAFETY: the address that `install` found there, of a handler with these arguments.
    let previous_handler: Handler = unsafe { std::mem::transmute::<usize, Handler>(PREVIOUS.load(Ordering::Relaxed)) };
    previous_handler(signal, info, context);
}

fn install(signal: c_int, handler: Handler) {
    // SAFETY: the structures are valid with all bits zero.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        new.sa_sigaction = handler as usize;
        new.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &raw const new, &raw mut old), 0);
        PREVIOUS.store(old.sa_sigaction, Ordering::Relaxed);
    }
}

/// Sends from memory that has been unmapped: the process survives.
fn send_from_unmapped_memory() {
    let mut pair = Pair::loopback("irn");
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches nothing that exists.
    let start = unsafe { libc::mmap(null_mut(), PAGE, rights, flags, -1, 0) };
    let start = NonNull::new(start.cast::<u8>()).expect("a mapping");
    let (pd, addr) = (pair.left.pd, start.as_ptr() as u64);
    // SAFETY: nothing else is mapped there while the region lives.
    let region =
        unsafe { pair.left.nic.verbs().register_raw(pd, start, PAGE, addr, Access::all()) }.expect("a legal region");
    // The program may have replaced the library's handler, which the library notices within a millisecond of work.
    common::drive_for(&mut pair.left, &mut pair.right, std::time::Duration::from_millis(5));
    // SAFETY: the page is the test's own.
    assert_eq!(unsafe { libc::munmap(start.as_ptr().cast(), PAGE) }, 0);
    let remote = pair.right.region.remote(0);
    pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[region.sge(0, 100)]);
    assert_eq!(pair.left_completions(1)[0].status, WcStatus::LocalProtection);
}

fn fault() {
    // SAFETY: none; the invalid access is intended.
    unsafe { (16 as *const u8).read_volatile() };
}

/// A read beyond the end of a file.
fn bus_error() {
    // SAFETY: none, as above.
    unsafe {
        let file = libc::memfd_create(c"rnic-bus".as_ptr(), 0);
        let start = libc::mmap(null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        start.cast::<u8>().read_volatile();
    }
}

fn send(signal: c_int) {
    // SAFETY: the signal is sent to this process itself.
    unsafe { libc::raise(signal) };
}

/// An exit code, or a signal.
type Ended = Result<i32, i32>;

/// Action of a program, and its end: with an exit code or by a signal.
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

/// Runs a case in a process of its own; not a test.
#[test]
fn child() {
    let Ok(name) = std::env::var(CASE) else { return };
    let (name, ends, _) = CASES.iter().find(|(case, ..)| *case == name).expect("a case");
    // Removes Rust's own handler, which reports stack overflows.
    // SAFETY: the structures are valid with all bits zero.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, &raw const default, null_mut());
        libc::sigaction(libc::SIGBUS, &raw const default, null_mut());
        // No core file is needed.
        libc::setrlimit(libc::RLIMIT_CORE, &raw const NO_CORE);
    }
    if name.starts_with("a handler") || name.contains("between two") {
        install(libc::SIGSEGV, exit_with_code);
        install(libc::SIGBUS, exit_with_code);
    }
    send_from_unmapped_memory();
    if name.starts_with("a later handler,") {
        install(libc::SIGSEGV, exit_with_code);
    }
    if name.starts_with("a later handler that hands on") {
        install(libc::SIGSEGV, forward_signal);
    }
    send_from_unmapped_memory();
    ends();
    exit(0);
}

static NO_CORE: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };

fn run(case: &str) -> ExitStatus {
    let executable = std::env::current_exe().expect("this test");
    let mut child = Command::new(executable);
    child.args(["--exact", "child", "--nocapture", "--test-threads", "1"]).env(CASE, case);
    child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    child.status().expect("it starts")
}

#[test]
fn other_signals_are_forwarded_to_the_previous_handler() {
    for (case, _, expected) in CASES {
        let status = run(case);
        let ended = status.code().ok_or_else(|| status.signal().unwrap_or(0));
        assert_eq!(ended, expected, "{case}; to see what it says: {CASE}={case:?} with --exact child --nocapture");
    }
}
