//! Transport defaults for software: the same algorithms, with timeouts that fit processes instead of hardware.
//!
//! IRN's 100 and 320 microseconds are for NICs that respond within one. A process may be off its core for a few
//! milliseconds (a tick of 4 ms and more, on a busy machine), and with deep queues between two processes a round trip
//! takes some hundred microseconds. These times are not known in advance: so timeouts follow the round trips of
//! acknowledged packets ([`rnic_policy::profile::MEASURED_TIMEOUTS`]), unless a timeout is set explicitly. The values
//! here are the initial ones of a connection, before anything is measured, and the unit in which the time until a
//! silent peer is given up is counted.
//!
//! On a slower path the initial timeouts are a multiple of the round trip of the connection setup, if it is known,
//! within the range of the option: Swift's clock has 24 bits, so its times end at 100 ms. Swift's target delay is
//! raised by that round trip, because Swift measures the complete round trip: with a lower target, windows shrink to
//! the minimum whatever the state of the network. Beyond 100 ms this still happens.

use rnic_base::Duration;
use rnic_policy::{ParamError, Profile};
use rnic_transports::SelectError;

/// A transport to offer, with flags that allow its timeouts to be adapted to the path.
#[derive(Clone, Debug)]
pub struct TransportChoice {
    /// Composition and options of the transport.
    pub profile: Profile,
    /// True when no timeout was set explicitly, so that a slow path increases the timeouts.
    pub adapts: bool,
    /// True when Swift's target delay was not set explicitly, so that a slow path increases it.
    pub aims: bool,
}

impl TransportChoice {
    /// Returns the transport called `name` with the defaults of this crate, then `options` applied, as
    /// [`rnic_transports::select`] does.
    ///
    /// # Errors
    /// When a name is unknown, a value illegal, or the composition invalid.
    pub fn named(name: &str, options: &[(&str, &str)]) -> Result<Self, SelectError> {
        let profile = rnic_transports::select(name, options.iter().copied())?;
        let is_given = |option: &str| options.iter().any(|(given, _)| *given == option);
        if let Some(option) = SIMULATED.into_iter().find(|option| is_given(option)) {
            let source = ParamError::Unused { name: option, why: "packets on a wire are as long as they are" };
            return Err(SelectError::Option { transport: profile.name, source });
        }
        let adapts = !profile.options().any(|(spec, _)| spec.is_timeout() && is_given(spec.name));
        let aims = !is_given(TARGET);
        Ok(Self { profile: host_defaults(profile, is_given)?, adapts, aims })
    }

    /// Returns the transport for peers of other vendors, [`ROCE_TRANSPORT`], with the options that they expect unless
    /// `options` override them.
    ///
    /// # Errors
    /// When a value is illegal.
    pub fn for_roce_peers(options: &[(&str, &str)]) -> Result<Self, SelectError> {
        let is_given = |option: &str| options.iter().any(|(given, _)| *given == option);
        let own = ROCE_OPTIONS.iter().filter(|(option, _)| !is_given(option));
        Self::named(ROCE_TRANSPORT, &own.chain(options).copied().collect::<Vec<_>>())
    }

    /// Returns the choice for a path whose round trip is `round_trip`: with timeouts of at least several round trips,
    /// and a target delay above it, if they may be adapted.
    pub(crate) fn stretched_to(&self, round_trip: Duration) -> Self {
        let mut choice = self.clone();
        let least = round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS).min(TIMEOUT_MAX);
        for (spec, value) in self.profile.options() {
            let wanted = match spec.name {
                _ if spec.is_timeout() && self.adapts && value != 0 => least.as_ps(),
                // At least half of the target delay is for queueing. When the round trip takes more than half, the
                // target becomes the measured round trip plus the default.
                TARGET if self.aims && round_trip.as_ps() > value / 2 => round_trip.as_ps().saturating_add(value),
                _ => continue,
            };
            let wanted = wanted.min(spec.max);
            if value < wanted {
                let text = Duration::from_ps(wanted).to_string();
                choice.profile.set(spec.name, &text).expect("a value between the present one and the largest is legal");
            }
        }
        choice
    }

    /// Returns whether the transport sends and processes congestion notifications (CNP).
    pub fn reacts_to_ecn(&self) -> bool {
        let control = &self.profile.control;
        (control.policy.interest)(&control.params).cnp_interval.is_some()
    }

    /// Returns the timeout in which a give-up time is counted, if there is one.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.profile.patience_timeout()
    }
}

/// Returns the default transports, best first.
///
/// # Panics
/// Never: a test creates them.
pub fn default_transports() -> Vec<TransportChoice> {
    let choice = |name| TransportChoice::named(name, &[]).expect("the defaults of a transport that exists are legal");
    vec![choice("irn"), choice("roce-gbn")]
}

