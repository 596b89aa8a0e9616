//! Conversion of work requests from C to the engine: scatter/gather lists, flags, and the requests built by `ibv_wr_*`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_base::limits::SGE_MAX;
use rnic_engine::{SendFlags, SendOp, Sge};

use crate::abi::*;
use crate::errno::{Errno, Result};

/// A scatter/gather list in the engine's representation.
pub(crate) struct List {
    sges: [Sge; SGE_MAX],
    len: usize,
}

impl List {
    pub(crate) const EMPTY: Self = Self { sges: [Sge { addr: 0, len: 0, lkey: 0 }; SGE_MAX], len: 0 };

    /// Adds an entry. An entry of zero bytes is skipped, and its key is not checked.
    #[inline]
    pub(crate) fn push(&mut self, sge: &ibv_sge) -> Result<()> {
        if sge.length > 0 {
            *self.sges.get_mut(self.len).ok_or(Errno::INVALID)? =
                Sge { addr: sge.addr, len: sge.length, lkey: sge.lkey };
            self.len += 1;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.sges[..self.len]
    }

    /// Converts the scatter/gather list of a C request.
    ///
    /// # Safety
    /// `first` points to `count` entries.
    #[inline]
    pub(crate) unsafe fn of(first: *const ibv_sge, count: c_int, limit: u32) -> Result<Self> {
        let mut list = Self::EMPTY;
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        if count > limit as usize {
            return Err(Errno::INVALID);
        }
        for index in 0..count {
            // SAFETY: guaranteed by the caller.
            list.push(unsafe { &*first.add(index) })?;
        }
        Ok(list)
    }
}

/// Converts the flags of a request to those of the engine.
#[inline]
pub(crate) fn flags(flags: u32) -> SendFlags {
    let mut all = SendFlags::empty();
    all.set(SendFlags::SIGNALED, flags & IBV_SEND_SIGNALED != 0);
    all.set(SendFlags::SOLICITED, flags & IBV_SEND_SOLICITED != 0);
    all.set(SendFlags::FENCE, flags & IBV_SEND_FENCE != 0);
    all
}

/// Destination of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Handle of the address handle.
    pub(crate) handle: u32,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

/// A request that is being built.
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) data: Data,
    /// Destination, for a datagram.
    pub(crate) to: Option<Target>,
    /// Number of the remote shared receive queue, for an extended reliable connection.
    pub(crate) srqn: u32,
}

/// Data that a request sends.
pub(crate) enum Data {
    List(Box<List>),
    /// Inline data, already copied: the program may change its buffer afterwards.
    Inline(Vec<u8>),
}

/// Requests between `wr_start` and `wr_complete`, and the first error among them.
#[derive(Default)]
pub(crate) struct Batch {
    requests: Vec<Request>,
    failed: Option<Errno>,
}

impl Batch {
    /// Removes all requests, because another batch starts.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.failed = None;
    }

    /// Starts a request, initially without data.
    #[inline]
    pub(crate) fn begin(&mut self, wr_id: u64, op: SendOp, flags: SendFlags) {
        self.requests.push(Request { wr_id, op, flags, data: Data::List(Box::new(List::EMPTY)), to: None, srqn: 0 });
    }

    /// Sets the data of the latest request.
    #[inline]
    pub(crate) fn set_data(&mut self, data: Result<Data>) {
        match (self.requests.last_mut(), data) {
            (Some(request), Ok(data)) => request.data = data,
            (None, _) => self.fail(Errno::INVALID),
            (_, Err(errno)) => self.fail(errno),
        }
    }

    /// Sets the datagram destination of the latest request.
    #[inline]
    pub(crate) fn set_target(&mut self, to: Option<Target>) {
        match (self.requests.last_mut(), to) {
            (Some(request), Some(to)) => request.to = Some(to),
            _ => self.fail(Errno::INVALID),
        }
    }

    /// Sets the remote shared receive queue of the latest request.
    #[inline]
    pub(crate) fn set_srqn(&mut self, srqn: u32) {
        match self.requests.last_mut() {
            Some(request) => request.srqn = srqn,
            None => self.fail(Errno::INVALID),
        }
    }

    /// Records an error, so that no request of the batch will be posted.
    #[inline]
    pub(crate) fn fail(&mut self, errno: Errno) {
        self.failed = Some(errno);
    }

    /// Returns the requests.
    ///
    /// # Errors
    /// When one of them could not be built.
    #[inline]
    pub(crate) fn requests(&self) -> Result<&[Request]> {
        self.failed.map_or(Ok(&self.requests), Err)
    }
}

/// State in which the requests of a queue pair are built, call by call.
pub(crate) struct Builder {
    /// Spin lock; held by the thread that is between `wr_start` and `wr_complete`.
    taken: AtomicBool,
    /// Maximum number of bytes of inline data in a request.
    inline_max: usize,
    batch: UnsafeCell<Batch>,
}

impl Builder {
    /// Creates a builder for requests with up to `inline_max` bytes of inline data.
    pub(crate) fn new(inline_max: u32) -> Self {
        Self { taken: AtomicBool::new(false), inline_max: inline_max as usize, batch: UnsafeCell::default() }
    }

    /// Returns the maximum number of bytes of inline data in a request.
    #[inline]
    pub(crate) fn inline_max(&self) -> usize {
        self.inline_max
    }

    /// Waits until no other thread builds requests, and excludes others until [`Builder::release`].
    #[inline]
    pub(crate) fn acquire(&self) {
        while self.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    /// Allows other threads to build requests.
    #[inline]
    pub(crate) fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Returns the batch that is being built.
    ///
    /// # Safety
    /// The caller is between `acquire` and `release`, and creates one reference at a time.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "`taken` is the lock of the batch")]
    pub(crate) unsafe fn batch(&self) -> &mut Batch {
        // SAFETY: guaranteed by the caller.
        unsafe { &mut *self.batch.get() }
    }
}
