//! The handler of `SIGSEGV` and `SIGBUS`: recovers from faults of guarded accesses, and passes everything else on.
//!
//! A program may have its own handlers: crash reporters, virtual machines and sanitizers do. A signal that does not
//! come from a guarded access reaches them as if this handler did not exist: with the same arguments, the same
//! signals blocked, on the same stack. A handler that was installed before this one is recorded when this one is
//! installed. If the program installs another handler later, this is detected at the next check of the thread's
//! signal setup, within a millisecond while the thread is working, and this handler is installed again to receive
//! signals first. The program's handler may pass unhandled signals on to this one, which then passes them to the
//! handler that was installed earlier.
//!
//! If a fault occurs while its signal is blocked, the kernel kills the process, whichever handler is installed. So
//! these two signals are unblocked in a thread that accesses registered memory; blocking them would otherwise only
//! affect signals sent with `kill`.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::guard::{self, Slot, slot_of_thread};

/// A signal handler of the program, and the one that the program had installed before it.
#[derive(Debug)]
struct ProgramHandler {
    /// Address of a function, or one of the constants `SIG_DFL` and `SIG_IGN`.
    handler: AtomicUsize,
    once: bool,
    older: Option<&'static Self>,
}

/// The program's handlers of one signal, the newest first.
#[derive(Debug)]
struct Chain {
    signal: c_int,
    newest: AtomicPtr<ProgramHandler>,
}

static CHAINS: [Chain; 2] = [
    Chain { signal: libc::SIGSEGV, newest: AtomicPtr::new(ptr::null_mut()) },
    Chain { signal: libc::SIGBUS, newest: AtomicPtr::new(ptr::null_mut()) },
];

/// Locked while handlers are changed.
static CHANGES: Mutex<()> = Mutex::new(());

impl Chain {
    fn newest(&self) -> Option<&'static ProgramHandler> {
        // SAFETY: null, or a `ProgramHandler`, which is never freed.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }

    /// Installs this handler, unless it is installed already.
    fn ensure_handler(&self) {
        let present = action_of(self.signal);
        if present.sa_sigaction == entry() {
            return;
        }
        let _changing = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        let present = action_of(self.signal);
        if present.sa_sigaction == entry() {
            return;
        }
        self.note(&present);
        let mut ours = present;
        ours.sa_sigaction = entry();
        ours.sa_flags = present.sa_flags & KEPT_FLAGS | libc::SA_SIGINFO;
        if present.sa_sigaction == libc::SIG_DFL || present.sa_sigaction == libc::SIG_IGN {
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        }
        // SAFETY: a complete structure, made from one of the system's; the handler does only what is allowed in a
        // signal handler.
        unsafe { libc::sigaction(self.signal, &raw const ours, ptr::null_mut()) };
    }

    /// Records the handler that the program has currently installed. A handler that was recorded before needs no
    /// additional memory.
    fn note(&self, present: &libc::sigaction) {
        let once = present.sa_flags & libc::SA_RESETHAND != 0;
        let mut known = self.newest();
        let mut count = 0;
        while let Some(program_handler) = known {
            if program_handler.handler.load(Ordering::Relaxed) == present.sa_sigaction && program_handler.once == once {
                self.newest.store(ptr::from_ref(program_handler).cast_mut(), Ordering::Release);
                return;
            }
            (known, count) = (program_handler.older, count + 1);
        }
        let older = self.newest().filter(|_| count < PROGRAM_HANDLERS_MAX);
        let program_handler = ProgramHandler { handler: AtomicUsize::new(present.sa_sigaction), once, older };
        self.newest.store(Box::leak(Box::new(program_handler)), Ordering::Release);
    }

    /// Passes a signal to the next handler of the program; `level` of the program's handlers have already received
    /// this signal and passed it on to this one.
    ///
    /// # Safety
    /// The arguments are those of a signal handler.
    unsafe fn forward(&self, level: usize, info: *mut libc::siginfo_t, context: *mut c_void) {
        let mut program_handler = self.newest();
        for _ in 0..level {
            program_handler = program_handler.and_then(|program_handler| program_handler.older);
        }
        let handler = program_handler.map_or(libc::SIG_DFL, |program_handler| match program_handler.once {
            true => program_handler.handler.swap(libc::SIG_DFL, Ordering::Relaxed),
            false => program_handler.handler.load(Ordering::Relaxed),
        });
        // SAFETY: the caller's promise.
        let was_sent = unsafe { (*info).si_code } <= 0;
        match handler {
            libc::SIG_IGN if was_sent => {}
            // The kernel does not ignore faults, so they get the default action even if the program ignores the
            // signal.
            libc::SIG_DFL | libc::SIG_IGN => {
                // SAFETY: a complete structure of plain data. A fault occurs again when the handler has returned.
                unsafe {
                    let mut default: libc::sigaction = mem::zeroed();
                    default.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(self.signal, &raw const default, ptr::null_mut());
                    if was_sent {
                        libc::raise(self.signal);
                    }
                }
            }
            handler => {
                // SAFETY: the program has installed it as a handler, and handlers with one argument ignore the others.
                unsafe {
                    let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        mem::transmute::<usize, _>(handler);
                    handler(self.signal, info, context);
                }
            }
        }
    }
}

