//! Prefetches the state of connections before their packets are processed.
//!
//! The data that a packet needs is five dependent loads away from the number of its queue pair: see
//! [`crate::Engine::prefetch`].

use rnic_base::{Time, prefetch_at, prefetch_whole, prefetch_whole_at};

use super::mapping::Mapping;
use super::{FalconEnd, FalconNic};
use crate::verbs::Verbs;

impl FalconNic {
    /// Prefetches the state that every packet needs.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_whole(self);
    }

    /// Prefetches state to which [`FalconNic`] has pointers: the timing wheel, and the first adaptive engine, which
    /// is usually the only one.
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        prefetch_whole_at(&self.adaptives, 0);
        if let Some(wheel) = &self.wheel {
            prefetch_whole(&**wheel);
        }
    }

    /// Prefetches the state to which the timing wheel and the adaptive engine have pointers.
    #[inline]
    pub(crate) fn prefetch_rest(&self) {
        if let Some((_, engine)) = self.adaptives.first() {
            engine.prefetch();
        }
        if let Some(wheel) = &self.wheel {
            wheel.prefetch();
        }
    }

    /// Returns the first few queue pairs whose pacing time is before `horizon`.
    #[inline]
    pub(crate) fn first_due_before(&self, horizon: Time) -> impl Iterator<Item = u32> {
        self.wheel.iter().flat_map(move |wheel| wheel.first_due_before(horizon))
    }
}

impl FalconEnd {
    /// Executes step `step`, of three, of prefetching the state that a packet of this queue pair needs besides the
    /// queue pair itself: the send queue, the connection, and the state to which the connection has pointers.
    #[inline]
    pub(crate) fn prefetch(&self, step: u32, verbs: &Verbs, nic: &FalconNic) {
        if step == 0 {
            return verbs.send.queue.prefetch();
        }
        let Some(link) = self.link.as_deref() else { return };
        if step == 1 {
            return prefetch_whole(link);
        }
        link.connection.prefetch_indirect(nic.adaptives.get(link.adaptive).map(|(_, engine)| engine));
        if let Mapping::Rdma(rdma) = &link.mapping {
            prefetch_at(&rdma.requests.progress, 0);
        }
    }
}
