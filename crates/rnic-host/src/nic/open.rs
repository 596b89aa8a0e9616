//! The sockets of a NIC.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use rnic_wire::net::UDP_PORT;

use crate::bypass::Bypass;
use crate::clock::Clock;
use crate::cm::GsiPort;
use crate::config::NicConfig;
use crate::error::NicError;
use crate::link::lane::Lane;
use crate::link::{Link, Ports};
use crate::notice::Notice;
use crate::secrets::Secrets;
use crate::share::Share;
use crate::sys::{self, SocketOptions, UdpSocket};

/// Opens the sockets that `config` requests.
pub(super) fn open_link(config: &NicConfig, secrets: &Secrets) -> Result<Link, NicError> {
    let ports = match (config.shared, config.real_roce_peers) {
        (false, _) => Ports::OfPeer,
        (true, false) => Ports::OfQueuePair,
        (true, true) => Ports::RoceV2,
    };
    if ports == Ports::OfPeer {
        let (receive, send) = (config.receive_buffer_bytes, config.send_buffer_bytes);
        let options = SocketOptions::at(config.bind, receive, send, config.receive_offload);
        let (socket, claim) = open_fixed(&options).map_err(|error| NicError::opening(config.bind, error))?;
        let lanes = [Lane::new(socket, None, false)].into_iter().collect();
        let mut link = Link::new(lanes, ports, config.segmentation);
        link.claim = claim;
        return Ok(link);
    }
    let roce = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), UDP_PORT);
    let (lanes, refused) = crate::sockets::open(config, &mut secrets.stream("port"))?;
    let mut link = Link::new(lanes.into_iter().collect(), ports, config.segmentation);
    link.source_port_refusal = refused.map(|error| error.to_string());
    if config.real_roce_peers {
        link.classes.set_ecn_capable(config.marks_congestion);
        let gsi = GsiPort::new(link.lanes.iter().map(Lane::sender));
        link.gsi = Some(Arc::new(gsi.map_err(|error| NicError::opening(roce, error))?));
    }
    if config.bypass && !config.real_roce_peers {
        match Bypass::open(link.local_addr().port(), secrets.stream("bypass")) {
            Ok(bypass) => link.bypass = Some(Box::new(bypass)),
            Err(error) => link.notices.push(Notice::BypassUnavailable(error.to_string())),
        }
    }
    Ok(link)
}

/// Joins the shared page, if `config` requests it. A NIC that requests only a weight opens without the page if there is
/// none, because a weight changes nothing but shares.
///
/// # Errors
/// When the NIC has to use a shared link and cannot.
pub(super) fn join_share(config: &NicConfig, clock: Clock, link: &mut Link) -> Result<(), NicError> {
    let Some(wanted) = &config.share else { return Ok(()) };
    match Share::join(wanted, clock) {
        Ok(share) => link.share = Some(Box::new(share)),
        Err(error) if wanted.link_rate.is_none() => link.notices.push(Notice::NotShared(error.to_string())),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Opens the socket of a NIC at one address.
///
/// Other NICs that share the machine may have bound port 4791 of all addresses for sending. They receive no packets
/// on it, so a NIC can still bind the port at one address. The claim ensures that only one NIC does so: the kernel
/// would not distinguish two NICs that bind the same address in this way.
fn open_fixed(options: &SocketOptions) -> io::Result<(UdpSocket, Option<UnixDatagram>)> {
    match UdpSocket::open(options) {
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse
                && options.bind.port() == UDP_PORT
                && !options.bind.ip().is_unspecified() =>
        {
            let claim = sys::unix::bind_control_socket(format!("rnic-at-{}", options.bind).as_bytes())?;
            let socket = UdpSocket::open(&SocketOptions { shares_port: true, ..*options })?;
            Ok((socket, Some(claim)))
        }
        opened => opened.map(|socket| (socket, None)),
    }
}
