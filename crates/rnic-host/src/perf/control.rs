//! The control connection between the two ends of a session.
//!
//! The ends exchange addresses and keys of memory on it. Between NICs with a secret it uses Falcon, sealed like the
//! data. It has its own protection domain, so a party that gains access to it reaches no memory except its messages.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rnic_base::{Duration, Time};
use rnic_engine::{Access, CqId, PdId, RecvRequest, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::plan::Answer;
use super::setup::make_cq;
use super::{PerfError, protection};
use crate::cm::ConnectionId;
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent};
use crate::defaults::TransportChoice;
use crate::error::{ConnectError, NicError};
use crate::memory::Region;
use crate::nic::Nic;

/// The purpose of a connection: sent in the private data of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The control connection of a session.
    Control {
        /// Session number.
        session: u64,
    },
    /// A data connection.
    Data {
        /// Number of the session.
        session: u64,
        /// Index of the queue pair within the session.
        index: u32,
    },
}

impl Role {
    /// Returns it as private data.
    pub(crate) fn emit(self) -> Vec<u8> {
        let (tag, session, index) = match self {
            Self::Control { session } => (CONTROL_TAG, session, 0),
            Self::Data { session, index } => (DATA_TAG, session, index),
        };
        [&[tag][..], &session.to_be_bytes(), &index.to_be_bytes()].concat()
    }

    /// Parses it from private data; `None` when the request is not one of this protocol.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let (tag, rest) = data.split_first()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (session, index) = (u64::from_be_bytes(*session), u32::from_be_bytes(*rest.first_chunk()?));
        match *tag {
            CONTROL_TAG => Some(Self::Control { session }),
            DATA_TAG => Some(Self::Data { session, index }),
            _ => None,
        }
    }
}

const CONTROL_TAG: u8 = b'C';
const DATA_TAG: u8 = b'D';

/// One end of the control connection.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) id: ConnectionId,
    pub(crate) peer: SocketAddr,
    /// Round-trip time of the connection setup, known at the requesting end only.
    pub(crate) round_trip: Option<Duration>,
    qpn: rnic_wire::Qpn,
    pd: PdId,
    cq: CqId,
    region: Region,
    /// Messages that have been received.
    inbox: VecDeque<Vec<u8>>,
    /// The slot from which the next message is sent.
    next_slot: usize,
    over: bool,
    /// Number of exited peer processes that this NIC had detected when this connection was created.
    gone_before: u64,
}

impl Control {
    /// Allocates the resources of a control connection, and calls `connect` to establish one with them.
    pub(crate) fn open(
        nic: &mut Nic,
        timeout: Duration,
        connect: impl FnOnce(&mut Nic, ConnectionConfig) -> Result<Connection, ConnectError>,
    ) -> Result<Self, PerfError> {
        let pd = nic.verbs().create_pd().map_err(NicError::from)?;
        let cq = make_cq(nic, COMPLETIONS)?;
        let connected = Self::config(nic, pd, cq, timeout).and_then(|config| Ok(connect(nic, config)?));
        match connected.and_then(|connection| Ok(Self::new(nic, pd, cq, &connection)?)) {
            Ok(control) => Ok(control),
            Err(error) => {
                let _ = nic.verbs().destroy_cq(cq);
                let _ = nic.verbs().destroy_pd(pd);
                Err(error)
            }
        }
    }

    /// Returns the settings of its connection.
    fn config(nic: &Nic, pd: PdId, cq: CqId, timeout: Duration) -> Result<ConnectionConfig, PerfError> {
        let mut config = ConnectionConfig { timeout, ..ConnectionConfig::new(pd, cq) };
        if protection::has_key(nic) {
            config.transports = vec![TransportChoice::named(protection::TRANSPORT, &[])?];
        } else if nic.config().real_roce_peers {
            config.transports = vec![TransportChoice::for_roce_peers(&[])?];
        }
        (config.queues.max_send_wr, config.queues.max_recv_wr, config.queues.max_sge) = (SLOTS as u32, SLOTS as u32, 1);
        Ok(config)
    }

