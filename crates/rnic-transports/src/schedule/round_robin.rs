//! Round robin, one packet per turn.
//!
//! Source: Tonic (NSDI'20) section 3.1: the active set is a FIFO, one flow per cycle, reinserted only while it is
//! still eligible.
//!
//! Deviations: the engine's ring is queried when the link is free and not once per cycle. `turn_packets` lengthens
//! the turn for drivers that benefit from runs of packets of one queue pair.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{ParamSpec, Params, Schedule, ScheduleActions, ScheduleEvent, ScheduleView};

/// This policy has no state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RoundRobin {}

const TURN_PACKETS_INDEX: usize = 0;

impl Schedule for RoundRobin {
    const NAME: &'static str = "round-robin";
    const SUMMARY: &'static str = "queue pairs in a ring, a fixed number of packets a turn (Tonic 3.1)";
    const PARAMS: &'static [ParamSpec] =
        &[ParamSpec::count("turn_packets", 1, 1, 256, "packets a queue pair sends in its turn").by_turns()];

    fn start(params: &Params, _: &ScheduleView) -> (Self, ScheduleActions) {
        let turn_packets = Some(params.get(TURN_PACKETS_INDEX) as u32);
        (Self {}, ScheduleActions { turn_packets, ..ScheduleActions::default() })
    }

    fn uses_events(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, _: &ScheduleEvent, _: &ScheduleView, _: &Params) -> ScheduleActions {
        ScheduleActions::default()
    }
}
