//! Messages that wait to be sent. Their numbers and times are set when they are sent.

use std::collections::VecDeque;

use rnic_policy::PathLabel;
use rnic_wire::Qpn;
use rnic_wire::scr::{BackPressure, Cookie, Grant, ProbePath, Records};

use crate::NicId;

/// A message that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A probe answer.
    Answer(PendingAnswer),
    /// A probe of the path between the NICs, which announces our cookie.
    Greeting(NicId),
    /// The probe that is requested on a path of a queue pair, by the number of the path.
    Probe(Qpn, u8),
    /// A report of the load.
    Report(NicId),
    /// Grants.
    Grants(NicId, Records<Grant>),
    /// Notices of back-pressure.
    Pressure(NicId, Records<BackPressure>),
}

/// A probe answer that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAnswer {
    pub(super) peer: NicId,
    /// Label of the probe, so that the answer takes the same path back where paths are symmetric.
    pub(super) label: PathLabel,
    /// Queue pair of the peer, and of this NIC.
    pub(super) dest_qpn: Qpn,
    pub(super) source_qpn: Qpn,
    pub(super) path: ProbePath,
    /// Time in the probe.
    pub(super) echoed: u64,
    /// Time at which the probe arrived, in ps.
    pub(super) received: u64,
    /// The cookies of an announcement: the peer's and ours; `None` for an answer to an accepted message.
    pub(super) announcement: Option<(Cookie, Cookie)>,
}

/// All messages that wait, answers first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    answers: VecDeque<PendingAnswer>,
    others: VecDeque<Pending>,
}

/// Largest number of messages that wait, of answers and of others: four for each of the peers that a NIC may have.
const WAITING_MAX: usize = 1 << 14;

impl Outbox {
    /// Adds a message; returns false, and drops it, when too many wait.
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
