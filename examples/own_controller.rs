//! A congestion controller outside of the project's tree: one type, checked by the contract kit, then run beside a
//! published one on IRN and on Falcon.
//!
//! `cargo run --release -p rnic-examples --bin own-controller`. The figures are simulated.

use std::error::Error;
use std::ops::ControlFlow;

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Time};
use rnic_fabric::{Plan, Report, Simulation};
use rnic_policy::Configured;
use rnic_policy::control::ControlInterest;
use rnic_policy::kit::check_control;
use rnic_policy::{
    Control, ControlActions, ControlEvent, ControlPolicy, ControlView, Cwnd, ParamSpec, Params, Signals,
};

/// A window that grows by a packet a round trip while round trips are short, and shrinks by an eighth, once a round
/// trip, while they are long.
///
/// The state of a queue pair is plain integers, at most 64 bytes, so that it fits into the memory of a NIC.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DelayTarget {
    /// Packets, with 16 fractional bits.
    window: u64,
    /// Time before which the window is not cut again, in picoseconds.
    settled_at_ps: u64,
}

/// Index of the only option.
const TARGET_OPTION: usize = 0;

impl Control for DelayTarget {
    const NAME: &'static str = "delay-target";
    const SUMMARY: &'static str = "window that keeps round trips below a target";
    const PARAMS: &'static [ParamSpec] =
        &[ParamSpec::duration("target", Duration::from_us(12), "round-trip time above which the window shrinks")];

    fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
        let state = Self { window: Cwnd::packets(16).fixed(), settled_at_ps: 0 };
        (state, state.actions())
    }

    fn interest(_: &Params) -> ControlInterest {
        // A transport that does not measure one of these is refused by the name of the signal.
        let needs = Signals::ACKS | Signals::ROUND_TRIP;
        ControlInterest { needs, acked: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let ControlEvent::Acked { packets, rtt, .. } = *event else { return ControlActions::default() };
        match rtt {
            Some(rtt) if rtt.as_ps() > params.get(TARGET_OPTION) => self.cut(view.now, rtt),
            // One packet a round trip: an acknowledged packet adds its part of the window.
            _ => self.window = (self.window + packets * (1 << 32) / self.window).min(Cwnd::packets(4_096).fixed()),
        }
        self.actions()
    }
}

impl DelayTarget {
    fn cut(&mut self, now: Time, rtt: Duration) {
        if now.as_ps() >= self.settled_at_ps {
            self.window = (self.window - self.window / 8).max(Cwnd::ONE.fixed());
            self.settled_at_ps = (now + rtt).as_ps();
        }
    }

    fn actions(self) -> ControlActions {
        ControlActions { window: Some(Cwnd::from_fixed(self.window)), ..ControlActions::default() }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let policy = ControlPolicy::of::<DelayTarget>();
    // Random events, in any order that a transport may produce: says at which step of which seed a rule is broken.
    for seed in 0..20 {
        check_control(&policy, seed, 10_000).map_err(|violation| violation.to_string())?;
    }
    println!("transport  controller     goodput         mean queue   retransmitted");
    for transport in ["irn", "falcon"] {
        for uses_own_policy in [false, true] {
            let mut plan = Plan::from_toml(&plan(transport))?;
            if uses_own_policy {
                plan.transport.control = Configured { policy, params: Params::defaults(DelayTarget::PARAMS) };
            }
            let report = run(&plan)?;
            println!(
                "{transport:9}  {:12} {:6.1} Gbit/s {:9.1} kB {:15}",
                plan.transport.control.policy.name,
                report.steady_goodput_gbps.unwrap_or(report.goodput_gbps),
                report.queue_mean_bytes / 1e3,
                report.packets_retransmitted
            );
        }
    }
    Ok(())
}

fn run(plan: &Plan) -> Result<Report, Box<dyn Error>> {
    let report = Simulation::new(plan, 1)?.run(&mut |_| ControlFlow::Continue(()));
    report.check()?;
    Ok(report)
}

/// Returns the plan: four hosts write to a fifth, without end.
fn plan(transport: &str) -> String {
    format!(
        r#"
        name = "four to one"
        mtu = 4096
        topology = {{ kind = "star", hosts = 5 }}
        links = {{ rate = "100Gbps", delay = "1us" }}
        switch = {{ model = "shared-buffer", buffer = "2MB" }}
        transport = {{ name = "{transport}" }}
        run = {{ warmup = "1ms" }}
        [workload]
        kind = "closed-loop"
        op = "write"
        message = "64KiB"
        depth = 8
        duration = "4ms"
        clients = 4
        queue_pairs = 4
        to = 4
        "#
    )
}
