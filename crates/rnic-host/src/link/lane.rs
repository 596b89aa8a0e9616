//! The sockets of one IP version (a lane): one for receiving, and a separate one for sending if packets are sent from
//! another port.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::ports::PATHS_MAX;
use crate::sys::{DeferredError, SocketOptions, UdpSocket};

/// Sockets of one IP version.
#[derive(Debug)]
pub(crate) struct Lane {
    receiver: UdpSocket,
    /// Socket for sending, if it is not `receiver`.
    source: Option<UdpSocket>,
    /// True when packets for this NIC also arrive on `source`.
    accepts_source: bool,
    /// Sending sockets for further paths, of Falcon packets and of probed paths, opened at first use.
    paths: [Option<UdpSocket>; PATHS_MAX],
    /// True when the kernel reports the IP fields of received packets.
    reports_ip_fields: bool,
    /// Number of progress calls since the last received packet, and number of polls skipped since the last poll.
    empty_polls: u32,
    skipped: u32,
}

impl Lane {
    pub(crate) fn new(receiver: UdpSocket, source: Option<UdpSocket>, accepts_source: bool) -> Self {
        let paths = [const { None }; PATHS_MAX];
        Self { receiver, source, accepts_source, paths, reports_ip_fields: false, empty_polls: 0, skipped: 0 }
    }

    /// Returns the socket for sending.
    #[inline]
    pub(crate) fn sender(&self) -> &UdpSocket {
        self.source.as_ref().unwrap_or(&self.receiver)
    }

    /// Returns the socket for sending on path number `path`: path 0 uses [`Lane::sender`].
    #[inline]
    pub(crate) fn sender_on(&self, path: u8) -> &UdpSocket {
        let further = usize::from(path).checked_sub(1).and_then(|index| self.paths.get(index)?.as_ref());
        further.unwrap_or(if path == OWN_PORT { &self.receiver } else { self.sender() })
    }

    /// Returns the path whose packets are sent from `port`; 0 when there is none with this port.
    pub(crate) fn path_from(&self, port: u16) -> u8 {
        if self.source.is_some() && self.receiver.local_addr().port() == port {
            return OWN_PORT;
        }
        let has_port = |path: &Option<UdpSocket>| path.as_ref().is_some_and(|path| path.local_addr().port() == port);
        self.paths.iter().position(has_port).map_or(0, |index| index as u8 + 1)
    }

    /// Returns the port of a further path, if it is open.
    pub(crate) fn port_of(&self, path: u8) -> Option<u16> {
        let index = usize::from(path).checked_sub(1)?;
        Some(self.paths.get(index)?.as_ref()?.local_addr().port())
    }

    /// Opens path `path` if it is not open. When the system has no more sockets, the packets of this path are sent
    /// from the default socket.
    #[inline]
    pub(crate) fn open_path(&mut self, path: u8) {
        if let Some(index) = usize::from(path).checked_sub(1)
            && self.paths.get(index).is_some_and(Option::is_none)
        {
            self.paths[index] = self.new_path().ok();
        }
    }

    #[cold]
    fn new_path(&self) -> io::Result<UdpSocket> {
        let bind = SocketAddr::new(self.sender().local_addr().ip(), 0);
        let options = SocketOptions::at(bind, PATH_RECEIVE_BYTES, PATH_SEND_BYTES, false);
        UdpSocket::open(&SocketOptions { drops_all_input: true, ..options })
    }

    fn sender_mut(&mut self) -> &mut UdpSocket {
        self.source.as_mut().unwrap_or(&mut self.receiver)
    }

    /// Returns the socket of the port that belongs to this NIC alone.
    pub(crate) fn own(&self) -> &UdpSocket {
        &self.receiver
    }

    /// See [`UdpSocket::allow_fragments`].
    pub(crate) fn allow_fragments(&mut self, allow: bool) -> io::Result<()> {
        self.sender_mut().allow_fragments(allow)
    }

    /// Returns the sockets on which packets for this NIC arrive.
    #[inline]
    pub(crate) fn receivers(&self) -> impl Iterator<Item = &UdpSocket> {
        [Some(&self.receiver), self.source.as_ref().filter(|_| self.accepts_source)].into_iter().flatten()
    }

    /// Enables the delivery of the IP header fields of received packets. If the kernel cannot report these fields,
    /// packets are received without them.
    pub(crate) fn enable_ip_fields_reports(&mut self) {
        if !std::mem::replace(&mut self.reports_ip_fields, true) {
            self.receivers().for_each(|socket| drop(socket.enable_ip_fields_reports()));
        }
    }

    /// Enables the delivery of the times at which the kernel received packets. If it cannot report these times, packets
    /// are received without them.
    pub(crate) fn enable_time_stamps(&self) {
        self.receivers().for_each(|socket| drop(socket.enable_time_stamps()));
    }

    /// Returns the local address and port, as announced to peers.
    #[inline]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.receiver.local_addr()
    }

    /// Returns whether these sockets are used for packets to and from `ip`.
    #[inline]
    pub(crate) fn carries(&self, ip: IpAddr) -> bool {
        self.receiver.local_addr().is_ipv4() == ip.is_ipv4()
    }

    /// Removes and returns one delayed error.
    pub(crate) fn next_deferred_error(&self) -> Option<DeferredError> {
        let deferred_error = self.sender().next_deferred_error().or_else(|| self.receiver.next_deferred_error());
        deferred_error.or_else(|| self.paths.iter().flatten().find_map(UdpSocket::next_deferred_error))
    }

    /// Returns whether to poll for packets in this iteration of the NIC's loop: idle sockets are polled less often,
    /// because a poll is a system call. `is_only` is true if the NIC has only sockets of one IP version.
    #[inline]
    pub(crate) fn is_due(&mut self, is_only: bool) -> bool {
        if is_only || self.empty_polls < IDLE_AFTER_POLLS {
            return true;
        }
        self.skipped += 1;
        let due = self.skipped >= IDLE_POLL_TURNS;
        if due {
            self.skipped = 0;
        }
        due
    }

    /// Records whether a poll returned packets.
    #[inline]
    pub(crate) fn note(&mut self, received: bool) {
        self.empty_polls = if received { 0 } else { self.empty_polls.saturating_add(1) };
    }

    /// Ensures that the next poll is not skipped, because a waiting thread may have been woken by a packet on these
    /// sockets.
    pub(crate) fn wake(&mut self) {
        self.empty_polls = self.empty_polls.min(IDLE_AFTER_POLLS - 1);
    }
}

/// Number of the path whose packets are sent from the port that belongs to the NIC alone.
pub(crate) const OWN_PORT: u8 = u8::MAX;

const _: () = assert!(PATHS_MAX < OWN_PORT as usize);

/// Number of consecutive empty polls after which sockets count as idle; these polls take some microseconds.
const IDLE_AFTER_POLLS: u32 = 64;

/// Receive buffer of the socket of a path, in bytes: only error reports arrive on it.
const PATH_RECEIVE_BYTES: usize = 64 << 10;

/// Send buffer of the socket of a path, in bytes: the maximum amount of its packets queued in the kernel.
const PATH_SEND_BYTES: usize = 4 << 20;

/// Number of iterations of the NIC's loop in which idle sockets are polled once: the first packet after a pause is
/// received some microseconds later.
const IDLE_POLL_TURNS: u32 = 16;