/// Returns the action that is currently installed for `signal`.
fn action_of(signal: c_int) -> libc::sigaction {
    // SAFETY: plain data, which the call fills; with a valid signal and no new action it does not fail.
    unsafe {
        let mut present: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut present);
        present
    }
}

/// Ensures that this handler receives faults of the calling thread: unblocks both signals, and installs the handlers.
/// The call is cheap if this thread has made one within the last [`HANDLER_CHECK_PS`].
///
/// `now` is in picoseconds since [`started`]; it wraps.
#[inline]
pub(super) fn ensure_handler(now: u64) {
    let slot = slot_of_thread(true);
    if slot.is_none_or(|slot| now.wrapping_sub(slot.checked_at.load(Ordering::Relaxed)) >= HANDLER_CHECK_PS) {
        install_handler_now(now, slot);
    }
}

/// The same as [`ensure_handler`], but only if this thread has never called it: for a single access.
#[inline]
pub(super) fn ensure_handler_once() {
    if slot_of_thread(true).is_none_or(|slot| slot.checked_at.load(Ordering::Relaxed) == 0) {
        install_handler_now(started(), None);
    }
}

#[cold]
fn install_handler_now(now: u64, slot: Option<&Slot>) {
    // SAFETY: a signal set of plain data, filled in before it is read.
    unsafe {
        let mut both: libc::sigset_t = mem::zeroed();
        for chain in &CHAINS {
            libc::sigaddset(&raw mut both, chain.signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const both, ptr::null_mut());
    }
    CHAINS.iter().for_each(Chain::ensure_handler);
    if let Some(slot) = slot.or_else(|| slot_of_thread(true)) {
        slot.checked_at.store(now, Ordering::Relaxed);
    }
}

/// Returns the picoseconds since a fixed time of this process; never 0.
pub(super) fn started() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed_ns = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    HANDLER_CHECK_PS.wrapping_add(elapsed_ns.wrapping_mul(1_000))
}

/// Time in picoseconds after which the signal setup of a thread is checked again: the three system calls of a check
/// take a thousandth of this time.
const HANDLER_CHECK_PS: u64 = 1_000_000_000;

/// Maximum number of recorded handlers of a program; if a program installs more, the oldest are dropped.
const PROGRAM_HANDLERS_MAX: usize = 64;

/// Flags that this handler copies from the program's handler.
const KEPT_FLAGS: c_int = libc::SA_NODEFER | libc::SA_ONSTACK | libc::SA_RESTART;

// Entry point called by the kernel. The kernel puts the context right above the return address; its address is passed
// on, so that a call by the kernel can be distinguished from a call by another handler that passes a signal on.
std::arch::global_asm!(
    ".pushsection .text.rnic_guard,\"ax\",@progbits",
    ".p2align 4",
    ".globl rnic_guard_signal",
    ".hidden rnic_guard_signal",
    ".type rnic_guard_signal,@function",
    "rnic_guard_signal:",
    "lea rcx, [rsp + 8]",
    "jmp {handle}",
    ".size rnic_guard_signal, . - rnic_guard_signal",
    ".popsection",
    handle = sym handle,
);

// SAFETY: it is defined above, and only its address is taken.
unsafe extern "C" {
    fn rnic_guard_signal();
}

/// Returns the address of this handler.
fn entry() -> usize {
    rnic_guard_signal as *const () as usize
}

/// The signal handler. `frame` equals `context` when the kernel is the caller.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, frame: *mut c_void) {
    let slot = slot_of_thread(false);
    if slot.is_some_and(|slot| take_back(slot, info, context)) {
        return;
    }
    let Some(chain) = CHAINS.iter().find(|chain| chain.signal == signal) else { return };
    // When the kernel is the caller, the count starts at 0: a handler that was left by a jump (`longjmp`) has not
    // decremented it.
    let is_first = frame == context;
    let level = slot.filter(|_| !is_first).map_or(0, |slot| slot.forwarding.load(Ordering::Relaxed));
    if let Some(slot) = slot {
        slot.forwarding.store(level + 1, Ordering::Relaxed);
    }
    // SAFETY: these are the arguments of a handler.
    unsafe { chain.forward(level, info, context) };
    if let Some(slot) = slot {
        slot.forwarding.store(level, Ordering::Relaxed);
    }
}

/// If the thread has faulted within a guarded access, makes it resume at the recorded point. Returns whether it has.
fn take_back(slot: &Slot, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    let stack = slot.stack.load(Ordering::Relaxed);
    if stack == 0 {
        return false;
    }
    // SAFETY: these are the arguments of a handler, and for these signals the kernel reports the address.
    let (is_of_kernel, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
    // The address of a memory error is reported with page granularity.
    if !is_of_kernel || address < start & !(PAGE - 1) || address >= end {
        return false;
    }
    // SAFETY: as above. The callee-saved registers are on the stack to which the thread returns.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] = guard::landing() as i64;
    registers[libc::REG_RSP as usize] = stack as i64;
    registers[libc::REG_RBX as usize] = ptr::from_ref(slot) as i64;
    true
}

const PAGE: usize = 4_096;
