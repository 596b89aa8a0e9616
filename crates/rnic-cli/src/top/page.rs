//! Snapshots as tables.

use rnic_host::observe::{DeviceCounters, FlowSnapshot, QueuePairSnapshot, Snapshot};

use crate::{fit, number, table};

/// What happened between two looks, a second; in lines of at most `columns`.
pub fn rates(before: &[Snapshot], now: &[Snapshot], pairs_max: usize, columns: usize) -> String {
    if now.is_empty() {
        return fit::lines(NOBODY, columns);
    }
    let earlier = |new: &Snapshot| before.iter().find(|old| (old.pid, old.context) == (new.pid, new.context));
    let devices = now.iter().map(|new| device_row(earlier(new), new)).collect();
    let mut text = table::fitted(DEVICE_HEADS, devices, 1, columns);
    text += &natures(now, columns);
    let mut pairs: Vec<PairRows> =
        now.iter().flat_map(|new| new.queue_pairs.iter().map(move |pair| pair_rows(earlier(new), new, pair))).collect();
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.weight));
    let all = pairs.len() as u64 + now.iter().map(|snapshot| snapshot.queue_pairs_omitted).sum::<u64>();
    pairs.truncate(pairs_max);
    let hidden = all - pairs.len() as u64;
    if !pairs.is_empty() {
        text += "\n";
        let (rows, flows): (Vec<_>, Vec<_>) = pairs.into_iter().map(|pair| (pair.row, pair.flows)).unzip();
        text += &table::fitted(PAIR_HEADS, rows, 3, columns);
        let flows: Vec<_> = flows.into_iter().flatten().collect();
        if !flows.is_empty() {
            text += "\n";
            text += &table::fitted(FLOW_HEADS, flows, 2, columns);
        }
    }
    if hidden > 0 {
        text += &fit::lines(&format!("and {hidden} more queue pairs with fewer packets"), columns);
    }
    text
}

/// What has been counted so far, for each device.
pub fn totals(now: &[Snapshot], columns: usize) -> String {
    if now.is_empty() {
        return fit::lines(NOBODY, columns);
    }
    let line = |snapshot: &Snapshot| {
        let Snapshot { device, counters, queue_pairs, .. } = snapshot;
        let parts = [
            process(snapshot),
            format!("{device}: {} queue pairs", queue_pairs.len()),
            format!("{} packets sent", number::grouped(counters.packets_sent + counters.packets_retransmitted)),
            format!("{} of them again", number::grouped(counters.packets_retransmitted)),
        ];
        fit::list(&parts.map(|part| fit::printable(&part)), columns)
    };
    now.iter().map(line).collect()
}

fn device_row(before: Option<&Snapshot>, now: &Snapshot) -> Vec<String> {
    let none = DeviceCounters::default();
    let (old, new) = (before.map_or(&none, |before| &before.counters), &now.counters);
    let seconds = seconds_between(before, now);
    let per_second = |count: fn(&DeviceCounters) -> u64| rate(count(old), count(new), seconds);
    let gbps = |count: fn(&DeviceCounters) -> u64| number::short(per_second(count) * 8.0 / 1e9);
    let sent = |of: &DeviceCounters| of.packets_sent + of.packets_retransmitted;
    let again = new.packets_retransmitted as f64 / sent(new).max(1) as f64 * 100.0;
    vec![
        process(now),
        gbps(|of| of.bytes_sent),
        gbps(|of| of.bytes_received),
        number::short(per_second(sent)),
        number::short(per_second(|of| of.packets_received)),
        format!("{} ({} %)", number::grouped(new.packets_retransmitted), number::short(again)),
        number::grouped(new.packets_out_of_order),
        number::grouped(new.packets_dropped),
        number::grouped(new.rnr_naks_sent),
        number::grouped(new.timeouts),
    ]
}

/// Program and process; and which of its devices, if not the first.
fn process(snapshot: &Snapshot) -> String {
    let Snapshot { program, pid, context, .. } = snapshot;
    let program = fit::printable(program);
    if *context == 0 { format!("{program} ({pid})") } else { format!("{program} ({pid}/{context})") }
}

