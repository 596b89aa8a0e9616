//! Restart of system calls that the progress signal has interrupted.
//!
//! The signal is meant for threads that spin. A thread may go to sleep just after it was observed to spin, and then
//! the signal interrupts a system call. Most calls are restarted by the kernel (`SA_RESTART`). Some are not,
//! regardless of the flags: `poll`, `nanosleep`, `epoll_wait`, or `read` on a socket with a timeout (signal(7)). They
//! fail with `EINTR`, which programs that use no signals do not expect: libfabric's `fi_pingpong` terminates.
//!
//! The handler therefore inspects the interrupted context: when the instruction pointer is directly after a `syscall`
//! instruction that returned `EINTR`, it is moved back to that instruction. The system call number has been
//! overwritten by the result; it is read from the preceding instruction, which loads it in the C library's wrappers.
//! The timeout of a restarted call starts again from its full length, but only once, because a thread that was found
//! asleep gets no more signals ([`super::signal`]).
//!
//! If another signal of the program itself arrived at the same moment, its handler has run, and the call continues as
//! if that handler had been installed with `SA_RESTART`. On processors other than x86-64 no call is restarted, because
//! an argument is lost there: the one interrupted call returns `EINTR`.

use std::ffi::c_void;

/// State of the thread that a signal has interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InterruptedState {
    /// The thread was computing, or a system call was about to finish.
    Running,
    /// The thread was waiting in a system call.
    Waiting,
}

/// Determines the state of the interrupted thread, and restarts an interrupted system call.
///
/// # Safety
/// `context` is the third argument of a signal handler that is running.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn resume(context: *mut c_void) -> InterruptedState {
    // SAFETY: guaranteed by the caller (sigaction(2), SA_SIGINFO).
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let instruction_at = registers[libc::REG_RIP as usize] as usize;
    let result = registers[libc::REG_RAX as usize];
    // SAFETY: the thread was about to fetch instructions at this address, or has just executed a preceding `syscall`
    // instruction; executable memory that cannot be read is not supported.
    let code = |from: usize, len: usize| unsafe { std::slice::from_raw_parts(from as *const u8, len) };
    if code(instruction_at, 1) == &SYSCALL[..1] && code(instruction_at, SYSCALL.len()) == SYSCALL {
        // The kernel has already moved the instruction pointer back.
        return InterruptedState::Waiting;
    }
    if result != -i64::from(libc::EINTR) || code(instruction_at - SYSCALL.len(), SYSCALL.len()) != SYSCALL {
        return InterruptedState::Running;
    }
    let syscall_at = instruction_at - SYSCALL.len();
    if let Some(number) = loaded_number(code(syscall_at - LOAD_LEN, LOAD_LEN)) {
        registers[libc::REG_RIP as usize] = syscall_at as i64;
        registers[libc::REG_RAX as usize] = number;
    }
    InterruptedState::Waiting
}

/// Version of `resume` for processors on which no call can be restarted: always reports a running thread.
///
/// # Safety
/// As for x86-64.
#[cfg(not(target_arch = "x86_64"))]
// SAFETY: the argument is not used.
pub(super) unsafe fn resume(_context: *mut c_void) -> InterruptedState {
    InterruptedState::Running
}

/// Returns the value that the instruction at the end of `preceding_code` loads into `eax`.
#[cfg(target_arch = "x86_64")]
fn loaded_number(preceding_code: &[u8]) -> Option<i64> {
    match preceding_code {
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
