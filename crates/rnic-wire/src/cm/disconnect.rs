//! DREQ and DREP (InfiniBand Architecture volume 1, sections 12.6.10 and 12.6.11): the end of a connection.
//!
//! ```text
//!  DREQ   0 local communication id   4 remote communication id   8 remote QPN (24), reserved (8)
//!        12 private data, 220 bytes
//!  DREP   0 local communication id   4 remote communication id   8 private data, 224 bytes
//! ```

use super::field::PrivateData;
use super::mad::Body;
use crate::bytes::{array, be24, be32, put, put24};
use crate::packet::Qpn;

/// DREQ: ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisconnectRequest {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// From application to application.
    pub private_data: PrivateData<220>,
}

impl DisconnectRequest {
    /// Says in a MAD header that this is the message.
    pub const ATTRIBUTE: u16 = 0x0015;

    pub(super) fn parse(body: &Body) -> Self {
        Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            remote_qpn: Qpn::new(be24(body, 8)),
            private_data: PrivateData(array(body, 12)),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 4, self.remote_comm_id.to_be_bytes());
        put24(body, 8, self.remote_qpn.get());
        put(body, 12, self.private_data.0);
    }
}

/// DREP: confirms the end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisconnectReply {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// From application to application.
    pub private_data: PrivateData<224>,
}

impl DisconnectReply {
    /// Says in a MAD header that this is the message.
    pub const ATTRIBUTE: u16 = 0x0016;

    pub(super) fn parse(body: &Body) -> Self {
        Self { local_comm_id: be32(body, 0), remote_comm_id: be32(body, 4), private_data: PrivateData(array(body, 8)) }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 4, self.remote_comm_id.to_be_bytes());
        put(body, 8, self.private_data.0);
    }
}
