//! An opened device: the C structure that programs read, and the lock around the NIC.

use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rnic_base::BitRate;
use rnic_host::observe::Observer;
use rnic_host::{HintLine, Settings};

use crate::abi::*;
use crate::cancel::CancellationGuard;
use crate::core::{Core, PendingEvent};
use crate::errno::{Errno, Result};
use crate::event::EventQueue;
use crate::fork::Process;
use crate::progress::{Descriptors, Driver, Guard, Machine};

/// An opened device.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) c: verbs_context,
    pub(crate) shared: Arc<Shared>,
    /// Serves `rnic top`; stops when the context is closed.
    observer: Option<Observer>,
    _command: OwnedFd,
}

/// State of a context besides its C structure.
#[derive(Debug)]
pub(crate) struct Shared {
    driver: Driver<DrivenNic>,
    /// Queue of asynchronous events.
    pub(crate) events: Arc<EventQueue<PendingEvent>>,
    process: Process,
    /// Maximum number of queue pairs.
    pub(crate) queue_pairs_max: u32,
    /// Lowest and highest rate to which a queue pair can be limited.
    pub(crate) rate_limit_range: [BitRate; 2],
    /// Memory that the program writes and the NIC reads; also referenced here, so that it exists until the last context
    /// is closed.
    pub(crate) hint: Arc<HintLine>,
}

/// The NIC with its objects, and the queue that receives its asynchronous events.
#[derive(Debug)]
pub(crate) struct DrivenNic {
    core: Core,
    events: Arc<EventQueue<PendingEvent>>,
}

impl Machine for DrivenNic {
    fn progress(&mut self) -> bool {
        let moved = self.core.progress();
        self.core.deliver(&self.events);
        moved
    }

    fn next_due(&self) -> Option<Duration> {
        if self.core.has_unsent_posts() {
            return Some(Duration::ZERO);
        }
        let due = self.core.nic.next_deadline()?;
        Some(Duration::from_nanos(due.as_ps().div_ceil(1_000)))
    }

    fn may_sleep(&mut self) -> bool {
        let idle = !self.core.nic.wants_progress();
        self.core.deliver(&self.events);
        idle
    }

    fn descriptors(&self) -> Descriptors {
        self.core.nic.raw_fds().into_iter().collect()
    }
}

impl Shared {
    /// Starts the progress engine of the NIC.
    ///
    /// # Errors
    /// When the process has run out of descriptors or threads.
    pub(crate) fn start(mut core: Core, settings: &Settings) -> Result<Arc<Self>> {
        let queue_pairs_max = core.nic.queue_pairs_max();
        let rate_limit_range = core.nic.verbs().rate_limit_range();
        let hint = Arc::clone(core.nic.verbs().hint_line());
        let events = Arc::new(EventQueue::new()?);
        let driven = DrivenNic { core, events: Arc::clone(&events) };
        let driver = Driver::start(driven, settings.progress)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(Arc::new(Self { driver, events, process: Process::current(), queue_pairs_max, rate_limit_range, hint }))
    }

    /// Returns `true` if this process has opened the device: a child process has only a copy of its parent's state.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Acquires the lock for a call of the program, which then drives the NIC itself.
    ///
    /// # Errors
    /// When this process is a child of the one that opened the device.
    #[inline]
    pub(crate) fn enter(&self) -> Result<NicGuard<'_>> {
        if !self.is_of_this_process() {
            return Err(Errno::FORKED);
        }
        Ok(NicGuard(self.driver.lock()))
    }

    /// Calls `inspect` with read access to the NIC; this does not count as a call of the program.
    pub(crate) fn inspect<R>(&self, inspect: impl FnOnce(&Core) -> R) -> R {
        self.driver.inspect(|driven| inspect(&driven.core))
    }

    /// Calls `change` with the NIC, and then lets the progress thread process its consequences; this does not count as
    /// a call of the program.
    pub(crate) fn control<R>(&self, change: impl FnOnce(&mut Core) -> R) -> R {
        self.driver.control(|driven| change(&mut driven.core))
    }

    /// Transfers the driving of the NIC to the progress thread immediately, because the program is about to sleep until
    /// an event arrives.
    pub(crate) fn hand_over(&self) {
        if let Ok(mut guard) = self.enter() {
            guard.flush_posts();
            guard.0.hand_over();
        }
    }
}

/// The held lock. Events that were raised while it was held are delivered when it is dropped.
#[derive(Debug)]
pub(crate) struct NicGuard<'a>(Guard<'a, DrivenNic>);

impl NicGuard<'_> {
    /// Transfers the driving of the NIC to the progress thread, because the program is about to sleep until an event
    /// arrives.
    pub(crate) fn hand_over(&mut self) {
        self.0.hand_over();
    }
}

impl Deref for NicGuard<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.0.core
    }
}

impl DerefMut for NicGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.0.core
    }
}

impl Drop for NicGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let DrivenNic { core, events } = &mut *self.0;
        core.deliver(events);
    }
}

impl Context {
    /// Byte offset of the C structure `ibv_context`, which programs use, within `Context`.
    const C_OFFSET: usize = offset_of!(Self, c) + offset_of!(verbs_context, context);

    /// Creates a context around `c`, which is complete except for the descriptors.
    pub(crate) fn make(
        mut c: verbs_context,
        command: OwnedFd,
        shared: Arc<Shared>,
        observer: Option<Observer>,
    ) -> *mut ibv_context {
        c.context.cmd_fd = command.as_raw_fd();
        c.context.async_fd = shared.events.fd();
        let context = Box::into_raw(Box::new(Self { c, shared, observer, _command: command }));
        // SAFETY: points to a field of the object just created.
        unsafe { &raw mut (*context).c.context }
    }

    /// Returns the context that a C pointer refers to.
    ///
    /// # Safety
    /// The pointer was returned by this library for a context that is open.
    #[inline]
    pub(crate) unsafe fn of<'a>(pointer: *mut ibv_context) -> &'a Self {
        // SAFETY: guaranteed by the caller; `C_OFFSET` is the offset of the C structure in `Context`.
        unsafe { &*pointer.byte_sub(Self::C_OFFSET).cast() }
    }

    /// Closes the device. Objects that still exist are lost with it, as with any other device.
    ///
    /// # Safety
    /// The pointer is from [`Context::make`] and is not used again.
    pub(crate) unsafe fn close(pointer: *mut ibv_context) {
        let _cancellation_guard = CancellationGuard::begin();
        // SAFETY: `make` allocated it as a `Box`, and the caller gives up ownership.
        let mut context = unsafe { Box::from_raw(pointer.byte_sub(Self::C_OFFSET).cast::<Self>()) };
        if context.shared.is_of_this_process() {
            drop(context.observer.take());
        } else {
            // The thread and the queue pairs belong to the parent process: they must not be changed.
            std::mem::forget(context);
        }
    }
}
