//! All connections, by their ids, and the processing of messages.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;

use rnic_base::{Duration, Time};
use rnic_wire::Addresses;
use rnic_wire::Qpn;
use rnic_wire::cm::{
    DisconnectReply, DisconnectRequest, LookupReply, LookupRequest, Mad, Message, PrivateData, ReadyToUse, Reject,
    RejectInfo, RejectReason, Rejected, Reply, Request, SentNames, ServiceId, TransportService,
};

use super::suspects::Suspects;
use super::{ConnectionId, Exchange, State};
use crate::secrets::SecretStream;

/// An event on which the owner of the queue pairs must act.
#[derive(Clone, PartialEq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection.
    Requested(ConnectionId, Box<Request>),
    /// The local request was accepted; with the time since it was sent, if it was sent once.
    Replied(ConnectionId, Box<Reply>, Option<Duration>),
    /// The remote end is ready: a connection that was accepted locally is established.
    Ready(ConnectionId),
    /// The local request, or the local reply, was rejected.
    Refused(ConnectionId, Box<Reject>),
    /// No response within this time.
    TimedOut(ConnectionId, Duration),
    /// The address is unreachable; with the error number.
    Unreachable(ConnectionId, i32),
    /// An established connection has ended, because the remote or the local end has ended it.
    Disconnected(ConnectionId),
    /// A peer requests the queue pair of a datagram service.
    LookedUp(ConnectionId, Box<LookupRequest>),
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
    /// The queue pair for datagrams.
    Datagrams,
}

impl ServiceKind {
    /// Returns whether a connection of this transport service may be requested.
    fn makes(self, transport: TransportService) -> bool {
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
    /// Maximum number of requests that may wait for a decision.
    backlog: usize,
    /// Number of requests that wait for a decision.
    waiting: usize,
}

/// Connections and the services that listen for them.
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
    /// Time for which a rejection due to a missing listener is not final: programs may listen again, or start to listen
    /// later than their peers request.
    pub(super) patience_with_listeners: Duration,
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
            patience_with_listeners: Duration::ZERO,
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

    /// Stops listening; pending requests are rejected when they time out.
    pub(crate) fn unlisten(&mut self, service: ServiceId) {
        self.services.remove(&service);
    }

    /// Returns whether there is any connection, or attempt at one.
    pub(crate) fn has_exchanges(&self) -> bool {
        !self.exchanges.is_empty()
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Exchange> {
        self.exchanges.get(&id)
    }

    /// Returns the number of requests of peers that wait for a response from either end.
    #[cfg(test)]
    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// Returns whether a message is to be sent or retransmitted.
    pub(crate) fn is_busy(&self) -> bool {
        !self.out.is_empty() || self.exchanges.values().any(|exchange| exchange.resend_at.is_some())
    }

    /// Requests a connection. The local communication id in `request` is filled in; returns `None` when there are too
    /// many.
    pub(crate) fn connect(
        &mut self,
        now: Time,
        addresses: Addresses,
        mut request: Request,
        patience: Duration,
    ) -> Option<ConnectionId> {
        let transaction_id = self.random.bits();
        let id = self.add(now, addresses, 0, transaction_id, State::RequestSent)?;
        request.local_comm_id = self.exchanges[&id].local_comm_id;
        self.send_until_answered(now, id, Message::Request(request), patience);
        Some(id)
    }

    /// Accepts a request. Both communication ids in `reply` are filled in; returns false when the request is no longer
    /// pending.
    pub(crate) fn accept(&mut self, now: Time, id: ConnectionId, mut reply: Reply, patience: Duration) -> bool {
        let Some(exchange) = self.decide(id, State::RequestReceived, State::ReplySent) else { return false };
        (reply.local_comm_id, reply.remote_comm_id) = (exchange.local_comm_id, exchange.remote_comm_id);
        self.send_until_answered(now, id, Message::Reply(reply), patience);
        true
    }

    /// Rejects a request, or a reply, and removes it; returns false when it is no longer pending.
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

    /// Confirms that the program knows of its connection: the remote end may be notified.
    pub(crate) fn confirm(&mut self, id: ConnectionId) {
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == State::ReplyReceived)
        else {
            return;
        };
        exchange.become_(State::Established);
        self.send_ready(id);
    }

