//! Ports of peers that the network has reported as closed.
//!
//! One such report does not end a connection, because the network may be changing. The port is probed again soon, and
//! after several reports in a row, each of them proven ([`super::Manager::sender_of`]), the connections to that port
//! are ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rnic_base::{Duration, Time};

/// Ports that were reported as closed, by address.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<SocketAddr, Suspect>);

#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// Number of consecutive reports.
    refusals: u32,
    /// Time of the last report.
    at: Time,
    /// Time of the next probe; `None` once it has been sent.
    probe_at: Option<Time>,
}

impl Suspects {
    /// Records a proven report that the port of `address` is closed. Returns whether there have been enough reports
    /// to treat the port as closed.
    pub(super) fn refused(&mut self, now: Time, address: SocketAddr) -> bool {
        let known = self.0.get(&address).copied().filter(|known| now.since(known.at) <= REFUSAL_VALID_FOR);
        if known.is_some_and(|known| now.since(known.at) < BURST_TIME) {
            return false;
        }
        let refusals = known.map_or(0, |known| known.refusals) + 1;
        if refusals >= REFUSALS_UNTIL_CLOSED {
            self.0.remove(&address);
            return true;
        }
        self.0.insert(address, Suspect { refusals, at: now, probe_at: Some(now + PROBE_RETRY_INTERVAL) });
        false
    }

    /// Records that the port is open.
    pub(super) fn note_open(&mut self, address: SocketAddr) {
        self.0.remove(&address);
    }

    /// Returns the time of the earliest probe.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.0.values().filter_map(|known| known.probe_at).min()
    }

    /// Returns the addresses whose probe is due.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<SocketAddr> {
        self.0.retain(|_, known| now.since(known.at) <= REFUSAL_VALID_FOR);
        let due = self.0.iter_mut().filter(|(_, known)| known.probe_at.is_some_and(|at| at <= now));
        due.map(|(address, known)| {
            known.probe_at = None;
            *address
        })
        .collect()
    }
}

/// Number of consecutive reports after which a port is treated as closed.
const REFUSALS_UNTIL_CLOSED: u32 = 3;

/// Time between an ICMP error about a peer's port and the next probe of that port.
const PROBE_RETRY_INTERVAL: Duration = Duration::from_ms(150);

/// Reports closer together than this were caused by messages that were sent together, and count as one.
const BURST_TIME: Duration = Duration::from_ms(50);

/// Time after which a report is discarded when no other follows.
const REFUSAL_VALID_FOR: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_ms(ms)
    }

    fn address() -> SocketAddr {
        "10.0.0.2:7471".parse().expect("an address")
    }

    #[test]
    fn three_consecutive_reports_apart_in_time_close_a_port() {
        let mut suspects = Suspects::default();
        assert!(!suspects.refused(at(0), address()));
        assert!(!suspects.refused(at(1), address()), "a report of the same burst was counted");
        assert_eq!((suspects.next_due(), suspects.take_due(at(149))), (Some(at(150)), vec![]));
        assert_eq!(suspects.take_due(at(150)), [address()]);
        assert_eq!(suspects.next_due(), None, "a second probe is due");
        assert!(!suspects.refused(at(151), address()));
        assert!(suspects.refused(at(302), address()));
        assert_eq!(suspects.next_due(), None);
    }

    #[test]
    fn a_message_or_a_long_pause_resets_the_count_of_reports() {
        let mut suspects = Suspects::default();
        for ms in [0, 150] {
            assert!(!suspects.refused(at(ms), address()));
        }
        suspects.note_open(address());
        for ms in [300, 450, 20_000, 20_150] {
            assert!(!suspects.refused(at(ms), address()), "{ms}");
        }
        assert!(suspects.take_due(at(31_000)).is_empty());
        assert!(suspects.0.is_empty(), "an expired report is kept");
    }
}
