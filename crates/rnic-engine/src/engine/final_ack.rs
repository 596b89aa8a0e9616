//! Final acknowledgements of a queue pair that is about to be destroyed.

use rnic_wire::Qpn;

use super::{Engine, flows};

impl Engine {
    /// Retransmits the acknowledgements of all requests that `qpn` has executed and of all responses that it has
    /// received, or, if it has failed because it refused a request, the NAK; returns `true` if there were any.
    ///
    /// A program may destroy a queue pair right after its last completion. If the network loses the acknowledgement
    /// that was in flight then, no queue pair is left to respond to the peer's retransmissions, and the peer's last
    /// request fails although it has been executed. Sending the final acknowledgements more than once makes that
    /// unlikely; the peer treats the copies as duplicates. Falcon delays its acknowledgements to coalesce them, so
    /// without this call even the first might never be sent. If the NAK for a request is lost and the requester is
    /// informed of the end of the connection first, the completion reports only that the request was flushed.
    pub fn repeat_acks(&mut self, qpn: Qpn) -> bool {
        let Self { qps, core, .. } = self;
        let mut has_any = qps.find_mut(qpn).is_some_and(|qp| qp.repeat_acks(core));
        flows::for_each(self, qpn, |core, qp, _| has_any |= qp.repeat_acks(core));
        has_any
    }
}
