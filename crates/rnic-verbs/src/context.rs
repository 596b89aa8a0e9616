//! An opened device: the C structure that programs look into, and the lock around the NIC.

use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rnic_engine::Transport;
use rnic_host::observe::Observer;
use rnic_host::{Nic, Settings};

use crate::abi::*;
use crate::core::{Core, Waiting};
use crate::device::{self, Device};
use crate::errno::{Errno, Result};
use crate::event::{self, EventQueue};
use crate::fork::{self, Process};
use crate::{cq, device as queries, poll, post, progress, qp, srq, watch, wire};

/// An opened device.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) c: verbs_context,
    pub(crate) shared: Arc<Shared>,
    /// Drives the NIC while the program does not; ends with this.
    progress: Option<progress::Progress>,
    /// Answers `rnic top`; ends with this.
    observer: Option<Observer>,
}

/// What the context and its progress thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Asynchronous events.
    pub(crate) events: EventQueue<Waiting>,
    /// Calls of the program that drove the NIC.
    calls: AtomicU64,
    process: Process,
}

impl Shared {
    /// Takes the lock.
    #[inline]
    pub(crate) fn nic(&self) -> NicGuard<'_> {
        NicGuard { core: event::lock(&self.core), events: &self.events }
    }

    /// Takes the lock on behalf of the program, which so drives the NIC itself.
    ///
    /// # Errors
    /// In a child of the process that has opened the device.
    #[inline]
    pub(crate) fn enter(&self) -> Result<NicGuard<'_>> {
        if !self.process.is_current() {
            return Err(Errno::FORKED);
        }
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Ok(self.nic())
    }

    /// How often the program has called: as long as this moves, it drives the NIC itself.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// The lock, held. Whatever happened with it held is delivered when it is given back.
#[derive(Debug)]
pub(crate) struct NicGuard<'a> {
    core: MutexGuard<'a, Core>,
    events: &'a EventQueue<Waiting>,
}

impl Deref for NicGuard<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for NicGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Drop for NicGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.core.deliver(self.events);
    }
}

impl Context {
    /// Where the structure that programs know stands in this one.
    pub(crate) const C_OFFSET: usize = offset_of!(Self, c) + offset_of!(verbs_context, context);

    /// Opens the device.
    pub(crate) fn open(device: &'static Device) -> Result<*mut ibv_context> {
        fork::watch();
        let settings = Settings::from_environment().map_err(|error| {
            eprintln!("rnic: {error}");
            Errno::INVALID
        })?;
        let complain = |error: &dyn std::fmt::Display| eprintln!("rnic: {error}");
        let choice = settings.transport_choice().map_err(|error| {
            complain(&error);
            Errno::INVALID
        })?;
        let transport = Transport::new(choice.profile).map_err(|error| {
            complain(&error);
            Errno::INVALID
        })?;
        let mut nic = wire::open(&settings).map_err(|error| {
            complain(&error);
            Errno::from(error)
        })?;
        watch::capture(&mut nic, &settings)?;
        let wire = device::wire(nic.port());
        device::announce(&settings, &wire);
        let events = EventQueue::new()?;
        let fd = nic_fd(&nic);
        let shared = Arc::new(Shared {
            core: Mutex::new(Core::new(nic, transport)),
            events,
            calls: AtomicU64::new(0),
            process: Process::current(),
        });
        let progress = progress::Progress::start(&shared)?;
        let observer = watch::observe(&shared, &settings, &wire);
        let c = structure(device, fd.unwrap_or(shared.events.fd()), shared.events.fd());
        let context = Box::into_raw(Box::new(Self { c, shared, progress: Some(progress), observer }));
        // SAFETY: a field of what has just been made.
        Ok(unsafe { &raw mut (*context).c.context })
    }

    /// Closes the device. Objects that are still there are lost with it, as with any other device.
    ///
    /// # Safety
    /// The pointer is from [`Context::open`], and the last use of it.
    pub(crate) unsafe fn close(pointer: *mut ibv_context) {
        // SAFETY: `open` made a box of it, and the caller gives it up.
        let mut context = unsafe { Box::from_raw(pointer.byte_sub(Self::C_OFFSET).cast::<Self>()) };
        if context.shared.process.is_current() {
            drop(context.observer.take());
            drop(context.progress.take());
        } else {
            // The thread is the parent's, and so are the queue pairs: touch neither.
            std::mem::forget(context);
        }
    }
}

/// A descriptor that can be polled, to stand where programs expect that of the command channel.
fn nic_fd(_nic: &Nic) -> Option<i32> {
    std::fs::File::open("/dev/null").ok().map(|file| {
        let fd = file.as_raw_fd();
        std::mem::forget(file);
        fd
    })
}

fn structure(device: &'static Device, cmd_fd: i32, async_fd: i32) -> verbs_context {
    // SAFETY: null pointers, absent functions and zeros are all valid for these fields.
    let mut c: verbs_context = unsafe { std::mem::zeroed() };
    c.query_port = Some(queries::query_port);
    c.query_device_ex = Some(queries::query_device_ex);
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
    ops.alloc_mw = Some(crate::mr::alloc_mw);
    ops.bind_mw = Some(crate::mr::bind_mw);
    ops.dealloc_mw = Some(crate::mr::dealloc_mw);
    c
}
