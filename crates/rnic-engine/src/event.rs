//! Events that belong to no work request: verbs' asynchronous events, and completion notifications.

use rnic_wire::Qpn;

use crate::{CqId, SrqId};

/// An asynchronous event or completion notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The first packet was received on a queue pair that is not yet ready to send.
    CommunicationEstablished(Qpn),
    /// The queue pair entered the error state because of a local failure.
    QpFatal(Qpn),
    /// The queue pair entered the error state because a peer sent a request that it has no right to.
    QpAccessError(Qpn),
    /// The queue pair entered the error state because of a malformed request.
    QpRequestError(Qpn),
    /// The queue pair is in the error state and consumes no more receives from its shared receive queue.
    LastWqeReached(Qpn),
    /// The send queue is drained: no more of its requests are in flight.
    SendQueueDrained(Qpn),
    /// More completions were generated than the queue holds: it and its queue pairs are unusable.
    CqOverrun(CqId),
    /// A completion was added to a queue whose owner requested a notification.
    CqNotify(CqId),
    /// Fewer receives are posted than the limit.
    SrqLimitReached(SrqId),
}
