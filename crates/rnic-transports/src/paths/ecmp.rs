//! One path per queue pair: the label never changes, and switches hash it (equal-cost multi-path).
//!
//! Source: IRN (SIGCOMM'18) section 4.1, "we use ECMP for load-balancing"; a hash per flow is our interpretation.
//!
//! Deviations: none. A flow is a queue pair: all its messages use one path.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathView, Paths};

/// This policy has no state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Ecmp {}

impl Paths for Ecmp {
    const NAME: &'static str = "ecmp";
    const SUMMARY: &'static str = "one label per queue pair, hashed by the switches (IRN 4.1)";
    const PARAMS: &'static [ParamSpec] = &[];
    const REORDERS: bool = false;

    fn start(_: &Params, view: &PathView) -> (Self, PathLabel) {
        (Self {}, PathLabel(view.flow_hash as u16))
    }

    fn per_packet(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, _: &PathEvent, _: &PathView, _: &Params) -> PathActions {
        PathActions::default()
    }
}
