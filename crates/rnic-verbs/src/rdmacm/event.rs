//! Events: conversion from protocol events (`CmEvent`) to the structures of programs, and the queue pair changes that
//! fetching an event causes.

use std::cmp::Reverse;
use std::ffi::{c_int, c_void};
use std::ptr;

use rnic_base::{Duration, Time};
use rnic_host::cm::{CmEvent, ConnectionId};
use rnic_wire::cm::ip::IpHeader;
use rnic_wire::cm::{LookupReply, LookupRequest, LookupStatus, RejectInfo, RejectReason, Reply, Request, ServiceId};

use super::abi::*;
use super::ack::{EventObject, acknowledge, rdma_ack_cm_event};
use super::id::IdObject;
use super::service::entry::Stage;
use super::service::pending::{Arrival, EventContent, Offer, Pending, Remote};
use super::service::{Cm, Key, Owner};
use super::transport_choice;
use super::{address, channel, id, qp};
use crate::errno::{Errno, Result, minus_one};

impl Cm {
    /// Processes an event of the protocol.
    pub(super) fn process(&mut self, port: Key, cm_event: CmEvent) {
        match cm_event {
            CmEvent::Requested(connection, request) => self.on_request(port, connection, &request),
            CmEvent::LookupRequested(connection, request) => self.on_lookup(port, connection, &request),
            CmEvent::Replied(connection, reply, _) => self.on_reply(port, connection, &reply),
            CmEvent::Found(connection, reply) => self.on_lookup_reply(port, connection, &reply),
            CmEvent::Ready(connection) => {
                self.report_event(port, connection, Stage::Connected, RDMA_CM_EVENT_ESTABLISHED, 0, &[]);
            }
            CmEvent::Refused(connection, reject) => {
                let status = c_int::from(reject.reason.0);
                if reject.reason == transport_choice::REASON {
                    transport_choice::explain(&reject.private_data.0);
                }
                self.report_event(
                    port,
                    connection,
                    Stage::Closed,
                    RDMA_CM_EVENT_REJECTED,
                    status,
                    &reject.private_data.0,
                );
            }
            CmEvent::TimedOut(connection, _) => {
                self.hint_about_adapters(port, connection);
                self.report_event(port, connection, Stage::Closed, RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, &[]);
            }
            CmEvent::Unreachable(connection, errno) => self.on_unreachable(port, connection, errno),
            CmEvent::Disconnected(connection) => {
                let owner = self.owners.get(&(port, connection)).copied();
                self.report_event(port, connection, Stage::Closed, RDMA_CM_EVENT_DISCONNECTED, 0, &[]);
                if let Some(Owner::Id(key)) = owner {
                    self.waits.push(Reverse((super::service::now() + TIME_WAIT, key)));
                }
            }
        }
    }

