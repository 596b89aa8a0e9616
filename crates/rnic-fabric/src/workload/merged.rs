//! Two sources combined.

use rnic_base::Time;

use super::{FlowSpec, Source};

/// The flows of both sources, in order of their start; when two start at the same time, that of the first source is
/// returned first.
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

    fn next_flow(&mut self) -> FlowSpec {
        let next = self.next();
        self.sources[next].next_flow()
    }
}
