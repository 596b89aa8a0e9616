//! System calls that our signal has cut short.
//!
//! The signal is meant for threads that spin. A thread may go to sleep just after it was seen to spin, and then the
//! signal meets it in a system call. Most calls go on by themselves (`SA_RESTART`). Some do not, whatever the flags
//! say: `poll`, `nanosleep`, `epoll_wait`, or `read` on a socket with a timeout (signal(7)). They end with `EINTR`, and
//! programs that use no signals do not expect that: libfabric's `fi_pingpong` gives up.
//!
//! So the handler looks at what it has interrupted: when the processor stands just behind a `syscall` instruction that
//! returned `EINTR`, it is put back in front of it. The number of the call has been overwritten by the result; it is
//! read from the instruction before, which loads it in the C library's wrappers. A call with a time limit begins its
//! time anew, once: who was met asleep gets no more signals ([`super::signal`]).
//!
//! If another signal of the program's own came at the same moment, its handler has run, and the call goes on as if that
//! handler had been installed with `SA_RESTART`. On processors other than x86-64 nothing is put back (an argument is
//! lost there): the one call that is met returns `EINTR`.

use std::ffi::c_void;

/// What a signal has met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Met {
    /// A thread that computes, or a system call that was about to end.
    Running,
    /// A system call that waited for something.
    Waiting,
}

/// Looks at what was interrupted, and makes a call that was cut short go on.
///
/// # Safety
/// `context` is the third argument of a signal handler that runs now.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn resume(context: *mut c_void) -> Met {
    // SAFETY: the caller's promise (sigaction(2), SA_SIGINFO).
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as usize;
    let result = registers[libc::REG_RAX as usize];
    // SAFETY: the thread was about to fetch instructions here, or has just left a `syscall` that stands before; code
    // that may be run but not read is not known of.
    let code = |from: usize, len: usize| unsafe { std::slice::from_raw_parts(from as *const u8, len) };
    if code(at, 1) == &SYSCALL[..1] && code(at, SYSCALL.len()) == SYSCALL {
        // The kernel itself has put it back.
        return Met::Waiting;
    }
    if result != -i64::from(libc::EINTR) || code(at - SYSCALL.len(), SYSCALL.len()) != SYSCALL {
        return Met::Running;
    }
    let call = at - SYSCALL.len();
    if let Some(number) = loaded_number(code(call - LOAD_LEN, LOAD_LEN)) {
        registers[libc::REG_RIP as usize] = call as i64;
        registers[libc::REG_RAX as usize] = number;
    }
    Met::Waiting
}

/// As above, where nothing can be put back.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
// SAFETY: nothing is done with it.
pub(super) unsafe fn resume(_context: *mut c_void) -> Met {
    Met::Running
}

/// What the instruction at the end of `before` loads into `eax`.
#[cfg(target_arch = "x86_64")]
fn loaded_number(before: &[u8]) -> Option<i64> {
    match before {
        // mov eax, imm32
        [0xb8, number @ ..] => Some(i64::from(u32::from_le_bytes(number.try_into().ok()?))),
        // xor eax, eax
        [.., 0x31, 0xc0] => Some(0),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Length of `mov eax, imm32`.
#[cfg(target_arch = "x86_64")]
const LOAD_LEN: usize = 5;
