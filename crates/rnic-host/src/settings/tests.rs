//! Settings as users write them.

use std::io::Write;

use rnic_base::{BitRate, Duration, Probability};

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_variables(variables.iter().copied())
}

#[test]
fn without_variables_the_settings_are_the_defaults() {
    assert_eq!(read(&[("PATH", "/bin"), ("RNIC_LOSS", "")]), Ok(Settings::default()));
}

#[test]
fn every_variable_is_read() {
    let settings = read(&[
        ("RNIC_TRANSPORT", "roce-gbn"),
        ("RNIC_SET", "rto=4ms, control=dcqcn"),
        ("RNIC_LOSS", "1%"),
        ("RNIC_REORDER", "5 %"),
        ("RNIC_DUPLICATE", "0.5%"),
        ("RNIC_CORRUPT", "0.001"),
        ("RNIC_TRIM", "3%"),
        ("RNIC_MARK", "4%"),
        ("RNIC_DELAY", "5us"),
        ("RNIC_JITTER", "1ms"),
        ("RNIC_RATE", "10Gbps"),
        ("RNIC_RATE_LIMIT", "2Gbps"),
        ("RNIC_LINK_RATE", "3Gbps"),
        ("RNIC_WEIGHT", "5"),
        ("RNIC_SCHEDULE", "greedy"),
        ("RNIC_SEED", "7"),
        ("RNIC_MTU", "1KiB"),
        ("RNIC_PCAP", "out.pcap"),
        ("RNIC_PEERS", "roce"),
        ("RNIC_BYPASS", "off"),
        ("RNIC_PROGRESS", "thread"),
        ("RNIC_SEGMENTATION", "off"),
        ("RNIC_RECEIVE_OFFLOAD", "off"),
        ("RNIC_QUIET", "on"),
    ])
    .expect("all are legal");
    let Impairment { seed, loss, reorder, duplicate, corrupt, delay, jitter, rate, trim, mark, .. } =
        settings.impairment;
    assert_eq!((trim, mark), (Probability::ratio(3, 100), Probability::ratio(4, 100)));
    assert_eq!((settings.transport.as_str(), settings.options.len(), seed), ("roce-gbn", 3, 7));
    assert_eq!((loss, reorder), (Probability::ratio(1, 100), Probability::ratio(5, 100)));
    assert_eq!((duplicate, corrupt), (Probability::ratio(5, 1_000), Probability::ratio(1, 1_000)));
    assert_eq!((delay, jitter, rate), (Duration::from_us(5), Duration::from_ms(1), Some(BitRate::gbps(10))));
    assert_eq!(settings.rate_limit, Some(BitRate::gbps(2)));
    assert_eq!((settings.link_rate, settings.weight), (Some(BitRate::gbps(3)), Some(5)));
    let schedule = settings.transport_choice().expect("it exists").profile.schedule;
    assert_eq!(schedule.policy.name, "greedy");
    assert_eq!((settings.mtu_max_bytes, settings.progress), (Some(1_024), Progress::Thread));
    assert_eq!(settings.capture.as_deref(), Some(std::path::Path::new("out.pcap")));
    assert!(
        settings.real_roce_peers
            && !settings.bypass
            && !settings.segmentation
            && !settings.receive_offload
            && settings.quiet
    );
}

/// Adapters count receives in their acknowledgements, so our NICs do too when adapters are peers; between our own
/// processes they do not.
#[test]
fn end_to_end_credits_default_to_real_roce_peers_only() {
    let has_credits = |variables: &[(&str, &str)]| {
        let settings = Settings::from_variables(variables.iter().copied()).expect("all are legal");
        settings.transport_choice().expect("it exists").profile.end_to_end_credits
    };
    let (roce, gbn) = (("RNIC_PEERS", "roce"), ("RNIC_TRANSPORT", "roce-gbn"));
    let set = |value| ("RNIC_SET", value);
    assert!(has_credits(&[roce]) && has_credits(&[gbn, set("end_to_end_credits=true")]));
    assert!(!has_credits(&[gbn]) && !has_credits(&[roce, set("end_to_end_credits=false")]));
}

