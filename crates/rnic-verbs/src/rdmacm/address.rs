//! Addresses: binding, address resolution and route resolution.
//!
//! Routing is done by the kernel, so resolving is a lookup in the routing table that returns immediately; programs
//! are nevertheless notified through their channel. The source address must be in the port's GID table.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use rnic_host::cm::{roce_mtu_towards, source_address_for};

use rnic_wire::cm::PathMtu;

use super::abi::*;
use super::id::IdObject;
use super::service::Cm;
use super::service::entry::{PATH_MTU, Stage};
use super::service::pending::{Arrival, Pending};
use super::{devices, id};
use crate::abi::*;
use crate::errno::{Errno, Result};

/// Returns the path MTU code for the queue pairs at both ends of a connection. Real RoCEv2 peers send packets as large
/// as this value, so for them it is what the path allows.
pub(super) fn path_mtu(from: IpAddr, to: IpAddr) -> u32 {
    let bytes = devices::has_real_roce_peers().then(|| roce_mtu_towards(to, from)).and_then(std::io::Result::ok);
    let code = bytes.and_then(PathMtu::at_most).map_or(PATH_MTU, |mtu| mtu.code().get());
    code.clamp(IBV_MTU_256, PATH_MTU)
}

/// Packet lifetime in InfiniBand's encoding: 4.096 us * 2^16 = 0.27 s.
const PACKET_LIFE_TIME: u8 = 16;

/// 100 Gbit/s in InfiniBand's encoding.
const RATE: u8 = 16;

/// Selector "exactly", for the fields of a path record that could also mean "at most".
const SELECTOR_EXACTLY: u8 = 2;

const HOP_LIMIT: u8 = 64;

/// Reads a C socket address.
///
/// # Safety
/// `address` may be read for the length that its family implies.
pub(super) unsafe fn read(address: *const libc::sockaddr) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: guaranteed by the caller; alignment is not required.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(ip, u16::from_be(address.sin6_port), 0, address.sin6_scope_id).into())
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Converts an address to a C socket address.
pub(super) fn write(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all zeros is an address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let storage_ptr: *mut libc::sockaddr_storage = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            let sin = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has space and alignment for any address.
            unsafe { storage_ptr.cast::<libc::sockaddr_in>().write(sin) };
        }
        SocketAddr::V6(address) => {
            let sin6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { storage_ptr.cast::<libc::sockaddr_in6>().write(sin6) };
        }
    }
    storage
}

/// Converts an IP address to its GID in the port's table.
pub(super) fn gid(ip: IpAddr) -> ibv_gid {
    match ip {
        IpAddr::V4(ip) => ibv_gid { raw: ip.to_ipv6_mapped().octets() },
        IpAddr::V6(ip) => ibv_gid { raw: ip.octets() },
    }
}

/// Returns the local and the remote address of an identifier; `None` where it is not set yet.
pub(super) fn of(c: &rdma_cm_id) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let read_address = |storage: &libc::sockaddr_storage| {
        // SAFETY: the storage may be read for the length of an address of any family.
        unsafe { read(ptr::from_ref(storage).cast()) }.ok()
    };
    (read_address(&c.route.addr.src_storage), read_address(&c.route.addr.dst_storage))
}

/// Assigns an identifier to the device; there is only one.
fn attach(c: &mut rdma_cm_id) -> Result<()> {
    set_device(c, devices::open()?);
    Ok(())
}

fn set_device(c: &mut rdma_cm_id, (context, pd): (*mut ibv_context, *mut ibv_pd)) {
    (c.verbs, c.port_num) = (context, 1);
    if c.pd.is_null() {
        c.pd = pd;
    }
}

pub(super) fn bind(this: &mut IdObject, address: SocketAddr) -> Result<()> {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    if address.ip().is_multicast() {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    devices::prepare_peers()?;
    if !address.ip().is_unspecified() {
        devices::index_of(gid(address.ip())).map_err(|_| Errno(libc::EADDRNOTAVAIL))?;
    }
    // A loopback address selects no device, as with hardware adapters, although this device could serve it: libfabric
    // binds to loopback and then, if that did not select a device, uses the addresses of all devices.
    let names_device = !address.ip().is_unspecified() && !address.ip().is_loopback();
    // Open the device before binding the port, so that a failure to open it leaves the identifier unchanged.
    let device = if names_device { Some(devices::open()?) } else { None };
    let mut cm = Cm::lock()?;
    if cm.entry(this.key)?.stage != Stage::New {
        return Err(Errno::INVALID);
    }
    let bound = cm.bind(this.key, address)?;
    cm.entry(this.key)?.stage = Stage::Bound;
    drop(cm);
    this.c.route.addr.src_storage = write(bound);
    if let Some(device) = device {
        set_device(&mut this.c, device);
    }
    Ok(())
}

/// Binds an identifier that the program has not bound before listening on it: to every address, and to a port that
/// the kernel chooses.
pub(super) fn bind_any(this: &mut IdObject) -> Result<()> {
    bind(this, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))
        .or_else(|_| bind(this, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)))
}

