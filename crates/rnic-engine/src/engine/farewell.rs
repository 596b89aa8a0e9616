//! The last word of a queue pair that is about to end.

use rnic_wire::Qpn;

use super::Engine;

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
        qps.find_mut(qpn).is_some_and(|qp| qp.repeat_acks(core))
    }
}
