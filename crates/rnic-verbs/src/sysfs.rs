//! `ibv_read_sysfs_file`, served from the device's own tree instead of the kernel's `/sys`.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::errno::Errno;
use crate::tree::{Node, Resolution, Tree};

/// Returns the contents of `file` in `dir`, without the newline; `None` when there is no such file.
pub(crate) fn read(dir: &str, file: &str) -> Option<String> {
    match Tree::now().resolve(&format!("{dir}/{file}"), true) {
        Resolution::Node(_, Node::File(contents)) => Some(contents.read()),
        _ => None,
    }
}

/// Implements `ibv_read_sysfs_file`: returns the number of bytes written, or -1.
///
/// # Safety
/// `dir` and `file` are C strings, `into` points to `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    into: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let text = read(&dir.to_string_lossy(), &file.to_string_lossy());
    let Some(text) = text.filter(|_| len > 0) else {
        Errno(libc::ENOENT).set();
        return -1;
    };
    let count = text.len().min(len - 1);
    // SAFETY: guaranteed by the caller, and there is space for a terminating zero byte.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), into, count);
        *into.add(count) = 0;
    }
    count as c_int
}

/// Implements `ibv_get_sysfs_path`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{SYSFS_FILE_PATH, SYSFS_PATH};

    #[test]
    fn files_are_read_by_path() {
        assert_eq!(read(SYSFS_PATH, "ports/1/link_layer").as_deref(), Some("Ethernet"));
        assert_eq!(read("/sys/class/infiniband/rnic0/", "/ports/1/pkeys/0").as_deref(), Some("0xffff"));
        assert_eq!(read(SYSFS_FILE_PATH, "ibdev").as_deref(), Some("rnic0"));
        assert_eq!(read(SYSFS_PATH, "ports/2/link_layer"), None);
        assert_eq!(read(SYSFS_PATH, "ports/1/pkeys/1"), None);
        assert_eq!(read("/sys/class/infiniband/mlx5_0", "node_type"), None);
        let guid = read(SYSFS_PATH, "node_guid").expect("the device has this file");
        assert_eq!((guid.len(), guid.matches(':').count()), (19, 3));
        let sent = || read(SYSFS_PATH, "ports/1/counters/port_xmit_data").expect("a counter").parse::<u64>();
        assert!(sent().is_ok());
    }
}
