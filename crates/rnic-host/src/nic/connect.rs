//! Connections: from messages to queue pairs and back. The protocol is in [`crate::cm`].

mod act;
mod messages;

use std::net::SocketAddr;
use std::sync::Arc;

use rnic_base::Psn;
use rnic_engine::{PeerId, QpAttributes, QpConnection, QpTiming, Transport};
use rnic_policy::Profile;
use rnic_wire::cm::{RejectInfo, RejectReason, Request, ServiceId};
use rnic_wire::{Addresses, Qpn};

use super::Nic;
use crate::cm::negotiate::{REPLY_DATA_BYTES, REQUEST_DATA_BYTES, Terms};
use crate::cm::{ConnectionId, ServiceKind, falcon_key_hint, falcon_text, falcon_word};
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent};
use crate::defaults::TransportChoice;
use crate::error::{ConnectError, ListenError, NicError};
use crate::mtu::{falcon_wire_mtu, ib_mtu, wire_mtu};
use crate::window;

use messages::{
    attributes, capped, check_private_data, detail_of, is_others, reason_of, reply, request, terms_of_request, timing,
};

/// What a connection has on this side.
#[derive(Debug)]
pub(super) struct Attached {
    addresses: Addresses,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Somebody asks; the program has not decided.
    Asked(Box<Request>),
    /// We ask.
    Asking(Box<Asking>),
    /// We have accepted: what the queue pair needs to send, and what the program is told when it may.
    Accepted(QpTiming, Box<Connection>, PeerId),
    /// In use, or over: what [`Nic::close`] has to give back.
    Open(Qpn, PeerId),
}

/// What we have asked for.
#[derive(Debug)]
struct Asking {
    qpn: Qpn,
    peer: PeerId,
    transport: Arc<Transport>,
    config: ConnectionConfig,
    psn: Psn,
    terms: Terms,
}

impl Nic {
    /// Starts waiting for connections to the service behind `port`. Up to `backlog` requests wait for a decision.
    ///
    /// # Errors
    /// When somebody does already, or there are too many services.
    pub fn listen(&mut self, port: u16, backlog: usize) -> Result<ServiceId, ListenError> {
        let service = ServiceId::for_port(port);
        if self.cm.services() >= SERVICES_MAX {
            return Err(ListenError::TooMany);
        }
        if self.cm.listen(service, ServiceKind::ReliableConnections, backlog.max(1)) {
            Ok(service)
        } else {
            Err(ListenError::ServiceInUse(service))
        }
    }

