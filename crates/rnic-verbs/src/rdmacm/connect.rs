//! Connections: listening, requesting, accepting or rejecting, disconnecting.

use std::ffi::{c_int, c_void};

use rnic_base::{Duration, Psn};
use rnic_host::cm::ServiceKind;
use rnic_wire::cm::ip::IpHeader;
use rnic_wire::cm::{
    Bits, Failover, Gid, LookupReply, LookupRequest, LookupStatus, Path, PathMtu, PrivateData, RejectInfo,
    RejectReason, Reply, Request, TransportService,
};
use rnic_wire::header::bth::DEFAULT_PARTITION_KEY;
use rnic_wire::{Addresses, Qpn};

use super::abi::*;
use super::ack::rdma_ack_cm_event;
use super::event::{self, complete, service};
use super::id::{IdObject, ack_timeout, confirm, object};
use super::service::entry::Stage;
use super::service::{Cm, Owner, now};
use super::{address, devices, qp, transport_choice};
use crate::abi::*;
use crate::errno::{Errno, Result, minus_one};

/// Maximum time for the remote end to accept, and for it to acknowledge the local acceptance.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Default and maximum number of connection requests that wait for the program.
const BACKLOG: usize = 1_024;

/// Response timeout for management messages, as announced to peers: 4.096 us * 2^n = 4.3 s.
const CM_TIMEOUT_CODE: u32 = 20;

/// The permissive InfiniBand LID, which denotes no particular address.
const PERMISSIVE_LID: u16 = 0xffff;

/// Connection parameters of the program, with defaults.
#[derive(Clone, Copy, Debug)]
struct ConnectionParams {
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    has_srq: bool,
    qp_num: u32,
    is_unreliable: bool,
}

impl ConnectionParams {
    /// # Safety
    /// `param` is null or may be read, and so may be the queue pair.
    unsafe fn of(this: &IdObject, param: *const rdma_conn_param) -> Self {
        // SAFETY: guaranteed by the caller.
        let (given, queue_pair) = unsafe { (param.as_ref(), this.c.qp.as_ref()) };
        let retries_max = 7;
        Self {
            flow_control: given.is_some_and(|given| given.flow_control != 0),
            retry_count: given.map_or(retries_max, |given| given.retry_count.min(retries_max)),
            rnr_retry_count: given.map_or(retries_max, |given| given.rnr_retry_count.min(retries_max)),
            has_srq: match queue_pair {
                Some(queue_pair) => !queue_pair.srq.is_null(),
                None => given.is_some_and(|given| given.srq != 0),
            },
            qp_num: match queue_pair {
                Some(queue_pair) => queue_pair.qp_num,
                None => given.map_or(0, |given| given.qp_num),
            },
            is_unreliable: this.c.qp_type == IBV_QPT_UC,
        }
    }
}

/// Returns the private data to send: `prefix`, the data that `rdma_create_ep` got from address resolution, followed
/// by the program's data; no more than `len_max` bytes in total.
///
/// # Safety
/// `data` may be read for `len` bytes.
unsafe fn private_data(prefix: &[u8], data: *const c_void, len: u8, len_max: usize) -> Result<Vec<u8>> {
    let mut bytes = prefix.to_vec();
    if len > 0 {
        if data.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: guaranteed by the caller.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), usize::from(len)) });
    }
    if bytes.len() > len_max { Err(Errno::INVALID) } else { Ok(bytes) }
}

/// Like `private_data`, for connection parameters that may be missing.
///
/// # Safety
/// `param` is null or may be read, with its private data.
unsafe fn param_data(prefix: &[u8], param: *const rdma_conn_param, len_max: usize) -> Result<Vec<u8>> {
    // SAFETY: guaranteed by the caller.
    match unsafe { param.as_ref() } {
        // SAFETY: guaranteed by the caller.
        Some(given) => unsafe { private_data(prefix, given.private_data, given.private_data_len, len_max) },
        None if prefix.len() > len_max => Err(Errno::INVALID),
        None => Ok(prefix.to_vec()),
    }
}

