//! The peer's reads and atomics, and our responses.
//!
//! Three regimes. In split spaces (IRN section 5.2) responses have numbers, acknowledgements, a timer and a cap of
//! their own: the data's source recovers it ([`split`]). In a shared space (RoCE) a response bears the number its
//! request reserved, nobody acknowledges it, and the requester asks again for what it misses ([`shared`]).
//! Scheduled (FaSR section IV-D), a response is a packet of this queue pair's own requester, like a Write
//! ([`scheduled`]). Memory that is gone when a response is to leave is a matter of its own ([`gone`]).

mod buffer;
pub(in crate::qp) mod gone;
pub(crate) mod scheduled;
pub(crate) mod shared;
pub(crate) mod split;

use rnic_base::{Seq, Serial, Time};
use rnic_wire::{Aeth, AtomicOp, Headers, NakCode, Packet, PacketFlags, PlacementOp, Position, Reth, Sink, WqeSn};

use crate::PdId;
use crate::core::Core;
use crate::dma::{self, Dma, Segment};
use crate::engine::TransmitKind;
use crate::mr::Access;
use crate::qp::Qp;
use scheduled::ScheduledServer;
use shared::SharedServer;
use split::SplitServer;

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
    request: FetchRequest,
    /// Number of the request packet.
    seq: Seq,
    /// Its `read_WQE_SN`, where it has one.
    sn: u32,
    /// The latest timestamp that it came with (FaSR).
    pub(crate) stamp: u32,
    /// Number of the first response packet, once its turn has come.
    first: Seq,
    /// Response packets.
    packets: u32,
    /// What an atomic found.
    original: u64,
    /// Asked for before (shared space only).
    again: bool,
    /// The protection domain by whose leave it is served.
    pd: PdId,
}

impl Fetch {
    fn new(request: FetchRequest, seq: Seq, mtu: u32, pd: PdId) -> Self {
        let packets = match request {
            FetchRequest::Read { length, .. } => length.div_ceil(mtu).max(1),
            FetchRequest::Atomic { .. } | FetchRequest::Placement { .. } => 1,
        };
        Self { request, seq, sn: 0, stamp: 0, first: Seq::UNSET, packets, original: 0, again: false, pd }
    }

    fn end(&self) -> Seq {
        self.first + u64::from(self.packets)
    }
}

/// The serving side of reads and atomics, by regime.
#[derive(Debug)]
pub(crate) enum FetchServer {
    /// Responses have a sequence space of their own.
    Split(SplitServer),
    /// Responses use their request's numbers.
    Shared(SharedServer),
    /// Responses use numbers of our own requests.
    Scheduled(ScheduledServer),
}

impl FetchServer {
    /// Whether a response waits to be sent, gates aside.
    pub(crate) fn has_work(&self) -> bool {
        match self {
            Self::Split(server) => server.has_work(),
            Self::Shared(server) => server.has_work(),
            // They wait at the requester.
            Self::Scheduled(_) => false,
        }
    }

    /// Whether responses must leave before any acknowledgement.
    pub(crate) fn goes_first(&self) -> bool {
        matches!(self, Self::Shared(server) if server.has_work())
    }

    /// Whether the peer may still be waiting for a response.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Split(server) => server.is_busy(),
            Self::Shared(server) => server.has_work(),
            Self::Scheduled(server) => server.buffer.is_busy(),
        }
    }
}

impl Qp {
    fn fetches(&mut self) -> &mut FetchServer {
        let Self { responder, transport, .. } = self;
        let (limit, start) = (u32::from(responder.fetches_max), responder.start);
        responder.fetches.get_or_insert_with(|| {
            Box::new(if transport.scheduled {
                FetchServer::Scheduled(ScheduledServer::new(limit))
            } else if transport.split {
                FetchServer::Split(SplitServer::new(limit, start, transport))
            } else {
                FetchServer::Shared(SharedServer::new(limit))
            })
        })
    }

