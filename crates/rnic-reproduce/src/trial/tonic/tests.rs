//! Both sides of each trial on small networks.

use super::{compare, new_reno, rates};

/// One flow over links of 10 Gbit/s.
const NEW_RENO: &str = r#"
loss = "0.5%"
rto_min = "1ms"
first_window = 10
[network]
senders = 1
flows = 1
rate = "10Gbps"
delay = "2500ns"
buffer = "5500KB"
jitter = "0ns"
segment = 1000
duration = "20ms"
sample = "10us"
skip = 10
cycle = "100ns"
template = 64
queue = 16
trace = "1ms"
"#;

/// Two senders over links of 40 Gbit/s.
const DCQCN: &str = r#"
window = 128
message = 100
rto = "200us"
rate_min = "100Mbps"
byte_counter = "300MB"
timer = "55040ns"
[switch.ecn]
kmin = "41KB"
kmax = "1030KB"
pmax = "100%"
[network]
senders = 2
flows = 1
rate = "40Gbps"
delay = "1us"
buffer = "12MB"
jitter = "0ns"
segment = 1000
duration = "4ms"
sample = "10us"
skip = 10
cycle = "10ns"
template = 16
queue = 2
trace = "1ms"
"#;

/// Returns `text` with other values at keys with dots.
fn table(text: &str, more: &[(&str, &str)]) -> toml::Table {
    let mut table: toml::Table = toml::from_str(text).expect("it is TOML");
    for (key, value) in more {
        let value = toml::from_str::<toml::Table>(&format!("value = {value}")).expect("a value")["value"].clone();
        match key.strip_prefix("network.") {
            Some(key) => table["network"].as_table_mut().expect("a table").insert(key.to_owned(), value),
            None => table.insert((*key).to_owned(), value),
        };
    }
    table
}

fn new_reno(more: &[(&str, &str)]) -> new_reno::Arguments {
    new_reno::checked(&table(NEW_RENO, more)).expect("the arguments are valid")
}

fn dcqcn(more: &[(&str, &str)]) -> rates::Arguments {
    rates::checked(&table(DCQCN, more)).expect("the arguments are valid")
}

/// Returns the bytes that the flows have delivered at the end.
fn delivered(samples: &[Vec<u64>]) -> &[u64] {
    samples.last().expect("there are samples")
}