/// Returns `profile` with this crate's defaults for the options that are not `given`.
///
/// # Errors
/// When the resulting combination of options is invalid, which only unusual options cause.
pub fn host_defaults(mut profile: Profile, given: impl Fn(&str) -> bool) -> Result<Profile, SelectError> {
    let falcons = if profile.protocol.falcon().is_some() { FALCON_DEFAULTS } else { &[] };
    let general = DEFAULTS.iter().filter(|(option, _)| falcons.iter().all(|(own, _)| own != option));
    for (option, value) in falcons.iter().chain(general) {
        let has = profile.options().any(|(spec, _)| spec.name == *option);
        let wanted = match *option {
            // A cap is part of the definition of those transports that have one.
            "cap_packets" => profile.cap_packets.is_some(),
            // A timeout that is set explicitly is not replaced by measured ones.
            "measured_timeouts" => {
                let is_fixed = profile.options().any(|(spec, _)| spec.is_timeout() && given(spec.name));
                !is_fixed
            }
            _ => has,
        };
        if wanted && !given(option) {
            let transport = profile.name;
            profile.set_default(option, value).map_err(|source| SelectError::Option { transport, source })?;
        }
    }
    profile.check()?;
    Ok(profile)
}

/// Defaults by the name of the option; measured with `benches/` on two cores, see there.
const DEFAULTS: &[(&str, &str)] = &[
    // The values below apply until round trips have been measured.
    ("measured_timeouts", "true"),
    // IRN, few packets in flight: beyond the 99.9th percentile of a round trip between processes that poll. With half
    // of it, 64 queue pairs retransmit packets to a peer that is merely busy.
    ("rto_low", "1ms"),
    // IRN, many packets in flight: a full window takes 230 us at 37 Gbit/s. A lost retransmission stalls the complete
    // window for this time: at 1 % loss, twice as much costs a tenth of the goodput.
    ("rto_high", "1ms"),
    // Go-back-N: two ticks of a process that is off its core. Without loss, 1 to 32 ms make no difference on an idle
    // machine; with loss, shorter is faster (README.md has figures).
    ("rto", "8ms"),
    // Lower bound of TCP's computed timeout: as IRN's.
    ("rto_min", "1ms"),
    // IRN's cap: packets in flight that keep two processes busy, half of them in the sender's train and half in the
    // receiver's.
    ("cap_packets", "256"),
];

/// Defaults that differ for Falcon. A round trip between processes is 200 us when they are busy, ten times that of the
/// hardware that Falcon's own defaults are for, and some milliseconds when one of them is off its core: a delay that no
/// sender could reduce by sending less.
const FALCON_DEFAULTS: &[(&str, &str)] = &[
    // Target delay: a few trains at each end. With the 25 us of hardware, goodput is a fiftieth.
    ("base_target", "1ms"),
    // Packets in flight for which a NIC has buffers: sized for a host's memory, not for a chip's.
    ("resources", "1000"),
    // As many packets as a full congestion window has.
    ("data_window", "512"),
    // Packets per round trip by which the window grows, and its minimum: a loss halves the window, three losses of one
    // packet close it, and on a host losses are a weak sign of congestion.
    ("increase", "16000"),
    ("window_min", "16384"),
    // A process that is off its core for a tick has not lost packets.
    ("rto", "4ms"),
    ("rto_min", "4ms"),
    // An acknowledgement is sent when the received packets have been processed, and trains arrive complete: a timer
    // would wake the process for it, 50 us later than set.
    ("coalesce_timeout", "0"),
];

/// Transport of adapters of other vendors.
pub const ROCE_TRANSPORT: &str = "roce-gbn";

/// Options of [`ROCE_TRANSPORT`] among adapters: they report posted receives as credits in their acknowledgements.
const ROCE_OPTIONS: &[(&str, &str)] = &[("end_to_end_credits", "true")];

/// Options that concern simulated packets only.
const SIMULATED: [&str; 1] = ["extra_header"];

/// Name of the option for Swift's target delay.
const TARGET: &str = "base_target";

/// Timeout in round trips of the connection setup: the queues of a loaded path more than double its round trip.
const TIMEOUT_ROUND_TRIPS: u64 = 4;

