//! Oblivious spraying: every packet has the next label of a small set, independent of the state of the paths.
//!
//! Source: the extreme that Falcon (SIGCOMM'25) section 4.3 names and that, according to IRN (SIGCOMM'18) section 7,
//! its recovery can support with a NACK threshold. It reorders packets by design, so its combination with recovery
//! that treats every gap as a loss is rejected. Where a connection has several flows (Falcon), packets are sent on
//! one flow after the other.
//!
//! Deviations and choices: labels are used in rotation and not at random, so that a run can be repeated and no path
//! gets two packets in a row; labels select different paths only as far as the switches' hashes separate them.

use bytemuck::{Pod, Zeroable};
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathView, Paths};

/// The current label.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Spray {
    first: u16,
    index: u16,
}

const PATH_COUNT_INDEX: usize = 0;

impl Paths for Spray {
    const NAME: &'static str = "spray";
    const SUMMARY: &'static str = "the next of a few labels for every packet, round robin (Falcon 4.3)";
    const PARAMS: &'static [ParamSpec] =
        &[ParamSpec::count("spray_paths", 4, 1, 1_024, "labels that packets are spread over").by_labels()];
    const REORDERS: bool = true;

    fn start(_: &Params, view: &PathView) -> (Self, PathLabel) {
        let first = view.flow_hash as u16;
        (Self { first, index: 0 }, PathLabel(first))
    }

    fn per_packet(_: &Params) -> bool {
        true
    }

    fn on_event(&mut self, event: &PathEvent, _: &PathView, params: &Params) -> PathActions {
        match event {
            PathEvent::Sending { .. } => {
                self.index = (self.index + 1) % params.get(PATH_COUNT_INDEX) as u16;
                let label = PathLabel(self.first.wrapping_add(self.index));
                PathActions { label: Some(label), ..PathActions::default() }
            }
            PathEvent::Choosing { open, .. } => {
                let flow = self.index % open.as_slice().len() as u16;
                self.index = flow + 1;
                PathActions { flow: Some(flow as u8), ..PathActions::default() }
            }
            _ => PathActions::default(),
        }
    }
}
