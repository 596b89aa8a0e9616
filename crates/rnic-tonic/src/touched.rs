//! The events of a cycle, grouped by flow.

use crate::shape::FlowId;

/// Events of the flows that the modules process in one cycle: at most one entry for each module, so that a linear
/// search is fast.
#[derive(Clone, Debug)]
pub(crate) struct Touched<E>(Vec<(FlowId, E)>);

impl<E: Default> Touched<E> {
    /// Returns space for the events of `modules` modules.
    pub(crate) fn for_modules(modules: usize) -> Self {
        Self(Vec::with_capacity(modules))
    }

    /// Takes the capacity for reuse: returns an empty set of events with the same allocation.
    pub(crate) fn take(&mut self) -> Self {
        let mut taken = core::mem::take(&mut self.0);
        taken.clear();
        Self(taken)
    }

    /// Returns the events of `flow`, creating an entry if there is none.
    #[inline]
    pub(crate) fn of(&mut self, flow: FlowId) -> &mut E {
        let known = self.0.iter().position(|(other, _)| *other == flow);
        let index = known.unwrap_or_else(|| {
            self.0.push((flow, E::default()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    /// Returns the flows with their events.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(FlowId, E)> {
        self.0.iter()
    }
}
