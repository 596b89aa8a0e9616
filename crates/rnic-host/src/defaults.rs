//! Transport defaults for software: the same algorithms, with timeouts that fit processes instead of hardware.
//!
//! IRN's timeouts of 100 and 320 microseconds are for NICs that respond within one microsecond. A process may be off
//! its core for a few milliseconds (a tick of 4 ms and more, on a busy machine), and with deep queues between two
//! processes a round trip takes some hundred microseconds. These times are not known in advance, so timeouts are
//! computed from the round trips of acknowledged packets ([`rnic_policy::profile::MEASURED_TIMEOUTS`]), unless a
//! timeout is set explicitly. The values here are the initial ones of a connection, before any round trip has been
//! measured, and the unit in which the time is counted until a silent peer is declared failed.
//!
//! On a slower path the initial timeouts are a multiple of the round trip of the connection setup, if it is known,
//! within the range of the option: Swift's clock has 24 bits, so its times end at 100 ms. Swift's target delay is
//! raised by that round trip, because Swift measures the complete round trip: with a lower target, windows shrink to
//! the minimum whatever the state of the network. On paths with a round trip above 100 ms they still do.

use rnic_base::Duration;
use rnic_policy::{ParamError, ParamSpec, ParamUnit, Profile, Signals};
use rnic_transports::{LoadedProgram, SelectError};

/// A transport to offer, with flags that allow its timeouts to be increased for slow paths.
#[derive(Clone, Debug)]
pub struct TransportChoice {
    /// Composition and options of the transport.
    pub profile: Profile,
    /// True when no timeout was set explicitly, so that a slow path increases the timeouts.
    pub adapts: bool,
    /// True when Swift's target delay was not set explicitly, so that a slow path increases it.
    pub adapts_target: bool,
}

impl TransportChoice {
    /// Returns the transport called `name` with the defaults of this crate, then `options` applied, as
    /// [`rnic_transports::select`] does.
    ///
    /// # Errors
    /// When a name is unknown, a value is invalid, or the composition is invalid.
    pub fn named(name: &str, options: &[(&str, &str)]) -> Result<Self, SelectError> {
        Self::with_signals(Signals::NONE, name, options)
    }

