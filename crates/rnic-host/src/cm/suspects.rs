//! Ports of peers that the network has reported as closed.
//!
//! One such report does not end a connection, because the network may be changing. The port is probed again soon, and
//! after several reports in a row, each of them proven ([`super::Manager::sender_of`]), the connections to that port
//! are over.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rnic_base::{Duration, Time};

/// The ports that are in doubt, by address.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<SocketAddr, Suspect>);

#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// Number of reports in a row.
    refusals: u32,
    /// Time of the last report.
    at: Time,
    /// Time of the next probe; `None` once it has been sent.
    ask_at: Option<Time>,
}

impl Suspects {
    /// Records a proven report that the port of `address` is closed. Returns whether the report is to be believed now.
    pub(super) fn refused(&mut self, now: Time, address: SocketAddr) -> bool {
        let known = self.0.get(&address).copied().filter(|known| now.since(known.at) <= REFUSAL_STANDS);
        if known.is_some_and(|known| now.since(known.at) < APART) {
            return false;
        }
        let refusals = known.map_or(0, |known| known.refusals) + 1;
        if refusals >= REFUSALS {
            self.0.remove(&address);
            return true;
        }
        self.0.insert(address, Suspect { refusals, at: now, ask_at: Some(now + ASK_AGAIN_AFTER) });
        false
    }

    /// Records that the port is open.
    pub(super) fn heard(&mut self, address: SocketAddr) {
        self.0.remove(&address);
    }

    /// Returns the time of the next probe.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.0.values().filter_map(|known| known.ask_at).min()
    }

    /// Returns the addresses to probe now.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<SocketAddr> {
        self.0.retain(|_, known| now.since(known.at) <= REFUSAL_STANDS);
        let due = self.0.iter_mut().filter(|(_, known)| known.ask_at.is_some_and(|at| at <= now));
        due.map(|(address, known)| {
            known.ask_at = None;
            *address
        })
        .collect()
    }
}

/// Number of reports in a row that are believed.
const REFUSALS: u32 = 3;

/// Time until the next probe.
const ASK_AGAIN_AFTER: Duration = Duration::from_ms(150);

/// Reports closer together than this concern messages that were sent together, and count as one.
const APART: Duration = Duration::from_ms(50);

/// Time for which a report counts when no other follows.
const REFUSAL_STANDS: Duration = Duration::from_secs(10);

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
    fn three_answers_in_a_row_and_apart_are_believed() {
        let mut suspects = Suspects::default();
        assert!(!suspects.refused(at(0), address()));
        assert!(!suspects.refused(at(1), address()), "together with the first");
        assert_eq!((suspects.next_due(), suspects.take_due(at(149))), (Some(at(150)), vec![]));
        assert_eq!(suspects.take_due(at(150)), [address()]);
        assert_eq!(suspects.next_due(), None, "asked once for each answer");
        assert!(!suspects.refused(at(151), address()));
        assert!(suspects.refused(at(302), address()));
        assert_eq!(suspects.next_due(), None);
    }

    #[test]
    fn a_word_in_between_or_a_long_time_begins_anew() {
        let mut suspects = Suspects::default();
        for ms in [0, 150] {
            assert!(!suspects.refused(at(ms), address()));
        }
        suspects.heard(address());
        for ms in [300, 450, 20_000, 20_150] {
            assert!(!suspects.refused(at(ms), address()), "{ms}");
        }
        assert!(suspects.take_due(at(31_000)).is_empty());
        assert!(suspects.0.is_empty(), "old answers take no room");
    }
}
