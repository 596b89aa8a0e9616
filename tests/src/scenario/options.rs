//! The transport of a run: its variant and options.

use core::fmt;

use rnic_base::{Duration, RandomStream};
use rnic_policy::Profile;

use super::{Place, one_in, pick};

/// A transport with its options.
#[derive(Clone)]
pub struct Transport {
    /// Profile that results from the options.
    pub profile: Profile,
    /// Names and values of the options, as written on a command line.
    pub options: Vec<(&'static str, String)>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.profile.name)?;
        self.options.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl Transport {
    /// Generates the transport called `name` with random options.
    pub(super) fn draw(place: Place, name: &str, random: &mut RandomStream) -> Self {
        let mut options = match name {
            // Loss recovery is that of IRN; the difference is the location of the bitmaps, which the plan of the fabric
            // sets.
            "irn" | "srnic" => irn(place, random),
            "fasr" => fasr(place, random),
            "falcon" => falcon(place, random),
            "tcp" => tcp(place, random),
            _ if name.starts_with("tonic-") => tonic(place, name, random),
            _ => roce(place, random),
        };
        if name == "roce-ar" && one_in(random, 2) {
            options.push(("paths", "spray".to_owned()));
        }
        let given: Vec<_> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let profile = rnic_transports::select(name, given).expect("generated options are valid");
        Self { profile, options }
    }
}

impl Transport {
    /// Returns the transport with `option` set to `value`, whatever was generated for it.
    ///
    /// # Errors
    /// When the transport has no such option, or the value is invalid.
    pub fn with(self, option: &'static str, value: &str) -> Result<Self, String> {
        let mut options = self.options;
        options.retain(|(name, _)| *name != option);
        options.push((option, value.to_owned()));
        let given = options.iter().map(|(name, value)| (*name, value.as_str()));
        let profile = rnic_transports::select(self.profile.name, given).map_err(|error| error.to_string())?;
        Ok(Self { profile, options })
    }

    /// Returns the transport with a random scheduler, or with its own.
    pub(super) fn with_scheduler(mut self, random: &mut RandomStream) -> Self {
        let schedulers = ["", "", "", "water-filling", "water-filling", "static", "greedy"];
        let scheduler = pick(random, &schedulers);
        let is_falcon = self.profile.protocol.falcon().is_some();
        if scheduler.is_empty() || is_falcon && scheduler == "greedy" {
            return self;
        }
        self = self.with("schedule", scheduler).expect("every transport has this scheduler");
        let mut set = |name, values: &[&str]| {
            let value = pick(random, values);
            self = self.clone().with(name, value).expect("the scheduler has the option");
        };
        if !is_falcon {
            set("calibration", &["packet", "table-2", "figure-11", "figure-12"]);
        }
        if scheduler != "greedy" {
            set("share_floor", &["1Mbps", "10Mbps", "1Gbps"]);
        }
        if scheduler == "water-filling" {
            set("share_arrival", &["scale", "restart", "keep"]);
            set("max_min", &["true", "false"]);
            set("share_meter", &["time", "event"]);
            set("share_step", &["10Mbps", "400Mbps"]);
        }
        self
    }

    /// Returns the transport with its target delay, if it has one, increased by `round_trip`, the network's own
    /// round-trip time. A delay that no sender has caused would keep every window at its minimum, where one packet is
    /// sent per hundred round trips.
    ///
    /// # Panics
    /// When the resulting target is not legal.
    pub(super) fn aiming_beyond(self, round_trip: Duration) -> Self {
        let Some((_, target)) = self.profile.options().find(|(spec, _)| spec.name == TARGET) else { return self };
        let target = Duration::from_ps(target) + round_trip;
        self.with(TARGET, &target.to_string()).expect("the target delay is below its maximum")
    }

    /// Returns whether the target delay is shorter than `round_trip`, the network's own round-trip time, however small
    /// the windows are.
    pub(super) fn aims_below(&self, round_trip: Duration) -> bool {
        let of = |name: &str| self.profile.options().find(|(spec, _)| spec.name == name).map(|(_, value)| value);
        let highest = of(TARGET).map(|target| target + of(TARGET_SCALING).unwrap_or(0));
        highest.is_some_and(|highest| Duration::from_ps(highest) < round_trip)
    }

    /// Returns the ordering mode, if the transport is Falcon.
    pub fn ordering(&self) -> Option<&str> {
        self.options.iter().find(|(name, _)| *name == "ordering").map(|(_, value)| value.as_str())
    }
}

/// Option of the maximum increase of the target delay with small windows.
const TARGET_SCALING: &str = "scaling_range";

/// Option of the target delay of Swift.
const TARGET: &str = "base_target";

/// Returns a random time in microseconds, longer on sockets.
fn time(place: Place, random: &mut RandomStream, fabric: &[u64], sockets: &[u64]) -> String {
    let us = pick(random, if place.is_real() { sockets } else { fabric });
    format!("{us}us")
}

fn common(random: &mut RandomStream, options: &mut Vec<(&'static str, String)>) {
    if one_in(random, 6) {
        let control = pick(random, &["dcqcn", "dcqcn", "timely", "aimd", "dctcp", "new-reno"]);
        options.push(("control", control.to_owned()));
        if matches!(control, "dcqcn" | "timely") && one_in(random, 2) {
            options.push(("cut_on_loss", "true".to_owned()));
        }
    }
}

fn tcp(place: Place, random: &mut RandomStream) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    common(random, &mut options);
    options.push(("rto_min", time(place, random, &[40, 100, 320], &[1_000, 3_000])));
    options.push(("rto_max", time(place, random, &[320, 1_000, 5_000], &[8_000, 100_000])));
    if one_in(random, 2) {
        options.push(("cap_packets", pick(random, &["1", "2", "3", "8", "64", "500"]).to_owned()));
    }
    if one_in(random, 2) {
        options.push(("dupthresh", pick(random, &["1", "2", "4", "10"]).to_owned()));
        if options.last().is_some_and(|(_, value)| value == "4" || value == "10") && one_in(random, 2) {
            options.push(("paths", "spray".to_owned()));
        }
    }
    options
}

/// Generates IRN's pair of timeouts, which FaSR has too.
fn two_timeouts(place: Place, random: &mut RandomStream, options: &mut Vec<(&'static str, String)>) {
    options.push(("rto_low", time(place, random, &[30, 60, 100], &[500, 1_000])));
    options.push(("rto_high", time(place, random, &[100, 200, 320], &[1_000, 2_000])));
    if one_in(random, 3) {
        options.push(("rto_low_packets", pick(random, &["0", "1", "20"]).to_owned()));
    }
}

fn irn(place: Place, random: &mut RandomStream) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    common(random, &mut options);
    if !one_in(random, 4) {
        options.push(("cap_packets", pick(random, &["1", "2", "3", "8", "64", "65", "256", "0"]).to_owned()));
    }
    if one_in(random, 6) {
        options.push(("recovery", "go-back-n".to_owned()));
        options.push(("rto", time(place, random, &[60, 150, 320], &[4_000, 8_000])));
        return options;
    }
    two_timeouts(place, random, &mut options);
    if one_in(random, 5) {
        options.push(("sack_bitmap", "false".to_owned()));
    }
    if one_in(random, 3) {
        options.push(("nack_threshold", pick(random, &["2", "3", "10"]).to_owned()));
        if one_in(random, 2) {
            options.push(("paths", "spray".to_owned()));
        }
    }
    if one_in(random, 5) {
        options.push(("dynamic_rto", "true".to_owned()));
    }
    options
}

/// Generates options of FaSR. Half of the pools have the paper's size; the others are so small that they are often
/// exhausted.
fn fasr(place: Place, random: &mut RandomStream) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    common(random, &mut options);
    if !one_in(random, 3) {
        options.push(("cap_packets", pick(random, &["1", "2", "3", "8", "64", "256", "0"]).to_owned()));
    }
    if one_in(random, 10) {
        options.push(("recovery", "go-back-n".to_owned()));
        options.push(("rto", time(place, random, &[60, 150, 320], &[4_000, 8_000])));
        return options;
    }
    two_timeouts(place, random, &mut options);
    if one_in(random, 2) {
        options.push(("pool_units", pick(random, &["1", "2", "3"]).to_owned()));
        options.push(("pool_blocks", pick(random, &["1", "2", "5", "20"]).to_owned()));
    }
    if one_in(random, 3) {
        options.push(("pool_block_bits", pick(random, &["1", "7", "16", "64"]).to_owned()));
    }
    options
}

/// Generates options of Falcon. Half of the NICs have so few resources that they are often exhausted.
fn falcon(place: Place, random: &mut RandomStream) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    let mut add = |name, value: &str| options.push((name, value.to_owned()));
    add("ordering", pick(random, &["ordered", "weak"]));
    add("resources", pick(random, &["100", "100", "1", "3"]));
    let isolation = pick(random, &["none", "static", "dynamic"]);
    add("isolation", isolation);
    // Generated in all cases, so that the later options of a seed stay the same.
    let packets = pick(random, &["1", "4", "64"]);
    if isolation == "static" {
        add("isolation_packets", packets);
    }
    add("outstanding", pick(random, &["4", "16", "256"]));
    add("out_of_window", pick(random, &["keep", "drop"]));
    add("request_window", pick(random, &["64", "128", "512"]));
    add("data_window", pick(random, &["64", "128", "512"]));
    if one_in(random, 3) {
        add("recovery", "ooo-distance");
    }
    add("flows", pick(random, &["1", "1", "2", "4"]));
    if one_in(random, 3) {
        add("fae_interface", "234ns");
        add("fae_work", pick(random, &["66ns", "2us"]));
    }
    // Through sockets a packet takes longer than 25 us, so that windows would be tiny in every run.
    let targets = if place.is_real() { &["1ms", "4ms", "20ms"] } else { &["25us", "1ms", "1ms"] };
    add(TARGET, pick(random, targets));
    add("initial_window", pick(random, &["1", "8", "32", "200"]));
    falcon_paths_and_acknowledgements(random, &mut options);
    falcon_adaptive(place, random, &mut options);
    falcon_pauses(random, &mut options);
    falcon_throttle(random, &mut options);
    options
}

