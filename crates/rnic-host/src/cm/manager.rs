//! All connections, indexed by their ids, and the processing of connection management messages.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;

use rnic_base::{Duration, Time};
use rnic_wire::Addresses;
use rnic_wire::Qpn;
use rnic_wire::cm::{
    DisconnectReply, DisconnectRequest, LookupReply, LookupRequest, Mad, Message, PrivateData, ReadyToUse, Reject,
    RejectInfo, RejectReason, Rejected, Reply, Request, SentIds, ServiceId, TransportService,
};

use super::suspects::Suspects;
use super::{ConnectionId, Exchange, State};
use crate::secrets::SecretStream;

/// An event to which the owner of the queue pairs must react.
#[derive(Clone, PartialEq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection.
    Requested(ConnectionId, Box<Request>),
    /// The peer accepted the local request; with the time since the request was sent, if it was sent only once.
    Replied(ConnectionId, Box<Reply>, Option<Duration>),
    /// The remote end is ready: a connection that the local end accepted is now established.
    Ready(ConnectionId),
    /// The peer rejected the local request or the local reply.
    Refused(ConnectionId, Box<Reject>),
    /// No response was received within this time.
    TimedOut(ConnectionId, Duration),
    /// The address is unreachable; with the error number.
    Unreachable(ConnectionId, i32),
    /// An established connection was ended by the remote or the local end.
    Disconnected(ConnectionId),
    /// A peer requests the number of the queue pair of a datagram service.
    LookupRequested(ConnectionId, Box<LookupRequest>),
    /// The response to a local lookup.
    Found(ConnectionId, Box<LookupReply>),
}

/// Type of request that a service accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// Reliable connections only.
    ReliableConnections,
    /// Connections, reliable or unreliable.
    Connections,
    /// Lookups of the queue pair for datagrams.
    Datagrams,
}

impl ServiceKind {
    /// Returns whether a peer may request a connection with this transport service.
    fn accepts_transport(self, transport: TransportService) -> bool {
        match self {
            Self::ReliableConnections => transport == TransportService::Reliable,
            Self::Connections => matches!(transport, TransportService::Reliable | TransportService::Unreliable),
            Self::Datagrams => false,
        }
    }
}

/// A service that listens for requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) kind: ServiceKind,
    /// Maximum number of requests that wait for a decision of the program.
    backlog: usize,
    /// Number of requests that currently wait for a decision.
    waiting: usize,
}

/// Connections, and the services on which the local end listens.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(super) exchanges: BTreeMap<ConnectionId, Exchange>,
    /// Connections by local communication id. Never iterated.
    by_comm_id: HashMap<u32, ConnectionId>,
    /// Requests of peers, by the peer's address and its communication id: used to find duplicates. Never iterated.
    pub(super) by_request: HashMap<(SocketAddr, u32), ConnectionId>,
    pub(super) services: BTreeMap<ServiceId, Service>,
    pub(super) timers: BinaryHeap<Reverse<(Time, ConnectionId)>>,
    pub(super) out: VecDeque<(Addresses, Mad)>,
    pub(super) cm_events: VecDeque<CmEvent>,
    half_open: usize,
    suspects: Suspects,
    next_id: u64,
    /// Source of communication ids and transaction ids.
    pub(super) random: SecretStream,
    /// Time for which a rejection due to a missing listener is not final: a program may restart its listener, or
    /// start it later than its peer sends the request.
    pub(super) listener_grace: Duration,
    /// Number of messages that matched no connection.
    pub(crate) strays: u64,
}

impl Manager {
    pub(crate) fn new(random: SecretStream) -> Self {
        Self {
            exchanges: BTreeMap::new(),
            by_comm_id: HashMap::new(),
            by_request: HashMap::new(),
            services: BTreeMap::new(),
            timers: BinaryHeap::new(),
            out: VecDeque::new(),
            cm_events: VecDeque::new(),
            half_open: 0,
            suspects: Suspects::default(),
            next_id: 1,
            random,
            listener_grace: Duration::ZERO,
            strays: 0,
        }
    }

