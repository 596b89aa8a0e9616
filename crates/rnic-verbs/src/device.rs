//! The device, its port and its addresses.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Write};
use std::ptr;
use std::sync::{Once, OnceLock};

use rnic_base::limits::{MESSAGE_BYTES_MAX, QUEUES_MAX, READS_IN_PROGRESS_MAX};
use rnic_host::Settings;
use rnic_wire::cm::PathMtu;

use crate::abi::*;
use crate::errno::{Errno, Result};
use crate::wire;

/// The one device.
pub(crate) struct Device {
    c: ibv_device,
    /// Network order.
    guid: u64,
}

// SAFETY: nothing in it changes after it has been made.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Its name.
pub(crate) const NAME: &str = "rnic0";
/// The name of its file, if it had one.
pub(crate) const FILE_NAME: &str = "uverbs0";
/// Where programs would look it up.
pub(crate) const SYSFS_PATH: &str = "/sys/class/infiniband/rnic0";
/// Where programs would look its file up.
pub(crate) const SYSFS_FILE_PATH: &str = "/sys/class/infiniband_verbs/uverbs0";
/// The version that it reports.
pub(crate) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// Completion vectors: programs spread their completion queues over them. There is no interrupt behind any.
pub(crate) const COMPLETION_VECTORS: c_int = 8;
/// Its one port.
pub(crate) const PORT: u8 = 1;
/// The default partition.
pub(crate) const PARTITION_KEY: u16 = 0xffff;
/// Bytes of inline data that a queue pair may ask for.
pub(crate) const INLINE_MAX: u32 = 4_096;
/// Address handles: as many as the engine takes protection domains, completion queues and shared receive queues each.
pub(crate) const ADDRESS_HANDLES_MAX: u32 = QUEUES_MAX;

impl Device {
    /// The device of this process.
    pub(crate) fn get() -> &'static Self {
        static DEVICE: OnceLock<Device> = OnceLock::new();
        DEVICE.get_or_init(|| {
            let mut c = ibv_device {
                ops: [ptr::null_mut(); 2],
                node_type: IBV_NODE_CA,
                transport_type: IBV_TRANSPORT_IB,
                name: [0; 64],
                dev_name: [0; 64],
                dev_path: [0; 256],
                ibdev_path: [0; 256],
            };
            put(&mut c.name, NAME);
            put(&mut c.dev_name, FILE_NAME);
            put(&mut c.dev_path, SYSFS_FILE_PATH);
            put(&mut c.ibdev_path, SYSFS_PATH);
            Self { c, guid: guid_of_host().to_be() }
        })
    }

    /// As programs name it. They only read what it leads to.
    pub(crate) fn pointer(&'static self) -> *mut ibv_device {
        (&raw const self.c).cast_mut()
    }

    /// Network order.
    pub(crate) fn guid(&self) -> u64 {
        self.guid
    }
}

/// Puts a string into a C array that is longer than it.
pub(crate) fn put(into: &mut [c_char], text: &str) {
    for (slot, byte) in into.iter_mut().zip(text.bytes()) {
        *slot = byte as c_char;
    }
}

/// A number that is the same in all processes of a host and hardly the same on two hosts, in the range of those that
/// are assigned locally.
fn guid_of_host() -> u64 {
    let identity = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname"]
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .flatten();
    // FNV-1a: the file says who we are, nothing here keeps a secret.
    let hash =
        identity.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash & 0x00ff_ffff_ffff_ffff | 0x0200_0000_0000_0000
}

/// What carries the packets of a device with this port.
pub(crate) fn wire(settings: &Settings, port: u16) -> String {
    format!("{}, port {port}", settings.wire())
}

/// With what the device was opened first: the variables of a process change, and what a file has.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The device is opened with these.
pub(crate) fn open_with(settings: &Settings) {
    SETTINGS.get_or_init(|| settings.clone());
}

/// With what it was opened, if it ever was.
pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Says once what this is.
pub(crate) fn announce(settings: &Settings, wire: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !settings.quiet {
            // One that is closed is no reason to stop.
            let _ = writeln!(io::stderr(), "{}", settings.describe(NAME, wire));
        }
    });
}

/// Reads and atomics in progress that are offered of those that the engine can have: programs often ask for all.
pub(crate) const READS_OFFERED: u32 = 16;

const _: () = assert!(READS_OFFERED <= READS_IN_PROGRESS_MAX);

/// What the port is like.
pub(crate) fn port() -> ibv_port_attr {
    ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: IBV_MTU_4096,
        active_mtu: active_mtu(),
        gid_tbl_len: wire::addresses().len() as c_int,
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: MESSAGE_BYTES_MAX as u32,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state: LINK_UP,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        ..ibv_port_attr::default()
    }
}

/// What programs take for the payload of a packet. Between processes of ours packets are as large as the path carries;
/// with real RoCEv2 peers they are as large as programs agree on, which go by this: what every interface carries.
fn active_mtu() -> u32 {
    if !settings().is_some_and(|settings| settings.real_roce_peers) {
        return IBV_MTU_4096;
    }
    let addresses = rnic_host::local_addresses().unwrap_or_default();
    let carried = addresses.iter().filter(|address| !address.is_loopback).filter_map(rnic_host::probe::wire_mtu);
    let least = carried.min().and_then(PathMtu::at_most).map_or(IBV_MTU_4096, |mtu| mtu.code().get());
    least.clamp(IBV_MTU_256, IBV_MTU_4096)
}

/// Four lanes of 25 Gbit/s: what programs print as 100 Gbit/s. It is the order of what a good day brings.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
const LINK_UP: u8 = 5;
/// The same in units of 100 Mbit/s.
pub(crate) const SPEED: u64 = 1_000;

/// `ibv_get_device_list`.
///
/// # Safety
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let list = list_of(Device::get().pointer());
    if !count.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *count = c_int::from(!list.is_null()) };
    }
    list
}

/// A list of one pointer, from the C library's allocator: there are programs that give it back with `free` (qperf).
pub(crate) fn list_of<T>(only: *mut T) -> *mut *mut T {
    // SAFETY: asks for room for two pointers.
    let list = unsafe { libc::calloc(2, size_of::<*mut T>()) }.cast::<*mut T>();
    if !list.is_null() {
        // SAFETY: there is room for two; the second stays null and ends the list.
        unsafe { *list = only };
    }
    list
}

/// `ibv_free_device_list`.
///
/// # Safety
/// `list` is null or from `ibv_get_device_list`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from the C library's allocator, or is null.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_name(_device: *mut ibv_device) -> *const c_char {
    Device::get().c.name.as_ptr()
}

/// `ibv_get_device_guid`, in network order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    Device::get().guid
}

/// `ibv_get_device_index`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    0
}

/// The clock of time stamps, nanoseconds.
pub(crate) fn time_stamp() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The `index`-th address of the port.
pub(crate) fn address(index: i64) -> Result<wire::Address> {
    let index = usize::try_from(index).map_err(|_| Errno::INVALID)?;
    wire::addresses().into_iter().nth(index).ok_or(Errno::INVALID)
}

/// `ibv_fork_init`: nothing is pinned, so that a fork harms nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

/// `ibv_dontfork_range`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// `ibv_dofork_range`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
