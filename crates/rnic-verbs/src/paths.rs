//! Interface of the device's sysfs tree for the path shim (`shim/`), which serves the C library's calls on paths in the
//! tree.
//!
//! It consists of two C functions: one describes a path, the other lists a directory. `shim/shim.h` declares them, and
//! the structure that the first one fills in.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong};

use crate::tree::{Node, Resolution, Tree};

/// Description of a path; `struct rnic_place` in C.
#[repr(C)]
pub struct RnicPlace {
    kind: c_int,
    /// Error number, when the path cannot be resolved.
    error: c_int,
    major: c_uint,
    minor: c_uint,
    inode: c_ulong,
    /// Length of `contents` in bytes.
    len: usize,
    /// The path without links and dots, terminated by a zero byte.
    path: [c_char; PATH_BYTES],
    /// Contents of a file, or target of a link.
    contents: [c_char; CONTENTS_BYTES],
}

/// Buffer size for a path, in bytes. Paths of the tree have 160 bytes at most; the buffer stays small because programs
/// may have small stacks.
const PATH_BYTES: usize = 1_024;
/// Buffer size for the contents of a file, in bytes.
const CONTENTS_BYTES: usize = 1_024;

// Types of paths; `shim/shim.h` has the same numbers.
const FOREIGN: c_int = 0;
const OUTSIDE: c_int = 1;
const DIRECTORY: c_int = 2;
const FILE: c_int = 3;
const DEVICE: c_int = 4;
const LINK: c_int = 5;
const FAILED: c_int = 6;

/// Copies as much of `text` as fits before a terminating zero byte; returns the number of bytes copied.
fn put(into: &mut [c_char], text: &str) -> usize {
    let len = text.len().min(into.len() - 1);
    for (slot, byte) in into.iter_mut().zip(text.as_bytes()[..len].iter().chain(&[0])) {
        *slot = *byte as c_char;
    }
    len
}

/// Returns an inode number for a node: FNV-1a of its path, with a high bit set because the kernel's numbers are small.
fn inode(path: &str) -> c_ulong {
    let hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash | 1 << 62) as c_ulong
}

fn describe(resolution: &Resolution<'_>, into: &mut RnicPlace) {
    into.kind = match resolution {
        Resolution::Foreign => FOREIGN,
        Resolution::Outside(path) if path.len() >= PATH_BYTES => {
            into.error = libc::ENAMETOOLONG;
            FAILED
        }
        Resolution::Outside(path) => {
            put(&mut into.path, path);
            OUTSIDE
        }
        Resolution::Failed(error) => {
            into.error = *error;
            FAILED
        }
        Resolution::Node(path, node) => {
            put(&mut into.path, path);
            into.inode = inode(path);
            match node {
                Node::Directory { .. } => DIRECTORY,
                Node::File(contents) => {
                    into.len = put(&mut into.contents, &(contents.read() + "\n"));
                    FILE
                }
                Node::Link(target) => {
                    into.len = put(&mut into.contents, target);
                    LINK
                }
                Node::Device { major, minor } => {
                    (into.major, into.minor) = (*major, *minor);
                    DEVICE
                }
            }
        }
    };
}

/// Describes the absolute path `path`; if its last component is a link, the link is followed if `follows` is not 0.
///
/// # Safety
/// `path` is a C string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rnic_look(path: *const c_char, follows: c_int, into: *mut RnicPlace) {
    // SAFETY: guaranteed by the caller. All zeros is a valid value, a path outside the tree. Only the first byte of the
    // long arrays needs to be initialized.
    let (path, into) = unsafe {
        (&raw mut (*into).kind).write_bytes(0, 1);
        (&raw mut (*into).error).write_bytes(0, 1);
        (&raw mut (*into).major).write_bytes(0, 1);
        (&raw mut (*into).minor).write_bytes(0, 1);
        (&raw mut (*into).inode).write_bytes(0, 1);
        (&raw mut (*into).len).write_bytes(0, 1);
        (&raw mut (*into).path).cast::<c_char>().write_bytes(0, 1);
        (&raw mut (*into).contents).cast::<c_char>().write_bytes(0, 1);
        (CStr::from_ptr(path), &mut *into)
    };
    if let Ok(path) = path.to_str() {
        let tree = Tree::now();
        describe(&tree.resolve(path, follows != 0), into);
    }
}

