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

/// The only device of this library.
pub(crate) struct Device {
    c: ibv_device,
    /// In network byte order.
    guid: u64,
}

// SAFETY: it is immutable after its creation.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Name of the device.
pub(crate) const NAME: &str = "rnic0";
/// Name that the device file of the device would have.
pub(crate) const FILE_NAME: &str = "uverbs0";
/// Path at which programs would expect the device in sysfs.
pub(crate) const SYSFS_PATH: &str = "/sys/class/infiniband/rnic0";
/// Path at which programs would expect the device file in sysfs.
pub(crate) const SYSFS_FILE_PATH: &str = "/sys/class/infiniband_verbs/uverbs0";
/// Reported firmware version.
pub(crate) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// Number of completion vectors: programs distribute their completion queues over them. There are no interrupts, so
/// the choice has no effect.
pub(crate) const COMPLETION_VECTORS: c_int = 8;
/// Number of the device's only port.
pub(crate) const PORT: u8 = 1;
/// The default partition key.
pub(crate) const PARTITION_KEY: u16 = 0xffff;
/// Maximum number of bytes of inline data that a queue pair may request.
pub(crate) const INLINE_MAX: u32 = 4_096;
/// Maximum number of address handles: equal to the engine's limit for protection domains, for completion queues and for
/// shared receive queues.
pub(crate) const ADDRESS_HANDLES_MAX: u32 = QUEUES_MAX;

impl Device {
    /// Returns the device of this process.
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

    /// Returns the device as the C pointer that programs use. Programs only read the structure that it points to.
    pub(crate) fn pointer(&'static self) -> *mut ibv_device {
        (&raw const self.c).cast_mut()
    }

    /// Returns the GUID in network byte order.
    pub(crate) fn guid(&self) -> u64 {
        self.guid
    }
}

/// Copies a string into a C array that is longer than the string.
pub(crate) fn put(into: &mut [c_char], text: &str) {
    for (slot, byte) in into.iter_mut().zip(text.bytes()) {
        *slot = byte as c_char;
    }
}

/// Returns a number that is the same in all processes of a host and very unlikely to be equal on two hosts, in the
/// range of locally assigned GUIDs.
fn guid_of_host() -> u64 {
    let identity = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname"]
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .flatten();
    // FNV-1a is sufficient: the file identifies the host, and nothing here is secret.
    let hash =
        identity.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash & 0x00ff_ffff_ffff_ffff | 0x0200_0000_0000_0000
}

/// Returns a description of the transport medium that carries the packets of a device with this port.
pub(crate) fn wire(settings: &Settings, port: u16) -> String {
    format!("{}, port {port}", settings.wire())
}

/// Settings with which the device was first opened, stored because the environment variables and the settings file
/// may change later.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Records the settings with which the device is opened; only the first call has an effect.
pub(crate) fn open_with(settings: &Settings) {
    SETTINGS.get_or_init(|| settings.clone());
}

/// Returns the settings of the first opening, if the device was ever opened.
pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Prints a description of the device to standard error, once per process.
pub(crate) fn announce(settings: &Settings, wire: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !settings.quiet {
            // Errors are ignored, because standard error may be closed.
            let _ = writeln!(io::stderr(), "{}", settings.describe(NAME, wire));
        }
    });
}

/// Reported maximum of outstanding RDMA Reads and atomics, fewer than the engine supports, because programs often
/// request the maximum.
pub(crate) const READS_OFFERED: u32 = 16;

const _: () = assert!(READS_OFFERED <= READS_IN_PROGRESS_MAX);

/// Returns the attributes of the port.
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

/// Returns the active MTU of the port as a value of `ibv_mtu`. With real RoCEv2 peers it is the largest one that fits
/// into the MTU of every interface except loopback, because programs choose the path MTU from it. Otherwise it is
/// `IBV_MTU_4096`: between OpenRNIC processes, packets are as large as the path allows, whatever this value is.
fn active_mtu() -> u32 {
    if !settings().is_some_and(|settings| settings.real_roce_peers) {
        return IBV_MTU_4096;
    }
    let addresses = rnic_host::local_addresses().unwrap_or_default();
    let mtus = addresses.iter().filter(|address| !address.is_loopback).filter_map(rnic_host::probe::wire_mtu);
    let smallest = mtus.min().and_then(PathMtu::at_most).map_or(IBV_MTU_4096, |mtu| mtu.code().get());
    smallest.clamp(IBV_MTU_256, IBV_MTU_4096)
}

/// Link width code of four lanes, at 25 Gbit/s each, which programs print as 100 Gbit/s: the order of magnitude of
/// the throughput under good conditions.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
const LINK_UP: u8 = 5;
/// The speed of the link in units of 100 Mbit/s.
pub(crate) const SPEED: u64 = 1_000;

/// Implements `ibv_get_device_list`.
///
/// # Safety
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let list = list_of(Device::get().pointer());
    if !count.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { *count = c_int::from(!list.is_null()) };
    }
    list
}

/// Returns a null-terminated list of one pointer, from the C library's allocator, because some programs release it with
/// `free` (qperf).
pub(crate) fn list_of<T>(entry: *mut T) -> *mut *mut T {
    // SAFETY: allocates zeroed space for two pointers.
    let list = unsafe { libc::calloc(2, size_of::<*mut T>()) }.cast::<*mut T>();
    if !list.is_null() {
        // SAFETY: there is space for two pointers; the second stays null and terminates the list.
        unsafe { *list = entry };
    }
    list
}

/// Implements `ibv_free_device_list`.
///
/// # Safety
/// `list` is null or from `ibv_get_device_list`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the pointer was allocated by the C library's allocator, or is null.
    unsafe { libc::free(list.cast()) };
}

/// Implements `ibv_get_device_name`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_name(_device: *mut ibv_device) -> *const c_char {
    Device::get().c.name.as_ptr()
}

/// Implements `ibv_get_device_guid`; returns the GUID in network byte order.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    Device::get().guid
}

/// Implements `ibv_get_device_index`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    0
}

/// Returns the time of the clock used for time stamps, in nanoseconds.
pub(crate) fn time_stamp() -> u64 {
    rnic_host::monotonic_ns()
}

/// Returns the address with number `index` in the GID table of the port.
pub(crate) fn address(index: i64) -> Result<wire::Address> {
    let index = usize::try_from(index).map_err(|_| Errno::INVALID)?;
    wire::addresses().into_iter().nth(index).ok_or(Errno::INVALID)
}

/// Implements `ibv_fork_init`: a no-op, because no memory is pinned, so a fork causes no problem.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Implements `ibv_is_fork_initialized`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

/// Implements `ibv_dontfork_range`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Implements `ibv_dofork_range`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