/// Generates more of Falcon's options, after all others, so that the earlier options of a seed stay the same.
fn falcon_paths_and_acknowledgements(random: &mut RandomStream, options: &mut Vec<(&'static str, String)>) {
    if one_in(random, 5) {
        options.retain(|(name, _)| *name != "flows");
        options.push(("flows", "8".to_owned()));
    }
    let mut add = |name, values: &[&str]| {
        if one_in(random, 3) {
            options.push((name, pick(random, values).to_owned()));
        }
    };
    add("paths", &["spray", "scatter"]);
    add("tx_window", &["1", "2", "8", "64"]);
    add("plb_rounds", &["0", "1", "2"]);
    add("coalesce_count", &["1", "3", "64"]);
    add("coalesce_timeout", &["0", "1us", "50us"]);
}

/// Generates the location of the adaptive engine's state, and of the engine itself: a thread where this is possible.
fn falcon_adaptive(place: Place, random: &mut RandomStream, options: &mut Vec<(&'static str, String)>) {
    if one_in(random, 2) {
        options.push(("fae_form", pick(random, &["stateless", "stateless", "prefetching"]).to_owned()));
    }
    if one_in(random, 3) && place.is_real() {
        options.retain(|(name, _)| !matches!(*name, "fae_interface" | "fae_work"));
        options.push(("fae_place", "thread".to_owned()));
    }
}

/// Generates whether a sender pauses when it is notified of packets dropped beyond the window.
fn falcon_pauses(random: &mut RandomStream, options: &mut Vec<(&'static str, String)>) {
    if one_in(random, 4) {
        options.push(("after_out_of_window", "pause".to_owned()));
    }
}

/// Generates an adaptive engine with a short queue, which accepts fewer events before it is full.
fn falcon_throttle(random: &mut RandomStream, options: &mut Vec<(&'static str, String)>) {
    if one_in(random, 4) {
        options.push(("fae_queue", "8".to_owned()));
        options.push(("fae_throttle", pick(random, &["0", "25", "50"]).to_owned()));
    }
}

/// Generates options of a transport whose program decides: parameters of the program.
fn tonic(place: Place, name: &str, random: &mut RandomStream) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    let mut add = |name, values: &[&str]| {
        if one_in(random, 2) {
            options.push((name, pick(random, values).to_owned()));
        }
    };
    match name {
        "tonic-irn" => {
            add("cap", &["1", "2", "3", "8", "64", "128"]);
            two_timeouts(place, random, &mut options);
        }
        "tonic-ndp" | "tonic-dcqcn" => {
            add("window", &["1", "2", "3", "8", "64"]);
            match name {
                "tonic-ndp" => add("pull_window", &["1", "2", "64"]),
                _ => add("round_segments", &["3", "100"]),
            }
            options.push(("rto", time(place, random, &[40, 100, 320], &[3_000, 8_000])));
        }
        _ => {
            add("first_window", &["1", "2", "64", "128"]);
            add("dup_threshold", &["1", "2", "10"]);
            options.push(("rto_min", time(place, random, &[40, 100, 320], &[1_000, 3_000])));
            options.push(("rto_max", time(place, random, &[320, 1_000, 5_000], &[8_000, 100_000])));
        }
    }
    options
}

fn roce(place: Place, random: &mut RandomStream) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    common(random, &mut options);
    options.push(("rto", time(place, random, &[40, 100, 320], &[3_000, 8_000])));
    if !one_in(random, 3) {
        options.push(("cap_packets", pick(random, &["1", "2", "3", "8", "64", "500"]).to_owned()));
    }
    if one_in(random, 2) {
        options.push(("ack_every_packets", pick(random, &["1", "2", "5", "16", "1000"]).to_owned()));
    }
    options
}