    /// Takes a checked request in; it begins when its turn has come.
    pub(crate) fn admit_fetch(
        &mut self,
        core: &mut Core,
        seq: Seq,
        request: FetchRequest,
        read_sn: Option<u32>,
        stamp: u32,
    ) -> Result<(), NakCode> {
        let fetch = Fetch { stamp, ..Fetch::new(request, seq, self.mtu(), self.pd) };
        let in_order = seq == self.responder.window.expected;
        let turn = self.responder.next_read_sn;
        match self.fetches() {
            FetchServer::Shared(server) => server.admit(fetch),
            FetchServer::Split(_) | FetchServer::Scheduled(_) => {
                self.admit_named_fetch(core, fetch, read_sn, in_order, turn)
            }
        }
    }

    /// Begins the fetch that `seq` asked for; answers how many numbers of a shared space it takes.
    pub(crate) fn begin_fetch<D: Dma>(&mut self, core: &mut Core, seq: Seq, dma: &mut D) -> Result<u32, NakCode> {
        let (turn, number) = (self.responder.next_read_sn, self.number);
        let fetch = match self.fetches() {
            FetchServer::Shared(server) => server.newest(seq),
            FetchServer::Split(server) => server.buffer.at(turn),
            FetchServer::Scheduled(server) => server.buffer.at(turn),
        };
        let fetch = fetch.filter(|fetch| fetch.seq == seq).ok_or(NakCode::InvalidRequest)?;
        if let FetchRequest::Atomic { va, rkey, op } = fetch.request {
            // The key may have been taken back since the request came in early.
            let resolved = core.mrs.resolve_remote((fetch.pd, number), rkey, va, 8, Access::REMOTE_ATOMIC);
            let Some(original) = resolved.ok().and_then(|local| dma::execute(dma, op, local).ok()) else {
                if let FetchServer::Shared(server) = self.fetches() {
                    server.withdraw_newest();
                }
                return Err(NakCode::RemoteAccessError);
            };
            fetch.original = original;
        }
        let (packets, request) = (fetch.packets, fetch.request);
        if let FetchRequest::Placement { va, rkey, op } = request {
            // As above.
            let done = self.resolve_placement(core, va, rkey, op).and_then(|local| match op {
                PlacementOp::AtomicWrite { value } => {
                    dma.store(local, u64::from_ne_bytes(value)).map_err(|_| NakCode::RemoteAccessError)
                }
                PlacementOp::Flush { .. } => Ok(()),
            });
            if let Err(code) = done {
                if let FetchServer::Shared(server) = self.fetches() {
                    server.withdraw_newest();
                }
                return Err(code);
            }
        }
        self.responder.msn = self.responder.msn.wrapping_add(1);
        self.responder.message_start = seq + 1;
        self.responder.next_read_sn = turn.wrapping_add(1);
        match self.fetches() {
            FetchServer::Shared(server) => server.begin(seq),
            FetchServer::Split(server) => server.begin(turn),
            FetchServer::Scheduled(_) => {
                self.schedule_answer(core, turn);
                return Ok(packets);
            }
        }
        self.wake_responder(core);
        Ok(packets)
    }

    /// Whether the fetch whose turn it is came in with packet `seq`.
    pub(crate) fn fetch_waits_at(&mut self, seq: Seq) -> bool {
        let turn = self.responder.next_read_sn;
        match self.responder.fetches.as_deref_mut() {
            Some(FetchServer::Split(server)) => server.buffer.at(turn).is_some_and(|fetch| fetch.seq == seq),
            Some(FetchServer::Scheduled(server)) => server.buffer.at(turn).is_some_and(|fetch| fetch.seq == seq),
            _ => false,
        }
    }