    /// Does the same as [`Self::named`] for a NIC that exchanges messages with those of its peers
    /// ([`crate::NicConfig::messages`]), so that controllers can measure round trips by probes, and path policies can
    /// choose paths.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub fn with_messages(name: &str, options: &[(&str, &str)]) -> Result<Self, SelectError> {
        Self::with_signals(Signals::PROBES, name, options)
    }

    fn with_signals(signals: Signals, name: &str, options: &[(&str, &str)]) -> Result<Self, SelectError> {
        Self::of_profile(rnic_transports::select_on(signals, name, options.iter().copied())?, options)
    }

    /// Does the same as [`Self::named`], or with `messages` as [`Self::with_messages`], with the programs `loaded` in
    /// place of the transport's own.
    ///
    /// # Errors
    /// As [`rnic_transports::select_with`].
    pub fn with_programs(
        messages: bool,
        name: &str,
        loaded: &[LoadedProgram],
        options: &[(&str, &str)],
    ) -> Result<Self, SelectError> {
        let signals = if messages { Signals::PROBES } else { Signals::NONE };
        let given = options.iter().copied();
        Self::of_profile(rnic_transports::select_with(signals, name, loaded, given)?, options)
    }

    /// Adds this crate's defaults to a transport that was selected with `options`.
    fn of_profile(profile: Profile, options: &[(&str, &str)]) -> Result<Self, SelectError> {
        let is_given = |option: &str| options.iter().any(|(given, _)| *given == option);
        if let Some(option) = SIMULATED.into_iter().find(|option| is_given(option)) {
            let source = ParamError::Unused { name: option, why: "it lengthens simulated frames only" };
            return Err(SelectError::Option { transport: profile.name, source });
        }
        let adapts = !profile.options().any(|(spec, _)| is_timeout(&profile, spec) && is_given(spec.name));
        let adapts_target = !is_given(TARGET_DELAY_OPTION);
        Ok(Self { profile: host_defaults(profile, is_given)?, adapts, adapts_target })
    }

    /// Returns the transport for peers of other vendors, [`ROCE_TRANSPORT`], with the option values that such peers
    /// expect unless `options` override them.
    ///
    /// # Errors
    /// When a value is invalid.
    pub fn for_roce_peers(options: &[(&str, &str)]) -> Result<Self, SelectError> {
        let is_given = |option: &str| options.iter().any(|(given, _)| *given == option);
        let own = ROCE_OPTIONS.iter().filter(|(option, _)| !is_given(option));
        Self::named(ROCE_TRANSPORT, &own.chain(options).copied().collect::<Vec<_>>())
    }

    /// Returns the transport adapted to a path whose round-trip time is `round_trip`: the timeouts are at least
    /// several round trips, and the target delay is above one, unless they were set explicitly.
    pub(crate) fn adapted_to(&self, round_trip: Duration) -> Self {
        let mut choice = self.clone();
        let least = round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS).min(TIMEOUT_MAX);
        for (spec, value) in self.profile.options() {
            let wanted = match spec.name {
                _ if spec.is_timeout() && self.adapts && value != 0 => least.as_ps(),
                // At least half of the target delay is for queueing. If the round trip exceeds half of it, the target
                // becomes the measured round-trip time plus the default target.
                TARGET_DELAY_OPTION if self.adapts_target && round_trip.as_ps() > value / 2 => {
                    round_trip.as_ps().saturating_add(value)
                }
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
        let (control, recovery) = (&self.profile.control, &self.profile.recovery);
        let of_control = (control.policy.interest)(&control.params).cnp_interval;
        of_control.or(recovery.policy.cnp_interval(&recovery.params)).is_some()
    }

    /// Returns the timeout from which the time until a peer is declared failed is derived; `None` if the transport has
    /// none.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.profile.silence_unit()
    }
}

/// Returns the default transports, best first.
///
/// # Panics
/// Never: a test verifies that all of them can be created.
pub fn default_transports() -> Vec<TransportChoice> {
    let choice = |name| TransportChoice::named(name, &[]).expect("the defaults of a transport that exists are legal");
    vec![choice("irn"), choice("roce-gbn")]
}

/// Returns `profile` with this crate's defaults for the options for which `given` returns false.
///
/// # Errors
/// When the resulting combination of options is invalid, which only unusual options cause.
pub fn host_defaults(mut profile: Profile, given: impl Fn(&str) -> bool) -> Result<Profile, SelectError> {
    let falcons = if profile.protocol.falcon().is_some() { FALCON_DEFAULTS } else { &[] };
    let general = DEFAULTS.iter().filter(|(option, _)| falcons.iter().all(|(own, _)| own != option));
    let control = if profile.control.policy.name == SWIFT_RATE { SWIFT_RATE_DEFAULTS } else { &[] };
    let paths = if profile.paths.policy.probes { PROBED_DEFAULTS } else { &[] };
    let timer = program_timer(&profile).filter(|name| *name != IRN_TIMER).map(|name| (name, PROGRAM_TIMER));
    let general = general.filter(|(option, _)| timer.is_none_or(|(name, _)| name != *option));
    for (option, value) in falcons.iter().chain(control).chain(paths).chain(general).chain(timer.as_ref()) {
        let has = profile.options().any(|(spec, _)| spec.name == *option);
        let wanted = match *option {
            // Only a transport that is defined with a cap gets this default.
            "cap_packets" => profile.cap_packets.is_some(),
            // A timeout that was set explicitly is not replaced by measured ones.
            "measured_timeouts" => {
                let is_fixed = profile.options().any(|(spec, _)| is_timeout(&profile, spec) && given(spec.name));
                !is_fixed
            }
            _ => has,
        };
        if wanted && !given(option) {
            let transport = profile.name;
            let raised = raised(&profile, option, value);
            let value = raised.as_deref().unwrap_or(value);
            profile.set_default(option, value).map_err(|source| SelectError::Option { transport, source })?;
        }
    }
    profile.check()?;
    Ok(profile)
}

