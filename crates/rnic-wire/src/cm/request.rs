//! REQ (InfiniBand Architecture volume 1, section 12.6.5): requests a connection.
//!
//! ```text
//!   0 local communication id  4 reserved (8), vendor id (24)   8 service id
//!  16 local CA GUID          24 reserved       28 local Q_Key
//!  32 local QPN (24) | responder resources     36 reserved (24) | initiator depth
//!  40 reserved (24) | remote CM response timeout (5), transport service (2), end-to-end flow control (1)
//!  44 starting PSN (24) | local CM response timeout (5), retry count (3)
//!  48 P_Key (16) | path MTU (4), reserved (1), RNR retry count (3) | CM retries (4), SRQ (1), extended transport (3)
//!  52 primary path, 44 bytes    96 alternate path, 44 bytes    140 private data, 92 bytes
//!
//!  a path:  0 local LID, remote LID     4 local GID     20 remote GID
//!          36 flow label (20), reserved (6), packet rate (6)
//!          40 traffic class   41 hop limit   42 service level (4), subnet local (1), reserved (3)
//!          43 local ACK timeout (5), reserved (3)
//! ```

use rnic_base::Psn;

use super::field::{Bits, Gid, PathMtu, PrivateData, ServiceId, Vendor};
use super::mad::Body;
use crate::bytes::{array, be16, be24, be32, be64, put, put24};
use crate::packet::Qpn;

/// Transport service that is requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum TransportService {
    /// Reliable connection, the only one that OpenRNIC requests.
    #[default]
    Reliable,
    /// Unreliable connection.
    Unreliable,
    /// Reliable datagram.
    ReliableDatagram,
    /// A transport named in the extended field, such as XRC.
    Extended,
}

/// REQ: requests a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Request {
    /// Communication id that the sender has assigned to the connection.
    pub local_comm_id: u32,
    /// Service that is requested.
    pub service_id: ServiceId,
    /// GUID of the sender's adapter.
    pub local_ca_guid: u64,
    /// Queue key of the sender; zero for reliable connections.
    pub local_queue_key: u32,
    /// Queue pair number of the sender.
    pub local_qpn: Qpn,
    /// Number of Reads and atomics that the sender can process as responder at a time.
    pub responder_resources: u8,
    /// Number of Reads and atomics that the sender wants to have outstanding as initiator.
    pub initiator_depth: u8,
    /// Time allowed to the receiver for its response, encoded as 4.096 us * 2^n.
    pub remote_cm_timeout: Bits<5>,
    /// Transport service that is requested.
    pub transport_service: TransportService,
    /// True when the sender uses end-to-end flow control (credits).
    pub flow_control: bool,
    /// Sequence number of the first packet that the sender of this message expects; the receiver of this message starts
    /// transmitting with it.
    pub starting_psn: Psn,
    /// Time that the sender needs at most for its response, encoded as 4.096 us * 2^n.
    pub local_cm_timeout: Bits<5>,
    /// Number of retransmissions of a packet before the sender gives up.
    pub retry_count: Bits<3>,
    /// Partition key.
    pub partition_key: u16,
    /// Path MTU: payload of a full packet.
    pub path_mtu: PathMtu,
    /// Number of retransmissions after an RNR NAK; 7 means without limit.
    pub rnr_retry_count: Bits<3>,
    /// Number of retransmissions of a connection management message.
    pub cm_retries: Bits<4>,
    /// True when the sender's queue pair uses a shared receive queue.
    pub shared_receive_queue: bool,
    /// Transport type when the transport service is [`TransportService::Extended`].
    pub extended_transport: Bits<3>,
    /// Primary path of the packets.
    pub primary: Path,
    /// Alternate path, if there is one; OpenRNIC never migrates to it. On the wire "none" is all zeros.
    pub alternate: Option<Path>,
    /// Vendor of the sender's adapter, and its options.
    pub vendor: Vendor,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<92>,
}

impl Request {
    /// MAD attribute that identifies this message.
    pub const ATTRIBUTE: u16 = 0x0010;

