//! Carries bytes between the program and a stream.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rnic_host::Nic;
use rnic_host::stream::{Broken, StreamError, StreamId, Streams};

use crate::kernel;

/// First bytes on the TCP connection of a stream: a mark, and a random number that the request of the stream names.
pub(crate) const PREAMBLE_BYTES: usize = 16;
/// The first bytes of a TCP connection that accompanies a stream.
pub(crate) const MARK: [u8; 8] = *b"\x01rnic-s\x01";

/// Returns the first bytes on the TCP connection of a stream.
pub(crate) fn preamble(token: u64) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..MARK.len()].copy_from_slice(&MARK);
    bytes[MARK.len()..].copy_from_slice(&token.to_be_bytes());
    bytes
}

/// State of a bridge after some work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Bytes were moved.
    Moved,
    /// Nothing to do.
    Idle,
    /// Both directions have ended and everything is delivered.
    Over,
    /// The program has closed its socket before it had read all data.
    Closed,
    /// The stream has failed, for this reason.
    Failed(String),
    /// The program at the other end has closed its socket before it had read all data, or has ended.
    Reset,
}

/// The library's ends of a program's connection.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// The library's end of the program's loopback connection.
    end: OwnedFd,
    /// The TCP connection to the other end's library.
    shadow: OwnedFd,
    /// Identity of the program's socket.
    pub(crate) inode: u64,
    /// At the accepting end, the bytes that must arrive on the shadow first, how many have, and the time limit.
    proof: Option<([u8; PREAMBLE_BYTES], usize, Instant)>,
    /// Bytes for the program that its socket has not taken.
    for_program: Vec<u8>,
    taken: usize,
    may_read: bool,
    may_write: bool,
    /// True when the program has ended its direction.
    is_program_done: bool,
    /// True when the program has been notified of the end of the other direction.
    is_end_told: bool,
    /// Time at which the shadow has ended.
    shadow_ended: Option<Instant>,
}

impl Bridge {
    /// Returns a bridge; at the accepting end, `token` is expected on the shadow.
    pub(crate) fn new(end: OwnedFd, shadow: OwnedFd, inode: u64, token: Option<u64>) -> Self {
        Self {
            end,
            shadow,
            inode,
            proof: token.map(|token| (preamble(token), 0, Instant::now() + PROOF_TIMEOUT)),
            for_program: Vec::new(),
            taken: 0,
            may_read: true,
            may_write: true,
            is_program_done: false,
            is_end_told: false,
            shadow_ended: None,
        }
    }

