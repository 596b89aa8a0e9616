//! RTU (InfiniBand Architecture volume 1, section 12.6.9): the connection may be used.
//!
//! ```text
//!   0 local communication id   4 remote communication id   8 private data, 224 bytes
//! ```

use super::field::PrivateData;
use super::mad::Body;
use crate::bytes::{array, be32, put};

/// RTU: the connection may be used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadyToUse {
    /// Communication id that the sender has assigned to the connection.
    pub local_comm_id: u32,
    /// Communication id that the receiver has assigned to the connection.
    pub remote_comm_id: u32,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<224>,
}

impl ReadyToUse {
    /// MAD attribute that identifies this message.
    pub const ATTRIBUTE: u16 = 0x0014;

    pub(super) fn parse(body: &Body) -> Self {
        Self { local_comm_id: be32(body, 0), remote_comm_id: be32(body, 4), private_data: PrivateData(array(body, 8)) }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 4, self.remote_comm_id.to_be_bytes());
        put(body, 8, self.private_data.0);
    }
}
