//! Interface from the transaction layer to verbs: its requests and notifications.

use rnic_base::{Psn, Time};
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};
use rnic_wire::falcon::rdma::{Operation, SinkTag};
use rnic_wire::falcon::{Rsn, Ulp};
use rnic_wire::{Aeth, Headers, Packet, PacketFlags, Position, Syndrome};

use super::header;
use super::request::{Requests, untag};
use super::serve::Serving;
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::{Dma, MemoryFault, Segment};
use crate::verbs::Verbs;

/// The upper layer of a connection, as passed to one call of the transaction layer.
pub(super) struct Upper<'a, D> {
    pub(super) verbs: &'a mut Verbs,
    pub(super) core: &'a mut Core,
    pub(super) requests: &'a mut Requests,
    pub(super) serving: &'a mut Serving,
    pub(super) dma: &'a mut D,
    /// The request to which the payload of the current packet belongs, if any.
    pub(super) current_rsn: Option<Rsn>,
}

/// Returns the handle under which the driver keeps the payload of the peer's request `rsn` for the queue pair in
/// `slot`.
pub(super) const fn handle(slot: u32, rsn: Rsn) -> u64 {
    (slot as u64) << 32 | rsn.value() as u64
}

impl<D: Dma> UpperLayer for Upper<'_, D> {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        if self.current_rsn == Some(request.rsn) {
            return self.serving.on_push(self.verbs, self.core, request, self.dma);
        }
        let handle = handle(self.verbs.head.slot, request.rsn);
        let mut payload = KeptPayload { dma: self.dma, handle };
        let reply = self.serving.on_push(self.verbs, self.core, request, &mut payload);
        // If the receiver was not ready, the peer retransmits the request with its payload.
        self.dma.release(handle);
        reply
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        self.serving.on_pull(self.verbs, self.core, request, self.dma);
        PullReply::Later
    }

    #[inline]
    fn headers(&self, tag: u64) -> Ulp {
        Ulp::Rdma(self.requests.header(self.verbs, tag))
    }

    fn complete(&mut self, _: Time, completion: &Completion) {
        self.requests.end_transaction(self.verbs, self.core, completion);
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        let (counter, index) = untag(tag);
        if !self.verbs.head.state.sends() || !self.verbs.send.is_pending(counter) {
            return;
        }
        if let Err(status) = self.place_data(counter, index, data) {
            self.requests.fail_entry(self.verbs, self.core, counter, status);
        }
    }

    fn not_ready(&mut self, _: Time, tag: u64) {
        self.requests.on_rnr_nack(self.verbs, self.core, tag);
    }

    fn skipped(&mut self, _: Time, rsn: Rsn) {
        self.serving.skip_request(self.verbs, self.core, rsn, self.dma);
    }
}

/// An upper layer without effect: transactions that end with their connection do not complete requests. The requests
/// of a failed queue pair have already been flushed, and those of a queue pair that is reset or destroyed are
/// discarded.
pub(super) struct NoUpperLayer;

impl UpperLayer for NoUpperLayer {
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

impl<D: Dma> Upper<'_, D> {
    /// Places the data of a Pull as specified by its send queue entry, regardless of the address in the headers.
    fn place_data(&mut self, counter: u32, index: u32, data: &PulledData) -> Result<(), WcStatus> {
        let Ulp::Rdma(header) = data.ulp else { return Err(WcStatus::BadResponse) };
        // A response carries the number (SN) of its request (RDMA over Falcon 8.2).
        if header.dest_qpn != self.verbs.head.number || header.sn != self.requests.packet_sn(counter, index) {
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
        self.verbs.send.place_response(&self.verbs.head, self.core, counter, index, &packet, self.dma)
    }
}

/// Returns the status of a Read whose response carries "completed in error": the reason replaces the address in the
/// response. A response that only returns the request's tag, as other implementations may send, carries no reason:
/// the status is then a remote access error.
fn refused_read(sink: SinkTag) -> WcStatus {
    match u8::try_from(sink.va) {
        Ok(code) if code > 0 && sink.lkey == 0 => WcStatus::refused(header::nak_of(code)),
        _ => WcStatus::RemoteAccess,
    }
}

/// Access to memory for payload that does not come from the current packet but was kept by the driver.
struct KeptPayload<'a, D> {
    dma: &'a mut D,
    handle: u64,
}

impl<D: Dma> Dma for KeptPayload<'_, D> {
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

/// Memory that is never accessed: used for calls in which no data is placed, such as the processing of timeouts.
pub(super) struct NoPayload;

impl Dma for NoPayload {
    fn place(&mut self, _: u32, _: Segment) -> Result<(), MemoryFault> {
        unreachable!("{NO_PAYLOAD_EXPECTED}");
    }

    fn store(&mut self, _: u64, _: u64) -> Result<(), MemoryFault> {
        unreachable!("{NO_PAYLOAD_EXPECTED}");
    }

    fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryFault> {
        unreachable!("{NO_PAYLOAD_EXPECTED}");
    }

    fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryFault> {
        unreachable!("{NO_PAYLOAD_EXPECTED}");
    }
}

const NO_PAYLOAD_EXPECTED: &str = "the upper layer gets requests and data only while a packet is processed";
