//! Recovery by timeout alone: RoCE's adaptive-routing mode.
//!
//! Source: Falcon (SIGCOMM'25) section 6.1.1 and its figure 12: with adaptive routing enabled, a ConnectX-7 sends no
//! signal for an early retransmission, because out-of-order packets are normal there; the mode is meant for lossless
//! fabrics. Targets 1.C and E1-10 require a small model of it.
//!
//! Deviations and choices: receivers accept out-of-order Writes and responses ([`Placement::PlaceWrites`]), drop all
//! other out-of-order packets, and report neither; a timeout retransmits all outstanding packets, as in go-back-N.
//! Headers are those of `cx7-selective`.

use bytemuck::{Pod, Zeroable};
use rnic_base::Duration;
use rnic_policy::recovery::Interest;
use rnic_policy::{ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// This policy has no state besides the window itself.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TimeoutOnly {}

const RTO_INDEX: usize = 0;

impl Recovery for TimeoutOnly {
    const NAME: &'static str = "timeout-only";
    const SUMMARY: &'static str = "no NACKs: on a timeout, retransmit everything outstanding (Falcon 6.1.1, RoCE-AR)";
    const PARAMS: &'static [ParamSpec] = &[ParamSpec {
        min: Duration::from_us(1).as_ps(),
        ..ParamSpec::duration("rto", Duration::from_us(320), "retransmission timeout (as go-back-N's)")
    }];
    const GAP_IS_LOSS: bool = false;
    const PLACEMENT: Placement = Placement::PlaceWrites;
    const REPORTS_GAPS: bool = false;

    fn start(_: &Params) -> Self {
        Self {}
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_INDEX))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Never
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, _: &Params) -> RecoveryActions {
        let retransmit = matches!(event, RecoveryEvent::TimedOut { .. }).then(|| view.outstanding());
        RecoveryActions { retransmit, ..RecoveryActions::default() }
    }
}
