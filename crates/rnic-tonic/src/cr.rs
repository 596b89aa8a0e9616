//! The credit engine, which decides when the next packet (segment address) of a flow is sent (Tonic, section 3.3).
//!
//! Enqueue puts addresses into the ring of their flow, Transmit takes the oldest of the next ready flow. With a rate, a
//! flow that lacks credit waits in the timing wheel; with tokens, until its receiver grants more or a timeout does. Of
//! data delivery the engine knows addresses, commands and parameters.

pub mod merge;
pub mod rate;
pub mod wheel;

use self::merge::{Events, Verdict, merge, oldest, verdict};
use self::wheel::Wheel;
use crate::program::Scheme;
use crate::sets::{ActiveSet, Turns};
use crate::shape::{FlowId, SegmentId, Shape};
use crate::state::{Credit, Packed, Ring};
use crate::touched::Touched;
use crate::wires::{Address, Forward, Parameters};

/// Duration in cycles of the pipelined division that computes a waiting time.
const DIVIDE_CYCLES: usize = 5;

/// Number of cycles from the reinsertion of a flow until it is processed: a flow that would wait no longer stays in the
/// ready set.
const REINSERT_CYCLES: u64 = 2;

/// Maximum number of flows that the modules process in one cycle.
const MODULES: usize = 5;

/// A flow and the cycle until which it has to wait.
type Waiting = Option<(FlowId, u64)>;

/// Counters of the credit engine since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreditCounters {
    /// Number of addresses passed on to the link.
    pub transmitted: u64,
    /// Number of times that a flow had to wait because of its rate.
    pub waits: u64,
}

/// The credit engine: it passes segments on to the link as the flows' credit permits.
#[derive(Debug)]
pub(crate) struct CreditEngine<S> {
    shape: Shape,
    initial_rate: u32,
    rings: Vec<Ring>,
    credits: Vec<Credit>,
    ready: Turns<S>,
    wheel: Wheel,
    /// True for each flow that has to wait because of its rate. Its waiting time is being computed, or it is in the
    /// timing wheel.
    is_waiting: Vec<bool>,
    /// Flows in the pipeline stages of the two divisions, Transmit's and Enqueue's.
    dividing: [[Waiting; 2]; DIVIDE_CYCLES],
    /// Addresses and commands from data delivery, by pipeline stage: on the wires, reading memory, being processed.
    forward: [Option<(FlowId, Forward)>; 3],
    /// Parameters set for a packet and by a periodic run, in the same stages.
    parameters: [[Option<Parameters>; 2]; 3],
    output: Option<Address>,
    counters: CreditCounters,
    /// Events of a cycle; reused for its allocation.
    touched: Touched<Events>,
}

impl<S: ActiveSet> CreditEngine<S> {
    pub(crate) fn new(shape: Shape, initial_rate: u32, ready: S) -> Self {
        let flows = shape.flows();
        Self {
            initial_rate: if shape.scheme() == Scheme::Rate { initial_rate } else { 0 },
            rings: vec![Ring::default(); usize::from(flows)],
            credits: vec![Credit::default(); usize::from(flows)],
            ready: Turns::new(ready, flows),
            wheel: Wheel::new(flows),
            is_waiting: vec![false; usize::from(flows)],
            dividing: Default::default(),
            forward: [None; 3],
            parameters: Default::default(),
            output: None,
            counters: CreditCounters::default(),
            touched: Touched::for_modules(MODULES),
            shape,
        }
    }

    pub(crate) fn ring(&self, flow: FlowId) -> &Ring {
        &self.rings[usize::from(flow)]
    }

    pub(crate) fn credit(&self, flow: FlowId) -> &Credit {
        &self.credits[usize::from(flow)]
    }

    pub(crate) fn counters(&self) -> &CreditCounters {
        &self.counters
    }

    /// Returns whether no pipeline stage holds anything of the flow.
    pub(crate) fn is_quiet(&self, flow: FlowId) -> bool {
        let forward = self.forward.iter().flatten().map(|(flow, _)| *flow);
        let parameters = self.parameters.iter().flatten().flatten().map(|parameters| parameters.flow);
        let is_held = forward.chain(parameters).any(|held| held == flow);
        let is_waiting = self.is_waiting[usize::from(flow)];
        !is_held && !is_waiting && self.ring(flow).count == 0 && !self.ready.knows(flow)
    }

    pub(crate) fn pack(&self, flow: FlowId, packed: &mut Packed) {
        self.ring(flow).pack(&self.shape, packed);
        self.credit(flow).pack(&self.shape, packed);
    }

