//! Sets of flows that are eligible for service: the active set and the ready-to-transmit set (Tonic, section 3.1).
//!
//! A flow is in a set at most once ([`Turns`] keeps a bit per flow), so a set needs as many entries as there are flows.
//! Up to four modules insert in one cycle, and all are accepted in that cycle: four interleaved banks, in a circuit. A
//! queue that accepted one a cycle would not do: while every cycle reinserts the flow that it served, flows activated
//! by acknowledgements would wait for ever.
//!
//! A set's insertions are visible to the removal of the same cycle.

use std::collections::VecDeque;

use crate::shape::FlowId;

/// A service discipline: selects which of the inserted flows is served next.
pub trait ActiveSet {
    /// Inserts `flow`, which is not in the set.
    fn insert(&mut self, flow: FlowId);

    /// Removes the flow that is served next.
    fn take(&mut self) -> Option<FlowId>;

    /// Returns whether no flow is in the set.
    fn is_empty(&self) -> bool;
}

/// First in, first out: round robin among the flows that are reinserted (Tonic's discipline).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fifo {
    flows: VecDeque<FlowId>,
}

impl Fifo {
    /// Creates an empty set for `flows` flows.
    pub fn new(flows: u16) -> Self {
        Self { flows: VecDeque::with_capacity(usize::from(flows)) }
    }
}

impl ActiveSet for Fifo {
    fn insert(&mut self, flow: FlowId) {
        self.flows.push_back(flow);
    }

    fn take(&mut self) -> Option<FlowId> {
        self.flows.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

/// Strict priorities, and round robin within each priority: an example of a service discipline. A flow of a lower class
/// is served only while no flow of a higher class is in the set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Priorities {
    /// Class of each flow, 0 highest.
    class: Vec<u8>,
    queues: [Fifo; Self::CLASSES as usize],
}

impl Priorities {
    /// Number of priority classes.
    pub const CLASSES: u8 = 4;

    /// Creates an empty set; `class` holds the class of each flow, 0 highest, and larger values mean the lowest.
    pub fn new(class: Vec<u8>) -> Self {
        Self { class, queues: Default::default() }
    }
}

impl ActiveSet for Priorities {
    fn insert(&mut self, flow: FlowId) {
        let class = self.class.get(usize::from(flow)).map_or(Self::CLASSES - 1, |class| *class);
        self.queues[usize::from(class.min(Self::CLASSES - 1))].insert(flow);
    }

    fn take(&mut self) -> Option<FlowId> {
        self.queues.iter_mut().find_map(ActiveSet::take)
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(ActiveSet::is_empty)
    }
}

/// Service of one flow (a turn), in the two pipeline stages of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Flow that is served.
    pub flow: FlowId,
    /// True if the flow is alone in the set and is served a second time; after this turn it is never reinserted.
    pub is_extra: bool,
}

/// A set, the two stages that its flows pass (address to memory, process), and the bit of each flow.
///
/// The bit is set from a flow's insertion until its processing decides against reinsertion; in between, the flow is in
/// the set or in one of the stages. A set bit therefore means that the flow will be evaluated, so that a module which
/// makes a flow eligible inserts it only if its bit is clear.
///
/// A flow that is alone in the set would be served every second cycle, because its turn takes two stages. In the cycles
/// in between it gets an extra turn, so that one flow alone is served every cycle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turns<S> {
    set: S,
    has_turn: Vec<bool>,
    fetch: Option<Turn>,
    process: Option<Turn>,
}

impl<S: ActiveSet> Turns<S> {
    /// Creates the stages around an empty set for `flows` flows.
    pub fn new(set: S, flows: u16) -> Self {
        Self { set, has_turn: vec![false; usize::from(flows)], fetch: None, process: None }
    }

    /// Returns the flow that is served in this cycle.
    #[inline]
    pub fn current(&self) -> Option<Turn> {
        self.process
    }

    /// Returns whether the flow is in the set, or is served in a pipeline stage and may be reinserted.
    #[inline]
    pub fn has_turn(&self, flow: FlowId) -> bool {
        self.has_turn[usize::from(flow)]
    }

