//! Reads and atomics of the peer, and the responses to them.
//!
//! There are three modes. In split spaces (IRN section 5.2) responses have separate sequence numbers,
//! acknowledgements, timer and cap: the source of the data retransmits lost responses ([`split`]). In a shared space
//! (RoCE) a response carries the number that its request reserved, responses are not acknowledged, and the requester
//! repeats its request for missing ones ([`shared`]). With scheduled responses (FaSR section IV-D), a response is
//! sent by this connection's own requester, like a Write (`requester/peer_fetches.rs`). Memory that is no longer valid
//! when a response is to be sent is handled separately ([`refused_fetch`]).

pub(super) mod buffer;
pub(super) mod refused_fetch;
pub(super) mod shared;
pub(super) mod split;

use rnic_base::{Psn, Seq, Serial, Time};
use rnic_wire::{
    Aeth, AtomicOp, FasrReadFields, Headers, NakCode, Packet, PacketFlags, PlacementOp, Position, Sink, WqeSn,
};

use super::shared::ConnShared;
use crate::PdId;
use crate::core::Core;
use crate::dma::Segment;
use crate::mr::Access;
use crate::packet::TransmitKind;
use crate::verbs::Verbs;
use crate::verbs::head::Head;

/// Operation that the peer requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FetchRequest {
    /// Reads a range of memory.
    Read {
        /// Address of the first byte.
        va: u64,
        /// R_Key of the memory.
        rkey: u32,
        /// Length in bytes.
        length: u32,
    },
    /// Atomic operation on eight bytes.
    Atomic {
        /// Address of the eight bytes.
        va: u64,
        /// R_Key of the memory.
        rkey: u32,
        /// Atomic operation that is requested.
        op: AtomicOp,
    },
    /// An operation of InfiniBand annex A19.
    Placement {
        /// Address of the first byte.
        va: u64,
        /// R_Key of the memory.
        rkey: u32,
        /// Operation that refers to the memory.
        op: PlacementOp,
    },
}

/// A Read or atomic in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(super) request: FetchRequest,
    /// Sequence number of the request packet.
    pub(super) seq: Seq,
    /// The request's `read_WQE_SN`, if it has one.
    pub(super) sn: u32,
    /// The latest timestamp that the request carried (FaSR).
    pub(crate) stamp: u32,
    /// Sequence number of the first response packet, once the fetch has started.
    pub(super) first: Seq,
    /// Number of response packets.
    pub(super) packets: u32,
    /// Previous value of the memory of an atomic.
    pub(super) original: u64,
    /// True when this response was already requested before (shared space only).
    pub(super) is_retransmission: bool,
    /// Protection domain whose rights apply.
    pub(super) pd: PdId,
}

impl Fetch {
    pub(super) fn new(request: FetchRequest, seq: Seq, mtu: u32, pd: PdId) -> Self {
        let packets = match request {
            FetchRequest::Read { length, .. } => length.div_ceil(mtu).max(1),
            FetchRequest::Atomic { .. } | FetchRequest::Placement { .. } => 1,
        };
        Self { request, seq, sn: 0, stamp: 0, first: Seq::UNSET, packets, original: 0, is_retransmission: false, pd }
    }

    pub(super) fn end(&self) -> Seq {
        self.first + u64::from(self.packets)
    }

    /// Builds response packet `index`, as a retransmission when `is_retransmission`, or the refusal that replaces it
    /// when the memory to be read is no longer valid ([`refused_fetch`]). `in_flight` is the number of requests in
    /// flight.
    pub(super) fn respond_or_refuse(
        &self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (index, is_retransmission): (u32, bool),
    ) {
        if let Err(code) = self.respond(shared, verbs, core, in_flight, (index, is_retransmission)) {
            let headers = self.refusal(&verbs.recv, &verbs.head, index, code);
            core.segments.clear();
            self.send(shared, verbs, core, in_flight, (index, is_retransmission), (headers, 0));
        }
    }

    /// Builds response packet `index`, as a retransmission when `is_retransmission`.
    ///
    /// # Errors
    /// The code of a refusal when the memory, or the right to read it, has been revoked since the request arrived.
    pub(super) fn respond(
        &self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (index, is_retransmission): (u32, bool),
    ) -> Result<(), NakCode> {
        let aeth = Aeth { syndrome: verbs.recv.ack_syndrome(&verbs.head), msn: Serial::new(verbs.recv.msn) };
        let sink = self.sink(&verbs.head, index);
        core.segments.clear();
        let (headers, payload_len) = match self.request {
            FetchRequest::Atomic { .. } => (Headers::AtomicResponse { aeth, original: self.original, sink }, 0),
            FetchRequest::Placement { .. } => {
                (Headers::ReadResponse { position: Position::Only, aeth: Some(aeth), sink }, 0)
            }
            FetchRequest::Read { va, rkey, length } => {
                let offset = index * verbs.head.mtu();
                let len = (length - offset).min(verbs.head.mtu());
                if len > 0 {
                    let va = va.wrapping_add(u64::from(offset));
                    let access = Access::REMOTE_READ;
                    let local = verbs.head.resolve_fetch_in(core, self.pd, va, rkey, len, access)?;
                    core.segments.push(Segment { local, len });
                }
                let position = Position::of(index, self.packets);
                let aeth = (position != Position::Middle).then_some(aeth);
                (Headers::ReadResponse { position, aeth, sink }, len)
            }
        };
        self.send(shared, verbs, core, in_flight, (index, is_retransmission), (headers, payload_len));
        Ok(())
    }

    /// Returns the position of packet `index` in the response, where packets carry it.
    #[inline(always)]
    fn sink(&self, head: &Head, index: u32) -> Option<Sink> {
        let offset = u64::from(index) * u64::from(head.mtu());
        head.transport.scheduled.then(|| Sink { read_sn: WqeSn::new(self.sn), offset })
    }

    /// Sends packet `index`, as a retransmission when `is_retransmission`.
    #[inline(always)]
    fn send(
        &self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (index, is_retransmission): (u32, bool),
        (headers, payload_len): (Headers, u32),
    ) {
        let psn = (self.first + u64::from(index)).wire();
        let (dest_qpn, flags) = (verbs.head.dest_qpn, PacketFlags::default());
        core.out.packet = Packet { dest_qpn, psn, flags, payload_len, headers };
        core.out.kind = if is_retransmission { TransmitKind::ResponseRetransmission } else { TransmitKind::Response };
        shared.send_data(verbs, core, in_flight, is_retransmission);
    }
}

/// Writes into a Read or atomic request the values that the responder needs to send the response as a request packet
/// of its own: the packet that this side `expects` next, and the time at which the request was sent (FaSR).
#[cold]
pub(super) fn sign_request(headers: &mut Headers, expected_psn: Seq, now: Time) {
    let next: Psn = expected_psn.wire();
    match headers {
        Headers::ReadRequest { fasr, .. } => *fasr = Some(FasrReadFields { expected_psn: next, stamp: stamp(now) }),
        Headers::AtomicRequest { expected_psn, .. } | Headers::PlacementRequest { expected_psn, .. } => {
            *expected_psn = next.into();
        }
        _ => {}
    }
}

/// Returns a timestamp in units of 2^20 ps, about a microsecond; it wraps after 75 minutes.
fn stamp(now: Time) -> u32 {
    (now.as_ps() >> 20) as u32
}
