//! Events that do not belong to a work request: the asynchronous events of verbs, and completion notifications.

use rnic_wire::Qpn;

use crate::{CqId, SrqId};

/// An asynchronous event or completion notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The first packet was received on a queue pair that is not yet ready to send.
    CommunicationEstablished(Qpn),
    /// The queue pair entered the error state because of a local failure.
    QpFatal(Qpn),
    /// The queue pair entered the error state because a peer sent a request that it is not permitted to make.
    QpAccessError(Qpn),
    /// The queue pair entered the error state because of a malformed request.
    QpRequestError(Qpn),
    /// The queue pair is in the error state and consumes no more receives from its shared receive queue.
    LastWqeReached(Qpn),
    /// The send queue is drained: no more of its requests are in flight.
    SendQueueDrained(Qpn),
    /// More completions were generated than the queue can hold: the queue and its queue pairs are unusable.
    CqOverrun(CqId),
    /// A completion was added to a queue whose owner requested a notification.
    CqNotify(CqId),
    /// Fewer receives are posted to the shared receive queue than its limit.
    SrqLimitReached(SrqId),
}
