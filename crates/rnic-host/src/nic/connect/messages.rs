//! Conversion between connection settings and connection management messages: creates the requests and replies of
//! this side, and interprets those of the other side.

use std::net::SocketAddr;
use std::sync::Arc;

use rnic_base::Psn;
use rnic_engine::{QpAttributes, QpTiming, Service, Transport};
use rnic_wire::cm::ip::IpRequest;
use rnic_wire::cm::{
    Bits, Failover, Gid, Path, PathMtu, PrivateData, Reject, RejectInfo, RejectReason, Reply, Request, ServiceId,
    TransportService, Vendor,
};
use rnic_wire::header::bth::DEFAULT_PARTITION_KEY;
use rnic_wire::{Addresses, Qpn};

use super::Requesting;
use crate::cm::negotiate::{Terms, smaller};
use crate::connection::ConnectionConfig;
use crate::defaults::TransportChoice;
use crate::error::ConnectError;

/// Returns the attributes of the queue pair that `config` requests.
pub(super) fn attributes(config: &ConnectionConfig, transport: &Arc<Transport>, number: Option<Qpn>) -> QpAttributes {
    let queues = &config.queues;
    QpAttributes {
        pd: queues.pd,
        send_cq: queues.send_cq,
        recv_cq: queues.recv_cq,
        srq: queues.srq,
        max_send_wr: queues.max_send_wr,
        max_recv_wr: queues.max_recv_wr,
        max_send_sge: queues.max_sge,
        max_recv_sge: queues.max_sge,
        signal_all: queues.signal_all,
        service: Service::ReliableConnection,
        transport: Arc::clone(transport),
        number,
        nvme: queues.nvme,
    }
}

/// Returns the send-side attributes of a queue pair: first PSN, retry counts, and number of outstanding reads.
pub(super) fn timing(config: &ConnectionConfig, choice: &TransportChoice, psn: Psn, reads: u32) -> QpTiming {
    let retry_count = config.retry_count(choice);
    QpTiming { sq_psn: psn, retry_count, rnr_retry: config.rnr_retry, max_rd_atomic: reads }
}

/// Returns `choice`, with the packets in flight limited to the size of the other side's bitmap.
pub(super) fn capped(choice: &TransportChoice, cap_packets: Option<u32>) -> TransportChoice {
    let mut choice = choice.clone();
    if choice.profile.placement().keeps_out_of_order()
        && let Some(cap) = smaller(choice.profile.cap_packets, cap_packets)
    {
        // The cap was sent by the peer and may be out of range: the local cap then remains in effect, and packets of
        // the peer beyond it are dropped.
        let _ = choice.profile.set("cap_packets", &cap.to_string());
    }
    choice
}

/// Returns the REQ, without the local communication id of the connection.
pub(super) fn request(addresses: &Addresses, port: u16, guid: u64, requesting: &Requesting) -> Request {
    let Requesting { qpn, config, psn, terms, .. } = requesting;
    let (source, destination) = (addresses.src(), addresses.dst());
    let private_data = PrivateData::new(&terms.emit(&config.private_data)).unwrap_or_default();
    let addressing =
        IpRequest { source_port: source.port(), source: source.ip(), destination: destination.ip(), private_data };
    Request {
        local_comm_id: 0,
        service_id: ServiceId::for_port(port),
        local_ca_guid: guid,
        local_queue_key: 0,
        local_qpn: *qpn,
        responder_resources: config.reads(),
        initiator_depth: config.reads(),
        remote_cm_timeout: Bits::clamped(CM_TIMEOUT),
        transport_service: TransportService::Reliable,
        flow_control: false,
        starting_psn: *psn,
        local_cm_timeout: Bits::clamped(CM_TIMEOUT),
        retry_count: Bits::MAX,
        partition_key: DEFAULT_PARTITION_KEY,
        path_mtu: PathMtu::at_most(ib_mtu(terms.wire_mtu)).unwrap_or_default(),
        rnr_retry_count: Bits::MAX,
        cm_retries: Bits::MAX,
        shared_receive_queue: config.queues.srq.is_some(),
        extended_transport: Bits::clamped(0),
        primary: Path {
            local_gid: Gid::from(source.ip()),
            remote_gid: Gid::from(destination.ip()),
            hop_limit: 64,
            local_ack_timeout: Bits::clamped(ACK_TIMEOUT),
            ..Path::default()
        },
        alternate: None,
        vendor: Vendor::default(),
        private_data: addressing.emit().unwrap_or_default(),
    }
}