/// Returns the name of the parameter of `profile`'s program that is its first timer, if it has a program.
fn program_timer(profile: &Profile) -> Option<&'static str> {
    profile.recovery.policy.program?.timer_parameter()
}

/// Returns whether the option `spec` is a timeout of `profile`.
fn is_timeout(profile: &Profile, spec: &ParamSpec) -> bool {
    spec.is_timeout() || program_timer(profile) == Some(spec.name)
}

/// Returns the value of a program's parameter `option` for which the default in software is `value`: it is raised to
/// that, as far as the program permits, and never lowered. `None` for other options.
fn raised(profile: &Profile, option: &str, value: &str) -> Option<String> {
    let specs = profile.recovery.policy.program?.specs();
    let spec = specs.iter().find(|spec| spec.name == option && spec.unit == ParamUnit::Duration)?;
    let (_, present) = profile.options().find(|(known, _)| known.name == option)?;
    let wanted: Duration = value.parse().ok()?;
    // A timer of zero is none.
    let least = if present == 0 { 0 } else { wanted.as_ps().min(spec.max) };
    Some(spec.show(present.max(least)))
}

/// Default values by the name of the option, as measured with the benchmarks in `benches/` on two cores; the benchmarks
/// describe how.
const DEFAULTS: &[(&str, &str)] = &[
    // The values below apply until round trips have been measured.
    ("measured_timeouts", "true"),
    // IRN's timeout with few packets in flight: above the 99.9th percentile of the round-trip time between processes
    // that poll. With half this value, 64 queue pairs retransmit packets to a peer that is merely busy.
    ("rto_low", "1ms"),
    // IRN's timeout with many packets in flight: a full window takes 230 us at 37 Gbit/s. A lost retransmission
    // stalls the complete window for this time: at 1 % loss, a value twice as large costs a tenth of the goodput.
    ("rto_high", "1ms"),
    // Timeout of go-back-N: two scheduler ticks of a process that is off its core. Without loss, values from 1 to 32
    // ms make no difference on an idle machine; with loss, shorter values are faster (see the measurements in
    // README.md).
    ("rto", "8ms"),
    // Lower bound of TCP's computed timeout: the same as IRN's.
    ("rto_min", "1ms"),
    // IRN's cap: the number of packets in flight that keeps two processes busy, with half of them in the sender's
    // train and half in the receiver's.
    ("cap_packets", "256"),
];

/// Default of the first timer of a program, whatever its parameter is called: two scheduler ticks, as for go-back-N. A
/// measured timeout is never below it. Where the window closes after a timeout, round trips become short, and so would
/// timeouts; with 1 ms, a peer that is off its core for longer than that caused the next one.
const PROGRAM_TIMER: &str = "8ms";

/// Timer of programs after IRN, whose window does not close after a timeout: the default is that of [`DEFAULTS`].
const IRN_TIMER: &str = "rto_low";

/// Defaults that differ for Falcon. The round trip between two busy processes takes 200 us, ten times as long as in
/// the hardware for which Falcon's own defaults were chosen, and some milliseconds when one of them is off its core.
/// That delay is not caused by congestion: no sender can reduce it by sending less.
const FALCON_DEFAULTS: &[(&str, &str)] = &[
    // Target delay: the time of a few trains at each end. With hardware's value of 25 us, goodput is a fiftieth.
    ("base_target", "1ms"),
    // Number of packets in flight for which a NIC has buffers: chosen for the memory of a host, not of a chip.
    ("resources", "1000"),
    // The same number of packets as in a full congestion window.
    ("data_window", "512"),
    // Number of packets per round trip by which the window grows, and minimum of the window. A loss halves the
    // window, and three losses of one packet each almost close it; on a host, losses are only a weak sign of
    // congestion.
    ("increase", "16000"),
    ("window_min", "16384"),
    // A process that is off its core for a scheduler tick is not a sign of packet loss.
    ("rto", "4ms"),
    ("rto_min", "4ms"),
    // Acknowledgements are sent when the received packets have been processed, and trains arrive as one unit: a timer
    // would only wake the process for the acknowledgement, 50 us later than set.
    ("coalesce_timeout", "0"),
];

