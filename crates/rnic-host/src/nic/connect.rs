//! Connections: conversion between connection management messages and queue pairs. The protocol is implemented in
//! [`crate::cm`].

mod act;
mod messages;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use rnic_base::{Psn, Time};
use rnic_engine::{PeerId, QpAttributes, QpConnection, QpTiming, Transport};
use rnic_policy::Profile;
use rnic_wire::cm::{RejectInfo, RejectReason, Request, ServiceId};
use rnic_wire::{Addresses, Qpn};

use super::device::Device;
use crate::cm::negotiate::{REPLY_DATA_BYTES, REQUEST_DATA_BYTES, Terms};
use crate::cm::{
    ConnectionId, Manager, ServiceKind, falcon_key_hint, falcon_params, falcon_params_text, is_flow_count,
};
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent};
use crate::defaults::TransportChoice;
use crate::error::{ConnectError, ListenError, NicError};
use crate::mtu::{falcon_wire_mtu, ib_mtu, wire_mtu};
use crate::secrets::{SecretStream, Secrets};
use crate::window;

use messages::{
    attributes, capped, check_private_data, detail_of, is_other_stack, reason_of, reply, request, terms_of_request,
    timing,
};

/// Local state of a connection.
#[derive(Debug)]
pub(super) struct Attached {
    addresses: Addresses,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// A peer requests a connection; the program has not decided yet.
    Requested(Box<Request>),
    /// The local end has requested a connection.
    Requesting(Box<Requesting>),
    /// The local end has accepted the connection. Contains the values that the queue pair needs for sending, and the
    /// connection that is reported to the program when it is established.
    Accepted(QpTiming, Box<Connection>, PeerId),
    /// The connection is established or has ended: contains the resources that [`Nic::close`](super::Nic::close) must
    /// release.
    Open(Qpn, PeerId),
}

/// A connection requested by the local end.
#[derive(Debug)]
struct Requesting {
    qpn: Qpn,
    peer: PeerId,
    transport: Arc<Transport>,
    config: ConnectionConfig,
    psn: Psn,
    terms: Terms,
}

/// The connection manager of a NIC, and the local state of each of its connections.
#[derive(Debug)]
pub(super) struct Connections {
    cm: Manager,
    attached: BTreeMap<ConnectionId, Attached>,
    /// Connections, indexed by queue pair. Never iterated.
    by_qpn: HashMap<Qpn, ConnectionId>,
    /// Events that the program has not polled yet.
    events: VecDeque<ConnectionEvent>,
    /// Prepared transports, shared by queue pairs.
    transports: Vec<Arc<Transport>>,
    /// Identifier of this adapter in messages.
    guid: u64,
    /// Sequence number of the last management message.
    gsi_psn: Psn,
    /// Generates the initial sequence numbers of connections.
    psns: SecretStream,
}

impl Connections {
    pub(super) fn new(secrets: &Secrets) -> Self {
        // These values are sent in messages.
        let mut public = secrets.stream("public");
        Self {
            cm: Manager::new(secrets.stream("connection manager")),
            attached: BTreeMap::new(),
            by_qpn: HashMap::new(),
            events: VecDeque::new(),
            transports: Vec::new(),
            guid: public.bits(),
            gsi_psn: Psn::new(public.bits() as u32),
            psns: secrets.stream("first sequence numbers"),
        }
    }

    /// Returns the connection manager, which processes messages.
    #[inline]
    pub(super) fn manager(&mut self) -> &mut Manager {
        &mut self.cm
    }

    /// Returns whether the connection manager waits for a response.
    pub(super) fn is_busy(&self) -> bool {
        self.cm.is_busy()
    }

    /// Returns the time at which a message is to be retransmitted, or abandoned.
    #[inline]
    pub(super) fn next_due(&self) -> Option<Time> {
        self.cm.next_timeout()
    }

