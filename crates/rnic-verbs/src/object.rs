//! What C pointers lead to: a C structure first, ours behind it.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::*;
use crate::event::{EventQueue, Unacknowledged};
use crate::request::Builder;

/// A pointer to an object, as a value that threads may hand around: it is only followed while the object lives.
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

// SAFETY: the pointer is only a name; who follows it says why that is sound.
unsafe impl<T> Send for Ptr<T> {}

/// A protection domain.
#[repr(C)]
pub(crate) struct PdObject {
    pub(crate) c: ibv_pd,
    /// Parent domains of it; changes under the context's lock.
    pub(crate) parents: AtomicU32,
    /// Of a parent domain: what it stands for.
    pub(crate) parent: Option<Parent>,
}

impl PdObject {
    /// A new object for the domain `handle`.
    pub(crate) fn make(context: *mut ibv_context, handle: u32, parent: Option<Parent>) -> *mut ibv_pd {
        Box::into_raw(Box::new(Self { c: ibv_pd { context, handle }, parents: AtomicU32::new(0), parent })).cast()
    }
}

/// A thread domain.
#[repr(C)]
pub(crate) struct TdObject {
    pub(crate) c: ibv_td,
    /// Parent domains with it; changes under the context's lock.
    pub(crate) users: AtomicU32,
}

/// What makes a domain a parent domain.
#[derive(Debug)]
pub(crate) struct Parent {
    pd: *mut ibv_pd,
    td: *mut ibv_td,
}

impl Parent {
    /// Counts the parent domain as a user of both.
    pub(crate) fn begin(pd: *mut ibv_pd, td: *mut ibv_td) -> Self {
        // SAFETY: a program hands over domains that it has made; the counts are what keeps them alive from here on.
        unsafe {
            (*pd.cast::<PdObject>()).parents.fetch_add(1, Ordering::Relaxed);
            if !td.is_null() {
                (*td.cast::<TdObject>()).users.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self { pd, td }
    }

    /// The parent domain is gone.
    pub(crate) fn end(self) {
        // SAFETY: neither can have been given up: `begin` has counted this as a user.
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
    /// The completion that the functions behind `read_*` speak of; the one thread between `start_poll` and `end_poll`
    /// uses it.
    pub(crate) current: UnsafeCell<ibv_wc>,
    /// Completion events.
    pub(crate) completions: Unacknowledged,
    /// Asynchronous events.
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
    /// Whether the program has asked for the functions behind `wr_*`.
    pub(crate) is_extended: bool,
    pub(crate) builder: Builder,
    pub(crate) events: Unacknowledged,
}

/// Where an asynchronous event belongs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Element {
    Qp(Ptr<QpObject>),
    Cq(Ptr<CqObject>),
    Srq(Ptr<SrqObject>),
}

impl Element {
    /// As it stands in `struct ibv_async_event`.
    pub(crate) fn pointer(self) -> *mut c_void {
        match self {
            Self::Qp(qp) => qp.0.cast(),
            Self::Cq(cq) => cq.0.cast(),
            Self::Srq(srq) => srq.0.cast(),
        }
    }
}

/// Makes an accessor from the C pointer of an object to ours.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $c:ty => $object:ty;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The pointer is one that this library has given out for an object that has not been destroyed.
        #[inline]
        pub(crate) unsafe fn $name<'a>(pointer: *mut $c) -> &'a $object {
            // SAFETY: the C structure is the first part of ours, by the caller's promise a living one. What changes in
            // it while it lives is behind locks or cells, or a field of C that only programs read.
            unsafe { &*pointer.cast() }
        }
    )* };
}

objects! {
    /// The channel behind a C pointer.
    channel: ibv_comp_channel => ChannelObject;
    /// The completion queue behind a C pointer.
    cq: ibv_cq => CqObject;
    /// The queue pair behind a C pointer.
    qp: ibv_qp => QpObject;
    /// The queue pair behind a pointer to its extended form.
    qp_ex: ibv_qp_ex => QpObject;
    /// The completion queue behind a pointer to its extended form.
    cq_ex: ibv_cq_ex => CqObject;
}
