//! Checks a peer's access to memory against the rights of the queue pair and of the memory key.

use rnic_wire::{NakCode, Position};

use super::head::Head;
use super::recv::Refusal;
use crate::PdId;
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::mr::Access;

const DENIED: Refusal = Refusal::Nak(NakCode::RemoteAccessError);

impl Head {
    /// Checks the payload length of a packet: every packet except the last of a message must be full; the last one of
    /// a multi-packet message must not be empty.
    #[inline]
    pub(crate) fn check_payload(&self, position: Position, len: u32) -> Result<(), NakCode> {
        let is_valid = match position {
            Position::First | Position::Middle => len == self.mtu(),
            Position::Last => 0 < len && len <= self.mtu(),
            Position::Only => len <= self.mtu(),
        };
        if is_valid { Ok(()) } else { Err(NakCode::InvalidRequest) }
    }

    #[inline]
    pub(crate) fn place_remote<D: Dma>(
        &self,
        core: &Core,
        va: u64,
        rkey: u32,
        len: u32,
        dma: &mut D,
    ) -> Result<(), Refusal> {
        if len == 0 {
            return Ok(());
        }
        let local = core
            .objects
            .mrs
            .resolve_remote(self.granted(), rkey, va, u64::from(len), Access::REMOTE_WRITE)
            .map_err(|_| DENIED)?;
        dma.place(0, Segment { local, len }).map_err(|_| DENIED)
    }

    /// Returns the local address of the `length` bytes that a fetch requests, if the peer is permitted to access them;
    /// a fetch of zero bytes has no address and returns 0.
    pub(crate) fn resolve_fetch(
        &self,
        core: &Core,
        va: u64,
        rkey: u32,
        length: u32,
        access: Access,
    ) -> Result<u64, NakCode> {
        self.resolve_fetch_in(core, self.pd, va, rkey, length, access)
    }

    /// Does the same as [`Self::resolve_fetch`], with the rights of the protection domain `pd`, which for an XRC
    /// target queue pair depends on the request.
    pub(crate) fn resolve_fetch_in(
        &self,
        core: &Core,
        pd: PdId,
        va: u64,
        rkey: u32,
        length: u32,
        access: Access,
    ) -> Result<u64, NakCode> {
        if access == Access::REMOTE_ATOMIC && !va.is_multiple_of(8) {
            return Err(NakCode::InvalidRequest);
        }
        self.check_right(access)?;
        if length == 0 {
            return Ok(0);
        }
        core.objects
            .mrs
            .resolve_remote((pd, self.number), rkey, va, u64::from(length), access)
            .map_err(|_| NakCode::RemoteAccessError)
    }
}
