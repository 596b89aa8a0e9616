//! Address handles, and the addresses of received datagrams.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr};

use rnic_host::{Notice, PackedIpFields};

use crate::abi::*;
use crate::context::Context;
use crate::core::{Ah, Core};
use crate::device::{self, ADDRESS_HANDLES_MAX, PORT};
use crate::errno::{Errno, Result, number, pointer};
use crate::object::AhObject;
use crate::wire;

/// Returns the remote and the local IP address that `attr` describes.
///
/// # Errors
/// When `attr` contains no address, or a source address that is not one of this port's.
pub(crate) fn ip_addresses(core: &Core, attr: &ibv_ah_attr) -> Result<(IpAddr, IpAddr)> {
    if attr.port_num != PORT {
        return Err(Errno::INVALID);
    }
    if attr.is_global == 0 {
        // Ethernet has no local identifiers (LIDs): without a GID there is no address.
        let loopback = core.lids_are_loopback.then(|| device::address(0)).ok_or(Errno::INVALID)??.ip;
        return Ok((loopback, loopback));
    }
    let remote = wire::ip_of(&attr.grh.dgid).ok_or(Errno::INVALID)?;
    let local = device::address(i64::from(attr.grh.sgid_index))?.ip;
    Ok((remote, local))
}

/// Does the same as [`ip_addresses`], for an address that the program is about to use: one without a GID is reported to
/// the user, because the program's own message seldom names the cause.
pub(crate) fn used_ip_addresses(core: &Core, attr: &ibv_ah_attr) -> Result<(IpAddr, IpAddr)> {
    let addresses = ip_addresses(core, attr);
    if addresses.is_err() && attr.port_num == PORT && attr.is_global == 0 {
        core.notify_user(&Notice::NoGid);
    }
    addresses
}

fn create(core: &mut Core, pd: u32, attr: &ibv_ah_attr) -> Result<u32> {
    let (remote, local) = used_ip_addresses(core, attr)?;
    if core.ahs.len() >= ADDRESS_HANDLES_MAX as usize {
        return Err(Errno::NO_MEMORY);
    }
    let known = core.pds.get_mut(pd as usize).ok_or(Errno::INVALID)?;
    let peer = wire::acquire(&mut core.nic, remote, local)?;
    known.address_handles += 1;
    let route = &attr.grh;
    let ip_fields = match attr.is_global {
        0 => PackedIpFields::NONE,
        _ => PackedIpFields::new(route.traffic_class, route.hop_limit, route.flow_label),
    };
    Ok(core.ahs.insert(Ah { peer, pd, ip_fields }) as u32)
}

/// Implements `ibv_create_ah`.
///
/// # Safety
/// `pd` is a valid protection domain, `attr` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: guaranteed by the caller.
    let (context, handle, attr) = unsafe { ((*pd).context, (*pd).handle, &*attr) };
    // SAFETY: as above.
    let guard = unsafe { Context::of(context) }.shared.enter();
    pointer(guard.and_then(|mut core| {
        let handle = create(&mut core, handle, attr)?;
        Ok(Box::into_raw(Box::new(AhObject { c: ibv_ah { context, pd, handle } })).cast())
    }))
}

/// Implements `ibv_destroy_ah`.
///
/// # Safety
/// `ah` is a valid address handle, and not used again if this succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (context, handle) = unsafe { (Context::of((*ah).context), (*ah).handle) };
    number(context.shared.enter().and_then(|mut core| {
        let known = core.ahs.try_remove(handle as usize).ok_or(Errno::INVALID)?;
        core.retire(known.peer);
        if let Some(pd) = core.pds.get_mut(known.pd as usize) {
            pd.address_handles -= 1;
        }
        // SAFETY: `ibv_create_ah` allocated it as a `Box`, and the caller gives up ownership.
        drop(unsafe { Box::from_raw(ah.cast::<AhObject>()) });
        Ok(())
    }))
}

/// Returns source address, destination address and header fields such as the traffic class from the 40 bytes that
/// precede a received datagram.
///
/// An IPv4 header occupies the last 20 of them; the first bytes then do not form a valid IPv6 header.
fn header_of(grh: &ibv_grh) -> (IpAddr, IpAddr, PackedIpFields) {
    // The last 20 bytes: the destination GID and the last four bytes of the source GID.
    let mut v4 = [0u8; 20];
    v4[..4].copy_from_slice(&grh.sgid.raw[12..]);
    v4[4..].copy_from_slice(&grh.dgid.raw);
    let first_word = u32::from_be(grh.version_tclass_flow);
    let is_v6 = first_word >> 28 == 6;
    if v4[0] == 0x45 && !is_v6 {
        let ipv4_at =
            |offset: usize| IpAddr::from(Ipv4Addr::new(v4[offset], v4[offset + 1], v4[offset + 2], v4[offset + 3]));
        return (ipv4_at(12), ipv4_at(16), PackedIpFields::new(v4[1], v4[8], 0));
    }
    let gid_ip = |gid: &ibv_gid| IpAddr::from(gid.raw).to_canonical();
    (gid_ip(&grh.sgid), gid_ip(&grh.dgid), PackedIpFields::new((first_word >> 20) as u8, grh.hop_limit, first_word))
}

fn from_completion(port: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Result<ibv_ah_attr> {
    if port != PORT || wc.wc_flags & IBV_WC_GRH == 0 || grh.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the program passes the header that belongs to the completion; buffers need not be aligned.
    let grh = unsafe { grh.read_unaligned() };
    let (remote, local, ip_fields) = header_of(&grh);
    let index = wire::addresses().iter().position(|address| address.ip == local).ok_or(Errno::INVALID)?;
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: wire::gid_of(remote),
            flow_label: ip_fields.flow_label(),
            sgid_index: index as u8,
            hop_limit: ip_fields.hop_limit(),
            traffic_class: ip_fields.traffic_class(),
        },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    })
}

/// Implements `ibv_init_ah_from_wc`.
///
/// # Safety
/// `wc` may be read, `grh` is null or may be read, `attr` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let wc = unsafe { &*wc };
    number(from_completion(port, wc, grh).map(|found| {
        // SAFETY: guaranteed by the caller.
        unsafe { *attr = found };
    }))
}

/// Implements `ibv_create_ah_from_wc`.
///
/// # Safety
/// `pd` is a valid protection domain, `wc` may be read, `grh` is null or may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: guaranteed by the caller.
    let wc = unsafe { &*wc };
    match from_completion(port, wc, grh) {
        // SAFETY: guaranteed by the caller.
        Ok(mut attr) => unsafe { ibv_create_ah(pd, &raw mut attr) },
        Err(errno) => pointer(Err(errno)),
    }
}

/// Implements `ibv_resolve_eth_l2_from_gid`: not supported, because this library writes no Ethernet headers.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _mac: *mut u8,
    _vlan: *mut u16,
) -> c_int {
    number(Err(Errno::UNSUPPORTED))
}
