//! A datapath that makes random events, applies responses and remembers what travels.

use rnic_base::{BitRate, RandomStream, RandomStreams};
use rnic_fae::{Erased, Event, Form, ProcessorConfig, Response};
use rnic_policy::control::Cwnd;
use rnic_policy::control::report::{Carried, DelaySelect, InForce, ReportKind, Ticks};
use rnic_policy::profile::Configured;
use rnic_policy::{FlowActions, FlowReport, Params};

/// One flow of one connection.
#[derive(Clone, Copy)]
struct Context {
    carried: Carried,
    in_force: InForce,
    is_known: bool,
}

/// The datapath.
pub struct Datapath {
    random: RandomStream,
    contexts: Vec<Context>,
    flows: u32,
    now: u32,
}

impl Datapath {
    /// `connections` of `flows` flows each, in the beginning of their life.
    pub fn new(seed: u64, connections: u32, flows: u32, first: &FlowActions) -> Self {
        let share = Cwnd::from_fixed(first.fcwnd.fixed() / u64::from(flows));
        let in_force = in_force(&FlowActions { fcwnd: share, ..*first });
        let context = Context { carried: Carried::default(), in_force, is_known: false };
        let random = RandomStreams::new(seed).stream("datapath");
        Self { random, contexts: vec![context; (connections * flows) as usize], flows, now: 0xff_0000 }
    }

    /// Something happens on some connection, and time passes.
    pub fn event(&mut self) -> Event {
        let connection = self.random.below(self.contexts.len() as u64 / u64::from(self.flows)) as u32;
        let flow = self.random.below(u64::from(self.flows)) as u32;
        self.now = self.now.wrapping_add(self.random.below(40) as u32);
        let random = &mut self.random;
        let [there, wait, back] = [250, 80, 150].map(|most| random.below(most) as u32);
        let ago = |span: u32| Ticks::new(self.now.wrapping_sub(span));
        let index = (connection * self.flows) as usize;
        let first = !self.contexts[index..index + self.flows as usize].iter().any(|context| context.is_known);
        let context = &mut self.contexts[index + flow as usize];
        context.is_known = true;
        let report = FlowReport {
            kind: match random.below(30) {
                0 => ReportKind::Nacked { code: random.between(1, 8) as u8 },
                1 => ReportKind::Retransmitted { count: random.between(1, 4) as u8, early: random.below(2) == 0 },
                _ => ReportKind::Acked,
            },
            flow: flow as u8,
            acked: random.below(20) as u16,
            t1: ago(there + wait + back),
            t2: ago(wait + back),
            t3: ago(back),
            t4: Ticks::new(self.now),
            hops: random.below(6) as u8,
            rx_level: random.below(32) as u8,
            ecn: 0,
            csig: None,
            occupancy: 0,
            label: random.below(1 << 20) as u32,
            extended: false,
            window_drop: false,
            delay: DelaySelect::Fabric,
            in_force: context.in_force,
        };
        Event { connection, first, queue: random.below(4) as u8, report, carried: context.carried }
    }

    /// Does what `response` says.
    pub fn apply(&mut self, response: &Response) {
        let of_connection = (response.connection * self.flows) as usize;
        for flow in 0..self.flows as usize {
            let context = &mut self.contexts[of_connection + flow];
            let fcwnd = context.in_force.fcwnd;
            context.in_force = InForce { fcwnd, ..in_force(&response.actions) };
        }
        let context = &mut self.contexts[of_connection + usize::from(response.flow)];
        context.in_force.fcwnd = response.actions.fcwnd;
        context.carried = response.carried;
    }
}

fn in_force(actions: &FlowActions) -> InForce {
    let FlowActions { fcwnd, ncwnd, gap, rto, ack_rate, .. } = *actions;
    InForce { fcwnd, ncwnd, gap, rto, ack_rate }
}

/// Swift as registered.
pub fn swift() -> Erased {
    let policy = rnic_transports::control::find("swift").expect("it is registered");
    Erased(Configured { policy, params: Params::defaults(policy.params) })
}

/// An engine for so many connections.
pub fn config(form: Form, connections: u32) -> ProcessorConfig {
    ProcessorConfig { form, connections, line_rate: BitRate::gbps(200), mtu: 4_096 }
}
