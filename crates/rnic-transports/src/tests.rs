//! Every registered policy passes the contract kit; every profile is valid; options have their documented effect.

use rnic_policy::{FalconErrors, Params, Placement, ProfileError, RecoveryPolicy, kit};

use super::*;

const SEEDS: std::ops::Range<u64> = 0..8;
const STEPS_PER_SEED: u64 = 20_000;

#[test]
fn every_recovery_policy_passes_the_kit() {
    for policy in recovery::ALL.iter().chain(programs::policies()) {
        for seed in SEEDS {
            assert_eq!(kit::check_recovery(policy, seed, STEPS_PER_SEED), Ok(()));
        }
    }
}

#[test]
fn every_control_policy_passes_the_kit() {
    for policy in control::ALL {
        for seed in SEEDS {
            assert_eq!(kit::check_control(policy, seed, STEPS_PER_SEED), Ok(()));
        }
    }
}

#[test]
fn every_path_policy_passes_the_kit() {
    for policy in paths::ALL {
        for seed in SEEDS {
            assert_eq!(kit::check_paths(policy, seed, STEPS_PER_SEED), Ok(()));
        }
    }
}

#[test]
fn every_scheduler_passes_the_kit() {
    for policy in schedule::ALL {
        for seed in SEEDS {
            assert_eq!(kit::check_schedule(policy, seed, STEPS_PER_SEED), Ok(()));
        }
    }
}

#[test]
fn every_profile_is_valid_and_its_option_names_are_unique() {
    for profile in profiles() {
        assert_eq!(profile.check(), Ok(()));
        let mut names: Vec<_> = profile.options().map(|(spec, _)| spec.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{}: an option name occurs twice", profile.name);
    }
}

#[test]
fn labels_name_the_policies_that_were_exchanged() {
    for (name, options, expected) in [
        ("irn", &[][..], "irn"),
        ("irn", &[("recovery", "irn"), ("rto_high", "1ms")], "irn"),
        ("roce-gbn", &[("control", "dcqcn")], "roce-gbn + dcqcn"),
        ("irn", &[("recovery", "go-back-n"), ("control", "dcqcn")], "irn + go-back-n + dcqcn"),
        ("tonic-reno", &[], "tonic-reno"),
    ] {
        let transport = select(name, options.iter().copied()).expect("a transport");
        assert_eq!(label(&transport), expected);
    }
}

#[test]
fn each_option_sets_itself_and_nothing_else() {
    let with_recoveries = recovery::ALL.iter().filter_map(|policy| select("irn", [("recovery", policy.name)]).ok());
    for profile in profiles().into_iter().chain(with_recoveries) {
        for (spec, value) in profile.options() {
            let other = if value == spec.min { spec.max } else { spec.min };
            let mut changed = profile.clone();
            changed.set(spec.name, &spec.show(other)).expect("the option exists and the value is within its bounds");
            // One combination is not allowed: see `falcon_without_order_completes_in_error`.
            if (spec.name, &*spec.show(other)) == ("ordering", "unordered") {
                changed.set("errors", "verbs").expect("Falcon has this option");
            }
            let before = profile.options().map(|(spec, value)| (spec.name, value));
            let after = changed.options().map(|(spec, value)| (spec.name, value));
            let expected = before.map(|(name, value)| (name, if name == spec.name { other } else { value }));
            assert!(after.eq(expected), "{}: {} = {}", profile.name, spec.name, spec.show(other));
        }
    }
}

/// Settings that are expressed in timeouts, or scale them, use the timeout of every recovery policy.
#[test]
fn every_recovery_with_a_timeout_marks_its_timeout_options() {
    for policy in recovery::ALL {
        let defaults = Params::defaults(policy.params);
        let Some(timeout) = (policy.initial_rto)(&defaults) else { continue };
        let mut params = defaults;
        for (index, _) in policy.params.iter().enumerate().filter(|(_, spec)| spec.is_timeout()) {
            params = params.with(index, defaults.get(index) * 2);
        }
        assert_eq!((policy.initial_rto)(&params), Some(timeout.saturating_mul(2)), "{}", policy.name);
    }
    let silence_unit_us = |name, options: &[(&str, &str)]| {
        select(name, options.iter().copied())
            .expect("the options are valid")
            .silence_unit()
            .map(|timeout| timeout.as_ns() / 1_000)
    };
    assert_eq!(silence_unit_us("irn", &[("rto_low", "1ms")]), Some(1_000), "not the longest timeout");
    assert_eq!(silence_unit_us("tcp", &[("rto_min", "2ms")]), Some(2_000));
    assert_eq!(
        silence_unit_us("falcon", &[("rto", "1s"), ("rto_min", "3ms")]),
        Some(3_000),
        "not the timeout of the adaptive engine"
    );
    assert_eq!(silence_unit_us("roce-gbn", &[("rto", "0")]), None);
}

#[test]
fn select_replaces_policies_before_it_sets_their_parameters() {
    let profile = select("irn", [("rto", "500us"), ("recovery", "go-back-n")]).expect("rto belongs to go-back-n");
    assert_eq!(profile.recovery.policy.name, "go-back-n");
    assert_eq!(profile.placement(), Placement::Drop);
    let profile = select("irn", [("cap_packets", "0")]).expect("a cap of 0 is allowed");
    assert_eq!(profile.in_flight_max(), 16_384);
    assert_eq!(select("irn", []).expect("the defaults are valid").in_flight_max(), 110);
}

#[test]
fn select_refuses_with_a_one_line_error() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    let refused: [Case; 20] = [
        ("irn", &[("recovery", "rack-tlp")], "only Falcon's windows"),
        ("quic", &[], "roce-gbn, irn, roce-sr"),
        ("irn", &[("recovery", "magic")], "fasr, go-back-n, irn"),
        ("irn", &[("rto_lo", "1us")], "rto_low"),
        ("irn", &[("rto_low", "1 parsec")], "parsec"),
        ("irn", &[("cap_packets", "20000")], "16384"),
        ("irn", &[("paths", "spray")], "NACK threshold"),
        ("irn", &[("ack_every_packets", "64")], "acknowledges every packet"),
        ("falcon", &[("errors", "verbs"), ("ordering", "unordered")], "ordering=unordered does not define"),
        ("falcon", &[("ordering", "unordered"), ("errors", "verbs")], "omit errors, or set ordering=weak"),
        ("falcon", &[("isolation_packets", "9")], "isolation_packets=9 has an effect only with isolation=static"),
        ("falcon", &[("paths", "spray"), ("spray_paths", "8")], "unknown parameter `spray_paths`"),
        ("falcon", &[("schedule", "round-robin")], "`round-robin`, which sets turns, has no effect"),
        ("falcon", &[("turn_packets", "1")], "unknown parameter `turn_packets`"),
        ("falcon", &[("schedule", "water-filling"), ("turn_bytes", "4KiB")], "unknown parameter `turn_bytes`"),
        ("falcon", &[("schedule", "static"), ("calibration", "figure-11")], "unknown parameter `calibration`"),
        ("falcon", &[("turn_packets", "256")], "unknown parameter `turn_packets`"),
        ("falcon", &[("flows", "4"), ("paths", "ecmp")], "path policy `ecmp` sends every packet on the first flow"),
        ("falcon", &[("paths", "ecmp"), ("flows", "2")], "largest-window, spray or scatter"),
        ("falcon", &[("ordering", "weakly")], "`weakly` is not one of ordered, weak, unordered"),
    ];
    for (name, options, expected) in refused {
        let error = select(name, options.iter().copied()).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    }
}