/// Defaults of the controller `swift-rate`. The controller's own defaults are for NICs that answer a probe within a
/// microsecond. Here a probe waits until both processes have handled earlier packets. The mean of these waits is
/// subtracted from its round trip, but its own wait may be longer.
const SWIFT_RATE_DEFAULTS: &[(&str, &str)] = &[
    // Target delay: several trains at each end, as for Falcon's controller, whose target is for data packets.
    ("base", "300us"),
    // A rate of 1 % of the link may wait as long again: many slow queue pairs share the processors.
    ("range", "700us"),
    // Target of the delay in the hosts: a process that is off its core for a scheduler tick exceeds it.
    ("host_target", "1ms"),
    // A NIC answers some 900 probes of a peer in a second, for all queue pairs to it. Further ones count as lost, which
    // lowers the rate: with a probe in each round trip, one queue pair exceeded this.
    ("period", "5ms"),
];

/// Defaults of the path policy `probed`. The policy's own defaults are for NICs that answer a probe within a
/// microsecond.
const PROBED_DEFAULTS: &[(&str, &str)] = &[
    // With four paths, a probe in 1.5 ms: two thirds of the answers that a NIC gives. With more queue pairs to that
    // NIC, each probes less often.
    ("probe_period", "6ms"),
    // The peer may wait for a processor for longer than a scheduler tick; round trips are added to this.
    ("probe_timeout", "10ms"),
];

const SWIFT_RATE: &str = "swift-rate";

/// Transport used with adapters of other vendors.
pub const ROCE_TRANSPORT: &str = "roce-gbn";

/// Options of [`ROCE_TRANSPORT`] with adapters: they report posted receives as credits in their acknowledgements.
const ROCE_OPTIONS: &[(&str, &str)] = &[("end_to_end_credits", "true")];

/// Options that only have an effect in simulated networks.
const SIMULATED: [&str; 1] = ["extra_header"];

/// Name of the option for Swift's target delay.
const TARGET_DELAY_OPTION: &str = "base_target";

/// Timeout as a multiple of the round-trip time of the connection setup: on a loaded path, queueing more than doubles
/// the round-trip time.
const TIMEOUT_ROUND_TRIPS: u64 = 4;

