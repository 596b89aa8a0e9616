//! The kit against controllers that break each rule in turn, for reports and for events.

use bytemuck::{Pod, Zeroable};
use core::sync::atomic::{AtomicU64, Ordering};
use rnic_base::Duration;

use super::check_control;
use crate::control::lanes::{Acks, LANES, LaneSet, ResponseLanes, StateLanes};
use crate::control::report::{AckRate, Alpha, Carried, FlowActions, FlowReport, Gap, RateLimit, Ticks};
use crate::control::report_control::{ReportControl, ReportPolicy};
use crate::control::signals::Signals;
use crate::control::{Control, ControlActions, ControlEvent, ControlInterest, ControlPolicy, ControlView, Cwnd};
use crate::params::{ParamSpec, Params};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    NoInitialResponse,
    NoResponse,
    RespondsToEveryEvent,
    WindowOfZero,
    WindowTooFine,
    NicWindowTooWide,
    TimeoutOfZero,
    PacesLargeWindow,
    LosesCarriedState,
    HasHiddenState,
    LanesRespondDifferently,
    LanesLoseState,
    LanesIgnoreSet,
}

/// Defines a controller that counts reports, requests a window of that number of packets, and has one defect.
macro_rules! faulty {
    ($name:ident, $fault:expr) => {
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        struct $name(u64);

        impl Control for $name {
            const NAME: &'static str = "faulty";
            const SUMMARY: &'static str = "a fixed window with a fault";
            const PARAMS: &'static [ParamSpec] = &[];
            const REPORTS: ReportPolicy = ReportPolicy::of::<Self>();

            fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
                let flow = ($fault != Fault::NoInitialResponse).then(|| answer(Fault::None, 1));
                (Self(0), ControlActions { flow, ..ControlActions::default() })
            }

            fn interest(_: &Params) -> ControlInterest {
                ControlInterest { reports: true, ..ControlInterest::default() }
            }

            fn on_event(&mut self, event: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
                let responds = matches!(event, ControlEvent::Reported(_)) || $fault == Fault::RespondsToEveryEvent;
                self.0 += 1;
                let flow = (responds && $fault != Fault::NoResponse).then(|| answer($fault, self.0));
                ControlActions { flow, ..ControlActions::default() }
            }
        }

        impl ReportControl for $name {
            const LANES: bool = true;

            fn on_acks<L: StateLanes<Self> + ?Sized>(
                states: &mut L,
                _: &Acks,
                set: LaneSet,
                _: &Params,
                answers: &mut ResponseLanes,
            ) -> LaneSet {
                let processed = if $fault == Fault::LanesIgnoreSet { LaneSet::MAX >> 16 } else { set & 0x0fff };
                for lane in (0..LANES).filter(|lane| processed >> lane & 1 != 0) {
                    let count = states.state(lane).0 + 1;
                    put_answer(answers, lane, count + u64::from($fault == Fault::LanesRespondDifferently));
                    states.state(lane).0 = if $fault == Fault::LanesLoseState { 0 } else { count };
                }
                processed
            }

            fn carry(&self) -> Option<Carried> {
                let metadata = if $fault == Fault::LosesCarriedState { 0 } else { self.0 as u32 };
                Some(Carried { metadata, ..Carried::default() })
            }

            fn restore(carried: &Carried, _: &FlowReport, _: &Params) -> Option<Self> {
                Some(Self(u64::from(carried.metadata)))
            }
        }
    };
}

faulty!(Sound, Fault::None);
faulty!(NoInitialResponse, Fault::NoInitialResponse);
faulty!(NoResponse, Fault::NoResponse);
faulty!(RespondsToEveryEvent, Fault::RespondsToEveryEvent);
faulty!(WindowOfZero, Fault::WindowOfZero);
faulty!(WindowTooFine, Fault::WindowTooFine);
faulty!(NicWindowTooWide, Fault::NicWindowTooWide);
faulty!(TimeoutOfZero, Fault::TimeoutOfZero);
faulty!(PacesLargeWindow, Fault::PacesLargeWindow);
faulty!(LosesCarriedState, Fault::LosesCarriedState);
faulty!(HasHiddenState, Fault::HasHiddenState);
faulty!(LanesRespondDifferently, Fault::LanesRespondDifferently);
faulty!(LanesLoseState, Fault::LanesLoseState);
faulty!(LanesIgnoreSet, Fault::LanesIgnoreSet);

static CALLS: AtomicU64 = AtomicU64::new(0);

fn answer(fault: Fault, count: u64) -> FlowActions {
    let hidden_state = if fault == Fault::HasHiddenState { CALLS.fetch_add(1, Ordering::Relaxed) % 2 } else { 0 };
    FlowActions {
        fcwnd: match fault {
            Fault::WindowOfZero => Cwnd::from_fixed(0),
            Fault::WindowTooFine => Cwnd::from_fixed(Cwnd::ONE.fixed() + 1),
            _ => Cwnd::packets(1 + count % 100 + hidden_state),
        },
        ncwnd: if fault == Fault::NicWindowTooWide { 2_048 } else { 64 },
        gap: if fault == Fault::PacesLargeWindow { Gap::slots(1) } else { Gap::NONE },
        rate: RateLimit::NONE,
        rto: if fault == Fault::TimeoutOfZero { Ticks::ZERO } else { Ticks::new(1_907) },
        rack: Ticks::new(200),
        tlp: Ticks::new(500),
        repath: false,
        alpha_requests: Alpha::code(6),
        alpha_responses: Alpha::code(6),
        ack_rate: AckRate::ALL,
    }
}

