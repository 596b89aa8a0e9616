//! Laws (policies as one function that also becomes a circuit) as congestion controllers.

use rnic_base::{BitRate, Duration};
use rnic_program::law::ControlInput;

use super::{InSlot, clock, cut, duration, rate, span, speed};
use crate::control::signals::Signals;
use crate::control::{Control, ControlActions, ControlEvent, ControlInterest, ControlPolicy, ControlView, Cwnd};
use crate::params::{ParamSpec, Params};

/// Time between two congestion notifications of a receiver, for laws that have no parameter `cnp_interval`.
const CNP_INTERVAL: Duration = Duration::from_us(50);

/// Shift from a law's windows to those of controllers.
const WINDOW_SHIFT: u32 = 8;

/// Returns the controller in slot `N`.
pub(super) fn policy<const N: usize>() -> ControlPolicy {
    let law = InSlot::<N>::law();
    ControlPolicy { name: law.name, summary: law.summary, params: law.specs, ..ControlPolicy::of::<InSlot<N>>() }
}

impl<const N: usize> Control for InSlot<N> {
    const NAME: &'static str = "law";
    const SUMMARY: &'static str = "";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(params: &Params, view: &ControlView) -> (Self, ControlActions) {
        let mut state = Self::new(params);
        let output = state.decide(&ControlInput { started: true, ..at(view) }, params);
        (state, actions(&output, view))
    }

    fn interest(params: &Params) -> ControlInterest {
        let law = Self::law();
        let needs = law.uses.signals;
        let interval = law.specs.iter().position(|spec| spec.name == "cnp_interval");
        let cnp_interval = interval.map_or(CNP_INTERVAL, |index| params.duration(index).max(Duration::from_us(1)));
        ControlInterest {
            needs,
            acked: needs.has_any(Signals::ACKS | Signals::ROUND_TRIP),
            sent: needs.has(Signals::SENT),
            cnp_interval: needs.has(Signals::CNP).then_some(cnp_interval),
            echo: needs.has(Signals::MARKS),
            ..ControlInterest::default()
        }
    }

    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
        let Some(input) = input(event, view) else { return ControlActions::default() };
        let output = self.decide(&input, params);
        actions(&output, view)
    }
}

/// Returns the parts of an event that do not depend on its kind.
fn at(view: &ControlView) -> ControlInput {
    ControlInput {
        in_flight: cut(view.in_flight),
        mtu: cut(view.mtu.into()),
        line_rate: speed(view.line_rate),
        now: clock(view.now),
        ..ControlInput::default()
    }
}

/// Returns a law's form of `event`; nothing for an event that no law gets.
fn input(event: &ControlEvent, view: &ControlView) -> Option<ControlInput> {
    let at = at(view);
    Some(match *event {
        ControlEvent::Acked { packets, rtt, marked } => ControlInput {
            acked: true,
            packets: cut(packets),
            marked: cut(marked),
            timed: rtt.is_some(),
            rtt: rtt.map_or(cut(0), span),
            ..at
        },
        ControlEvent::Nacked { lost } => ControlInput { lost, ..at },
        ControlEvent::TimedOut => ControlInput { timed_out: true, ..at },
        ControlEvent::Cnp => ControlInput { cnp: true, ..at },
        ControlEvent::Sent { bytes } => ControlInput { bytes: cut(bytes), ..at },
        ControlEvent::Tick => ControlInput { tick: true, ..at },
        ControlEvent::RoundTrip { rtt, .. } => ControlInput { answered: true, rtt: span(rtt), ..at },
        ControlEvent::ProbeLost { .. } => ControlInput { unanswered: true, ..at },
        ControlEvent::Reported(_) => return None,
    })
}

/// Returns what a law's outputs request, cut to the contract.
fn actions(output: &rnic_program::law::ControlOutput, view: &ControlView) -> ControlActions {
    let window = output.window.get();
    ControlActions {
        window: (window != 0).then(|| Cwnd::from_fixed(window << WINDOW_SHIFT)),
        rate: rate(output.rate, BitRate::bps(1), view.line_rate),
        tick_after: duration(output.tick),
        probe: duration(output.probe),
        flow: None,
    }
}
