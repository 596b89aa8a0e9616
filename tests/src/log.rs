//! A log of the last events, for the report of a failure.

use std::collections::VecDeque;
use std::fmt;

use rnic_base::Time;
use rnic_engine::{AsyncEvent, Completion, WcStatus};

use crate::scenario::Op;

/// An event of a run.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are there to be printed")]
pub(crate) enum Happened {
    /// A request was posted.
    Posted { end: usize, index: u64, op: Op, len: usize, planned_to_fail: bool },
    /// A receive was posted, to a queue pair or to a shared receive queue.
    Receive { place: usize, wr_id: u64 },
    /// A request completed.
    Sent { end: usize, index: u64, status: WcStatus },
    /// A receive completed.
    Received { end: usize, completion: Completion },
    /// An asynchronous event was reported.
    Event { host: usize, event: AsyncEvent },
    /// The program put a queue pair into the error state.
    QpFailedByProgram { end: usize },
    /// Both queue pairs of a connection have failed and were checked; the connection is closed.
    Closed { link: usize },
    /// Network faults are disabled from here on.
    FaultsDisabled,
}

/// The last events, with their times.
#[derive(Debug, Default)]
pub(crate) struct Log(VecDeque<(Time, Happened)>);

impl Log {
    pub(crate) fn add(&mut self, now: Time, event: Happened) {
        if self.0.len() == EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, event));
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(at, event)| writeln!(f, "  {at:?} {event:?}"))
    }
}

/// Maximum number of events kept.
const EVENTS_MAX: usize = 60;
