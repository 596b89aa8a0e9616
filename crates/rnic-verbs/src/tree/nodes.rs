//! Contents of the tree.
//!
//! The layout is that of Linux (Documentation/ABI/stable/sysfs-class-infiniband, testing/sysfs-bus-pci): the device is
//! below a PCI Express port of a separate PCI domain that exists on no machine, so that no device of the kernel is
//! hidden. Programs that place memory and threads by PCI and NUMA topology (NCCL, hwloc, transfer engines) read values
//! that fit a device that is equally near to every processor.

use std::fs;

use super::{Contents, Counter, Node, Tree};
use crate::device::{self, Device, FILE_NAME, FIRMWARE, NAME};
use crate::wire;

/// Paths of the PCI domain's root, of the PCI Express port below it, and of the device below that.
const ROOT: &str = "/sys/devices/pci52ac:00";
const BRIDGE: &str = "/sys/devices/pci52ac:00/52ac:00:00.0";
const PCI: &str = "/sys/devices/pci52ac:00/52ac:00:00.0/52ac:01:00.0";
/// Path of the connection manager's device.
const RDMA_CM: &str = "/sys/devices/virtual/misc/rdma_cm";

/// Topmost nodes of the tree, whose parent directories belong to the kernel.
pub(super) const ROOTS: [&str; 12] = [
    "/dev/infiniband",
    "/sys/bus/pci/devices/52ac:00:00.0",
    "/sys/bus/pci/devices/52ac:01:00.0",
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc/rdma_cm",
    "/sys/class/pci_bus/52ac:00",
    "/sys/class/pci_bus/52ac:01",
    "/sys/dev/char/10:121",
    "/sys/dev/char/231:192",
    ROOT,
    RDMA_CM,
];

/// The topmost directories that the kernel has too, when it has RDMA devices of its own.
const SHARED: [&str; 3] = ["/dev/infiniband", "/sys/class/infiniband", "/sys/class/infiniband_verbs"];

/// PCI vendor identifier that is not assigned to any vendor, so that no vendor-specific code treats this device as its
/// hardware.
const PCI_VENDOR: &str = "0x4f52";
const PCI_DEVICE: &str = "0x0001";

impl Tree {
    fn put(&mut self, path: String, node: Node) {
        let mut parent = path.as_str();
        while let Some((parent_dir, _)) = parent.rsplit_once('/').filter(|_| !ROOTS.contains(&parent)) {
            let is_shared = SHARED.contains(&parent_dir);
            self.nodes.entry(parent_dir.to_owned()).or_insert(Node::Directory { is_shared });
            parent = parent_dir;
        }
        self.nodes.insert(path, node);
    }

    fn file(&mut self, folder: &str, name: &str, text: impl Into<String>) {
        self.put(format!("{folder}/{name}"), Node::File(Contents::Text(text.into())));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.put(path.into(), Node::Link(target.into()));
    }
}

/// Builds the tree.
pub(super) fn tree() -> Tree {
    let mut tree = Tree::default();
    add_pci(&mut tree);
    add_rdma(&mut tree);
    add_port(&mut tree);
    add_uverbs(&mut tree);
    add_connection_manager(&mut tree);
    tree
}

/// Adds the PCI device and the port above it.
fn add_pci(tree: &mut Tree) {
    let cpus = online_cpus();
    for (path, class, vendor, id) in
        [(BRIDGE, "0x060400", PCI_VENDOR, "0x0002"), (PCI, "0x020000", PCI_VENDOR, PCI_DEVICE)]
    {
        let address = path.rsplit_once('/').map_or("", |(_, name)| name);
        let files = [
            ("class", class),
            ("vendor", vendor),
            ("device", id),
            ("subsystem_vendor", vendor),
            ("subsystem_device", id),
            ("revision", "0x01"),
            ("irq", "0"),
            ("enable", "1"),
            ("numa_node", numa_node()),
            ("local_cpulist", &cpus.list),
            ("local_cpus", &cpus.mask),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("resource", "0x0000000000000000 0x0000000000000000 0x0000000000000000"),
        ];
        files.into_iter().for_each(|(name, text)| tree.file(path, name, text));
        let hex = |text: &str| text.trim_start_matches("0x").to_uppercase();
        let ids = format!("{}:{}", hex(vendor), hex(id));
        tree.file(
            path,
            "uevent",
            format!("PCI_CLASS={}\nPCI_ID={ids}\nPCI_SUBSYS_ID={ids}\nPCI_SLOT_NAME={address}", hex(class)),
        );
        tree.link(format!("{path}/subsystem"), "/sys/bus/pci");
        tree.link(format!("/sys/bus/pci/devices/{address}"), path);
    }
    // A bus is named by the first digits of its devices' addresses, and its node is a sibling of the devices on it.
    for (bus, parent_dir) in [("52ac:00", ROOT), ("52ac:01", BRIDGE)] {
        let path = format!("{parent_dir}/pci_bus/{bus}");
        tree.file(&path, "cpulistaffinity", cpus.list.as_str());
        tree.file(&path, "cpuaffinity", cpus.mask.as_str());
        tree.link(format!("/sys/class/pci_bus/{bus}"), path);
    }
    for interface in interfaces() {
        tree.link(format!("{PCI}/net/{interface}"), format!("/sys/class/net/{interface}"));
    }
}

