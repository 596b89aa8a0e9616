//! Signals that controllers need against signals that transports measure.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Configured, Control, ControlActions, ControlEvent, ControlPolicy, ControlView};
use rnic_policy::{ParamSpec, Params, Signals};

use crate::{control, profiles};

/// A controller from elsewhere that goes by what few networks tell.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Curious(u64);

impl Control for Curious {
    const NAME: &'static str = "curious";
    const SUMMARY: &'static str = "wants to know which hop is congested, and how full the receiver is";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
        (Self(0), ControlActions::default())
    }

    fn interest(_: &Params) -> ControlInterest {
        let needs = Signals::ACKS | Signals::HOST_DELAY | Signals::CSIG;
        ControlInterest { needs, acked: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, _: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
        ControlActions::default()
    }
}

#[test]
fn what_a_transport_does_not_measure_is_refused_by_name() {
    for mut profile in profiles() {
        profile.control = Configured { policy: ControlPolicy::of::<Curious>(), params: Params::defaults(&[]) };
        let error = profile.check().expect_err("nobody measures CSIG").to_string();
        let missing = if profile.protocol.falcon().is_some() { "needs csig," } else { "needs host-delay, csig," };
        let says_who = error.contains(profile.name) && error.contains("`curious`");
        assert!(says_who && error.contains(missing) && error.lines().count() == 1, "{error}");
    }
}

/// Each says what it goes by: of those here, all but two that go by nothing.
#[test]
fn every_controller_says_what_it_needs() {
    let silent =
        control::ALL.iter().filter(|policy| (policy.interest)(&Params::defaults(policy.params)).needs.is_empty());
    let silent: Vec<_> = silent.map(|policy| policy.name).collect();
    assert_eq!(silent, ["line-rate", "fixed-window"]);
}
