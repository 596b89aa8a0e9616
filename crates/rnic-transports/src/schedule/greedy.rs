//! Greedy: a queue pair keeps its turn until it has sent a number of bytes or messages.
//!
//! Source: SCR (NSDI'25) section 5.1 and mechanism S-19: the scheduler of its adapter without software control. It is
//! work conserving and sets no rates, and it favours queue pairs with large messages.
//!
//! Deviations: how the adapter really ends a turn is not published. Each calibration is a set with which a model of
//! one figure comes close to that figure, and no set fits all of them:
//!
//! | calibration | turn | derived from |
//! |---|---|---|
//! | `table-2` | 64 KiB or 9 messages | 4 KB beside 64 KB messages: 33 to 58 Gbit/s |
//! | `figure-11` | 64 KiB or 1 message | 4 KB beside 1 MB messages: fairness improves by 1.78 |
//! | `figure-12` | 1 MiB or 1 message | random sizes of 4 KB to 1 MB: whole messages |
//!
//! The engine's own default is [`round-robin`](super::round_robin), one packet a turn, which is fair at any size of
//! messages: results against this policy are results against a greedy scheduler, not against that default.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{
    ParamSpec, Params, Schedule, ScheduleActions, ScheduleEvent, ScheduleView, TURN_PACKETS_MAX,
};

/// This policy has no state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Greedy {}

/// Names of the calibrations, and `packet` for a turn of one packet.
const CALIBRATIONS: [&str; 4] = ["table-2", "figure-11", "figure-12", "packet"];

/// Packets, bytes and messages of a turn, by calibration.
const TURNS: [(u32, u32, u32); 4] = [
    (TURN_PACKETS_MAX, 64 << 10, 9),
    (TURN_PACKETS_MAX, 64 << 10, 1),
    (TURN_PACKETS_MAX, 1 << 20, 1),
    (1, u32::MAX, u32::MAX),
];

/// Number of parameters that describe a turn; a policy's first parameters.
pub(super) const TURN_PARAMS: usize = 3;

/// Turns below the rates that a scheduler sets: one packet.
pub(super) const ONE_PACKET: u64 = 3;

/// Returns the parameters that describe a turn, with the calibration at index `default`.
pub(super) const fn turn_params(default: u64) -> [ParamSpec; TURN_PARAMS] {
    [
        ParamSpec::choice(
            "calibration",
            &CALIBRATIONS,
            default,
            "turn as of SCR's Table 2 (64 KiB or 9 messages), Figure 11 (64 KiB or 1), Figure 12 (1 MiB or 1)",
        )
        .by_turns(),
        ParamSpec::bytes("turn_bytes", 0, 0, 1 << 20, "bytes of a turn; 0 for those of the calibration").by_turns(),
        ParamSpec::count("turn_messages", 0, 0, 4_096, "messages of a turn; 0 for those of the calibration").by_turns(),
    ]
}

/// Returns the actions that set how much a queue pair may send per turn, as given by `params`.
pub(super) fn turn_actions(params: &Params) -> ScheduleActions {
    let (mut packets, bytes, messages) = TURNS[params.get(0) as usize];
    if params.get(1) + params.get(2) > 0 {
        packets = TURN_PACKETS_MAX;
    }
    let or_default = |index: usize, default: u32| match params.get(index) as u32 {
        0 => default,
        value => value,
    };
    ScheduleActions {
        turn_packets: Some(packets),
        turn_bytes: Some(or_default(1, bytes)),
        turn_messages: Some(or_default(2, messages)),
        ..ScheduleActions::default()
    }
}

impl Schedule for Greedy {
    const NAME: &'static str = "greedy";
    const SUMMARY: &'static str = "turns of many bytes, as an adapter without software control (SCR 5.1)";
    const PARAMS: &'static [ParamSpec] = &turn_params(0);

    fn start(params: &Params, _: &ScheduleView) -> (Self, ScheduleActions) {
        (Self {}, turn_actions(params))
    }

    fn uses_events(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, _: &ScheduleEvent, _: &ScheduleView, _: &Params) -> ScheduleActions {
        ScheduleActions::default()
    }
}
