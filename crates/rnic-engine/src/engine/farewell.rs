//! The last word of a queue pair that is about to end.

use rnic_wire::Qpn;

use super::Engine;
use crate::core::{AckKind, Control, ControlPacket};
use crate::{QpState, Service};

impl Engine {
    /// Acknowledges once more all requests that `qpn` has executed and all responses that it has received, or, when it
    /// has failed because it refused a request, refuses that once more; answers whether there were any.
    ///
    /// A program may end a queue pair right after its last completion. If the network loses the acknowledgement that
    /// was on its way then, nobody is left who would answer the peer's retransmissions, and its last request fails
    /// although it has been executed. Whoever says the last word more than once makes that unlikely. To the peer, these
    /// are duplicates. Those of Falcon wait for company, so without this even the first might never leave. Of what was
    /// refused, whoever hears of the end first, for the refusal was lost, learns only that it was flushed.
    pub fn repeat_acks(&mut self, qpn: Qpn) -> bool {
        let Self { qps, core, .. } = self;
        let Some(qp) = qps.find_mut(qpn) else { return false };
        let talks = matches!(qp.state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrained);
        let has_refused = qp.state == QpState::Error && qp.responder.refused.is_some();
        if !(talks || has_refused) || qp.transport.service != Service::ReliableConnection {
            return false;
        }
        if qp.extra.falcon().is_some() {
            return qp.repeat_acks_falcon(core);
        }
        if has_refused {
            return qp.repeat_refusal(core);
        }
        let responder = &qp.responder;
        // In a shared space an acknowledgement must not overtake responses: they would count as lost.
        let owes_responses = responder.fetches.as_ref().is_some_and(|fetches| fetches.is_busy());
        let scheduled = qp.transport.scheduled;
        let has_taken = responder.msn > 0 || (scheduled && responder.window.expected > responder.start);
        let executed = (has_taken && !owes_responses).then_some(ControlPacket {
            slot: qp.slot,
            from: qp.number,
            expected: responder.window.expected,
            msn: responder.msn,
            says: Control::Ack { kind: AckKind::Ack, echo: false },
        });
        let responses = qp.responses.as_ref().filter(|responses| !scheduled && !responses.is_waiting());
        let received = responses.map(|responses| {
            let (expected, says) = (responses.window.expected, Control::ReadAck { kind: AckKind::Ack, echo: false });
            ControlPacket { slot: qp.slot, from: qp.number, expected, msn: 0, says }
        });
        let queued = [executed, received].into_iter().flatten().filter(|control| core.push_control(*control)).count();
        queued > 0
    }
}