/// Lists the names that the tree has in the directory `path`, which contains no links or dots: each entry is a type
/// letter (`d`, `f`, `l`, `c`) followed by a C string. Returns the total number of bytes, of which at most `capacity`
/// are written; -1 when the tree has no entries there.
///
/// # Safety
/// `path` is a C string, `buffer` has space for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rnic_list(path: *const c_char, buffer: *mut c_char, capacity: usize) -> c_long {
    // SAFETY: guaranteed by the caller.
    let Ok(path) = unsafe { CStr::from_ptr(path) }.to_str() else { return -1 };
    let tree = Tree::now();
    let mut bytes = Vec::new();
    for (name, node) in tree.children(path) {
        bytes.push(match node {
            Node::Directory { .. } => b'd',
            Node::File(_) => b'f',
            Node::Link(_) => b'l',
            Node::Device { .. } => b'c',
        });
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
    }
    if bytes.is_empty() && tree.get(path).is_none() {
        return -1;
    }
    let len = bytes.len().min(capacity);
    // SAFETY: guaranteed by the caller; `len` does not exceed the source or the buffer.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), len) };
    bytes.len() as c_long
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(path: &CStr, follows: bool) -> (c_int, String, String) {
        let mut description = std::mem::MaybeUninit::<RnicPlace>::uninit();
        let text = |chars: &[c_char]| {
            // SAFETY: the written text ends with a zero byte.
            unsafe { CStr::from_ptr(chars.as_ptr()) }.to_string_lossy().into_owned()
        };
        // SAFETY: a C string, and a plain structure that is only read as far as it was written.
        unsafe {
            std::ptr::write_bytes(description.as_mut_ptr().cast::<u8>(), 0xa5, size_of::<RnicPlace>());
            rnic_look(path.as_ptr(), c_int::from(follows), description.as_mut_ptr());
            let description = description.assume_init();
            (description.kind, text(&description.path), text(&description.contents))
        }
    }

    #[test]
    fn devices_directories_and_files_are_distinguished() {
        for device in [c"/dev/infiniband/uverbs0", c"/dev/infiniband/rdma_cm"] {
            assert_eq!(look(device, true).0, DEVICE);
        }
        for directory in
            [c"/dev/infiniband", c"/sys/class/infiniband/", c"/sys/class/infiniband/rnic0/ports/1/gid_attrs/types"]
        {
            assert_eq!(look(directory, true).0, DIRECTORY, "{directory:?}");
        }
        let (kind, path, contents) = look(c"/sys/class/infiniband/rnic0/ports/1/gid_attrs/types/0", true);
        assert_eq!((kind, contents.as_str()), (FILE, "RoCE v2\n"));
        assert!(path.starts_with("/sys/devices/"), "{path}");
        assert_eq!(look(c"/sys/class/infiniband_verbs/uverbs0/ibdev", true).2, "rnic0\n");
        assert_eq!(look(c"/sys/class/infiniband/rnic0", false).0, LINK);
        assert_eq!(look(c"/sys/class/infiniband/rnic0/nothing", false).0, FAILED);
        for foreign in
            [c"/dev/infiniband0", c"/dev/infiniband/uverbs1", c"/sys/class/infiniband/mlx5_0/ports/1/state", c""]
        {
            assert_eq!(look(foreign, true).0, FOREIGN, "{foreign:?}");
        }
        assert_eq!(
            look(c"/sys/class/infiniband/rnic0/../../../../../..", true),
            (OUTSIDE, "/sys".to_owned(), String::new())
        );
    }

    #[test]
    fn lists_are_truncated_to_the_capacity() {
        let mut buffer = [0_u8; 16];
        // SAFETY: C strings, and no more than a buffer's bytes.
        unsafe {
            let buffer_start = buffer.as_mut_ptr().cast();
            assert_eq!(rnic_list(c"/dev".as_ptr(), buffer_start, 16), 12, "the tree's names in the kernel's /dev");
            assert_eq!(&buffer, b"dinfiniband\0\0\0\0\0");
            assert_eq!(rnic_list(c"/dev/infiniband".as_ptr(), buffer_start, 5), 18);
            assert_eq!(rnic_list(c"/etc".as_ptr(), buffer_start, 16), -1);
        }
    }
}
