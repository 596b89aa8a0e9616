//! The flow whose window is open furthest: congestion-aware multipath.
//!
//! Source: Falcon (SIGCOMM'25) section 4.3, mechanism F-26: each packet takes the flow with the largest open window,
//! its `fcwnd` less its unacknowledged packets. A slow path acknowledges late and shrinks its window, so it draws
//! less.
//!
//! Deviations: none; a choice: ties go round the flows from the one after the last that was chosen (the paper is
//! silent). Nothing is random, so a replay chooses alike.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathView, Paths};

/// Where ties are broken from.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct LargestWindow {
    last: u8,
}

impl Paths for LargestWindow {
    const NAME: &'static str = "largest-window";
    const SUMMARY: &'static str = "the flow whose congestion window is open furthest, for every packet (Falcon 4.3)";
    const PARAMS: &'static [ParamSpec] = &[];
    const REORDERS: bool = true;

    fn start(_: &Params, view: &PathView) -> (Self, PathLabel) {
        (Self { last: u8::MAX }, PathLabel(view.flow_hash as u16))
    }

    fn per_packet(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, event: &PathEvent, _: &PathView, _: &Params) -> PathActions {
        let PathEvent::Choosing { open, .. } = event else { return PathActions::default() };
        let open = open.as_slice();
        let first = usize::from(self.last.wrapping_add(1)) % open.len();
        let mut chosen = first;
        for step in 1..open.len() {
            let flow = (first + step) % open.len();
            if open[flow] > open[chosen] {
                chosen = flow;
            }
        }
        self.last = chosen as u8;
        PathActions { flow: Some(chosen as u8), ..PathActions::default() }
    }
}
