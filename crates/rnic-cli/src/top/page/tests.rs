//! Tests of the text of pages.

use std::slice;

use super::*;

fn snapshot(uptime_us: u64, packets: u64) -> Snapshot {
    let pair = |number| QueuePairSnapshot {
        number,
        service: "RC".to_owned(),
        state: "RTS".to_owned(),
        peer: "192.0.2.1:4800".to_owned(),
        packets_sent: packets * u64::from(number),
        window_packets: Some(256),
        round_trip_us: Some(40.0),
        ..QueuePairSnapshot::default()
    };
    Snapshot {
        device: "rnic0".to_owned(),
        pid: 4_711,
        program: "ib_write_bw".to_owned(),
        uptime_us,
        transport: "irn".to_owned(),
        wire: "UDP".to_owned(),
        impairment: vec!["loss 1%".to_owned()],
        counters: DeviceCounters {
            packets_sent: packets,
            packets_retransmitted: packets / 100,
            bytes_sent: packets * 1_000,
            ..DeviceCounters::default()
        },
        queue_pairs: vec![pair(1), pair(3), pair(2)],
        ..Snapshot::default()
    }
}

/// Replaces the non-breaking spaces in numbers by blanks.
fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_whitespace() && c != '\n', " ")
}

#[test]
fn rates_are_differences_by_the_clock_of_the_device() {
    let page = plain(&rates(&[snapshot(1_000_000, 1_000)], &[snapshot(3_000_000, 201_000)], 2, 120));
    let device = page.lines().find(|line| line.contains("(4711) ")).expect("a row");
    // 200 000 packets of 1000 bytes in two seconds, and one in a hundred retransmitted.
    assert!(device.contains("0.800") && device.contains("2010 (0.990 %)"), "{page}");
    assert!(page.contains("rnic0, irn, UDP, loss 1%, 0 lost on purpose"), "{page}");
    let pairs: Vec<&str> = page.lines().filter(|line| line.contains("192.0.2.1")).collect();
    assert!(pairs.len() == 2 && pairs[0].contains("0x000003") && pairs[1].contains("0x000002"), "{page}");
    assert!(pairs[0].contains("0 / 256") && pairs[0].contains("40.0 us"), "{page}");
    assert!(page.contains("and 1 more queue pairs"), "{page}");
}

#[test]
fn marks_and_notifications_are_shown_once_there_are_any() {
    let (first, mut second) = (snapshot(1_000_000, 1_000), snapshot(3_000_000, 201_000));
    let page = plain(&rates(slice::from_ref(&first), slice::from_ref(&second), 2, 120));
    assert!(!page.contains("CNPs"), "{page}");
    (second.counters.marks_received, second.counters.cnps_sent) = (1_234, 56);
    let page = plain(&rates(&[first], &[second], 2, 120));
    assert!(page.contains("1234 marks received, 56 CNPs sent, 0 received"), "{page}");
}

#[test]
fn the_flows_of_shown_queue_pairs_are_listed_below() {
    let flow = |nth: u64| FlowSnapshot { label: 0x77 + nth as u32, packets_sent: nth, ..FlowSnapshot::default() };
    let with_flows = |uptime_us, packets| {
        let mut snapshot = snapshot(uptime_us, packets);
        snapshot.queue_pairs.iter_mut().for_each(|pair| pair.flows = vec![flow(packets), flow(packets / 10)]);
        snapshot
    };
    let page = plain(&rates(&[with_flows(1_000_000, 0)], &[with_flows(3_000_000, 20_000)], 1, 120));
    let flows: Vec<&str> = page.lines().skip_while(|line| !line.contains("path changes")).collect();
    assert_eq!(flows.iter().filter(|line| line.contains("0x")).count(), 2, "flows of more than one queue pair: {page}");
    assert!(page.contains("10 000") || page.contains("10000"), "the packet rate is missing: {page}");
}

#[test]
fn rates_of_a_new_process_count_from_its_start() {
    let page = rates(&[], &[snapshot(1_000_000, 500_000)], 0, 120);
    assert!(page.contains("4.00"), "{page}");
    assert!(page.contains("3 more"), "{page}");
}

