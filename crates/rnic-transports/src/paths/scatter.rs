//! Random spraying: every packet is sent on a random flow, independent of the state of the paths.
//!
//! Source: the scheme that Falcon (SIGCOMM'25) section 4.3 calls spraying packets across flows oblivious of
//! congestion; provided in addition to round robin (`spray`) because the two differ in the time between two packets
//! of a flow.
//!
//! Deviations: none; the paper does not specify the random choice. Here a choice is the next output of a linear
//! congruential generator (Knuth's constants for 64 bits) seeded from the connection's hash: no entropy is used, and
//! the choices are the same in every run.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathView, Paths};

/// Per-flow state of the path policy that scatters packets at random: the state of its random number generator.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Scatter {
    state: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

impl Paths for Scatter {
    const NAME: &'static str = "scatter";
    const SUMMARY: &'static str = "for every packet a random one of the connection's flows (Falcon 4.3)";
    const PARAMS: &'static [ParamSpec] = &[];
    const REORDERS: bool = true;

    fn start(_: &Params, view: &PathView) -> (Self, PathLabel) {
        (Self { state: view.flow_hash }, PathLabel(view.flow_hash as u16))
    }

    fn per_packet(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, event: &PathEvent, _: &PathView, _: &Params) -> PathActions {
        let PathEvent::Choosing { open, .. } = event else { return PathActions::default() };
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        // The high bits have the better quality; they are scaled to the number of flows.
        let flow = ((self.state >> 32) * open.as_slice().len() as u64) >> 32;
        PathActions { flow: Some(flow as u8), ..PathActions::default() }
    }
}
