//! Access to memory that may be unmapped.
//!
//! A program promises that registered memory stays mapped. An adapter pins its pages; this NIC does not, so the
//! memory can be unmapped, truncated (a mapped file), protected or replaced at any time. Therefore every access to it
//! is *guarded*: the thread records the range that may fault, and the point at which to resume. The kernel reports a
//! fault there as `SIGSEGV` or `SIGBUS` to the faulting thread; the handler ([`super::signals`]) resumes the thread
//! at that point, and the access fails with a [`MemoryFault`]. For an access that does not fault, guarding costs some
//! ten instructions, whatever its length; letting the kernel copy instead (`process_vm_readv`) would cost a system
//! call for each packet, a fifth of the cost of a large packet.
//!
//! Guarded code only copies and computes. Its stack frames are left without being unwound, so it must own no
//! resources, take no lock and allocate no memory.
//!
//! The record of a thread is in a table indexed by the thread pointer, not in thread-local storage. The first use of
//! thread-local storage in a thread may allocate memory, which a signal handler must not do; the TLS model that never
//! allocates could make a shared object with this code fail to load in a large program that is already running.
//!
//! On processors other than x86-64 the kernel does the copying. It also does so for threads beyond [`THREADS_MAX`].

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rnic_engine::MemoryFault;

/// Record of one thread.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Stack pointer at the start of the guarded access, above the registers that [`landing`] pops from the stack; 0
    /// when no access is in progress.
    pub(super) stack: AtomicUsize,
    /// Range that may fault: first byte, and one past the last.
    pub(super) start: AtomicUsize,
    pub(super) end: AtomicUsize,
    /// Number of handlers of this thread that are currently passing on a signal.
    pub(super) forwarding: AtomicUsize,
    /// Thread pointer; 0 when the slot is free.
    thread: AtomicUsize,
    /// Time at which the thread's signal setup was last checked, in picoseconds; 0 for never.
    pub(super) checked_at: AtomicU64,
}

impl Slot {
    const fn empty() -> Self {
        Self {
            stack: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            forwarding: AtomicUsize::new(0),
            thread: AtomicUsize::new(0),
            checked_at: AtomicU64::new(0),
        }
    }
}

/// When a thread exits, its slot stays allocated: the next thread with the same thread pointer, whose stack is at the
/// same address, reuses it.
static SLOTS: [Slot; THREADS_MAX] = [const { Slot::empty() }; THREADS_MAX];

/// Maximum number of threads whose accesses to registered memory are guarded: a power of two.
const THREADS_MAX: usize = 1_024;

/// Returns the calling thread's slot; with `claim`, allocates one if needed and available.
#[inline]
pub(super) fn slot_of_thread(claim: bool) -> Option<&'static Slot> {
    let thread = thread_pointer();
    // Thread control blocks are on stacks, a page or more apart.
    let first = (thread >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - THREADS_MAX.ilog2());
    let slot = &SLOTS[first % THREADS_MAX];
    if slot.thread.load(Ordering::Relaxed) == thread { Some(slot) } else { search(thread, first, claim) }
}

#[cold]
fn search(thread: usize, first: usize, claim: bool) -> Option<&'static Slot> {
    for step in 0..THREADS_MAX {
        let slot = &SLOTS[(first + step) % THREADS_MAX];
        let owner = slot.thread.load(Ordering::Relaxed);
        let is_free = owner == 0;
        if is_free && !claim {
            return None;
        }
        if owner == thread
            || is_free && slot.thread.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Some(slot);
        }
    }
    None
}

/// Runs `work`, which may fault at any of the `len` bytes from `start`. If the access cannot be guarded, `unguarded`
/// is called instead and must do the same with system calls.
///
/// # Safety
/// `work` owns nothing that must be dropped, takes no lock, allocates nothing and does not panic: it may be abandoned
/// in the middle.
#[inline]
unsafe fn guarded<F: FnMut()>(
    start: *const u8,
    len: usize,
    mut work: F,
    unguarded: impl FnOnce() -> Result<(), MemoryFault>,
) -> Result<(), MemoryFault> {
    const { assert!(!std::mem::needs_drop::<F>(), "the closure may be abandoned and must not own resources") };
    extern "C" fn call<F: FnMut()>(work: *mut c_void) {
        // SAFETY: `guarded` passes its own `work`.
        unsafe { (*work.cast::<F>())() }
    }
    let Some(slot) = slot_of_thread(true).filter(|_| IS_GUARDED) else { return unguarded() };
    let (from, to) = (start as usize, (start as usize).wrapping_add(len));
    // SAFETY: `call::<F>` receives the argument that it expects, and may be abandoned in the middle, which the caller
    // promises.
    let faulted = unsafe { enter(call::<F>, (&raw mut work).cast(), from, to, slot) };
    if faulted == 0 { Ok(()) } else { Err(MemoryFault) }
}

/// Range of bytes that belong to a program. It was mapped when it was registered, but may have been unmapped since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramBytes {
    start: *const u8,
    len: usize,
}

impl ProgramBytes {
    /// An empty range.
    pub(crate) const NOTHING: Self = Self { start: ptr::dangling(), len: 0 };

