//! No congestion control: line rate from the first packet, bounded only by the profile's static cap.
//!
//! Source: IRN (SIGCOMM'18) section 4.1, "the flow starts at line-rate for all cases"; mechanism I-10: no slow start,
//! no reaction to loss.
//!
//! Deviations: none. Packets in flight are bounded by the profile's cap; where there is no cap (`roce-gbn`), they are
//! unbounded.

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::ControlInterest;
use rnic_policy::{Control, ControlActions, ControlEvent, ControlView, ParamSpec, Params};

/// This policy has no state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct LineRate {}

impl Control for LineRate {
    const NAME: &'static str = "line-rate";
    const SUMMARY: &'static str = "none: send at line rate, within the static cap (IRN 4.1)";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
        (Self {}, ControlActions::default())
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest::default()
    }

    fn on_event(&mut self, _: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
        ControlActions::default()
    }
}
