//! The sockets of one IP version: one for receiving, and a separate one for sending where the source port differs.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::falcon::PATHS_MAX;
use crate::sys::{DeferredError, SocketOptions, UdpSocket};

/// Sockets of one IP version.
#[derive(Debug)]
pub(crate) struct Lane {
    receiver: UdpSocket,
    /// Socket for sending, when it is not `receiver`.
    source: Option<UdpSocket>,
    /// True when packets received on `source` are for this NIC.
    hears_source: bool,
    /// Source sockets of Falcon packets on other paths, opened at first use.
    paths: [Option<UdpSocket>; PATHS_MAX],
    /// True when the kernel reports the marking of received packets.
    tells_markings: bool,
    /// Number of progress calls since the last received packet, and number of polls skipped since the last poll.
    quiet: u32,
    skipped: u32,
}

impl Lane {
    pub(crate) fn new(receiver: UdpSocket, source: Option<UdpSocket>, hears_source: bool) -> Self {
        let paths = [const { None }; PATHS_MAX];
        Self { receiver, source, hears_source, paths, tells_markings: false, quiet: 0, skipped: 0 }
    }

    /// Returns the socket for sending.
    #[inline]
    pub(crate) fn sender(&self) -> &UdpSocket {
        self.source.as_ref().unwrap_or(&self.receiver)
    }

    /// Returns the socket for sending on the path `path`: 0 is [`Lane::sender`].
    #[inline]
    pub(crate) fn sender_on(&self, path: u8) -> &UdpSocket {
        let path = usize::from(path).checked_sub(1).and_then(|index| self.paths.get(index)?.as_ref());
        path.unwrap_or(self.sender())
    }

    /// Returns the path whose packets are sent from `port`; 0 when there is none.
    pub(crate) fn path_from(&self, port: u16) -> u8 {
        let is_here = |path: &Option<UdpSocket>| path.as_ref().is_some_and(|path| path.local_addr().port() == port);
        self.paths.iter().position(is_here).map_or(0, |index| index as u8 + 1)
    }

    /// Opens the path `path` if needed. When the system has no more sockets, its packets are sent from the default
    /// socket.
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
        [Some(&self.receiver), self.source.as_ref().filter(|_| self.hears_source)].into_iter().flatten()
    }

    /// Requests the marking of received packets from now on. Where the kernel cannot report it, packets have no
    /// marking.
    pub(crate) fn enable_marking_reports(&mut self) {
        if !std::mem::replace(&mut self.tells_markings, true) {
            self.receivers().for_each(|socket| drop(socket.enable_marking_reports()));
        }
    }

    /// Returns the local address and port, as announced to peers.
    #[inline]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.receiver.local_addr()
    }

    /// Returns whether packets to and from `ip` use this lane.
    #[inline]
    pub(crate) fn carries(&self, ip: IpAddr) -> bool {
        self.receiver.local_addr().is_ipv4() == ip.is_ipv4()
    }

    /// Takes one delayed error.
    pub(crate) fn take_deferred_error(&self) -> Option<DeferredError> {
        let known = self.sender().take_deferred_error().or_else(|| self.receiver.take_deferred_error());
        known.or_else(|| self.paths.iter().flatten().find_map(UdpSocket::take_deferred_error))
    }

    /// Returns whether to poll for packets in this turn: an idle lane is polled only now and then, because a poll is a
    /// system call. `is_only` is true when there is no other lane to poll.
    #[inline]
    pub(crate) fn is_due(&mut self, is_only: bool) -> bool {
        if is_only || self.quiet < QUIET_AFTER {
            return true;
        }
        self.skipped += 1;
        let due = self.skipped >= LOOK_EVERY;
        if due {
            self.skipped = 0;
        }
        due
    }

    /// Records whether a poll returned packets.
    #[inline]
    pub(crate) fn note(&mut self, received: bool) {
        self.quiet = if received { 0 } else { self.quiet.saturating_add(1) };
    }

    /// Ensures that the next poll is not skipped: a waiting thread may have been woken for a packet on this lane.
    pub(crate) fn wake(&mut self) {
        self.quiet = self.quiet.min(QUIET_AFTER - 1);
    }
}

/// Number of consecutive empty polls after which a lane counts as idle: some microseconds.
const QUIET_AFTER: u32 = 64;

/// Receive buffer of a path's socket, in bytes: only reported errors arrive there.
const PATH_RECEIVE_BYTES: usize = 64 << 10;

/// Send buffer of a path's socket, in bytes: the limit of its packets queued in the kernel.
const PATH_SEND_BYTES: usize = 4 << 20;

/// An idle lane is polled once in this number of turns: the first packet after a pause is received some microseconds
/// later.
const LOOK_EVERY: u32 = 16;
