//! An opened device: the C structure that programs look into, and the lock around the NIC.

use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rnic_engine::Transport;
use rnic_host::observe::Observer;
use rnic_host::{Settings, TransportChoice, complain};

use crate::abi::*;
use crate::cancel::Uncancelled;
use crate::core::{Core, Waiting};
use crate::device::{self, Device};
use crate::errno::{Errno, Result};
use crate::event::EventQueue;
use crate::fork::{self, Process};
use crate::progress::{Descriptors, Driver, Guard, Machine};
use crate::{cq, device as queries, domain, import, mw, odp, poll, post, qp, srq, watch, wire, xrc};

/// An opened device.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) c: verbs_context,
    pub(crate) shared: Arc<Shared>,
    /// Answers `rnic top`; ends with this.
    observer: Option<Observer>,
    _command: OwnedFd,
}

/// What a context has beside its C structure.
#[derive(Debug)]
pub(crate) struct Shared {
    driver: Driver<Driven>,
    /// Asynchronous events.
    pub(crate) events: Arc<EventQueue<Waiting>>,
    process: Process,
    /// Queue pairs that it can have.
    pub(crate) queue_pairs_max: u32,
}

/// The NIC with its objects, and where its events go.
#[derive(Debug)]
pub(crate) struct Driven {
    core: Core,
    events: Arc<EventQueue<Waiting>>,
}

impl Machine for Driven {
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
    /// Takes the lock on behalf of the program, which so drives the NIC itself.
    ///
    /// # Errors
    /// In a child of the process that has opened the device.
    #[inline]
    pub(crate) fn enter(&self) -> Result<NicGuard<'_>> {
        if !self.process.is_current() {
            return Err(Errno::FORKED);
        }
        Ok(NicGuard(self.driver.lock()))
    }

    /// Looks at the NIC from outside, which is no call of the program.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Core) -> R) -> R {
        self.driver.look(|driven| look(&driven.core))
    }

    /// The program is about to sleep until something happens: the progress thread takes over at once.
    pub(crate) fn hand_over(&self) {
        if let Ok(mut guard) = self.enter() {
            guard.end_of_posts();
            guard.0.hand_over();
        }
    }
}

/// The lock, held. Whatever happened with it held is delivered when it is given back.
#[derive(Debug)]
pub(crate) struct NicGuard<'a>(Guard<'a, Driven>);

impl NicGuard<'_> {
    /// The program is about to sleep until something happens.
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
        let Driven { core, events } = &mut *self.0;
        core.deliver(events);
    }
}

impl Context {
    /// Where the structure that programs know stands in this one.
    pub(crate) const C_OFFSET: usize = offset_of!(Self, c) + offset_of!(verbs_context, context);

    /// Opens the device.
    pub(crate) fn open(device: &'static Device) -> Result<*mut ibv_context> {
        let _uncancelled = Uncancelled::begin();
        fork::watch();
        let settings = Settings::from_environment().map_err(|error| {
            complain(&error);
            Errno::INVALID
        })?;
        device::open_with(&settings);
        if let Some(shared) = open_already(&settings) {
            return Ok(Self::import(import::command_channel()?, shared));
        }
        Self::open_new(device, &settings)
    }

