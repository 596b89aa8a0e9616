//! Asking the system what it would give a NIC, without opening one: for whoever wants to know before it matters.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rnic_base::limits::MTU_MAX;
use rnic_wire::net::{IpVersion, UDP_PORT};

use crate::addresses::LocalAddress;
use crate::config::NicConfig;
use crate::mtu;
use crate::sys::{SocketOptions, UdpSocket};

/// What a socket gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketProbe {
    /// The kernel cuts trains into packets.
    pub segmentation: bool,
    /// The kernel hands over trains of packets.
    pub receive_offload: bool,
    /// Bytes of receive buffer that were asked for.
    pub receive_buffer_asked_bytes: usize,
    /// Bytes of receive buffer that were granted.
    pub receive_buffer_granted_bytes: usize,
}

/// Who has the port of RoCEv2 on this machine.
#[derive(Debug)]
pub enum RocePort {
    /// Nobody.
    Free,
    /// Processes of this user that share it; so can we.
    Shared,
    /// Somebody who does not: packets leave from other ports.
    Taken(io::Error),
}

/// Opens a socket as a NIC does and looks what it got.
///
/// # Errors
/// When there are no UDP sockets.
pub fn socket() -> io::Result<SocketProbe> {
    let asked = NicConfig::default().receive_buffer_bytes;
    let socket = UdpSocket::open(&options(SocketAddr::new(ANY, 0), false))?;
    Ok(SocketProbe {
        segmentation: socket.has_segmentation(),
        receive_offload: socket.has_receive_offload(),
        receive_buffer_asked_bytes: asked,
        // The kernel answers with twice of what it granted (socket(7)).
        receive_buffer_granted_bytes: socket.granted_receive_buffer()? / 2,
    })
}

/// Looks who has UDP port 4791. For a moment it is ours.
pub fn roce_port() -> RocePort {
    let bind = SocketAddr::new(ANY, UDP_PORT);
    match UdpSocket::open(&options(bind, false)) {
        Ok(_) => RocePort::Free,
        Err(_) => match UdpSocket::open(&options(bind, true)) {
            Ok(_) => RocePort::Shared,
            Err(error) => RocePort::Taken(error),
        },
    }
}

/// Payload bytes of a full packet from this address, on a path as wide as its interface; `None` when that is too narrow
/// to be of use.
pub fn wire_mtu(address: &LocalAddress) -> Option<u32> {
    let version = if address.ip.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    mtu::wire_mtu(address.mtu_bytes, version, MTU_MAX)
}

fn options(bind: SocketAddr, shares_port: bool) -> SocketOptions {
    let NicConfig { receive_buffer_bytes, send_buffer_bytes, receive_offload, .. } = NicConfig::default();
    SocketOptions {
        bind,
        receive_buffer_bytes,
        send_buffer_bytes,
        receive_offload,
        shares_port,
        takes_no_checksum: false,
        marks_congestion: false,
        hears_marks: false,
        is_deaf: true,
    }
}

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_granted_something() {
        let probe = socket().expect("there are UDP sockets");
        assert!(probe.receive_buffer_granted_bytes > 0);
        assert!(probe.receive_buffer_granted_bytes <= probe.receive_buffer_asked_bytes, "{probe:?}");
    }

    #[test]
    fn the_port_has_one_of_three_owners() {
        // Other tests may have it; whoever says that it is taken says why.
        if let RocePort::Taken(error) = roce_port() {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn packets_fit_their_interface() {
        let address = |ip: &str, mtu_bytes| LocalAddress {
            ip: ip.parse().expect("an address"),
            interface: "eth0".to_owned(),
            mtu_bytes,
            is_loopback: false,
        };
        let v4 = wire_mtu(&address("192.0.2.1", 1_500)).expect("wide enough");
        let v6 = wire_mtu(&address("2001:db8::1", 1_500)).expect("wide enough");
        assert!(v6 < v4 && v4 < 1_500 && v4 > 1_400, "{v4} {v6}");
        assert_eq!(wire_mtu(&address("127.0.0.1", 65_536)), Some(MTU_MAX));
        assert_eq!(wire_mtu(&address("192.0.2.1", 200)), None);
    }
}
