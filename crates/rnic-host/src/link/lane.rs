//! The sockets of one IP version: one to receive on, and one to send from when that is another.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::falcon::PATHS_MAX;
use crate::sys::{DeferredError, SocketOptions, UdpSocket};

/// Sockets of one IP version.
#[derive(Debug)]
pub(crate) struct Lane {
    receiver: UdpSocket,
    /// Packets leave from here, not from `receiver`.
    source: Option<UdpSocket>,
    /// What comes to `source` is for us.
    hears_source: bool,
    /// Sockets that Falcon's packets leave from on other paths, opened when first used.
    paths: [Option<UdpSocket>; PATHS_MAX],
    /// Packets say how they are marked.
    tells_markings: bool,
    /// Calls of progress since something came in, and calls to skip.
    quiet: u32,
    skipped: u32,
}

impl Lane {
    pub(crate) fn new(receiver: UdpSocket, source: Option<UdpSocket>, hears_source: bool) -> Self {
        let paths = [const { None }; PATHS_MAX];
        Self { receiver, source, hears_source, paths, tells_markings: false, quiet: 0, skipped: 0 }
    }

    /// Where packets leave from.
    #[inline]
    pub(crate) fn sender(&self) -> &UdpSocket {
        self.source.as_ref().unwrap_or(&self.receiver)
    }

    /// Where packets on the path `path` leave from: 0 is [`Lane::sender`].
    #[inline]
    pub(crate) fn sender_on(&self, path: u8) -> &UdpSocket {
        let path = usize::from(path).checked_sub(1).and_then(|index| self.paths.get(index)?.as_ref());
        path.unwrap_or(self.sender())
    }

    /// The path whose packets leave from `port`: 0 when it is that of none.
    pub(crate) fn path_from(&self, port: u16) -> u8 {
        let is_here = |path: &Option<UdpSocket>| path.as_ref().is_some_and(|path| path.local_addr().port() == port);
        self.paths.iter().position(is_here).map_or(0, |index| index as u8 + 1)
    }

    /// Makes the path `path` if need be. Where the system has no more sockets, its packets leave with the others.
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
        UdpSocket::open(&SocketOptions { is_deaf: true, ..options })
    }

    fn sender_mut(&mut self) -> &mut UdpSocket {
        self.source.as_mut().unwrap_or(&mut self.receiver)
    }

    /// The socket of the port that is ours alone.
    pub(crate) fn own(&self) -> &UdpSocket {
        &self.receiver
    }

    /// See [`UdpSocket::allow_fragments`].
    pub(crate) fn allow_fragments(&mut self, allow: bool) -> io::Result<()> {
        self.sender_mut().allow_fragments(allow)
    }

    /// The sockets that packets for us come to.
    #[inline]
    pub(crate) fn receivers(&self) -> impl Iterator<Item = &UdpSocket> {
        [Some(&self.receiver), self.source.as_ref().filter(|_| self.hears_source)].into_iter().flatten()
    }

    /// From now on, what comes in says its marking. Where the kernel cannot, it has none.
    pub(crate) fn tell_markings(&mut self) {
        if !std::mem::replace(&mut self.tells_markings, true) {
            self.receivers().for_each(|socket| drop(socket.tell_markings()));
        }
    }

    /// Own address and port, as peers are told.
    #[inline]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.receiver.local_addr()
    }

    /// Whether packets to and from `ip` take this lane.
    #[inline]
    pub(crate) fn carries(&self, ip: IpAddr) -> bool {
        self.receiver.local_addr().is_ipv4() == ip.is_ipv4()
    }

    /// Takes one error that was reported late.
    pub(crate) fn take_deferred_error(&self) -> Option<DeferredError> {
        let known = self.sender().take_deferred_error().or_else(|| self.receiver.take_deferred_error());
        known.or_else(|| self.paths.iter().flatten().find_map(UdpSocket::take_deferred_error))
    }

    /// Whether to look for packets in this turn: a lane on which nothing comes is looked at now and then, because
    /// looking is a call of the kernel. `is_only` says that there is no other, nothing else to look at.
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

    /// Notes whether something was there.
    #[inline]
    pub(crate) fn note(&mut self, received: bool) {
        self.quiet = if received { 0 } else { self.quiet.saturating_add(1) };
    }

    /// Nobody skips the next look: whoever waits may have been woken for it.
    pub(crate) fn wake(&mut self) {
        self.quiet = self.quiet.min(QUIET_AFTER - 1);
    }
}

/// Looks in vain after which a lane counts as quiet: some microseconds' worth.
const QUIET_AFTER: u32 = 64;

/// Nothing comes to a path but reported errors.
const PATH_RECEIVE_BYTES: usize = 64 << 10;

/// What a path may hand to the kernel before it has left.
const PATH_SEND_BYTES: usize = 4 << 20;

/// A quiet lane is looked at in every so-manieth turn: the first packet after a pause comes some microseconds late.
const LOOK_EVERY: u32 = 16;