fn put_answer(answers: &mut ResponseLanes, lane: usize, count: u64) {
    let flow = answer(Fault::None, count);
    answers.fcwnd[lane] = (flow.fcwnd.fixed() >> 6) as u32;
    (answers.ncwnd[lane], answers.gap[lane], answers.repath[lane]) = (flow.ncwnd.into(), flow.gap.get(), 0);
    (answers.rto[lane], answers.rack[lane], answers.tlp[lane]) = (flow.rto, flow.rack, flow.tlp);
    let [requests, responses] = [flow.alpha_requests, flow.alpha_responses].map(|alpha| u32::from(alpha.get()));
    (answers.alpha_requests[lane], answers.alpha_responses[lane]) = (requests, responses);
    answers.ack_rate[lane] = flow.ack_rate.get().into();
}

fn verdict<T: Control>() -> Result<(), String> {
    check_control(&ControlPolicy::of::<T>(), 3, 200).map_err(|violation| violation.what)
}

#[test]
fn check_control_accepts_a_correct_controller_of_flows() {
    assert_eq!(verdict::<Sound>(), Ok(()));
}

#[test]
fn check_control_finds_each_fault() {
    let cases = [
        (verdict::<NoInitialResponse>(), "no initial flow actions"),
        (verdict::<NoResponse>(), "returns no flow actions"),
        (verdict::<RespondsToEveryEvent>(), "to a datapath without flows"),
        (verdict::<WindowOfZero>(), "which is zero"),
        (verdict::<WindowTooFine>(), "cannot be represented in a record"),
        (verdict::<NicWindowTooWide>(), "sets ncwnd"),
        (verdict::<TimeoutOfZero>(), "timeout of zero"),
        (verdict::<PacesLargeWindow>(), "sets a gap"),
        (verdict::<LosesCarriedState>(), "after the state was carried"),
        (verdict::<HasHiddenState>(), "two identical calls"),
        (verdict::<LanesRespondDifferently>(), "with other lanes"),
        (verdict::<LanesLoseState>(), "with other lanes"),
        (verdict::<LanesIgnoreSet>(), "received reports for lanes"),
    ];
    for (verdict, expected) in cases {
        let what = verdict.expect_err(expected);
        assert!(what.contains(expected), "expected `{expected}` in: {what}");
    }
}

/// Relation between the signals that a controller declares and the events that it requests.
#[derive(Clone, Copy, PartialEq)]
enum Claim {
    Fits,
    ReceivesAcksUndeclared,
    DeclaresUnusedMarks,
    NeedsNoTicks,
    Probes,
    NeedsNoProbes,
    ProbesAtOnce,
}

/// Defines a controller that uses ticks, may use probes, and declares some of what it uses.
macro_rules! claiming {
    ($name:ident, $claim:expr) => {
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        struct $name(u64);

        impl Control for $name {
            const NAME: &'static str = "claiming";
            const SUMMARY: &'static str = "a controller that ticks";
            const PARAMS: &'static [ParamSpec] = &[];

            fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
                (Self(0), ControlActions::default())
            }

            fn interest(_: &Params) -> ControlInterest {
                let needs = match $claim {
                    Claim::DeclaresUnusedMarks => Signals::TICKS | Signals::MARKS,
                    Claim::NeedsNoTicks => Signals::NONE,
                    Claim::Fits | Claim::ReceivesAcksUndeclared | Claim::NeedsNoProbes => Signals::TICKS,
                    Claim::Probes | Claim::ProbesAtOnce => Signals::TICKS | Signals::PROBES,
                };
                let acked = $claim == Claim::ReceivesAcksUndeclared;
                ControlInterest { needs, acked, ..ControlInterest::default() }
            }

            fn on_event(&mut self, _: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
                let probe = match $claim {
                    Claim::Probes | Claim::NeedsNoProbes => Some(Duration::from_us(1)),
                    Claim::ProbesAtOnce => Some(Duration::ZERO),
                    _ => None,
                };
                ControlActions { tick_after: Some(Duration::from_us(10)), probe, ..ControlActions::default() }
            }
        }
    };
}

claiming!(Fits, Claim::Fits);
claiming!(ReceivesAcksUndeclared, Claim::ReceivesAcksUndeclared);
claiming!(DeclaresUnusedMarks, Claim::DeclaresUnusedMarks);
claiming!(NeedsNoTicks, Claim::NeedsNoTicks);
claiming!(Probes, Claim::Probes);
claiming!(NeedsNoProbes, Claim::NeedsNoProbes);
claiming!(ProbesAtOnce, Claim::ProbesAtOnce);

#[test]
fn check_control_compares_needed_signals_with_subscribed_events() {
    assert_eq!((verdict::<Fits>(), verdict::<Probes>()), (Ok(()), Ok(())));
    let cases = [
        (verdict::<ReceivesAcksUndeclared>(), "subscribes to the signal acks"),
        (verdict::<DeclaresUnusedMarks>(), "needs the signal marks but does not subscribe"),
        (verdict::<NeedsNoTicks>(), "does not declare that it needs ticks"),
        (verdict::<NeedsNoProbes>(), "does not declare that it needs probes"),
        (verdict::<ProbesAtOnce>(), "less than 1us"),
    ];
    for (verdict, expected) in cases {
        let what = verdict.expect_err(expected);
        assert!(what.contains(expected), "expected `{expected}` in: {what}");
    }
}
