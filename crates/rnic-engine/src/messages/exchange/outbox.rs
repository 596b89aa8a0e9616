//! The queue of outgoing messages. Sequence numbers and times are set when a message is sent.

use std::collections::VecDeque;

use rnic_policy::PathLabel;
use rnic_wire::Qpn;
use rnic_wire::scr::{BackPressure, Cookie, Grant, ProbePath, Records};

use crate::NicId;

/// A message in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A probe answer.
    Answer(PendingAnswer),
    /// A probe of the path between the NICs, which announces this NIC's cookie.
    Greeting(NicId),
    /// The requested probe of a path of a queue pair, with the number of the path.
    Probe(Qpn, u8),
    /// A report of this NIC's load.
    Report(NicId),
    /// Rate grants.
    Grants(NicId, Records<Grant>),
    /// Notices of back-pressure.
    Pressure(NicId, Records<BackPressure>),
}

/// A probe answer in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAnswer {
    pub(super) peer: NicId,
    /// Flow label of the probe, with which the response is sent too: where paths are symmetric, it takes the same path
    /// in the other direction.
    pub(super) label: PathLabel,
    /// Queue pair of the peer, and of this NIC.
    pub(super) dest_qpn: Qpn,
    pub(super) source_qpn: Qpn,
    pub(super) path: ProbePath,
    /// Time in the probe.
    pub(super) echoed: u64,
    /// Time at which the probe arrived, in ps.
    pub(super) received: u64,
    /// The cookies of an announcement: the peer's and this NIC's; `None` for an answer to an accepted message.
    pub(super) announcement: Option<(Cookie, Cookie)>,
}

/// All queued messages; answers are sent first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    answers: VecDeque<PendingAnswer>,
    others: VecDeque<Pending>,
}

/// Maximum number of queued messages, of answers and of others: four for each of the maximum number of peers.
const WAITING_MAX: usize = 1 << 14;

impl Outbox {
    /// Queues a message; returns false, and drops it, if the queue is full.
    pub(super) fn push(&mut self, message: Pending) -> bool {
        let waiting = if let Pending::Answer(_) = message { self.answers.len() } else { self.others.len() };
        if waiting >= WAITING_MAX {
            return false;
        }
        match message {
            Pending::Answer(answer) => self.answers.push_back(answer),
            other => self.others.push_back(other),
        }
        true
    }

    /// Removes and returns the next message.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        self.answers.pop_front().map(Pending::Answer).or_else(|| self.others.pop_front())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.others.is_empty()
    }
}
