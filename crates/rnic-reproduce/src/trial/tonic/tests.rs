//! The two sides of each trial on small networks: both deliver, and the numbers that the trials compare are there.

use rnic_base::Duration;

use super::new_reno::TRIAL;

fn arguments(more: &[(&str, &str)]) -> toml::Table {
    let mut table: toml::Table = toml::from_str(
        r#"
        loss = "0.1%"
        rto_min = "200ms"
        first_window = 10
        [network]
        senders = 1
        flows = 1
        rate = "10Gbps"
        delay = "2500ns"
        buffer = "5500KB"
        segment = 1000
        duration = "50ms"
        sample = "10us"
        skip = 10
        cycle = "100ns"
        template = 1024
        queue = 128
        jitter = "0ns"
        "#,
    )
    .expect("it is TOML");
    for (key, value) in more {
        let value: toml::Value = toml::from_str::<toml::Table>(&format!("v = {value}")).expect("a value")["v"].clone();
        match key.strip_prefix("network.") {
            Some(key) => table["network"].as_table_mut().expect("a table").insert(key.to_owned(), value),
            None => table.insert((*key).to_owned(), value),
        };
    }
    table
}

#[test]
#[ignore = "prints"]
fn print_new_reno() {
    let _ = Duration::ZERO;
    for (loss, duration, queue, seed) in [
        ("\"0.1%\"", "\"1s\"", "128", 1),
        ("\"0.1%\"", "\"1s\"", "2", 1),
        ("\"0.1%\"", "\"1s\"", "128", 2),
        ("\"1%\"", "\"1s\"", "128", 1),
        ("\"1%\"", "\"1s\"", "128", 2),
        ("\"1%\"", "\"5s\"", "128", 3),
    ] {
        let table = arguments(&[("loss", loss), ("network.duration", duration), ("network.queue", queue)]);
        let start = std::time::Instant::now();
        let found = TRIAL.run(&table, seed).expect("it runs");
        println!("{loss} {duration} queue {queue} seed {seed}: {:?}: {found}", start.elapsed());
    }
}

#[test]
#[ignore = "prints"]
fn print_many() {
    for (queue, duration) in [("2", "\"5s\""), ("128", "\"5s\"")] {
        let table = arguments(&[
            ("loss", "\"0%\""),
            ("network.duration", duration),
            ("network.queue", queue),
            ("network.senders", "2"),
            ("network.jitter", "\"800ns\""),
            ("network.flows", "100"),
            ("network.sample", "\"1ms\""),
        ]);
        let start = std::time::Instant::now();
        let found = TRIAL.run(&table, 1).expect("it runs");
        println!("many, queue {queue}: {:?}: {found}", start.elapsed());
    }
}

fn dcqcn(more: &[(&str, &str)]) -> toml::Table {
    let mut table = arguments(&[
        ("network.senders", "2"),
        ("network.rate", "\"40Gbps\""),
        ("network.delay", "\"1us\""),
        ("network.buffer", "\"12MB\""),
        ("network.duration", "\"100ms\""),
        ("network.sample", "\"100us\""),
        ("network.cycle", "\"10ns\""),
        ("network.queue", "2"),
    ]);
    ["loss", "rto_min", "first_window"].iter().for_each(|key| drop(table.remove(*key)));
    let all = [
        ("ecn", "\"{ kmin = \\\"41KB\\\", kmax = \\\"1030KB\\\", pmax = \\\"100%\\\" }\""),
        ("window", "128"),
        ("message", "1000"),
        ("rto", "\"100ms\""),
    ];
    for (key, value) in all.iter().chain(more) {
        let value: toml::Value = toml::from_str::<toml::Table>(&format!("v = {value}")).expect("a value")["v"].clone();
        match key.strip_prefix("network.") {
            Some(key) => table["network"].as_table_mut().expect("a table").insert(key.to_owned(), value),
            None => table.insert((*key).to_owned(), value),
        };
    }
    table
}

#[test]
#[ignore = "prints"]
fn print_dcqcn() {
    let one = [
        ("network.senders", "1"),
        ("network.rate", "\"100Gbps\""),
        ("network.segment", "128"),
        ("window", "256"),
        ("message", "1"),
        ("network.duration", "\"2ms\""),
    ];
    let many = [
        ("network.flows", "100"),
        ("network.duration", "\"1s\""),
        ("network.buffer", "\"32MB\""),
        ("network.skip", "1000"),
        ("network.template", "128"),
    ];
    let two = [("network.duration", "\"1s\"")];
    for (name, more) in [("two", &two[..]), ("saturate", &one[..]), ("many", &many[..])] {
        let table = dcqcn(more);
        let start = std::time::Instant::now();
        let found = super::rates::TRIAL.run(&table, 1).expect("it runs");
        println!("dcqcn {name}: {:?}: {found}", start.elapsed());
    }
}