    /// Creates a value for `len` bytes at `start`, which may be unmapped.
    #[inline]
    pub(crate) fn new(start: *const u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Copies all bytes to the front of `to`.
    ///
    /// # Errors
    /// When some of the bytes are unmapped; `to` then contains some of the others.
    ///
    /// # Panics
    /// When `to` is shorter.
    #[inline]
    pub(crate) fn copy_to(self, to: &mut [u8]) -> Result<(), MemoryFault> {
        let to = &mut to[..self.len];
        // SAFETY: this many bytes can be written there.
        unsafe { self.copy_to_pointer(to.as_mut_ptr()) }
    }

    /// As [`Self::copy_to`].
    ///
    /// # Safety
    /// This many bytes can be written at `to`, without a fault, and do not overlap these.
    #[inline]
    pub(crate) unsafe fn copy_to_pointer(self, to: *mut u8) -> Result<(), MemoryFault> {
        let Self { start, len } = self;
        // SAFETY: a copy may be abandoned in the middle; what it reads is guarded, what it writes is the caller's
        // promise.
        let copy = || unsafe { ptr::copy_nonoverlapping(start, to, len) };
        // SAFETY: as above, and the kernel checks what it reads.
        unsafe { guarded(start, len, copy, || copy_by_kernel(start, to, len, false)) }
    }

    /// Copies all bytes to the front of `to` with `carry`, which receives the bytes as a slice, and `to`.
    ///
    /// # Safety
    /// `carry` owns nothing that must be dropped, takes no lock, allocates nothing and does not panic. If another
    /// thread changes the bytes meanwhile, the copy is a mixture of both contents.
    #[inline]
    pub(crate) unsafe fn carry(
        self,
        to: &mut [u8],
        mut carry: impl FnMut(&[u8], &mut [u8]),
    ) -> Result<(), MemoryFault> {
        let Self { start, len } = self;
        let to = &mut to[..len];
        if IS_GUARDED && slot_of_thread(true).is_some() {
            // SAFETY: the slice exists within the guarded call only, where reading it may fault.
            let work = || carry(unsafe { std::slice::from_raw_parts(start, len) }, to);
            // SAFETY: the caller's promise.
            return unsafe { guarded(start, len, work, || Err(MemoryFault)) };
        }
        let mut buffer = vec![0; len];
        self.copy_to(&mut buffer)?;
        carry(&buffer, to);
        Ok(())
    }
}

/// Copies `len` bytes to `to`, which belongs to a program.
///
/// # Errors
/// When some of the target is unmapped; its mapped bytes may then have been written in part.
///
/// # Safety
/// This many bytes can be read at `from`, without a fault, and do not overlap those at `to`.
#[inline]
pub(crate) unsafe fn copy_into(to: *mut u8, from: *const u8, len: usize) -> Result<(), MemoryFault> {
    // SAFETY: a copy may be abandoned in the middle; what it writes is guarded, what it reads is the caller's promise.
    let copy = || unsafe { ptr::copy_nonoverlapping(from, to, len) };
    // SAFETY: as above, and the kernel checks what it writes.
    unsafe { guarded(to, len, copy, || copy_by_kernel(from, to, len, true)) }
}

/// Changes eight bytes at `place`, which belong to a program, and returns their previous value. If the bytes are
/// aligned, the change is atomic with respect to other threads.
///
/// # Errors
/// When they are unmapped.
pub(crate) fn update_word(address: *mut u8, change: impl Fn(u64) -> Option<u64>) -> Result<u64, MemoryFault> {
    let word = address.cast::<u64>();
    let mut original = 0;
    let step = || {
        if word.is_aligned() {
            // SAFETY: eight aligned bytes, guarded.
            let word = unsafe { AtomicU64::from_ptr(word) };
            let found = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, &change);
            original = found.unwrap_or_else(|original| original);
            return;
        }
        // SAFETY: eight bytes, guarded, without any alignment requirement.
        original = unsafe { word.read_unaligned() };
        if let Some(changed) = change(original) {
            // SAFETY: as above.
            unsafe { word.write_unaligned(changed) };
        }
    };
    let by_kernel = || {
        let mut bytes = [0; size_of::<u64>()];
        // SAFETY: the kernel checks the program's address, and the other is a local buffer.
        unsafe { copy_by_kernel(address, bytes.as_mut_ptr(), bytes.len(), false)? };
        // SAFETY: as above. The successful write of the same bytes shows that the step below does not fault.
        unsafe { copy_by_kernel(bytes.as_ptr(), address, bytes.len(), true) }
    };
    if IS_GUARDED && slot_of_thread(true).is_some() {
        // SAFETY: `step` owns nothing, and `change` only computes on numbers.
        unsafe { guarded(address, size_of::<u64>(), step, || Err(MemoryFault))? };
    } else {
        by_kernel()?;
        let mut step = step;
        step();
    }
    Ok(original)
}