    /// Starts to use a connection that has just been created or accepted; must be called before the next `progress`.
    fn new(nic: &mut Nic, pd: PdId, cq: CqId, connection: &Connection) -> Result<Self, NicError> {
        let region = nic.verbs().register(pd, 2 * SLOTS * MESSAGE_BYTES, Access::LOCAL_WRITE)?;
        let control = Self {
            id: connection.id,
            peer: connection.remote,
            round_trip: connection.round_trip,
            qpn: connection.qpn,
            pd,
            cq,
            region,
            inbox: VecDeque::new(),
            next_slot: 0,
            over: false,
            gone_before: nic.stats().peers_gone,
        };
        (0..SLOTS).for_each(|slot| control.post_recv(nic, slot));
        Ok(control)
    }

    fn post_recv(&self, nic: &mut Nic, slot: usize) {
        let sges = [self.region.sge(slot * MESSAGE_BYTES, MESSAGE_BYTES as u32)];
        // A queue pair that has failed completes the receive with a flush error: the failure is detected there.
        let _ = nic.verbs().post_recv(self.qpn, &RecvRequest { wr_id: slot as u64, sges: &sges });
    }

    /// Sends `message`.
    pub(crate) fn send(&mut self, nic: &mut Nic, message: &impl Serialize) -> Result<(), PerfError> {
        let text = serde_json::to_vec(message).map_err(|error| self.protocol(format!("cannot be told: {error}")))?;
        if text.len() > MESSAGE_BYTES {
            return Err(self.protocol(format!("{} bytes are too long for a message", text.len())));
        }
        let offset = (SLOTS + self.next_slot) * MESSAGE_BYTES;
        self.next_slot = (self.next_slot + 1) % SLOTS;
        nic.bytes_mut(&self.region)[offset..offset + text.len()].copy_from_slice(&text);
        let sges = [self.region.sge(offset, text.len() as u32)];
        let op = SendOp::Send { immediate: None };
        let request = SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::SIGNALED };
        nic.verbs().post_send(self.qpn, &request).map_err(|_| self.end_of(nic))
    }

    /// Returns the next message, if one has arrived.
    pub(crate) fn poll<T: DeserializeOwned>(&mut self, nic: &mut Nic) -> Result<Option<T>, PerfError> {
        while let Some(completion) = nic.verbs().poll_cq_one(self.cq) {
            if completion.status != WcStatus::Success {
                self.over = true;
            } else if completion.opcode == WcOpcode::Recv {
                let (slot, len) = (completion.wr_id as usize, completion.byte_len as usize);
                let offset = slot * MESSAGE_BYTES;
                self.inbox.push_back(nic.bytes(&self.region)[offset..offset + len].to_vec());
                self.post_recv(nic, slot);
            }
        }
        match self.inbox.pop_front() {
            Some(text) => {
                let message = serde_json::from_slice(&text);
                message.map(Some).map_err(|error| self.protocol(format!("its message is invalid: {error}")))
            }
            None if self.over => Err(self.end_of(nic)),
            None => Ok(None),
        }
    }

    /// Waits for the next message.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, nic: &mut Nic, patience: Duration) -> Result<T, PerfError> {
        let start = nic.now();
        loop {
            let moved = nic.progress();
            self.process_events(nic);
            if let Some(message) = self.poll(nic)? {
                return Ok(message);
            }
            if nic.now().since(start) > patience {
                return Err(PerfError::Silent { peer: self.peer, after: patience });
            }
            if !moved {
                nic.wait(IDLE_WAIT)?;
            }
        }
    }

    /// Records when the connection manager reports that the remote end has disconnected. Other events have no meaning
    /// for the measuring end.
    pub(crate) fn process_events(&mut self, nic: &mut Nic) {
        while let Some(event) = nic.poll_connection_event() {
            self.over |= matches!(event, ConnectionEvent::Disconnected(id) if id == self.id);
        }
    }

    /// Checks, in the middle of a run, whether the remote end has disconnected, or has been silent for `idle` and that
    /// is too long.
    pub(crate) fn check(&mut self, nic: &mut Nic, idle: Duration, patience: Duration) -> Result<(), PerfError> {
        self.process_events(nic);
        // At this point a message can only be the end of the session.
        self.poll::<Answer>(nic)?;
        if idle > patience.saturating_mul(SILENCE_TIMEOUTS) {
            return Err(PerfError::Silent { peer: self.peer, after: idle });
        }
        Ok(())
    }

    /// Returns the reason why the remote end no longer exists. A NIC that measures or serves has only one remote end.
    fn end_of(&self, nic: &Nic) -> PerfError {
        let peer = self.peer;
        if nic.stats().peers_gone > self.gone_before { PerfError::Gone { peer } } else { PerfError::Ended { peer } }
    }

    /// Returns the error for an operation that has completed with `status`.
    pub(crate) fn failure(&self, nic: &Nic, status: WcStatus) -> PerfError {
        match self.end_of(nic) {
            PerfError::Ended { peer } => PerfError::Operation { peer, status },
            gone => gone,
        }
    }

    /// Records that the remote end has disconnected.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// Releases all its resources.
    pub(crate) fn close(self, nic: &mut Nic) {
        nic.close(self.id);
        nic.verbs().deregister(self.region);
        // No other object uses them any more.
        let _ = nic.verbs().destroy_cq(self.cq);
        let _ = nic.verbs().destroy_pd(self.pd);
    }

    fn protocol(&self, what: String) -> PerfError {
        PerfError::Protocol { peer: self.peer, what }
    }
}

