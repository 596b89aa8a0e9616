//! Responses whose memory is gone.
//!
//! The owner of a region may deregister it, or a peer may invalidate its key, as soon as the Reads of it are complete.
//! The side that sends their responses does not know by then that they are: the acknowledgement of a response may be
//! lost, late, or overtaken by the Send with which the requester's program tells the owner. (In a shared space there is
//! none at all, and a copy of the request may come late.) When such a response is to leave once more, its memory is
//! not there, and nothing that this side knows tells a Read that is over from one that has lost its memory too soon. A
//! NACK is no proof either, because it may be older than the packet that it asks for.
//!
//! So this side does not decide. It says in the packet's place, under the packet's number, that the memory is gone, and
//! the requester, which knows what it has, decides:
//!
//! * *It has that packet.* Then this is a duplicate, which is acknowledged like any other, and nobody fails.
//! * *It misses the packet, and its turn has come.* Then the Read is not complete, so the owner has taken the memory
//!   away too soon: the Read ends with a remote access error, whether its first packet or its last is missing, and the
//!   responder learns that it was needed and fails too (InfiniBand Architecture volume 1, section 9.9.3).
//! * *It misses packets before it.* Then it is dropped, and comes again when those are there.
//!
//! Memory is looked up by its key whenever a packet leaves, so what has been registered in its place since, under
//! another key, never becomes part of an old Read. At the requester a packet of a Read is placed once: what comes
//! again is a duplicate, or belongs to nothing that is posted, so the program's buffer is its own after the
//! completion. An atomic's result is remembered with its request, and needs no memory.
//!
//! | space | the refusal | the answer to it |
//! |---|---|---|
//! | of its own (IRN) | a Read response without data whose AETH is a NAK | a NAK of responses |
//! | scheduled (FaSR) | the same | a NAK, as of any request that cannot be taken |
//! | shared (RoCE) | a NAK with the response's number | none |
//!
//! In the first two the refusal is a packet of the window: it is sent again until it is acknowledged or answered. In a
//! shared space the requester asks again. There a response that has never left fails the responder at once, like any
//! request that is refused; one that is asked for again does not, for nobody says what became of the refusal.

use rnic_base::{Psn, Seq, Serial, Time};
use rnic_wire::{Aeth, Headers, NakCode, Packet, Position, Syndrome};

use super::{Fetch, FetchServer};
use crate::completion::WcStatus;
use crate::core::{AckKind, Core, write_ack};
use crate::error::{DropReason, RxOutcome};
use crate::qp::Qp;

/// The code with which a packet says that it can bring no data, if it does.
#[inline]
pub(in crate::qp) fn refusal_in(packet: &Packet) -> Option<NakCode> {
    match packet.headers {
        Headers::ReadResponse { aeth: Some(Aeth { syndrome: Syndrome::Nak(code), .. }), .. } => Some(code),
        _ => None,
    }
}

/// How a Read ends whose turn has come with `packet`, which is not the data that was asked for.
#[cold]
pub(in crate::qp) fn status_of(packet: &Packet) -> WcStatus {
    refusal_in(packet).map_or(WcStatus::BadResponse, WcStatus::refused)
}

impl Qp {
    /// Makes the refusal that stands for packet `index` of `fetch`, where responses are acknowledged.
    #[cold]
    pub(super) fn build_refusal(
        &mut self,
        core: &mut Core,
        now: Time,
        fetch: &Fetch,
        index: u32,
        again: bool,
        code: NakCode,
    ) {
        let syndrome = Syndrome::Nak(code);
        let aeth = Some(Aeth { syndrome, msn: Serial::new(self.responder.msn) });
        let headers = Headers::ReadResponse { position: Position::Only, aeth, sink: self.sink_of(fetch, index) };
        core.segments.clear();
        self.send_response(core, now, fetch, (index, again), (headers, 0));
    }

    /// The response `psn` in `core.out`, just made, has no data after all: makes it the refusal that stands for it,
    /// where there is one. Whether there is.
    #[cold]
    pub(in crate::qp) fn refuse_made_response(&mut self, core: &mut Core, psn: Psn, code: NakCode) -> bool {
        core.segments.clear();
        if let Some(FetchServer::Shared(server)) = self.responder.fetches.as_deref() {
            let (seq, again) = (psn.extend(self.responder.window.expected), server.last_again());
            return self.refuse_shared_response(core, seq, again, code);
        }
        let aeth = Aeth { syndrome: Syndrome::Nak(code), msn: Serial::new(self.responder.msn) };
        let packet = &mut core.out.packet;
        if let Headers::ReadResponse { sink, .. } = packet.headers {
            packet.headers = Headers::ReadResponse { position: Position::Only, aeth: Some(aeth), sink };
        }
        packet.payload_len = 0;
        true
    }

    /// Refuses response `seq` of a shared space; answers whether a packet was made. One that was asked for again may be
    /// here already, and then the NAK is older than anything its requester waits for. A new one is not: its number is
    /// expected once more, and the request behind it is refused.
    #[cold]
    pub(super) fn refuse_shared_response(&mut self, core: &mut Core, seq: Seq, again: bool, code: NakCode) -> bool {
        let Some(FetchServer::Shared(server)) = self.responder.fetches.as_deref_mut() else { return false };
        if again {
            server.drop_rest(seq);
            write_ack(&mut core.out.packet, seq, self.responder.msn, AckKind::Refused(code), false);
            self.send_ack(core);
            return true;
        }
        server.clear();
        self.responder.window.expect(seq);
        self.refuse(core, code);
        false
    }

    /// A response for a queue pair that has failed. When it failed because responses were refused, their sender must
    /// still learn that it needed them.
    #[cold]
    pub(in crate::qp) fn receive_late_response(&mut self, core: &mut Core) -> RxOutcome {
        if self.transport.scheduled {
            return self.receive_late(core);
        }
        if let Some(code) = self.responses.as_ref().and_then(|responses| responses.refused) {
            self.acknowledge_responses(core, AckKind::Refused(code));
        }
        RxOutcome::Dropped(core.drop_packet(DropReason::State))
    }
}
