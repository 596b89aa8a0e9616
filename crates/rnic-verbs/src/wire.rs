//! Addresses: conversion between GIDs, IP addresses and peers of the NIC.

use std::net::{IpAddr, Ipv6Addr};

use rnic_engine::PeerId;
use rnic_host::{Nic, NicConfig, NicError, Settings};

use crate::abi::ibv_gid;
use crate::cancel::CancellationGuard;

/// An address of this host that has a GID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) interface: String,
}

impl Address {
    pub(crate) fn gid(&self) -> ibv_gid {
        gid_of(self.ip)
    }

    /// Returns the index of its interface; 0 when the interface no longer exists.
    pub(crate) fn interface_index(&self) -> u32 {
        let name = std::ffi::CString::new(self.interface.as_str()).unwrap_or_default();
        // SAFETY: a C string that outlives the call.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    }
}

/// Returns the GID of an address; an IPv4 address is mapped into IPv6.
pub(crate) fn gid_of(ip: IpAddr) -> ibv_gid {
    let v6 = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ibv_gid { raw: v6.octets() }
}

/// Returns the address of a GID, unless it is unspecified or a multicast address.
pub(crate) fn ip_of(gid: &ibv_gid) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(gid.raw).to_canonical();
    (!ip.is_unspecified() && !ip.is_multicast()).then_some(ip)
}

/// Opens a NIC that shares this machine's addresses with others.
///
/// # Errors
/// As [`Nic::open`].
pub(crate) fn open(settings: &Settings) -> Result<Nic, NicError> {
    Nic::open(settings.to_nic_config(NicConfig::shared()))
}

/// Returns the addresses of this host, in the order of the GID table.
pub(crate) fn addresses() -> Vec<Address> {
    let _cancellation_guard = CancellationGuard::begin();
    let found = rnic_host::local_addresses().unwrap_or_default();
    found.into_iter().take(GIDS_MAX).map(|found| Address { ip: found.ip, interface: found.interface }).collect()
}

/// Returns the peer with the address `remote`, as seen from the local address `local`.
///
/// # Errors
/// As [`Nic::acquire_host`].
pub(crate) fn acquire(nic: &mut Nic, remote: IpAddr, local: IpAddr) -> Result<PeerId, NicError> {
    nic.acquire_host(remote, Some(local))
}

/// Maximum number of GIDs of the port, because an index is a byte in most structures of verbs.
const GIDS_MAX: usize = 255;
