//! Unreliable services.

use crate::PeerId;

/// What a queue pair of an unreliable service has beside its queues: the peer of a connection, or the key that
/// datagrams must have. One word, so that reliable connections do not grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreliable(u32);

impl Unreliable {
    /// Who is at the other end of a connection.
    #[expect(dead_code, reason = "until unreliable connections send")]
    pub(crate) fn peer(self) -> PeerId {
        PeerId(self.0)
    }

    pub(crate) fn set_peer(&mut self, peer: PeerId) {
        self.0 = peer.0;
    }

    /// The key that datagrams must have.
    pub(crate) fn qkey(self) -> u32 {
        self.0
    }

    pub(crate) fn set_qkey(&mut self, qkey: u32) {
        self.0 = qkey;
    }
}
