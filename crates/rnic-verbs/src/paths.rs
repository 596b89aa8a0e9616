//! Paths at which programs look for a device, for the path shim (`shim/shim.c`), which answers calls on them.

use std::ffi::{CStr, c_char, c_long};

use crate::device::{FILE_NAME, SYSFS_FILE_PATH, SYSFS_PATH};
use crate::sysfs;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Entry {
    /// Something else, or nothing.
    NotOurs,
    /// A directory.
    Directory,
    /// A device that may be opened, but only to show that it may.
    Device,
    /// A file with these contents.
    File(String),
}

/// What is at `path`: -1 nothing of ours, -2 a directory, -3 a device; else a file, whose contents are in `buffer`,
/// cut to `capacity`, and the answer is how many bytes that are.
///
/// # Safety
/// `path` is a C string, and `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rnic_lookup(path: *const c_char, buffer: *mut c_char, capacity: usize) -> c_long {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    match path.to_str().map_or(Entry::NotOurs, lookup) {
        Entry::NotOurs => -1,
        Entry::Directory => -2,
        Entry::Device => -3,
        Entry::File(contents) => {
            let len = contents.len().min(capacity);
            // SAFETY: the caller's promise, and no more than there is.
            unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), buffer.cast(), len) };
            len as c_long
        }
    }
}

fn lookup(path: &str) -> Entry {
    let path = path.trim_end_matches('/');
    if let Some(name) = path.strip_prefix("/dev/infiniband") {
        return match name.strip_prefix('/') {
            None if name.is_empty() => Entry::Directory,
            Some(name) if name == FILE_NAME || name == "rdma_cm" => Entry::Device,
            _ => Entry::NotOurs,
        };
    }
    if is_directory(path) {
        return Entry::Directory;
    }
    let contents = match path {
        "/sys/class/infiniband_verbs/abi_version" => Some(VERBS_ABI.to_owned()),
        "/sys/class/misc/rdma_cm/abi_version" => Some(CM_ABI.to_owned()),
        _ => path.rsplit_once('/').and_then(|(directory, file)| sysfs::read(directory, file)),
    };
    contents.map_or(Entry::NotOurs, |contents| Entry::File(contents + "\n"))
}

fn is_directory(path: &str) -> bool {
    if path == SYSFS_FILE_PATH || SYSFS_CLASSES.contains(&path) {
        return true;
    }
    let inside = path.strip_prefix(SYSFS_PATH);
    inside.is_some_and(|inside| inside.is_empty() || DEVICE_DIRECTORIES.contains(&inside))
}

const SYSFS_CLASSES: [&str; 3] = ["/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/misc/rdma_cm"];
const DEVICE_DIRECTORIES: [&str; 7] = [
    "/ports",
    "/ports/1",
    "/ports/1/gids",
    "/ports/1/pkeys",
    "/ports/1/gid_attrs",
    "/ports/1/gid_attrs/types",
    "/ports/1/gid_attrs/ndevs",
];
/// What Linux has said since 2.6.
const VERBS_ABI: &str = "6";
/// The same of the connection manager's device.
const CM_ABI: &str = "4";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_directories_and_files_are_told_apart() {
        for device in ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"] {
            assert_eq!(lookup(device), Entry::Device);
        }
        for directory in [
            "/dev/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband/rnic0",
            "/sys/class/infiniband/rnic0/ports/1/gid_attrs/types",
            "/sys/class/infiniband_verbs/uverbs0",
        ] {
            assert_eq!(lookup(directory), Entry::Directory, "{directory}");
        }
        let file = |text: &str| Entry::File(text.to_owned());
        assert_eq!(lookup("/sys/class/infiniband/rnic0/ports/1/gid_attrs/types/0"), file("RoCE v2\n"));
        assert_eq!(lookup("/sys/class/infiniband_verbs/uverbs0/ibdev"), file("rnic0\n"));
        for other in [
            "/dev/infiniband0",
            "/dev/infiniband/uverbs1",
            "/sys/class/infiniband/mlx5_0/ports/1/state",
            "/sys/class/infiniband/rnic00",
            "/sys/class/infiniband/rnic0/device",
            "/sys/class/infiniband/rnic0/ports/1/gid_attrs/types/9999",
            "",
        ] {
            assert_eq!(lookup(other), Entry::NotOurs, "{other}");
        }
    }

    #[test]
    fn contents_are_cut_to_the_room_there_is() {
        let mut buffer = [0_u8; 6];
        let path = c"/sys/class/infiniband_verbs/uverbs0/ibdev";
        // SAFETY: a C string, and four bytes of a buffer of six.
        let len = unsafe { rnic_lookup(path.as_ptr(), buffer.as_mut_ptr().cast(), 4) };
        assert_eq!((len, &buffer), (4, b"rnic\0\0"));
    }
}
