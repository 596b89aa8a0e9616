//! The device, its port and its addresses.

use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Write};
use std::ptr;
use std::sync::{Once, OnceLock};

use rnic_base::limits::{
    COMPLETIONS_MAX, MEMORY_REGIONS_MAX, MEMORY_WINDOWS_MAX, MESSAGE_BYTES_MAX, QUEUES_MAX, READS_IN_PROGRESS_MAX,
    SGE_MAX, WORK_REQUESTS_MAX,
};
use rnic_host::Settings;
use rnic_wire::cm::PathMtu;

use crate::abi::*;
use crate::context::Context;
use crate::errno::{Errno, Result, minus_one, number, pointer};
use crate::{object, odp, sysfs, wire};

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
fn put(into: &mut [c_char], text: &str) {
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

/// Returns the limits of the device that is opened as `context`: its port decides how many queue pairs it can have.
///
/// # Safety
/// `context` is from `ibv_open_device`.
unsafe fn attributes(context: *mut ibv_context) -> ibv_device_attr {
    // SAFETY: the caller's promise.
    let queue_pairs = unsafe { object::context(context) }.shared.queue_pairs_max;
    let max_qp = c_int::try_from(queue_pairs).unwrap_or(c_int::MAX);
    let reads = READS_OFFERED as c_int;
    let mut fw_ver = [0; 64];
    put(&mut fw_ver, FIRMWARE);
    ibv_device_attr {
        fw_ver,
        node_guid: Device::get().guid,
        sys_image_guid: Device::get().guid,
        max_mr_size: (1 << 40) - 1,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp,
        max_qp_wr: WORK_REQUESTS_MAX as c_int,
        device_cap_flags: CAPABILITIES,
        max_sge: SGE_MAX as c_int,
        max_sge_rd: SGE_MAX as c_int,
        max_cq: QUEUES_MAX as c_int,
        max_cqe: COMPLETIONS_MAX as c_int,
        max_mr: MEMORY_REGIONS_MAX as c_int - 1,
        max_pd: QUEUES_MAX as c_int,
        max_qp_rd_atom: reads,
        max_ee_rd_atom: 0,
        max_res_rd_atom: max_qp.saturating_mul(reads),
        max_qp_init_rd_atom: reads,
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: MEMORY_WINDOWS_MAX as c_int,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: ADDRESS_HANDLES_MAX as c_int,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: QUEUES_MAX as c_int,
        max_srq_wr: WORK_REQUESTS_MAX as c_int,
        max_srq_sge: SGE_MAX as c_int,
        max_pkeys: 1,
        local_ca_ack_delay: ACK_DELAY,
        phys_port_cnt: 1,
    }
}

const CAPABILITIES: u32 = IBV_DEVICE_RC_RNR_NAK_GEN
    | IBV_DEVICE_SYS_IMAGE_GUID
    | IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | IBV_DEVICE_XRC;

/// An identifier that nobody is assigned (its second bit says so): no vendor's code shall believe that this is its
/// hardware.
const VENDOR: u32 = 0x02_4f_52;

/// Reads and atomics in progress that are offered of those that the engine can have: programs often ask for all.
pub(crate) const READS_OFFERED: u32 = 16;

const _: () = assert!(READS_OFFERED <= READS_IN_PROGRESS_MAX);

/// How long an answer may take: 4.096 us times 2 to this power, 67 ms, some times what a busy process is off its core.
const ACK_DELAY: u8 = 14;

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

fn check_port(port: u32) -> Result<()> {
    if port == u32::from(PORT) { Ok(()) } else { Err(Errno::INVALID) }
}

/// Copies as much of `value` as the caller has room for; what room is behind it becomes zeros.
///
/// # Safety
/// `into` leads to `len` bytes that may be written.
unsafe fn copy_prefix<T>(value: &T, into: *mut T, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: both are at least so long, and `value` is ours. A program that was built with newer headers has more
    // fields than are known here: it finds zeros in them, as with an older kernel.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), into.cast::<u8>(), known);
        ptr::write_bytes(into.cast::<u8>().add(known), 0, len - known);
    };
}

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

/// `ibv_open_device`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_open_device(_device: *mut ibv_device) -> *mut ibv_context {
    pointer(Context::open(Device::get()))
}

/// `ibv_close_device`.
///
/// # Safety
/// `context` is from `ibv_open_device`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { Context::close(context) };
    0
}

/// `ibv_query_device`.
///
/// # Safety
/// `context` is from `ibv_open_device`, `attr` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *attr = attributes(context) };
    0
}

/// What `ibv_query_device_ex` calls.
///
/// # Safety
/// `context` is from `ibv_open_device`, `input` null or leads to a mask, `attr` to `len` bytes that may be written.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    if len < size_of::<ibv_device_attr>() || (!input.is_null() && unsafe { *input } != 0) {
        return libc::EINVAL;
    }
    // SAFETY: a structure of numbers, all of which may be zero.
    let mut all: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's promise.
    all.orig_attr = unsafe { attributes(context) };
    all.odp_caps = odp::CAPABILITIES;
    all.completion_timestamp_mask = u64::MAX;
    // Kilohertz: time stamps count nanoseconds.
    all.hca_core_clock = 1_000_000;
    all.xrc_odp_caps = odp::SHARED;
    all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags) | DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE;
    all.phys_port_cnt_ex = 1;
    // SAFETY: the caller's promise.
    unsafe { copy_prefix(&all, attr, len) };
    0
}

