//! The smallest possible upper layer above a connection's transactions.

use rnic_base::Time;
use rnic_falcon::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};
use rnic_wire::falcon::Ulp;

/// An upper layer that gets no requests.
pub struct Idle;

impl UpperLayer for Idle {
    fn push(&mut self, _: Time, _: &Request) -> PushReply {
        PushReply::Done
    }

    fn pull(&mut self, _: Time, _: &Request) -> PullReply {
        PullReply::Later
    }

    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, _: &Completion) {}
}