/// Decides when a polling loop may sleep: only after a while, because waking up takes longer than most responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restless {
    last_moved: Time,
}

impl Restless {
    pub(crate) fn new(now: Time) -> Self {
        Self { last_moved: now }
    }

    /// Processes one iteration of the loop, in which packets were processed when `moved`; sleeps when the loop has been
    /// idle for long. Returns how long it has been idle.
    #[inline]
    pub(crate) fn rest(&mut self, nic: &mut Nic, moved: bool) -> Result<Duration, NicError> {
        let now = nic.now();
        if moved {
            self.last_moved = now;
            return Ok(Duration::ZERO);
        }
        let idle = now.since(self.last_moved);
        if idle > POLL_FOR {
            nic.wait(IDLE_WAIT)?;
        } else if idle > POLL_ALONE_FOR {
            // The remote end may be waiting for this very core.
            std::thread::yield_now();
        }
        Ok(idle)
    }
}

/// Maximum number of messages in flight in each direction: request and response take one.
const SLOTS: usize = 4;

/// Maximum number of completions that wait to be polled.
const COMPLETIONS: u32 = 64;

/// Maximum size of a message, in bytes.
const MESSAGE_BYTES: usize = 4_096;

/// Number of connection timeouts without any packet after which the remote end counts as stuck. (One that no longer
/// exists makes operations fail.)
const SILENCE_TIMEOUTS: u64 = 6;

/// Longest sleep, so that a request to stop is noticed.
pub(crate) const IDLE_WAIT: Duration = Duration::from_ms(10);

/// Time to poll without yielding the core to other threads: the response time of a remote end that has its own core.
const POLL_ALONE_FOR: Duration = Duration::from_us(15);

/// Time to poll without sleeping: a few times the response time of a busy peer, and much less than a time slice.
const POLL_FOR: Duration = Duration::from_us(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_travel_as_private_data() {
        for role in [Role::Control { session: 7 }, Role::Data { session: u64::MAX, index: 1_023 }] {
            let data = role.emit();
            assert!(data.len() <= 16, "what a request has room for");
            assert_eq!(Role::parse(&data), Some(role));
        }
        assert_eq!(Role::parse(b"something else"), None);
        assert_eq!(Role::parse(&[]), None);
    }
}
