//! Check of the IPv4 identifications that packets from real RoCEv2 peers may have.
//!
//! Adapters and Linux number their IPv4 packets, and the ICRC covers this identification, which a UDP socket does not
//! deliver. The identification for which the ICRC of a packet is right can be computed from the ICRC
//! ([`IdentificationFinder`]), but one exists for one in 65,536 corrupted packets too. So not every number is
//! accepted. Linux has a counter for each pair of hosts, and skips some numbers as clock ticks pass; adapters count
//! too, possibly separately for each queue pair. The latest numbers of each host, at most [`STREAMS_MAX`] positions,
//! are recorded, and a packet is accepted if its number closely follows one of them.
//!
//! A packet that was corrupted on the way, and that the checksums of lower layers have not detected, is accepted
//!
//! - with a probability of `STREAMS_MAX * 2 * IDENTIFICATION_DISTANCE_MAX / 2^32`, one in two million, from a host from
//!   which packets arrive often; numbers that may have been skipped in a pause increase this to at most one in 65,536
//!   after 16 seconds;
//! - of one in 65,536 when it is the first packet of a host, or when the numbers of its host are in no order;
//! - of one in 2^32, as between OpenRNIC NICs, when packets come over IPv6 or all have identification 0.
//!
//! A packet whose number is far from all known positions is dropped like one with a wrong ICRC, and its position is
//! recorded, so that the packet with the next number is accepted. If [`MISMATCHES_UNTIL_RANDOM`] such packets in a row
//! arrive from a host, which corruption would cause once in 2^128, its numbers are assumed to be random, and all of
//! them are accepted from then on.

use std::net::{IpAddr, Ipv4Addr};

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_wire::IcrcPrefix;
use rnic_wire::icrc::IdentificationFinder;

use crate::copy_crc;

/// Latest identification numbers of hosts.
#[derive(Debug)]
pub(crate) struct Identifications {
    /// Hosts by a hash of the address. Hosts with the same hash replace each other; the next packet of a replaced
    /// host counts as its first one.
    hosts: Box<[Host]>,
    /// Identification finders by packet length.
    finders: Box<[Option<(u32, IdentificationFinder)>]>,
}

#[derive(Clone, Debug)]
struct Host {
    ip: Ipv4Addr,
    /// Number sequences of the host, most recently used first.
    streams: ArrayVec<Stream, STREAMS_MAX>,
    /// Number of consecutive packets whose identifications were far from all known ones.
    mismatches: u8,
}

/// The last identification of a number sequence of a host, and the time of its packet.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u16,
    last_seen: Time,
}

impl Default for Identifications {
    fn default() -> Self {
        let unused = Host { ip: Ipv4Addr::UNSPECIFIED, streams: ArrayVec::new(), mismatches: 0 };
        Self { hosts: vec![unused; HOSTS_MAX].into_boxed_slice(), finders: vec![None; FINDERS_MAX].into_boxed_slice() }
    }
}

impl Identifications {
    /// Returns whether the last four bytes of `datagram`, received from `source`, are its ICRC. `prefix` is the ICRC
    /// prefix for packets with identification 0.
    pub(crate) fn verify(&mut self, now: Time, source: IpAddr, prefix: IcrcPrefix, datagram: &[u8]) -> bool {
        let Some(difference) = copy_crc::difference(prefix, datagram) else { return false };
        if difference == 0 {
            return true;
        }
        let IpAddr::V4(ip) = source.to_canonical() else { return false };
        let Some(identification) = self.finder(datagram.len() as u32).find(difference) else { return false };
        self.host(ip).expects(now, identification)
    }

    /// Returns the identification for which the ICRC of `datagram` is right, if there is one.
    pub(crate) fn find(&mut self, prefix: IcrcPrefix, datagram: &[u8]) -> Option<u16> {
        let difference = copy_crc::difference(prefix, datagram)?;
        self.finder(datagram.len() as u32).find(difference)
    }

    fn finder(&mut self, len: u32) -> IdentificationFinder {
        // The packets of a connection have few different lengths, and these are multiples of four.
        let slot = &mut self.finders[(len / 4) as usize % FINDERS_MAX];
        match slot {
            Some((known, finder)) if *known == len => *finder,
            _ => slot.insert((len, IdentificationFinder::new(len))).1,
        }
    }

    fn host(&mut self, ip: Ipv4Addr) -> &mut Host {
        let [a, b, c, d] = ip.octets();
        let host = &mut self.hosts[usize::from(a ^ b ^ c ^ d) % HOSTS_MAX];
        if host.ip != ip {
            *host = Host { ip, streams: ArrayVec::new(), mismatches: 0 };
        }
        host
    }
}

