//! Ports of peers that the network has said nobody has.
//!
//! One such answer ends nothing: the network may be about to change. It is asked again soon, and after some answers in
//! a row, each of them proven ([`super::Manager::sender_of`]), what was connected there is over.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rnic_base::{Duration, Time};

/// The ports that are in doubt, by address.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<SocketAddr, Suspect>);

#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// Answers in a row.
    refusals: u32,
    /// When the last of them came.
    at: Time,
    /// When to ask again; `None` once that has been done.
    ask_at: Option<Time>,
}

impl Suspects {
    /// Notes a proven answer that nobody has the port of `address`. Returns whether that is to be believed now.
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

    /// Notes that somebody is there.
    pub(super) fn heard(&mut self, address: SocketAddr) {
        self.0.remove(&address);
    }

    /// When somebody is to be asked next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.0.values().filter_map(|known| known.ask_at).min()
    }

    /// The addresses to ask now.
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

/// So many answers in a row are believed.
const REFUSALS: u32 = 3;

/// How soon to ask again.
const ASK_AGAIN_AFTER: Duration = Duration::from_ms(150);

/// Answers closer together than this are about messages that left together, and count as one.
const APART: Duration = Duration::from_ms(50);

/// How long an answer counts when no other follows.
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
