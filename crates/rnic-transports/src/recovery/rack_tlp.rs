//! RACK-TLP: distinguishes loss from reordering by time, and sends a probe when the end of a burst is lost.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 and 4.3, which adapts RFC 8985; the specification (Rev 0.9) has one line
//! about it. The rule: when a packet sent at `xmit_ts` is known to have arrived, packets that were sent before it and
//! have not arrived are lost once `rack_rto` has passed since their transmission; packets sent later are not judged.
//! The state is that of one flow (Falcon mechanism F-29): arrivals on a fast path carry no information about a slow
//! one. After a time without packets or acknowledgements, the lowest missing packet is retransmitted as a probe; its
//! acknowledgement triggers the first rule.
//!
//! Choices where the paper does not specify the behaviour:
//!
//! * `rack_rto` is the age of the arrived packet at the time its arrival became known, plus 0.25 of its flow's
//!   smoothed round trip (RFC 8985's reordering window); smoothing gives the old value a weight of three quarters, as
//!   in Swift;
//! * a probe is due 2 round trips and the receiver's coalescing time after the last packet, as in the public simulator;
//! * the probe is the lowest packet that has not arrived; if all have arrived, it is the lowest packet that is not
//!   acknowledged, because acknowledgements can be lost too;
//! * acknowledgements without bitmaps are treated like bitmaps of zeros: according to specification 3.3 an EACK is sent
//!   whenever a packet arrived beyond the base. A probe that fills the only known gap causes an acknowledgement without
//!   a bitmap, and losses after it must not wait for a timeout (Falcon mechanism F-12).
//!
//! Deviations from RFC 8985: the reordering window does not grow with duplicates (there is no D-SACK here); more than
//! one probe may follow a flight, each after twice the wait of the one before (implemented by the window) and none
//! later than the timeout, so that after a lost probe the sender does not have to wait for the timeout. The adaptive
//! engine may replace all three times (Falcon mechanism F-15); Swift then computes them with the same parameters
//! ([`REORDER`], [`PROBE`]).

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, SeqRange, Time};
use rnic_policy::recovery::Interest;
use rnic_policy::{
    FootprintField, LossRule, ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView,
};

/// State of one flow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RackTlp {
    /// `xmit_ts`: transmit time of the most recently sent packet that is known to have arrived, in ps; 0 before the
    /// first.
    latest_ps: u64,
    /// `rack_rto` as computed when the arrival of the most recently sent of the delivered packets became known, in ps.
    age_ps: u64,
    /// Smoothed round trip, in ps; 0 before the first.
    srtt_ps: u64,
}

/// Parameters of the reordering window: a share of the round trip, and the minimum.
pub(crate) const REORDER: [ParamSpec; 2] = [
    ParamSpec::count("reorder_percent", 25, 0, 400, "reordering window in percent of the round trip (RFC 8985)"),
    span("reorder_min", Duration::ZERO, "reordering window at least"),
];

/// Parameters of the time from the last packet to a probe: a share of the round trip, an additional time, and the
/// minimum.
pub(crate) const PROBE: [ParamSpec; 3] = [
    ParamSpec::count("probe_percent", 200, 100, 1_600, "probe after this, in percent of the round trip (RFC 8985)"),
    ParamSpec {
        min: Duration::from_ns(1).as_ps(),
        ..span("probe_extra", Duration::from_us(8), "added to that: the receiver's coalescing time")
    },
    span("probe_min", Duration::ZERO, "probe after this at the earliest"),
];

/// Returns a time parameter whose values fit the 24 bits of an adaptive engine's times.
const fn span(name: &'static str, default: Duration, help: &'static str) -> ParamSpec {
    ParamSpec { max: Duration::from_secs(2).as_ps(), ..ParamSpec::duration(name, default, help) }
}

const RTO_INDEX: usize = 0;
const REORDER_PERCENT_INDEX: usize = 1;
const REORDER_MIN_INDEX: usize = 2;
/// Index of the first parameter of [`PROBE`].
const PROBE_FIRST_INDEX: usize = 3;