impl Host {
    /// Returns whether this identification is expected, and records it.
    fn expects(&mut self, now: Time, identification: u16) -> bool {
        let latest = Stream { last: identification, last_seen: now };
        if let Some(index) = self.streams.iter().position(|stream| stream.may_precede(now, identification)) {
            let stream = &mut self.streams[index];
            let is_newer = identification.wrapping_sub(stream.last) <= u16::MAX / 2;
            *stream = if is_newer { latest } else { Stream { last_seen: now, ..*stream } };
            self.streams[..=index].rotate_right(1);
            // A host with random numbers is still treated as such when some of its numbers happen to be close to
            // known ones.
            if !self.has_random_numbers() {
                self.mismatches = 0;
            }
            return true;
        }
        let is_first = self.streams.is_empty();
        if self.streams.is_full() {
            self.streams.pop();
        }
        self.streams.insert(0, latest);
        self.mismatches = if is_first { 0 } else { self.mismatches.saturating_add(1) };
        is_first || self.has_random_numbers()
    }

    fn has_random_numbers(&self) -> bool {
        self.mismatches >= MISMATCHES_UNTIL_RANDOM
    }
}

impl Stream {
    /// Returns whether `identification` may be the next one, or may belong to a packet that was overtaken.
    fn may_precede(&self, now: Time, identification: u16) -> bool {
        let ticks = now.since(self.last_seen).as_ps() / TICK.as_ps();
        let distance_max =
            IDENTIFICATION_DISTANCE_MAX.saturating_add(u16::try_from(ticks).unwrap_or(u16::MAX)).min(SKIPPED_MAX);
        identification.wrapping_sub(self.last) <= distance_max
            || self.last.wrapping_sub(identification) <= IDENTIFICATION_DISTANCE_MAX
    }
}

/// Number of hosts in the table.
const HOSTS_MAX: usize = 256;

/// Number of packet lengths whose finders are kept.
const FINDERS_MAX: usize = 64;

/// Maximum number of number sequences per host: its queue pairs may count separately, and several may send at the
/// same time.
const STREAMS_MAX: usize = 4;

/// Largest distance to a known number at which a number is accepted: the numbers in between may have been used for
/// other hosts or lost, and a packet may be overtaken by as many others. A train that the sending kernel splits is
/// numbered from 0, and has fewer packets than this.
const IDENTIFICATION_DISTANCE_MAX: u16 = 256;

/// Maximum number of skipped identifications that is accepted, after a pause of any length.
const SKIPPED_MAX: u16 = 1 << 14;

/// In a pause, Linux skips at most one number per clock tick; the highest tick rate is 1000 a second.
const TICK: Duration = Duration::from_ms(1);

/// Number of consecutive packets far from all known positions after which the numbers of a host count as random.
const MISMATCHES_UNTIL_RANDOM: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { ip: Ipv4Addr::LOCALHOST, streams: ArrayVec::new(), mismatches: 0 }
    }

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn consecutive_identifications_are_expected() {
        let mut host = host();
        assert!(host.expects(at_ms(0), 65_500), "the first number was rejected");
        for step in 1..200u16 {
            assert!(host.expects(at_ms(0), 65_500u16.wrapping_add(step * 3)), "{step}");
        }
        assert!(!host.expects(at_ms(0), 30_000));
        assert!(host.expects(at_ms(0), 30_001), "the next number was rejected");
        assert!(host.expects(at_ms(0), 562), "another sequence was forgotten");
        assert!(!host.expects(at_ms(1), 562 + 300));
        assert!(host.expects(at_ms(501), 562 + 300 + 700), "numbers skipped in a pause were rejected");
    }

    #[test]
    fn several_number_sequences_of_a_host_are_tracked() {
        let mut host = host();
        let starts = [10, 20_000, 40_000, 60_000];
        starts.iter().for_each(|start| {
            host.expects(at_ms(0), *start);
        });
        for step in 1..1_000u16 {
            for start in starts {
                assert!(host.expects(at_ms(0), start + step), "{start} {step}");
            }
        }
    }

    #[test]
    fn trains_that_are_numbered_from_zero_are_expected() {
        let mut host = host();
        for _ in 0..3 {
            // Number 0 itself is expected without earlier packets.
            assert!((1..64).all(|number| host.expects(at_ms(0), number)));
        }
    }

    #[test]
    fn random_identifications_are_accepted_after_several_mismatches() {
        let mut host = host();
        let mut random = rnic_base::RandomStreams::new(3).stream("identification");
        let taken = (0..1_000).filter(|_| host.expects(at_ms(0), random.bits() as u16)).count();
        assert!(taken > 950, "{taken}");
    }

    #[test]
    fn corrupted_packets_are_rarely_accepted() {
        let mut host = host();
        let mut random = rnic_base::RandomStreams::new(5).stream("corruption");
        let (mut next, mut accepted, mut rejected) = (7u16, 0, 0);
        for _ in 0..100_000 {
            next = next.wrapping_add(1);
            // After a wrong number has been accepted, the right number may be rejected for one packet.
            rejected += u32::from(!host.expects(at_ms(0), next));
            // In this test every second packet is corrupted, and every corrupted packet has an ICRC that is right for
            // some identification.
            accepted += u32::from(host.expects(at_ms(0), random.bits() as u16));
        }
        let expected = 100_000 * STREAMS_MAX as u32 * u32::from(2 * IDENTIFICATION_DISTANCE_MAX) / 65_536;
        assert!(rejected <= 2_000, "{rejected} of 100000");
        assert!(accepted <= expected * 5 / 4, "{accepted} of 100000, at most {expected} expected");
    }
}
