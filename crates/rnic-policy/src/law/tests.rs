//! Laws that answer with anything, and more laws than there are slots.

use rnic_program::prelude::*;

use super::{LAWS_MAX, LawError, LawPolicy, policy_of};
use crate::kit::{check_control, check_paths, check_schedule};

const EVENTS: u64 = 20_000;

/// Declares a law that sets each output to a number that depends on all events before, often the largest one.
macro_rules! wild {
    ($module:ident, $kind:ident, $input:ident, $output:ident, |$e:ident, $s:ident, $a:ident| { $($body:tt)* }) => {
        mod $module {
            use rnic_program::prelude::*;

            rnic_program::law! {
                /// Answers with anything.
                law Wild("wild") for $kind
                state State {
                    noise: 24 = 77,
                }
                parameters Parameters {
                    /// Adds to the noise.
                    step: 24 = 12345 [1..=9999999],
                }
            }

            #[program]
            pub fn decide($e: &$input, p: &Parameters, $s: &mut State, $a: &mut $output) {
                $s.noise = $s.noise * 1103 + p.step + $e.now.to::<24>();
                let is_large = $s.noise.to::<1>() == 1;
                $s.noise = if is_large { u(0xff_ffff) } else { $s.noise };
                $($body)*
            }
        }
    };
}

wild!(control, control, ControlInput, ControlOutput, |e, s, a| {
    a.window = s.noise;
    a.rate = s.noise;
    a.tick = s.noise & (e.rtt | 1);
    a.probe = s.noise & 3;
});

wild!(schedule, schedule, ScheduleInput, ScheduleOutput, |e, s, a| {
    a.rate = s.noise;
    a.packets = s.noise.to::<12>();
    a.bytes = s.noise & e.wire_bytes;
    a.messages = s.noise.to::<16>();
    a.saturated = s.noise.to::<2>() == 3;
    a.tick = s.noise & 7;
});

wild!(paths, paths, PathInput, PathOutput, |e, s, a| {
    a.relabel = s.noise.to::<2>() == 3;
    a.label = s.noise.to::<16>();
    a.probe = e.tick;
    a.path = s.noise.to::<3>();
    a.timeout = s.noise & 1;
    a.tick = s.noise & 1;
    a.drain = s.noise.to::<3>() == 1;
});

wild!(sprayer, paths, PathInput, PathOutput, |e, s, a| {
    a.relabel = e.sending;
    a.label = s.noise.to::<16>();
    a.flow = s.noise.to::<3>();
});

/// The policy of a law that answers with anything keeps the contract, and a process holds no more laws than slots.
#[test]
fn t28_any_answer_of_a_law_is_cut_to_the_contract_and_slots_run_out() {
    let laws: [&'static dyn Law; 4] = [&control::Wild, &schedule::Wild, &paths::Wild, &sprayer::Wild];
    for (number, law) in laws.into_iter().enumerate() {
        match policy_of("wild", law, false).expect("there are free slots") {
            LawPolicy::Control(policy) => check_control(&policy, 9, EVENTS).expect("it is cut"),
            LawPolicy::Schedule(policy) => check_schedule(&policy, 9, EVENTS).expect("it is cut"),
            LawPolicy::Paths(policy) => {
                assert_eq!(policy.reorders, number == 3, "only the last one moves in each packet");
                check_paths(&policy, 9, EVENTS).expect("it is cut");
            }
        }
    }
    for _ in laws.len()..LAWS_MAX {
        policy_of("wild", &control::Wild, false).expect("there are free slots");
    }
    let error = policy_of("wild", &control::Wild, false).expect_err("no slot is free");
    assert_eq!(error, LawError::Many);
}
