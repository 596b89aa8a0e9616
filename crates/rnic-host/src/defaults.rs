//! Transports for software: the same algorithms, with timeouts that fit processes instead of hardware.
//!
//! IRN's 100 and 320 microseconds are for NICs that answer within one. A process may be taken off its core for a few
//! milliseconds (a tick of 4 ms and more, on a busy machine), and with deep queues between two processes a round trip
//! takes some hundred microseconds. Nobody knows that beforehand: so timeouts follow the round trips of acknowledged
//! packets ([`rnic_policy::profile::MEASURED_TIMEOUTS`]), unless somebody sets one. The values here are what a
//! connection begins with, before anything is measured, and what the patience with a silent peer is counted in.
//!
//! On a path that is slower they begin with a multiple of the round trip that setting up the connection took, if it is
//! known, as far as an option goes: Swift's clock counts 24 bits, so that its times end at 100 ms. The delay
//! that Swift aims at is raised by that round trip, for it counts the whole of it: with a target below, windows shrink
//! to the smallest whatever the network does. Beyond 100 ms they do.

use rnic_base::Duration;
use rnic_policy::{ParamError, Profile};
use rnic_transports::SelectError;

/// A transport to offer, and whether its timeouts may be adapted to the path.
#[derive(Clone, Debug)]
pub struct TransportChoice {
    /// What it is made of.
    pub profile: Profile,
    /// Nobody has set a timeout: a slow path stretches them.
    pub adapts: bool,
    /// Nobody has set the delay that Swift aims at: a slow path raises it.
    pub aims: bool,
}

impl TransportChoice {
    /// The transport called `name` with the defaults of this room, then `options` applied, as
    /// [`rnic_transports::select`] does.
    ///
    /// # Errors
    /// When a name is unknown, a value illegal, or the composition cannot be right.
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

    /// Returns the transport of peers of other makes, [`ROCE_TRANSPORT`], with what they count on unless `options` say
    /// otherwise.
    ///
    /// # Errors
    /// When a value is illegal.
    pub fn for_roce_peers(options: &[(&str, &str)]) -> Result<Self, SelectError> {
        let is_given = |option: &str| options.iter().any(|(given, _)| *given == option);
        let own = ROCE_OPTIONS.iter().filter(|(option, _)| !is_given(option));
        Self::named(ROCE_TRANSPORT, &own.chain(options).copied().collect::<Vec<_>>())
    }

    /// The same for a path whose round trip is `round_trip`: with timeouts of some of them, and a target delay above,
    /// if they may be adapted.
    pub(crate) fn stretched_to(&self, round_trip: Duration) -> Self {
        let mut choice = self.clone();
        let least = round_trip.saturating_mul(TIMEOUT_ROUND_TRIPS).min(TIMEOUT_MAX);
        for (spec, value) in self.profile.options() {
            let wanted = match spec.name {
                _ if spec.is_timeout() && self.adapts && value != 0 => least.as_ps(),
                // Of the target, half at least is for queues: then it is what was measured, and all of the default.
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

    /// Returns whether it sends, and heeds, notifications of congestion (CNP).
    pub fn heeds_marks(&self) -> bool {
        let control = &self.profile.control;
        (control.policy.interest)(&control.params).cnp_interval.is_some()
    }

    /// What a give-up time is counted in, if there is anything.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.profile.patience_timeout()
    }
}

/// What is tried when nobody says anything else, best first.
///
/// # Panics
/// Never: a test makes them.
pub fn default_transports() -> Vec<TransportChoice> {
    let choice = |name| TransportChoice::named(name, &[]).expect("the defaults of a transport that exists are legal");
    vec![choice("irn"), choice("roce-gbn")]
}

/// `profile` with this room's defaults for whatever is not `given`.
///
/// # Errors
/// When the result cannot be right, which takes odd options.
pub fn host_defaults(mut profile: Profile, given: impl Fn(&str) -> bool) -> Result<Profile, SelectError> {
    let falcons = if profile.protocol.falcon().is_some() { FALCON_DEFAULTS } else { &[] };
    let general = DEFAULTS.iter().filter(|(option, _)| falcons.iter().all(|(own, _)| own != option));
    for (option, value) in falcons.iter().chain(general) {
        let has = profile.options().any(|(spec, _)| spec.name == *option);
        let wanted = match *option {
            // A cap is part of what a transport is, for those that have one.
            "cap_packets" => profile.cap_packets.is_some(),
            // Who sets a timeout means it.
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
    // What follows is for the first packets.
    ("measured_timeouts", "true"),
    // IRN, few packets in flight: beyond the 99.9th percentile of a round trip between processes that poll. Half of it
    // makes 64 queue pairs repeat packets of a peer that is merely busy.
    ("rto_low", "1ms"),
    // IRN, many packets in flight: a full window takes 230 us at 37 Gbit/s. A lost retransmission stalls the whole
    // window for so long: at 1 % loss, twice as much costs a tenth of the goodput.
    ("rto_high", "1ms"),
    // Go-back-N: two ticks of a process that is off its core. Without loss, 1 to 32 ms make no difference on an idle
    // machine; with loss, shorter is faster (README.md has figures).
    ("rto", "8ms"),
    // TCP's floor under its computed timeout: as IRN's.
    ("rto_min", "1ms"),
    // IRN's cap: packets in flight that keep two processes busy, half of them in the sender's and half in the
    // receiver's train.
    ("cap_packets", "256"),
];

/// What Falcon has otherwise. A round trip between processes is 200 us when they are busy, ten times that of the
/// hardware that Falcon's own defaults are for, and some milliseconds when one of them is off its core: what nobody has
/// caused who could send less.
const FALCON_DEFAULTS: &[(&str, &str)] = &[
    // Delay to aim at: a few trains at each end. With the 25 us of hardware goodput is a fiftieth.
    ("base_target", "1ms"),
    // Packets under way that a NIC has room for: of the size of a host's memory, not of a chip's.
    ("resources", "1000"),
    // As many packets as a full congestion window has.
    ("data_window", "512"),
    // Packets a round trip that the window grows by, and how small it may become: a loss halves it, three of one packet
    // close it, and on a host they say little about the network.
    ("increase", "16000"),
    ("window_min", "16384"),
    // A process that is off its core for a tick has lost nothing.
    ("rto", "4ms"),
    ("rto_min", "4ms"),
    // An acknowledgement leaves when what has come is taken in, and trains come whole: a timer would wake the process
    // for it, 50 us later than it was set to.
    ("coalesce_timeout", "0"),
];

/// The transport of adapters of other makes.
pub const ROCE_TRANSPORT: &str = "roce-gbn";

/// Options of [`ROCE_TRANSPORT`] among adapters: they count receives in their acknowledgements.
const ROCE_OPTIONS: &[(&str, &str)] = &[("end_to_end_credits", "true")];

/// Options that say something of simulated packets alone.
const SIMULATED: [&str; 1] = ["extra_header"];

/// The delay that Swift aims at.
const TARGET: &str = "base_target";

/// Round trips of connection set-up in a timeout: the queues of a loaded path double its round trip, and then some.
const TIMEOUT_ROUND_TRIPS: u64 = 4;

/// No path makes a timeout longer.
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