/// Adds the RDMA device.
fn add_rdma(tree: &mut Tree) {
    let path = format!("{PCI}/infiniband/{NAME}");
    let guid = words(&Device::get().guid().to_ne_bytes());
    let files = [
        ("fw_ver", FIRMWARE),
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", "OpenRNIC software device"),
        ("hca_type", "rnic"),
        ("hw_rev", "1"),
        ("board_id", "rnic"),
    ];
    files.into_iter().for_each(|(name, text)| tree.file(&path, name, text));
    tree.file(&path, "uevent", format!("NAME={NAME}"));
    tree.link(format!("{path}/device"), "../../../52ac:01:00.0");
    tree.link(format!("{path}/subsystem"), "/sys/class/infiniband");
    tree.link(format!("/sys/class/infiniband/{NAME}"), format!("../..{}", &path["/sys".len()..]));
}

/// Adds the port of the RDMA device.
fn add_port(tree: &mut Tree) {
    let path = format!("{PCI}/infiniband/{NAME}/ports/{}", device::PORT);
    let capabilities = format!("{:#010x}", device::port().port_cap_flags);
    let files = [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("link_layer", "Ethernet"),
        ("rate", "100 Gb/sec (4X EDR)"),
        ("lid", "0x0"),
        ("sm_lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_sl", "0"),
        ("cap_mask", &capabilities),
        ("hw_counters/lifespan", "10"),
    ];
    files.into_iter().for_each(|(name, text)| tree.file(&path, name, text));
    tree.file(&path, "pkeys/0", format!("{:#06x}", device::PARTITION_KEY));
    // These directories exist, and are empty, when there is no address.
    for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
        tree.put(format!("{path}/{folder}"), Node::Directory { is_shared: false });
    }
    for (index, address) in wire::addresses().into_iter().enumerate() {
        tree.file(&path, &format!("gids/{index}"), words(&address.gid().raw));
        tree.file(&path, &format!("gid_attrs/types/{index}"), "RoCE v2");
        tree.file(&path, &format!("gid_attrs/ndevs/{index}"), address.interface);
    }
    for (name, counter) in Counter::all() {
        tree.put(format!("{path}/{name}"), Node::File(Contents::Count(counter)));
    }
}

/// Adds the device file of verbs.
fn add_uverbs(tree: &mut Tree) {
    let path = format!("{PCI}/infiniband_verbs/{FILE_NAME}");
    let files = [
        ("ibdev", NAME),
        ("abi_version", "1"),
        ("dev", "231:192"),
        ("uevent", "MAJOR=231\nMINOR=192\nDEVNAME=infiniband/uverbs0"),
    ];
    files.into_iter().for_each(|(name, text)| tree.file(&path, name, text));
    tree.link(format!("{path}/device"), "../../../52ac:01:00.0");
    tree.link(format!("{path}/subsystem"), "/sys/class/infiniband_verbs");
    let below_sys = &path["/sys".len()..];
    tree.link(format!("/sys/class/infiniband_verbs/{FILE_NAME}"), format!("../..{below_sys}"));
    tree.link("/sys/dev/char/231:192", format!("../..{below_sys}"));
    // The value that Linux has reported since 2.6.
    tree.file("/sys/class/infiniband_verbs", "abi_version", "6");
    tree.put(format!("/dev/infiniband/{FILE_NAME}"), Node::Device { major: 231, minor: 192 });
}

/// Adds the device file of the connection manager.
fn add_connection_manager(tree: &mut Tree) {
    let files =
        [("abi_version", "4"), ("dev", "10:121"), ("uevent", "MAJOR=10\nMINOR=121\nDEVNAME=infiniband/rdma_cm")];
    files.into_iter().for_each(|(name, text)| tree.file(RDMA_CM, name, text));
    tree.link(format!("{RDMA_CM}/subsystem"), "/sys/class/misc");
    tree.link("/sys/class/misc/rdma_cm", "../../devices/virtual/misc/rdma_cm");
    tree.link("/sys/dev/char/10:121", "../../devices/virtual/misc/rdma_cm");
    tree.put("/dev/infiniband/rdma_cm".to_owned(), Node::Device { major: 10, minor: 121 });
}

/// Returns the network interfaces through which packets are sent: those of the port's addresses, loopback only when
/// there is no other.
fn interfaces() -> Vec<String> {
    let mut names: Vec<String> = wire::addresses().into_iter().map(|address| address.interface).collect();
    names.sort();
    names.dedup();
    if names.len() > 1 {
        names.retain(|name| name != "lo");
    }
    names
}

/// The online processors, in the kernel's text formats.
struct Cpus {
    /// As a list of ranges.
    list: String,
    /// As a mask in words of 32 bits, highest word first.
    mask: String,
}

fn online_cpus() -> Cpus {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".to_owned());
    let list = list.trim().to_owned();
    Cpus { mask: mask_of(&list), list }
}

/// Converts a list of ranges to a mask: `0-2,34` to `00000004,00000007`.
fn mask_of(list: &str) -> String {
    let mut words = vec![0_u32; 1];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
        for cpu in first..=last.min(CPU_NUMBER_MAX) {
            if words.len() <= cpu / 32 {
                words.resize(cpu / 32 + 1, 0);
            }
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
}

/// Highest processor number, according to the largest number of processors that Linux can be built for.
const CPU_NUMBER_MAX: usize = 8_191;

/// Returns the NUMA node of the device: the only node of the host, or -1 (none) when there are several, because the
/// device's memory is allocated on the node on which the program runs.
fn numa_node() -> &'static str {
    let online = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    if matches!(online.trim(), "" | "0") { "0" } else { "-1" }
}

/// Formats bytes as the kernel formats GUIDs and GIDs: words of 16 bits separated by colons.
fn words(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1])).collect();
    words.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_are_converted_to_masks() {
        assert_eq!(mask_of("0-1"), "00000003");
        assert_eq!(mask_of("0-2,34"), "00000004,00000007");
        assert_eq!(mask_of("junk,4"), "00000010");
    }
}
