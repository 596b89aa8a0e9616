//! State of connections brought near before their packets' turn.
//!
//! A body with many connections, or many engines, finds what the next packet needs far away: in the next level of cache
//! with a connection an engine, in memory with many. From the number of a queue pair to what a packet touches there
//! are five steps through memory. A body that knows a little ahead what will come takes them one after the other
//! ([`Reach`]), and does other things in between. Nothing depends on it.

use rnic_base::{Time, near_at, near_whole, near_whole_at};

use super::{FalconEnd, Nic};
use crate::packet::Reach;
use crate::verbs::Verbs;

impl Nic {
    /// Has what every packet needs brought near.
    #[inline]
    pub(crate) fn touch(&self) {
        near_whole(self);
    }

    /// The same for what lies apart from that: the wheel, and where the first adaptive engine is, most often the only
    /// one.
    #[inline]
    pub(crate) fn touch_apart(&self) {
        near_whole_at(&self.adaptives, 0);
        if let Some(wheel) = &self.wheel {
            near_whole(&**wheel);
        }
    }

    /// And then what lies apart from those.
    #[inline]
    pub(crate) fn touch_rest(&self) {
        if let Some((_, engine)) = self.adaptives.first() {
            engine.touch();
        }
        if let Some(wheel) = &self.wheel {
            wheel.touch();
        }
    }

    /// Queue pairs whose time to send comes before `horizon`, the first few of them.
    #[inline]
    pub(crate) fn few_until(&self, horizon: Time) -> impl Iterator<Item = u32> {
        self.wheel.iter().flat_map(move |wheel| wheel.few_until(horizon))
    }
}

impl FalconEnd {
    /// Prefetches what a packet needs, as far as `reach`, beyond the queue pair itself.
    #[inline]
    pub(crate) fn prefetch(&self, verbs: &Verbs, nic: &Nic, reach: Reach) {
        match reach {
            Reach::QueuePair => {}
            Reach::Connection => verbs.send.queue.touch(),
            Reach::Link => {
                if let Some(link) = self.link.as_deref() {
                    near_whole(link);
                }
            }
            Reach::Apart => {
                if let Some(link) = self.link.as_deref() {
                    link.connection.touch_apart(nic.adaptives.get(link.adaptive).map(|(_, engine)| engine));
                    near_at(&link.requests.progress, 0);
                }
            }
        }
    }
}
