//! What the transaction layer asks of verbs, and tells them.

use rnic_base::{Psn, Time};
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};
use rnic_wire::falcon::rdma::{Operation, SinkTag};
use rnic_wire::falcon::{Rsn, Ulp};
use rnic_wire::{Aeth, Headers, Packet, PacketFlags, Position, Syndrome};

use super::request::untag;
use super::{Mapping, header};
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::{Dma, MemoryFault, Segment};
use crate::qp::Qp;

/// A queue pair, for the time of a call.
pub(super) struct Verbs<'a, D> {
    pub(super) qp: &'a mut Qp,
    pub(super) core: &'a mut Core,
    pub(super) mapping: &'a mut Mapping,
    pub(super) dma: &'a mut D,
    /// The request whose payload is the packet's at hand.
    pub(super) at_hand: Option<Rsn>,
}

/// The name of the payload of the peer's request `rsn` that is kept for the queue pair in `slot`.
pub(super) const fn handle(slot: u32, rsn: Rsn) -> u64 {
    (slot as u64) << 32 | rsn.value() as u64
}

impl<D: Dma> UpperLayer for Verbs<'_, D> {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        if self.at_hand == Some(request.rsn) {
            return self.qp.take_push(self.core, self.mapping, request, self.dma);
        }
        let handle = handle(self.qp.slot, request.rsn);
        let mut kept = Kept { dma: self.dma, handle };
        let reply = self.qp.take_push(self.core, self.mapping, request, &mut kept);
        // What is not ready comes again.
        self.dma.release(handle);
        reply
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        self.qp.take_pull(self.core, self.mapping, request, self.dma);
        PullReply::Later
    }

    #[inline]
    fn headers(&self, tag: u64) -> Ulp {
        Ulp::Rdma(self.qp.headers(self.mapping, tag))
    }

    fn complete(&mut self, _: Time, completion: &Completion) {
        self.qp.end_transaction(self.core, self.mapping, completion);
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        let (counter, index) = untag(tag);
        if !self.qp.state.sends() || !self.qp.owns(counter) {
            return;
        }
        if let Err(status) = self.take_data(counter, index, data) {
            self.qp.fail_entry(self.core, self.mapping, counter, status);
        }
    }

    fn not_ready(&mut self, _: Time, tag: u64) {
        self.qp.on_rnr_nack(self.core, self.mapping, tag);
    }

    fn skipped(&mut self, _: Time, rsn: Rsn) {
        self.qp.skip_request(self.core, self.mapping, rsn, self.dma);
    }
}

/// Nobody: what ends with its connection completes nothing. Who fails has flushed what was posted, and who is reset or
/// destroyed forgets it.
pub(super) struct Nobody;

impl UpperLayer for Nobody {
    fn push(&mut self, _: Time, _: &Request) -> PushReply {
        PushReply::InvalidCid
    }

    fn pull(&mut self, _: Time, _: &Request) -> PullReply {
        PullReply::Later
    }

    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, _: &Completion) {}
}

impl<D: Dma> Verbs<'_, D> {
    /// Puts the data of a Pull where its entry says, whatever its headers say about that.
    fn take_data(&mut self, counter: u32, index: u32, data: &PulledData) -> Result<(), WcStatus> {
        let Ulp::Rdma(header) = data.ulp else { return Err(WcStatus::BadResponse) };
        // A response has its request's number (RDMA over Falcon 8.2).
        if header.dest_qpn != self.qp.number || header.sn != self.qp.packet_sn(self.mapping, counter, index) {
            return Err(WcStatus::BadResponse);
        }
        if header.complete_in_error {
            return Err(match header.operation {
                Operation::AtomicResponse { original, .. } => {
                    WcStatus::refused(header::nak_of(u8::try_from(original).unwrap_or(0)))
                }
                Operation::ReadResponse { sink, .. } => refused_read(sink),
                _ => WcStatus::RemoteAccess,
            });
        }
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: rnic_base::Serial::new(0) };
        let headers = match header.operation {
            Operation::ReadResponse { .. } => {
                Headers::ReadResponse { position: Position::Only, aeth: None, sink: None }
            }
            Operation::AtomicResponse { original, .. } => Headers::AtomicResponse { aeth, original, sink: None },
            _ => return Err(WcStatus::BadResponse),
        };
        let flags = PacketFlags::default();
        let (dest_qpn, psn, payload_len) = (header.dest_qpn, Psn::new(0), data.payload_len);
        let packet = Packet { dest_qpn, psn, flags, payload_len, headers };
        self.qp.place_response(self.core, counter, index, &packet, self.dma)
    }
}

/// The status of a Read whose answer says "completed in error": why stands where the answer's address would be. One
/// that has only the request's own tag, as of another make, says nothing more: a remote access error.
fn refused_read(sink: SinkTag) -> WcStatus {
    match u8::try_from(sink.va) {
        Ok(code) if code > 0 && sink.lkey == 0 => WcStatus::refused(header::nak_of(code)),
        _ => WcStatus::RemoteAccess,
    }
}

/// Memory, when the payload is not the packet's at hand.
struct Kept<'a, D> {
    dma: &'a mut D,
    handle: u64,
}

impl<D: Dma> Dma for Kept<'_, D> {
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        self.dma.place_kept(self.handle, offset, target)
    }

    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault> {
        self.dma.store(local, value)
    }

    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.dma.compare_swap(local, compare, swap)
    }

    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault> {
        self.dma.fetch_add(local, add)
    }
}

/// No memory: where only time passes, nothing is placed.
pub(super) struct Untouched;

impl Dma for Untouched {
    fn place(&mut self, _: u32, _: Segment) -> Result<(), MemoryFault> {
        unreachable!("{NOTHING_TO_PLACE}");
    }

    fn store(&mut self, _: u64, _: u64) -> Result<(), MemoryFault> {
        unreachable!("{NOTHING_TO_PLACE}");
    }

    fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryFault> {
        unreachable!("{NOTHING_TO_PLACE}");
    }

    fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryFault> {
        unreachable!("{NOTHING_TO_PLACE}");
    }
}

const NOTHING_TO_PLACE: &str = "the peer's requests are handed over, and data comes, with packets alone";
