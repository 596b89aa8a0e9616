//! Checks that the kit rejects policies that break each rule in turn.

use bytemuck::{Pod, Zeroable};
use core::sync::atomic::{AtomicU64, Ordering};
use rnic_base::{Duration, SeqRange};

use super::*;
use crate::recovery::Placement;
use crate::recovery::{Interest, LossRule, Recovery, RecoveryActions, RecoveryEvent, TimerChange, WindowView};
use crate::recovery_policy::RecoveryPolicy;

/// The defects that a go-back-N policy can have.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    MarksOutside,
    ExtendsForEver,
    ForgetsOldest,
    AlwaysRecovering,
    ExtendsOnNack,
    ZeroTimeout,
    HasHiddenState,
    JudgesTheFuture,
    ProbesAll,
    ProbesAtOnce,
    TimesUndeclared,
}

/// Defines a go-back-N policy with one defect.
macro_rules! faulty {
    ($name:ident, $fault:expr) => {
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        struct $name(u64);

        impl Recovery for $name {
            const NAME: &'static str = "faulty";
            const SUMMARY: &'static str = "go-back-N with a fault";
            const PARAMS: &'static [ParamSpec] = &[];
            const GAP_IS_LOSS: bool = true;
            const PLACEMENT: Placement = Placement::Drop;
            const TIMES_PACKETS: bool =
                matches!($fault, Fault::JudgesTheFuture | Fault::ProbesAll | Fault::ProbesAtOnce);

            fn start(_: &Params) -> Self {
                Self(0)
            }

            fn initial_rto(_: &Params) -> Option<Duration> {
                Some(Duration::from_us(100))
            }

            fn interest(_: &Params) -> Interest {
                Interest::Always
            }

            fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, _: &Params) -> RecoveryActions {
                go_back_n_with($fault, event, view)
            }
        }
    };
}

faulty!(Sound, Fault::None);
faulty!(MarksOutside, Fault::MarksOutside);
faulty!(ExtendsForEver, Fault::ExtendsForEver);
faulty!(ForgetsOldest, Fault::ForgetsOldest);
faulty!(AlwaysRecovering, Fault::AlwaysRecovering);
faulty!(ExtendsOnNack, Fault::ExtendsOnNack);
faulty!(ZeroTimeout, Fault::ZeroTimeout);
faulty!(HasHiddenState, Fault::HasHiddenState);
faulty!(JudgesTheFuture, Fault::JudgesTheFuture);
faulty!(ProbesAll, Fault::ProbesAll);
faulty!(ProbesAtOnce, Fault::ProbesAtOnce);
faulty!(TimesUndeclared, Fault::TimesUndeclared);

static CALLS: AtomicU64 = AtomicU64::new(0);

fn go_back_n_with(fault: Fault, event: &RecoveryEvent, view: &WindowView<'_>) -> RecoveryActions {
    let mut actions = RecoveryActions { retransmit: Some(view.outstanding()), ..Default::default() };
    match (fault, event) {
        (_, RecoveryEvent::Acked { .. }) => {
            actions.retransmit = None;
            actions.recovering = fault == Fault::AlwaysRecovering;
        }
        (Fault::HasHiddenState, RecoveryEvent::Nacked { .. }) => {
            actions.recovering = CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        }
        (Fault::ExtendsOnNack, RecoveryEvent::Nacked { .. })
        | (Fault::ExtendsForEver, RecoveryEvent::TimedOut { .. }) => {
            actions.timer = TimerChange::Extend(Duration::from_us(1));
        }
        (Fault::MarksOutside, RecoveryEvent::Nacked { .. }) => {
            actions.retransmit = Some(SeqRange::new(view.una, view.next + 1));
        }
        (Fault::ForgetsOldest, RecoveryEvent::TimedOut { .. }) => {
            actions.retransmit = Some(SeqRange::single(view.next - 1));
        }
        (Fault::JudgesTheFuture, RecoveryEvent::Delivered { .. }) => {
            let rule = LossRule { range: view.outstanding(), sent_until: view.now, age: Duration::ZERO };
            (actions.retransmit, actions.lost) = (None, Some(rule));
        }
        (Fault::ProbesAtOnce, RecoveryEvent::Delivered { .. })
        | (Fault::TimesUndeclared, RecoveryEvent::Nacked { .. }) => {
            actions.probe = Some(Some(Duration::ZERO));
        }
        (Fault::ProbesAll, RecoveryEvent::Delivered { .. }) => actions.probe = Some(Some(Duration::from_us(20))),
        (Fault::ZeroTimeout, RecoveryEvent::TimedOut { .. }) => actions.rto = Some(Some(Duration::ZERO)),
        _ => {}
    }
    actions
}

fn verdict<T: Recovery>() -> Result<(), String> {
    check_recovery(&RecoveryPolicy::of::<T>(), 1, 2_000).map_err(|violation| violation.what)
}

#[test]
fn check_recovery_accepts_a_correct_policy() {
    assert_eq!(verdict::<Sound>(), Ok(()));
}

#[test]
fn check_recovery_finds_each_fault() {
    let cases = [
        (verdict::<MarksOutside>(), "outside"),
        (verdict::<ExtendsForEver>(), "times in succession"),
        (verdict::<ForgetsOldest>(), "does not contain the oldest"),
        (verdict::<AlwaysRecovering>(), "still in recovery"),
        (verdict::<ExtendsOnNack>(), "may extend the timer"),
        (verdict::<ZeroTimeout>(), "sets a timeout of"),
        (verdict::<HasHiddenState>(), "two identical calls"),
        (verdict::<JudgesTheFuture>(), "covers packets that are not outstanding"),
        (verdict::<ProbesAll>(), "must retransmit one packet"),
        (verdict::<ProbesAtOnce>(), "requests a probe"),
        (verdict::<TimesUndeclared>(), "does not declare"),
    ];
    for (verdict, expected) in cases {
        let what = verdict.expect_err(expected);
        assert!(what.contains(expected), "expected `{expected}` in: {what}");
    }
}

#[test]
fn check_specs_rejects_invalid_tables() {
    let invalid_specs = [
        ParamSpec::count("threshold", 0, 1, 64, "help"),
        ParamSpec::count("Threshold", 3, 1, 64, "help"),
        ParamSpec::count("threshold", 3, 1, 64, ""),
    ];
    for spec in invalid_specs {
        assert!(check_specs("faulty", &[spec]).is_err(), "{spec:?}");
    }
}