    /// Runs one cycle. Returns the address in the output register, which is consumed if `is_ready`, and the flow whose
    /// address enters the register at the end of the cycle.
    pub(crate) fn step(&mut self, now: u64, is_ready: bool) -> (Option<Address>, Option<FlowId>) {
        let output = self.output;
        let is_blocked = output.is_some() && !is_ready;
        let cycle = SegmentId::new(now as u32);
        let mut touched = self.touched.take();

        // Read and compute. The order of the modules is that of their insertions into the ready set.
        let turn = self.ready.current().filter(|_| !is_blocked);
        let mut departed = None;
        if let Some(turn) = turn {
            let events = touched.of(turn.flow);
            let ring = &self.rings[usize::from(turn.flow)];
            if verdict(ring, self.credit(turn.flow), cycle, &self.shape) == Verdict::Ready {
                events.leaves = true;
                let entry = oldest(ring);
                let (segment, times_sent) = (entry.segment(), entry.times_sent());
                departed = Some(Address { flow: turn.flow, segment, times_sent });
            }
        }
        if let Some((flow, forward)) = self.forward[2] {
            touched.of(flow).entered = Some(forward);
        }
        for (place, parameters) in self.parameters[2].iter().enumerate() {
            if let Some(parameters) = parameters {
                touched.of(parameters.flow).parameters[place] = Some(*parameters);
            }
        }
        if let Some(flow) = self.expire(now) {
            touched.of(flow).is_due = true;
        }

        // Merge and write.
        let mut waits = [None; 2];
        for (flow, events) in touched.iter() {
            let index = usize::from(*flow);
            let (ring, credit) = (&self.rings[index], &self.credits[index]);
            (self.rings[index], self.credits[index]) =
                merge(ring, credit, events, cycle, self.initial_rate, &self.shape);
            let is_main = turn.is_some_and(|turn| turn.flow == *flow && !turn.is_extra);
            self.membership(*flow, is_main, events.is_due, now, &mut waits);
        }

        self.touched = touched;

        // Move what is in the stages.
        self.dividing.rotate_right(1);
        self.dividing[0] = waits;
        self.forward = [None, self.forward[0], self.forward[1]];
        self.parameters = [[None; 2], self.parameters[0], self.parameters[1]];
        if !is_blocked {
            self.output = departed;
            self.counters.transmitted += u64::from(departed.is_some());
            self.ready.advance(true);
        }
        (output, departed.map(|address| address.flow))
    }

    /// Advances the timing wheel of rate-limited flows by one cycle; returns the flow whose waiting time has ended.
    fn expire(&mut self, now: u64) -> Option<FlowId> {
        if self.shape.scheme() != Scheme::Rate {
            return None;
        }
        let expired = self.wheel.advance(now);
        if let Some(flow) = expired {
            self.is_waiting[usize::from(flow)] = false;
        }
        for (flow, due) in self.dividing[DIVIDE_CYCLES - 1].into_iter().flatten() {
            self.wheel.arm(flow, due, now);
        }
        expired
    }

    /// Decides, once per cycle and from merged values, whether the flow is in the ready set or has to wait.
    fn membership(&mut self, flow: FlowId, is_main: bool, is_due: bool, now: u64, waits: &mut [Waiting; 2]) {
        let verdict = verdict(self.ring(flow), self.credit(flow), SegmentId::new(now as u32), &self.shape);
        let index = usize::from(flow);
        if !is_main && (self.ready.has_turn(flow) || self.is_waiting[index]) {
            return;
        }
        let is_wanted = match verdict {
            // An extra turn can empty the ring of a flow that waits. Expiry knows no ring: Transmit finds it empty.
            Verdict::Empty => is_due,
            Verdict::Hold => false,
            Verdict::Ready => true,
            // A flow that waited long enough has credit, except after a change of the rate: Transmit decides.
            Verdict::Wait(cycles) => is_due || cycles <= REINSERT_CYCLES,
        };
        if let (Verdict::Wait(cycles), false) = (verdict, is_wanted) {
            self.is_waiting[index] = true;
            self.counters.waits += 1;
            waits[usize::from(!is_main)] = Some((flow, now + cycles));
        }
        if is_main {
            self.ready.settle(is_wanted);
        } else if is_wanted {
            self.ready.activate(flow);
        }
    }

    /// Accepts the outputs of data delivery.
    pub(crate) fn receive(&mut self, forward: Option<(FlowId, Forward)>, parameters: [Option<Parameters>; 2]) {
        self.forward[0] = forward;
        self.parameters[0] = parameters;
    }

    /// Returns whether a stage, the output or the ready set is occupied, so that the next cycle has to be run.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        let is_moving = self.forward.iter().any(Option::is_some)
            || self.parameters.iter().flatten().any(Option::is_some)
            || self.dividing.iter().flatten().any(Option::is_some);
        is_moving || self.output.is_some() || !self.ready.is_idle()
    }

    /// Returns the first cycle, from `now` on, in which the timing wheel of rate-limited flows changes.
    pub(crate) fn next_expiry(&self, now: u64) -> Option<u64> {
        self.wheel.next_event(now)
    }
}