    /// See [`Nic::listen`](super::Nic::listen).
    ///
    /// # Errors
    /// As there.
    pub(super) fn listen(&mut self, port: u16, backlog: usize) -> Result<ServiceId, ListenError> {
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

    /// See [`Nic::unlisten`](super::Nic::unlisten).
    pub(super) fn unlisten(&mut self, service: ServiceId) {
        self.cm.unlisten(service);
    }

    /// See [`Nic::start_connect`](super::Nic::start_connect).
    ///
    /// # Errors
    /// As there.
    pub(super) fn start_connect(
        &mut self,
        device: &mut Device,
        to: SocketAddr,
        port: u16,
        config: &ConnectionConfig,
    ) -> Result<ConnectionId, ConnectError> {
        check_private_data(config, REQUEST_DATA_BYTES)?;
        let first = config.transports.first().ok_or(ConnectError::NoCommonTransport { to, theirs: String::new() })?;
        let transport = self.transport_of(&first.profile)?;
        let (addresses, wire_mtu) = path_to(device, to, &config.transports)?;
        let peer = device.acquire_peer_at(&addresses)?;
        let terms = Terms {
            wire_mtu,
            receive_window: Some(window::share(device.receive_window(wire_mtu), device.link.peers.len())),
            cap_packets: config.transports.iter().find_map(|choice| choice.profile.cap_packets),
            falcon: config
                .transports
                .iter()
                .map(|choice| falcon_params_of(device, choice))
                .find(|word| *word != 0)
                .unwrap_or(0),
            messages: device.messages_version(),
            transports: config.transports.iter().map(|choice| choice.profile.name.to_owned()).collect(),
        };
        let psn = self.draw_psn();
        let attributes = attributes(config, &transport, None);
        let result = device.create_qp(&attributes).map_err(ConnectError::from).and_then(|qpn| {
            device.engine.modify_to_init(qpn)?;
            let requesting = Requesting { qpn, peer, transport, config: config.clone(), psn, terms };
            let request = request(&addresses, port, self.guid, &requesting);
            let now = device.clock.now();
            match self.cm.connect(now, addresses, request, config.timeout) {
                Some(id) => Ok((id, requesting)),
                None => {
                    let _ = device.destroy_qp(qpn);
                    Err(ConnectError::TooMany)
                }
            }
        });
        match result {
            Ok((id, requesting)) => {
                let stage = Stage::Requesting(Box::new(requesting));
                self.attached.insert(id, Attached { addresses, stage });
                Ok(id)
            }
            Err(error) => {
                device.release_peer(peer);
                Err(error)
            }
        }
    }

    /// See [`Nic::accept`](super::Nic::accept).
    ///
    /// # Errors
    /// As there.
    pub(super) fn accept(
        &mut self,
        device: &mut Device,
        id: ConnectionId,
        config: &ConnectionConfig,
    ) -> Result<Connection, ConnectError> {
        check_private_data(config, REPLY_DATA_BYTES)?;
        let Some(Attached { addresses, stage: Stage::Requested(request) }) = self.attached.remove(&id) else {
            return Err(ConnectError::Gone);
        };
        let accepted = self.accept_request(device, id, &addresses, &request, config);
        if let Err(error) = &accepted {
            let (reason, info) = reason_of(error);
            self.cm.reject(id, reason, info, detail_of(error, config).as_bytes());
        }
        accepted
    }

    fn accept_request(
        &mut self,
        device: &mut Device,
        id: ConnectionId,
        addresses: &Addresses,
        request: &Request,
        config: &ConnectionConfig,
    ) -> Result<Connection, ConnectError> {
        let to = addresses.dst();
        let (_, mtu_here) = path_to(device, to, &config.transports)?;
        let (theirs, private_data) = terms_of_request(request);
        // Peers with another implementation cannot accept a smaller MTU.
        if theirs.wire_mtu == 0 || (theirs.wire_mtu > mtu_here && is_other_stack(request)) {
            return Err(ConnectError::PathMtuTooSmall { to, mtu_bytes: mtu_here });
        }
        let wire_mtu = theirs.wire_mtu.min(mtu_here);
        let choice = capped(choose(device, to, &theirs, config)?, theirs.cap_packets);
        let transport = self.transport_of(&choice.profile)?;
        let peer = device.acquire_peer_at(addresses)?;
        let psn = self.draw_psn();
        let made = make_qp(
            device,
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
                device.release_peer(peer);
                return Err(error);
            }
        };
        set_window(device, peer, theirs.receive_window);
        device.note_messages_of(qpn, peer, theirs.messages);
        let reads_max = u32::from(config.reads().min(request.responder_resources));
        let timing = timing(config, &choice, request.starting_psn, reads_max);
        let ours = Terms {
            wire_mtu,
            receive_window: Some(window::share(device.receive_window(wire_mtu), device.link.peers.len())),
            cap_packets: choice.profile.cap_packets,
            falcon: falcon_params_of(device, &choice),
            messages: device.messages_version(),
            transports: vec![choice.profile.name.to_owned()],
        };
        let now = device.clock.now();
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

    /// See [`Nic::reject`](super::Nic::reject).
    ///
    /// # Errors
    /// As there.
    pub(super) fn reject(&mut self, id: ConnectionId, detail: &str) -> Result<(), ConnectError> {
        self.attached
            .remove(&id)
            .filter(|attached| matches!(attached.stage, Stage::Requested(_)))
            .ok_or(ConnectError::Gone)?;
        self.cm.reject(id, RejectReason::CONSUMER, RejectInfo::default(), detail.as_bytes());
        Ok(())
    }

    /// See [`Nic::disconnect`](super::Nic::disconnect).
    ///
    /// # Errors
    /// As there.
    pub(super) fn disconnect(&mut self, device: &mut Device, id: ConnectionId) -> Result<(), ConnectError> {
        let Some(Attached { stage: Stage::Open(qpn, _), .. }) = self.attached.get(&id) else {
            return Err(ConnectError::Gone);
        };
        let qpn = *qpn;
        let remote = device.engine.query_qp(qpn).map_or(Qpn::default(), |info| info.dest_qpn);
        // When a peer is notified of the end of a connection, it treats everything that has not been acknowledged by
        // then as lost.
        device.flush_last_acks(qpn);
        let now = device.clock.now();
        if !self.cm.disconnect(now, id, remote) {
            return Err(ConnectError::Gone);
        }
        device.engine.modify_to_error(qpn)?;
        Ok(())
    }

    /// See [`Nic::close`](super::Nic::close).
    pub(super) fn close(&mut self, device: &mut Device, id: ConnectionId) {
        let Some(attached) = self.attached.remove(&id) else { return };
        match attached.stage {
            Stage::Requested(_) => {
                self.cm.reject(id, RejectReason::CONSUMER, RejectInfo::default(), &[]);
            }
            Stage::Requesting(requesting) => {
                self.cm.forget(id);
                self.release_qp(device, requesting.qpn, requesting.peer);
            }
            Stage::Accepted(_, connection, peer) => {
                self.cm.forget(id);
                self.release_qp(device, connection.qpn, peer);
            }
            Stage::Open(qpn, peer) => {
                device.flush_last_acks(qpn);
                let remote = device.engine.query_qp(qpn).map_or(Qpn::default(), |info| info.dest_qpn);
                let now = device.clock.now();
                self.cm.disconnect(now, id, remote);
                self.release_qp(device, qpn, peer);
            }
        }
    }

    /// Removes and returns the first event for which `is_wanted` returns true; all other events remain queued.
    pub(super) fn take_event(&mut self, is_wanted: impl Fn(&ConnectionEvent) -> bool) -> Option<ConnectionEvent> {
        let index = self.events.iter().position(is_wanted)?;
        let event = self.events.remove(index);
        self.confirm(event.as_ref());
        event
    }

    /// See [`Nic::poll_connection_event`](super::Nic::poll_connection_event).
    pub(super) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        let event = self.events.pop_front();
        self.confirm(event.as_ref());
        event
    }

