//! The addresses of this machine's interfaces: getifaddrs(3).

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr;

use super::socket_address;

/// An address of an interface that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceAddress {
    /// IP address of the interface.
    pub ip: IpAddr,
    /// Name of the interface.
    pub interface: String,
    /// True for a loopback interface.
    pub is_loopback: bool,
}

/// Returns the addresses of all interfaces that are up, in the kernel's order.
///
/// # Errors
/// The error of getifaddrs(3).
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is a valid location for the pointer to the list's head.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list that has not been freed yet.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let flags = entry.ifa_flags.cast_signed();
        if entry.ifa_addr.is_null() || flags & libc::IFF_UP == 0 {
            continue;
        }
        // SAFETY: the entry's address has the length of its family, and no more is read.
        let Some(address) = (unsafe { address_of(entry.ifa_addr) }) else { continue };
        // SAFETY: the name is a string of the list that has not been freed yet.
        let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.push(InterfaceAddress { ip: address, interface, is_loopback: flags & libc::IFF_LOOPBACK != 0 });
    }
    // SAFETY: the list came from getifaddrs, and there are no references to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the IP address at `address`, if it is one.
///
/// # Safety
/// `address` points to a socket address of the length that its family has.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller; every socket address begins with its family.
    let family = i32::from(unsafe { (*address).sa_family });
    let len = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: an all-zero address is valid (family `AF_UNSPEC`).
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: the caller guarantees that `len` bytes exist; `storage` is large enough for any address.
    unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), ptr::from_mut(&mut storage).cast(), len) };
    socket_address(&storage, len as libc::socklen_t).map(|address| address.ip())
}