pub(super) fn resolve(this: &mut IdObject, source: Option<SocketAddr>, to: SocketAddr) -> Result<()> {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    if let Some(source) = source {
        let stage = Cm::lock()?.entry(this.key)?.stage;
        if stage == Stage::New {
            bind(this, source)?;
        }
    }
    {
        let mut cm = Cm::lock()?;
        if !matches!(cm.entry(this.key)?.stage, Stage::New | Stage::Bound) {
            return Err(Errno::INVALID);
        }
    }
    this.c.route.addr.dst_storage = write(to);
    let (kind, status) = match bind_towards(this, to) {
        Ok(()) => (RDMA_CM_EVENT_ADDR_RESOLVED, 0),
        Err(errno) => (RDMA_CM_EVENT_ADDR_ERROR, -errno.0),
    };
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    if status == 0 {
        entry.stage = Stage::Resolved;
    }
    entry.events.push(Pending::plain(this.key, kind, status));
    Ok(())
}

/// Gets the source address from the kernel's routing table, binds a port there, and assigns the device.
fn bind_towards(this: &mut IdObject, to: SocketAddr) -> Result<()> {
    if to.ip().is_unspecified() {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    let bound = of(&this.c).0;
    let from = bound.map(|address| address.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
    if from.is_some_and(|ip| ip.is_ipv4() != to.is_ipv4()) {
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    let errno = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EHOSTUNREACH));
    let source = source_address_for(to.ip(), from).map_err(errno)?;
    devices::index_of(gid(source))?;
    devices::prepare_peers()?;
    let mut cm = Cm::lock()?;
    let port = match cm.entry(this.key)?.port {
        Some(_) => bound.map_or(0, |address| address.port()),
        None => cm.bind_anonymously(this.key, SocketAddr::new(source, 0))?.port(),
    };
    drop(cm);
    this.c.route.addr.src_storage = write(SocketAddr::new(source, port));
    this.c.route.addr.ibaddr = rdma_ib_addr { sgid: gid(source), dgid: gid(to.ip()), pkey: 0xffff };
    attach(&mut this.c)
}

/// Fills in the path record of an identifier after its resolution.
fn describe_path(c: &mut rdma_cm_id) {
    let (Some(source), Some(to)) = of(c) else { return };
    let (sgid, dgid) = (gid(source.ip().to_canonical()), gid(to.ip().to_canonical()));
    c.route.addr.ibaddr = rdma_ib_addr { sgid, dgid, pkey: 0xffff };
    let path = ibv_sa_path_rec {
        dgid,
        sgid,
        hop_limit: HOP_LIMIT,
        reversible: 1,
        numb_path: 1,
        pkey: 0xffff,
        mtu_selector: SELECTOR_EXACTLY,
        mtu: path_mtu(source.ip().to_canonical(), to.ip().to_canonical()) as u8,
        rate_selector: SELECTOR_EXACTLY,
        rate: RATE,
        packet_life_time_selector: SELECTOR_EXACTLY,
        packet_life_time: PACKET_LIFE_TIME,
        ..ibv_sa_path_rec::default()
    };
    if c.route.path_rec.is_null() {
        c.route.path_rec = Box::into_raw(Box::new(path));
    } else {
        // SAFETY: the path record is owned by this identifier.
        unsafe { *c.route.path_rec = path };
    }
    c.route.num_paths = 1;
}

pub(super) fn resolve_route(this: &mut IdObject) -> Result<()> {
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    entry.advance(&[Stage::Resolved], Stage::Routed)?;
    describe_path(&mut this.c);
    entry.events.push(Pending::plain(this.key, RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    Ok(())
}

/// Fills in the addresses and the path of an identifier from a received connection request.
pub(super) fn describe_arrival(c: &mut rdma_cm_id, arrival: &Arrival) -> Result<()> {
    let (local, remote) = (arrival.addresses.src(), arrival.addresses.dst());
    // The low bits of a service ID are the port that programs use, independent of the port that received the message.
    let local = SocketAddr::new(local.ip(), arrival.service.0 as u16);
    c.route.addr.src_storage = write(local);
    c.route.addr.dst_storage = write(SocketAddr::new(remote.ip(), arrival.source_port));
    attach(c)?;
    describe_path(c);
    Ok(())
}

/// Returns the address vector to the remote end.
///
/// # Safety
/// `id` is valid.
pub(super) unsafe fn to_peer(id: *mut rdma_cm_id) -> Result<ibv_ah_attr> {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { id::object(id) };
    let (Some(source), Some(to)) = of(&this.c) else { return Err(Errno::INVALID) };
    let traffic_class = Cm::lock()?.entry(this.key)?.options.traffic_class;
    let sgid_index = devices::index_of(gid(source.ip().to_canonical()))?;
    let dgid = gid(to.ip().to_canonical());
    let grh = ibv_global_route { dgid, flow_label: 0, sgid_index, hop_limit: HOP_LIMIT, traffic_class };
    Ok(ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() })
}

fn port(storage: &libc::sockaddr_storage) -> u16 {
    // SAFETY: the storage may be read for the length of an address of any family.
    unsafe { read(ptr::from_ref(storage).cast()) }.map_or(0, |address| address.port()).to_be()
}

/// Implements `rdma_get_src_port`; returns the port in network byte order.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: guaranteed by the caller.
    port(unsafe { &(*id).route.addr.src_storage })
}

/// Implements `rdma_get_dst_port`; returns the port in network byte order.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: guaranteed by the caller.
    port(unsafe { &(*id).route.addr.dst_storage })
}