/// Rev 0.9, RDMA section 6: unordered connections complete in error, even if the option `errors` is not set; ordered
/// connections are unchanged.
#[test]
fn falcon_without_order_completes_in_error() {
    let errors = |name: &str, options: &[(&str, &str)]| {
        let profile = select(name, options.iter().copied()).expect("the transport exists");
        profile.protocol.falcon().expect("the transport is Falcon").errors
    };
    assert_eq!(errors("falcon", &[("ordering", "unordered")]), FalconErrors::CompleteInError);
    assert_eq!(errors("falcon", &[("errors", "complete-in-error")]), FalconErrors::CompleteInError);
    assert_eq!(errors("falcon", &[("ordering", "weak")]), FalconErrors::Verbs);
    assert_eq!(
        errors("falcon", &[("ordering", "unordered"), ("ordering", "weak")]),
        FalconErrors::Verbs,
        "the last option did not apply"
    );
    assert_eq!(errors("falcon", &[]), FalconErrors::Verbs);
}

/// The registry's profiles contain no values that would be rejected in a user's settings.
#[test]
fn falcon_has_one_flow_with_any_paths_and_no_options_of_schedulers() {
    for policy in paths::ALL.iter().filter(|policy| !policy.probes) {
        let profile = select("falcon", [("paths", policy.name)]).expect("every path policy can send on one flow");
        assert!(profile.options().all(|(spec, _)| spec.name != "turn_packets"), "{}", policy.name);
        assert_eq!(select("falcon", [("paths", policy.name), ("flows", "8")]).is_ok(), policy.reorders);
    }
    for policy in schedule::ALL {
        let sets_rates = ["static", "water-filling"].contains(&policy.name);
        assert_eq!(select("falcon", [("schedule", policy.name)]).is_ok(), sets_rates, "{}", policy.name);
    }
    let turns = select("irn", [("schedule", "round-robin"), ("turn_packets", "256")]).expect("IRN uses a scheduler");
    assert!(turns.options().any(|(spec, value)| (spec.name, value) == ("turn_packets", 256)));
}