/// Longest wait for a probe or an out-of-order packet: with any parameters, the timeout expires earlier.
const WAIT_MAX: Duration = Duration::from_secs(10);

impl Recovery for RackTlp {
    const NAME: &'static str = "rack-tlp";
    const SUMMARY: &'static str =
        "packets sent before one that arrived are lost; a probe recovers lost tails (Falcon 4.1)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("rto", Duration::from_ms(1), "timeout until the adaptive engine sets another")
        },
        REORDER[0],
        REORDER[1],
        PROBE[0],
        PROBE[1],
        PROBE[2],
    ];
    const GAP_IS_LOSS: bool = false;
    const PLACEMENT: Placement = Placement::PlaceOutOfOrder;
    const TIMES_PACKETS: bool = true;
    const FOOTPRINT: &'static [FootprintField] = &[
        FootprintField::connection("transmit time of the latest packet that arrived, and its waiting time", 2 * 32),
        FootprintField::connection("smoothed round trip", 32),
    ];

    fn start(_: &Params) -> Self {
        Self { latest_ps: 0, age_ps: 0, srtt_ps: 0 }
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_INDEX))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Never
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        let mut actions = RecoveryActions::default();
        match *event {
            RecoveryEvent::Delivered { sent, rtt } => {
                if let Some(rtt) = rtt {
                    self.add_rtt_sample(rtt);
                    actions.probe = Some(Some(probe_after(self.srtt_ps, params, PROBE_FIRST_INDEX)));
                }
                self.on_delivery(sent, view.now, params);
                actions.lost = Some(self.rule(view));
            }
            RecoveryEvent::Quiet => actions.retransmit = Some(SeqRange::single(lowest_missing(view))),
            RecoveryEvent::TimedOut { .. } => actions.retransmit = Some(SeqRange::single(view.una)),
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

impl RackTlp {
    fn add_rtt_sample(&mut self, rtt: Duration) {
        let sample = rtt.as_ps().max(1);
        self.srtt_ps = if self.srtt_ps == 0 { sample } else { self.srtt_ps - self.srtt_ps / 4 + sample / 4 };
    }

    /// Handles the arrival of a packet that was sent later than any other packet known to have arrived.
    fn on_delivery(&mut self, sent: Time, now: Time, params: &Params) {
        if sent.as_ps() > self.latest_ps {
            self.latest_ps = sent.as_ps();
            let window =
                percent(self.srtt_ps, params.get(REORDER_PERCENT_INDEX)).max(params.duration(REORDER_MIN_INDEX));
            self.age_ps = (now.since(sent).as_ps() + window.as_ps()).min(WAIT_MAX.as_ps());
        }
    }

    fn rule(&self, view: &WindowView<'_>) -> LossRule {
        let sent_until = Time::from_ps(self.latest_ps).min(view.now);
        LossRule { range: view.outstanding(), sent_until, age: Duration::from_ps(self.age_ps) }
    }
}

/// Returns the time from the last packet to a probe, from the round trip and [`PROBE`], which is stored in `params`
/// from index `first_index` on.
pub(super) fn probe_after(srtt_ps: u64, params: &Params, first_index: usize) -> Duration {
    let wait = percent(srtt_ps, params.get(first_index)).as_ps() + params.duration(first_index + 1).as_ps();
    Duration::from_ps(wait).max(params.duration(first_index + 2)).min(WAIT_MAX)
}

/// Returns `share` percent of `whole_ps`; a product that overflows is treated as longer than any wait.
fn percent(whole_ps: u64, share: u64) -> Duration {
    Duration::from_ps((whole_ps.saturating_mul(share) / 100).min(WAIT_MAX.as_ps()))
}

/// Returns the lowest packet that has not arrived; if all have arrived, the lowest that is not acknowledged.
fn lowest_missing(view: &WindowView<'_>) -> rnic_base::Seq {
    let missing = view.sacked.and_then(|ring| ring.first_zero(0)).map(|offset| view.una + u64::from(offset));
    missing.filter(|seq| *seq < view.next).unwrap_or(view.una)
}