/// For each process: what its device is, and what is bad on purpose.
fn natures(now: &[Snapshot], columns: usize) -> String {
    let line = |snapshot: &Snapshot| {
        let Snapshot { device, transport, wire, impairment, counters, .. } = snapshot;
        let mut parts = vec![format!("{}: {device}", process(snapshot)), transport.clone(), wire.clone()];
        if counters.bytes_sent_by_memory > 0 {
            let share = counters.bytes_sent_by_memory as f64 / counters.bytes_sent.max(1) as f64 * 100.0;
            parts.push(format!("{} % through memory", number::short(share)));
        }
        if !impairment.is_empty() {
            parts.extend(impairment.iter().cloned());
            parts.push(format!("{} lost on purpose", number::grouped(counters.impairment_lost)));
        }
        fit::list(&parts.iter().map(|part| fit::printable(part)).collect::<Vec<_>>(), columns)
    };
    now.iter().map(line).collect()
}

/// A queue pair and its flows, and how much it does.
struct PairRows {
    weight: u64,
    row: Vec<String>,
    flows: Vec<Vec<String>>,
}

fn pair_rows(before: Option<&Snapshot>, now: &Snapshot, pair: &QueuePairSnapshot) -> PairRows {
    let old = before.and_then(|before| before.queue_pairs.iter().find(|old| old.number == pair.number));
    let seconds = seconds_between(before, now);
    let sent = |of: &QueuePairSnapshot| of.packets_sent + of.packets_retransmitted;
    let (sent_before, received_before) = old.map_or((0, 0), |old| (sent(old), old.packets_received));
    // On a shared machine everybody's packets come from the port of RoCEv2; the number says more.
    let address = pair.peer.strip_suffix(":4791").unwrap_or(&pair.peer);
    let peer = if address.is_empty() { "-".to_owned() } else { format!("{address} {:#x}", pair.peer_number) };
    let window = pair.window_packets.map_or_else(String::new, |window| format!(" / {window}"));
    let row = vec![
        format!("{} {:#08x}", now.pid, pair.number),
        fit::printable(&format!("{} {}", pair.service, pair.state)),
        fit::printable(&peer),
        number::short(rate(sent_before, sent(pair), seconds)),
        number::short(rate(received_before, pair.packets_received, seconds)),
        number::grouped(pair.packets_retransmitted),
        number::grouped(pair.packets_out_of_order),
        number::grouped(pair.packets_dropped),
        number::grouped(pair.rnr_naks),
        number::grouped(pair.timeouts),
        format!("{}{window}", pair.packets_in_flight),
        pair.round_trip_us.map_or_else(|| "-".to_owned(), number::micros),
    ];
    let weight = (sent(pair) + pair.packets_received).saturating_sub(sent_before + received_before);
    let flow = |(index, flow): (usize, &FlowSnapshot)| {
        let name = format!("{} {:#08x}", now.pid, pair.number);
        flow_row(name, index, old.and_then(|old| old.flows.get(index)), flow, seconds)
    };
    PairRows { weight, row, flows: pair.flows.iter().enumerate().map(flow).collect() }
}

fn flow_row(pair: String, index: usize, old: Option<&FlowSnapshot>, flow: &FlowSnapshot, seconds: f64) -> Vec<String> {
    let sent = |of: &FlowSnapshot| of.packets_sent + of.packets_retransmitted;
    vec![
        pair,
        index.to_string(),
        format!("{:#07x}", flow.label),
        number::short(rate(old.map_or(0, sent), sent(flow), seconds)),
        number::grouped(flow.packets_retransmitted),
        number::grouped(flow.path_changes),
        format!("{} / {}", flow.packets_in_flight, number::short(flow.window_packets)),
        flow.round_trip_us.map_or_else(|| "-".to_owned(), number::micros),
    ]
}

/// The device's own clock says how far two looks are apart.
fn seconds_between(before: Option<&Snapshot>, now: &Snapshot) -> f64 {
    let since = before.map_or(0, |before| before.uptime_us);
    now.uptime_us.saturating_sub(since) as f64 / 1e6
}

