//! TCP's loss recovery with selective acknowledgements.
//!
//! Source: RFC 6675 (scoreboard, when a packet is lost, pipe), RFC 6582 (partial acknowledgements), RFC 6298
//! (timeout). Together with `new-reno` it represents iWARP's transport, the full TCP of IRN (SIGCOMM'18) section 4.6.
//!
//! Mapping of the parts: the scoreboard is the engine's window; `IsLost` is [`TcpSack::lost_below`]; `SetPipe` and the
//! rule that a retransmission needs space in the window are implemented by the engine's send limit.
//!
//! Deviations and choices:
//!
//! * packets instead of bytes: a packet is lost when `dupthresh` packets above it have been selectively acknowledged;
//! * one selective acknowledgement per out-of-order packet, and acknowledgements are not delayed: the receiver is
//!   IRN's. When an acknowledgement is lost, its SACK block is lost with it; TCP would repeat the block in the next
//!   two acknowledgements;
//! * an acknowledgement in recovery that uncovers a packet not yet retransmitted retransmits it (RFC 6582, step 3),
//!   though RFC 6675 would wait for more evidence; there is no rescue retransmission, and no limited transmit beyond
//!   the window;
//! * a retransmission that is lost is detected by timeout; a timeout does not clear the scoreboard, but treats all
//!   other outstanding packets as lost (RFC 6675, section 5.1 allows it: the receivers here never discard packets
//!   they acknowledged selectively);
//! * the timeout is at least `rto_min`, 320 us and not a second: IRN's RTO_high, so that tail latencies are
//!   comparable (our choice). It is also the first timeout. It doubles each time it expires, up to `rto_max`, until a
//!   round trip is measured again (sections 5.5 and 5.7); the clock has no granularity.

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Seq, SeqRange};
use rnic_policy::footprint::PSN_BITS;
use rnic_policy::recovery::{Interest, TimerChange};
use rnic_policy::{FootprintField, ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// Per-window state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TcpSack {
    /// Recovery ends when all packets before this one are acknowledged: RecoveryPoint plus one.
    recovers_to: u64,
    /// Packets below this one have been retransmitted in this recovery: HighRxt plus one.
    retransmitted_below: u64,
    /// Smoothed round-trip time, nanoseconds; 0 before the first sample.
    srtt_ns: u64,
    /// Mean deviation of the round-trip time, nanoseconds.
    rttvar_ns: u64,
    /// Current timeout, nanoseconds; 0 until a round trip is measured or the timeout expires.
    rto_ns: u64,
    /// 1 while recovering.
    recovering: u64,
}

const RTO_MIN_INDEX: usize = 0;
const RTO_MAX_INDEX: usize = 1;
const DUPTHRESH_INDEX: usize = 2;

/// Bits of a time value in nanoseconds: four seconds, more than `rto_max`.
const TIME_BITS: u64 = 32;

const TIMEOUT_MIN_PS: u64 = Duration::from_us(1).as_ps();

impl Recovery for TcpSack {
    const NAME: &'static str = "tcp-sack";
    const SUMMARY: &'static str = "TCP's fast retransmit with SACK and a computed timeout (RFC 6675, 6582, 6298)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: TIMEOUT_MIN_PS,
            ..ParamSpec::duration("rto_min", Duration::from_us(320), "first and least timeout (IRN's RTO_high)")
        },
        ParamSpec {
            min: TIMEOUT_MIN_PS,
            ..ParamSpec::duration("rto_max", Duration::from_secs(1), "a timeout never doubles beyond this")
        },
        ParamSpec::count("dupthresh", 3, 1, 1 << 16, "a packet is lost when this many above it have arrived"),
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::PlaceOutOfOrder;
    const FOOTPRINT: &'static [FootprintField] = &[
        FootprintField::connection("RecoveryPoint and HighRxt, at both ends", 2 * 2 * PSN_BITS),
        FootprintField::connection("SRTT, RTTVAR and RTO, at both ends", 2 * 3 * TIME_BITS),
        FootprintField::connection("recovery flag, at both ends", 2),
        FootprintField::wqe("sequence number of a work request", PSN_BITS),
    ];

    fn start(_: &Params) -> Self {
        Self::zeroed()
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_MIN_INDEX))
    }

    fn longest_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_MAX_INDEX).max(params.duration(RTO_MIN_INDEX)))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Always
    }

    /// TCP tolerates reordering of up to three packets; a larger `dupthresh` tolerates more.
    fn tolerates_reordering(params: &Params) -> bool {
        params.get(DUPTHRESH_INDEX) > 3
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        let mut actions = RecoveryActions::default();
        match *event {
            RecoveryEvent::Acked { rtt, .. } => {
                actions.rto = rtt.map(|rtt| Some(self.add_rtt_sample(rtt, params)));
                actions.retransmit = self.on_ack(view, params);
            }
            RecoveryEvent::Nacked { .. } => actions.retransmit = self.on_nack(view, params),
            RecoveryEvent::Delivered { .. }
            | RecoveryEvent::Trimmed { .. }
            | RecoveryEvent::Quiet
            | RecoveryEvent::Arrived { .. }
            | RecoveryEvent::Congested
            | RecoveryEvent::Tick => {}
            RecoveryEvent::TimedOut { .. } => {
                actions.retransmit = Some(view.outstanding());
                (self.recovering, self.recovers_to) = (1, view.next.get());
                self.retransmitted_below = view.next.get();
                actions.rto = Some(Some(self.back_off(params)));
                actions.timer = TimerChange::Restart;
            }
        }
        actions.recovering = self.recovering != 0;
        actions
    }
}

