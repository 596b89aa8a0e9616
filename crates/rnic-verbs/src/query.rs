//! Queries: limits of the device, its clock, its port, tables of GIDs and partition keys.

use std::ffi::c_int;
use std::ptr;

use rnic_base::limits::{
    COMPLETIONS_MAX, MEMORY_REGIONS_MAX, MEMORY_WINDOWS_MAX, QUEUES_MAX, SGE_MAX, WORK_REQUESTS_MAX,
};

use crate::abi::*;
use crate::context::Context;
use crate::device::{
    self, ADDRESS_HANDLES_MAX, Device, FIRMWARE, PARTITION_KEY, PORT, READS_OFFERED, address, port, time_stamp,
};
use crate::errno::{Errno, Result, minus_one, number};
use crate::{odp, qp, wire};

/// Returns the limits of the device opened as `context`: its port determines the maximum number of queue pairs.
///
/// # Safety
/// `context` is from `ibv_open_device`.
unsafe fn attributes(context: *mut ibv_context) -> ibv_device_attr {
    // SAFETY: guaranteed by the caller.
    let queue_pairs = unsafe { Context::of(context) }.shared.queue_pairs_max;
    let max_qp = c_int::try_from(queue_pairs).unwrap_or(c_int::MAX);
    let reads = READS_OFFERED as c_int;
    let mut fw_ver = [0; 64];
    device::put(&mut fw_ver, FIRMWARE);
    ibv_device_attr {
        fw_ver,
        node_guid: Device::get().guid(),
        sys_image_guid: Device::get().guid(),
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

/// Vendor identifier that is not assigned to any vendor (indicated by its second bit), so that no vendor-specific code
/// treats this device as its hardware.
const VENDOR: u32 = 0x02_4f_52;

/// Maximum acknowledgement delay: 4.096 us times 2 to this power, 67 ms, several times the time for which a busy
/// process is descheduled.
const ACK_DELAY: u8 = 14;

fn check_port(port: u32) -> Result<()> {
    if port == u32::from(PORT) { Ok(()) } else { Err(Errno::INVALID) }
}

/// Copies as much of `value` as the caller has space for; remaining space is filled with zeros.
///
/// # Safety
/// `into` points to `len` writable bytes.
unsafe fn copy_prefix<T>(value: &T, into: *mut T, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: both are at least that long, and `value` is owned by this library. A program built with newer headers
    // has more fields than are known here: these are set to zero, as by an older kernel.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), into.cast::<u8>(), known);
        ptr::write_bytes(into.cast::<u8>().add(known), 0, len - known);
    };
}

/// Implements `ibv_query_device`.
///
/// # Safety
/// `context` is from `ibv_open_device`, `attr` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { *attr = attributes(context) };
    0
}

/// Implements `ibv_query_device_ex`.
///
/// # Safety
/// `context` is from `ibv_open_device`, `input` is null or points to a mask, `attr` points to `len` writable bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    if len < size_of::<ibv_device_attr>() || (!input.is_null() && unsafe { *input } != 0) {
        return libc::EINVAL;
    }
    // SAFETY: a structure of numbers, all of which may be zero.
    let mut all: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    // SAFETY: guaranteed by the caller.
    all.packet_pacing_caps = qp::rate::capabilities(unsafe { Context::of(context).shared.rate_limit_range });
    // SAFETY: guaranteed by the caller.
    all.orig_attr = unsafe { attributes(context) };
    all.odp_caps = odp::CAPABILITIES;
    all.completion_timestamp_mask = u64::MAX;
    // In kHz: time stamps count nanoseconds.
    all.hca_core_clock = 1_000_000;
    all.xrc_odp_caps = odp::SHARED;
    all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags) | DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE;
    all.phys_port_cnt_ex = 1;
    // SAFETY: guaranteed by the caller.
    unsafe { copy_prefix(&all, attr, len) };
    0
}

/// Implements `ibv_query_rt_values_ex`: returns the clock of time stamps.
///
/// # Safety
/// `values` may be read and written.
pub(crate) unsafe extern "C" fn query_rt_values(_context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
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

/// Implements `ibv_query_port` as old programs call it: without the last field.
///
/// # Safety
/// `attr` points to a writable structure of the short form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, number: u8, attr: *mut ibv_port_attr) -> c_int {
    let short = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: guaranteed by the caller.
    unsafe { query_port(context, number, attr, short) }
}

/// Implements the function that the inline `ibv_query_port` calls.
///
/// # Safety
/// `attr` points to `len` writable bytes.
pub(crate) unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    number: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    self::number(check_port(u32::from(number)).map(|()| {
        // SAFETY: guaranteed by the caller.
        unsafe { copy_prefix(&port(), attr, len) };
    }))
}

/// Implements `ibv_query_gid`.
///
/// # Safety
/// `gid` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(_context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    minus_one(check_port(u32::from(port)).and_then(|()| address(i64::from(index))).map(|address| {
        // SAFETY: guaranteed by the caller.
        unsafe { *gid = address.gid() };
    }))
}

/// Implements `ibv_query_gid_type`.
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
    // This private function uses a separate enumeration, in which RoCE v2 is 1.
    const SYSFS_ROCE_V2: u32 = 1;
    minus_one(check_port(u32::from(port)).and_then(|()| address(i64::from(index))).map(|_| {
        // SAFETY: guaranteed by the caller.
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

/// Implements `_ibv_query_gid_ex`.
///
/// # Safety
/// `into` points to `len` writable bytes.
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
        // SAFETY: guaranteed by the caller.
        unsafe { copy_prefix(&entry(index as usize, &address), into, len) };
    }))
}

/// Implements `_ibv_query_gid_table`: returns the number of entries written, or a negative error number.
///
/// # Safety
/// `into` points to `count` writable entries of `len` bytes.
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
        // SAFETY: guaranteed by the caller, and `index` is below `count`.
        unsafe { copy_prefix(&entry(index, address), into.byte_add(index * len), len) };
    }
    addresses.len() as isize
}

/// Implements `ibv_query_pkey`.
///
/// # Safety
/// `key` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(_context: *mut ibv_context, port: u8, index: c_int, key: *mut u16) -> c_int {
    let first = if index == 0 { Ok(()) } else { Err(Errno::INVALID) };
    minus_one(check_port(u32::from(port)).and(first).map(|()| {
        // SAFETY: guaranteed by the caller.
        unsafe { *key = PARTITION_KEY.to_be() };
    }))
}

/// Implements `ibv_get_pkey_index`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, key: u16) -> c_int {
    let known = if key == PARTITION_KEY.to_be() { Ok(()) } else { Err(Errno::INVALID) };
    minus_one(check_port(u32::from(port)).and(known))
}
