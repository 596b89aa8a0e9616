//! What programs read from `/sys` about a device, answered without it.

use crate::device::{self, Device, FIRMWARE, SYSFS_FILE_PATH, SYSFS_PATH};
use crate::wire;

/// The contents of `file` in `dir`, without the newline; `None` when there is no such file.
pub(crate) fn read(dir: &str, file: &str) -> Option<String> {
    let path = format!("{}/{}", dir.trim_end_matches('/'), file.trim_start_matches('/'));
    if let Some(file) = path.strip_prefix(SYSFS_FILE_PATH) {
        return match file {
            "/ibdev" => Some(device::NAME.to_owned()),
            "/abi_version" => Some("1".to_owned()),
            _ => None,
        };
    }
    let file = path.strip_prefix(SYSFS_PATH)?.strip_prefix('/')?;
    match file.strip_prefix("ports/1/") {
        Some(file) => of_port(file),
        None => of_device(file),
    }
}

fn of_device(file: &str) -> Option<String> {
    Some(match file {
        "fw_ver" => FIRMWARE.to_owned(),
        "node_type" => "1: CA".to_owned(),
        "node_guid" | "sys_image_guid" => words(&Device::get().guid().to_ne_bytes()),
        "node_desc" => "OpenRNIC software device".to_owned(),
        "hca_type" => "rnic".to_owned(),
        "board_id" => "rnic".to_owned(),
        _ => return None,
    })
}

fn of_port(file: &str) -> Option<String> {
    if let Some(index) = file.strip_prefix("pkeys/") {
        return (index == "0").then(|| format!("{:#06x}", device::PARTITION_KEY));
    }
    let indexed = |prefix: &str| {
        let index = file.strip_prefix(prefix)?.parse::<usize>().ok()?;
        wire::addresses().into_iter().nth(index)
    };
    if let Some(address) = indexed("gids/") {
        return Some(words(&address.gid().raw));
    }
    if indexed("gid_attrs/types/").is_some() {
        return Some("RoCE v2".to_owned());
    }
    if let Some(address) = indexed("gid_attrs/ndevs/") {
        return Some(address.interface);
    }
    Some(match file {
        "state" => "4: ACTIVE".to_owned(),
        "phys_state" => "5: LinkUp".to_owned(),
        "link_layer" => "Ethernet".to_owned(),
        "rate" => "100 Gb/sec (4X EDR)".to_owned(),
        "lid" | "sm_lid" => "0x0".to_owned(),
        "lid_mask_count" | "sm_sl" => "0".to_owned(),
        "cap_mask" => format!("{:#010x}", device::port().port_cap_flags),
        _ => return None,
    })
}

/// Bytes as the kernel writes GUIDs and GIDs: words of 16 bits with colons between.
fn words(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1])).collect();
    words.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
