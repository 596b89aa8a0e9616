//! The peer's reads and atomics, and our responses.
//!
//! Three regimes. In split spaces (IRN section 5.2) responses have numbers, acknowledgements, a timer and a cap of
//! their own: the data's source recovers it ([`split`]). In a shared space (RoCE) a response bears the number its
//! request reserved, nobody acknowledges it, and the requester asks again for what it misses ([`shared`]).
//! Scheduled (FaSR section IV-D), a response is a packet of this connection's own requester, like a Write
//! (`requester/answers.rs`). Memory that is gone when a response is to leave is a matter of its own ([`gone`]).

pub(super) mod buffer;
pub(super) mod gone;
pub(super) mod shared;
pub(super) mod split;

use rnic_base::{Psn, Seq, Serial, Time};
use rnic_wire::{Aeth, Asked, AtomicOp, Headers, NakCode, Packet, PacketFlags, PlacementOp, Position, Sink, WqeSn};

use super::shared::ConnShared;
use crate::PdId;
use crate::core::Core;
use crate::dma::Segment;
use crate::mr::Access;
use crate::packet::TransmitKind;
use crate::verbs::Verbs;
use crate::verbs::head::Head;

/// What the peer wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FetchRequest {
    /// A stretch of memory.
    Read {
        /// Its first address.
        va: u64,
        /// By what right.
        rkey: u32,
        /// Its bytes.
        length: u32,
    },
    /// Eight bytes, changed.
    Atomic {
        /// Their address.
        va: u64,
        /// By what right.
        rkey: u32,
        /// The change.
        op: AtomicOp,
    },
    /// One of annex A19's.
    Placement {
        /// First address.
        va: u64,
        /// By what right.
        rkey: u32,
        /// What to do.
        op: PlacementOp,
    },
}

/// A read or atomic in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(super) request: FetchRequest,
    /// Number of the request packet.
    pub(super) seq: Seq,
    /// Its `read_WQE_SN`, where it has one.
    pub(super) sn: u32,
    /// The latest timestamp that it came with (FaSR).
    pub(crate) stamp: u32,
    /// Number of the first response packet, once its turn has come.
    pub(super) first: Seq,
    /// Response packets.
    pub(super) packets: u32,
    /// What an atomic found.
    pub(super) original: u64,
    /// Asked for before (shared space only).
    pub(super) again: bool,
    /// The protection domain by whose leave it is served.
    pub(super) pd: PdId,
}

impl Fetch {
    pub(super) fn new(request: FetchRequest, seq: Seq, mtu: u32, pd: PdId) -> Self {
        let packets = match request {
            FetchRequest::Read { length, .. } => length.div_ceil(mtu).max(1),
            FetchRequest::Atomic { .. } | FetchRequest::Placement { .. } => 1,
        };
        Self { request, seq, sn: 0, stamp: 0, first: Seq::UNSET, packets, original: 0, again: false, pd }
    }

    pub(super) fn end(&self) -> Seq {
        self.first + u64::from(self.packets)
    }

    /// Makes response packet `index`, perhaps once more (`again`), or the refusal that stands for it when its memory is
    /// gone ([`gone`]). Of requests, `in_flight` are under way.
    pub(super) fn respond_or_refuse(
        &self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (index, again): (u32, bool),
    ) {
        if let Err(code) = self.respond(shared, verbs, core, in_flight, (index, again)) {
            let headers = self.refusal(&verbs.recv, &verbs.head, index, code);
            core.segments.clear();
            self.send(shared, verbs, core, in_flight, (index, again), (headers, 0));
        }
    }

    /// Makes response packet `index`, perhaps once more.
    ///
    /// # Errors
    /// The code of a refusal when its memory, or the right to read it, has been taken away meanwhile.
    pub(super) fn respond(
        &self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (index, again): (u32, bool),
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
        self.send(shared, verbs, core, in_flight, (index, again), (headers, payload_len));
        Ok(())
    }

    /// Returns the place of packet `index` in the answer, where that is said.
    #[inline(always)]
    fn sink(&self, head: &Head, index: u32) -> Option<Sink> {
        let offset = u64::from(index) * u64::from(head.mtu());
        head.transport.scheduled.then(|| Sink { read_sn: WqeSn::new(self.sn), offset })
    }

    /// Hands out packet `index`, perhaps once more.
    #[inline(always)]
    fn send(
        &self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
        (index, again): (u32, bool),
        (headers, payload_len): (Headers, u32),
    ) {
        let psn = (self.first + u64::from(index)).wire();
        let (dest_qpn, flags) = (verbs.head.dest_qpn, PacketFlags::default());
        core.out.packet = Packet { dest_qpn, psn, flags, payload_len, headers };
        core.out.kind = if again { TransmitKind::ResponseAgain } else { TransmitKind::Response };
        shared.send_data(verbs, core, in_flight, again);
    }
}

/// Says in a read or atomic request what its answer, a packet of the responder's own, will need: the packet that this
/// side `expects` next, and when the request left (FaSR).
#[cold]
pub(super) fn sign_request(headers: &mut Headers, expects: Seq, now: Time) {
    let next: Psn = expects.wire();
    match headers {
        Headers::ReadRequest { asked, .. } => *asked = Some(Asked { expects: next, stamp: stamp(now) }),
        Headers::AtomicRequest { expects, .. } | Headers::PlacementRequest { expects, .. } => *expects = next.into(),
        _ => {}
    }
}

/// Returns a timestamp in units of 2^20 ps, about a microsecond; it wraps after 75 minutes.
fn stamp(now: Time) -> u32 {
    (now.as_ps() >> 20) as u32
}
