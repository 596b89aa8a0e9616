//! Signals that controllers require, compared with the signals that transports measure.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Configured, Control, ControlActions, ControlEvent, ControlPolicy, ControlView};
use rnic_policy::{ParamSpec, Params, Signals};

use crate::{control, paths, profiles, select, select_on};

/// A controller from outside the tree that requires signals which few networks provide.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct CsigControl(u64);

impl Control for CsigControl {
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
fn a_signal_that_a_transport_does_not_measure_is_refused_by_name() {
    for mut profile in profiles() {
        profile.control = Configured { policy: ControlPolicy::of::<CsigControl>(), params: Params::defaults(&[]) };
        let error = profile.check().expect_err("no transport measures CSIG").to_string();
        let missing = if profile.protocol.falcon().is_some() { "needs csig," } else { "needs host-delay, csig," };
        let names_both = error.contains(profile.name) && error.contains("`curious`");
        assert!(names_both && error.contains(missing) && error.lines().count() == 1, "{error}");
    }
}

/// A policy that probes is refused where NICs exchange no messages, by name and in one line; Falcon has no probes at
/// all.
#[test]
fn s8_policies_that_probe_are_refused_without_messages_between_nics() {
    let interest = |policy: &ControlPolicy| (policy.interest)(&Params::defaults(policy.params));
    let controls = control::ALL.iter().filter(|policy| interest(policy).needs.has(Signals::PROBES));
    let paths = paths::ALL.iter().filter(|policy| policy.probes);
    let named: Vec<_> =
        controls.map(|policy| ("control", policy.name)).chain(paths.map(|policy| ("paths", policy.name))).collect();
    assert_eq!(named, [("control", "swift-rate"), ("paths", "probed")]);
    for option in named {
        for transport in ["irn", "roce-gbn", "falcon"] {
            let refused = select(transport, [option]).expect_err("no messages").to_string();
            let is_clear = refused.contains(&format!("`{}` needs probes", option.1)) && refused.contains("[scr]");
            assert!(is_clear && refused.lines().count() == 1, "{refused}");
            let is_selected = select_on(Signals::PROBES, transport, [option]).is_ok();
            assert_eq!(is_selected, transport != "falcon", "{transport} {option:?}");
        }
    }
}

/// Each controller declares the signals it uses: of the registered controllers, all but two use signals.
#[test]
fn every_controller_declares_its_signals() {
    let silent =
        control::ALL.iter().filter(|policy| (policy.interest)(&Params::defaults(policy.params)).needs.is_empty());
    let silent: Vec<_> = silent.map(|policy| policy.name).collect();
    assert_eq!(silent, ["line-rate", "fixed-window"]);
}