    /// Returns whether the flow is in the set or in a stage.
    pub fn knows(&self, flow: FlowId) -> bool {
        self.has_turn(flow) || [self.fetch, self.process].into_iter().flatten().any(|turn| turn.flow == flow)
    }

    /// Inserts a flow that has become eligible, unless it is already in the set or in a stage.
    #[inline]
    pub fn activate(&mut self, flow: FlowId) {
        if !core::mem::replace(&mut self.has_turn[usize::from(flow)], true) {
            self.set.insert(flow);
        }
    }

    /// Ends the service of this cycle's flow: it is reinserted into the set if `is_eligible`. A second turn of a flow
    /// that is alone ends without effect.
    #[inline]
    pub fn settle(&mut self, is_eligible: bool) {
        let Some(turn) = self.process.filter(|turn| !turn.is_extra) else { return };
        if is_eligible {
            self.set.insert(turn.flow);
        } else {
            self.has_turn[usize::from(turn.flow)] = false;
        }
    }

    /// Ends the cycle: turns move to the next stage. If `is_slot_free`, that is, no command uses the slot, the next
    /// flow is removed from the set.
    #[inline]
    pub fn advance(&mut self, is_slot_free: bool) {
        let last = self.fetch;
        self.process = last;
        self.fetch = if is_slot_free {
            let alone = last.filter(|turn| !turn.is_extra).map(|turn| Turn { is_extra: true, ..turn });
            self.set.take().map(|flow| Turn { flow, is_extra: false }).or(alone)
        } else {
            None
        };
    }

    /// Returns whether no flow is in the set or in a pipeline stage.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.fetch.is_none() && self.process.is_none() && self.set.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves always-eligible flows for `cycles` cycles; returns the flow served in each.
    fn serve<S: ActiveSet>(set: S, flows: u16, cycles: usize) -> Vec<Option<FlowId>> {
        let mut turns = Turns::new(set, flows);
        (0..flows).for_each(|flow| turns.activate(flow));
        let mut served = Vec::new();
        for _ in 0..cycles {
            served.push(turns.current().map(|turn| turn.flow));
            turns.settle(true);
            turns.advance(true);
        }
        served
    }

    #[test]
    fn t4_each_of_k_flows_is_served_every_k_cycles() {
        for flows in [1, 2, 3, 7, 1024] {
            let served = serve(Fifo::new(flows), flows, 5 * usize::from(flows) + 8);
            // The first turn needs two stages; a flow alone gets its extra turns one cycle later.
            let steady: Vec<_> = served.into_iter().skip(4).collect();
            assert!(steady.iter().all(Option::is_some), "{flows} flows: every cycle serves one");
            let k = usize::from(flows);
            assert!(steady.windows(k + 1).all(|turns| turns[0] == turns[k]), "{flows} flows: {steady:?}");
        }
    }

    #[test]
    fn t4_a_flow_is_in_the_set_once() {
        let mut turns = Turns::new(Fifo::new(2), 2);
        for _ in 0..5 {
            turns.activate(1);
        }
        turns.advance(true);
        turns.activate(1);
        turns.advance(true);
        assert_eq!(turns.current(), Some(Turn { flow: 1, is_extra: false }));
        turns.settle(false);
        turns.advance(true);
        assert_eq!(
            turns.current().map(|turn| turn.is_extra),
            Some(true),
            "the other activations were no further turns"
        );
        turns.advance(true);
        assert!(turns.is_idle() && !turns.has_turn(1));
    }

    #[test]
    fn a_higher_class_is_served_first_and_flows_of_a_class_in_turn() {
        let mut turns = Turns::new(Priorities::new(vec![1, 0, 1, 9]), 4);
        (0..4).for_each(|flow| turns.activate(flow));
        let mut served = Vec::new();
        for cycle in 0..14 {
            served.extend(turns.current().map(|turn| turn.flow));
            // Flow 1, of the highest class, is eligible for its first three turns only.
            let is_first_class = turns.current().is_some_and(|turn| turn.flow == 1);
            turns.settle(!is_first_class || cycle < 6);
            turns.advance(true);
        }
        assert_eq!(served, [1, 0, 1, 2, 1, 0, 2, 0, 2, 0, 2, 0]);
    }
}