/// Copies with a system call, which checks the addresses of the program's memory: the destination `to` if `is_write` is
/// true, otherwise the source `from`.
///
/// # Safety
/// The memory at the other address can be read or written without a fault.
#[cold]
unsafe fn copy_by_kernel(from: *const u8, to: *mut u8, len: usize, is_write: bool) -> Result<(), MemoryFault> {
    let mut done = 0;
    while done < len {
        let iovec = |at: *const u8| libc::iovec { iov_base: at.wrapping_add(done) as *mut c_void, iov_len: len - done };
        let (source, target) = (iovec(from), iovec(to));
        // SAFETY: each structure describes as many bytes as the other; the kernel checks the remote end, which is the
        // program's, and the local one is the caller's promise.
        let copied = unsafe {
            let pid = libc::getpid();
            if is_write {
                libc::process_vm_writev(pid, &raw const source, 1, &raw const target, 1, 0)
            } else {
                libc::process_vm_readv(pid, &raw const target, 1, &raw const source, 1, 0)
            }
        };
        match usize::try_from(copied) {
            Ok(copied) if copied > 0 => done += copied,
            _ => return Err(MemoryFault),
        }
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::ffi::c_void;

    use super::Slot;

    /// True, because faults are intercepted on this processor.
    pub(super) const IS_GUARDED: bool = true;

    // `enter(work, argument, start, end, slot)` records where `work(argument)` may fault and where to resume, and calls
    // it. It returns 0 when `work` has returned, 1 when a fault has ended it. The previous record is saved on the
    // stack, so a handler that interrupts an access can perform one itself.
    //
    // A fault resumes at `landing`, with the recorded stack pointer and, in rbx, the slot: the handler sets both. The
    // callee-saved registers are on the stack; the direction flag, which a backward copy sets, is cleared.
    std::arch::global_asm!(
        ".pushsection .text.rnic_guard,\"ax\",@progbits",
        ".p2align 4",
        ".globl rnic_guard_enter",
        ".hidden rnic_guard_enter",
        ".type rnic_guard_enter,@function",
        "rnic_guard_enter:",
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "push r12",
        ".cfi_offset r12, -32",
        "push r13",
        ".cfi_offset r13, -40",
        "push r14",
        ".cfi_offset r14, -48",
        "push r15",
        ".cfi_offset r15, -56",
        "mov rbx, r8",
        "push qword ptr [rbx]",
        "push qword ptr [rbx + 8]",
        "push qword ptr [rbx + 16]",
        "mov [rbx + 8], rdx",
        "mov [rbx + 16], rcx",
        "mov [rbx], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "xor eax, eax",
        "2:",
        "pop qword ptr [rbx + 16]",
        "pop qword ptr [rbx + 8]",
        "pop qword ptr [rbx]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_def_cfa rbp, 16",
        ".globl rnic_guard_landing",
        ".hidden rnic_guard_landing",
        ".type rnic_guard_landing,@function",
        "rnic_guard_landing:",
        "cld",
        "lea rbp, [rsp + 64]",
        "mov eax, 1",
        "jmp 2b",
        ".cfi_endproc",
        ".size rnic_guard_enter, . - rnic_guard_enter",
        ".popsection",
    );

    // SAFETY: the functions that are defined above, with the signatures described there.
    unsafe extern "C" {
        fn rnic_guard_enter(
            work: extern "C" fn(*mut c_void),
            argument: *mut c_void,
            start: usize,
            end: usize,
            slot: *const Slot,
        ) -> u32;
        fn rnic_guard_landing();
    }

    /// See the assembly above.
    ///
    /// # Safety
    /// `work` may be called with `argument`, and abandoned in the middle; `slot` is the calling thread's.
    #[inline]
    pub(super) unsafe fn enter(
        work: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        start: usize,
        end: usize,
        slot: &'static Slot,
    ) -> u32 {
        // SAFETY: the caller's promise; the code above relies on the layout of a slot.
        unsafe { rnic_guard_enter(work, argument, start, end, slot) }
    }

    /// Returns the address at which a thread resumes whose guarded access has faulted.
    pub(in crate::memory) fn landing() -> usize {
        rnic_guard_landing as *const () as usize
    }

    /// Returns the address of the thread control block, which identifies the thread (System V ABI for x86-64,
    /// thread-local storage: its first word is its own address).
    #[inline]
    pub(super) fn thread_pointer() -> usize {
        let pointer: usize;
        // SAFETY: reads a word of the thread's own control block.
        unsafe {
            std::arch::asm!(
                "mov {}, qword ptr fs:[0]",
                out(reg) pointer,
                options(nostack, preserves_flags, readonly, pure)
            );
        }
        pointer
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use std::ffi::c_void;

    use super::Slot;

    /// False, because faults are not intercepted on this processor.
    pub(super) const IS_GUARDED: bool = false;

    /// Never called.
    // SAFETY: it does nothing.
    pub(super) unsafe fn enter(
        _: extern "C" fn(*mut c_void),
        _: *mut c_void,
        _: usize,
        _: usize,
        _: &'static Slot,
    ) -> u32 {
        unreachable!("accesses are not guarded here")
    }

    /// Returns the same value for all threads.
    pub(super) fn thread_pointer() -> usize {
        1
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use machine::landing;
use machine::{IS_GUARDED, enter, thread_pointer};

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