impl TcpSack {
    fn on_ack(&mut self, view: &WindowView<'_>, params: &Params) -> Option<SeqRange> {
        if self.recovering == 0 {
            return None;
        }
        if view.una.get() >= self.recovers_to || view.una == view.next {
            self.recovering = 0;
            return None;
        }
        // A partial acknowledgement: the packet it uncovers is lost, and so is every packet with sufficient evidence of
        // loss.
        self.repair(self.lost_below(view, params).max(view.una + 1), view)
    }

    fn on_nack(&mut self, view: &WindowView<'_>, params: &Params) -> Option<SeqRange> {
        let lost_below = self.lost_below(view, params);
        if lost_below <= view.una {
            return None;
        }
        if self.recovering == 0 {
            (self.recovering, self.recovers_to) = (1, view.next.get());
            self.retransmitted_below = view.una.get();
        }
        self.repair(lost_below, view)
    }

    /// Returns the packets below `end` that are lost and have not been retransmitted. The engine skips packets in
    /// between that have arrived.
    fn repair(&mut self, end: Seq, view: &WindowView<'_>) -> Option<SeqRange> {
        let from = view.una + self.retransmitted_below.saturating_sub(view.una.get());
        let first_zero = view.sacked.and_then(|ring| ring.first_zero(from.since(view.una) as u32));
        let start = first_zero.map_or(from, |offset| view.una + u64::from(offset));
        if start >= end {
            return None;
        }
        self.retransmitted_below = end.get();
        Some(SeqRange::new(start, end))
    }

    /// Returns the packet below which all packets that have not arrived are lost (RFC 6675, IsLost): the `dupthresh`-th
    /// highest that has been selectively acknowledged; `una` when there are fewer.
    fn lost_below(&self, view: &WindowView<'_>, params: &Params) -> Seq {
        let Some(ring) = view.sacked else { return view.una };
        let (total, duplicates_min) = (u64::from(ring.popcount()), params.get(DUPTHRESH_INDEX));
        if total < duplicates_min {
            return view.una;
        }
        // Binary search for the largest offset with enough acknowledged packets above it; the count of packets below
        // an offset grows monotonically with the offset.
        let (mut low, mut high) = (0, ring.bits());
        while low + 1 < high {
            let middle = low.midpoint(high);
            let above = total - u64::from(ring.popcount_first(middle));
            if above >= duplicates_min { low = middle } else { high = middle }
        }
        view.una + u64::from(low)
    }

    /// Updates the estimator (RFC 6298 section 2, in integers) and returns the timeout.
    fn add_rtt_sample(&mut self, rtt: Duration, params: &Params) -> Duration {
        let sample = rtt.as_ns().max(1);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (sample, sample / 2);
        } else {
            self.rttvar_ns = (3 * self.rttvar_ns + self.srtt_ns.abs_diff(sample)) / 4;
            self.srtt_ns = (7 * self.srtt_ns + sample) / 8;
        }
        self.set_rto(Duration::from_ns(self.srtt_ns + 4 * self.rttvar_ns), params)
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    fn back_off(&mut self, params: &Params) -> Duration {
        let current = if self.rto_ns == 0 { params.duration(RTO_MIN_INDEX) } else { Duration::from_ns(self.rto_ns) };
        self.set_rto(current.saturating_mul(2), params)
    }

    fn set_rto(&mut self, rto: Duration, params: &Params) -> Duration {
        let (least, most) = (params.duration(RTO_MIN_INDEX), params.duration(RTO_MAX_INDEX));
        let rto = rto.min(most).max(least);
        self.rto_ns = rto.as_ns();
        rto
    }
}
