//! Error numbers, as C functions report them.

use std::ffi::c_int;
use std::ptr;

use rnic_engine::{MemoryError, ModifyError, PostError, ResourceError};
use rnic_host::NicError;

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    /// Returned when a child process uses an object that its parent has opened.
    pub(crate) const FORKED: Self = Self(libc::EPERM);

    /// Stores the number in `errno`.
    pub(crate) fn set(self) {
        // SAFETY: the thread's own `errno` may always be written.
        unsafe { *libc::__errno_location() = self.0 };
    }

    /// Returns the `errno` of the last system call.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Converts a result for C functions that return an error number.
pub(crate) fn number(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            errno.0
        }
    }
}

/// Converts a result for C functions that return a pointer, or null and set `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// Converts a result for C functions that return -1 and set `errno`.
pub(crate) fn minus_one(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

impl From<ResourceError> for Errno {
    fn from(error: ResourceError) -> Self {
        match error {
            ResourceError::Busy(_) => Self::BUSY,
            ResourceError::Exhausted { .. } => Self::NO_MEMORY,
            _ => Self::INVALID,
        }
    }
}

impl From<MemoryError> for Errno {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Exhausted | MemoryError::WindowsExhausted => Self::NO_MEMORY,
            MemoryError::Bound => Self::BUSY,
            _ => Self::INVALID,
        }
    }
}

impl From<ModifyError> for Errno {
    fn from(_: ModifyError) -> Self {
        Self::INVALID
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        match error {
            PostError::QueueFull => Self::NO_MEMORY,
            _ => Self::INVALID,
        }
    }
}

impl From<NicError> for Errno {
    fn from(error: NicError) -> Self {
        match error {
            NicError::System { error, .. } => Self(error.raw_os_error().unwrap_or(libc::EIO)),
            NicError::TooManyPeers => Self::NO_MEMORY,
            NicError::NoPort => Self(libc::EADDRINUSE),
            _ => Self::INVALID,
        }
    }
}