    /// Starts listening for requests; returns false when `service` has a listener already.
    pub(crate) fn listen(&mut self, service: ServiceId, kind: ServiceKind, backlog: usize) -> bool {
        let free = !self.services.contains_key(&service);
        if free {
            self.services.insert(service, Service { kind, backlog, waiting: 0 });
        }
        free
    }

    pub(crate) fn services(&self) -> usize {
        self.services.len()
    }

    /// Stops listening for requests to `service`; pending requests are rejected when they time out.
    pub(crate) fn unlisten(&mut self, service: ServiceId) {
        self.services.remove(&service);
    }

    /// Returns whether there is any connection, or any attempt to make one.
    pub(crate) fn has_exchanges(&self) -> bool {
        !self.exchanges.is_empty()
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Exchange> {
        self.exchanges.get(&id)
    }

    /// Returns the number of requests from peers that wait for the next message of either end.
    #[cfg(test)]
    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// Returns whether a message is to be sent or retransmitted.
    pub(crate) fn is_busy(&self) -> bool {
        !self.out.is_empty() || self.exchanges.values().any(|exchange| exchange.retransmit_at.is_some())
    }

    /// Requests a connection. The local communication id in `request` is filled in; returns `None` when there are too
    /// many connections and attempts.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        addresses: Addresses,
        mut request: Request,
        timeout: Duration,
    ) -> Option<ConnectionId> {
        let transaction_id = self.random.bits();
        let id = self.add(now, addresses, 0, transaction_id, State::RequestSent)?;
        request.local_comm_id = self.exchanges[&id].local_comm_id;
        self.send_until_answered(now, id, Message::Request(request), timeout);
        Some(id)
    }

    /// Accepts a request. Both communication ids in `reply` are filled in; returns false when the request is no longer
    /// pending.
    pub(crate) fn accept(&mut self, now: Time, id: ConnectionId, mut reply: Reply, timeout: Duration) -> bool {
        let Some(exchange) = self.transition(id, State::RequestReceived, State::ReplySent) else { return false };
        (reply.local_comm_id, reply.remote_comm_id) = (exchange.local_comm_id, exchange.remote_comm_id);
        self.send_until_answered(now, id, Message::Reply(reply), timeout);
        true
    }

    /// Rejects a request or a reply, and removes the connection; returns false when it is no longer pending.
    pub(crate) fn reject(&mut self, id: ConnectionId, reason: RejectReason, info: RejectInfo, data: &[u8]) -> bool {
        let Some(exchange) = self.exchanges.get(&id) else { return false };
        let rejected = match exchange.state {
            State::RequestReceived => Rejected::Request,
            State::ReplyReceived => Rejected::Reply,
            _ => return false,
        };
        let reject = Reject {
            local_comm_id: exchange.local_comm_id,
            remote_comm_id: exchange.remote_comm_id,
            rejected,
            reason,
            info,
            private_data: PrivateData::new(&data[..data.len().min(148)]).unwrap_or_default(),
        };
        self.out.push_back((exchange.addresses, mad(exchange.transaction_id, Message::Reject(reject))));
        self.remove(id);
        true
    }

