//! A datapath that creates random events, applies responses, and stores the per-flow state that events and responses
//! carry.

use rnic_base::{BitRate, RandomStream, RandomStreams};
use rnic_fae::{ErasedPolicy, Event, ProcessorConfig, Response, StateLocation};
use rnic_policy::Configured;
use rnic_policy::control::report::{Carried, ReportKind, Ticks};
use rnic_policy::kit::{Flows, report};
use rnic_policy::{FlowActions, FlowReport, Params};

/// One connection.
#[derive(Clone)]
struct Context {
    /// State that events and responses carry, by flow.
    carried: Vec<Carried>,
    in_force: Flows,
    is_known: bool,
}

/// The datapath.
pub struct Datapath {
    random: RandomStream,
    contexts: Vec<Context>,
    now: u32,
}

impl Datapath {
    /// Returns a datapath with `connections` new connections of `flows` flows each.
    pub fn new(seed: u64, connections: u32, flows: u32, first: &FlowActions) -> Self {
        let flows = flows as usize;
        let (carried, in_force) = (vec![Carried::default(); flows], Flows::new(first, flows));
        let context = Context { carried, in_force, is_known: false };
        let random = RandomStreams::new(seed).stream("datapath");
        Self { random, contexts: vec![context; connections as usize], now: 0xff_0000 }
    }

    /// Advances the time and returns a random event of a random connection.
    pub fn event(&mut self) -> Event {
        let connection = self.random.below(self.contexts.len() as u64) as u32;
        let context = &mut self.contexts[connection as usize];
        let flow = self.random.below(context.carried.len() as u64) as usize;
        self.now = self.now.wrapping_add(self.random.below(40) as u32);
        let random = &mut self.random;
        let [there, wait, back] = [250, 80, 150].map(|most| random.below(most) as u32);
        let first = !std::mem::replace(&mut context.is_known, true);
        let told = report(flow as u8, Ticks::new(self.now), [there, wait, back], context.in_force.of(flow));
        let report = FlowReport {
            kind: match random.below(30) {
                0 => ReportKind::Nacked { code: random.between(1, 8) as u8 },
                1 => ReportKind::Retransmitted { count: random.between(1, 4) as u8, early: random.below(2) == 0 },
                _ => ReportKind::Acked,
            },
            acked: random.below(20) as u16,
            hops: random.below(6) as u8,
            rx_level: random.below(32) as u8,
            label: random.below(1 << 20) as u32,
            ..told
        };
        Event { connection, first, queue: random.below(4) as u8, report, carried: context.carried[flow] }
    }

    /// Applies `response` to its connection.
    pub fn apply(&mut self, response: &Response) {
        let (context, flow) = (&mut self.contexts[response.connection as usize], usize::from(response.flow));
        context.in_force.apply(flow, &response.actions);
        context.carried[flow] = response.carried;
    }
}

/// Swift as registered.
pub fn swift() -> ErasedPolicy {
    let policy = rnic_transports::control::find("swift").expect("the policy is registered");
    ErasedPolicy(Configured { policy, params: Params::defaults(policy.params) })
}

/// Configuration of an engine for this number of connections.
pub fn config(form: StateLocation, connections: u32) -> ProcessorConfig {
    ProcessorConfig { form, connections, line_rate: BitRate::gbps(200), mtu: 4_096 }
}
