//! Selects the flow with the largest open window: congestion-aware multipath.
//!
//! Source: Falcon (SIGCOMM'25) section 4.3, mechanism F-26: each packet is sent on the flow with the largest open
//! window, its `fcwnd` minus its unacknowledged packets. A slow path delays acknowledgements, which shrinks the
//! window of its flow, so it carries fewer packets.
//!
//! Deviations: none. A choice: ties are broken round-robin, from the flow after the last one chosen (the paper does
//! not specify it). Nothing is random, so a replay makes the same choices.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathView, Paths};

/// Path policy that sends each packet on the flow with the most open congestion window. `last` is the flow of the
/// previous packet: the search starts at the flow after it, which therefore wins ties.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct LargestWindow {
    last: u8,
}

impl Paths for LargestWindow {
    const NAME: &'static str = "largest-window";
    const SUMMARY: &'static str = "for every packet the flow with the most open congestion window (Falcon 4.3)";
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
