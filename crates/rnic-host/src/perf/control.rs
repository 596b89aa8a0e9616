//! The control connection between the two ends of a session.
//!
//! The ends use it to exchange memory addresses and keys. Between NICs with a secret it uses Falcon with the same
//! encryption as the data. It has its own protection domain, so a party that gains access to it can access no memory
//! except its messages.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rnic_base::{Duration, Time};
use rnic_engine::{Access, CqId, PdId, RecvRequest, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::plan::Answer;
use super::setup::{SILENCE_TIMEOUTS, make_cq};
use super::{PerfError, protection};
use crate::cm::ConnectionId;
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent};
use crate::defaults::TransportChoice;
use crate::error::{ConnectError, NicError};
use crate::memory::Region;
use crate::nic::Nic;

/// The purpose of a connection, which is sent in the private data of the connection request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The control connection of a session.
    Control {
        /// Number of the session.
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
    /// Encodes the purpose of the connection as private data of the connection request.
    pub(crate) fn emit(self) -> Vec<u8> {
        let (tag, session, index) = match self {
            Self::Control { session } => (CONTROL_TAG, session, 0),
            Self::Data { session, index } => (DATA_TAG, session, index),
        };
        [&[tag][..], &session.to_be_bytes(), &index.to_be_bytes()].concat()
    }

    /// Parses the purpose from private data; returns `None` when the request does not belong to this protocol.
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
    /// Round-trip time of the connection setup; it is known only at the requesting end.
    pub(crate) round_trip: Option<Duration>,
    qpn: rnic_wire::Qpn,
    pd: PdId,
    cq: CqId,
    region: Region,
    /// Messages that have been received.
    inbox: VecDeque<Vec<u8>>,
    /// The slot from which the next message is sent.
    next_slot: usize,
    is_over: bool,
    /// Number of exited peer processes that this NIC had already detected when this connection was created.
    gone_before: u64,
}

impl Control {
    /// Allocates the resources of a control connection, and calls `connect` to establish a connection with these
    /// resources.
    pub(crate) fn open(
        nic: &mut Nic,
        timeout: Duration,
        connect: impl FnOnce(&mut Nic, ConnectionConfig) -> Result<Connection, ConnectError>,
    ) -> Result<Self, PerfError> {
        let pd = nic.verbs().create_pd().map_err(NicError::from)?;
        let cq = make_cq(nic, CQ_ENTRIES)?;
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

    /// Returns the settings of the control connection.
    fn config(nic: &Nic, pd: PdId, cq: CqId, timeout: Duration) -> Result<ConnectionConfig, PerfError> {
        let mut config = ConnectionConfig { timeout, ..ConnectionConfig::new(pd, cq) };
        if protection::has_key(nic) {
            config.transports = vec![TransportChoice::named(protection::TRANSPORT, &[])?];
        } else if nic.config().real_roce_peers {
            config.transports = vec![TransportChoice::for_roce_peers(&[])?];
        }
        (config.queues.max_send_wr, config.queues.max_recv_wr, config.queues.max_sge) =
            (MESSAGE_SLOTS as u32, MESSAGE_SLOTS as u32, 1);
        Ok(config)
    }

    /// Starts using a connection that has just been created or accepted; must be called before the next `progress`.
    fn new(nic: &mut Nic, pd: PdId, cq: CqId, connection: &Connection) -> Result<Self, NicError> {
        let region = nic.verbs().register(pd, 2 * MESSAGE_SLOTS * MESSAGE_BYTES, Access::LOCAL_WRITE)?;
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
            is_over: false,
            gone_before: nic.stats().peers_gone,
        };
        (0..MESSAGE_SLOTS).for_each(|slot| control.post_recv(nic, slot));
        Ok(control)
    }

    fn post_recv(&self, nic: &mut Nic, slot: usize) {
        let sges = [self.region.sge(slot * MESSAGE_BYTES, MESSAGE_BYTES as u32)];
        // If the queue pair has failed, this receive completes with a flush error, which reports the failure.
        let _ = nic.verbs().post_recv(self.qpn, &RecvRequest { wr_id: slot as u64, sges: &sges });
    }

