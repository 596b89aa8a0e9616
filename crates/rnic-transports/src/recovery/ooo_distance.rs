//! OOO-distance: a gap far enough below the highest packet that arrived is a loss.
//!
//! Source: Falcon (SIGCOMM'25) section 6.1.1, the heuristic of its first generation; specification Rev 0.9, section
//! 9.2.3 ("early retransmission"). A packet that has not arrived is lost when a packet with a sequence number more
//! than a threshold above it has arrived, and its last transmission was at least a round trip ago: the second
//! condition prevents retransmitting the same packet with each acknowledgement. A loss at the end of a burst is
//! detected only by the timeout (Falcon mechanism F-13): the paper compares RACK-TLP with this heuristic.
//!
//! Deviations and choices: with `tail_probe` it sends probes under the same conditions as RACK-TLP, to separate the
//! contribution of TLP to RACK-TLP's gain; the round trip is smoothed as in Swift (three quarters of the old value);
//! before the first sample no packet is considered lost. The specification compares `last_tx + rtt < now`; so does
//! this policy, to the picosecond. With several flows, each flow uses its own round trip, but the highest packet of
//! all flows, because the distance is measured in sequence numbers, which the flows share (target 1.C: the threshold
//! must be tuned; 12 is enough for four flows).

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, SeqRange, Time};
use rnic_policy::recovery::Interest;
use rnic_policy::{
    FootprintField, LossRule, ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView,
};

use super::rack_tlp::{PROBE, probe_after};

/// State of one flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct OooDistance {
    /// Smoothed round trip, in ps; 0 before the first.
    srtt_ps: u64,
}

const RTO_INDEX: usize = 0;
const THRESHOLD_INDEX: usize = 1;
const TAIL_PROBE_INDEX: usize = 2;
/// Index of the first parameter of [`PROBE`].
const PROBE_FIRST_INDEX: usize = 3;

impl Recovery for OooDistance {
    const NAME: &'static str = "ooo-distance";
    const SUMMARY: &'static str =
        "packets far enough below the highest arrival are lost (Falcon 6.1.1, first generation)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("rto", Duration::from_ms(1), "timeout until the adaptive engine sets another")
        },
        ParamSpec::count("ooo_threshold", 3, 0, 128, "PSNs between a gap and the highest arrival (12 for 4 flows)"),
        ParamSpec::switch("tail_probe", false, "probe when the end of a burst may be lost, as rack-tlp does"),
        PROBE[0],
        PROBE[1],
        PROBE[2],
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::PlaceOutOfOrder;
    const TIMES_PACKETS: bool = true;
    const FOOTPRINT: &'static [FootprintField] = &[FootprintField::connection("smoothed round trip", 32)];

    fn start(_: &Params) -> Self {
        Self { srtt_ps: 0 }
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_INDEX))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Never
    }

    fn tolerates_reordering(params: &Params) -> bool {
        params.get(THRESHOLD_INDEX) > 0
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        let mut actions = RecoveryActions::default();
        match *event {
            RecoveryEvent::Delivered { sent, rtt } => {
                if let Some(rtt) = rtt {
                    let sample = rtt.as_ps().max(1);
                    self.srtt_ps =
                        if self.srtt_ps == 0 { sample } else { self.srtt_ps - self.srtt_ps / 4 + sample / 4 };
                    if params.is_on(TAIL_PROBE_INDEX) {
                        actions.probe = Some(Some(probe_after(self.srtt_ps, params, PROBE_FIRST_INDEX)));
                    }
                }
                actions.lost = self.rule(sent, view, params);
            }
            RecoveryEvent::TimedOut { .. } => actions.retransmit = Some(SeqRange::single(view.una)),
            RecoveryEvent::Quiet => actions.retransmit = Some(SeqRange::single(view.una)),
            RecoveryEvent::Acked { .. }
            | RecoveryEvent::Nacked { .. }
            | RecoveryEvent::Trimmed { .. }
            | RecoveryEvent::Arrived { .. }
            | RecoveryEvent::Congested
            | RecoveryEvent::Tick => {}
        }
        actions
    }
}

impl OooDistance {
    fn rule(&self, sent: Time, view: &WindowView<'_>, params: &Params) -> Option<LossRule> {
        let highest = view.highest_sacked.filter(|_| self.srtt_ps != 0)?;
        let below = highest.since(view.una).saturating_sub(params.get(THRESHOLD_INDEX));
        let range = SeqRange::new(view.una, view.una + below);
        // Judges only packets that were sent no later than the packet that arrived last; packets exactly one round
        // trip old are not judged.
        let sent_until = view.now.as_ps().saturating_sub(self.srtt_ps + 1);
        Some(LossRule { range, sent_until: Time::from_ps(sent_until).min(sent), age: Duration::ZERO })
    }
}