/// The adaptive engine computes RACK's and TLP's times instead of the recovery policy.
#[test]
fn options_shared_by_recovery_and_the_adaptive_engine_are_set_in_both() {
    const SHARED: [(&str, &str); 5] = [
        ("reorder_percent", "50"),
        ("reorder_min", "7us"),
        ("probe_percent", "150"),
        ("probe_extra", "9us"),
        ("probe_min", "11us"),
    ];
    let distance = [("recovery", "ooo-distance"), ("tail_probe", "true")];
    let distance =
        select("falcon", distance.into_iter().chain(SHARED[2..].iter().copied())).expect("ooo-distance has probes");
    let rack = select("falcon", SHARED).expect("rack-tlp has these parameters");
    let cases = SHARED.map(|shared| (&rack, shared)).into_iter().chain(SHARED[2..].iter().map(|s| (&distance, *s)));
    for (profile, (name, text)) in cases {
        let of = |specs: &[rnic_policy::ParamSpec], params: rnic_policy::Params| {
            let index = specs.iter().position(|spec| spec.name == name).expect(name);
            (specs[index].default, params.get(index), specs[index].parse(text).expect(name))
        };
        let (recovery, control) = (&profile.recovery, &profile.control);
        let set = of(recovery.policy.params, recovery.params);
        assert_eq!(set, of(control.policy.params, control.params), "{name}: value or default differ");
        assert!(set.1 == set.2 && set.1 != set.0, "{name}: {set:?}");
        assert_eq!(profile.options().filter(|(spec, _)| spec.name == name).count(), 1, "{name}");
    }
}

/// Falcon's windows do not report NACKs of gaps to recovery policies: policies that depend on them would not differ
/// from the others, and are rejected.
#[test]
fn falcon_refuses_recovery_policies_that_need_nacks() {
    let (timed, others): (Vec<&RecoveryPolicy>, Vec<_>) = recovery::ALL.iter().partition(|policy| policy.times_packets);
    assert!(timed.len() > 1 && !others.is_empty(), "too few policies that time packets, or no others");
    for policy in timed {
        assert!(select("falcon", [("recovery", policy.name)]).is_ok(), "{}", policy.name);
    }
    for name in others.iter().map(|policy| policy.name) {
        let error = select("falcon", [("recovery", name)]).expect_err(name).to_string();
        assert!(error.contains(name) && error.contains("rack-tlp") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn options_of_the_adaptive_engine_alone_are_set_there() {
    let distance = [("recovery", "ooo-distance"), ("probe_percent", "150")];
    let profile = select("falcon", distance).expect("Falcon has this option without probes too");
    assert!(profile.options().any(|(spec, value)| (spec.name, value) == ("probe_percent", 150)));
    let refused = [
        select("falcon", [("recovery", "ooo-distance"), ("reorder_percent", "50")]),
        select("irn", [("control", "swift"), ("reorder_percent", "50")]),
    ];
    for refused in refused {
        let error = refused.expect_err("the parameter does not exist").to_string();
        assert!(error.contains("unknown parameter `reorder_percent`") && error.lines().count() == 1, "{error}");
    }
    for (name, text) in [("probe_min", "1us"), ("plb_rounds", "3"), ("alpha", "2"), ("hop_delay", "2us")] {
        let error = select("irn", [("control", "swift"), (name, text)]).expect_err(name).to_string();
        assert!(error.contains(&format!("unknown parameter `{name}`")), "not refused as an unknown parameter: {error}");
        assert!(select("falcon", [(name, text)]).is_ok(), "{name}");
    }
    let floor = select("tcp", [("control", "swift"), ("rto_min", "200ms")]);
    assert!(floor.is_ok(), "TCP has its own rto_min, with larger values: {floor:?}");
}

#[test]
fn select_allows_spraying_with_a_nack_threshold() {
    let profile =
        select("irn", [("paths", "spray"), ("nack_threshold", "16")]).expect("a NACK threshold tolerates reordering");
    assert_eq!(profile.paths.policy.name, "spray");
    for name in ["roce-gbn", "tonic-irn", "tonic-new-reno"] {
        assert!(matches!(
            select(name, [("paths", "spray")]),
            Err(SelectError::Composition(ProfileError::ReorderingCausesRetransmission(..)))
        ));
    }
    select("tonic-ndp", [("paths", "spray")]).expect("NDP retransmits what was trimmed");
}

mod footprint;
mod irn_recovery;
mod rfc_examples;
mod roce_recovery;
mod signals;
mod tcp_recovery;
mod window;