/// Returns the REP, without the communication ids of the connection.
pub(super) fn reply(config: &ConnectionConfig, qpn: Qpn, psn: Psn, guid: u64, terms: &Terms) -> Reply {
    Reply {
        local_comm_id: 0,
        remote_comm_id: 0,
        local_queue_key: 0,
        local_qpn: qpn,
        starting_psn: psn,
        responder_resources: config.reads(),
        initiator_depth: config.reads(),
        target_ack_delay: Bits::clamped(0),
        failover: Failover::NotSupported,
        flow_control: false,
        rnr_retry_count: Bits::MAX,
        shared_receive_queue: config.queues.srq.is_some(),
        local_ca_guid: guid,
        vendor: Vendor::default(),
        private_data: PrivateData::new(&terms.emit(&config.private_data)).unwrap_or_default(),
    }
}

/// Returns the parameters that a REQ offers, and the private data of the program that sent it. A REQ of another
/// implementation counts as an offer of RoCEv2 with the MTU that the REQ specifies.
pub(super) fn terms_of_request(request: &Request) -> (Terms, Vec<u8>) {
    let addressing = IpRequest::parse(&request.private_data);
    let own = addressing.as_ref().and_then(|addressing| Terms::parse(&addressing.private_data.0));
    if let Some((terms, data)) = own {
        return (terms, data.to_vec());
    }
    let terms = Terms::of_other_stack(request.path_mtu.bytes().unwrap_or(0));
    let data = addressing.map_or(request.private_data.0.to_vec(), |addressing| addressing.private_data.0.to_vec());
    (terms, data)
}

/// Returns whether a REQ was sent by another implementation of connection management than OpenRNIC's.
pub(super) fn is_other_stack(request: &Request) -> bool {
    let addressing = IpRequest::parse(&request.private_data);
    addressing.and_then(|addressing| Terms::parse(&addressing.private_data.0).map(|_| ())).is_none()
}

/// Returns the largest InfiniBand MTU that fits into a wire MTU.
pub(super) fn ib_mtu(wire_mtu: u32) -> u32 {
    PathMtu::at_most(wire_mtu.min(IB_MTU_MAX)).and_then(PathMtu::bytes).unwrap_or(wire_mtu)
}

/// Returns the error that is reported at the requesting side for a REJ.
pub(super) fn refusal(to: SocketAddr, reject: &Reject) -> ConnectError {
    if reject.reason == RejectReason::INVALID_SERVICE_ID {
        return ConnectError::Refused { to };
    }
    // The text is not trusted: only its printable beginning is kept.
    let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let detail = reject.private_data.0.iter().copied().take_while(is_text).map(char::from).collect();
    ConnectError::Rejected { to, reason: reject.reason, detail }
}

/// Returns the reject reason that reports an error to the other side.
pub(super) fn reason_of(error: &ConnectError) -> (RejectReason, RejectInfo) {
    match error {
        ConnectError::NoCommonTransport { .. } | ConnectError::FalconMismatch { .. } => {
            (RejectReason::INVALID_TRANSPORT_SERVICE, RejectInfo::default())
        }
        ConnectError::PathMtuTooSmall { mtu_bytes, .. } => {
            // The acceptable MTU code is in the upper half of the byte, as in a REQ.
            let code = PathMtu::at_most(*mtu_bytes).map_or(0, |mtu| (mtu.code().get() as u8) << 4);
            (RejectReason::INVALID_PATH_MTU, RejectInfo::new(&[code]).unwrap_or_default())
        }
        _ => (RejectReason::NO_RESOURCES, RejectInfo::default()),
    }
}

/// Returns the error as text for display at the other end, from that end's point of view.
pub(super) fn detail_of(error: &ConnectError, config: &ConnectionConfig) -> String {
    match error {
        ConnectError::NoCommonTransport { .. } => {
            let ours: Vec<&str> = config.transports.iter().map(|choice| choice.profile.name).collect();
            format!("the other end supports {}", ours.join(", "))
        }
        ConnectError::FalconMismatch { ours, hint, .. } => format!("the other end uses {ours}{hint}"),
        ConnectError::PathMtuTooSmall { mtu_bytes, .. } => {
            format!("the other end accepts at most {mtu_bytes} bytes per packet")
        }
        error => error.to_string(),
    }
}

/// Checks that the private data fits in a message.
///
/// # Errors
/// When it is longer than `room` bytes.
pub(super) fn check_private_data(config: &ConnectionConfig, limit: usize) -> Result<(), ConnectError> {
    match config.private_data.len() {
        length if length > limit => Err(ConnectError::PrivateData { length, limit }),
        _ => Ok(()),
    }
}

/// Largest MTU that other stacks support, in bytes.
const IB_MTU_MAX: u32 = 4_096;
/// Time limit for the response to a management message: 4.096 us * 2^20, about four seconds.
const CM_TIMEOUT: u32 = 20;
/// Acknowledgement timeout that other stacks are requested to use: 4.096 us * 2^14, 67 ms.
const ACK_TIMEOUT: u32 = 14;
