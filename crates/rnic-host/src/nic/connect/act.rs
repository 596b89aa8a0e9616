//! Applies the connection manager's events to queue pairs, and derives the events that programs receive.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rnic_base::{Duration, Time};
use rnic_engine::{AsyncEvent, QpConnection};
use rnic_wire::cm::{RejectReason, Reply, Request};
use rnic_wire::{Qpn, gsi};

use super::messages::{attributes, capped, detail_of, ib_mtu, reason_of, refusal, terms_of_request, timing};
use super::{Attached, Connections, Requesting, Stage, check_falcon, set_window};
use crate::cm::negotiate::Terms;
use crate::cm::{CmEvent, ConnectionId};
use crate::connection::{Connection, ConnectionEvent, ConnectionRequest};
use crate::error::ConnectError;
use crate::link::Link;
use crate::nic::device::Device;

impl Connections {
    /// Lets the connection manager process received messages and expired timers, then handles its events.
    pub(in crate::nic) fn run(&mut self, now: Time, device: &mut Device) {
        while let Some(event) = device.next_event() {
            if let AsyncEvent::CommunicationEstablished(qpn) = event
                && let Some(id) = self.by_qpn.get(&qpn)
            {
                self.cm.establish(*id);
            }
        }
        if self.cm.next_timeout().is_some_and(|due| due <= now) {
            self.cm.tick(now);
        }
        while let Some(cm_event) = self.cm.poll_cm_event() {
            self.act_on(device, cm_event);
        }
    }