    /// Sends `message`.
    pub(crate) fn send(&mut self, nic: &mut Nic, message: &impl Serialize) -> Result<(), PerfError> {
        let text = serde_json::to_vec(message)
            .map_err(|error| self.protocol(format!("a message for it cannot be encoded: {error}")))?;
        if text.len() > MESSAGE_BYTES {
            return Err(self.protocol(format!("a message of {} bytes exceeds the maximum length", text.len())));
        }
        let offset = (MESSAGE_SLOTS + self.next_slot) * MESSAGE_BYTES;
        self.next_slot = (self.next_slot + 1) % MESSAGE_SLOTS;
        nic.bytes_mut(&self.region)[offset..offset + text.len()].copy_from_slice(&text);
        let sges = [self.region.sge(offset, text.len() as u32)];
        let op = SendOp::Send { immediate: None };
        let request = SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::SIGNALED };
        nic.verbs().post_send(self.qpn, &request).map_err(|_| self.end_reason(nic))
    }

    /// Returns the next message, if one has arrived.
    pub(crate) fn poll<T: DeserializeOwned>(&mut self, nic: &mut Nic) -> Result<Option<T>, PerfError> {
        while let Some(completion) = nic.verbs().poll_cq_one(self.cq) {
            if completion.status != WcStatus::Success {
                self.is_over = true;
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
                message.map(Some).map_err(|error| self.protocol(format!("its message cannot be parsed: {error}")))
            }
            None if self.is_over => Err(self.end_reason(nic)),
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

    /// Processes the events of the connection manager: records whether the remote end has disconnected, and ignores
    /// other events, which have no meaning for the client.
    pub(crate) fn process_events(&mut self, nic: &mut Nic) {
        while let Some(event) = nic.poll_connection_event() {
            self.is_over |= matches!(event, ConnectionEvent::Disconnected(id) if id == self.id);
        }
    }

    /// Checks during a run whether the remote end has disconnected, or whether `idle`, the time without packets, is
    /// too long.
    pub(crate) fn check(&mut self, nic: &mut Nic, idle: Duration, patience: Duration) -> Result<(), PerfError> {
        self.process_events(nic);
        // During a run, the only message that can arrive is the end of the session.
        self.poll::<Answer>(nic)?;
        if idle > patience.saturating_mul(SILENCE_TIMEOUTS) {
            return Err(PerfError::Silent { peer: self.peer, after: idle });
        }
        Ok(())
    }

    /// Returns the reason that the remote end no longer exists. A NIC that measures or serves has only one remote
    /// end.
    fn end_reason(&self, nic: &Nic) -> PerfError {
        let peer = self.peer;
        if nic.stats().peers_gone > self.gone_before { PerfError::Gone { peer } } else { PerfError::Ended { peer } }
    }

    /// Returns the error for an operation that has completed with `status`.
    pub(crate) fn failure(&self, nic: &Nic, status: WcStatus) -> PerfError {
        match self.end_reason(nic) {
            PerfError::Ended { peer } => PerfError::Operation { peer, status },
            gone => gone,
        }
    }

    /// Records that the remote end has disconnected.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Releases all resources of the control connection.
    pub(crate) fn close(self, nic: &mut Nic) {
        nic.close(self.id);
        nic.verbs().deregister(self.region);
        // No other object uses these resources any more.
        let _ = nic.verbs().destroy_cq(self.cq);
        let _ = nic.verbs().destroy_pd(self.pd);
    }

    fn protocol(&self, what: String) -> PerfError {
        PerfError::Protocol { peer: self.peer, what }
    }
}

/// Decides when a polling loop may sleep: only after it has been idle for some time, because waking up takes longer
/// than most responses; or at once, which leaves the cores to other processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleBackoff {
    last_moved: Time,
    sleeps_at_once: bool,
}

impl IdleBackoff {
    pub(crate) fn new(now: Time, sleeps_at_once: bool) -> Self {
        Self { last_moved: now, sleeps_at_once }
    }

    /// Processes one iteration of the loop; `moved` is true if it has processed packets. Sleeps when the loop has
    /// been idle for long enough. Returns the time for which the loop has been idle.
    #[inline]
    pub(crate) fn sleep_if_idle(&mut self, nic: &mut Nic, moved: bool) -> Result<Duration, NicError> {
        let now = nic.now();
        if moved {
            self.last_moved = now;
            return Ok(Duration::ZERO);
        }
        let idle = now.since(self.last_moved);
        if self.sleeps_at_once || idle > YIELD_TIME {
            nic.wait(IDLE_WAIT)?;
        } else if idle > SPIN_TIME {
            // The remote end may be waiting for the core on which this thread runs.
            std::thread::yield_now();
        }
        Ok(idle)
    }
}

/// Maximum number of messages in flight in each direction: a request and its response need one.
const MESSAGE_SLOTS: usize = 4;

/// Maximum number of completions that wait to be polled.
const CQ_ENTRIES: u32 = 64;

/// Maximum size of a message, in bytes.
const MESSAGE_BYTES: usize = 4_096;

/// Longest sleep; it is limited so that a request to stop is noticed.
pub(crate) const IDLE_WAIT: Duration = Duration::from_ms(10);

/// Time for which the loop polls without yielding the core to other threads: the response time of a remote end that
/// has its own core.
const SPIN_TIME: Duration = Duration::from_us(15);

/// Time for which the loop polls without sleeping: a few times the response time of a busy peer, and much less than a
/// scheduler time slice.
const YIELD_TIME: Duration = Duration::from_us(300);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NicConfig;

    #[test]
    fn an_idle_loop_sleeps_at_once_only_if_it_is_told_to() {
        let mut nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a free port");
        let mut idle_for = |sleeps_at_once: bool| {
            let start = nic.now();
            let mut backoff = IdleBackoff::new(start, sleeps_at_once);
            backoff.sleep_if_idle(&mut nic, false).expect("it can wait");
            let slept = nic.now().since(start);
            assert_eq!(backoff.sleep_if_idle(&mut nic, true).expect("it need not wait"), Duration::ZERO);
            slept
        };
        assert!(idle_for(true) >= IDLE_WAIT);
        // It may be off its core meanwhile, but not each time.
        assert!((0..20).any(|_| idle_for(false) < IDLE_WAIT));
    }

    #[test]
    fn roles_round_trip_through_private_data() {
        for role in [Role::Control { session: 7 }, Role::Data { session: u64::MAX, index: 1_023 }] {
            let data = role.emit();
            assert!(data.len() <= 16, "the private data do not fit a request");
            assert_eq!(Role::parse(&data), Some(role));
        }
        assert_eq!(Role::parse(b"something else"), None);
        assert_eq!(Role::parse(&[]), None);
    }
}
