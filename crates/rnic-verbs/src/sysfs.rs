//! What `ibv_read_sysfs_file` reads, without the kernel's `/sys`.

use crate::tree::{Node, Place, Tree};

/// The contents of `file` in `dir`, without the newline; `None` when there is no such file.
pub(crate) fn read(dir: &str, file: &str) -> Option<String> {
    match Tree::now().resolve(&format!("{dir}/{file}"), true) {
        Place::Node(_, Node::File(contents)) => Some(contents.read()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{SYSFS_FILE_PATH, SYSFS_PATH};

    #[test]
    fn files_are_found_by_their_paths() {
        assert_eq!(read(SYSFS_PATH, "ports/1/link_layer").as_deref(), Some("Ethernet"));
        assert_eq!(read("/sys/class/infiniband/rnic0/", "/ports/1/pkeys/0").as_deref(), Some("0xffff"));
        assert_eq!(read(SYSFS_FILE_PATH, "ibdev").as_deref(), Some("rnic0"));
        assert_eq!(read(SYSFS_PATH, "ports/2/link_layer"), None);
        assert_eq!(read(SYSFS_PATH, "ports/1/pkeys/1"), None);
        assert_eq!(read("/sys/class/infiniband/mlx5_0", "node_type"), None);
        let guid = read(SYSFS_PATH, "node_guid").expect("a device has one");
        assert_eq!((guid.len(), guid.matches(':').count()), (19, 3));
        let sent = || read(SYSFS_PATH, "ports/1/counters/port_xmit_data").expect("a counter").parse::<u64>();
        assert!(sent().is_ok());
    }
}
