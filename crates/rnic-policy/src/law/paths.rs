//! Laws (policies as one function that also becomes a circuit) as path policies.

use rnic_program::law::{PathInput, PathOutput};

use super::{InSlot, SPAN_MIN, clock, cut, duration, span};
use crate::params::{ParamSpec, Params};
use crate::paths::{
    OpenWindows, PROBED_MAX, PathActions, PathEvent, PathLabel, PathPolicy, PathProbe, PathView, Paths,
};

/// Returns the path policy in slot `N`.
pub(super) fn policy<const N: usize>() -> PathPolicy {
    let law = InSlot::<N>::law();
    PathPolicy {
        name: law.name,
        summary: law.summary,
        params: law.specs,
        reorders: law.uses.reorders,
        probes: law.uses.probes,
        ..PathPolicy::of::<InSlot<N>>()
    }
}

impl<const N: usize> Paths for InSlot<N> {
    const NAME: &'static str = "law";
    const SUMMARY: &'static str = "";
    const PARAMS: &'static [ParamSpec] = &[];
    const REORDERS: bool = false;

    fn start(params: &Params, view: &PathView) -> (Self, PathLabel) {
        let mut state = Self::new(params);
        let output = state.decide(&PathInput { started: true, ..at(view) }, params);
        (state, PathLabel(output.label.get() as u16))
    }

    fn per_packet(_: &Params) -> bool {
        Self::law().uses.sending
    }

    fn on_event(&mut self, event: &PathEvent, view: &PathView, params: &Params) -> PathActions {
        let output = self.decide(&input(event, view), params);
        let reorders = Self::law().uses.reorders;
        let may_move =
            reorders || matches!(event, PathEvent::TimedOut | PathEvent::Drained | PathEvent::ProbeLost { .. });
        let flow = match event {
            PathEvent::Choosing { open, .. } if reorders => {
                Some((output.flow.get() % open.as_slice().len() as u64) as u8)
            }
            _ => None,
        };
        PathActions {
            label: (output.relabel && may_move).then(|| PathLabel(output.label.get() as u16)),
            flow,
            probe: output.probe.then(|| probe(&output)),
            tick_after: duration(output.tick),
            drain: output.drain,
        }
    }
}

fn probe(output: &PathOutput) -> PathProbe {
    PathProbe {
        path: (output.path.get() as u8).min(PROBED_MAX as u8 - 1),
        label: PathLabel(output.probed.get() as u16),
        timeout: duration(output.timeout).unwrap_or(SPAN_MIN),
    }
}

/// Returns the parts of an event that do not depend on its kind.
fn at(view: &PathView) -> PathInput {
    PathInput { hash: cut(view.flow_hash & u64::from(u32::MAX)), now: clock(view.now), ..PathInput::default() }
}

fn input(event: &PathEvent, view: &PathView) -> PathInput {
    let at = at(view);
    match *event {
        PathEvent::Sending { retransmission } => PathInput { sending: true, repeated: retransmission, ..at },
        PathEvent::Choosing { open, .. } => choosing(&open, at),
        PathEvent::TimedOut => PathInput { timed_out: true, ..at },
        PathEvent::Probed { path, rtt } => PathInput { answered: true, path: cut(path.into()), rtt: span(rtt), ..at },
        PathEvent::ProbeLost { path } => PathInput { unanswered: true, path: cut(path.into()), ..at },
        PathEvent::Tick => PathInput { tick: true, ..at },
        PathEvent::Drained => PathInput { drained: true, ..at },
    }
}

fn choosing(open: &OpenWindows, at: PathInput) -> PathInput {
    let windows = open.as_slice();
    let of = |flow: usize| cut(windows.get(flow).copied().unwrap_or(0).max(0) as u64);
    PathInput {
        choosing: true,
        flows: cut(windows.len() as u64),
        open0: of(0),
        open1: of(1),
        open2: of(2),
        open3: of(3),
        open4: of(4),
        open5: of(5),
        open6: of(6),
        open7: of(7),
        ..at
    }
}