    /// Records that the program has been notified of its connection: the RTU may now be sent to the remote end.
    pub(crate) fn confirm(&mut self, id: ConnectionId) {
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == State::ReplyReceived)
        else {
            return;
        };
        exchange.set_state(State::Established);
        self.send_ready(id);
    }

    /// Marks a connection as established when data arrives on it, even if the RTU was lost.
    pub(crate) fn establish(&mut self, id: ConnectionId) {
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == State::ReplySent) else {
            return;
        };
        exchange.set_state(State::Established);
        self.half_open -= 1;
        self.cm_events.push_back(CmEvent::Ready(id));
    }

    /// Returns whether a message concerns a connection of this manager, repeats a request that it knows, or, if
    /// `accepts_requests` is true, requests a service that is offered here. `accepts_requests` is true if its
    /// destination address may be used for requests.
    pub(crate) fn handles(&self, path: &Addresses, mad: &Mad, accepts_requests: bool) -> bool {
        let handles_request = |service: &ServiceId, name: u32| {
            self.by_request.contains_key(&(path.src(), name)) || accepts_requests && self.services.contains_key(service)
        };
        let name = match &mad.message {
            Message::Request(request) => return handles_request(&request.service_id, request.local_comm_id),
            Message::LookupRequest(request) => return handles_request(&request.service_id, request.request_id),
            Message::Reply(message) => message.remote_comm_id,
            Message::Reject(message) => message.remote_comm_id,
            Message::ReadyToUse(message) => message.remote_comm_id,
            Message::DisconnectRequest(message) => message.remote_comm_id,
            Message::DisconnectReply(message) => message.remote_comm_id,
            Message::LookupReply(message) => message.request_id,
        };
        self.by_comm_id.contains_key(&name)
    }

    /// Ends an established connection; returns false when there is none. Adapters accept a disconnect request only if
    /// it names the right queue pair. If `remote_qpn` is 0, the request names the queue pair that the remote end
    /// reported when the connection was made.
    pub(crate) fn disconnect(&mut self, now: Time, id: ConnectionId, remote_qpn: Qpn) -> bool {
        let transaction_id = self.random.bits();
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == State::Established) else {
            return false;
        };
        exchange.set_state(State::DisconnectSent);
        exchange.transaction_id = transaction_id;
        let remote_qpn = if remote_qpn == Qpn::default() { exchange.remote_qpn } else { remote_qpn };
        let request = DisconnectRequest {
            local_comm_id: exchange.local_comm_id,
            remote_comm_id: exchange.remote_comm_id,
            remote_qpn,
            private_data: PrivateData::default(),
        };
        self.send_until_answered(now, id, Message::DisconnectRequest(request), DISCONNECT_TIMEOUT);
        true
    }

    /// Removes a connection in any state without notifying the remote end.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.remove(id);
    }

    /// Returns the connection whose message to `address` is quoted in a network error, if the quote proves that the
    /// sender of the error has seen the message. Any other error may be forged: a host that knows, or guesses, both
    /// ports can make the kernel report an error.
    pub(crate) fn sender_of(&self, address: SocketAddr, quoted: &[u8]) -> Option<ConnectionId> {
        let names = SentIds::of_datagram(quoted)?;
        let id = *self.by_comm_id.get(&names.local_comm_id)?;
        let exchange = self.exchanges.get(&id)?;
        let is_ours = exchange.addresses.dst() == address && exchange.transaction_id == names.transaction_id;
        is_ours.then_some(id)
    }

    /// Handles an authentic (not forged) network error, see [`Self::sender_of`], which means that a message of
    /// connection `id` cannot be delivered.
    pub(crate) fn unreachable(&mut self, now: Time, id: ConnectionId, errno: i32) {
        let state = self.exchanges.get(&id).map(|exchange| exchange.state);
        let is_requesting = matches!(state, Some(State::RequestSent | State::LookupSent));
        if is_requesting && !(errno == libc::ECONNREFUSED && self.may_still_listen(now, id)) {
            self.remove(id);
            self.cm_events.push_back(CmEvent::Unreachable(id, errno));
        }
    }

    /// Returns whether it is too early to conclude that the service requested by `id` has no listener. Until then,
    /// the request is retransmitted.
    pub(super) fn may_still_listen(&self, now: Time, id: ConnectionId) -> bool {
        self.exchanges.get(&id).is_some_and(|exchange| now.since(exchange.sent_at) < self.listener_grace)
    }

    /// Handles an authentic report of the remote host that no socket is bound to the port to which a message of
    /// connection `id` was sent. After several such reports, all connections established with that port are ended.
    ///
    /// Call this only for ports that are used for connection management alone: such a port stays bound for as long as
    /// its owner's connections exist.
    pub(crate) fn refused(&mut self, now: Time, id: ConnectionId) {
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let (address, state) = (exchange.addresses.dst(), exchange.state);
        if state == State::DisconnectSent {
            // The connection is ending in any case.
            self.finish(id);
        }
        if self.suspects.refused(now, address) {
            self.on_port_gone(address);
        }
    }

    fn on_port_gone(&mut self, address: SocketAddr) {
        for id in self.exchanges_to(address, &[State::Established, State::DisconnectSent]) {
            self.finish(id);
        }
        for id in self.exchanges_to(address, &[State::ReplyReceived, State::RequestReceived, State::ReplySent]) {
            self.remove(id);
            self.cm_events.push_back(CmEvent::TimedOut(id, Duration::ZERO));
        }
        for id in self.exchanges_to(address, &[State::LookupReceived, State::LookupAnswered]) {
            self.remove(id);
        }
    }

    /// Sends one message without effect (another RTU) to each remote address of an established connection, so that
    /// the network can report a port that no longer exists.
    pub(crate) fn probe(&mut self) {
        let established = self.exchanges.values().filter(|exchange| exchange.state == State::Established);
        let one_per_path: BTreeMap<(SocketAddr, SocketAddr), ConnectionId> =
            established.map(|exchange| ((exchange.addresses.dst(), exchange.addresses.src()), exchange.id)).collect();
        one_per_path.into_values().for_each(|id| self.send_ready(id));
    }

    /// Sends the same probe to ports that were reported as closed. Connections that are not established need no
    /// probe, because their messages are retransmitted anyway.
    fn probe_suspects(&mut self, now: Time) {
        for address in self.suspects.take_due(now) {
            if let Some(id) = self.exchanges_to(address, &[State::Established]).first() {
                self.send_ready(*id);
            }
        }
    }

    fn exchanges_to(&self, address: SocketAddr, states: &[State]) -> Vec<ConnectionId> {
        let is_match = |exchange: &&Exchange| exchange.addresses.dst() == address && states.contains(&exchange.state);
        self.exchanges.values().filter(is_match).map(|exchange| exchange.id).collect()
    }

    /// Processes a message. `path` holds the addresses from the sender to the local end.
    pub(crate) fn receive(&mut self, now: Time, path: &Addresses, mad: Mad) {
        let Mad { transaction_id, message } = mad;
        match message {
            Message::Request(request) => self.receive_request(now, path, transaction_id, request),
            Message::Reply(reply) => self.receive_reply(now, path, transaction_id, reply),
            Message::ReadyToUse(ready) => match self.addressed(path, ready.remote_comm_id, ready.local_comm_id) {
                Some((id, State::ReplySent)) => self.establish(id),
                Some((_, State::Established | State::DisconnectSent)) => self.suspects.note_open(path.src()),
                _ => self.strays += 1,
            },
            Message::Reject(reject) => self.receive_reject(now, path, transaction_id, reject),
            Message::DisconnectRequest(request) => self.receive_disconnect(path, transaction_id, &request),
            Message::LookupRequest(request) => self.receive_lookup(now, path, transaction_id, request),
            Message::LookupReply(reply) => self.receive_found(now, path, transaction_id, reply),
            Message::DisconnectReply(reply) => match self.addressed(path, reply.remote_comm_id, reply.local_comm_id) {
                Some((id, State::DisconnectSent)) => self.finish(id),
                _ => self.strays += 1,
            },
        }
    }

    fn receive_request(&mut self, now: Time, path: &Addresses, transaction_id: u64, request: Request) {
        if let Some(id) = self.by_request.get(&(path.src(), request.local_comm_id)).copied() {
            // This is a retransmission. It needs no response unless the local reply was lost.
            if self.exchanges[&id].state == State::ReplySent {
                self.retransmit(now, id);
            }
            return;
        }
        let refuse = |reason| Reject {
            remote_comm_id: request.local_comm_id,
            rejected: Rejected::Request,
            reason,
            ..Reject::default()
        };
        let reason = match self.services.get(&request.service_id) {
            None | Some(Service { kind: ServiceKind::Datagrams, .. }) => Some(RejectReason::INVALID_SERVICE_ID),
            Some(service) if !service.kind.accepts_transport(request.transport_service) => {
                Some(RejectReason::INVALID_TRANSPORT_SERVICE)
            }
            Some(service) if self.is_full(service) => Some(RejectReason::NO_RESOURCES),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            return self.out.push_back((path.reversed(), mad(transaction_id, Message::Reject(refuse(reason)))));
        }
        let remote = request.local_comm_id;
        let Some(id) = self.add(now, path.reversed(), remote, transaction_id, State::RequestReceived) else {
            let reject = refuse(RejectReason::NO_RESOURCES);
            return self.out.push_back((path.reversed(), mad(transaction_id, Message::Reject(reject))));
        };
        self.exchanges.get_mut(&id).expect("it has just been added").remote_qpn = request.local_qpn;
        self.note_request(now, id, request.service_id);
        self.cm_events.push_back(CmEvent::Requested(id, Box::new(request)));
    }

    /// Returns whether the limit of pending requests is reached.
    pub(super) fn is_full(&self, service: &Service) -> bool {
        service.waiting >= service.backlog || self.half_open >= HALF_OPEN_MAX
    }

    /// Records a request that waits for a decision of the program.
    pub(super) fn note_request(&mut self, now: Time, id: ConnectionId, service: ServiceId) {
        let exchange = self.exchanges.get_mut(&id).expect("the caller has added it");
        exchange.service = Some(service);
        self.by_request.insert((exchange.addresses.dst(), exchange.remote_comm_id), id);
        self.half_open += 1;
        if let Some(service) = self.services.get_mut(&service) {
            service.waiting += 1;
        }
        self.wait_for_program(now, id);
    }

    fn receive_reply(&mut self, now: Time, path: &Addresses, transaction_id: u64, reply: Reply) {
        // The remote communication id was not known when the local REQ was sent; the transaction id must match
        // instead.
        let known = self.find(path, reply.remote_comm_id).and_then(|id| self.exchanges.get_mut(&id));
        match known {
            Some(exchange) if exchange.state == State::RequestSent && exchange.transaction_id == transaction_id => {
                exchange.set_state(State::ReplyReceived);
                (exchange.remote_comm_id, exchange.remote_qpn) = (reply.local_comm_id, reply.local_qpn);
                let (id, round_trip) = (exchange.id, exchange.round_trip(now));
                self.cm_events.push_back(CmEvent::Replied(id, Box::new(reply), round_trip));
            }
            Some(exchange) if exchange.remote_comm_id == reply.local_comm_id => {
                // This is a retransmission: the local RTU has been lost, or has not been sent yet.
                let (id, state) = (exchange.id, exchange.state);
                if state == State::Established {
                    self.send_ready(id);
                }
            }
            _ => {
                self.strays += 1;
                let reject = Reject {
                    local_comm_id: reply.remote_comm_id,
                    remote_comm_id: reply.local_comm_id,
                    rejected: Rejected::Reply,
                    reason: RejectReason::INVALID_COMM_ID,
                    ..Reject::default()
                };
                self.out.push_back((path.reversed(), mad(transaction_id, Message::Reject(reject))));
            }
        }
    }

    fn receive_reject(&mut self, now: Time, path: &Addresses, transaction_id: u64, reject: Reject) {
        let id = self.find(path, reject.remote_comm_id).filter(|id| {
            let exchange = &self.exchanges[id];
            let expected = match reject.rejected {
                Rejected::Request => exchange.state == State::RequestSent,
                Rejected::Reply => exchange.state == State::ReplySent,
                // The remote end has timed out.
                _ => matches!(exchange.state, State::RequestSent | State::ReplySent | State::RequestReceived),
            };
            expected && exchange.transaction_id == transaction_id
        });
        let Some(id) = id else {
            self.strays += 1;
            return;
        };
        if reject.reason == RejectReason::INVALID_SERVICE_ID && self.may_still_listen(now, id) {
            return;
        }
        self.remove(id);
        self.cm_events.push_back(CmEvent::Refused(id, Box::new(reject)));
    }

    fn receive_disconnect(&mut self, path: &Addresses, transaction_id: u64, request: &DisconnectRequest) {
        let reply = DisconnectReply {
            local_comm_id: request.remote_comm_id,
            remote_comm_id: request.local_comm_id,
            private_data: PrivateData::default(),
        };
        match self.addressed(path, request.remote_comm_id, request.local_comm_id) {
            Some((id, State::Established | State::DisconnectSent | State::ReplySent)) => self.finish(id),
            // The connection does not exist here: an earlier DREP was lost, or the remote end is in a wrong state. In
            // both cases a DREP must be sent.
            _ => self.strays += 1,
        }
        self.out.push_back((path.reversed(), mad(transaction_id, Message::DisconnectReply(reply))));
    }

    /// Returns the connection identified by the addresses `path` and the local communication id.
    pub(super) fn find(&self, path: &Addresses, local_comm_id: u32) -> Option<ConnectionId> {
        let id = *self.by_comm_id.get(&local_comm_id)?;
        (self.exchanges[&id].addresses == path.reversed()).then_some(id)
    }

    /// Returns the connection identified by the addresses `path` and both communication ids, and its state.
    fn addressed(&self, path: &Addresses, local_comm_id: u32, remote_comm_id: u32) -> Option<(ConnectionId, State)> {
        let id = self.find(path, local_comm_id)?;
        let exchange = &self.exchanges[&id];
        (exchange.remote_comm_id == remote_comm_id).then_some((id, exchange.state))
    }

    /// Moves a request in state `from`, about which the program has decided, to state `to`; returns `None` if it no
    /// longer exists.
    pub(super) fn transition(&mut self, id: ConnectionId, from: State, to: State) -> Option<&mut Exchange> {
        let exchange = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == from)?;
        exchange.set_state(to);
        self.stop_waiting(id);
        self.exchanges.get_mut(&id)
    }

    fn stop_waiting(&mut self, id: ConnectionId) {
        let service = self.exchanges.get(&id).and_then(|exchange| exchange.service);
        if let Some(service) = service.and_then(|service| self.services.get_mut(&service)) {
            // Another listener may have been registered for the same service id meanwhile.
            service.waiting = service.waiting.saturating_sub(1);
        }
    }

    pub(super) fn add(
        &mut self,
        now: Time,
        addresses: Addresses,
        remote_comm_id: u32,
        transaction_id: u64,
        state: State,
    ) -> Option<ConnectionId> {
        if self.exchanges.len() >= EXCHANGES_MAX {
            return None;
        }
        let local_comm_id = loop {
            // Id zero means "no id", so it is skipped.
            let drawn = self.random.bits() as u32;
            if drawn != 0 && !self.by_comm_id.contains_key(&drawn) {
                break drawn;
            }
        };
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        let exchange = Exchange {
            id,
            addresses,
            local_comm_id,
            remote_comm_id,
            remote_qpn: Qpn::default(),
            transaction_id,
            state,
            service: None,
            message: None,
            retransmit_at: None,
            interval: RETRANSMIT_FIRST,
            abandon_at: now,
            timeout: Duration::ZERO,
            sent_at: now,
            send_count: 0,
        };
        self.exchanges.insert(id, exchange);
        self.by_comm_id.insert(local_comm_id, id);
        Some(id)
    }

    /// Ends a connection and reports an event; [`Manager::remove`] reports none.
    fn finish(&mut self, id: ConnectionId) {
        self.remove(id);
        self.cm_events.push_back(CmEvent::Disconnected(id));
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        if self.exchanges.get(&id).is_some_and(Exchange::is_waiting) {
            self.stop_waiting(id);
        }
        let Some(mut exchange) = self.exchanges.remove(&id) else { return };
        self.half_open -= usize::from(exchange.is_half_open());
        exchange.set_state(State::Gone);
        self.by_comm_id.remove(&exchange.local_comm_id);
        let request_key = (exchange.addresses.dst(), exchange.remote_comm_id);
        if self.by_request.get(&request_key) == Some(&id) {
            self.by_request.remove(&request_key);
        }
    }

    fn send_ready(&mut self, id: ConnectionId) {
        let exchange = &self.exchanges[&id];
        let ready = ReadyToUse {
            local_comm_id: exchange.local_comm_id,
            remote_comm_id: exchange.remote_comm_id,
            private_data: PrivateData::default(),
        };
        self.out.push_back((exchange.addresses, mad(exchange.transaction_id, Message::ReadyToUse(ready))));
    }

    /// Sends a message, and retransmits it until a response is received or `timeout` has passed.
    pub(super) fn send_until_answered(&mut self, now: Time, id: ConnectionId, message: Message, timeout: Duration) {
        let exchange = self.exchanges.get_mut(&id).expect("the exchange exists");
        exchange.message = Some(Box::new(message));
        (exchange.sent_at, exchange.send_count, exchange.timeout) = (now, 0, timeout);
        (exchange.interval, exchange.abandon_at) = (RETRANSMIT_FIRST, now + timeout);
        self.retransmit(now, id);
    }

    pub(super) fn retransmit(&mut self, now: Time, id: ConnectionId) {
        let exchange = self.exchanges.get_mut(&id).expect("the exchange exists");
        let Some(message) = &exchange.message else { return };
        self.out.push_back((exchange.addresses, mad(exchange.transaction_id, (**message).clone())));
        exchange.send_count += 1;
        let at = (now + exchange.interval).min(exchange.abandon_at);
        exchange.interval = exchange.interval.saturating_mul(2).min(RETRANSMIT_MAX);
        exchange.retransmit_at = Some(at);
        self.timers.push(Reverse((at, id)));
    }

    /// Makes a request wait for the program's decision, with a time limit.
    pub(super) fn wait_for_program(&mut self, now: Time, id: ConnectionId) {
        let exchange = self.exchanges.get_mut(&id).expect("the exchange exists");
        let at = now + PROGRAM_TIMEOUT;
        (exchange.abandon_at, exchange.timeout) = (at, PROGRAM_TIMEOUT);
        exchange.retransmit_at = Some(at);
        self.timers.push(Reverse((at, id)));
    }

    /// Returns the time at which [`Manager::tick`] must be called next.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        timer.into_iter().chain(self.suspects.next_due()).min()
    }

    /// Retransmits messages whose timers have expired, or abandons their exchanges.
    pub(crate) fn tick(&mut self, now: Time) {
        self.probe_suspects(now);
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            // A timer entry is outdated if its connection has changed its state since.
            let Some(exchange) = self.exchanges.get(&id).filter(|exchange| exchange.retransmit_at == Some(at)) else {
                continue;
            };
            if now < exchange.abandon_at {
                self.retransmit(now, id);
            } else {
                self.abandon(id);
            }
        }
    }

    fn abandon(&mut self, id: ConnectionId) {
        let exchange = &self.exchanges[&id];
        let (state, timeout) = (exchange.state, exchange.timeout);
        if matches!(state, State::RequestSent | State::ReplySent) {
            let reject = Reject {
                local_comm_id: exchange.local_comm_id,
                remote_comm_id: exchange.remote_comm_id,
                rejected: Rejected::NoMessage,
                reason: RejectReason::TIMEOUT,
                ..Reject::default()
            };
            self.out.push_back((exchange.addresses, mad(exchange.transaction_id, Message::Reject(reject))));
        }
        match state {
            State::DisconnectSent => self.finish(id),
            State::LookupAnswered => self.remove(id),
            _ => {
                self.remove(id);
                self.cm_events.push_back(CmEvent::TimedOut(id, timeout));
            }
        }
    }

    /// Returns the next message to send, and its addresses from the local to the remote end.
    pub(crate) fn poll_message(&mut self) -> Option<(Addresses, Mad)> {
        self.out.pop_front()
    }

    /// Returns the next event of connection management, if there is one.
    pub(crate) fn poll_cm_event(&mut self) -> Option<CmEvent> {
        self.cm_events.pop_front()
    }
}

pub(super) fn mad(transaction_id: u64, message: Message) -> Mad {
    Mad { transaction_id, message }
}

/// Maximum number of connections and attempts. Each needs a few hundred bytes, less than a queue pair.
const EXCHANGES_MAX: usize = 1 << 16;

/// Maximum number of requests from unverified senders that wait for the next message of either end, over all
/// services.
const HALF_OPEN_MAX: usize = 4_096;

/// Time that a request waits for the program's decision.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for which a disconnect request is retransmitted. The connection is removed after that, even without a
/// response.
const DISCONNECT_TIMEOUT: Duration = Duration::from_ms(500);

/// Interval before the first retransmission of a message; it doubles with each retransmission. A busy machine
/// responds within a few milliseconds.
const RETRANSMIT_FIRST: Duration = Duration::from_ms(20);

/// Upper bound of the retransmission interval.
const RETRANSMIT_MAX: Duration = Duration::from_ms(500);
