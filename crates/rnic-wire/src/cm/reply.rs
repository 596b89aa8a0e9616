//! REP (InfiniBand Architecture volume 1, section 12.6.8): accepts a connection.
//!
//! ```text
//!   0 local communication id   4 remote communication id   8 local Q_Key
//!  12 local QPN (24), vendor id, high (8)   16 reserved (24), vendor id, middle (8)
//!  20 starting PSN (24), vendor id, low (8)
//!  24 responder resources   25 initiator depth
//!  26 target ACK delay (5), failover accepted (2), end-to-end flow control (1)
//!  27 RNR retry count (3), SRQ (1), reserved (4)
//!  28 local CA GUID     36 private data, 196 bytes
//! ```

use rnic_base::Psn;

use super::field::{Bits, PrivateData, Vendor};
use super::mad::Body;
use crate::bytes::{array, be24, be32, be64, put, put24};
use crate::packet::Qpn;

/// Result for the alternate path that a REQ offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Failover {
    /// Accepted; also reported when no alternate path was offered.
    #[default]
    Accepted,
    /// Rejected: the receiver does not support path migration.
    NotSupported,
    /// Rejected: the receiver supports it, but not with this path.
    Rejected,
    /// A reserved value.
    Reserved,
}

/// REP: accepts a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reply {
    /// Communication id that the sender has assigned to the connection.
    pub local_comm_id: u32,
    /// Communication id from the REQ.
    pub remote_comm_id: u32,
    /// Queue key of the sender; zero for reliable connections.
    pub local_queue_key: u32,
    /// Queue pair number of the sender.
    pub local_qpn: Qpn,
    /// Sequence number of the first packet that the sender of this message expects; the receiver of this message starts
    /// transmitting with it.
    pub starting_psn: Psn,
    /// Number of Reads and atomics that the sender can process as responder at a time.
    pub responder_resources: u8,
    /// Number of Reads and atomics that the sender wants to have outstanding as initiator.
    pub initiator_depth: u8,
    /// Maximum time that the sender may delay an acknowledgement, encoded as 4.096 us * 2^n.
    pub target_ack_delay: Bits<5>,
    /// Result for the alternate path.
    pub failover: Failover,
    /// True when the sender uses end-to-end flow control (credits).
    pub flow_control: bool,
    /// Number of retransmissions after an RNR NAK; 7 means without limit.
    pub rnr_retry_count: Bits<3>,
    /// True when the sender's queue pair uses a shared receive queue.
    pub shared_receive_queue: bool,
    /// GUID of the sender's adapter.
    pub local_ca_guid: u64,
    /// Vendor of the sender's adapter, and its options.
    pub vendor: Vendor,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<196>,
}

impl Reply {
    /// MAD attribute that identifies this message.
    pub const ATTRIBUTE: u16 = 0x0013;

    pub(super) fn parse(body: &Body, modifier: u32) -> Self {
        let (delay, retries) = (body[26], body[27]);
        Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            local_queue_key: be32(body, 8),
            local_qpn: Qpn::new(be24(body, 12)),
            starting_psn: Psn::new(be24(body, 20)),
            responder_resources: body[24],
            initiator_depth: body[25],
            target_ack_delay: Bits::low(u32::from(delay >> 3)),
            failover: match delay >> 1 & 3 {
                0 => Failover::Accepted,
                1 => Failover::NotSupported,
                2 => Failover::Rejected,
                _ => Failover::Reserved,
            },
            flow_control: delay & 1 != 0,
            rnr_retry_count: Bits::low(u32::from(retries >> 5)),
            shared_receive_queue: retries & SRQ != 0,
            local_ca_guid: be64(body, 28),
            vendor: Vendor::new(u32::from_be_bytes([0, body[15], body[19], body[23]]), modifier),
            private_data: PrivateData(array(body, 36)),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        let failover = match self.failover {
            Failover::Accepted => 0,
            Failover::NotSupported => 1,
            Failover::Rejected => 2,
            Failover::Reserved => 3,
        };
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 4, self.remote_comm_id.to_be_bytes());
        put(body, 8, self.local_queue_key.to_be_bytes());
        put24(body, 12, self.local_qpn.get());
        put24(body, 20, self.starting_psn.value());
        body[24] = self.responder_resources;
        body[25] = self.initiator_depth;
        body[26] = self.target_ack_delay.byte() << 3 | failover << 1 | u8::from(self.flow_control);
        body[27] = self.rnr_retry_count.byte() << 5 | if self.shared_receive_queue { SRQ } else { 0 };
        put(body, 28, self.local_ca_guid.to_be_bytes());
        let [_, vendor @ ..] = self.vendor.id.get().to_be_bytes();
        (body[15], body[19], body[23]) = (vendor[0], vendor[1], vendor[2]);
        put(body, 36, self.private_data.0);
    }
}

const SRQ: u8 = 0x10;
