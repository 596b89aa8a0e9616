//! Go-back-N: when a packet is missing, it and all later packets are retransmitted.
//!
//! Source: InfiniBand Architecture volume 1, section 9.7.5 (requester behaviour on a PSN sequence error and on
//! timeout); IRN (SIGCOMM'18) sections 2.1 and 4.1 for the role as RoCE's recovery and for the timeout.
//!
//! Deviations: none in the sender. The verbs timeout (4.096 us times a power of two) is replaced by one fixed value,
//! IRN's RTO_high, as in the paper's baseline; it is disabled (`rto = 0`) where PFC makes the network lossless, "to
//! prevent spurious retransmissions" (section 4.1).
//!
//! `rto_from_last_sent` starts the timer at the last packet sent and not at the last acknowledgement: for baselines
//! that send almost no acknowledgements (`roce-irnpaper`), where a long message would time out while it is being
//! sent. It corresponds to the timer of a receiver that waits for the next packet of a Read.

use bytemuck::{Pod, Zeroable};
use rnic_base::Duration;
use rnic_policy::recovery::Interest;
use rnic_policy::{ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// This policy has no state besides the window itself.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct GoBackN {}

const RTO_INDEX: usize = 0;
const FROM_LAST_SENT_INDEX: usize = 1;

impl Recovery for GoBackN {
    const NAME: &'static str = "go-back-n";
    const SUMMARY: &'static str = "on a NAK or a timeout, retransmit everything outstanding (IBA 9.7.5)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::duration(
            "rto",
            Duration::from_us(320),
            "retransmission timeout; 0 for none, as under PFC (IRN section 4.1: RTO_high)",
        ),
        ParamSpec::switch("rto_from_last_sent", false, "the timeout counts from the last packet sent"),
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::Drop;

    fn start(_: &Params) -> Self {
        Self {}
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_INDEX)).filter(|rto| *rto != Duration::ZERO)
    }

    fn interest(_: &Params) -> Interest {
        Interest::Never
    }

    fn times_last_sent(params: &Params) -> bool {
        params.is_on(FROM_LAST_SENT_INDEX)
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, _: &Params) -> RecoveryActions {
        let retransmit = match event {
            RecoveryEvent::Nacked { .. } | RecoveryEvent::TimedOut { .. } => Some(view.outstanding()),
            RecoveryEvent::Acked { .. }
            | RecoveryEvent::Delivered { .. }
            | RecoveryEvent::Trimmed { .. }
            | RecoveryEvent::Quiet
            | RecoveryEvent::Arrived { .. }
            | RecoveryEvent::Congested
            | RecoveryEvent::Tick => None,
        };
        RecoveryActions { retransmit, ..RecoveryActions::default() }
    }
}
