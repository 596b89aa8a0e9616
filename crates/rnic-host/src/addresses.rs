//! The addresses at which this machine can be reached, in an order that does not change as long as the addresses are
//! the same.

use std::fs;
use std::io;
use std::net::IpAddr;

use crate::sys::interfaces::interface_addresses;

/// An address of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// IP address of this machine.
    pub ip: IpAddr,
    /// Name of the interface that has this address.
    pub interface: String,
    /// Largest IP packet that the interface carries, in bytes (the interface MTU).
    pub mtu_bytes: u32,
    /// True when the address is reachable from this machine only (loopback).
    pub is_loopback: bool,
}

/// Returns the addresses of all interfaces that are up: global IPv4 first, then global IPv6, then those of the
/// loopback interface; each group in numerical order. Link-local IPv6 addresses are omitted, because they are
/// ambiguous without their scope.
///
/// # Errors
/// Returns an error if the system does not report its interfaces.
pub fn local_addresses() -> io::Result<Vec<LocalAddress>> {
    let mut found: Vec<LocalAddress> = interface_addresses()?
        .into_iter()
        .filter(|address| !is_link_local(address.ip))
        .map(|address| LocalAddress {
            ip: address.ip,
            mtu_bytes: interface_mtu(&address.interface),
            is_loopback: address.is_loopback,
            interface: address.interface,
        })
        .collect();
    found.sort_by(|a, b| {
        let key = |address: &LocalAddress| (address.is_loopback, address.ip.is_ipv6(), address.ip);
        key(a).cmp(&key(b)).then_with(|| a.interface.cmp(&b.interface))
    });
    found.dedup_by(|a, b| a.ip == b.ip);
    Ok(found)
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Returns the MTU of the interface, or that of Ethernet if the system does not report it.
fn interface_mtu(name: &str) -> u32 {
    let file = format!("/sys/class/net/{name}/mtu");
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(ETHERNET_MTU_BYTES)
}

const ETHERNET_MTU_BYTES: u32 = 1_500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed_last() {
        let addresses = local_addresses().expect("the system reports its addresses");
        let loopback = addresses.iter().position(|address| address.ip == IpAddr::from([127, 0, 0, 1]));
        let first = addresses.iter().position(|address| address.is_loopback);
        assert!(loopback.is_some(), "{addresses:?}");
        assert_eq!(first, loopback, "the IPv4 loopback address is not the first");
        assert!(addresses.iter().skip(first.unwrap_or(0)).all(|address| address.is_loopback));
        let first_loopback = &addresses[loopback.expect("a loopback address was found above")];
        assert!(first_loopback.mtu_bytes >= 16_384, "{first_loopback:?}");
        assert_eq!(addresses, local_addresses().expect("the system reports its addresses"), "the order changed");
    }

    #[test]
    fn link_local_addresses_are_omitted() {
        assert!(is_link_local("fe80::1".parse().expect("an address")));
        assert!(!is_link_local("fd00::1".parse().expect("an address")));
        assert!(!is_link_local("169.254.1.1".parse().expect("an address")), "an IPv4 address counts as link-local");
    }
}