/// Returns the numbers of Reads that the connection may serve and issue at a time. Values that the program does not set
/// are those that the remote end has announced, if it has, limited to what the device supports. A value above the
/// device's limit is an error, unless it only repeats the announcement: programs pass the values of the event to
/// `rdma_accept`, and a peer with another implementation may support more Reads at a time.
fn resources(param: Option<&rdma_conn_param>, announced: Option<(u8, u8)>) -> Result<(u8, u8)> {
    let (reads_served, reads_issued) = devices::read_limits()?;
    let choose = |given: Option<u8>, announced: Option<u8>, limit: u8| match given {
        None | Some(RDMA_MAX_RESP_RES) => Ok(announced.unwrap_or(limit).min(limit)),
        Some(given) if given > limit && announced.is_none_or(|announced| given > announced) => Err(Errno::INVALID),
        Some(given) => Ok(given.min(limit)),
    };
    Ok((
        choose(param.map(|param| param.responder_resources), announced.map(|it| it.0), reads_served)?,
        choose(param.map(|param| param.initiator_depth), announced.map(|it| it.1), reads_issued)?,
    ))
}

fn listen(this: &mut IdObject, backlog: c_int) -> Result<()> {
    if Cm::lock()?.entry(this.key)?.stage == Stage::New {
        address::bind_any(this)?;
    }
    let port = address::of(&this.c).0.ok_or(Errno::INVALID)?.port();
    let (key, space) = (this.key, this.c.ps);
    let mut cm = Cm::lock()?;
    cm.entry(key)?.advance(&[Stage::Bound], Stage::Listening)?;
    let service = service(space, port);
    let kind = if space == RDMA_PS_UDP { ServiceKind::Datagrams } else { ServiceKind::Connections };
    let backlog = usize::try_from(backlog).ok().filter(|backlog| (1..BACKLOG).contains(backlog)).unwrap_or(BACKLOG);
    let (_, port_entry) = cm.port_of(key)?;
    if !port_entry.endpoint.listen(service, kind, backlog) {
        cm.entry(key)?.stage = Stage::Bound;
        return Err(Errno(libc::EADDRINUSE));
    }
    port_entry.listeners.insert(service, key);
    Ok(())
}

/// Implements `rdma_listen`.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(listen(unsafe { object(id) }, backlog))
}

/// # Safety
/// As for `rdma_connect`.
unsafe fn connect(this: &mut IdObject, param: *const rdma_conn_param) -> Result<()> {
    let (Some(source), Some(to)) = address::of(&this.c) else { return Err(Errno::INVALID) };
    let addresses = Addresses::new(source, to).map_err(|_| Errno::INVALID)?;
    let header = IpHeader { source_port: source.port(), source: addresses.src().ip(), destination: to.ip() };
    let is_datagram = this.c.ps == RDMA_PS_UDP;
    let len_max = if is_datagram { 180 } else { 56 };
    // SAFETY: guaranteed by the caller.
    let (data, params) =
        unsafe { (param_data(&this.connect_data, param, len_max)?, ConnectionParams::of(this, param)) };
    // SAFETY: guaranteed by the caller.
    let (reads_served, reads_issued) = resources(unsafe { param.as_ref() }, None)?;
    let service_id = service(this.c.ps, to.port());
    let (key, now) = (this.key, now());

    let mut cm = Cm::lock()?;
    let path_mtu = address::path_mtu(addresses.src().ip(), addresses.dst().ip());
    let entry = cm.entry(key)?;
    entry.advance(&[Stage::Routed], Stage::Connecting)?;
    (entry.responder_resources, entry.initiator_depth) = (reads_served, reads_issued);
    (entry.path_mtu, entry.qp_num, entry.asked) = (path_mtu, params.qp_num, Some(addresses.dst()));
    let psn = entry.psn;
    entry.offer.retry_count = params.retry_count;
    let path = path(&addresses, entry.options.traffic_class, entry.options.ack_timeout);
    let (port, port_entry) = cm.port_of(key)?;
    let started = if is_datagram {
        let private_data = header.join(&data).ok_or(Errno::INVALID)?;
        let partition_key = DEFAULT_PARTITION_KEY;
        let request = LookupRequest { request_id: 0, partition_key, service_id, private_data };
        port_entry.endpoint.look_up(now, addresses, request, ACCEPT_TIMEOUT)
    } else {
        let request = Request {
            service_id,
            local_ca_guid: 0,
            local_qpn: Qpn::new(params.qp_num),
            responder_resources: reads_served,
            initiator_depth: reads_issued,
            remote_cm_timeout: Bits::clamped(CM_TIMEOUT_CODE),
            transport_service: match params.is_unreliable {
                true => TransportService::Unreliable,
                false => TransportService::Reliable,
            },
            flow_control: params.flow_control,
            starting_psn: Psn::new(psn),
            local_cm_timeout: Bits::clamped(CM_TIMEOUT_CODE),
            retry_count: Bits::clamped(params.retry_count.into()),
            partition_key: DEFAULT_PARTITION_KEY,
            path_mtu: PathMtu::from_code(Bits::clamped(path_mtu)),
            rnr_retry_count: Bits::clamped(params.rnr_retry_count.into()),
            cm_retries: Bits::MAX,
            shared_receive_queue: params.has_srq,
            primary: path,
            vendor: transport_choice::request_vendor(),
            private_data: header.join(&data).ok_or(Errno::INVALID)?,
            ..Request::default()
        };
        port_entry.endpoint.connect(now, addresses, request, ACCEPT_TIMEOUT)
    };
    let Some(connection) = started else {
        cm.entry(key)?.stage = Stage::Routed;
        return Err(Errno::NO_MEMORY);
    };
    cm.owners.insert((port, connection), Owner::Id(key));
    cm.entry(key)?.connection = Some(connection);
    Ok(())
}