    /// Passes management messages to the link.
    pub(in crate::nic) fn send_messages(&mut self, now: Time, link: &mut Link) {
        while let Some((addresses, mad)) = self.cm.poll_message() {
            self.gsi_psn = self.gsi_psn.plus(1);
            let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: self.gsi_psn, mad: &rnic_wire::cm::emit(&mad) };
            link.stats.cm_sent += 1;
            link.queue_datagram(now, &addresses, &packet.encode(&addresses));
        }
    }

    fn act_on(&mut self, device: &mut Device, cm_event: CmEvent) {
        match cm_event {
            CmEvent::Requested(id, request) => self.on_request(id, request),
            CmEvent::Replied(id, reply, round_trip) => self.on_reply(device, id, &reply, round_trip),
            CmEvent::Ready(id) => self.on_ready(device, id),
            CmEvent::Refused(id, reject) => self.fail(device, id, |to| refusal(to, &reject)),
            CmEvent::TimedOut(id, after) => self.fail(device, id, |to| ConnectError::TimedOut { to, after }),
            CmEvent::Unreachable(id, errno) => self.fail(device, id, |to| match errno {
                libc::ECONNREFUSED => ConnectError::Refused { to },
                _ => ConnectError::Unreachable { to, reason: io::Error::from_raw_os_error(errno).to_string() },
            }),
            CmEvent::Disconnected(id) => self.on_disconnected(device, id),
            // This code neither offers nor looks up datagram services.
            CmEvent::LookupRequested(..) | CmEvent::Found(..) => {}
        }
    }

    fn on_request(&mut self, id: ConnectionId, request: Box<Request>) {
        let Some(exchange) = self.cm.get(id) else { return };
        let addresses = exchange.addresses;
        let (terms, private_data) = terms_of_request(&request);
        self.events.push_back(ConnectionEvent::Requested(ConnectionRequest {
            id,
            from: addresses.dst(),
            service: request.service_id,
            transports: terms.transports,
            private_data,
        }));
        self.attached.insert(id, Attached { addresses, stage: Stage::Requested(request) });
    }

    fn on_reply(&mut self, device: &mut Device, id: ConnectionId, reply: &Reply, round_trip: Option<Duration>) {
        let Some(Attached { addresses, stage: Stage::Requesting(requesting) }) = self.attached.remove(&id) else {
            return;
        };
        let to = addresses.dst();
        match self.establish(device, to, &requesting, reply, round_trip) {
            Ok((choice, wire_mtu, theirs, private_data)) => {
                let Requesting { qpn, peer, config, .. } = *requesting;
                self.attached.insert(id, Attached { addresses, stage: Stage::Open(qpn, peer) });
                self.by_qpn.insert(qpn, id);
                self.events.push_back(ConnectionEvent::Established(Connection {
                    id,
                    qpn,
                    remote: to,
                    transport: choice,
                    wire_mtu_bytes: wire_mtu,
                    window_packets: theirs.receive_window,
                    reads_max: config.reads().min(reply.responder_resources).into(),
                    round_trip,
                    private_data,
                }));
            }
            Err(error) => {
                let (reason, info) = reason_of(&error);
                self.cm.reject(id, reason, info, detail_of(&error, &requesting.config).as_bytes());
                self.release_qp(device, requesting.qpn, requesting.peer);
                self.events.push_back(ConnectionEvent::Failed { id, error });
            }
        }
    }

    /// Makes the queue pair of a request ready to send after the reply has arrived.
    fn establish(
        &mut self,
        device: &mut Device,
        to: SocketAddr,
        requesting: &Requesting,
        reply: &Reply,
        round_trip: Option<Duration>,
    ) -> Result<(&'static str, u32, Terms, Vec<u8>), ConnectError> {
        let Requesting { qpn, peer, transport, config, psn, terms } = requesting;
        let (theirs, private_data) = match Terms::parse(&reply.private_data.0) {
            Some((theirs, data)) => (theirs, data.to_vec()),
            None => (Terms::of_other_stack(ib_mtu(terms.wire_mtu)), reply.private_data.0.to_vec()),
        };
        let chosen = theirs.transports.first();
        let choice = config.transports.iter().find(|choice| chosen.is_some_and(|name| choice.profile.name == name));
        let choice =
            choice.ok_or_else(|| ConnectError::NoCommonTransport { to, theirs: theirs.transports.join(", ") })?;
        check_falcon(device, to, choice, theirs.falcon)?;
        let choice = capped(choice, theirs.cap_packets).adapted_to(round_trip.unwrap_or_default());
        let agreed = self.transport_of(&choice.profile)?;
        if !Arc::ptr_eq(&agreed, transport) {
            // The queue pair is not in use by any local component yet; only the other end knows its number.
            device.destroy_qp(*qpn)?;
            device.create_qp(&attributes(config, &agreed, Some(*qpn)))?;
            device.engine.modify_to_init(*qpn)?;
        }
        let wire_mtu = terms.wire_mtu.min(theirs.wire_mtu);
        device.connect_qp(
            *qpn,
            &QpConnection {
                peer: *peer,
                dest_qpn: reply.local_qpn,
                rq_psn: *psn,
                mtu: wire_mtu,
                min_rnr_timer: config.rnr_timer(),
                max_dest_rd_atomic: config.reads().into(),
            },
        )?;
        let reads = config.reads().min(reply.responder_resources);
        let now = device.clock.now();
        device.engine.modify_to_rts(now, *qpn, &timing(config, &choice, reply.starting_psn, reads.into()))?;
        set_window(device, *peer, theirs.receive_window);
        device.note_messages_of(*qpn, *peer, theirs.messages);
        Ok((choice.profile.name, wire_mtu, theirs, private_data))
    }

    fn on_ready(&mut self, device: &mut Device, id: ConnectionId) {
        let Some(attached) = self.attached.get_mut(&id) else { return };
        let Stage::Accepted(timing, connection, peer) = &attached.stage else { return };
        let (timing, connection, peer) = (*timing, (**connection).clone(), *peer);
        attached.stage = Stage::Open(connection.qpn, peer);
        let now = device.clock.now();
        match device.engine.modify_to_rts(now, connection.qpn, &timing) {
            Ok(()) => self.events.push_back(ConnectionEvent::Established(connection)),
            // A request of the peer has already put the queue pair into the error state.
            Err(error) => self.events.push_back(ConnectionEvent::Failed { id, error: error.into() }),
        }
    }

    fn on_disconnected(&mut self, device: &mut Device, id: ConnectionId) {
        let Some(attached) = self.attached.get_mut(&id) else { return };
        match &attached.stage {
            Stage::Open(qpn, _) => {
                // The queue pair may already have failed for another reason.
                let _ = device.engine.modify_to_error(*qpn);
                self.events.push_back(ConnectionEvent::Disconnected(id));
            }
            _ => self.fail(device, id, |to| ConnectError::Rejected {
                to,
                reason: RejectReason::CONSUMER,
                detail: "the other end disconnected before the connection was established".to_owned(),
            }),
        }
    }

    /// Handles a connection that cannot be established: releases its resources and reports the failure to the program.
    fn fail(&mut self, device: &mut Device, id: ConnectionId, error: impl FnOnce(SocketAddr) -> ConnectError) {
        let Some(Attached { addresses, stage }) = self.attached.remove(&id) else { return };
        match stage {
            Stage::Requesting(requesting) => self.release_qp(device, requesting.qpn, requesting.peer),
            Stage::Accepted(_, connection, peer) => self.release_qp(device, connection.qpn, peer),
            Stage::Requested(_) | Stage::Open(..) => {}
        }
        self.events.push_back(ConnectionEvent::Failed { id, error: error(addresses.dst()) });
    }
}