    /// Returns the descriptors.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.end.as_raw_fd(), self.shadow.as_raw_fd()]
    }

    /// Moves bytes in both directions.
    pub(crate) fn serve(&mut self, nic: &mut Nic, streams: &mut Streams, id: StreamId) -> Progress {
        match streams.broken(id) {
            Some(Broken::Reset(_)) => return Progress::Reset,
            Some(broken) => return Progress::Failed(broken.to_string()),
            None => {}
        }
        if let Err(why) = self.check_proof() {
            return Progress::Failed(why);
        }
        if self.proof.is_some() {
            return Progress::Idle;
        }
        let outcome = self.forward_written(nic, streams, id).and_then(|sent| {
            let received = self.deliver_arrived(nic, streams, id)?;
            Ok(sent | received)
        });
        match outcome {
            Err(progress) => progress,
            Ok(_) if streams.is_over(id) && self.is_program_done && self.is_end_told => Progress::Over,
            Ok(true) => Progress::Moved,
            Ok(false) => self.check_shadow(streams, id),
        }
    }

    /// Reads what the program has written and writes it to the stream, until its socket is empty or the stream has no
    /// space.
    fn forward_written(&mut self, nic: &mut Nic, streams: &mut Streams, id: StreamId) -> Result<bool, Progress> {
        let mut moved = false;
        let mut buffer = [0; CHUNK];
        while self.may_read && !self.is_program_done {
            let space = (streams.space(id) as usize).min(CHUNK);
            if space == 0 {
                break;
            }
            match kernel::receive(self.end.as_fd(), &mut buffer[..space]) {
                Ok(0) => {
                    self.is_program_done = true;
                    streams.finish(nic, id);
                    moved = true;
                }
                Ok(len) => {
                    // There is space for all of it.
                    let written = streams.write(nic, id, &buffer[..len]);
                    written.map_err(|error| end_by(&error))?;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.may_read = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Progress::Closed),
            }
        }
        Ok(moved)
    }

    /// Writes received data to the program's socket, until the socket is full.
    fn deliver_arrived(&mut self, nic: &mut Nic, streams: &mut Streams, id: StreamId) -> Result<bool, Progress> {
        let mut moved = false;
        while self.may_write {
            if self.taken == self.for_program.len() {
                self.taken = 0;
                self.for_program.resize(CHUNK, 0);
                let read = streams.read(nic, id, &mut self.for_program);
                let len = read.map_err(|error| end_by(&error))?;
                self.for_program.truncate(len);
                if len == 0 {
                    break;
                }
            }
            match kernel::send(self.end.as_fd(), &self.for_program[self.taken..]) {
                Ok(len) => {
                    self.taken += len;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.may_write = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Progress::Closed),
            }
        }
        if streams.is_at_end(id) && self.taken == self.for_program.len() && !self.is_end_told {
            self.is_end_told = true;
            kernel::shut_down_sending(&self.end);
            moved = true;
        }
        Ok(moved)
    }

    /// Reads the first bytes of the shadow, and compares them.
    fn check_proof(&mut self) -> Result<(), String> {
        let Some((expected, have, deadline)) = &mut self.proof else { return Ok(()) };
        let mut buffer = [0; PREAMBLE_BYTES];
        match kernel::receive(self.shadow.as_fd(), &mut buffer[*have..]) {
            Ok(0) => return Err("the TCP connection of a stream ended before it was identified".to_owned()),
            Ok(len) => {
                if buffer[*have..*have + len] != expected[*have..*have + len] {
                    return Err("the TCP connection of a stream was identified wrongly; both are closed".to_owned());
                }
                *have += len;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(format!("the TCP connection of a stream failed: {error}")),
        }
        if *have == PREAMBLE_BYTES {
            self.proof = None;
        } else if Instant::now() > *deadline {
            return Err("the TCP connection of a stream was not identified in time".to_owned());
        }
        Ok(())
    }

    /// Checks whether the other end's process still exists, as the kernels see it.
    fn check_shadow(&self, streams: &Streams, id: StreamId) -> Progress {
        match self.shadow_ended {
            // The end of the stream may arrive later than that of the shadow.
            Some(at) if at.elapsed() > SHADOW_GRACE && !streams.is_at_end(id) => Progress::Reset,
            _ => Progress::Idle,
        }
    }

    /// Adds the descriptors to wait for.
    pub(crate) fn wanted(&self, streams: &Streams, id: StreamId, into: &mut Vec<libc::pollfd>) {
        let is_proven = self.proof.is_none();
        let mut events = 0;
        if is_proven && !self.may_read && !self.is_program_done && streams.space(id) > 0 {
            events |= libc::POLLIN;
        }
        if is_proven && !self.may_write {
            events |= libc::POLLOUT;
        }
        let of_shadow = if is_proven { libc::POLLRDHUP } else { libc::POLLIN | libc::POLLRDHUP };
        // A negative descriptor is ignored; errors would be reported again and again.
        let end = if events == 0 { -1 } else { self.end.as_raw_fd() };
        let shadow = if self.shadow_ended.is_some() { -1 } else { self.shadow.as_raw_fd() };
        into.push(libc::pollfd { fd: end, events, revents: 0 });
        into.push(libc::pollfd { fd: shadow, events: of_shadow, revents: 0 });
    }

    /// Records the poll results for the descriptors of [`Bridge::wanted`].
    pub(crate) fn note(&mut self, end: &libc::pollfd, shadow: &libc::pollfd) {
        self.may_read |= end.revents & (libc::POLLIN | libc::POLLERR | libc::POLLHUP) != 0;
        self.may_write |= end.revents & (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) != 0;
        if shadow.revents & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0 && self.proof.is_none() {
            self.shadow_ended.get_or_insert_with(Instant::now);
        }
    }

    /// Returns the time after which [`Bridge::serve`] has work even if nothing arrives.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let shadow = self.shadow_ended.map(|at| at + SHADOW_GRACE);
        let at = self.proof.map(|(_, _, deadline)| deadline).or(shadow)?;
        Some(at.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Called when the process exits: forwards what the program has written, and then ends this direction.
    pub(crate) fn drain(&mut self, nic: &mut Nic, streams: &mut Streams, id: StreamId) {
        self.may_read = true;
        let _ = self.forward_written(nic, streams, id);
        if !self.may_read && !self.is_program_done {
            self.is_program_done = true;
            streams.finish(nic, id);
        }
    }

    /// Returns whether the program has ended its direction.
    pub(crate) fn is_program_done(&self) -> bool {
        self.is_program_done
    }

    /// Closes the program's connection so that the program sees an error.
    pub(crate) fn reset(self) {
        kernel::reset(self.end);
    }
}

/// Returns how a bridge continues after an error of a call.
fn end_by(error: &StreamError) -> Progress {
    match error {
        StreamError::Broken(Broken::Reset(_)) => Progress::Reset,
        error => Progress::Failed(error.to_string()),
    }
}

/// Bytes that are moved together.
const CHUNK: usize = 64 << 10;

/// Time within which the TCP connection of a stream must be identified.
const PROOF_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between the end of the shadow and that of the stream.
const SHADOW_GRACE: Duration = Duration::from_secs(1);
