//! Notices that belong to no work request: verbs' asynchronous events, and completion notifications.

use rnic_wire::Qpn;

use crate::{CqId, SrqId};

/// A notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The first packet came in on a queue pair that is not yet ready to send.
    CommunicationEstablished(Qpn),
    /// The queue pair went to the error state because of a local failure.
    QpFatal(Qpn),
    /// The queue pair went to the error state because a peer sent a request that cannot be honoured.
    QpAccessError(Qpn),
    /// A malformed request put the queue pair into the error state.
    QpRequestError(Qpn),
    /// The queue pair is in the error state and takes no more receives from its shared receive queue.
    LastWqeReached(Qpn),
    /// The send queue drained has come to rest.
    SendQueueDrained(Qpn),
    /// More completions than the queue holds: it and its queue pairs are unusable.
    CqOverrun(CqId),
    /// A completion came in on a queue whose owner asked to be told.
    CqNotify(CqId),
    /// Fewer receives are posted than the limit.
    SrqLimitReached(SrqId),
}
