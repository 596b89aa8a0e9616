//! Flows that start when others have ended.
//!
//! The simulation reports the ends of flows between two of its windows of time, so a flow that waits for a trigger
//! starts at the end of the window: later than the trigger by at most the shortest delay of a link.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rnic_base::Time;

use super::{TriggerKind, Triggers};
use crate::workload::{FlowSpec, Source};

/// The activations of triggers so far.
#[derive(Clone, Debug)]
struct Activations {
    /// By trigger: the flows that wait for it, in the order of the file.
    waiting: Vec<VecDeque<u32>>,
    /// By trigger: the number of activations.
    counts: Vec<u32>,
}

impl Activations {
    fn new(triggers: &Triggers) -> Self {
        let mut waiting = vec![VecDeque::new(); triggers.kinds.len()];
        for (flow, links) in (0..).zip(&triggers.links) {
            if let Some(trigger) = links.waits_for {
                waiting[trigger as usize].push_back(flow);
            }
        }
        Self { waiting, counts: vec![0; triggers.kinds.len()] }
    }

    /// Activates a trigger; `start` gets the flows that start.
    fn activate(&mut self, triggers: &Triggers, trigger: u32, start: &mut impl FnMut(u32)) {
        let (waiting, count) = (&mut self.waiting[trigger as usize], &mut self.counts[trigger as usize]);
        *count = count.saturating_add(1);
        let starts = match triggers.kinds[trigger as usize] {
            TriggerKind::OneShot => waiting.len(),
            TriggerKind::MultiShot => 1.min(waiting.len()),
            TriggerKind::Barrier(needed) if *count == needed => waiting.len(),
            TriggerKind::Barrier(_) => 0,
        };
        waiting.drain(..starts).for_each(start);
    }
}

impl Triggers {
    /// Returns the first flow that does not start even when all flows that start also end.
    pub(super) fn first_without_start(&self) -> Option<usize> {
        let mut activations = Activations::new(self);
        let starts_itself = |flow: &u32| self.links[*flow as usize].waits_for.is_none();
        let mut started: Vec<u32> = (0..self.links.len() as u32).filter(starts_itself).collect();
        while let Some(flow) = started.pop() {
            let links = self.links[flow as usize];
            for trigger in [links.when_sent, links.when_received].into_iter().flatten() {
                activations.activate(self, trigger, &mut |flow| started.push(flow));
            }
        }
        activations.waiting.iter().flatten().min().map(|flow| *flow as usize)
    }
}

/// Flows of a file with triggers.
#[derive(Debug)]
pub(in crate::workload) struct Triggered {
    triggers: Triggers,
    activations: Activations,
    /// The flows, by their place in the file; taken when they start.
    flows: Vec<FlowSpec>,
    /// Start and place of the flows whose start is known.
    next: BinaryHeap<Reverse<(Time, u32)>>,
    /// By number of the flow in the run: its place in the file.
    places: Vec<u32>,
}

impl Triggered {
    /// Creates the source of `flows`, in the order of the file.
    pub(in crate::workload) fn new(triggers: &Triggers, flows: Vec<FlowSpec>) -> Self {
        let known = (0..).zip(flows.iter().zip(&triggers.links)).filter(|(_, (_, links))| links.waits_for.is_none());
        let next = known.map(|(place, (flow, _))| Reverse((flow.start, place))).collect();
        let activations = Activations::new(triggers);
        Self { triggers: triggers.clone(), activations, flows, next, places: Vec::new() }
    }
}

impl Source for Triggered {
    fn next_start(&self) -> Option<Time> {
        self.next.peek().map(|Reverse((start, _))| *start)
    }

    fn next_flow(&mut self) -> FlowSpec {
        let Reverse((start, place)) = self.next.pop().expect("a flow is left");
        self.places.push(place);
        FlowSpec { start, ..self.flows[place as usize].clone() }
    }

    fn ended(&mut self, flow: u32, is_at_receiver: bool, now: Time) {
        let Self { triggers, activations, next, places, .. } = self;
        let links = triggers.links[places[flow as usize] as usize];
        let trigger = if is_at_receiver { links.when_received } else { links.when_sent };
        if let Some(trigger) = trigger {
            activations.activate(triggers, trigger, &mut |place| next.push(Reverse((now, place))));
        }
    }
}
