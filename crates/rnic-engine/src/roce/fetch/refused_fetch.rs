//! Responses whose memory is no longer valid.
//!
//! The owner of a region may deregister it, or a peer may invalidate its key, as soon as the Reads of it are
//! complete. The side that sends their responses may not know yet that they are complete: the acknowledgement of a
//! response may be lost, delayed, or overtaken by the Send with which the requester's program notifies the owner. (In
//! a shared space there is no such acknowledgement, and a duplicate of the request may arrive later.) When such a
//! response is to be retransmitted, its memory is not accessible, and the responder has no information to distinguish
//! a Read that is complete from one whose memory was removed too early. A NACK is no proof either, because it may be
//! older than the packet that it requests.
//!
//! Therefore the responder does not decide. In place of the packet, under the packet's number, it sends a report that
//! the memory is no longer valid, and the requester, which knows which packets it has, decides:
//!
//! * *The requester has that packet.* Then this is a duplicate, which is acknowledged like any other, and neither
//!   side fails.
//! * *The packet is missing, and is the next one in order.* Then the Read is not complete, so the owner has removed
//!   the memory too early: the Read fails with a remote access error, whether its first packet or its last is
//!   missing, and the responder learns that the memory was needed and fails too (InfiniBand Architecture volume 1,
//!   section 9.9.3).
//! * *Earlier packets are missing.* Then the report is dropped, and is retransmitted when those packets have arrived.
//!
//! Memory is looked up by its key whenever a packet is sent, so other memory registered later at the same address,
//! under another key, never becomes part of an old Read. At the requester a packet of a Read is placed once: a
//! retransmission is a duplicate, or matches no posted request, so the program owns its buffer after the completion.
//! An atomic's result is stored with its request and needs no memory.
//!
//! | sequence space of responses | refusal | reply to the refusal |
//! |---|---|---|
//! | separate (IRN) | a Read response without data whose AETH is a NAK | a NAK of responses |
//! | that of requests, scheduled (FaSR) | as for IRN | a NAK, as for any request that is not accepted |
//! | shared (RoCE) | a NAK with the response's number | none |
//!
//! In the first two the refusal is a packet of the window: it is retransmitted until it is acknowledged or refused. In
//! a shared space the requester repeats its request. There a response that has never been sent fails the responder
//! immediately, like any refused request; one that is requested again does not, because no message reports the result
//! of the refusal.

use rnic_base::Serial;
use rnic_wire::{Aeth, Headers, NakCode, Position, Syndrome};

use super::Fetch;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;

impl Fetch {
    /// Returns the headers of the refusal that replaces packet `index`, where responses are acknowledged.
    #[cold]
    pub(super) fn refusal(&self, recv: &RecvHalf, head: &Head, index: u32, code: NakCode) -> Headers {
        let aeth = Some(Aeth { syndrome: Syndrome::Nak(code), msn: Serial::new(recv.msn) });
        Headers::ReadResponse { position: Position::Only, aeth, sink: self.sink(head, index) }
    }
}
