//! SIDR_REQ and SIDR_REP (InfiniBand Architecture volume 1, sections 12.11.1 and 12.11.2): lookup of the queue pair
//! that serves datagrams for a service.
//!
//! ```text
//!  SIDR_REQ   0 request id   4 partition key (16), reserved (16)   8 service id   16 private data, 216 bytes
//!  SIDR_REP   0 request id   4 status   5 information length       6 vendor id, high (16)
//!             8 QPN (24)    11 vendor id, low (8)   12 service id  20 Q_Key
//!            24 additional information, 72 bytes    96 private data, 136 bytes
//! ```
//!
//! Additional information (redirection to another port) is not supported: zero when sent, ignored when received. The
//! vendor's identifier and options are those of [`Vendor`].

use core::fmt;

use super::field::{PrivateData, ServiceId, Vendor};
use super::mad::Body;
use crate::bytes::{array, be16, be24, be32, be64, put, put24};
use crate::packet::Qpn;

/// SIDR_REQ: requests the queue pair of a service.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupRequest {
    /// Id that the sender has assigned to the request.
    pub request_id: u32,
    /// Partition key.
    pub partition_key: u16,
    /// Service that is requested.
    pub service_id: ServiceId,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<216>,
}

impl LookupRequest {
    /// MAD attribute that identifies this message.
    pub const ATTRIBUTE: u16 = 0x0017;

    pub(super) fn parse(body: &Body) -> Self {
        Self {
            request_id: be32(body, 0),
            partition_key: be16(body, 4),
            service_id: ServiceId(be64(body, 8)),
            private_data: PrivateData(array(body, 16)),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, self.request_id.to_be_bytes());
        put(body, 4, self.partition_key.to_be_bytes());
        put(body, 8, self.service_id.0.to_be_bytes());
        put(body, 16, self.private_data.0);
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LookupStatus(pub u8);

impl LookupStatus {
    /// The queue pair and its key are valid.
    pub const VALID: Self = Self(0);
    /// The service is not offered.
    pub const UNSUPPORTED: Self = Self(1);
    /// The application has rejected the request.
    pub const REJECTED: Self = Self(2);
    /// No queue pair is available.
    pub const NO_QP: Self = Self(3);
}

impl fmt::Debug for LookupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::VALID => "valid",
            Self::UNSUPPORTED => "service not supported",
            Self::REJECTED => "rejected",
            Self::NO_QP => "no queue pair",
            Self(code) => return write!(f, "lookup status {code}"),
        };
        f.write_str(text)
    }
}

/// SIDR_REP: reports the queue pair, or the reason why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupReply {
    /// Id from the request.
    pub request_id: u32,
    /// Result of the lookup; determines whether the queue pair and its Q_Key are valid.
    pub status: LookupStatus,
    /// Queue pair number of the service.
    pub qpn: Qpn,
    /// Service that was requested.
    pub service_id: ServiceId,
    /// Queue key of the queue pair.
    pub queue_key: u32,
    /// Vendor of the sender's adapter, and its options.
    pub vendor: Vendor,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<136>,
}

impl LookupReply {
    /// MAD attribute that identifies this message.
    pub const ATTRIBUTE: u16 = 0x0018;

    pub(super) fn parse(body: &Body, modifier: u32) -> Self {
        let id = u32::from(be16(body, 6)) << 8 | u32::from(body[11]);
        Self {
            request_id: be32(body, 0),
            status: LookupStatus(body[4]),
            qpn: Qpn::new(be24(body, 8)),
            service_id: ServiceId(be64(body, 12)),
            queue_key: be32(body, 20),
            vendor: Vendor::new(id, modifier),
            private_data: PrivateData(array(body, 96)),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        let [_, vendor @ ..] = self.vendor.id.get().to_be_bytes();
        put(body, 0, self.request_id.to_be_bytes());
        body[4] = self.status.0;
        put(body, 6, [vendor[0], vendor[1]]);
        put24(body, 8, self.qpn.get());
        body[11] = vendor[2];
        put(body, 12, self.service_id.0.to_be_bytes());
        put(body, 20, self.queue_key.to_be_bytes());
        put(body, 96, self.private_data.0);
    }
}