    /// Permits the remote end to use a connection, because the local program now knows that it is established.
    fn confirm(&mut self, event: Option<&ConnectionEvent>) {
        if let Some(ConnectionEvent::Established(connection)) = event {
            self.cm.confirm(connection.id);
        }
    }

    fn release_qp(&mut self, device: &mut Device, qpn: Qpn, peer: PeerId) {
        self.by_qpn.remove(&qpn);
        // The program may have destroyed the queue pair already.
        let _ = device.destroy_qp(qpn);
        device.release_peer(peer);
    }

    /// Returns `profile` as a prepared transport; queue pairs with equal profiles share one.
    fn transport_of(&mut self, profile: &Profile) -> Result<Arc<Transport>, ConnectError> {
        let values = |profile: &Profile| profile.options().map(|(spec, value)| (spec.name, value)).collect::<Vec<_>>();
        let parts = |profile: &Profile| {
            let Profile { name, recovery, control, paths, schedule, .. } = profile;
            [name, recovery.policy.name, control.policy.name, paths.policy.name, schedule.policy.name]
        };
        let equal = |known: &&Arc<Transport>| {
            let known = known.profile();
            // The protocol is compared as well, because it records whether a value was set explicitly.
            parts(known) == parts(profile)
                && known.protocol == profile.protocol
                && known.recovery.policy.is_of(&profile.recovery.policy)
                && values(known) == values(profile)
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

    fn draw_psn(&mut self) -> Psn {
        Psn::new(self.psns.bits() as u32)
    }
}

/// Returns the first of the transports offered by the remote end that the local end also supports.
fn choose<'a>(
    device: &Device,
    to: SocketAddr,
    theirs: &Terms,
    config: &'a ConnectionConfig,
) -> Result<&'a TransportChoice, ConnectError> {
    let credit_support = |name: &String| config.transports.iter().find(|choice| choice.profile.name == name);
    let choice = theirs.transports.iter().find_map(credit_support);
    let choice = choice.ok_or_else(|| ConnectError::NoCommonTransport { to, theirs: theirs.transports.join(", ") })?;
    check_falcon(device, to, choice, theirs.falcon)?;
    Ok(choice)
}