fn rate(before: u64, now: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

const DEVICE_HEADS: &[&str] =
    &["process", "Gbit/s out", "in", "packet/s out", "in", "sent again", "early", "dropped", "RNR", "timeouts"];
const PAIR_HEADS: &[&str] = &[
    "queue pair",
    "state",
    "peer",
    "packet/s out",
    "in",
    "again",
    "early",
    "dropped",
    "RNR",
    "timeouts",
    "window",
    "RTT",
];
const FLOW_HEADS: &[&str] = &["queue pair", "flow", "label", "packet/s out", "again", "path changes", "window", "RTT"];
const NOBODY: &str = "No process of yours has opened the software device (in this network namespace).\n";

#[cfg(test)]
mod tests {
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

    /// Numbers have spaces that do not break.
    fn plain(text: &str) -> String {
        text.replace(|c: char| c.is_whitespace() && c != '\n', " ")
    }

    #[test]
    fn rates_are_differences_by_the_clock_of_the_device() {
        let page = plain(&rates(&[snapshot(1_000_000, 1_000)], &[snapshot(3_000_000, 201_000)], 2, 120));
        let device = page.lines().find(|line| line.contains("(4711) ")).expect("a row");
        // 200 000 packets of 1000 bytes in two seconds, and one of a hundred again.
        assert!(device.contains("0.800") && device.contains("2010 (0.990 %)"), "{page}");
        assert!(page.contains("rnic0, irn, UDP, loss 1%, 0 lost on purpose"), "{page}");
        let pairs: Vec<&str> = page.lines().filter(|line| line.contains("192.0.2.1")).collect();
        assert!(pairs.len() == 2 && pairs[0].contains("0x000003") && pairs[1].contains("0x000002"), "{page}");
        assert!(pairs[0].contains("0 / 256") && pairs[0].contains("40.0 us"), "{page}");
        assert!(page.contains("and 1 more queue pairs"), "{page}");
    }

    #[test]
    fn flows_of_what_is_shown_stand_below() {
        let flow = |nth: u64| FlowSnapshot { label: 0x77 + nth as u32, packets_sent: nth, ..FlowSnapshot::default() };
        let with_flows = |uptime_us, packets| {
            let mut snapshot = snapshot(uptime_us, packets);
            snapshot.queue_pairs.iter_mut().for_each(|pair| pair.flows = vec![flow(packets), flow(packets / 10)]);
            snapshot
        };
        let page = plain(&rates(&[with_flows(1_000_000, 0)], &[with_flows(3_000_000, 20_000)], 1, 120));
        let flows: Vec<&str> = page.lines().skip_while(|line| !line.contains("path changes")).collect();
        assert_eq!(flows.iter().filter(|line| line.contains("0x")).count(), 2, "of one queue pair: {page}");
        assert!(page.contains("10 000") || page.contains("10000"), "packets a second: {page}");
    }

    #[test]
    fn a_process_that_has_just_begun_has_rates_since_it_began() {
        let page = rates(&[], &[snapshot(1_000_000, 500_000)], 0, 120);
        assert!(page.contains("4.00"), "{page}");
        assert!(page.contains("3 more"), "{page}");
    }

    /// Everything as long as it can be.
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
            device: "rnic0".to_owned(),
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

    /// Who looks at UDP for what goes through memory would wonder.
    #[test]
    fn what_goes_through_memory_is_told() {
        let mut now = snapshot(3_000_000, 201_000);
        assert!(!rates(&[], &[now.clone()], 1, 120).contains("through memory"));
        now.counters.bytes_sent_by_memory = now.counters.bytes_sent / 4;
        let page = plain(&rates(&[], &[now], 1, 120));
        assert!(page.contains("rnic0, irn, UDP, 25.0 % through memory, loss 1%"), "{page}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let width = |page: &str| page.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let now = [snapshot(1_000_000, 1_000), endless()];
        for columns in [1, 20, 40, 80, 100, 120, 200] {
            for page in [rates(&[], &now, 3, columns), totals(&now, columns), rates(&[], &[], 3, columns)] {
                assert!(width(&page) <= columns, "{columns} columns:\n{page}");
                assert!(!page.contains('\x1b'), "{columns} columns: an order to the terminal");
            }
        }
        let page = rates(&[], &now, 3, 400);
        assert!(page.contains("%interface0]:65535 0xfffff2"), "nothing is cut where there is room:\n{page}");
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
    fn nobody_is_said() {
        assert!(rates(&[], &[], 20, 120).contains("No process"));
        assert!(plain(&totals(&[snapshot(1, 1_000)], 120)).contains("1010 packets sent, 10 of them again"));
    }
}