/// Upper bound of a timeout on any path.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn option(choice: &TransportChoice, name: &str) -> u64 {
        choice.profile.options().find(|(spec, _)| spec.name == name).expect("the option exists").1
    }

    #[test]
    fn defaults_fill_in_what_is_not_given() {
        let plain = TransportChoice::named("irn", &[]).expect("a transport");
        assert_eq!(option(&plain, "rto_low"), Duration::from_ms(1).as_ps());
        assert!(plain.adapts && plain.profile.measured_timeouts);
        let given = TransportChoice::named("irn", &[("rto_low", "50us"), ("cap_packets", "0")]).expect("legal");
        assert_eq!(option(&given, "rto_low"), Duration::from_us(50).as_ps());
        assert_eq!(option(&given, "rto_high"), Duration::from_ms(1).as_ps());
        assert_eq!((given.profile.cap_packets, given.adapts), (None, false));
        assert!(!given.profile.measured_timeouts, "what is set stays set");
        let fixed = TransportChoice::named("tcp", &[("measured_timeouts", "false")]).expect("legal");
        assert!(!fixed.profile.measured_timeouts);
        let gbn = TransportChoice::named("roce-gbn", &[]).expect("a transport");
        assert_eq!((option(&gbn, "rto"), gbn.profile.cap_packets), (Duration::from_ms(8).as_ps(), None));
    }

    #[test]
    fn falcon_has_defaults_of_its_own() {
        let plain = TransportChoice::named("falcon", &[]).expect("a transport");
        assert_eq!(option(&plain, "base_target"), Duration::from_ms(1).as_ps());
        assert_eq!(option(&plain, "rto_min"), Duration::from_ms(4).as_ps(), "and TCP's floor is another");
        let given = TransportChoice::named("falcon", &[("base_target", "25us")]).expect("legal");
        assert_eq!(option(&given, "base_target"), Duration::from_us(25).as_ps());
    }

    #[test]
    fn exchanged_parts_get_the_defaults_of_their_own_options() {
        let choice = TransportChoice::named("irn", &[("recovery", "go-back-n")]).expect("a variant of IRN");
        assert_eq!(option(&choice, "rto"), Duration::from_ms(8).as_ps());
    }

    #[test]
    fn mistakes_are_errors() {
        assert!(TransportChoice::named("quic", &[]).is_err());
        assert!(TransportChoice::named("irn", &[("rto_low", "soon")]).is_err());
        let said = TransportChoice::named("irn", &[("extra_header", "16B")]).expect_err("not on sockets").to_string();
        assert!(said.contains("`extra_header` means nothing here"), "{said}");
        let unstamped = TransportChoice::named("falcon", &[("control", "bottleneck")]);
        let said = unstamped.expect_err("no switch writes into what sockets send").to_string();
        assert!(said.contains("`bottleneck` needs csig") && said.lines().count() == 1, "{said}");
    }

    #[test]
    fn slow_paths_stretch_timeouts_that_nobody_set() {
        let plain = TransportChoice::named("irn", &[]).expect("a transport");
        let slow = plain.stretched_to(Duration::from_ms(40));
        assert_eq!(option(&slow, "rto_low"), Duration::from_ms(160).as_ps());
        assert_eq!(slow.timeout(), Some(Duration::from_ms(160)));
        let fast = plain.stretched_to(Duration::from_us(50));
        assert_eq!(option(&fast, "rto_low"), option(&plain, "rto_low"));
        let given = TransportChoice::named("irn", &[("rto_high", "3ms")]).expect("legal");
        assert_eq!(option(&given.stretched_to(Duration::from_secs(1)), "rto_high"), Duration::from_ms(3).as_ps());
        // Any round trip has a text that is read again, and no option is stretched beyond what it can be.
        for round_trip in [Duration::from_ps(1_234_567_891), Duration::from_ps(98_765_432_109), Duration::from_secs(60)]
        {
            for name in ["irn", "roce-gbn", "tcp", "falcon"] {
                let choice = TransportChoice::named(name, &[]).expect("a transport");
                choice.stretched_to(round_trip).profile.check().expect("it can still be so");
            }
        }
        // No timeout, as under PFC, stays none.
        let none = TransportChoice::named("roce-gbn", &[("rto", "0")]).expect("legal");
        assert_eq!(none.timeout(), None);
    }

    /// Swift counts the path's own delay: with a target below it, windows would be the smallest for ever.
    #[test]
    fn slow_paths_raise_the_delay_that_nobody_set() {
        let plain = TransportChoice::named("falcon", &[]).expect("a transport");
        let target = |choice: &TransportChoice| Duration::from_ps(option(choice, "base_target"));
        let slow = plain.stretched_to(Duration::from_ms(10));
        assert_eq!(target(&slow), Duration::from_ms(11));
        assert_eq!(option(&slow, "rto_min"), Duration::from_ms(40).as_ps());
        assert_eq!(target(&plain.stretched_to(Duration::from_us(300))), Duration::from_ms(1), "as it was");
        let given = TransportChoice::named("falcon", &[("base_target", "2ms")]).expect("legal");
        assert_eq!(target(&given.stretched_to(Duration::from_ms(10))), Duration::from_ms(2));
        let given = TransportChoice::named("falcon", &[("rto", "1s")]).expect("legal");
        let slow = given.stretched_to(Duration::from_ms(10));
        assert_eq!((target(&slow), option(&slow, "rto_min")), (Duration::from_ms(11), Duration::from_ms(4).as_ps()));
        let far = plain.stretched_to(Duration::from_ms(400));
        let [aim, least] = [target(&far), Duration::from_ps(option(&far, "rto_min"))];
        assert_eq!([aim, least], [Duration::from_ms(100); 2], "as much as Swift's clock takes");
        assert_eq!(option(&far, "rto"), Duration::from_ms(1_600).as_ps());
    }

    /// Falcon's timeouts are what its engine says. A peer is not given up after two of them because somebody has set
    /// another option to a second.
    #[test]
    fn falcons_patience_is_counted_in_the_timeouts_of_its_engine() {
        let given = TransportChoice::named("falcon", &[("rto", "1s")]).expect("legal");
        assert_eq!(given.timeout(), Some(Duration::from_ms(4)));
        let gbn = TransportChoice::named("roce-gbn", &[("rto", "1s")]).expect("legal");
        assert_eq!(gbn.timeout(), Some(Duration::from_secs(1)));
    }
}