#[test]
fn both_sides_of_new_reno_deliver_alike() {
    let arguments = new_reno(&[("network.senders", "2"), ("network.flows", "3")]);
    let (tonic, tcp) = (arguments.tonic("new-reno", 1).expect("it runs"), arguments.independent(1).expect("it runs"));
    for side in [&tonic, &tcp] {
        let delivered = delivered(&side.delivered);
        assert_eq!(delivered.len(), 6);
        // Three flows have a link of 1.25 MB a millisecond, and losses.
        assert!(delivered.iter().all(|bytes| *bytes > 1_000_000), "{delivered:?}");
        assert!(side.acknowledged.iter().zip(delivered).all(|(known, bytes)| known <= bytes));
        assert!(side.repeats.iter().all(|repeats| repeats.len() > 5), "{:?}", side.repeats);
        assert!(side.windows.len() == 2_000 && side.windows.iter().all(|window| *window >= 1.0));
    }
    let total = |side: &new_reno::Side| delivered(&side.delivered).iter().sum::<u64>() as f64;
    let ratio = total(&tonic) / total(&tcp);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn both_sides_of_dcqcn_deliver_alike_and_cut_their_rates() {
    let arguments = dcqcn(&[]);
    let (tonic, engine) = (arguments.tonic("dcqcn", 1).expect("it runs"), arguments.independent(1).expect("it runs"));
    for side in [&tonic, &engine] {
        // 20 Gbit/s for 4 ms, less headers.
        let delivered = delivered(&side.delivered);
        assert!(delivered.iter().all(|bytes| (4_000_000..12_000_000).contains(bytes)), "{delivered:?}");
        assert!(delivered.iter().sum::<u64>() > 12_000_000, "the link is not used: {delivered:?}");
        assert!(side.acknowledged.iter().zip(delivered).all(|(known, bytes)| known <= bytes && known * 2 > *bytes));
        assert!(side.cnps.iter().all(|cnps| *cnps > 1), "{:?}", side.cnps);
        assert!(side.rates.iter().all(|rate| (0.099..40.1).contains(rate)));
        assert!(side.rates.iter().any(|rate| *rate < 25.0), "no rate was cut");
    }
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let of_seed = |seed| {
        let (tcp, roce) = (new_reno(&[("network.duration", "\"5ms\"")]), dcqcn(&[("network.duration", "\"1ms\"")]));
        let sides = (tcp.tonic("new-reno", seed), tcp.independent(seed));
        (sides, (roce.tonic("dcqcn", seed), roce.independent(seed)))
    };
    let (one, again, other) = (of_seed(7), of_seed(7), of_seed(8));
    assert_eq!(one, again);
    let (tcp, roce) = (one.0, one.1);
    assert_ne!(tcp.0, other.0.0);
    assert_ne!(tcp.1, other.0.1);
    assert_ne!(roce.0, other.1.0);
    assert_ne!(roce.1, other.1.1);
    let hash = |side: &new_reno::Side| side.trace_hash.clone();
    assert_ne!(tcp.0.as_ref().map(hash), tcp.1.as_ref().map(hash), "both sides send the same packets");
}

/// The receiver loses the same segments of both sides, whenever they arrive.
#[test]
fn drops_are_shared_by_position() {
    let arguments = new_reno(&[("loss", "\"0.2%\"")]);
    let repeats = |side: Result<new_reno::Side, String>| side.expect("it runs").repeats.concat();
    let tonic = repeats(arguments.tonic("new-reno", 1));
    let (tcp, other) = (repeats(arguments.independent(1)), repeats(arguments.independent(2)));
    assert!(tonic.len() > 20 && tcp.len() > 20, "{} and {}", tonic.len(), tcp.len());
    assert!(compare::common(&tonic, &tcp) > 80.0, "{tonic:?}, {tcp:?}");
    assert!(compare::common(&tonic, &other) < 20.0, "another seed loses the same segments: {tonic:?}, {other:?}");
}

/// A host runs only the cycles in which something can change: what it sends, and when, is what it sends if it runs all.
#[test]
fn stepping_where_something_changes_equals_stepping_every_cycle() {
    let every = ("network.every_cycle", "true");
    // Flows end within the time: samples are taken at a time to which not all hosts have come.
    let end =
        |time| [("network.flows", "3"), ("network.duration", time), ("network.sample", time), ("network.trace", time)];
    for (loss, queue) in [("\"0.5%\"", "16"), ("\"2%\"", "1")] {
        let more = [("loss", loss), ("network.queue", queue), ("rto_min", "\"60us\""), ("network.segments", "300")];
        let more = [&more[..], &end("\"3ms\"")].concat();
        let lazy = new_reno(&more).tonic("new-reno", 1).expect("it runs");
        let eager = new_reno(&[&more[..], &[every]].concat()).tonic("new-reno", 1).expect("it runs");
        assert_eq!(lazy, eager);
        assert!(lazy.acknowledged == [300_000; 3] && lazy.repeats.concat().len() > 3, "{lazy:?}");
    }
    for window in ["128", "64"] {
        let more = [("window", window), ("network.segments", "1000")];
        let more = [&more[..], &end("\"6ms\"")].concat();
        let lazy = dcqcn(&more).tonic("dcqcn", 1).expect("it runs");
        let eager = dcqcn(&[&more[..], &[every]].concat()).tonic("dcqcn", 1).expect("it runs");
        assert_eq!(lazy, eager);
        assert!(lazy.acknowledged == [1_000_000; 6] && lazy.cnps.iter().all(|cnps| *cnps > 2), "{lazy:?}");
    }
}

/// Every segment of every flow arrives, and is known to have arrived; none is sent beyond the end.
fn is_complete(delivered: &[u64], acknowledged: &[u64], segments: u64) -> bool {
    delivered.iter().chain(acknowledged).all(|bytes| *bytes == segments * 1_000)
}

#[test]
fn t29_a_template_completes_against_receivers_of_tcp() {
    for program in ["reno", "new-reno"] {
        let more = [("loss", "\"1%\""), ("network.flows", "4"), ("network.senders", "2"), ("network.segments", "1001")];
        let side = new_reno(&more).tonic(program, 1).expect("it runs");
        let delivered = delivered(&side.delivered);
        assert!(is_complete(delivered, &side.acknowledged, 1_001), "{program}: {delivered:?}, {:?}", side.acknowledged);
        assert!(side.repeats.concat().len() > 50, "{program}: no segment was lost");
    }
}

/// Buffers are too small for the windows of four flows.
#[test]
fn t29_a_template_completes_against_receivers_of_engines() {
    for program in ["dcqcn", "irn", "sack", "ndp"] {
        let trims = program == "ndp";
        let switch = if trims { "{ trim = { queue = 16 } }" } else { "{}" };
        let more = [
            ("switch", switch),
            ("message", "10"),
            ("network.buffer", if trims { "\"1MB\"" } else { "\"60KB\"" }),
            ("network.flows", "2"),
            ("network.segments", "1010"),
        ];
        let side = dcqcn(&more).tonic(program, 1).expect("it runs");
        let delivered = delivered(&side.delivered);
        assert!(is_complete(delivered, &side.acknowledged, 1_010), "{program}: {delivered:?}, {:?}", side.acknowledged);
        assert!(side.repeats > 20, "{program}: {} segments were lost", side.repeats);
    }
}

#[test]
fn errors_in_arguments_are_one_line() {
    let refused = |more: &[(&str, &str)]| new_reno::TRIAL.cost(&table(NEW_RENO, more)).expect_err("it is refused");
    for (more, error) in [
        (("network.flows", "65"), "flows: 65 does not lie between 1 and 64"),
        (("network.trace", "\"1s\""), "trace: 1 s does not lie between 10 us and 20 ms"),
        (("network.segment", "0"), "segment: 0 does not lie between 64 and 8192"),
        (("network.sneders", "2"), "network.sneders: unknown key"),
        (("loss", "\"half\""), "loss: "),
        (("first_window", "129"), "first_window: 129 does not lie between 1 and 128"),
    ] {
        let found = refused(&[more]);
        assert!(found.starts_with(error) && !found.contains('\n'), "{found}");
    }
    let refused = |more: &[(&str, &str)]| rates::TRIAL.cost(&table(DCQCN, more)).expect_err("it is refused");
    for (more, error) in [
        (("rate_min", "\"20Gbps\""), "rate_min: "),
        (("byte_counter", "\"9GB\""), "byte_counter: "),
        (("window", "32"), "window: 32 does not lie between 64 and 256"),
    ] {
        let found = refused(&[more]);
        assert!(found.starts_with(error) && !found.contains('\n'), "{found}");
    }
    // The plan says which of its keys is unknown.
    let wrong = dcqcn(&[("switch", "{ ecm = true }")]).tonic("dcqcn", 1).expect_err("there is no such key");
    assert!(wrong.contains("ecm") && !wrong.contains('\n'), "{wrong}");
}