/// Returns a snapshot in which every text and number is as long as possible.
fn endless() -> Snapshot {
    let number = u64::MAX / 3;
    let flow = FlowSnapshot {
        label: 0xf_ffff,
        packets_sent: number,
        packets_retransmitted: number,
        path_changes: number,
        packets_in_flight: number,
        window_packets: number as f64,
        round_trip_us: Some(123_456.789),
    };
    let pair = |nth: u32| QueuePairSnapshot {
        number: 0xff_ff00 + nth,
        service: "unreliable datagram".to_owned(),
        state: "send queue error".to_owned(),
        peer: "[2001:db8:1234:5678:9abc:def0:1234:5678%interface0]:65535".to_owned(),
        peer_number: 0xff_fff0 + nth,
        packets_sent: number,
        packets_received: number,
        packets_in_flight: number,
        window_packets: Some(number),
        round_trip_us: Some(123_456.789),
        flows: vec![flow.clone(); 8],
        ..QueuePairSnapshot::default()
    };
    Snapshot {
        share: None,
        latencies: None,
        host_delay_us: Some(123_456.789),
        capacity_gbps: Some(123.456),
        device: "rnic0".to_owned(),
        user: u32::MAX,
        pid: u32::MAX,
        context: u32::MAX,
        program: "a-\x1b[31mprogram with a very long name, which the kernel would not allow".to_owned(),
        uptime_us: 1,
        transport: "irn (rto_high=2ms, rto_low=100us, control=dcqcn, cap_packets=1000, and more of it)".to_owned(),
        wire: "RoCEv2 over UDP from 2001:db8:1234:5678:9abc:def0:1234:5678".to_owned(),
        impairment: ["loss 1%", "reorder 5%", "delay 100 us", "jitter 100 us", "rate 10 Gbit/s"]
            .map(str::to_owned)
            .into(),
        counters: DeviceCounters {
            packets_sent: number,
            bytes_sent: number,
            bytes_received: number,
            packets_received: number,
            packets_retransmitted: number,
            packets_dropped: number,
            impairment_lost: number,
            ..DeviceCounters::default()
        },
        queue_pairs: (0..4).map(pair).collect(),
        queue_pairs_omitted: 1_000_000,
    }
}

/// The page states the share of traffic through shared memory, because that traffic does not show up in UDP captures.
#[test]
fn the_share_of_shared_memory_traffic_is_shown() {
    let mut now = snapshot(3_000_000, 201_000);
    assert!(!rates(&[], &[now.clone()], 1, 120).contains("through memory"));
    now.counters.bytes_sent_by_memory = now.counters.bytes_sent / 4;
    let page = plain(&rates(&[], &[now], 1, 120));
    assert!(page.contains("rnic0, irn, UDP, 25.0 % through memory, loss 1%"), "{page}");
}