fn path(addresses: &Addresses, traffic_class: u8, ack_timeout_code: Option<u8>) -> Path {
    // Same value as Linux uses for a path that leaves the subnet, which is true for every path of RoCE.
    let (local_lid, remote_lid) = (PERMISSIVE_LID, PERMISSIVE_LID);
    Path {
        local_lid,
        remote_lid,
        local_gid: Gid::from(addresses.src().ip()),
        remote_gid: Gid::from(addresses.dst().ip()),
        traffic_class,
        hop_limit: 64,
        local_ack_timeout: Bits::clamped(ack_timeout(ack_timeout_code).into()),
        ..Path::default()
    }
}

/// Implements `rdma_connect`.
///
/// # Safety
/// `id` is valid, `param` is null or may be read, with its private data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { connect(this, param) }.and_then(|()| complete(this)))
}

/// # Safety
/// As for `rdma_accept`.
unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    let (key, is_datagram) = (this.key, this.c.ps == RDMA_PS_UDP);
    let len_max = if is_datagram { 136 } else { 196 };
    // SAFETY: guaranteed by the caller.
    let (data, params) = unsafe { (param_data(&[], param, len_max)?, ConnectionParams::of(this, param)) };
    let (stage, offer) = {
        let mut cm = Cm::lock()?;
        let entry = cm.entry(key)?;
        (entry.stage, (entry.offer.responder_resources, entry.offer.initiator_depth))
    };
    if stage != Stage::RequestReceived {
        return Err(Errno::INVALID);
    }
    if is_datagram {
        return reply_to_lookup(this, &data, params.qp_num);
    }
    // SAFETY: guaranteed by the caller.
    let (reads_served, reads_issued) = resources(unsafe { param.as_ref() }, Some(offer))?;
    let psn = {
        let mut cm = Cm::lock()?;
        let entry = cm.entry(key)?;
        (entry.responder_resources, entry.initiator_depth) = (reads_served, reads_issued);
        entry.psn
    };
    // SAFETY: guaranteed by the caller.
    let replied = unsafe { make_ready_and_reply(id, params, &data, (reads_served, reads_issued), psn) };
    if replied.is_err() {
        // The queue pair may have left its original state and cannot return to it.
        // SAFETY: guaranteed by the caller.
        unsafe { qp::fail(id) };
    }
    replied
}

/// Moves the queue pair to the state in which it can send, and sends the reply to the remote end.
///
/// # Safety
/// As for `rdma_accept`.
unsafe fn make_ready_and_reply(
    id: *mut rdma_cm_id,
    params: ConnectionParams,
    data: &[u8],
    (reads_served, reads_issued): (u8, u8),
    psn: u32,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    let key = this.key;
    Cm::lock()?.entry(key)?.qp_num = params.qp_num;
    let transport = qp::apply_common_transport(key)?;
    if !this.c.qp.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { qp::accept(id)? };
    }
    let reply = Reply {
        local_qpn: Qpn::new(params.qp_num),
        starting_psn: Psn::new(psn),
        responder_resources: reads_served,
        initiator_depth: reads_issued,
        failover: Failover::NotSupported,
        flow_control: params.flow_control,
        rnr_retry_count: Bits::clamped(params.rnr_retry_count.into()),
        shared_receive_queue: params.has_srq,
        vendor: transport_choice::answered(transport),
        private_data: PrivateData::new(data).ok_or(Errno::INVALID)?,
        ..Reply::default()
    };
    let mut cm = Cm::lock()?;
    let connection = cm.entry(key)?.connection.ok_or(Errno::INVALID)?;
    let (_, port_entry) = cm.port_of(key)?;
    if !port_entry.endpoint.accept(now(), connection, reply, ACCEPT_TIMEOUT) {
        return Err(Errno(libc::ECONNABORTED));
    }
    cm.entry(key)?.advance(&[Stage::RequestReceived], Stage::Accepted)
}

