//! Messages between NICs (SCR): conversion from the parsed to the checked plan.

use core::num::NonZeroU64;

use rnic_base::{BitRate, Duration};
use rnic_engine::messages::cadence::Modes;
use rnic_engine::messages::config::{AnswerLimit, ExchangeConfig, GrantScope};

use super::quantity::Unit;
use super::raw::{Mode, Scr};
use super::{Plan, PlanError};
use crate::fault::matches;

/// Messages between the NICs of hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrPlan {
    /// Period of reports and grants.
    pub period: Duration,
    /// Round trip of the longest path of an empty network.
    pub round_trip: Duration,
    /// Times at which hosts report their load to each other.
    pub modes: Modes,
    /// A pattern for the names of the hosts to whose queue pairs receivers grant rates; `*` matches any characters.
    pub credits: Option<String>,
    /// Number of bytes queued for a host above which its senders are notified.
    pub back_pressure: Option<u64>,
    /// Interval of the probes of each queue pair that sends.
    pub probes: Option<Duration>,
    /// Time after which a probe counts as lost.
    pub probe_timeout: Duration,
    /// Lowest rate that is granted, and to which a peer can limit a queue pair.
    pub floor: Option<BitRate>,
    /// Growth of a rate in each round trip after back-pressure.
    pub step: BitRate,
}

/// Returns the messages that `raw` describes.
pub(super) fn resolve(raw: &Scr, plan: &Plan) -> Option<ScrPlan> {
    if !raw.enabled() {
        return None;
    }
    let (round_trip, _) = plan.round_trip();
    let modes = raw.mode();
    let sampling = modes.contains(&Mode::Sampling).then(|| raw.sampling().0.get());
    Some(ScrPlan {
        period: raw.period.map_or(round_trip.max(PERIOD_MIN), |Unit(period)| period),
        round_trip,
        modes: Modes {
            periodic: modes.contains(&Mode::Periodic),
            sampling_bytes: sampling.and_then(NonZeroU64::new),
            anomaly: modes.contains(&Mode::Anomaly),
        },
        credits: raw.credits.clone(),
        back_pressure: raw.back_pressure.map(|Unit(bytes)| bytes.get()),
        probes: raw.probes.map(|Unit(interval)| interval),
        probe_timeout: raw.probe_timeout().0,
        floor: raw.floor.map(|Unit(floor)| floor),
        step: raw.step().0,
    })
}

/// Checks the constraints of the table, and that it exists where the transport counts on it.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let reject = |key, what: &str| Err(PlanError::value(key, what));
    let Some(scr) = &plan.scr else {
        return if plan.transport.probes {
            reject("scr", "is missing; the transport needs it for probes")
        } else {
            Ok(())
        };
    };
    if plan.transport.protocol.falcon().is_some() {
        return reject("scr", "cannot be combined with Falcon; use a transport of the RoCE family");
    }
    let [shortest, longest] = rnic_engine::messages::cadence::PERIODS;
    if !(shortest..=longest).contains(&scr.period) {
        return reject("scr.period", "must be 1 us to 10 s");
    }
    if scr.probes.is_some_and(|interval| interval < shortest) || scr.probe_timeout < shortest {
        return reject("scr.probes", "must be at least 1 us, and so must `probe_timeout`");
    }
    if scr.back_pressure.is_some() && plan.nic.is_none() {
        return reject("scr.back_pressure", "requires a NIC model, in which received packets wait; add [nic]");
    }
    if scr.floor.is_some_and(|floor| floor.as_bps() < RATE_MIN) || scr.step.as_bps() < RATE_MIN {
        return reject("scr.floor", "must be at least 1Mbps, and so must `step`");
    }
    let names = |pattern: &str| (0..plan.topology.hosts()).any(|host| matches(pattern, &format!("host-{host}")));
    if scr.credits.as_deref().is_some_and(|pattern| !names(pattern)) {
        return reject("scr.credits", "matches no host; hosts have names such as host-0 and host-1");
    }
    Ok(())
}

impl ScrPlan {
    /// Returns the settings of a host's engine; `seed` is that of its jitter and cookies.
    pub(crate) fn exchange(&self, seed: u64) -> ExchangeConfig {
        ExchangeConfig {
            modes: self.modes,
            period: self.period,
            round_trip: self.round_trip,
            credits: if self.credits.is_some() { GrantScope::Chosen } else { GrantScope::Off },
            pressure_bytes: self.back_pressure,
            probe_interval: self.probes,
            probe_timeout: self.probe_timeout,
            floor: self.floor,
            step: self.step,
            answers: AnswerLimit::NONE,
            seed,
            ..ExchangeConfig::default()
        }
    }
}

/// Minimum period, unless the plan sets one.
const PERIOD_MIN: Duration = Duration::from_us(20);

/// Lowest rate in bits per second, as for links.
const RATE_MIN: u64 = 1_000_000;
