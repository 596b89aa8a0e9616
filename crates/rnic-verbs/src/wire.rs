//! Addresses: from GIDs to peers of the NIC and back.

use std::net::{IpAddr, Ipv6Addr};

use rnic_engine::PeerId;
use rnic_host::{Nic, NicConfig, NicError, Settings};

use crate::abi::ibv_gid;
use crate::cancel::Uncancelled;

/// An address of this host that a GID stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) interface: String,
}

impl Address {
    pub(crate) fn gid(&self) -> ibv_gid {
        gid_of(self.ip)
    }

    /// The number of its interface; 0 when that is gone.
    pub(crate) fn interface_index(&self) -> u32 {
        let name = std::ffi::CString::new(self.interface.as_str()).unwrap_or_default();
        // SAFETY: a C string that outlives the call.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    }
}

/// The GID of an address; one of IPv4 is mapped into IPv6.
pub(crate) fn gid_of(ip: IpAddr) -> ibv_gid {
    let v6 = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ibv_gid { raw: v6.octets() }
}

/// The address that a GID stands for, unless it is that of nobody or of a group.
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

/// Addresses of this host, in the order of the GID table.
pub(crate) fn addresses() -> Vec<Address> {
    let _uncancelled = Uncancelled::begin();
    let found = rnic_host::local_addresses().unwrap_or_default();
    found.into_iter().take(GIDS_MAX).map(|found| Address { ip: found.ip, interface: found.interface }).collect()
}

/// Whoever has the address `remote`, as seen from our address `local`.
///
/// # Errors
/// As [`Nic::acquire_host`].
pub(crate) fn acquire(nic: &mut Nic, remote: IpAddr, local: IpAddr) -> Result<PeerId, NicError> {
    nic.acquire_host(remote, Some(local))
}

/// GIDs of the port: an index is a byte in most of verbs' structures.
const GIDS_MAX: usize = 255;
