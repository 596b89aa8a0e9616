//! Files as the kernel tells them apart.

use std::ffi::c_int;

/// Which file a descriptor is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct File {
    device: u64,
    inode: u64,
}

impl File {
    /// Returns the file that `fd` is open on; `None` when `fd` is no open descriptor.
    pub(crate) fn of(fd: c_int) -> Option<Self> {
        // SAFETY: zeros are a legal value, and `fstat` writes into it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: as above; a descriptor that is none is refused.
        (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}
