//! State of connections brought near before their packets' turn.
//!
//! From the number of a queue pair to what a packet touches there are five dependent loads: see
//! [`crate::Engine::prefetch`].

use rnic_base::{Time, near_at, near_whole, near_whole_at};

use super::mapping::Mapping;
use super::{FalconEnd, Nic};
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
    /// Takes step `step`, of three, towards what a packet of this queue pair needs beyond the queue pair itself: where
    /// its connection is, the connection, and what that keeps apart.
    #[inline]
    pub(crate) fn prefetch(&self, step: u32, verbs: &Verbs, nic: &Nic) {
        if step == 0 {
            return verbs.send.queue.touch();
        }
        let Some(link) = self.link.as_deref() else { return };
        if step == 1 {
            return near_whole(link);
        }
        link.connection.touch_apart(nic.adaptives.get(link.adaptive).map(|(_, engine)| engine));
        if let Mapping::Rdma(rdma) = &link.mapping {
            near_at(&rdma.requests.progress, 0);
        }
    }
}
