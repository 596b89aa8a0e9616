//! Timeouts that programs of an adaptive engine return, independent of their windows, and the smoothed round trip from
//! which they are computed.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 10.3.4; Falcon (SIGCOMM'25) section 4.1 and table 3 (which
//! requires the times of RACK and TLP; the specification does not have them). RACK: a packet is lost when the newest
//! round trip and a quarter of the smoothed one have passed since it was sent. TLP: two smoothed round trips, plus
//! the time for which a receiver may delay an acknowledgement. The quarter, the two and that delay are parameters
//! ([`SHARED`]).
//!
//! Deviations: the smoothed round trip is stored in whole ticks; when the round trip is constant, it converges to
//! within two ticks (262 ns) of it.

use core::hint::select_unpredictable;

use rnic_base::Duration;
use rnic_policy::control::report::{AckRate, Alpha, CurrentSettings, FlowActions, Gap, RateLimit, Ticks};
use rnic_policy::{Cwnd, ParamOwner, ParamSpec, Params};

use crate::recovery::rack_tlp::{PROBE, REORDER};

/// Timeout before the first round-trip sample, 1 ms, unless the datapath starts with another value.
pub(super) const UNMEASURED: Ticks = Ticks::new(7_629);

/// Parameter for the minimum retransmission timeout, in programs that have one.
pub(super) const RTO_MIN: ParamSpec = ParamSpec {
    max: Duration::from_ms(100).as_ps(),
    ..ParamSpec::duration(
        "rto_min",
        Duration::from_us(250),
        "minimum of the retransmission timeout, which is twice the round trip",
    )
}
.by_reports();

/// Alpha code with which a connection may hold all free resources, as without congestion.
const ALPHA_UNCONGESTED: u32 = 3;

/// Returns the initial settings of a flow of which only the windows are controlled: `window` packets for the fabric,
/// `ncwnd` for the receiving NIC, no pacing, no repathing.
#[inline(always)]
pub(super) fn first(window: u64, ncwnd: u64, ack_rate: AckRate) -> FlowActions {
    FlowActions {
        fcwnd: Cwnd::packets(window),
        ncwnd: ncwnd as u16,
        gap: Gap::NONE,
        rate: RateLimit::NONE,
        rto: UNMEASURED,
        rack: UNMEASURED,
        tlp: UNMEASURED,
        repath: false,
        alpha_requests: Alpha::code(ALPHA_UNCONGESTED),
        alpha_responses: Alpha::code(ALPHA_UNCONGESTED),
        ack_rate,
    }
}

/// Retransmission timeout as a multiple of the smoothed round trip.
const RTO_FACTOR: u32 = 2;

/// Parameters that the recovery policy uses as well, in the order expected by [`Timeouts::of`].
pub(super) const SHARED: [ParamSpec; 5] = [
    REORDER[0].owned_by(ParamOwner::Recovery),
    REORDER[1].owned_by(ParamOwner::Recovery),
    PROBE[0].owned_by(ParamOwner::Both).by_reports(),
    PROBE[1].owned_by(ParamOwner::Both).by_reports(),
    PROBE[2].owned_by(ParamOwner::Both).by_reports(),
];

/// Returns three quarters of the old value plus one quarter of the new; for the first sample, that sample.
#[inline(always)]
pub(super) fn smooth(srtt: Ticks, rtt: Ticks) -> Ticks {
    let mixed = if srtt == Ticks::ZERO { rtt.get() } else { (3 * srtt.get() + rtt.get() + 2) >> 2 };
    Ticks::new(mixed.max(1))
}

/// Parameters from which timeouts are computed; times in ticks.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    rto_min: u32,
    reorder_percent: u32,
    reorder_min: u32,
    probe_percent: u32,
    probe_extra: u32,
    probe_min: u32,
}

impl Timeouts {
    /// Reads the parameters of a policy: the minimum timeout has the index `rto_min`, and those of [`SHARED`] start
    /// at the index `shared`.
    #[inline(always)]
    pub(super) fn of(params: &Params, rto_min: usize, shared: usize) -> Self {
        Self {
            rto_min: ticks(params, rto_min),
            reorder_percent: params.get(shared) as u32,
            reorder_min: ticks(params, shared + 1),
            probe_percent: params.get(shared + 2) as u32,
            probe_extra: ticks(params, shared + 3),
            probe_min: ticks(params, shared + 4),
        }
    }

    /// Returns the retransmission timeout; `before` until a round trip has been measured.
    #[inline(always)]
    pub(super) fn rto(self, srtt: Ticks, gap: Gap, before: Ticks) -> Ticks {
        // No overflow: the addends have 25 bits and 23 bits.
        measured(srtt, (RTO_FACTOR * srtt.get() + gap.ticks() as u32).max(self.rto_min), before)
    }

    /// Returns RACK's timeout for a flow whose newest round trip is `rtt`.
    #[inline(always)]
    pub(super) fn rack(self, rtt: Ticks, srtt: Ticks, before: Ticks) -> Ticks {
        measured(srtt, rtt.get() + percent(srtt, self.reorder_percent).max(self.reorder_min), before)
    }

    /// Returns the time of inactivity after which a probe is sent.
    #[inline(always)]
    pub(super) fn tlp(self, srtt: Ticks, before: Ticks) -> Ticks {
        let timeout = percent(srtt, self.probe_percent) + self.probe_extra;
        measured(srtt, timeout.max(self.probe_min), before)
    }
}

/// Returns `share` percent of `srtt`, rounded up. The result has at most 28 bits, because shares are at most 1600.
#[inline(always)]
fn percent(srtt: Ticks, share: u32) -> u32 {
    let (whole, remainder) = (srtt.get() / 100, srtt.get() % 100);
    whole * share + (remainder * share).div_ceil(100)
}

/// Returns `timeout` as a timeout if there was a sample, otherwise `before`.
#[inline(always)]
fn measured(srtt: Ticks, timeout: u32, before: Ticks) -> Ticks {
    let timeout = timeout.max(1).min(Ticks::MAX.get());
    Ticks::new(select_unpredictable(srtt == Ticks::ZERO, before.get(), timeout))
}

/// Returns the timeout used until there is a sample: the current one, with which the datapath started.
#[inline(always)]
pub(super) fn before(in_force: &CurrentSettings) -> Ticks {
    if in_force.rto == Ticks::ZERO { UNMEASURED } else { in_force.rto }
}

/// Returns parameter `index`, a time of at most 2 s, in ticks.
#[inline(always)]
pub(super) const fn ticks(params: &Params, index: usize) -> u32 {
    ((params.get(index) + (1 << 16)) >> 17) as u32
}
