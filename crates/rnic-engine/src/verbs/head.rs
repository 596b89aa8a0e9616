//! The attributes of a queue pair that every transport reads: identity, state, addresses, rights.

use std::sync::Arc;

use rnic_policy::PathLabel;
use rnic_wire::{Format, NakCode, Qpn, RnrTimer};

use crate::config::QpAttributes;
use crate::mr::Access;
use crate::state::QpState;
use crate::transport::Transport;
use crate::{CqId, PdId, PeerId, SrqId};

/// The part of a queue pair that its connection and both halves read for every packet.
#[derive(Debug)]
pub(crate) struct Head {
    /// Network address of the remote end and, in the bits above it, the format of the packets that the RoCE connection
    /// accepts, or [`NO_FORMAT`].
    accepts: u64,
    /// Rules of the transport, computed from the profile.
    pub(crate) transport: Arc<Transport>,
    /// Queue pair number.
    pub(crate) number: Qpn,
    /// Index in the engine's table, by which timers and rings refer to the queue pair.
    pub(crate) slot: u32,
    /// Number of the queue pair at the remote end.
    pub(crate) dest_qpn: Qpn,
    /// Path label of the next packet, which switches hash.
    pub(crate) label: PathLabel,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) srq: Option<SrqId>,
    mtu: u16,
    /// Weight among the queue pairs that share the link, at least one.
    pub(crate) weight: u16,
    /// Class of the packets.
    pub(crate) class: u8,
    pub(crate) state: QpState,
    /// Set when the queue pair has failed and its protocol has not yet released the resources of the NIC that it holds.
    pub(crate) has_failed: bool,
    /// Operations that the peer may perform, independent of the rights that a key grants.
    pub(crate) access: Access,
    pub(crate) signal_all: bool,
    pub(crate) min_rnr_timer: RnrTimer,
}

/// Stored instead of a format while the queue pair accepts no packets for a RoCE connection.
const NO_FORMAT: u8 = u8::MAX;

/// Returns peer and format packed into one word.
#[inline]
const fn pack(peer: PeerId, format: u8) -> u64 {
    peer.0 as u64 | (format as u64) << 32
}

impl Head {
    pub(crate) fn new(number: Qpn, slot: u32, attributes: &QpAttributes, transport: Arc<Transport>) -> Self {
        Self {
            accepts: pack(PeerId::NONE, NO_FORMAT),
            transport,
            number,
            slot,
            dest_qpn: Qpn::default(),
            label: PathLabel::default(),
            pd: attributes.pd,
            send_cq: attributes.send_cq,
            recv_cq: attributes.recv_cq,
            srq: attributes.srq,
            // No message is split into packets before a connection sets the MTU, but the number of packets is
            // computed with it even for requests posted in the error state.
            mtu: rnic_base::limits::MTU_MIN as u16,
            weight: 1,
            class: 0,
            state: QpState::Reset,
            has_failed: false,
            access: Access::all(),
            signal_all: attributes.signal_all,
            min_rnr_timer: RnrTimer::from_code(0),
        }
    }

    /// Returns the payload bytes of a full packet.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        u32::from(self.mtu)
    }

    /// Splits messages into packets of `mtu` bytes from now on.
    pub(crate) fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu as u16;
    }

    /// Returns whether a packet of `format` from `peer` is for the RoCE connection of this queue pair: one comparison.
    #[inline]
    pub(crate) fn accepts(&self, peer: PeerId, format: Format) -> bool {
        self.accepts == pack(peer, format as u8)
    }

    /// Accepts packets from the peer from now on, in the transport's format.
    pub(crate) fn begin_accepting(&mut self) {
        self.accepts = pack(self.peer(), self.transport.format as u8);
    }

    /// Returns the network address of the remote end; [`PeerId::NONE`] when packets are accepted from any peer, and
    /// before there is a connection.
    #[inline]
    pub(crate) fn peer(&self) -> PeerId {
        PeerId(self.accepts as u32)
    }

    /// Sets the remote end to `peer`.
    pub(crate) fn set_peer(&mut self, peer: PeerId) {
        self.accepts = pack(peer, NO_FORMAT);
    }

    /// Returns a hash of this connection that is the same in every run. The peer is included only for reliable
    /// connections of the RoCE family.
    pub(crate) fn flow_hash(&self) -> u64 {
        let queue_pair_numbers = u64::from(self.number.get()) << 32 | u64::from(self.dest_qpn.get());
        let has_format = self.accepts >> 32 != u64::from(NO_FORMAT);
        let peer = if has_format { self.peer() } else { PeerId::NONE };
        let mixed = (queue_pair_numbers ^ u64::from(peer.0) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    /// Returns whether completions of this queue pair's requests are written to `cq`.
    pub(crate) fn uses(&self, cq: CqId) -> bool {
        self.send_cq == cq || self.recv_cq == cq
    }

    /// Returns whether packets numbered in the request space may be sent or in flight: the queue pair's own requests,
    /// or responses that are scheduled like them (FaSR).
    #[inline]
    pub(crate) fn transmits(&self) -> bool {
        self.state.sends() || (self.transport.scheduled && self.state.receives())
    }

    /// Returns the protection domain and queue pair for which the peer's keys are looked up.
    #[inline]
    pub(crate) fn granted(&self) -> (PdId, Qpn) {
        (self.pd, self.number)
    }

    /// Checks that the queue pair's own rights permit the access that the peer requests. A missing right of the queue
    /// pair is an invalid request, as for an operation that the queue pair does not support; a missing right of a
    /// region is a remote access error (IBA 9.7.5.2.4, table 60, and 10.2.8.1).
    #[inline]
    pub(crate) fn check_right(&self, access: Access) -> Result<(), NakCode> {
        if self.access.contains(access) { Ok(()) } else { Err(NakCode::InvalidRequest) }
    }
}

const _: () = assert!(rnic_base::limits::MTU_MAX <= u16::MAX as u32);