/// Sends the local queue pair number to the peer that has requested it.
fn reply_to_lookup(this: &mut IdObject, data: &[u8], qp_num: u32) -> Result<()> {
    let mut cm = Cm::lock()?;
    let connection = cm.entry(this.key)?.connection.ok_or(Errno::INVALID)?;
    let reply = LookupReply {
        status: LookupStatus::VALID,
        qpn: Qpn::new(qp_num),
        queue_key: RDMA_UDP_QKEY,
        vendor: transport_choice::request_vendor(),
        private_data: PrivateData::new(data).ok_or(Errno::INVALID)?,
        ..LookupReply::default()
    };
    let (port, port_entry) = cm.port_of(this.key)?;
    if !port_entry.endpoint.answer(now(), connection, reply) {
        return Err(Errno(libc::ECONNABORTED));
    }
    cm.owners.remove(&(port, connection));
    let entry = cm.entry(this.key)?;
    (entry.stage, entry.connection) = (Stage::Connected, None);
    Ok(())
}

/// Implements `rdma_accept`.
///
/// # Safety
/// `id` is valid, `param` is null or may be read, with its private data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: guaranteed by the caller.
    let accepted = unsafe { accept(id, param) };
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    let waits_for_peer = this.c.ps != RDMA_PS_UDP;
    minus_one(accepted.and_then(|()| if waits_for_peer { complete(this) } else { Ok(()) }))
}

/// Implements `rdma_establish`, for programs that manage their queue pairs themselves.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    if !this.c.qp.is_null() {
        return minus_one(Err(Errno::INVALID));
    }
    minus_one(confirm(this))
}

fn reject(this: &mut IdObject, data: &[u8], reason: RejectReason) -> Result<()> {
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    entry.advance(&[Stage::RequestReceived, Stage::ReplyReceived], Stage::Closed)?;
    let (connection, space) = (entry.connection.take().ok_or(Errno::INVALID)?, entry.space);
    let (port, port_entry) = cm.port_of(this.key)?;
    let was_sent = if space == RDMA_PS_UDP {
        cm.refuse_lookup(port, connection, data)
    } else {
        let was_sent = port_entry.endpoint.reject(connection, reason, RejectInfo::default(), data);
        cm.owners.remove(&(port, connection));
        was_sent
    };
    if was_sent { Ok(()) } else { Err(Errno(libc::ECONNABORTED)) }
}

/// Implements `rdma_reject`.
///
/// # Safety
/// `id` is valid, `data` may be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { reject_because(id, data, len, RejectReason::CONSUMER) }
}

/// Implements `rdma_reject_ece`: as `rdma_reject`, with the reason that the options are not compatible.
///
/// # Safety
/// `id` is valid, `data` may be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { reject_because(id, data, len, transport_choice::REASON) }
}

/// # Safety
/// As for `rdma_reject`.
unsafe fn reject_because(id: *mut rdma_cm_id, data: *const c_void, len: u8, reason: RejectReason) -> c_int {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    let len_max = if this.c.ps == RDMA_PS_UDP { 136 } else { 148 };
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { private_data(&[], data, len, len_max) }.and_then(|data| reject(this, &data, reason)))
}

/// Implements `rdma_notify`: the program has received data on a connection before the last handshake message arrived.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    // SAFETY: guaranteed by the caller.
    let key = unsafe { object(id) }.key;
    minus_one(Cm::lock().and_then(|mut cm| {
        if event != IBV_EVENT_COMM_EST {
            return Err(Errno::INVALID);
        }
        let connection = cm.entry(key)?.connection.ok_or(Errno::INVALID)?;
        cm.port_of(key)?.1.endpoint.establish(connection);
        Ok(())
    }))
}

