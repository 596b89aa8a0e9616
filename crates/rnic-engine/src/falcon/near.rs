//! State of connections brought near before their packets' turn.
//!
//! A body with many connections, or many engines, finds what the next packet needs far away: in the next level of cache
//! with a connection an engine, in memory with many. From the number of a queue pair to what a packet touches there
//! are four steps through memory. A body that knows a little ahead what will come takes them one after the other
//! ([`Reach`]), and does other things in between. Nothing depends on it.

use rnic_base::{near, near_at};

use super::{FalconQp, Link, Nic};
use crate::engine::Reach;
use crate::qp::Qp;

impl Nic {
    /// Has what every packet needs brought near.
    #[inline]
    pub(crate) fn touch(&self) {
        near(&self.resources);
        near(self.resources.config());
        near(&self.adaptives);
        near(&self.ready);
        near(&self.out.packet);
        near(&self.out.label);
        near(&self.out.packet.body);
        near(&self.armed);
        near(&self.wheel);
    }

    /// The queue pair that sends after `index` others, if it is known.
    #[inline]
    pub(crate) fn sender(&self, index: u32) -> Option<u32> {
        self.ready.get(index).map(super::nic::slot_of)
    }
}

impl Qp {
    /// Has what a packet needs brought near, as far as `reach`.
    #[inline]
    pub(crate) fn touch_falcon(&self, nic: &Nic, reach: Reach) {
        match reach {
            Reach::QueuePair => {
                near(&self.number);
                near(&self.extra);
                near(&self.state);
                near(&self.requester.queue);
                near(&self.requester.sent_of_next);
                near(&self.responder.window);
                near(&self.responder.queue);
                near(&self.responder.message);
                near(&self.stats);
            }
            Reach::Connection => {
                if let Some(falcon) = self.extra.falcon() {
                    near(falcon);
                    near(&falcon.link);
                }
                self.requester.queue.touch();
            }
            Reach::Link => {
                if let Some(link) = self.extra.falcon().and_then(FalconQp::link) {
                    link.touch();
                }
            }
            Reach::Apart => {
                if let Some(link) = self.extra.falcon().and_then(FalconQp::link) {
                    link.connection.touch_apart(nic.adaptives.get(link.adaptive).map(|(_, engine)| engine));
                    near_at(&link.mapping.requests.progress, 0);
                }
            }
        }
    }
}

impl FalconQp {
    #[inline]
    fn link(&self) -> Option<&Link> {
        self.link.as_deref()
    }
}

impl Link {
    #[inline]
    fn touch(&self) {
        self.connection.touch();
        near(&self.adaptive);
        near(&self.mapping.requests);
        self.mapping.serving.touch();
    }
}
