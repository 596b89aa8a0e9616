//! Determines what the system would provide to a NIC, without opening one: for diagnosis before a program is started.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rnic_base::limits::MTU_MAX;
use rnic_wire::net::{IpVersion, UDP_PORT};

use crate::addresses::LocalAddress;
use crate::config::NicConfig;
use crate::mtu;
use crate::sys::{SocketOptions, UdpSocket};

/// Properties of a socket that the system provides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketProbe {
    /// True when the kernel splits buffers into packets (GSO).
    pub segmentation: bool,
    /// True when the kernel merges received packets into large buffers (GRO).
    pub receive_offload: bool,
    /// Requested size of the receive buffer, in bytes.
    pub receive_buffer_asked_bytes: usize,
    /// Granted size of the receive buffer, in bytes.
    pub receive_buffer_granted_bytes: usize,
}

/// Availability of the RoCEv2 port on this machine.
#[derive(Debug)]
pub enum RocePort {
    /// No process uses it.
    Free,
    /// Processes of this user share the port; another NIC can share it too.
    Shared,
    /// A process uses the port without sharing it: a NIC sends packets from other ports.
    Taken(io::Error),
}

/// Opens a socket as a NIC does and reports its properties.
///
/// # Errors
/// When UDP sockets cannot be opened.
pub fn socket() -> io::Result<SocketProbe> {
    let asked = NicConfig::default().receive_buffer_bytes;
    let socket = UdpSocket::open(&options(SocketAddr::new(ANY, 0), false))?;
    Ok(SocketProbe {
        segmentation: socket.has_segmentation(),
        receive_offload: socket.has_receive_offload(),
        receive_buffer_asked_bytes: asked,
        // The kernel returns twice the size that it granted (socket(7)).
        receive_buffer_granted_bytes: socket.granted_receive_buffer()? / 2,
    })
}

/// Determines the availability of UDP port 4791, by binding it for a moment.
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

/// Returns the payload bytes of a full packet from this address, on a path with the MTU of its interface; `None` when
/// the MTU is too small.
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
        reports_ecn: false,
        drops_all_input: true,
    }
}

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_granted_receive_buffer_is_positive_and_within_the_request() {
        let probe = socket().expect("there are UDP sockets");
        assert!(probe.receive_buffer_granted_bytes > 0);
        assert!(probe.receive_buffer_granted_bytes <= probe.receive_buffer_asked_bytes, "{probe:?}");
    }

    #[test]
    fn a_taken_port_reports_address_in_use() {
        // Another test may use the port; when it is taken, the error gives the reason.
        if let RocePort::Taken(error) = roce_port() {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn wire_mtus_fit_the_interface() {
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