    /// A read (`reth`) or atomic that was served before is asked for again (shared space only).
    pub(crate) fn fetch_again(&mut self, core: &mut Core, seq: Seq, reth: Option<Reth>) {
        let (mtu, pd) = (self.mtu(), self.pd);
        let expected = self.responder.window.expected;
        if self.responder.fetches_max == 0 {
            return;
        }
        if let FetchServer::Shared(server) = self.fetches() {
            let found = match reth {
                Some(reth) => {
                    let request = FetchRequest::Read { va: reth.va, rkey: reth.rkey, length: reth.dma_len };
                    Some(Fetch { first: seq, again: true, ..Fetch::new(request, seq, mtu, pd) })
                }
                None => server.answered(seq),
            };
            // Nobody can ask again for what nobody has asked for: an answer ends where the next request begins.
            if let Some(fetch) = found.filter(|fetch| fetch.end() <= expected) {
                server.repeat(fetch);
                self.wake_responder(core);
            }
        }
    }

    /// Makes the next response packet, in `core.out`, if one may leave now.
    pub(crate) fn next_response(&mut self, core: &mut Core, now: Time) -> bool {
        match self.responder.fetches.as_deref_mut().filter(|_| self.state.receives()) {
            Some(FetchServer::Shared(_)) => self.next_shared_response(core, now),
            Some(FetchServer::Split(_)) => self.next_split_response(core, now),
            Some(FetchServer::Scheduled(_)) | None => false,
        }
    }

    /// Makes response packet `index` of `fetch`.
    ///
    /// # Errors
    /// The code of a refusal when its memory, or the right to read it, has been taken away meanwhile ([`gone`]).
    fn build_response(
        &mut self,
        core: &mut Core,
        now: Time,
        fetch: &Fetch,
        index: u32,
        again: bool,
    ) -> Result<(), NakCode> {
        let aeth = Aeth { syndrome: self.ack_syndrome(), msn: Serial::new(self.responder.msn) };
        let sink = self.sink_of(fetch, index);
        core.segments.clear();
        let (headers, payload_len) = match fetch.request {
            FetchRequest::Atomic { .. } => (Headers::AtomicResponse { aeth, original: fetch.original, sink }, 0),
            FetchRequest::Placement { .. } => {
                (Headers::ReadResponse { position: Position::Only, aeth: Some(aeth), sink }, 0)
            }
            FetchRequest::Read { va, rkey, length } => {
                let offset = index * self.mtu();
                let len = (length - offset).min(self.mtu());
                if len > 0 {
                    let va = va.wrapping_add(u64::from(offset));
                    let access = Access::REMOTE_READ;
                    let local = self.resolve_fetch_in(core, fetch.pd, va, rkey, len, access)?;
                    core.segments.push(Segment { local, len });
                }
                let position = Position::of(index, fetch.packets);
                let aeth = (position != Position::Middle).then_some(aeth);
                (Headers::ReadResponse { position, aeth, sink }, len)
            }
        };
        self.send_response(core, now, fetch, (index, again), (headers, payload_len));
        Ok(())
    }

    /// Returns the place of packet `index` of `fetch`, where that is said.
    #[inline(always)]
    fn sink_of(&self, fetch: &Fetch, index: u32) -> Option<Sink> {
        let offset = u64::from(index) * u64::from(self.mtu());
        self.transport.scheduled.then(|| Sink { read_sn: WqeSn::new(fetch.sn), offset })
    }

    /// Hands out packet `index` of `fetch`, perhaps once more.
    #[inline(always)]
    fn send_response(
        &mut self,
        core: &mut Core,
        now: Time,
        fetch: &Fetch,
        (index, again): (u32, bool),
        (headers, payload_len): (Headers, u32),
    ) {
        let psn = (fetch.first + u64::from(index)).wire();
        core.out.packet = Packet { dest_qpn: self.dest_qpn, psn, flags: PacketFlags::default(), payload_len, headers };
        core.out.kind = if again { TransmitKind::ResponseAgain } else { TransmitKind::Response };
        self.send_data(core, now, again);
    }
}
