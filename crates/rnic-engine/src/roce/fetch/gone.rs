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

use rnic_base::Serial;
use rnic_wire::{Aeth, Headers, NakCode, Position, Syndrome};

use super::Fetch;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;

impl Fetch {
    /// Returns the headers of the refusal that stands for packet `index`, where responses are acknowledged.
    #[cold]
    pub(super) fn refusal(&self, recv: &RecvHalf, head: &Head, index: u32, code: NakCode) -> Headers {
        let aeth = Some(Aeth { syndrome: Syndrome::Nak(code), msn: Serial::new(recv.msn) });
        Headers::ReadResponse { position: Position::Only, aeth, sink: self.sink(head, index) }
    }
}
