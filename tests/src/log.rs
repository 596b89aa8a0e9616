//! What happened last, for the report of a failure.

use std::collections::VecDeque;
use std::fmt;

use rnic_base::Time;
use rnic_engine::{AsyncEvent, Completion, WcStatus};

use crate::scenario::Op;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are there to be printed")]
pub(crate) enum Happened {
    /// A request was posted.
    Posted { end: usize, index: u64, op: Op, len: usize, planned_to_fail: bool },
    /// A receive was posted, to a queue pair of its own or to a shared queue.
    Receive { place: usize, wr_id: u64 },
    /// A completion of a request.
    Sent { end: usize, index: u64, status: WcStatus },
    /// A completion of a receive.
    Received { end: usize, completion: Completion },
    /// A notice.
    Event { host: usize, event: AsyncEvent },
    /// The program put a queue pair into the error state.
    GaveUp { end: usize },
    /// Both queue pairs of a connection are gone.
    Buried { link: usize },
    /// From here on the network is a good one.
    Calm,
}

/// The last things that happened.
#[derive(Debug, Default)]
pub(crate) struct Log(VecDeque<(Time, Happened)>);

impl Log {
    pub(crate) fn add(&mut self, now: Time, what: Happened) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, what));
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(at, what)| writeln!(f, "  {at:?} {what:?}"))
    }
}

/// Lines that are kept.
const KEPT: usize = 60;
