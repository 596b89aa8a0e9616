//! Settings as people write them.

use std::io::Write;

use rnic_base::{BitRate, Duration, Probability};

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_variables(variables.iter().copied())
}

#[test]
fn nothing_set_is_the_default() {
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
        ("RNIC_DELAY", "5us"),
        ("RNIC_JITTER", "1ms"),
        ("RNIC_RATE", "10Gbps"),
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
    let Impairment { seed, loss, reorder, duplicate, corrupt, delay, jitter, rate, .. } = settings.impairment;
    assert_eq!((settings.transport.as_str(), settings.options.len(), seed), ("roce-gbn", 2, 7));
    assert_eq!((loss, reorder), (Probability::ratio(1, 100), Probability::ratio(5, 100)));
    assert_eq!((duplicate, corrupt), (Probability::ratio(5, 1_000), Probability::ratio(1, 1_000)));
    assert_eq!((delay, jitter, rate), (Duration::from_us(5), Duration::from_ms(1), Some(BitRate::gbps(10))));
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

/// Adapters count receives in their acknowledgements, and so do we among them; our own processes do not.
#[test]
fn credits_are_for_adapters_unless_somebody_says_otherwise() {
    let has_credits = |variables: &[(&str, &str)]| {
        let settings = Settings::from_variables(variables.iter().copied()).expect("all are legal");
        settings.transport_choice().expect("it exists").profile.end_to_end_credits
    };
    let (roce, gbn) = (("RNIC_PEERS", "roce"), ("RNIC_TRANSPORT", "roce-gbn"));
    let set = |value| ("RNIC_SET", value);
    assert!(has_credits(&[roce]) && has_credits(&[gbn, set("end_to_end_credits=true")]));
    assert!(!has_credits(&[gbn]) && !has_credits(&[roce, set("end_to_end_credits=false")]));
}

/// None was forgotten: each of them differs from the default.
#[test]
fn every_variable_sets_something() {
    let default = Settings::default();
    let mut secret = tempfile::NamedTempFile::new().expect("a temporary file");
    secret.write_all(&[7; 32]).expect("32 bytes");
    let secret = secret.path().to_str().expect("a plain path");
    for variable in VARIABLES {
        let mut one = default.clone();
        let value = [("RNIC_TRANSPORT", "roce-gbn"), ("RNIC_SET", "a=b"), ("RNIC_RATE", "1Gbps"), ("RNIC_SEED", "9")];
        let more = [
            ("RNIC_PROGRESS", "off"),
            ("RNIC_MTU", "512"),
            ("RNIC_PCAP", "x"),
            ("RNIC_PEERS", "roce"),
            ("RNIC_LIDS", "loopback"),
            ("RNIC_QUIET", "on"),
            ("RNIC_KEY", secret),
        ];
        let given = value.iter().chain(&more).find(|(name, _)| *name == variable.name).map(|(_, value)| *value);
        let times = ["RNIC_DELAY", "RNIC_JITTER"];
        let switch = variable.value == "on|off";
        let guess = if times.contains(&variable.name) {
            "1us"
        } else if switch {
            "off"
        } else {
            "3%"
        };
        variable.set(&mut one, given.unwrap_or(guess)).expect("it is legal");
        assert_ne!(one, default, "{} sets something", variable.name);
    }
}

#[test]
fn defaults_in_the_table_are_those_that_hold() {
    for variable in VARIABLES.iter().filter(|variable| !variable.default.contains(' ')) {
        let mut settings = Settings::default();
        variable.set(&mut settings, variable.default).expect("a default is legal");
        // A transport that is named is the user's choice, even when it is the default.
        settings.names_transport = false;
        assert_eq!(settings, Settings::default(), "{}", variable.name);
    }
}

#[test]
fn mistakes_are_one_line_that_names_the_variable() {
    let cases = [
        ("RNIC_LOSS", "1x", "probability"),
        ("RNIC_LOSS", "101%", "probability"),
        ("RNIC_DELAY", "5", "100us"),
        ("RNIC_RATE", "0Gbps", "above zero"),
        ("RNIC_MTU", "1501", "multiple of 4"),
        ("RNIC_SEED", "-1", "whole number"),
        ("RNIC_BYPASS", "yes", "on or off"),
        ("RNIC_PROGRESS", "fast", "auto, thread or off"),
        ("RNIC_SET", "rto", "KEY=VALUE"),
        ("RNIC_TRANSPORT", "quic", "roce-gbn"),
        ("RNIC_SET", "rto_high=soon", "rto_high"),
        ("RNIC_PEERS", "mlx5", "rnic or roce"),
        ("RNIC_KEY", "", "names no file with a secret"),
        ("RNIC_KEY", "/nowhere", "cannot read the secret"),
        ("RNIC_KEY", "/dev/null", "64 hexadecimal digits"),
    ];
    for (name, value, says) in cases {
        let error = read(&[(name, value)]).expect_err(value).to_string();
        assert!(error.contains(name) && error.contains(value) && error.contains(says), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn other_makes_are_spoken_to_in_their_own_language() {
    let peers = ("RNIC_PEERS", "roce");
    let transport = |list: &str| read(&[peers, ("RNIC_TRANSPORT", list)]).map(|settings| settings.transport_list());
    assert_eq!(read(&[peers]).expect("what such peers speak").transport, "roce-gbn");
    assert_eq!(transport("irn,roce-gbn"), Ok("roce-gbn".to_owned()), "the one of the list that such peers speak");
    let error = transport("irn,fasr").expect_err("both are ours alone").to_string();
    assert!(error.contains("RNIC_PEERS=roce") && error.contains("roce-gbn"), "{error}");
    assert!(read(&[("RNIC_PEERS", "roce"), ("RNIC_TRANSPORT", "roce-gbn")]).is_ok());
}

#[test]
fn a_variable_that_is_nearly_one_of_ours_is_refused() {
    for (found, meant) in [("RNIC_LOS", "RNIC_LOSS"), ("RNIC_SEEDS", "RNIC_SEED"), ("RNIC_RETE", "RNIC_RATE")] {
        let error = read(&[(found, "1")]).expect_err("a slip").to_string();
        assert!(error.contains(found) && error.contains(meant), "{error}");
    }
    assert_eq!(read(&[("RNIC_LIBRARY_DIR", "/x"), ("RNIC_TEST_BIND", "y"), ("RNIC", "")]), Ok(Settings::default()));
}

#[test]
fn the_line_says_what_the_device_is_and_what_is_bad_about_the_network() {
    let wire = |transport: &str| Settings { transport: transport.to_owned(), ..Settings::default() }.wire();
    assert_eq!(["irn", "falcon"].map(wire), ["RoCEv2 over UDP", "Falcon over UDP"]);
    let plain = Settings::default().describe("rnic0", "RoCEv2 over UDP from 192.0.2.1");
    assert_eq!(plain, "rnic: software device rnic0 (not hardware): transport irn, RoCEv2 over UDP from 192.0.2.1");
    let settings = read(&[
        ("RNIC_SET", "rto_high=2ms"),
        ("RNIC_LOSS", "1%"),
        ("RNIC_DELAY", "5us"),
        ("RNIC_SEED", "7"),
        ("RNIC_BYPASS", "off"),
        ("RNIC_PCAP", "a.pcap"),
    ]);
    let line = settings.expect("legal").describe("rnic0", "UDP");
    for part in ["irn (rto_high=2ms)", "loss 1%", "delay 5 us", "seed 7", "same-host bypass off", "a.pcap"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn a_nic_gets_what_was_set() {
    let settings = read(&[("RNIC_LOSS", "1%"), ("RNIC_MTU", "1024"), ("RNIC_SEGMENTATION", "off")]).expect("legal");
    let config = settings.to_nic_config(NicConfig { name: "rnic0".to_owned(), ..NicConfig::default() });
    assert_eq!((config.mtu_max_bytes, config.segmentation, config.receive_offload), (1_024, false, true));
    assert_eq!(config.impairment.loss, Probability::ratio(1, 100));
    assert!(config.name.starts_with("rnic0/"), "{}", config.name);
}

#[test]
fn the_bypass_is_for_networks_that_are_neither_bad_nor_watched() {
    assert!(Settings::default().allows_bypass());
    for (name, value) in [("RNIC_BYPASS", "off"), ("RNIC_DELAY", "1us"), ("RNIC_PCAP", "a.pcap")] {
        assert!(!read(&[(name, value)]).expect("legal").allows_bypass(), "{name}");
    }
}

#[test]
fn several_transports_may_be_offered() {
    let several = read(&[("RNIC_TRANSPORT", "irn, roce-gbn"), ("RNIC_SET", "rto_high=2ms")]).expect("both are known");
    assert_eq!((several.transport.as_str(), several.transport_list().as_str()), ("irn", "irn,roce-gbn"));
    let fallbacks = several.fallback_choices().expect("one");
    assert_eq!(fallbacks.iter().map(|choice| choice.profile.name).collect::<Vec<_>>(), ["roce-gbn"]);
    assert!(several.describe("rnic0", "here").contains("or roce-gbn"));
    for wrong in ["irn,quic", "irn,falcon", "falcon,irn", "irn,", "irn,fasr,roce-gbn,tcp,roce-sr"] {
        assert!(read(&[("RNIC_TRANSPORT", wrong)]).is_err(), "{wrong}");
    }
}
