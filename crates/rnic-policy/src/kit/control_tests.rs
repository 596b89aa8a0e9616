//! The kit against controllers that break each rule in turn, of reports and of what they hear.

use bytemuck::{Pod, Zeroable};
use core::sync::atomic::{AtomicU64, Ordering};
use rnic_base::Duration;

use super::check_control;
use crate::control::lanes::{Acks, Answers, LANES, LaneSet, StateLanes};
use crate::control::report::{AckRate, Alpha, Carried, FlowActions, FlowReport, Gap, RateLimit, Ticks};
use crate::control::report_control::{ReportControl, ReportPolicy};
use crate::control::signals::Signals;
use crate::control::{Control, ControlActions, ControlEvent, ControlInterest, ControlPolicy, ControlView, Cwnd};
use crate::params::{ParamSpec, Params};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    NoFirstWord,
    NoAnswer,
    SpeaksToAll,
    WindowOfZero,
    WindowTooFine,
    NicWindowTooWide,
    TimeoutOfZero,
    PacesWideWindow,
    ForgetsWhatTravels,
    HasHiddenState,
    LanesSayMore,
    LanesForget,
    LanesTakeAll,
}

/// Counts reports, gives a window of as many packets, and has one fault.
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
                let flow = ($fault != Fault::NoFirstWord).then(|| answer(Fault::None, 1));
                (Self(0), ControlActions { flow, ..ControlActions::default() })
            }

            fn interest(_: &Params) -> ControlInterest {
                ControlInterest { reports: true, ..ControlInterest::default() }
            }

            fn on_event(&mut self, event: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
                let speaks = matches!(event, ControlEvent::Reported(_)) || $fault == Fault::SpeaksToAll;
                self.0 += 1;
                let flow = (speaks && $fault != Fault::NoAnswer).then(|| answer($fault, self.0));
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
                answers: &mut Answers,
            ) -> LaneSet {
                let done = if $fault == Fault::LanesTakeAll { LaneSet::MAX >> 16 } else { set & 0x0fff };
                for lane in (0..LANES).filter(|lane| done >> lane & 1 != 0) {
                    let count = states.state(lane).0 + 1;
                    put_answer(answers, lane, count + u64::from($fault == Fault::LanesSayMore));
                    states.state(lane).0 = if $fault == Fault::LanesForget { 0 } else { count };
                }
                done
            }

            fn carry(&self) -> Option<Carried> {
                let metadata = if $fault == Fault::ForgetsWhatTravels { 0 } else { self.0 as u32 };
                Some(Carried { metadata, ..Carried::default() })
            }

            fn restore(carried: &Carried, _: &FlowReport, _: &Params) -> Option<Self> {
                Some(Self(u64::from(carried.metadata)))
            }
        }
    };
}

faulty!(Sound, Fault::None);
faulty!(NoFirstWord, Fault::NoFirstWord);
faulty!(NoAnswer, Fault::NoAnswer);
faulty!(SpeaksToAll, Fault::SpeaksToAll);
faulty!(WindowOfZero, Fault::WindowOfZero);
faulty!(WindowTooFine, Fault::WindowTooFine);
faulty!(NicWindowTooWide, Fault::NicWindowTooWide);
faulty!(TimeoutOfZero, Fault::TimeoutOfZero);
faulty!(PacesWideWindow, Fault::PacesWideWindow);
faulty!(ForgetsWhatTravels, Fault::ForgetsWhatTravels);
faulty!(HasHiddenState, Fault::HasHiddenState);
faulty!(LanesSayMore, Fault::LanesSayMore);
faulty!(LanesForget, Fault::LanesForget);
faulty!(LanesTakeAll, Fault::LanesTakeAll);

static CALLS: AtomicU64 = AtomicU64::new(0);

fn answer(fault: Fault, count: u64) -> FlowActions {
    let hidden = if fault == Fault::HasHiddenState { CALLS.fetch_add(1, Ordering::Relaxed) % 2 } else { 0 };
    FlowActions {
        fcwnd: match fault {
            Fault::WindowOfZero => Cwnd::from_fixed(0),
            Fault::WindowTooFine => Cwnd::from_fixed(Cwnd::ONE.fixed() + 1),
            _ => Cwnd::packets(1 + count % 100 + hidden),
        },
        ncwnd: if fault == Fault::NicWindowTooWide { 2_048 } else { 64 },
        gap: if fault == Fault::PacesWideWindow { Gap::slots(1) } else { Gap::NONE },
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

fn put_answer(answers: &mut Answers, lane: usize, count: u64) {
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
fn check_control_passes_a_sound_controller_of_flows() {
    assert_eq!(verdict::<Sound>(), Ok(()));
}

#[test]
fn check_control_finds_each_fault() {
    let found = [
        (verdict::<NoFirstWord>(), "no first word"),
        (verdict::<NoAnswer>(), "gets no answer"),
        (verdict::<SpeaksToAll>(), "to a datapath that has none"),
        (verdict::<WindowOfZero>(), "which is none"),
        (verdict::<WindowTooFine>(), "fits into no record"),
        (verdict::<NicWindowTooWide>(), "towards the NIC"),
        (verdict::<TimeoutOfZero>(), "timeout of zero"),
        (verdict::<PacesWideWindow>(), "leaves a gap"),
        (verdict::<ForgetsWhatTravels>(), "when the state had travelled"),
        (verdict::<HasHiddenState>(), "once and"),
        (verdict::<LanesSayMore>(), "among others"),
        (verdict::<LanesForget>(), "among others"),
        (verdict::<LanesTakeAll>(), "was given lanes"),
    ];
    for (verdict, says) in found {
        let what = verdict.expect_err(says);
        assert!(what.contains(says), "expected `{says}` in: {what}");
    }
}

/// How the declared signals of a controller relate to the events that it asks for.
#[derive(Clone, Copy, PartialEq)]
enum Claim {
    Fits,
    HearsOfAcksUnasked,
    NeedsMarksUnheard,
    NeedsNoTicks,
}

/// Defines a controller that ticks, with one claim.
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
                    Claim::NeedsMarksUnheard => Signals::TICKS | Signals::MARKS,
                    Claim::NeedsNoTicks => Signals::NONE,
                    Claim::Fits | Claim::HearsOfAcksUnasked => Signals::TICKS,
                };
                let acked = $claim == Claim::HearsOfAcksUnasked;
                ControlInterest { needs, acked, ..ControlInterest::default() }
            }

            fn on_event(&mut self, _: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
                ControlActions { tick_after: Some(Duration::from_us(10)), ..ControlActions::default() }
            }
        }
    };
}

claiming!(Fits, Claim::Fits);
claiming!(HearsOfAcksUnasked, Claim::HearsOfAcksUnasked);
claiming!(NeedsMarksUnheard, Claim::NeedsMarksUnheard);
claiming!(NeedsNoTicks, Claim::NeedsNoTicks);

#[test]
fn check_control_compares_what_is_needed_with_what_is_heard() {
    assert_eq!(verdict::<Fits>(), Ok(()));
    let found = [
        (verdict::<HearsOfAcksUnasked>(), "asks to hear of acks"),
        (verdict::<NeedsMarksUnheard>(), "needs marks and does not ask"),
        (verdict::<NeedsNoTicks>(), "does not say that it needs ticks"),
    ];
    for (verdict, says) in found {
        let what = verdict.expect_err(says);
        assert!(what.contains(says), "expected `{says}` in: {what}");
    }
}