    fn open_new(device: &'static Device, settings: &Settings) -> Result<*mut ibv_context> {
        let (transport, fallbacks) = transports(settings)?;
        let mut nic = wire::open(settings).map_err(|error| {
            complain(&error);
            Errno::from(error)
        })?;
        watch::capture(&mut nic, settings)?;
        let wire = device::wire(settings, nic.port());
        let queue_pairs_max = nic.queue_pairs_max();
        device::announce(settings, &wire);
        let events = Arc::new(EventQueue::new()?);
        let command = import::command_channel()?;
        let core = Core::new(nic, transport, fallbacks, settings);
        let driven = Driven { core, events: Arc::clone(&events) };
        let driver = Driver::start(driven, settings.progress)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        let shared = Arc::new(Shared { driver, events, process: Process::current(), queue_pairs_max });
        import::announce(&command, &shared);
        *ONLY.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&shared);
        let observer = watch::observe(&shared, settings, &wire);
        Ok(Self::make(device, command, shared, observer))
    }

    /// A second context of a device that is open. Asynchronous events of its objects come to whichever is asked first.
    pub(crate) fn import(command: OwnedFd, shared: Arc<Shared>) -> *mut ibv_context {
        Self::make(Device::get(), command, shared, None)
    }

    fn make(
        device: &'static Device,
        command: OwnedFd,
        shared: Arc<Shared>,
        observer: Option<Observer>,
    ) -> *mut ibv_context {
        let c = structure(device, command.as_raw_fd(), shared.events.fd());
        let context = Box::into_raw(Box::new(Self { c, shared, observer, _command: command }));
        // SAFETY: a field of what has just been made.
        unsafe { &raw mut (*context).c.context }
    }

    /// Closes the device. Objects that are still there are lost with it, as with any other device.
    ///
    /// # Safety
    /// The pointer is from [`Context::open`], and the last use of it.
    pub(crate) unsafe fn close(pointer: *mut ibv_context) {
        let _uncancelled = Uncancelled::begin();
        // SAFETY: `open` made a box of it, and the caller gives it up.
        let mut context = unsafe { Box::from_raw(pointer.byte_sub(Self::C_OFFSET).cast::<Self>()) };
        if context.shared.process.is_current() {
            drop(context.observer.take());
        } else {
            // The thread is the parent's, and so are the queue pairs: touch neither.
            std::mem::forget(context);
        }
    }
}

/// The device as it was opened last, if it still is.
static ONLY: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// The device that this process has open, when it can have no other: real RoCEv2 peers send to one port whatever a
/// packet is for, and one socket hears that. Programs open the device again (perftest with `-R` does, for itself and
/// through the connection manager) and get another context of it.
fn open_already(settings: &Settings) -> Option<Arc<Shared>> {
    let known = settings.real_roce_peers.then(|| ONLY.lock().unwrap_or_else(PoisonError::into_inner).upgrade())?;
    known.filter(|shared| shared.process.is_current())
}

/// The transports that are offered: the first, and those that will do where it is lacking.
fn transports(settings: &Settings) -> Result<(Transport, Vec<Transport>)> {
    let said = |error: &dyn std::fmt::Display| {
        complain(error);
        Errno::INVALID
    };
    let made = |choice: TransportChoice| Transport::new(choice.profile).map_err(|error| said(&error));
    let first = settings.transport_choice().map_err(|error| said(&error))?;
    let others = settings.fallback_choices().map_err(|error| said(&error))?;
    Ok((made(first)?, others.into_iter().map(made).collect::<Result<_>>()?))
}

fn structure(device: &'static Device, cmd_fd: i32, async_fd: i32) -> verbs_context {
    // SAFETY: null pointers, absent functions and zeros are all valid for these fields.
    let mut c: verbs_context = unsafe { std::mem::zeroed() };
    c.query_port = Some(queries::query_port);
    c.query_device_ex = Some(queries::query_device_ex);
    c.open_xrcd = Some(xrc::open_xrcd);
    c.close_xrcd = Some(xrc::close_xrcd);
    c.advise_mr = Some(odp::advise_mr);
    c.alloc_td = Some(domain::alloc_td);
    c.dealloc_td = Some(domain::dealloc_td);
    c.alloc_parent_domain = Some(domain::alloc_parent_domain);
    c.query_rt_values = Some(queries::query_rt_values);
    c.create_cq_ex = Some(cq::create_cq_ex);
    c.modify_cq = Some(cq::modify_cq);
    c.create_qp_ex = Some(qp::create_qp_ex);
    c.create_srq_ex = Some(srq::create_srq_ex);
    c.get_srq_num = Some(srq::get_srq_num);
    c.sz = size_of::<verbs_context>();
    let context = &mut c.context;
    context.device = device.pointer();
    context.cmd_fd = cmd_fd;
    context.async_fd = async_fd;
    context.num_comp_vectors = device::COMPLETION_VECTORS;
    context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    let ops = &mut context.ops;
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(poll::req_notify_cq);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    c
}