    /// Reports for closed connections that their last packets can no longer be in flight.
    pub(super) fn end_time_waits(&mut self, now: Time) {
        while let Some(Reverse((at, key))) = self.waits.peek().copied() {
            if at > now {
                return;
            }
            self.waits.pop();
            if let Some(events) = self.events_of(key) {
                events.push(Pending::plain(key, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
            }
        }
    }

    /// Reports an event to the owner of a connection, and removes the connection when it has ended.
    fn report_event(
        &mut self,
        port: Key,
        connection: ConnectionId,
        stage: Stage,
        kind: u32,
        status: c_int,
        data: &[u8],
    ) {
        let key = match self.owners.get(&(port, connection)) {
            Some(Owner::Id(key)) => *key,
            Some(Owner::Arrival(listener)) => {
                // The request has been withdrawn before the program fetched it.
                let listener = *listener;
                self.owners.remove(&(port, connection));
                if let Some(events) = self.events_of(listener) {
                    events.forget(|event| {
                        matches!(&event.content, EventContent::Arrival(arrival)
                        if (arrival.port, arrival.connection) == (port, connection))
                    });
                }
                return;
            }
            None => return,
        };
        if stage == Stage::Closed {
            self.owners.remove(&(port, connection));
        }
        if let Ok(entry) = self.entry(key) {
            entry.stage = stage;
            if stage == Stage::Closed {
                entry.connection = None;
            }
            entry.events.push(Pending { data: data.to_vec(), ..Pending::plain(key, kind, status) });
        }
    }

    /// Prints a hint after a request without response, which a hardware adapter would not have received.
    fn hint_about_adapters(&mut self, port: Key, connection: ConnectionId) {
        let Some(Owner::Id(key)) = self.owners.get(&(port, connection)) else { return };
        let to = self.ids.get(key).and_then(|entry| entry.asked);
        to.into_iter().for_each(transport_choice::hint_about_adapters);
    }

    fn on_unreachable(&mut self, port: Key, connection: ConnectionId, errno: c_int) {
        let space = match self.owners.get(&(port, connection)) {
            Some(Owner::Id(key)) => self.ids.get(key).map(|entry| entry.space),
            _ => None,
        };
        if errno == libc::ECONNREFUSED {
            self.hint_about_adapters(port, connection);
        }
        // No process uses the port: report the same result as a connection manager that does not have the service.
        let (kind, status) = match (errno, space) {
            (libc::ECONNREFUSED, Some(RDMA_PS_UDP)) => (RDMA_CM_EVENT_UNREACHABLE, LookupStatus::UNSUPPORTED.0.into()),
            (libc::ECONNREFUSED, _) => (RDMA_CM_EVENT_REJECTED, c_int::from(RejectReason::INVALID_SERVICE_ID.0)),
            _ => (RDMA_CM_EVENT_UNREACHABLE, -errno),
        };
        self.report_event(port, connection, Stage::Closed, kind, status, &[]);
    }

    /// Queues a request in the channel of the identifier that listens for it; returns false when there is none.
    fn queue_arrival(&mut self, arrival: Arrival, data: &[u8]) -> bool {
        let place = (arrival.port, arrival.connection);
        let listener = self.ports.get(&arrival.port).and_then(|port| port.listeners.get(&arrival.service)).copied();
        let Some((listener, events)) = listener.and_then(|key| Some((key, self.events_of(key)?))) else {
            return false;
        };
        self.owners.insert(place, Owner::Arrival(listener));
        let content = EventContent::Arrival(Box::new(arrival));
        let data = data.to_vec();
        events.push(Pending { key: listener, kind: RDMA_CM_EVENT_CONNECT_REQUEST, status: 0, content, data });
        true
    }

    fn on_request(&mut self, port: Key, connection: ConnectionId, request: &Request) {
        let Some(endpoint) = self.ports.get_mut(&port).map(|port| &mut port.endpoint) else { return };
        let Some(addresses) = endpoint.addresses(connection) else { return };
        let refuse = |reason, data: &[u8]| (reason, RejectInfo::default(), data.to_vec());
        let chosen = transport_choice::choose(request.vendor);
        let refusal = match (chosen, IpHeader::split(&request.private_data.0)) {
            (None, _) => Some(refuse(transport_choice::REASON, transport_choice::text_for(request.vendor).as_bytes())),
            (_, None) => Some(refuse(RejectReason::CONSUMER, &[])),
            _ => None,
        };
        if let Some((reason, info, data)) = refusal {
            if reason == transport_choice::REASON {
                transport_choice::refuse(addresses.dst(), request.vendor);
            }
            endpoint.reject(connection, reason, info, &data);
            return;
        }
        let Some((header, data)) = IpHeader::split(&request.private_data.0) else { return };
        let offer = Offer {
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            flow_control: request.flow_control.into(),
            retry_count: request.retry_count.get() as u8,
            rnr_retry_count: request.rnr_retry_count.get() as u8,
            srq: request.shared_receive_queue.into(),
            qp_num: request.local_qpn.get(),
        };
        let remote = Remote {
            qp_num: request.local_qpn.get(),
            psn: request.starting_psn.value(),
            path_mtu: request.path_mtu.code().get(),
            max_dest_rd_atomic: offer.responder_resources,
            max_rd_atomic: offer.initiator_depth,
            retry_count: offer.retry_count,
            rnr_retry_count: offer.rnr_retry_count,
            transport: chosen.unwrap_or_default(),
        };
        let (service, source_port, remote) = (request.service_id, header.source_port, Some(remote));
        let traffic_class = request.primary.traffic_class;
        let arrival = Arrival { port, connection, service, offer, remote, addresses, source_port, traffic_class };
        if !self.queue_arrival(arrival, data) {
            self.close_connection(port, connection);
        }
    }

    fn on_lookup(&mut self, port: Key, connection: ConnectionId, request: &LookupRequest) {
        let addresses = self.ports.get(&port).and_then(|port| port.endpoint.addresses(connection));
        let Some(addresses) = addresses else { return };
        let arrived = IpHeader::split(&request.private_data.0).is_some_and(|(header, data)| {
            let (service, source_port) = (request.service_id, header.source_port);
            let (offer, remote, traffic_class) = (Offer::default(), None, 0);
            let arrival = Arrival { port, connection, service, offer, remote, addresses, source_port, traffic_class };
            self.queue_arrival(arrival, data)
        });
        if !arrived {
            self.refuse_lookup(port, connection, &[]);
        }
    }

    /// Rejects a lookup request for the queue pair of a datagram service.
    pub(super) fn refuse_lookup(&mut self, port: Key, connection: ConnectionId, data: &[u8]) -> bool {
        let private_data = rnic_wire::cm::PrivateData::new(data).unwrap_or_default();
        let reply = LookupReply { status: LookupStatus::REJECTED, private_data, ..LookupReply::default() };
        self.owners.remove(&(port, connection));
        let now = super::service::now();
        self.ports.get_mut(&port).is_some_and(|place| place.endpoint.answer(now, connection, reply))
    }

    fn on_reply(&mut self, port: Key, connection: ConnectionId, reply: &Reply) {
        let Some(Owner::Id(key)) = self.owners.get(&(port, connection)).copied() else { return };
        let Some(transport) = transport_choice::choose(reply.vendor) else {
            if let Some(place) = self.ports.get_mut(&port) {
                let addresses = place.endpoint.addresses(connection);
                addresses.inspect(|addresses| transport_choice::refuse(addresses.dst(), reply.vendor));
                place.endpoint.reject(connection, transport_choice::REASON, RejectInfo::default(), &[]);
            }
            let status = c_int::from(transport_choice::REASON.0);
            return self.report_event(port, connection, Stage::Closed, RDMA_CM_EVENT_REJECTED, status, &[]);
        };
        let Ok(entry) = self.entry(key) else { return };
        let offer = Offer {
            responder_resources: reply.initiator_depth,
            initiator_depth: reply.responder_resources,
            flow_control: reply.flow_control.into(),
            retry_count: entry.offer.retry_count,
            rnr_retry_count: reply.rnr_retry_count.get() as u8,
            srq: reply.shared_receive_queue.into(),
            qp_num: reply.local_qpn.get(),
        };
        entry.remote = Some(Remote {
            qp_num: offer.qp_num,
            psn: reply.starting_psn.value(),
            path_mtu: entry.path_mtu,
            max_dest_rd_atomic: offer.responder_resources,
            max_rd_atomic: offer.initiator_depth,
            // Taken from the local request.
            retry_count: entry.offer.retry_count,
            rnr_retry_count: offer.rnr_retry_count,
            transport,
        });
        entry.stage = Stage::ReplyReceived;
        entry.remote_vendor = (reply.vendor.id.get(), reply.vendor.options);
        let (content, data) = (EventContent::Connection(offer), reply.private_data.0.to_vec());
        entry.events.push(Pending { key, kind: RDMA_CM_EVENT_CONNECT_RESPONSE, status: 0, content, data });
    }

    fn on_lookup_reply(&mut self, port: Key, connection: ConnectionId, reply: &LookupReply) {
        if reply.status != LookupStatus::VALID {
            let (kind, status) = (RDMA_CM_EVENT_UNREACHABLE, c_int::from(reply.status.0));
            return self.report_event(port, connection, Stage::Closed, kind, status, &reply.private_data.0);
        }
        let Some(Owner::Id(key)) = self.owners.remove(&(port, connection)) else { return };
        let Ok(entry) = self.entry(key) else { return };
        (entry.stage, entry.connection) = (Stage::Connected, None);
        let content = EventContent::Datagrams { qp_num: reply.qpn.get(), qkey: reply.queue_key };
        let data = reply.private_data.0.to_vec();
        entry.events.push(Pending { key, kind: RDMA_CM_EVENT_ESTABLISHED, status: 0, content, data });
    }
}

/// Fetches an event.
///
/// # Safety
/// `channel` is valid.
// A separate function, so that a thread that is cancelled while it waits is unwound through this function and not
// through an `extern "C"` one.
#[inline(never)]
pub(super) unsafe fn fetch(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    let events = channel::events(channel)?;
    loop {
        // The fetch is counted below, where an identifier that was destroyed meanwhile is detected.
        let pending = events.pop(|_| ())?;
        let place = {
            let mut cm = Cm::lock()?;
            // The identifier was destroyed or moved to another channel meanwhile.
            let Some(entry) = cm.ids.get_mut(&pending.key) else { continue };
            entry.fetched += 1;
            entry.place as *mut rdma_cm_id
        };
        // SAFETY: an identifier with a fetched and unacknowledged event is not destroyed.
        if let Some(event) = unsafe { convert_event(place, pending) }? {
            return Ok(event);
        }
    }
}

/// Builds the event structure for the program, after the actions that the event requires. Returns `None` when there is
/// nothing to report.
///
/// # Safety
/// `place` is the valid identifier of the event.
unsafe fn convert_event(place: *mut rdma_cm_id, pending: Pending) -> Result<Option<*mut rdma_cm_event>> {
    let Pending { key, mut kind, mut status, content, data } = pending;
    // SAFETY: all zeros is a valid event.
    let c: rdma_cm_event = unsafe { std::mem::zeroed() };
    let mut event = Box::new(EventObject { c, data, key });
    event.c.id = place;
    let data = (event.data.as_ptr().cast::<c_void>(), event.data.len() as u8);
    let is_datagram = match &content {
        // SAFETY: guaranteed by the caller.
        EventContent::Arrival(_) | EventContent::Datagrams { .. } => unsafe { (*place).ps == RDMA_PS_UDP },
        _ => false,
    };
    match content {
        EventContent::Plain => event.c.param.conn = conn_param(data, &Offer::default()),
        EventContent::Connection(offer) => event.c.param.conn = conn_param(data, &offer),
        EventContent::Arrival(arrival) => {
            event.c.listen_id = place;
            // SAFETY: guaranteed by the caller.
            match unsafe { create_id_of_arrival(place, &arrival) } {
                Ok(child) => event.c.id = child,
                Err(_) => {
                    acknowledge(key);
                    return Ok(None);
                }
            }
            if is_datagram {
                event.c.param.ud = ud_param(data, None, 0, 0);
            } else {
                event.c.param.conn = conn_param(data, &arrival.offer);
            }
        }
        EventContent::Datagrams { qp_num, qkey } => {
            // SAFETY: guaranteed by the caller.
            let address = unsafe { address::to_peer(place) }.ok();
            event.c.param.ud = ud_param(data, address, qp_num, qkey);
        }
    }
    if kind == RDMA_CM_EVENT_CONNECT_RESPONSE
        && let Err(errno) = qp::apply_common_transport(key)
    {
        (kind, status) = (RDMA_CM_EVENT_CONNECT_ERROR, -errno.0);
    }
    match kind {
        // SAFETY: guaranteed by the caller. A program that manages its queue pair itself also sends the response
        // itself.
        RDMA_CM_EVENT_CONNECT_RESPONSE if unsafe { !(*place).qp.is_null() } => {
            // SAFETY: as above.
            (kind, status) = match unsafe { qp::on_reply(place) } {
                Ok(()) => (RDMA_CM_EVENT_ESTABLISHED, 0),
                Err(errno) => (RDMA_CM_EVENT_CONNECT_ERROR, -errno.0),
            };
        }
        // SAFETY: as above.
        RDMA_CM_EVENT_REJECTED => unsafe { qp::fail(place) },
        _ => {}
    }
    (event.c.event, event.c.status) = (kind, status);
    Ok(Some(Box::into_raw(event).cast()))
}

/// Creates the program's identifier for a request. The child of a synchronous identifier gets its own channel.
///
/// # Safety
/// `listener` is valid.
unsafe fn create_id_of_arrival(listener: *mut rdma_cm_id, arrival: &Arrival) -> Result<*mut rdma_cm_id> {
    {
        let cm = Cm::lock()?;
        // The request may have been withdrawn.
        if !cm.owners.contains_key(&(arrival.port, arrival.connection)) {
            return Err(Errno::INVALID);
        }
    }
    // SAFETY: guaranteed by the caller.
    let child = unsafe { id::create_child(listener, arrival)? };
    // SAFETY: the identifier is new.
    let this = unsafe { id::object(child) };
    address::describe_arrival(&mut this.c, arrival)?;
    // SAFETY: guaranteed by the caller.
    if unsafe { id::object(listener) }.is_synchronous {
        id::migrate(this, ptr::null_mut())?;
    }
    Ok(child)
}

fn conn_param(data: (*const c_void, u8), offer: &Offer) -> rdma_conn_param {
    rdma_conn_param {
        private_data: if data.1 == 0 { ptr::null() } else { data.0 },
        private_data_len: data.1,
        responder_resources: offer.responder_resources,
        initiator_depth: offer.initiator_depth,
        flow_control: offer.flow_control,
        retry_count: offer.retry_count,
        rnr_retry_count: offer.rnr_retry_count,
        srq: offer.srq,
        qp_num: offer.qp_num,
    }
}

fn ud_param(
    data: (*const c_void, u8),
    address: Option<crate::abi::ibv_ah_attr>,
    qp_num: u32,
    qkey: u32,
) -> rdma_ud_param {
    rdma_ud_param {
        private_data: if data.1 == 0 { ptr::null() } else { data.0 },
        private_data_len: data.1,
        ah_attr: address.unwrap_or_default(),
        qp_num,
        qkey,
    }
}

/// Waits for the completion of the operation that a synchronous identifier has started.
pub(super) fn complete(this: &mut IdObject) -> Result<()> {
    if !this.is_synchronous {
        return Ok(());
    }
    if !this.c.event.is_null() {
        // SAFETY: the event was fetched for this identifier and is acknowledged once.
        unsafe { rdma_ack_cm_event(this.c.event) };
        this.c.event = std::ptr::null_mut();
    }
    // SAFETY: the channel is owned by this identifier.
    let event = unsafe { fetch(this.c.channel)? };
    this.c.event = event;
    // SAFETY: the event has just been fetched.
    match unsafe { ((*event).status, (*event).event) } {
        (0, _) => Ok(()),
        (_, RDMA_CM_EVENT_REJECTED) => Err(Errno(libc::ECONNREFUSED)),
        (status, _) => Err(Errno(status.abs())),
    }
}

/// Implements `rdma_get_cm_event`.
///
/// # Safety
/// `channel` is valid, `event` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    if channel.is_null() || event.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { fetch(channel) }.map(|fetched| unsafe { *event = fetched }))
}

/// Time after the end of a connection during which its packets may still be in flight, in a slow network with queues.
const TIME_WAIT: Duration = Duration::from_secs(1);

/// Returns the service ID for a port space and a port.
pub(super) fn service(space: u32, port: u16) -> ServiceId {
    ServiceId::in_port_space(space as u16, port)
}