/// Checks that every variable can be set, and that its value changes a default.
#[test]
fn every_variable_changes_a_setting() {
    let default = Settings::default();
    let mut secret = tempfile::NamedTempFile::new().expect("a temporary file");
    secret.write_all(&[7; 32]).expect("32 bytes");
    let secret = secret.path().to_str().expect("a plain path");
    for variable in VARIABLES {
        let mut one = default.clone();
        let value = [("RNIC_TRANSPORT", "roce-gbn"), ("RNIC_SET", "a=b"), ("RNIC_RATE", "1Gbps"), ("RNIC_SEED", "9")];
        let more = [
            ("RNIC_PROGRESS", "off"),
            ("RNIC_RATE_LIMIT", "1Gbps"),
            ("RNIC_LINK_RATE", "1Gbps"),
            ("RNIC_WEIGHT", "1"),
            ("RNIC_SCHEDULE", "greedy"),
            ("RNIC_MTU", "512"),
            ("RNIC_PCAP", "x"),
            ("RNIC_PEERS", "roce"),
            ("RNIC_LIDS", "loopback"),
            ("RNIC_QUIET", "on"),
            ("RNIC_KEY", secret),
            ("RNIC_LATENCIES", "on"),
            ("RNIC_MESSAGES", "on"),
            ("RNIC_SCHEDULE_THREADS", "1"),
            ("RNIC_IMPAIR_PATHS", "0"),
        ];
        let given = value.iter().chain(&more).find(|(name, _)| *name == variable.name).map(|(_, value)| *value);
        let times = ["RNIC_DELAY", "RNIC_JITTER"];
        let switch = variable.value == "on|off";
        let sample_value = if times.contains(&variable.name) {
            "1us"
        } else if switch {
            "off"
        } else {
            "3%"
        };
        variable.set(&mut one, given.unwrap_or(sample_value)).expect("it is legal");
        assert_ne!(one, default, "{} has no effect", variable.name);
    }
}

/// Controllers that need probes are available with messages only; messages exclude adapters as peers.
#[test]
fn messages_are_off_by_default_and_checked_with_other_settings() {
    let read = |variables: &[(&str, &str)]| Settings::from_variables(variables.iter().copied());
    assert_eq!(read(&[]).map(|settings| settings.messages), Ok(None));
    let granting = read(&[("RNIC_MESSAGES", "grants")]).expect("a legal value").messages.expect("on");
    assert!(granting.grants && granting != read(&[("RNIC_MESSAGES", "on")]).expect("legal").messages.expect("on"));
    let text = |variables: &[(&str, &str)]| read(variables).expect_err("it is refused").to_string();
    for policy in ["control=swift-rate", "paths=probed"] {
        let by_probes = [("RNIC_SET", policy), ("RNIC_MESSAGES", "on")];
        assert!(read(&by_probes).is_ok());
        let without = text(&by_probes[..1]);
        assert!(without.contains("--messages on (RNIC_MESSAGES=on)"), "{without}");
    }
    let adapters = text(&[("RNIC_PEERS", "roce"), ("RNIC_MESSAGES", "on")]);
    assert!(adapters.starts_with("RNIC_MESSAGES=on: RoCEv2 adapters"), "{adapters}");
    let mut secret = tempfile::NamedTempFile::new().expect("a temporary file");
    secret.write_all(&[7; 32]).expect("32 bytes");
    let path = secret.path().to_str().expect("a plain path");
    assert!(read(&[("RNIC_KEY", path), ("RNIC_TRANSPORT", "falcon"), ("RNIC_MESSAGES", "on")]).is_ok());
    assert!(text(&[("RNIC_MESSAGES", "yes")]).contains("expected off, on or grants"));
}

#[test]
fn defaults_in_the_table_match_the_settings() {
    for variable in VARIABLES.iter().filter(|variable| !variable.default.contains(' ')) {
        let mut settings = Settings::default();
        variable.set(&mut settings, variable.default).expect("a default is legal");
        // `names_transport` records that the user named a transport, even if it is the default one.
        settings.names_transport = false;
        assert_eq!(settings, Settings::default(), "{}", variable.name);
    }
}