    pub(super) fn parse(body: &Body, modifier: u32) -> Self {
        let (timeouts, retries, mtu, cm) = (body[43], body[47], body[50], body[51]);
        let shifted = |byte: u8, shift: u32| u32::from(byte >> shift);
        Self {
            local_comm_id: be32(body, 0),
            service_id: ServiceId(be64(body, 8)),
            local_ca_guid: be64(body, 16),
            local_queue_key: be32(body, 28),
            local_qpn: Qpn::new(be24(body, 32)),
            responder_resources: body[35],
            initiator_depth: body[39],
            remote_cm_timeout: Bits::low(shifted(timeouts, 3)),
            transport_service: match timeouts >> 1 & 3 {
                0 => TransportService::Reliable,
                1 => TransportService::Unreliable,
                2 => TransportService::ReliableDatagram,
                _ => TransportService::Extended,
            },
            flow_control: timeouts & 1 != 0,
            starting_psn: Psn::new(be24(body, 44)),
            local_cm_timeout: Bits::low(shifted(retries, 3)),
            retry_count: Bits::low(shifted(retries, 0)),
            partition_key: be16(body, 48),
            path_mtu: PathMtu::from_code(Bits::low(shifted(mtu, 4))),
            rnr_retry_count: Bits::low(shifted(mtu, 0)),
            cm_retries: Bits::low(shifted(cm, 4)),
            shared_receive_queue: cm & SRQ != 0,
            extended_transport: Bits::low(shifted(cm, 0)),
            primary: Path::parse(&array(body, PRIMARY_AT)),
            alternate: Some(Path::parse(&array(body, ALTERNATE_AT))).filter(|path| *path != Path::default()),
            vendor: Vendor::new(be24(body, 5), modifier),
            private_data: PrivateData(array(body, PRIVATE_AT)),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        let service = match self.transport_service {
            TransportService::Reliable => 0,
            TransportService::Unreliable => 1,
            TransportService::ReliableDatagram => 2,
            TransportService::Extended => 3,
        };
        put(body, 0, self.local_comm_id.to_be_bytes());
        put24(body, 5, self.vendor.id.get());
        put(body, 8, self.service_id.0.to_be_bytes());
        put(body, 16, self.local_ca_guid.to_be_bytes());
        put(body, 28, self.local_queue_key.to_be_bytes());
        put24(body, 32, self.local_qpn.get());
        body[35] = self.responder_resources;
        body[39] = self.initiator_depth;
        body[43] = self.remote_cm_timeout.byte() << 3 | service << 1 | u8::from(self.flow_control);
        put24(body, 44, self.starting_psn.value());
        body[47] = self.local_cm_timeout.byte() << 3 | self.retry_count.byte();
        put(body, 48, self.partition_key.to_be_bytes());
        body[50] = self.path_mtu.code().byte() << 4 | self.rnr_retry_count.byte();
        let shared = if self.shared_receive_queue { SRQ } else { 0 };
        body[51] = self.cm_retries.byte() << 4 | shared | self.extended_transport.byte();
        put(body, PRIMARY_AT, self.primary.emit());
        put(body, ALTERNATE_AT, self.alternate.map_or([0; PATH_LEN], |path| path.emit()));
        put(body, PRIVATE_AT, self.private_data.0);
    }
}

/// A path between two ports, as described by the sender of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Path {
    /// InfiniBand address of the sender's port; unused by RoCE.
    pub local_lid: u16,
    /// InfiniBand address of the receiver's port; unused by RoCE.
    pub remote_lid: u16,
    /// GID of the sender's port.
    pub local_gid: Gid,
    /// GID of the receiver's port.
    pub remote_gid: Gid,
    /// IPv6 flow label.
    pub flow_label: Bits<20>,
    /// Encoded rate limit.
    pub packet_rate: Bits<6>,
    /// IP traffic class.
    pub traffic_class: u8,
    /// IP hop limit.
    pub hop_limit: u8,
    /// InfiniBand service level; for RoCE the priority.
    pub service_level: Bits<4>,
    /// True when both ports are in the same subnet.
    pub subnet_local: bool,
    /// Timeout for an acknowledgement, encoded as 4.096 us * 2^n.
    pub local_ack_timeout: Bits<5>,
}

impl Path {
    fn parse(bytes: &[u8; PATH_LEN]) -> Self {
        let label_rate = be32(bytes, 36);
        Self {
            local_lid: be16(bytes, 0),
            remote_lid: be16(bytes, 2),
            local_gid: Gid(array(bytes, 4)),
            remote_gid: Gid(array(bytes, 20)),
            flow_label: Bits::low(label_rate >> 12),
            packet_rate: Bits::low(label_rate),
            traffic_class: bytes[40],
            hop_limit: bytes[41],
            service_level: Bits::low(u32::from(bytes[42] >> 4)),
            subnet_local: bytes[42] & SUBNET_LOCAL != 0,
            local_ack_timeout: Bits::low(u32::from(bytes[43] >> 3)),
        }
    }

    fn emit(&self) -> [u8; PATH_LEN] {
        let mut bytes = [0; PATH_LEN];
        put(&mut bytes, 0, self.local_lid.to_be_bytes());
        put(&mut bytes, 2, self.remote_lid.to_be_bytes());
        put(&mut bytes, 4, self.local_gid.0);
        put(&mut bytes, 20, self.remote_gid.0);
        put(&mut bytes, 36, (self.flow_label.get() << 12 | self.packet_rate.get()).to_be_bytes());
        bytes[40] = self.traffic_class;
        bytes[41] = self.hop_limit;
        bytes[42] = self.service_level.byte() << 4 | if self.subnet_local { SUBNET_LOCAL } else { 0 };
        bytes[43] = self.local_ack_timeout.byte() << 3;
        bytes
    }
}

const SRQ: u8 = 0x08;
const SUBNET_LOCAL: u8 = 0x08;
const PATH_LEN: usize = 44;
const PRIMARY_AT: usize = 52;
const ALTERNATE_AT: usize = PRIMARY_AT + PATH_LEN;
const PRIVATE_AT: usize = ALTERNATE_AT + PATH_LEN;
