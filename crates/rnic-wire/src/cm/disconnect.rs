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

/// DREQ: requests the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisconnectRequest {
    /// Communication id that the sender has assigned to the connection.
    pub local_comm_id: u32,
    /// Communication id that the receiver has assigned to it.
    pub remote_comm_id: u32,
    /// Queue pair number of the receiver.
    pub remote_qpn: Qpn,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<220>,
}

impl DisconnectRequest {
    /// MAD attribute that identifies this message.
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

/// DREP: confirms the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisconnectReply {
    /// Communication id that the sender has assigned to the connection.
    pub local_comm_id: u32,
    /// Communication id that the receiver has assigned to it.
    pub remote_comm_id: u32,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<224>,
}

impl DisconnectReply {
    /// MAD attribute that identifies this message.
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