/// Maximum timeout on any path.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn option(choice: &TransportChoice, name: &str) -> u64 {
        choice.profile.options().find(|(spec, _)| spec.name == name).expect("the option exists").1
    }

    #[test]
    fn defaults_apply_to_options_that_are_not_given() {
        let plain = TransportChoice::named("irn", &[]).expect("a transport");
        assert_eq!(option(&plain, "rto_low"), Duration::from_ms(1).as_ps());
        assert!(plain.adapts && plain.profile.measured_timeouts);
        let given = TransportChoice::named("irn", &[("rto_low", "50us"), ("cap_packets", "0")]).expect("valid");
        assert_eq!(option(&given, "rto_low"), Duration::from_us(50).as_ps());
        assert_eq!(option(&given, "rto_high"), Duration::from_ms(1).as_ps());
        assert_eq!((given.profile.cap_packets, given.adapts), (None, false));
        assert!(!given.profile.measured_timeouts, "a given timeout was replaced");
        let fixed = TransportChoice::named("tcp", &[("measured_timeouts", "false")]).expect("valid");
        assert!(!fixed.profile.measured_timeouts);
        let gbn = TransportChoice::named("roce-gbn", &[]).expect("a transport");
        assert_eq!((option(&gbn, "rto"), gbn.profile.cap_packets), (Duration::from_ms(8).as_ps(), None));
    }

    /// The first timer of a program is raised to two scheduler ticks, whatever its parameter is called, as far as the
    /// program permits.
    #[test]
    fn timers_of_programs_are_raised() {
        let ms = |ms| Duration::from_ms(ms).as_ps();
        for name in ["tonic-reno", "tonic-new-reno", "tonic-sack"] {
            let plain = TransportChoice::named(name, &[]).expect("a transport");
            assert_eq!((option(&plain, "rto_min"), plain.profile.measured_timeouts), (ms(8), true), "{name}");
        }
        for (name, timer) in [("tonic-ndp", "rto"), ("tonic-dcqcn", "rto")] {
            assert_eq!(option(&TransportChoice::named(name, &[]).expect("a transport"), timer), ms(8), "{name}");
        }
        let irn = TransportChoice::named("tonic-irn", &[]).expect("a transport");
        assert_eq!((option(&irn, "rto_low"), option(&irn, "rto_high")), (ms(1), ms(1)));
        let given = TransportChoice::named("tonic-reno", &[("rto_min", "400us")]).expect("valid");
        assert_eq!(option(&given, "rto_min"), Duration::from_us(400).as_ps());
        assert!(!given.profile.measured_timeouts && !given.adapts, "a given timer was replaced");
    }

    #[test]
    fn timers_of_program_files_are_raised() {
        let reno = rnic_transports::programs::find("reno").expect("built in");
        let text = rnic_transports::programs::to_file(reno).expect("it has graphs").replace("rto_min", "patience");
        let named = |text: &str, options: &[(&str, &str)]| {
            let policy = rnic_transports::programs::load(text.as_bytes()).expect("a program");
            TransportChoice::with_programs(false, "tonic-reno", &[LoadedProgram::Transport(policy)], options)
        };
        let plain = named(&text, &[]).expect("valid");
        assert_eq!(option(&plain, "patience"), Duration::from_ms(8).as_ps());
        let given = named(&text, &[("patience", "400us")]).expect("valid");
        assert_eq!(option(&given, "patience"), Duration::from_us(400).as_ps());
        assert!(!given.profile.measured_timeouts && !given.adapts, "a given timer was replaced");
    }

    #[test]
    fn controllers_and_programs_react_to_congestion_marks() {
        let reacts = |name: &str, options: &[(&str, &str)]| {
            TransportChoice::named(name, options).expect("a transport").reacts_to_ecn()
        };
        assert!(reacts("roce-gbn", &[("control", "dcqcn")]) && reacts("tonic-dcqcn", &[]));
        assert!(!reacts("roce-gbn", &[]) && !reacts("tonic-irn", &[]));
    }

    #[test]
    fn falcon_has_separate_defaults() {
        let plain = TransportChoice::named("falcon", &[]).expect("a transport");
        assert_eq!(option(&plain, "base_target"), Duration::from_ms(1).as_ps());
        assert_eq!(option(&plain, "rto_min"), Duration::from_ms(4).as_ps(), "rto_min is not the default");
        let given = TransportChoice::named("falcon", &[("base_target", "25us")]).expect("valid");
        assert_eq!(option(&given, "base_target"), Duration::from_us(25).as_ps());
    }

    #[test]
    fn an_exchanged_policy_gets_the_defaults_of_its_options() {
        let choice = TransportChoice::named("irn", &[("recovery", "go-back-n")]).expect("a variant of IRN");
        assert_eq!(option(&choice, "rto"), Duration::from_ms(8).as_ps());
    }

    #[test]
    fn invalid_options_are_errors() {
        assert!(TransportChoice::named("quic", &[]).is_err());
        assert!(TransportChoice::named("irn", &[("rto_low", "soon")]).is_err());
        let error = TransportChoice::named("irn", &[("extra_header", "16B")]).expect_err("not on sockets").to_string();
        assert!(error.contains("`extra_header` has no effect here"), "{error}");
        let unstamped = TransportChoice::named("falcon", &[("control", "bottleneck")]);
        let error = unstamped.expect_err("no switch writes csig on sockets").to_string();
        assert!(error.contains("`bottleneck` needs csig") && error.lines().count() == 1, "{error}");
        for (option, policy) in [("control", "swift-rate"), ("paths", "probed")] {
            let error = TransportChoice::named("irn", &[(option, policy)]).expect_err("no probes").to_string();
            assert!(error.contains(&format!("`{policy}` needs probes")) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn slow_paths_raise_default_timeouts() {
        let plain = TransportChoice::named("irn", &[]).expect("a transport");
        let slow = plain.adapted_to(Duration::from_ms(40));
        assert_eq!(option(&slow, "rto_low"), Duration::from_ms(160).as_ps());
        assert_eq!(slow.timeout(), Some(Duration::from_ms(160)));
        let fast = plain.adapted_to(Duration::from_us(50));
        assert_eq!(option(&fast, "rto_low"), option(&plain, "rto_low"));
        let given = TransportChoice::named("irn", &[("rto_high", "3ms")]).expect("valid");
        assert_eq!(option(&given.adapted_to(Duration::from_secs(1)), "rto_high"), Duration::from_ms(3).as_ps());
        // For every round-trip time, the resulting option values can be parsed and are within their limits.
        for round_trip in [Duration::from_ps(1_234_567_891), Duration::from_ps(98_765_432_109), Duration::from_secs(60)]
        {
            for name in ["irn", "roce-gbn", "tcp", "falcon"] {
                let choice = TransportChoice::named(name, &[]).expect("a transport");
                choice.adapted_to(round_trip).profile.check().expect("the profile is valid");
            }
        }
        // A timeout that is disabled, as it is with PFC, stays disabled.
        let none = TransportChoice::named("roce-gbn", &[("rto", "0")]).expect("valid");
        assert_eq!(none.timeout(), None);
    }

    /// Swift's target delay includes the base delay of the path: with a lower target, windows would stay at their
    /// minimum.
    #[test]
    fn slow_paths_raise_the_default_target_delay() {
        let plain = TransportChoice::named("falcon", &[]).expect("a transport");
        let target = |choice: &TransportChoice| Duration::from_ps(option(choice, "base_target"));
        let slow = plain.adapted_to(Duration::from_ms(10));
        assert_eq!(target(&slow), Duration::from_ms(11));
        assert_eq!(option(&slow, "rto_min"), Duration::from_ms(40).as_ps());
        assert_eq!(target(&plain.adapted_to(Duration::from_us(300))), Duration::from_ms(1), "the target changed");
        let given = TransportChoice::named("falcon", &[("base_target", "2ms")]).expect("valid");
        assert_eq!(target(&given.adapted_to(Duration::from_ms(10))), Duration::from_ms(2));
        let given = TransportChoice::named("falcon", &[("rto", "1s")]).expect("valid");
        let slow = given.adapted_to(Duration::from_ms(10));
        assert_eq!((target(&slow), option(&slow, "rto_min")), (Duration::from_ms(11), Duration::from_ms(4).as_ps()));
        let slow_path = plain.adapted_to(Duration::from_ms(400));
        let [target_delay, rto_min] = [target(&slow_path), Duration::from_ps(option(&slow_path, "rto_min"))];
        assert_eq!([target_delay, rto_min], [Duration::from_ms(100); 2], "not the maximum of Swift's clock");
        assert_eq!(option(&slow_path, "rto"), Duration::from_ms(1_600).as_ps());
    }

    /// Falcon's timeouts are set by its adaptive engine. Setting another option to one second must not make a peer
    /// fail after two timeouts.
    #[test]
    fn falcons_peer_timeout_uses_the_timeouts_of_its_engine() {
        let given = TransportChoice::named("falcon", &[("rto", "1s")]).expect("valid");
        assert_eq!(given.timeout(), Some(Duration::from_ms(4)));
        let gbn = TransportChoice::named("roce-gbn", &[("rto", "1s")]).expect("valid");
        assert_eq!(gbn.timeout(), Some(Duration::from_secs(1)));
    }
}
