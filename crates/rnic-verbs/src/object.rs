//! Objects that programs refer to by C pointers: a C structure as the first field, followed by the library's own
//! state.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::*;
use crate::event::{EventQueue, Unacknowledged};
use crate::request::Builder;

/// A pointer to an object, as a value that can be passed between threads: it is only dereferenced while the object
/// exists.
pub(crate) struct Ptr<T>(pub(crate) *mut T);

impl<T> std::fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: the pointer is only an identifier; code that dereferences it justifies that locally.
unsafe impl<T> Send for Ptr<T> {}

/// A protection domain.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) c: ibv_pd,
    /// Number of parent domains that refer to this domain; changes only under the context's lock.
    pub(crate) parents: AtomicU32,
    /// For a parent domain, the domains that it refers to; otherwise `None`.
    pub(crate) parent: Option<Parent>,
}

impl PdObject {
    /// Creates an object for the protection domain `handle`.
    pub(crate) fn make(context: *mut ibv_context, handle: u32, parent: Option<Parent>) -> *mut ibv_pd {
        Box::into_raw(Box::new(Self { c: ibv_pd { context, handle }, parents: AtomicU32::new(0), parent })).cast()
    }
}

/// A thread domain.
#[repr(C)]
pub(crate) struct TdObject {
    pub(crate) c: ibv_td,
    /// Number of parent domains that refer to this domain; changes only under the context's lock.
    pub(crate) users: AtomicU32,
}

/// The protection domain and thread domain that a parent domain refers to.
#[derive(Debug)]
pub(crate) struct Parent {
    pd: *mut ibv_pd,
    td: *mut ibv_td,
}

impl Parent {
    /// Registers the parent domain as a user of both domains.
    pub(crate) fn begin(pd: *mut ibv_pd, td: *mut ibv_td) -> Self {
        // SAFETY: programs pass domains that they have created; from here on the counts prevent their destruction.
        unsafe {
            (*pd.cast::<PdObject>()).parents.fetch_add(1, Ordering::Relaxed);
            if !td.is_null() {
                (*td.cast::<TdObject>()).users.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self { pd, td }
    }

    /// Unregisters the parent domain from both domains when it is destroyed.
    pub(crate) fn end(self) {
        // SAFETY: neither can have been freed, because `begin` has registered this parent domain as a user.
        unsafe {
            (*self.pd.cast::<PdObject>()).parents.fetch_sub(1, Ordering::Relaxed);
            if !self.td.is_null() {
                (*self.td.cast::<TdObject>()).users.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// A memory region.
#[repr(C)]
pub(crate) struct MrObject {
    pub(crate) c: ibv_mr,
}

/// A memory window.
#[repr(C)]
pub(crate) struct MwObject {
    pub(crate) c: ibv_mw,
}

/// An address handle.
#[repr(C)]
pub(crate) struct AhObject {
    pub(crate) c: ibv_ah,
}

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    pub(crate) c: ibv_comp_channel,
    pub(crate) events: EventQueue<Ptr<CqObject>>,
}

/// A completion queue.
#[repr(C)]
pub(crate) struct CqObject {
    pub(crate) c: ibv_cq_ex,
    /// Completion whose fields the `read_*` functions return; only the thread between `start_poll` and `end_poll`
    /// uses it.
    pub(crate) current: UnsafeCell<ibv_wc>,
    /// Number of unacknowledged completion events.
    pub(crate) completions: Unacknowledged,
    /// Number of unacknowledged asynchronous events.
    pub(crate) events: Unacknowledged,
}

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqObject {
    pub(crate) c: ibv_srq,
    pub(crate) events: Unacknowledged,
}

/// A queue pair.
#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) c: ibv_qp_ex,
    /// `true` if the program has requested the `wr_*` functions.
    pub(crate) is_extended: bool,
    pub(crate) builder: Builder,
    pub(crate) events: Unacknowledged,
}

/// The object that an asynchronous event concerns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Element {
    Qp(Ptr<QpObject>),
    Cq(Ptr<CqObject>),
    Srq(Ptr<SrqObject>),
}

impl Element {
    /// Returns the value of `element` in `struct ibv_async_event`.
    pub(crate) fn pointer(self) -> *mut c_void {
        match self {
            Self::Qp(qp) => qp.0.cast(),
            Self::Cq(cq) => cq.0.cast(),
            Self::Srq(srq) => srq.0.cast(),
        }
    }
}

/// Defines a function that converts the C pointer of an object to a reference to the library's structure.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $c:ty => $object:ty;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The pointer was returned by this library for an object that has not been destroyed.
        #[inline]
        pub(crate) unsafe fn $name<'a>(pointer: *mut $c) -> &'a $object {
            // SAFETY: the C structure is the first field of the library's structure, which is valid as guaranteed by
            // the caller. Fields that change while it exists are in locks or cells, or are C fields that only
            // programs read.
            unsafe { &*pointer.cast() }
        }
    )* };
}

objects! {
    /// Returns the channel that a C pointer refers to.
    channel: ibv_comp_channel => ChannelObject;
    /// Returns the completion queue that a C pointer refers to.
    cq: ibv_cq => CqObject;
    /// Returns the queue pair that a C pointer refers to.
    qp: ibv_qp => QpObject;
    /// Returns the queue pair whose extended form a C pointer refers to.
    qp_ex: ibv_qp_ex => QpObject;
    /// Returns the completion queue whose extended form a C pointer refers to.
    cq_ex: ibv_cq_ex => CqObject;
}
