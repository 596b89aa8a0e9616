//! Two sources combined.

use rnic_base::Time;

use super::{FlowSpec, Source};

/// The flows of both sources, in order of their start; of two that start at the same time, the first source's comes
/// first.
#[derive(Debug)]
pub(super) struct Merged {
    sources: [Box<dyn Source>; 2],
}

impl Merged {
    pub(super) fn new(first: Box<dyn Source>, second: Box<dyn Source>) -> Self {
        Self { sources: [first, second] }
    }

    /// Returns the index of the source of the next flow.
    fn next(&self) -> usize {
        let [first, second] = &self.sources;
        match (first.next_start(), second.next_start()) {
            (Some(first), Some(second)) => usize::from(second < first),
            (None, Some(_)) => 1,
            _ => 0,
        }
    }
}

impl Source for Merged {
    fn next_start(&self) -> Option<Time> {
        self.sources[self.next()].next_start()
    }

    fn take(&mut self) -> FlowSpec {
        let next = self.next();
        self.sources[next].take()
    }
}
