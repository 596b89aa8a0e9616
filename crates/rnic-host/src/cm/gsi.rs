//! The general services interface, as used by real RoCEv2 peers: all connection management messages of a host are
//! received on its port 4791 and sent from there, regardless of the ports on which its programs exchange data.
//!
//! The port belongs to the NIC, which receives the packets. Messages about connections are queued here for the
//! connection manager, and its messages are sent through the NIC's sockets too.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use arrayvec::ArrayVec;
use rnic_wire::Addresses;
use rnic_wire::cm::Mad;
use rnic_wire::net::UDP_PORT;
use socket2::SockAddr;

use crate::ip_fields::PackedIpFields;
use crate::sys::{Outgoing, UdpSocket, event};

/// A host's general services interface.
pub struct GsiPort {
    /// One socket of each IP version.
    sockets: ArrayVec<UdpSocket, 2>,
    waiting: Mutex<VecDeque<GsiItem>>,
    wake: OwnedFd,
    is_managed: AtomicBool,
}

/// An item received from the general services interface.
#[derive(Clone, PartialEq, Debug)]
pub enum GsiItem {
    /// A message, with its addresses from the sender to the local end. Both ports are 4791, the port of RoCEv2.
    Message(Addresses, Box<Mad>),
    /// The network reports the address as unreachable: the error number, and the start of the datagram that caused it.
    Unreachable(SocketAddr, i32, Vec<u8>),
}

impl fmt::Debug for GsiPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GsiPort").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

impl GsiPort {
    /// Creates the interface on `sockets`, which are bound to port 4791; it keeps its own descriptors of them.
    ///
    /// # Errors
    /// When the process has no more descriptors.
    pub(crate) fn new<'a>(sockets: impl IntoIterator<Item = &'a UdpSocket>) -> io::Result<Self> {
        let sockets = sockets.into_iter().map(UdpSocket::duplicate).collect::<io::Result<_>>()?;
        let (waiting, is_managed) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { sockets, waiting, wake: event::new()?, is_managed })
    }

    /// Records that a connection manager processes received messages from now on. Before this call, the NIC rejects
    /// requests, because there is no listener.
    pub fn manage(&self) {
        self.is_managed.store(true, Relaxed);
    }

    /// Returns whether a connection manager processes received messages.
    pub(crate) fn is_managed(&self) -> bool {
        self.is_managed.load(Relaxed)
    }

    /// Returns a descriptor that is readable when a message has been queued.
    pub fn raw_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Queues a received item; returns false when the queue is full. The item is then dropped, and its sender
    /// retransmits it.
    pub(crate) fn push(&self, news: GsiItem) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX {
            return false;
        }
        waiting.push_back(news);
        drop(waiting);
        event::raise(self.wake.as_fd());
        true
    }

    /// Removes and returns all queued items.
    pub fn take(&self) -> VecDeque<GsiItem> {
        event::clear(self.wake.as_fd());
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a datagram; returns whether the kernel accepted it. A datagram for which the kernel has no buffer space
    /// is lost, as on any network.
    pub(super) fn send(&self, addresses: &Addresses, bytes: &[u8]) -> bool {
        let of_version = |socket: &&UdpSocket| socket.local_addr().is_ipv4() == addresses.src().is_ipv4();
        let Some(socket) = self.sockets.iter().find(of_version) else { return false };
        let (to, from) = (SockAddr::from(addresses.dst()), Some(addresses.src().ip()));
        let parts = [IoSlice::new(bytes)];
        let message = Outgoing { to: &to, from, parts: &parts, segment: None, ip_fields: PackedIpFields::NONE };
        // The first error may be a delayed one that was caused by an earlier datagram.
        (0..SEND_TRIES).any(|_| socket.send(&[message]).is_ok())
    }
}

/// Returns the addresses of datagrams between the general services interfaces of two hosts.
pub(crate) fn gsi_addresses(addresses: &Addresses) -> Addresses {
    let at = |ip: IpAddr| SocketAddr::new(ip, UDP_PORT);
    let (from, to) = (addresses.src().ip(), addresses.dst().ip());
    Addresses::new(at(from), at(to)).expect("the IP versions are those of addresses")
}

/// Maximum number of queued messages; each message has a few hundred bytes. A manager removes all queued messages in
/// one call.
const WAITING_MAX: usize = 1_024;

/// Number of attempts to send a datagram: several delayed errors may be queued on one socket, and each fails one
/// attempt. After this many, the datagram is dropped.
const SEND_TRIES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::SocketOptions;
    use rnic_wire::cm::{Message, ReadyToUse};

    fn port() -> (GsiPort, UdpSocket) {
        let here = "127.0.0.1:0".parse().expect("an address");
        let socket = UdpSocket::open(&SocketOptions::at(here, 1 << 16, 1 << 16, false)).expect("a socket");
        (GsiPort::new([&socket]).expect("descriptors"), socket)
    }

    #[test]
    fn queued_messages_keep_their_order_and_are_bounded() {
        let (gsi, socket) = port();
        let path = Addresses::new(socket.local_addr(), socket.local_addr()).expect("one version");
        let message = |transaction_id| {
            let message = Message::ReadyToUse(ReadyToUse::default());
            GsiItem::Message(gsi_addresses(&path), Box::new(Mad { transaction_id, message }))
        };
        for number in 0..WAITING_MAX as u64 {
            assert!(gsi.push(message(number)));
        }
        assert!(!gsi.push(message(0)), "the queue exceeds its limit");
        let taken = gsi.take();
        assert_eq!(taken.len(), WAITING_MAX);
        assert_eq!(taken.back(), Some(&message(WAITING_MAX as u64 - 1)));
        assert!(gsi.take().is_empty());
    }

    #[test]
    fn messages_are_sent_from_the_ports_socket() {
        let (gsi, socket) = port();
        let path = Addresses::new(socket.local_addr(), socket.local_addr()).expect("one version");
        assert!(gsi.send(&path, b"hello"));
        let mut batch = crate::sys::ReceiveBatch::new(1);
        let came = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            socket.receive(&mut batch, 1).is_ok_and(|count| count == 1)
        });
        assert!(came);
        let (incoming, bytes) = batch.iter().next().expect("a datagram has arrived");
        assert_eq!((incoming.source, bytes), (socket.local_addr(), &b"hello"[..]));
    }
}