    /// Marks a connection as established because the remote end uses it, even if its RTU was lost.
    pub(crate) fn establish(&mut self, id: ConnectionId) {
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == State::ReplySent) else {
            return;
        };
        exchange.become_(State::Established);
        self.half_open -= 1;
        self.cm_events.push_back(CmEvent::Ready(id));
    }

    /// Returns whether a message concerns a connection or a known request of this manager, or, if `may_ask` is true for
    /// its destination address, requests a service that is offered here.
    pub(crate) fn knows(&self, way: &Addresses, mad: &Mad, may_ask: bool) -> bool {
        let asks = |service: &ServiceId, name: u32| {
            self.by_request.contains_key(&(way.src(), name)) || may_ask && self.services.contains_key(service)
        };
        let name = match &mad.message {
            Message::Request(request) => return asks(&request.service_id, request.local_comm_id),
            Message::LookupRequest(request) => return asks(&request.service_id, request.request_id),
            Message::Reply(message) => message.remote_comm_id,
            Message::Reject(message) => message.remote_comm_id,
            Message::ReadyToUse(message) => message.remote_comm_id,
            Message::DisconnectRequest(message) => message.remote_comm_id,
            Message::DisconnectReply(message) => message.remote_comm_id,
            Message::LookupReply(message) => message.request_id,
        };
        self.by_comm_id.contains_key(&name)
    }

    /// Ends an established connection; returns false when there is none. Adapters accept the disconnect request only
    /// for the queue pair that it names: where `remote_qpn` is 0, that is the one that the remote end gave when the
    /// connection was made.
    pub(crate) fn disconnect(&mut self, now: Time, id: ConnectionId, remote_qpn: Qpn) -> bool {
        let transaction_id = self.random.bits();
        let Some(exchange) = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == State::Established) else {
            return false;
        };
        exchange.become_(State::DisconnectSent);
        exchange.transaction_id = transaction_id;
        let remote_qpn = if remote_qpn == Qpn::default() { exchange.remote_qpn } else { remote_qpn };
        let request = DisconnectRequest {
            local_comm_id: exchange.local_comm_id,
            remote_comm_id: exchange.remote_comm_id,
            remote_qpn,
            private_data: PrivateData::default(),
        };
        self.send_until_answered(now, id, Message::DisconnectRequest(request), DISCONNECT_PATIENCE);
        true
    }

    /// Removes a connection in any state without notifying the remote end.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.remove(id);
    }

    /// Returns the connection whose message to `address` a network error quotes, if the quote proves that its sender
    /// has seen the message. Any other error may be forged: a host that knows, or guesses, both ports can make the
    /// kernel report an error.
    pub(crate) fn sender_of(&self, address: SocketAddr, quoted: &[u8]) -> Option<ConnectionId> {
        let names = SentNames::of_datagram(quoted)?;
        let id = *self.by_comm_id.get(&names.local_comm_id)?;
        let exchange = self.exchanges.get(&id)?;
        let is_ours = exchange.addresses.dst() == address && exchange.transaction_id == names.transaction_id;
        is_ours.then_some(id)
    }

    /// Handles a proven network error: a message of connection `id` cannot be delivered.
    pub(crate) fn unreachable(&mut self, now: Time, id: ConnectionId, errno: i32) {
        let state = self.exchanges.get(&id).map(|exchange| exchange.state);
        let asks = matches!(state, Some(State::RequestSent | State::LookupSent));
        if asks && !(errno == libc::ECONNREFUSED && self.may_listen_yet(now, id)) {
            self.remove(id);
            self.cm_events.push_back(CmEvent::Unreachable(id, errno));
        }
    }

    /// Returns whether it is too early to conclude that there is no listener for the request of `id`. The request is
    /// retransmitted meanwhile.
    pub(super) fn may_listen_yet(&self, now: Time, id: ConnectionId) -> bool {
        self.exchanges.get(&id).is_some_and(|exchange| now.since(exchange.sent_at) < self.patience_with_listeners)
    }

    /// Handles a proven report of the remote host that no socket has the port to which a message of connection `id` was
    /// sent. After enough such reports, the connections established with that port are over.
    ///
    /// Only for sockets that carry nothing but connection management: such a port stays bound for as long as the
    /// connections of its owner exist.
    pub(crate) fn refused(&mut self, now: Time, id: ConnectionId) {
        let Some(exchange) = self.exchanges.get(&id) else { return };
        let (address, state) = (exchange.addresses.dst(), exchange.state);
        if state == State::DisconnectSent {
            // The connection is ending in any case.
            self.finish(id);
        }
        if self.suspects.refused(now, address) {
            self.vanished(address);
        }
    }

    fn vanished(&mut self, address: SocketAddr) {
        for id in self.those_with(address, &[State::Established, State::DisconnectSent]) {
            self.finish(id);
        }
        for id in self.those_with(address, &[State::ReplyReceived, State::RequestReceived, State::ReplySent]) {
            self.remove(id);
            self.cm_events.push_back(CmEvent::TimedOut(id, Duration::ZERO));
        }
        for id in self.those_with(address, &[State::LookupReceived, State::LookupAnswered]) {
            self.remove(id);
        }
    }

    /// Sends to every remote end of an established connection, once for each address, a message without effect (another
    /// RTU), so that the network can report a port that no longer exists.
    pub(crate) fn probe(&mut self) {
        let established = self.exchanges.values().filter(|exchange| exchange.state == State::Established);
        let one_each: BTreeMap<(SocketAddr, SocketAddr), ConnectionId> =
            established.map(|exchange| ((exchange.addresses.dst(), exchange.addresses.src()), exchange.id)).collect();
        one_each.into_values().for_each(|id| self.send_ready(id));
    }

    /// Sends the same probe to ports that are in doubt. Messages of connections that are not established are
    /// retransmitted anyway.
    fn probe_suspects(&mut self, now: Time) {
        for address in self.suspects.take_due(now) {
            if let Some(id) = self.those_with(address, &[State::Established]).first() {
                self.send_ready(*id);
            }
        }
    }

    fn those_with(&self, address: SocketAddr, states: &[State]) -> Vec<ConnectionId> {
        let concerned = |exchange: &&Exchange| exchange.addresses.dst() == address && states.contains(&exchange.state);
        self.exchanges.values().filter(concerned).map(|exchange| exchange.id).collect()
    }

    /// Processes a message. `way` is from the sender to the local end.
    pub(crate) fn receive(&mut self, now: Time, way: &Addresses, mad: Mad) {
        let Mad { transaction_id, message } = mad;
        match message {
            Message::Request(request) => self.receive_request(now, way, transaction_id, request),
            Message::Reply(reply) => self.receive_reply(now, way, transaction_id, reply),
            Message::ReadyToUse(ready) => match self.addressed(way, ready.remote_comm_id, ready.local_comm_id) {
                Some((id, State::ReplySent)) => self.establish(id),
                Some((_, State::Established | State::DisconnectSent)) => self.suspects.heard(way.src()),
                _ => self.strays += 1,
            },
            Message::Reject(reject) => self.receive_reject(now, way, transaction_id, reject),
            Message::DisconnectRequest(request) => self.receive_disconnect(way, transaction_id, &request),
            Message::LookupRequest(request) => self.receive_lookup(now, way, transaction_id, request),
            Message::LookupReply(reply) => self.receive_found(now, way, transaction_id, reply),
            Message::DisconnectReply(reply) => match self.addressed(way, reply.remote_comm_id, reply.local_comm_id) {
                Some((id, State::DisconnectSent)) => self.finish(id),
                _ => self.strays += 1,
            },
        }
    }

    fn receive_request(&mut self, now: Time, way: &Addresses, transaction_id: u64, request: Request) {
        if let Some(id) = self.by_request.get(&(way.src(), request.local_comm_id)).copied() {
            // A retransmission. Unless the local reply has been lost, no response is needed.
            if self.exchanges[&id].state == State::ReplySent {
                self.send_again(now, id);
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
            Some(service) if !service.kind.makes(request.transport_service) => {
                Some(RejectReason::INVALID_TRANSPORT_SERVICE)
            }
            Some(service) if self.is_full(service) => Some(RejectReason::NO_RESOURCES),
            Some(_) => None,
        };
        if let Some(reason) = reason {
            return self.out.push_back((way.reversed(), mad(transaction_id, Message::Reject(refuse(reason)))));
        }
        let remote = request.local_comm_id;
        let Some(id) = self.add(now, way.reversed(), remote, transaction_id, State::RequestReceived) else {
            let reject = refuse(RejectReason::NO_RESOURCES);
            return self.out.push_back((way.reversed(), mad(transaction_id, Message::Reject(reject))));
        };
        self.exchanges.get_mut(&id).expect("it has just been added").remote_qpn = request.local_qpn;
        self.note_asked(now, id, request.service_id);
        self.cm_events.push_back(CmEvent::Requested(id, Box::new(request)));
    }

    /// Returns whether no further request may wait.
    pub(super) fn is_full(&self, service: &Service) -> bool {
        service.waiting >= service.backlog || self.half_open >= HALF_OPEN_MAX
    }

    /// Records a request about which the program has to decide.
    pub(super) fn note_asked(&mut self, now: Time, id: ConnectionId, service: ServiceId) {
        let exchange = self.exchanges.get_mut(&id).expect("the caller has added it");
        exchange.service = Some(service);
        self.by_request.insert((exchange.addresses.dst(), exchange.remote_comm_id), id);
        self.half_open += 1;
        if let Some(service) = self.services.get_mut(&service) {
            service.waiting += 1;
        }
        self.wait_for_program(now, id);
    }

    fn receive_reply(&mut self, now: Time, way: &Addresses, transaction_id: u64, reply: Reply) {
        // The local REQ did not know the remote communication id; the transaction id must match instead.
        let known = self.find(way, reply.remote_comm_id).and_then(|id| self.exchanges.get_mut(&id));
        match known {
            Some(exchange) if exchange.state == State::RequestSent && exchange.transaction_id == transaction_id => {
                exchange.become_(State::ReplyReceived);
                (exchange.remote_comm_id, exchange.remote_qpn) = (reply.local_comm_id, reply.local_qpn);
                let (id, round_trip) = (exchange.id, exchange.round_trip(now));
                self.cm_events.push_back(CmEvent::Replied(id, Box::new(reply), round_trip));
            }
            Some(exchange) if exchange.remote_comm_id == reply.local_comm_id => {
                // A retransmission: the local RTU has been lost, or is still to be sent.
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
                self.out.push_back((way.reversed(), mad(transaction_id, Message::Reject(reject))));
            }
        }
    }

    fn receive_reject(&mut self, now: Time, way: &Addresses, transaction_id: u64, reject: Reject) {
        let id = self.find(way, reject.remote_comm_id).filter(|id| {
            let exchange = &self.exchanges[id];
            let expected = match reject.rejected {
                Rejected::Request => exchange.state == State::RequestSent,
                Rejected::Reply => exchange.state == State::ReplySent,
                // The remote end has given up.
                _ => matches!(exchange.state, State::RequestSent | State::ReplySent | State::RequestReceived),
            };
            expected && exchange.transaction_id == transaction_id
        });
        let Some(id) = id else {
            self.strays += 1;
            return;
        };
        if reject.reason == RejectReason::INVALID_SERVICE_ID && self.may_listen_yet(now, id) {
            return;
        }
        self.remove(id);
        self.cm_events.push_back(CmEvent::Refused(id, Box::new(reject)));
    }

    fn receive_disconnect(&mut self, way: &Addresses, transaction_id: u64, request: &DisconnectRequest) {
        let reply = DisconnectReply {
            local_comm_id: request.remote_comm_id,
            remote_comm_id: request.local_comm_id,
            private_data: PrivateData::default(),
        };
        match self.addressed(way, request.remote_comm_id, request.local_comm_id) {
            Some((id, State::Established | State::DisconnectSent | State::ReplySent)) => self.finish(id),
            // The local reply has been lost, or the remote end is in a wrong state: in both cases it must receive this
            // message.
            _ => self.strays += 1,
        }
        self.out.push_back((way.reversed(), mad(transaction_id, Message::DisconnectReply(reply))));
    }

    /// Returns the connection that `way` and the local communication id name.
    pub(super) fn find(&self, way: &Addresses, local_comm_id: u32) -> Option<ConnectionId> {
        let id = *self.by_comm_id.get(&local_comm_id)?;
        (self.exchanges[&id].addresses == way.reversed()).then_some(id)
    }

    /// Returns the connection that `way` and both communication ids name, and its state.
    fn addressed(&self, way: &Addresses, local_comm_id: u32, remote_comm_id: u32) -> Option<(ConnectionId, State)> {
        let id = self.find(way, local_comm_id)?;
        let exchange = &self.exchanges[&id];
        (exchange.remote_comm_id == remote_comm_id).then_some((id, exchange.state))
    }

    /// Moves a request in state `from`, about which the program has decided, to state `to`; returns `None` if it no
    /// longer exists.
    pub(super) fn decide(&mut self, id: ConnectionId, from: State, to: State) -> Option<&mut Exchange> {
        let exchange = self.exchanges.get_mut(&id).filter(|exchange| exchange.state == from)?;
        exchange.become_(to);
        self.waits_no_longer(id);
        self.exchanges.get_mut(&id)
    }

    fn waits_no_longer(&mut self, id: ConnectionId) {
        let service = self.exchanges.get(&id).and_then(|exchange| exchange.service);
        if let Some(service) = service.and_then(|service| self.services.get_mut(&service)) {
            // Another service may have been registered under the same id meanwhile.
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
            // Zero means that there is no id.
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
            resend_at: None,
            interval: RESEND_FIRST,
            give_up_at: now,
            patience: Duration::ZERO,
            sent_at: now,
            sendings: 0,
        };
        self.exchanges.insert(id, exchange);
        self.by_comm_id.insert(local_comm_id, id);
        Some(id)
    }

    /// Ends a connection and reports an event, unlike [`Manager::remove`], which reports none.
    fn finish(&mut self, id: ConnectionId) {
        self.remove(id);
        self.cm_events.push_back(CmEvent::Disconnected(id));
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        if self.exchanges.get(&id).is_some_and(Exchange::is_waiting) {
            self.waits_no_longer(id);
        }
        let Some(mut exchange) = self.exchanges.remove(&id) else { return };
        self.half_open -= usize::from(exchange.is_half_open());
        exchange.become_(State::Gone);
        self.by_comm_id.remove(&exchange.local_comm_id);
        let asked = (exchange.addresses.dst(), exchange.remote_comm_id);
        if self.by_request.get(&asked) == Some(&id) {
            self.by_request.remove(&asked);
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

    /// Sends a message, and retransmits it until it is answered or `patience` has passed.
    pub(super) fn send_until_answered(&mut self, now: Time, id: ConnectionId, message: Message, patience: Duration) {
        let exchange = self.exchanges.get_mut(&id).expect("the caller has it");
        exchange.message = Some(Box::new(message));
        (exchange.sent_at, exchange.sendings, exchange.patience) = (now, 0, patience);
        (exchange.interval, exchange.give_up_at) = (RESEND_FIRST, now + patience);
        self.send_again(now, id);
    }

    pub(super) fn send_again(&mut self, now: Time, id: ConnectionId) {
        let exchange = self.exchanges.get_mut(&id).expect("the caller has it");
        let Some(message) = &exchange.message else { return };
        self.out.push_back((exchange.addresses, mad(exchange.transaction_id, (**message).clone())));
        exchange.sendings += 1;
        let at = (now + exchange.interval).min(exchange.give_up_at);
        exchange.interval = exchange.interval.saturating_mul(2).min(RESEND_MOST);
        exchange.resend_at = Some(at);
        self.timers.push(Reverse((at, id)));
    }

    /// Lets a request wait for the program's decision for a limited time.
    pub(super) fn wait_for_program(&mut self, now: Time, id: ConnectionId) {
        let exchange = self.exchanges.get_mut(&id).expect("the caller has it");
        let at = now + PROGRAM_PATIENCE;
        (exchange.give_up_at, exchange.patience) = (at, PROGRAM_PATIENCE);
        exchange.resend_at = Some(at);
        self.timers.push(Reverse((at, id)));
    }

    /// Returns the time at which [`Manager::tick`] has something to do next.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        timer.into_iter().chain(self.suspects.next_due()).min()
    }

    /// Retransmits, or abandons, the messages that are due.
    pub(crate) fn tick(&mut self, now: Time) {
        self.probe_suspects(now);
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            // An outdated timer entry belongs to a connection that has changed its state.
            let Some(exchange) = self.exchanges.get(&id).filter(|exchange| exchange.resend_at == Some(at)) else {
                continue;
            };
            if now < exchange.give_up_at {
                self.send_again(now, id);
            } else {
                self.give_up(id);
            }
        }
    }

    fn give_up(&mut self, id: ConnectionId) {
        let exchange = &self.exchanges[&id];
        let (state, patience) = (exchange.state, exchange.patience);
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
                self.cm_events.push_back(CmEvent::TimedOut(id, patience));
            }
        }
    }

    /// Returns the next message to send, and its addresses from the local to the remote end.
    pub(crate) fn poll_message(&mut self) -> Option<(Addresses, Mad)> {
        self.out.pop_front()
    }

    /// Returns the next event.
    pub(crate) fn poll_happening(&mut self) -> Option<CmEvent> {
        self.cm_events.pop_front()
    }
}

pub(super) fn mad(transaction_id: u64, message: Message) -> Mad {
    Mad { transaction_id, message }
}

/// Maximum number of connections and attempts; each takes a few hundred bytes, and queue pairs cost more.
const EXCHANGES_MAX: usize = 1 << 16;

/// Maximum number of requests from unknown senders that wait for a response from either end, over all services.
const HALF_OPEN_MAX: usize = 4_096;

/// Time that a request waits for the program's decision.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(30);

/// Time for which a disconnect request is retransmitted. The connection is over then in any case.
const DISCONNECT_PATIENCE: Duration = Duration::from_ms(500);

/// Interval before the first retransmission of a message; it doubles each time. A response takes a few milliseconds on
/// a busy machine.
const RESEND_FIRST: Duration = Duration::from_ms(20);

/// Upper bound of the retransmission interval.
const RESEND_MOST: Duration = Duration::from_ms(500);