#[test]
fn capacity_and_host_delay_are_shown_where_they_are_measured() {
    let now = snapshot(3_000_000, 201_000);
    assert!(!rates(&[], std::slice::from_ref(&now), 1, 120).contains("host delay"));
    let now = Snapshot { host_delay_us: Some(12.5), capacity_gbps: Some(3.5), ..now };
    let page = plain(&rates(&[], &[now], 1, 120));
    assert!(page.contains("schedulers divide 3.50 Gbit/s, host delay 12.5 us"), "{page}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let width = |page: &str| page.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let now = [snapshot(1_000_000, 1_000), endless()];
    for columns in [1, 20, 40, 80, 100, 120, 200] {
        for page in [rates(&[], &now, 3, columns), totals(&now, columns), rates(&[], &[], 3, columns)] {
            assert!(width(&page) <= columns, "{columns} columns:\n{page}");
            assert!(!page.contains('\x1b'), "{columns} columns: a control character is printed");
        }
    }
    let page = rates(&[], &now, 3, 400);
    assert!(page.contains("%interface0]:65535 0xfffff2"), "text was cut although it fits:\n{page}");
}

/// The most important columns are shown completely in 80 columns, and the omitted ones are named.
#[test]
fn narrow_terminals_omit_the_least_important_columns_first() {
    let mut busy = snapshot(3_000_000, 201_000);
    let counters = &mut busy.counters;
    (counters.packets_received, counters.bytes_received) = (1_000_000, 100_000_000);
    (counters.packets_out_of_order, counters.packets_dropped, counters.timeouts) = (12_345, 23_456, 345);
    for pair in &mut busy.queue_pairs {
        (pair.packets_out_of_order, pair.packets_dropped, pair.timeouts) = (12_345, 23_456, 345);
        (pair.packets_received, pair.packets_in_flight) = (1_000_000, 200);
    }
    let page = plain(&rates(&[snapshot(1_000_000, 1_000)], &[busy.clone()], 2, 80));
    assert!(page.lines().all(|line| line.chars().count() <= 80) && !page.contains('…'), "{page}");
    let [device, pair] = ["process", "queue pair"].map(|head| page.lines().find(|line| line.contains(head)));
    let (device, pair) = (device.expect("the column heads are shown"), pair.expect("the column heads are shown"));
    for kept in ["Gbit/s out", "in", "retransmitted", "timeouts"] {
        assert!(device.contains(kept), "{kept}: {page}");
    }
    for kept in ["peer", "packet/s out", "retx", "RTT"] {
        assert!(pair.contains(kept), "{kept}: {page}");
    }
    assert!(!device.contains("RNR") && !pair.contains("RNR"), "{page}");
    assert!(page.contains("too narrow for: ") && page.contains("RNR"), "{page}");
    assert!(page.contains("ib_write_bw (4711)") && page.contains("192.0.2.1:4800 0x0"), "{page}");
    let wide = rates(&[snapshot(1_000_000, 1_000)], &[busy], 2, 150);
    assert!(wide.contains("RNR") && !wide.contains("too narrow"), "{wide}");
}

#[test]
fn long_names_and_addresses_are_cut_before_numbers() {
    let mut long = snapshot(1_000_000, 1_000);
    long.program = "a-program-with-a-name-that-goes-on-and-on-and-on-and-on".to_owned();
    for pair in &mut long.queue_pairs {
        pair.peer = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535".to_owned();
        pair.peer_number = 0xff_fff0;
    }
    let page = rates(&[], &[long], 3, 120);
    assert!(page.lines().all(|line| line.chars().count() <= 120), "{page}");
    let device = page.lines().find(|line| line.contains("… (4711)")).expect("a row that says which process");
    assert!(device.trim_start().starts_with("a-program-with"), "{page}");
    let pairs: Vec<&str> = page.lines().filter(|line| line.contains("2001:db8:")).collect();
    assert!(
        pairs.len() == 3 && pairs.iter().all(|row| row.contains("… 0xfffff0") && row.ends_with("40.0 us")),
        "{page}"
    );
}

#[test]
fn the_absence_of_processes_is_stated() {
    assert!(rates(&[], &[], 20, 120).contains("No process"));
    assert!(plain(&totals(&[snapshot(1, 1_000)], 120)).contains("1010 packets sent, 10 of them again"));
}

/// The parts of the latency are averages over the operations between two snapshots.
#[test]
fn latencies_are_shown_when_they_are_measured() {
    let (mut first, mut second) = (snapshot(1_000_000, 1_000), snapshot(3_000_000, 201_000));
    let page = plain(&rates(slice::from_ref(&first), slice::from_ref(&second), 2, 120));
    assert!(!page.contains("admission"), "{page}");
    let measured = |pair: &mut QueuePairSnapshot, operations: u64| {
        pair.operations = operations;
        [pair.admission_ns, pair.window_ns, pair.network_ns] = [1_000, 4_000, 15_000].map(|ns| ns * operations);
    };
    measured(&mut first.queue_pairs[1], 100);
    measured(&mut second.queue_pairs[1], 500);
    let page = plain(&rates(slice::from_ref(&first), slice::from_ref(&second), 2, 120));
    let row = page.lines().find(|line| line.contains("20.0 us")).expect("a row");
    for part in ["4711 0x000003", "200", "1.00 us", "4.00 us", "15.0 us"] {
        assert!(row.contains(part), "{part}: {page}");
    }
}

/// A timeout is no loss when the packets arrive after all: those are told apart, where there are any.
#[test]
fn spurious_timeouts_are_shown_with_the_others() {
    let mut now = snapshot(1_000_000, 1_000);
    (now.counters.timeouts, now.counters.timeouts_spurious) = (12, 9);
    (now.queue_pairs[0].timeouts, now.queue_pairs[0].timeouts_spurious) = (7, 5);
    let page = rates(&[], &[now.clone()], 3, 400);
    assert!(page.contains("12 (9 spurious)") && page.contains("7 (5 spurious)"), "{page}");
    now.counters.timeouts_spurious = 0;
    now.queue_pairs[0].timeouts_spurious = 0;
    assert!(!rates(&[], &[now], 3, 400).contains("spurious"));
}
