//! Identity of files, by device and inode number.

use std::ffi::c_int;

/// Identity of the file that a descriptor refers to: device and inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct File {
    device: u64,
    inode: u64,
}

impl File {
    /// Returns the file that `fd` refers to; `None` when `fd` is not an open descriptor.
    pub(crate) fn of(fd: c_int) -> Option<Self> {
        // SAFETY: all zeros is a valid value, and `fstat` writes into it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: as above; the call fails for an invalid descriptor.
        (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}