/// Creates a queue pair that is able to receive.
fn make_qp(device: &mut Device, attributes: &QpAttributes, connection: &QpConnection) -> Result<Qpn, ConnectError> {
    let qpn = device.create_qp(attributes)?;
    let ready = device.engine.modify_to_init(qpn);
    let ready = ready.and_then(|()| device.connect_qp(qpn, connection));
    match ready {
        Ok(()) => Ok(qpn),
        Err(error) => {
            let _ = device.destroy_qp(qpn);
            Err(error.into())
        }
    }
}

/// Sets the limit of packets in flight to `peer` to the number that the peer has specified, if any; the limit is at
/// least one.
fn set_window(device: &mut Device, peer: PeerId, packets: Option<u32>) {
    device.engine.set_peer_limit(peer, packets.map(|packets| u64::from(packets.max(1))));
}

/// Returns the addresses of the path to `to`, and the largest wire MTU on it.
pub(super) fn path_to(
    device: &Device,
    to: SocketAddr,
    transports: &[TransportChoice],
) -> Result<(Addresses, u32), ConnectError> {
    let (addresses, route) = device.addresses_to(to).map_err(|error| match error {
        NicError::System { error, .. } => ConnectError::Unreachable { to, reason: error.to_string() },
        error => error.into(),
    })?;
    let offers_falcon = transports.iter().any(|choice| choice.profile.protocol.falcon().is_some());
    let mtu_of = if offers_falcon { falcon_wire_mtu } else { wire_mtu };
    let mtu = mtu_of(route.mtu_bytes, addresses.ip_version(), device.config.mtu_max_bytes);
    let mtu = mtu.ok_or(ConnectError::PathMtuTooSmall { to, mtu_bytes: route.mtu_bytes })?;
    Ok((addresses, if device.config.real_roce_peers { ib_mtu(mtu) } else { mtu }))
}

/// See [`falcon_params`].
fn falcon_params_of(device: &Device, choice: &TransportChoice) -> u32 {
    falcon_params(&choice.profile, device.config.protection.as_ref())
}

/// Checks that both ends have the same Falcon settings, or the same number of flows; `theirs` is the value of
/// [`falcon_params`] at the other end.
fn check_falcon(device: &Device, to: SocketAddr, choice: &TransportChoice, theirs: u32) -> Result<(), ConnectError> {
    let ours = falcon_params_of(device, choice);
    // The other end's value may be that of another transport that it offers.
    let says_nothing = ours == 0 && !(choice.profile.flows.is_some() && is_flow_count(theirs));
    if ours == theirs || says_nothing {
        return Ok(());
    }
    let hint = falcon_key_hint(ours, theirs);
    Err(ConnectError::FalconMismatch { to, theirs: falcon_params_text(theirs), ours: falcon_params_text(ours), hint })
}

/// Maximum number of services of one NIC.
const SERVICES_MAX: usize = 1_024;

/// Number of prepared transports that are kept for later connections; one entry is used by all connections with the
/// same settings.
const TRANSPORTS_KEPT: usize = 64;