    /// Stops waiting for connections to `service`.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.cm.unlisten(service);
    }

    /// Asks for a connection to the service behind `port` at `to`, and waits for the answer.
    ///
    /// The other end learns that the connection stands, and may send, with the next [`Nic::progress`]: post receives
    /// before.
    ///
    /// # Errors
    /// When there is no connection in the end. Other connections' news stay for [`Nic::poll_connection_event`].
    pub fn connect(
        &mut self,
        to: SocketAddr,
        port: u16,
        config: &ConnectionConfig,
    ) -> Result<Connection, ConnectError> {
        let id = self.start_connect(to, port, config)?;
        let is_ours = |event: &ConnectionEvent| match event {
            ConnectionEvent::Established(connection) => connection.id == id,
            ConnectionEvent::Failed { id: failed, .. } => *failed == id,
            _ => false,
        };
        loop {
            while self.progress() {}
            if let Some(index) = self.connection_events.iter().position(is_ours)
                && let Some(event) = self.connection_events.remove(index)
            {
                return match event {
                    ConnectionEvent::Established(connection) => {
                        self.cm.confirm(id);
                        Ok(connection)
                    }
                    ConnectionEvent::Failed { error, .. } => Err(error),
                    _ => Err(ConnectError::Gone),
                };
            }
            self.wait(config.timeout)?;
        }
    }

    /// Asks for a connection; what becomes of it comes from [`Nic::poll_connection_event`].
    ///
    /// # Errors
    /// When it cannot even be asked for.
    pub fn start_connect(
        &mut self,
        to: SocketAddr,
        port: u16,
        config: &ConnectionConfig,
    ) -> Result<ConnectionId, ConnectError> {
        check_private_data(config, REQUEST_DATA_BYTES)?;
        let first = config.transports.first().ok_or(ConnectError::NoCommonTransport { to, theirs: String::new() })?;
        let transport = self.transport_of(&first.profile)?;
        let (addresses, wire_mtu) = self.narrow_way_to(to, config)?;
        let peer = self.acquire_peer_at(&addresses)?;
        let terms = Terms {
            wire_mtu,
            receive_window: Some(window::share(self.receive_window(wire_mtu), self.link.peers.len())),
            cap_packets: config.transports.iter().find_map(|choice| choice.profile.cap_packets),
            falcon: config
                .transports
                .iter()
                .map(|choice| self.falcon_word(choice))
                .find(|word| *word != 0)
                .unwrap_or(0),
            transports: config.transports.iter().map(|choice| choice.profile.name.to_owned()).collect(),
        };
        let psn = self.draw_psn();
        let attributes = attributes(config, &transport, None);
        let asked = self.make_engine_qp(&attributes).map_err(ConnectError::from).and_then(|qpn| {
            self.engine.modify_to_init(qpn)?;
            let asking = Asking { qpn, peer, transport, config: config.clone(), psn, terms };
            let request = request(&addresses, port, self.guid, &asking);
            let now = self.clock.now();
            match self.cm.connect(now, addresses, request, config.timeout) {
                Some(id) => Ok((id, asking)),
                None => {
                    let _ = self.destroy_engine_qp(qpn);
                    Err(ConnectError::TooMany)
                }
            }
        });
        match asked {
            Ok((id, asking)) => {
                let stage = Stage::Asking(Box::new(asking));
                self.attached.insert(id, Attached { addresses, stage });
                Ok(id)
            }
            Err(error) => {
                self.release_peer(peer);
                Err(error)
            }
        }
    }

    /// Accepts a connection. The answer leaves, and the other end may send, with the next [`Nic::progress`]: post
    /// receives before. The connection may be used for sending when [`ConnectionEvent::Established`] says so.
    ///
    /// # Errors
    /// When it cannot be: then the other end has been told, and the request is gone.
    pub fn accept(&mut self, id: ConnectionId, config: &ConnectionConfig) -> Result<Connection, ConnectError> {
        check_private_data(config, REPLY_DATA_BYTES)?;
        let Some(Attached { addresses, stage: Stage::Asked(request) }) = self.attached.remove(&id) else {
            return Err(ConnectError::Gone);
        };
        let accepted = self.accept_request(id, &addresses, &request, config);
        if let Err(error) = &accepted {
            let (reason, info) = reason_of(error);
            self.cm.reject(id, reason, info, detail_of(error, config).as_bytes());
        }
        accepted
    }

    fn accept_request(
        &mut self,
        id: ConnectionId,
        addresses: &Addresses,
        request: &Request,
        config: &ConnectionConfig,
    ) -> Result<Connection, ConnectError> {
        let to = addresses.dst();
        let (_, mtu_here) = self.narrow_way_to(to, config)?;
        let (theirs, private_data) = terms_of_request(request);
        // Somebody else's stack cannot be told a smaller one.
        if theirs.wire_mtu == 0 || (theirs.wire_mtu > mtu_here && is_others(request)) {
            return Err(ConnectError::PathTooNarrow { to, mtu_bytes: mtu_here });
        }
        let wire_mtu = theirs.wire_mtu.min(mtu_here);
        let choice = capped(self.choose(to, &theirs, config)?, theirs.cap_packets);
        let transport = self.transport_of(&choice.profile)?;
        let peer = self.acquire_peer_at(addresses)?;
        let psn = self.draw_psn();
        let made = self.make_qp(
            &attributes(config, &transport, None),
            &QpConnection {
                peer,
                dest_qpn: request.local_qpn,
                rq_psn: psn,
                mtu: wire_mtu,
                min_rnr_timer: config.rnr_timer(),
                max_dest_rd_atomic: config.reads().into(),
            },
        );
        let qpn = match made {
            Ok(qpn) => qpn,
            Err(error) => {
                self.release_peer(peer);
                return Err(error);
            }
        };
        self.set_window(peer, theirs.receive_window);
        let reads_max = u32::from(config.reads().min(request.responder_resources));
        let timing = timing(config, &choice, request.starting_psn, reads_max);
        let ours = Terms {
            wire_mtu,
            receive_window: Some(window::share(self.receive_window(wire_mtu), self.link.peers.len())),
            cap_packets: choice.profile.cap_packets,
            falcon: self.falcon_word(&choice),
            transports: vec![choice.profile.name.to_owned()],
        };
        let now = self.clock.now();
        self.cm.accept(now, id, reply(config, qpn, psn, self.guid, &ours), config.timeout);
        let connection = Connection {
            id,
            qpn,
            remote: to,
            transport: choice.profile.name,
            wire_mtu_bytes: wire_mtu,
            window_packets: theirs.receive_window,
            reads_max,
            round_trip: None,
            private_data,
        };
        let stage = Stage::Accepted(timing, Box::new(connection.clone()), peer);
        self.attached.insert(id, Attached { addresses: *addresses, stage });
        self.by_qpn.insert(qpn, id);
        Ok(connection)
    }

    /// The first of the transports that the other end asks for that this end has too.
    fn choose<'a>(
        &self,
        to: SocketAddr,
        theirs: &Terms,
        config: &'a ConnectionConfig,
    ) -> Result<&'a TransportChoice, ConnectError> {
        let speaks = |name: &String| config.transports.iter().find(|choice| choice.profile.name == name);
        let choice = theirs.transports.iter().find_map(speaks);
        let choice =
            choice.ok_or_else(|| ConnectError::NoCommonTransport { to, theirs: theirs.transports.join(", ") })?;
        self.check_falcon(to, choice, theirs.falcon)?;
        Ok(choice)
    }

    /// Refuses a connection, with a word to the program that asks.
    ///
    /// # Errors
    /// When nobody asks for it any more.
    pub fn reject(&mut self, id: ConnectionId, detail: &str) -> Result<(), ConnectError> {
        self.attached
            .remove(&id)
            .filter(|attached| matches!(attached.stage, Stage::Asked(_)))
            .ok_or(ConnectError::Gone)?;
        self.cm.reject(id, RejectReason::CONSUMER, RejectInfo::default(), detail.as_bytes());
        Ok(())
    }

    /// Ends a connection: what is posted is flushed, the other end is told. [`ConnectionEvent::Disconnected`] says when
    /// it has answered, or could have.
    ///
    /// # Errors
    /// When it is not established.
    pub fn disconnect(&mut self, id: ConnectionId) -> Result<(), ConnectError> {
        let Some(Attached { stage: Stage::Open(qpn, _), .. }) = self.attached.get(&id) else {
            return Err(ConnectError::Gone);
        };
        let qpn = *qpn;
        let remote = self.engine.query_qp(qpn).map_or(Qpn::default(), |info| info.dest_qpn);
        // Whoever hears of the end takes for lost what is not acknowledged by then.
        self.say_last_words(qpn);
        let now = self.clock.now();
        if !self.cm.disconnect(now, id, remote) {
            return Err(ConnectError::Gone);
        }
        self.engine.modify_to_error(qpn)?;
        Ok(())
    }

    /// Gives everything back that a connection has. One that is still established is disconnected on the way.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(attached) = self.attached.remove(&id) else { return };
        match attached.stage {
            Stage::Asked(_) => {
                self.cm.reject(id, RejectReason::CONSUMER, RejectInfo::default(), &[]);
            }
            Stage::Asking(asking) => {
                self.cm.forget(id);
                self.release_qp(asking.qpn, asking.peer);
            }
            Stage::Accepted(_, connection, peer) => {
                self.cm.forget(id);
                self.release_qp(connection.qpn, peer);
            }
            Stage::Open(qpn, peer) => {
                self.say_last_words(qpn);
                let remote = self.engine.query_qp(qpn).map_or(Qpn::default(), |info| info.dest_qpn);
                let now = self.clock.now();
                self.cm.disconnect(now, id, remote);
                self.release_qp(qpn, peer);
            }
        }
    }

    /// The next news of the connection manager.
    pub fn poll_connection_event(&mut self) -> Option<ConnectionEvent> {
        let event = self.connection_events.pop_front()?;
        if let ConnectionEvent::Established(connection) = &event {
            // Now that the program knows, the other end may.
            self.cm.confirm(connection.id);
        }
        Some(event)
    }

    fn release_qp(&mut self, qpn: Qpn, peer: PeerId) {
        self.by_qpn.remove(&qpn);
        // The program may have destroyed it itself.
        let _ = self.destroy_engine_qp(qpn);
        self.release_peer(peer);
    }

    /// Makes a queue pair that can receive.
    fn make_qp(&mut self, attributes: &QpAttributes, connection: &QpConnection) -> Result<Qpn, ConnectError> {
        let qpn = self.make_engine_qp(attributes)?;
        let ready = self.engine.modify_to_init(qpn).and_then(|()| self.connect_engine_qp(qpn, connection));
        match ready {
            Ok(()) => Ok(qpn),
            Err(error) => {
                let _ = self.destroy_engine_qp(qpn);
                Err(error.into())
            }
        }
    }

    fn set_window(&mut self, peer: PeerId, packets: Option<u32>) {
        self.engine.set_peer_limit(peer, packets.map(|packets| u64::from(packets.max(1))));
    }

    /// The way to `to`, and the largest wire MTU on it.
    fn narrow_way_to(&self, to: SocketAddr, config: &ConnectionConfig) -> Result<(Addresses, u32), ConnectError> {
        let (addresses, route) = self.way_to(to).map_err(|error| match error {
            NicError::System { error, .. } => ConnectError::Unreachable { to, reason: error.to_string() },
            error => error.into(),
        })?;
        let offers_falcon = config.transports.iter().any(|choice| choice.profile.protocol.falcon().is_some());
        let mtu_of = if offers_falcon { falcon_wire_mtu } else { wire_mtu };
        let mtu = mtu_of(route.mtu_bytes, addresses.ip_version(), self.config.mtu_max_bytes);
        let mtu = mtu.ok_or(ConnectError::PathTooNarrow { to, mtu_bytes: route.mtu_bytes })?;
        Ok((addresses, if self.config.real_roce_peers { ib_mtu(mtu) } else { mtu }))
    }

    /// `profile`, prepared; queue pairs with equal profiles share one.
    fn transport_of(&mut self, profile: &Profile) -> Result<Arc<Transport>, ConnectError> {
        let values = |profile: &Profile| profile.options().map(|(spec, value)| (spec.name, value)).collect::<Vec<_>>();
        let parts = |profile: &Profile| {
            let Profile { name, recovery, control, paths, schedule, .. } = profile;
            [name, recovery.policy.name, control.policy.name, paths.policy.name, schedule.policy.name]
        };
        let equal = |known: &&Arc<Transport>| {
            let known = known.profile();
            // Whether a value was chosen, too: the protocol knows that of its own.
            parts(known) == parts(profile) && known.protocol == profile.protocol && values(known) == values(profile)
        };
        if let Some(known) = self.transports.iter().find(equal) {
            return Ok(Arc::clone(known));
        }
        let transport = Arc::new(Transport::new(profile.clone())?);
        if self.transports.len() == TRANSPORTS_KEPT {
            self.transports.remove(0);
        }
        self.transports.push(Arc::clone(&transport));
        Ok(transport)
    }

    /// See [`falcon_word`].
    fn falcon_word(&self, choice: &TransportChoice) -> u32 {
        falcon_word(&choice.profile, self.config.protection.as_ref())
    }

    /// Both ends must have the same Falcon; `theirs` is the other end's word on it.
    fn check_falcon(&self, to: SocketAddr, choice: &TransportChoice, theirs: u32) -> Result<(), ConnectError> {
        let ours = self.falcon_word(choice);
        if ours == 0 || ours == theirs {
            return Ok(());
        }
        let hint = falcon_key_hint(ours, theirs);
        Err(ConnectError::OtherFalcon { to, theirs: falcon_text(theirs), ours: falcon_text(ours), hint })
    }

    fn draw_psn(&mut self) -> Psn {
        Psn::new(self.secret.psns.bits() as u32)
    }
}

/// Services of one NIC, at most.
const SERVICES_MAX: usize = 1_024;

/// Prepared transports that are kept for the next connection: kinds of connections, not connections.
const TRANSPORTS_KEPT: usize = 64;