#[test]
fn errors_are_one_line_that_names_the_variable() {
    let cases = [
        ("RNIC_LOSS", "1x", "probability"),
        ("RNIC_LOSS", "101%", "probability"),
        ("RNIC_DELAY", "5", "100us"),
        ("RNIC_RATE", "0Gbps", "above zero"),
        ("RNIC_RATE_LIMIT", "0Gbps", "between 1 Mbit/s and 100 Gbit/s"),
        ("RNIC_RATE_LIMIT", "999kbps", "between 1 Mbit/s and 100 Gbit/s"),
        ("RNIC_RATE_LIMIT", "101Gbps", "between 1 Mbit/s and 100 Gbit/s"),
        ("RNIC_LINK_RATE", "0Gbps", "between 1 Mbit/s and 100 Gbit/s"),
        ("RNIC_LINK_RATE", "999kbps", "between 1 Mbit/s and 100 Gbit/s"),
        ("RNIC_LINK_RATE", "101Gbps", "between 1 Mbit/s and 100 Gbit/s"),
        ("RNIC_WEIGHT", "0", "from 1 to 1000"),
        ("RNIC_WEIGHT", "1001", "from 1 to 1000"),
        ("RNIC_WEIGHT", "-1", "from 1 to 1000"),
        ("RNIC_WEIGHT", "1.5", "from 1 to 1000"),
        ("RNIC_MTU", "1501", "multiple of 4"),
        ("RNIC_SEED", "-1", "whole number"),
        ("RNIC_BYPASS", "yes", "on or off"),
        ("RNIC_PROGRESS", "fast", "auto, thread or off"),
        ("RNIC_SET", "rto", "KEY=VALUE"),
        ("RNIC_TRANSPORT", "quic", "roce-gbn"),
        ("RNIC_SET", "rto_high=soon", "rto_high"),
        ("RNIC_PEERS", "mlx5", "rnic or roce"),
        ("RNIC_KEY", "", "no file with a secret is given"),
        ("RNIC_KEY", "/nowhere", "cannot read the secret"),
        ("RNIC_KEY", "/dev/null", "64 hexadecimal digits"),
    ];
    for (name, value, expected_text) in cases {
        let error = read(&[(name, value)]).expect_err(value).to_string();
        assert!(error.contains(name) && error.contains(value) && error.contains(expected_text), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn real_roce_peers_require_the_transport_roce_gbn() {
    let peers = ("RNIC_PEERS", "roce");
    let transport = |list: &str| read(&[peers, ("RNIC_TRANSPORT", list)]).map(|settings| settings.transport_list());
    assert_eq!(read(&[peers]).expect("the setting is valid").transport, "roce-gbn");
    assert_eq!(transport("irn,roce-gbn"), Ok("roce-gbn".to_owned()), "not the RoCEv2 transport of the list");
    let error = transport("irn,fasr").expect_err("RoCEv2 peers have neither").to_string();
    assert!(error.contains("RNIC_PEERS=roce") && error.contains("roce-gbn"), "{error}");
    assert!(read(&[("RNIC_PEERS", "roce"), ("RNIC_TRANSPORT", "roce-gbn")]).is_ok());
}

#[test]
fn a_mistyped_variable_is_refused() {
    for (found, expected) in [("RNIC_LOS", "RNIC_LOSS"), ("RNIC_SEEDS", "RNIC_SEED"), ("RNIC_RETE", "RNIC_RATE")] {
        let error = read(&[(found, "1")]).expect_err("a mistyped name").to_string();
        assert!(error.contains(found) && error.contains(expected), "{error}");
    }
    assert_eq!(read(&[("RNIC_LIBRARY_DIR", "/x"), ("RNIC_TEST_BIND", "y"), ("RNIC", "")]), Ok(Settings::default()));
}

#[test]
fn the_description_names_the_device_and_its_impairment() {
    let wire = |transport: &str| Settings { transport: transport.to_owned(), ..Settings::default() }.wire();
    assert_eq!(["irn", "falcon"].map(wire), ["RoCEv2 over UDP", "Falcon over UDP"]);
    let plain = Settings::default().describe("rnic0", "RoCEv2 over UDP from 192.0.2.1");
    assert_eq!(plain, "rnic: software device rnic0 (not hardware): transport irn, RoCEv2 over UDP from 192.0.2.1");
    let settings = read(&[
        ("RNIC_SET", "rto_high=2ms"),
        ("RNIC_LOSS", "1%"),
        ("RNIC_DELAY", "5us"),
        ("RNIC_IMPAIR_PATHS", "0,3-4"),
        ("RNIC_SEED", "7"),
        ("RNIC_BYPASS", "off"),
        ("RNIC_PCAP", "a.pcap"),
    ]);
    let line = settings.expect("valid").describe("rnic0", "UDP");
    for part in [
        "irn (rto_high=2ms)",
        "loss 1%",
        "delay 5 us",
        "on paths 0,3,4 only",
        "seed 7",
        "same-host bypass off",
        "a.pcap",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn the_nic_configuration_contains_the_settings() {
    let settings = read(&[("RNIC_LOSS", "1%"), ("RNIC_MTU", "1024"), ("RNIC_SEGMENTATION", "off")]).expect("valid");
    let config = settings.to_nic_config(NicConfig { name: "rnic0".to_owned(), ..NicConfig::default() });
    assert_eq!((config.mtu_max_bytes, config.segmentation, config.receive_offload), (1_024, false, true));
    assert_eq!(config.impairment.loss, Probability::ratio(1, 100));
    assert!(config.name.starts_with("rnic0/"), "{}", config.name);
}

#[test]
fn a_process_shares_a_link_if_it_has_a_rate_or_a_weight() {
    let share = |variables: &[(&str, &str)]| read(variables).expect("valid").to_nic_config(NicConfig::shared()).share;
    assert_eq!(share(&[("RNIC_RATE_LIMIT", "1Gbps"), ("RNIC_SCHEDULE", "greedy")]), None);
    let weighted = ShareConfig { weight: 3, ..ShareConfig::default() };
    assert_eq!(share(&[("RNIC_WEIGHT", "3")]), Some(weighted));
    let linked = ShareConfig { link_rate: Some(BitRate::gbps(2)), ..ShareConfig::default() };
    assert_eq!(share(&[("RNIC_LINK_RATE", "2Gbps"), ("RNIC_SCHEDULE", "greedy")]), Some(linked));
    let both = read(&[("RNIC_LINK_RATE", "2Gbps"), ("RNIC_WEIGHT", "3")]).expect("valid");
    assert!(both.allows_bypass(), "the shared link needs no UDP");
    let line = both.describe("rnic0", "UDP");
    assert!(line.contains("shared link of 2 Gbit/s, weight 3"), "{line}");
}

#[test]
fn the_option_schedule_is_the_option_of_the_transport() {
    let twice = |name| read(&[("RNIC_SET", "schedule=greedy"), ("RNIC_SCHEDULE", name)]);
    assert!(twice("greedy").is_ok());
    let error = twice("round-robin").expect_err("two schedulers").to_string();
    assert!(error.contains("two schedulers, greedy and round-robin") && error.lines().count() == 1, "{error}");
    let error = read(&[("RNIC_SCHEDULE", "fast")]).expect_err("there is none").to_string();
    assert!(error.contains("RNIC_SET=schedule=fast") && error.contains("greedy, round-robin"), "{error}");
    let falcon = read(&[("RNIC_TRANSPORT", "falcon"), ("RNIC_SCHEDULE", "greedy")]).expect_err("no effect").to_string();
    assert!(falcon.contains("the scheduler `greedy`") && falcon.lines().count() == 1, "{falcon}");
}

#[test]
fn s12_threads_of_schedulers_need_a_scheduler_that_sets_rates() {
    let water_filling = ("RNIC_SCHEDULE", "water-filling");
    let settings = read(&[("RNIC_SCHEDULE_THREADS", "2"), water_filling]).expect("valid");
    assert_eq!(settings.to_nic_config(NicConfig::default()).schedule_threads, 2);
    let without = read(&[("RNIC_SCHEDULE_THREADS", "1")]).expect_err("nothing to run").to_string();
    assert!(without.starts_with("RNIC_SCHEDULE_THREADS=1: the scheduler "), "{without}");
    let many = read(&[("RNIC_SCHEDULE_THREADS", "3"), water_filling]).expect_err("too many").to_string();
    assert!(many.contains("expected 0, 1 or 2"), "{many}");
}

#[test]
fn the_bypass_is_disabled_by_impairment_and_capture() {
    assert!(Settings::default().allows_bypass());
    for (name, value) in [("RNIC_BYPASS", "off"), ("RNIC_DELAY", "1us"), ("RNIC_PCAP", "a.pcap")] {
        assert!(!read(&[(name, value)]).expect("valid").allows_bypass(), "{name}");
    }
}

#[test]
fn several_transports_may_be_offered() {
    let several = read(&[("RNIC_TRANSPORT", "irn, roce-gbn"), ("RNIC_SET", "rto_high=2ms")]).expect("both are known");
    assert_eq!((several.transport.as_str(), several.transport_list().as_str()), ("irn", "irn,roce-gbn"));
    let fallbacks = several.fallback_choices().expect("there is a fallback transport");
    assert_eq!(fallbacks.iter().map(|choice| choice.profile.name).collect::<Vec<_>>(), ["roce-gbn"]);
    assert!(several.describe("rnic0", "here").contains("or roce-gbn"));
    for wrong in ["irn,quic", "irn,falcon", "falcon,irn", "irn,", "irn,fasr,roce-gbn,tcp,roce-sr"] {
        assert!(read(&[("RNIC_TRANSPORT", wrong)]).is_err(), "{wrong}");
    }
}
