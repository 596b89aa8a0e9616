//! Snapshots as tables.

use rnic_host::observe::{DeviceCounters, QueuePairSnapshot, Snapshot};

use crate::{number, table};

/// What happened between two looks, a second.
pub fn rates(before: &[Snapshot], now: &[Snapshot], pairs_max: usize) -> String {
    if now.is_empty() {
        return NOBODY.to_owned();
    }
    let earlier = |new: &Snapshot| before.iter().find(|old| (old.pid, old.context) == (new.pid, new.context));
    let devices = now.iter().map(|new| device_row(earlier(new), new)).collect();
    let mut text = table::results(DEVICE_HEADS, devices);
    text += &natures(now);
    let mut pairs: Vec<(u64, Vec<String>)> =
        now.iter().flat_map(|new| new.queue_pairs.iter().map(move |pair| pair_row(earlier(new), new, pair))).collect();
    pairs.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let all = pairs.len() as u64 + now.iter().map(|snapshot| snapshot.queue_pairs_omitted).sum::<u64>();
    pairs.truncate(pairs_max);
    let hidden = all - pairs.len() as u64;
    if !pairs.is_empty() {
        text += "\n";
        text += &table::results(PAIR_HEADS, pairs.into_iter().map(|(_, row)| row).collect());
    }
    if hidden > 0 {
        text += &format!("and {hidden} more queue pairs with fewer packets\n");
    }
    text
}

/// What has been counted so far, in a line for each device.
pub fn totals(now: &[Snapshot]) -> String {
    if now.is_empty() {
        return NOBODY.to_owned();
    }
    let line = |snapshot: &Snapshot| {
        let Snapshot { device, counters, queue_pairs, .. } = snapshot;
        format!(
            "{}, {device}: {} queue pairs, {} packets sent, {} of them again\n",
            process(snapshot),
            queue_pairs.len(),
            number::grouped(counters.packets_sent + counters.packets_retransmitted),
            number::grouped(counters.packets_retransmitted),
        )
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
    if *context == 0 { format!("{program} ({pid})") } else { format!("{program} ({pid}/{context})") }
}

/// A line for each process: what its device is, and what is bad on purpose.
fn natures(now: &[Snapshot]) -> String {
    let line = |snapshot: &Snapshot| {
        let Snapshot { device, transport, wire, impairment, counters, .. } = snapshot;
        let mut parts = vec![device.clone(), transport.clone(), wire.clone()];
        if !impairment.is_empty() {
            parts.extend(impairment.iter().cloned());
            parts.push(format!("{} lost on purpose", number::grouped(counters.impairment_lost)));
        }
        format!("{}: {}\n", process(snapshot), parts.join(", "))
    };
    now.iter().map(line).collect()
}

/// A queue pair, and how much it does.
fn pair_row(before: Option<&Snapshot>, now: &Snapshot, pair: &QueuePairSnapshot) -> (u64, Vec<String>) {
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
        format!("{} {}", pair.service, pair.state),
        peer,
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
    (weight, row)
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
        let page = plain(&rates(&[snapshot(1_000_000, 1_000)], &[snapshot(3_000_000, 201_000)], 2));
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
    fn a_process_that_has_just_begun_has_rates_since_it_began() {
        let page = rates(&[], &[snapshot(1_000_000, 500_000)], 0);
        assert!(page.contains("4.00"), "{page}");
        assert!(page.contains("3 more"), "{page}");
    }

    #[test]
    fn nobody_is_said() {
        assert!(rates(&[], &[], 20).contains("No process"));
        assert!(plain(&totals(&[snapshot(1, 1_000)])).contains("1010 packets sent, 10 of them again"));
    }
}
