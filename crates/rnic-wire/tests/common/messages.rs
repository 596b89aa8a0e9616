//! The messages whose bytes are in `tests/golden/cm.txt`.

use core::net::IpAddr;

use rnic_base::Psn;
use rnic_wire::Qpn;
use rnic_wire::cm::ip::IpRequest;
use rnic_wire::cm::{
    Bits, DisconnectReply, DisconnectRequest, Failover, Gid, LookupReply, LookupRequest, LookupStatus, Mad, Message,
    Path, PathMtu, PrivateData, ReadyToUse, Reject, RejectInfo, RejectReason, Rejected, Reply, Request, ServiceId,
    TransportService, Vendor,
};

/// A message, its name, and its 256 bytes.
pub struct Golden {
    pub name: &'static str,
    pub mad: Mad,
    pub bytes: [u8; 256],
}

/// Every golden message.
pub fn all() -> Vec<Golden> {
    let sections = super::golden::sections(include_str!("../golden/cm.txt"));
    let messages = messages();
    assert_eq!(sections.len(), messages.len(), "a message without bytes or bytes without a message");
    let golden = |((name, hex), (known, mad)): ((&'static str, String), (&str, Mad))| {
        assert_eq!(name, known);
        let mut bytes = [0; 256];
        let written = super::golden::unhex(&hex);
        bytes[..written.len()].copy_from_slice(&written);
        Golden { name, mad, bytes }
    };
    sections.into_iter().zip(messages).map(golden).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn data<const LEN: usize>(text: &str) -> PrivateData<LEN> {
    PrivateData::new(text.as_bytes()).expect("short enough")
}

const CONNECT: u64 = 0x1122_3344_5566_7788;
const DISCONNECT: u64 = 0x99aa_bbcc_ddee_ff00;
const ACTIVE: u32 = 0x0a0b_0c0d;
const PASSIVE: u32 = 0x0102_0304;

fn messages() -> Vec<(&'static str, Mad)> {
    let mad = |transaction_id, message| Mad { transaction_id, message };
    let reject = Reject {
        local_comm_id: 0,
        remote_comm_id: ACTIVE,
        rejected: Rejected::Request,
        reason: RejectReason::INVALID_PATH_MTU,
        info: RejectInfo::new(&[3]).expect("one byte"),
        private_data: data("no"),
    };
    let rtu = ReadyToUse { local_comm_id: ACTIVE, remote_comm_id: PASSIVE, private_data: data("go") };
    let dreq = DisconnectRequest {
        local_comm_id: ACTIVE,
        remote_comm_id: PASSIVE,
        remote_qpn: Qpn::new(0x203),
        private_data: data("bye"),
    };
    let drep = DisconnectReply { local_comm_id: PASSIVE, remote_comm_id: ACTIVE, private_data: data("ok") };
    let lookup = LookupRequest {
        request_id: ACTIVE,
        partition_key: 0xffff,
        service_id: ServiceId::in_port_space(0x0111, 0x1234),
        private_data: data("where"),
    };
    let found = LookupReply {
        request_id: ACTIVE,
        status: LookupStatus::VALID,
        qpn: Qpn::new(0x203),
        service_id: lookup.service_id,
        queue_key: 0x0123_4567,
        vendor: Vendor { id: Bits::clamped(0x4f_524e), options: 0x0506_0708 },
        private_data: data("there"),
    };
    vec![
        ("REQ", mad(CONNECT, Message::Request(request()))),
        ("REQ with alternate path", mad(1, Message::Request(request_with_alternate()))),
        ("REJ", mad(CONNECT, Message::Reject(reject))),
        ("REP", mad(CONNECT, Message::Reply(reply()))),
        ("RTU", mad(CONNECT, Message::ReadyToUse(rtu))),
        ("DREQ", mad(DISCONNECT, Message::DisconnectRequest(dreq))),
        ("DREP", mad(DISCONNECT, Message::DisconnectReply(drep))),
        ("SIDR_REQ", mad(CONNECT, Message::LookupRequest(lookup))),
        ("SIDR_REP", mad(CONNECT, Message::LookupReply(found))),
    ]
}

fn request() -> Request {
    let (source, destination) = (ip("10.1.2.3"), ip("10.4.5.6"));
    let addressing = IpRequest { source_port: 1234, source, destination, private_data: data("hello") };
    Request {
        local_comm_id: ACTIVE,
        service_id: ServiceId::for_port(0x1234),
        local_ca_guid: 0x0002_c903_0000_1122,
        local_queue_key: 0x0bad_cafe,
        local_qpn: Qpn::new(0x102),
        responder_resources: 16,
        initiator_depth: 4,
        remote_cm_timeout: Bits::clamped(20),
        transport_service: TransportService::Reliable,
        flow_control: true,
        starting_psn: Psn::new(0x12_3456),
        local_cm_timeout: Bits::clamped(19),
        retry_count: Bits::clamped(7),
        partition_key: 0xffff,
        path_mtu: PathMtu::at_most(1024).expect("an MTU"),
        rnr_retry_count: Bits::clamped(6),
        cm_retries: Bits::clamped(15),
        shared_receive_queue: true,
        extended_transport: Bits::clamped(0),
        primary: Path {
            local_lid: 0,
            remote_lid: 0,
            local_gid: Gid::from(source),
            remote_gid: Gid::from(destination),
            flow_label: Bits::clamped(0x1_2345),
            packet_rate: Bits::clamped(18),
            traffic_class: 0x68,
            hop_limit: 64,
            service_level: Bits::clamped(3),
            subnet_local: true,
            local_ack_timeout: Bits::clamped(14),
        },
        alternate: None,
        vendor: Vendor::default(),
        private_data: addressing.emit().expect("both IPv4"),
    }
}

fn request_with_alternate() -> Request {
    Request {
        local_comm_id: 1,
        service_id: ServiceId::for_port(0x1234),
        local_ca_guid: 2,
        local_qpn: Qpn::new(3),
        responder_resources: 1,
        initiator_depth: 2,
        remote_cm_timeout: Bits::clamped(20),
        transport_service: TransportService::Unreliable,
        starting_psn: Psn::new(5),
        local_cm_timeout: Bits::clamped(19),
        retry_count: Bits::clamped(3),
        partition_key: 0xffff,
        path_mtu: PathMtu::at_most(4096).expect("an MTU"),
        extended_transport: Bits::clamped(2),
        primary: Path {
            local_lid: 7,
            remote_lid: 8,
            local_gid: Gid::from(ip("fd00::1")),
            remote_gid: Gid::from(ip("fd00::2")),
            hop_limit: 255,
            local_ack_timeout: Bits::clamped(16),
            ..Path::default()
        },
        alternate: Some(Path {
            local_lid: 9,
            remote_lid: 10,
            local_gid: Gid::from(ip("fd00::3")),
            remote_gid: Gid::from(ip("fd00::4")),
            flow_label: Bits::clamped(1),
            packet_rate: Bits::MAX,
            traffic_class: 1,
            hop_limit: 2,
            service_level: Bits::MAX,
            subnet_local: false,
            local_ack_timeout: Bits::MAX,
        }),
        vendor: Vendor { id: Bits::clamped(0x4f_524e), options: 0x0506_0708 },
        ..Request::default()
    }
}

fn reply() -> Reply {
    Reply {
        local_comm_id: PASSIVE,
        remote_comm_id: ACTIVE,
        local_queue_key: 0x0bad_cafe,
        local_qpn: Qpn::new(0x203),
        starting_psn: Psn::new(0xfe_dcba),
        responder_resources: 8,
        initiator_depth: 2,
        target_ack_delay: Bits::clamped(15),
        failover: Failover::NotSupported,
        flow_control: true,
        rnr_retry_count: Bits::clamped(7),
        shared_receive_queue: true,
        local_ca_guid: 0x0002_c903_0000_3344,
        vendor: Vendor { id: Bits::clamped(0x4f_524e), options: 0x0506_0708 },
        private_data: data("world"),
    }
}