/// Checks that there is a connection to disconnect, or one that has already been disconnected.
fn check_can_disconnect(this: &IdObject) -> Result<()> {
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    match (entry.stage, entry.connection) {
        (Stage::Connected | Stage::Accepted, Some(_)) | (Stage::Closed, _) => Ok(()),
        _ => Err(Errno::INVALID),
    }
}

/// Disconnects a connection; returns true when an event will report it.
fn disconnect(this: &mut IdObject) -> Result<bool> {
    let mut cm = Cm::lock()?;
    let entry = cm.entry(this.key)?;
    let remote = entry.remote.map_or(0, |remote| remote.qp_num);
    match (entry.stage, entry.connection) {
        (Stage::Connected | Stage::Accepted, Some(connection)) => {
            let (_, port_entry) = cm.port_of(this.key)?;
            // The last handshake message may still be in flight; treat the connection as established.
            port_entry.endpoint.establish(connection);
            port_entry.endpoint.disconnect(now(), connection, Qpn::new(remote));
            Ok(true)
        }
        // The remote end has disconnected first; its event may still be in the channel.
        (Stage::Closed, _) => Ok(false),
        _ => Err(Errno::INVALID),
    }
}

/// Implements `rdma_disconnect`.
///
/// # Safety
/// `id` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(id) };
    let ended = check_can_disconnect(this).and_then(|()| {
        // Done before the disconnect message, so that the acknowledgements of the queue pair are sent first: the peer
        // treats everything that is not acknowledged at the disconnect as lost.
        // SAFETY: guaranteed by the caller.
        unsafe { qp::fail(id) };
        disconnect(this)
    });
    minus_one(ended.and_then(|reports_event| if reports_event { wait_until_disconnected(this) } else { Ok(()) }))
}

/// Waits until a connection is disconnected, skipping other events.
fn wait_until_disconnected(this: &mut IdObject) -> Result<()> {
    loop {
        complete(this)?;
        // SAFETY: `complete` has fetched the event, if it waits at all.
        if !this.is_synchronous || unsafe { (*this.c.event).event } == RDMA_CM_EVENT_DISCONNECTED {
            return Ok(());
        }
    }
}

/// # Safety
/// As for `rdma_get_request`.
unsafe fn get_request(listener: *mut rdma_cm_id) -> Result<*mut rdma_cm_id> {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { object(listener) };
    if !this.is_synchronous {
        return Err(Errno::INVALID);
    }
    if !this.c.event.is_null() {
        // SAFETY: the event was fetched for this identifier and is acknowledged once.
        unsafe { rdma_ack_cm_event(this.c.event) };
        this.c.event = std::ptr::null_mut();
    }
    // SAFETY: the channel is owned by this identifier.
    let event = unsafe { event::fetch(this.c.channel)? };
    // SAFETY: the event has just been fetched.
    let (kind, status, child) = unsafe { ((*event).event, (*event).status, (*event).id) };
    let created = match (kind, status) {
        (RDMA_CM_EVENT_CONNECT_REQUEST, 0) => match &this.queue_pairs {
            None => Ok(()),
            // Copied, because the call stores the granted capabilities in the attributes, and the next connection
            // must request the original ones.
            Some(qp_attributes) => {
                let mut qp_attributes = **qp_attributes;
                // SAFETY: the child is new and has a device.
                unsafe { qp::create(child, this.c.pd, &mut qp_attributes) }
            }
        },
        (RDMA_CM_EVENT_CONNECT_REQUEST, status) => Err(Errno(status.abs())),
        _ => Err(Errno::INVALID),
    };
    match created {
        Ok(()) => {
            // The request is stored as the child's event, so that programs find its private data there.
            // SAFETY: both are valid.
            unsafe { (*child).event = event };
            Ok(child)
        }
        Err(errno) => {
            // SAFETY: the event was fetched here and is acknowledged once.
            unsafe { rdma_ack_cm_event(event) };
            Err(errno)
        }
    }
}

/// Implements `rdma_get_request`.
///
/// # Safety
/// `listener` is valid, `id` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_request(listener: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    // SAFETY: guaranteed by the caller.
    minus_one(unsafe { get_request(listener) }.map(|child| unsafe { *id = child }))
}