/// What `ibv_query_rt_values_ex` calls: the clock of time stamps.
///
/// # Safety
/// `values` may be read and written.
pub(crate) unsafe extern "C" fn query_rt_values(_context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: the caller's promise.
    let values = unsafe { &mut *values };
    if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
        return libc::EINVAL;
    }
    values.comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
    let now = time_stamp();
    values.raw_clock.tv_sec = (now / 1_000_000_000) as libc::time_t;
    values.raw_clock.tv_nsec = (now % 1_000_000_000) as libc::c_long;
    0
}

/// The clock of time stamps, nanoseconds.
pub(crate) fn time_stamp() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `ibv_query_port` as old programs call it: without the last field.
///
/// # Safety
/// `attr` leads to a structure of the short form that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, number: u8, attr: *mut ibv_port_attr) -> c_int {
    let short = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller's promise.
    unsafe { query_port(context, number, attr, short) }
}

/// What the inline `ibv_query_port` calls.
///
/// # Safety
/// `attr` leads to `len` bytes that may be written.
pub(crate) unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    number: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    self::number(check_port(u32::from(number)).map(|()| {
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&port(), attr, len) };
    }))
}

/// The `index`-th address of the port.
pub(crate) fn address(index: i64) -> Result<wire::Address> {
    let index = usize::try_from(index).map_err(|_| Errno::INVALID)?;
    wire::addresses().into_iter().nth(index).ok_or(Errno::INVALID)
}

/// `ibv_query_gid`.
///
/// # Safety
/// `gid` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(_context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    minus_one(check_port(u32::from(port)).and_then(|()| address(i64::from(index))).map(|address| {
        // SAFETY: the caller's promise.
        unsafe { *gid = address.gid() };
    }))
}

/// `ibv_query_gid_type`.
///
/// # Safety
/// `gid_type` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    port: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    // This private function has an enumeration of its own, in which RoCE v2 is 1.
    const SYSFS_ROCE_V2: u32 = 1;
    minus_one(check_port(u32::from(port)).and_then(|()| address(i64::from(index))).map(|_| {
        // SAFETY: the caller's promise.
        unsafe { *gid_type = SYSFS_ROCE_V2 };
    }))
}

fn entry(index: usize, address: &wire::Address) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: address.gid(),
        gid_index: index as u32,
        port_num: u32::from(PORT),
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: address.interface_index(),
    }
}

/// `_ibv_query_gid_ex`.
///
/// # Safety
/// `into` leads to `len` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    port: u32,
    index: u32,
    into: *mut ibv_gid_entry,
    flags: u32,
    len: usize,
) -> c_int {
    if flags != 0 {
        return libc::EOPNOTSUPP;
    }
    number(check_port(port).and_then(|()| address(i64::from(index))).map(|address| {
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&entry(index as usize, &address), into, len) };
    }))
}

/// `_ibv_query_gid_table`: answers how many entries it has written, or a negative error number.
///
/// # Safety
/// `into` leads to `count` entries of `len` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    into: *mut ibv_gid_entry,
    count: usize,
    flags: u32,
    len: usize,
) -> isize {
    let addresses = wire::addresses();
    if flags != 0 || len < size_of::<ibv_gid_entry>() {
        return -(libc::EOPNOTSUPP as isize);
    }
    if addresses.len() > count {
        return -(libc::EINVAL as isize);
    }
    for (index, address) in addresses.iter().enumerate() {
        // SAFETY: the caller's promise, and `index` is below `count`.
        unsafe { copy_prefix(&entry(index, address), into.byte_add(index * len), len) };
    }
    addresses.len() as isize
}

/// `ibv_query_pkey`.
///
/// # Safety
/// `key` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(_context: *mut ibv_context, port: u8, index: c_int, key: *mut u16) -> c_int {
    let first = if index == 0 { Ok(()) } else { Err(Errno::INVALID) };
    minus_one(check_port(u32::from(port)).and(first).map(|()| {
        // SAFETY: the caller's promise.
        unsafe { *key = PARTITION_KEY.to_be() };
    }))
}

/// `ibv_get_pkey_index`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, key: u16) -> c_int {
    let known = if key == PARTITION_KEY.to_be() { Ok(()) } else { Err(Errno::INVALID) };
    minus_one(check_port(u32::from(port)).and(known))
}

/// `ibv_read_sysfs_file`: answers how many bytes it has written, or -1.
///
/// # Safety
/// `dir` and `file` are C strings, `into` leads to `len` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    into: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (dir, file) = unsafe { (std::ffi::CStr::from_ptr(dir), std::ffi::CStr::from_ptr(file)) };
    let text = sysfs::read(&dir.to_string_lossy(), &file.to_string_lossy());
    let Some(text) = text.filter(|_| len > 0) else {
        Errno(libc::ENOENT).set();
        return -1;
    };
    let count = text.len().min(len - 1);
    // SAFETY: the caller's promise, and there is room for a zero behind it.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), into, count);
        *into.add(count) = 0;
    }
    count as c_int
}

/// `ibv_get_sysfs_path`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
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
