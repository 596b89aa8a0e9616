//! Check of the IPv4 identifications that packets from real RoCEv2 peers may have.
//!
//! Adapters and Linux number their IPv4 packets, and the ICRC covers the number, which a UDP socket does not see. The
//! number that would make a packet right can be computed from the ICRC ([`IdentificationFinder`]): for one corrupted
//! packet in 65,536 there is one. So not every number is accepted. Linux counts for each pair of hosts, and skips some
//! while clock ticks pass; adapters count, possibly separately for each queue pair. A host is known by its latest
//! numbers, at most [`STREAMS`] positions, and a packet is accepted when its number closely follows one of them.
//!
//! A packet that was corrupted on the way, and that the checksums of lower layers have not detected, is accepted
//!
//! - with a probability of `STREAMS * 2 * NEAR / 2^32`, one in two million, from a host from which packets arrive
//!   often; numbers that may have passed in a pause widen that to at most one in 65,536 after 16 seconds;
//! - of one in 65,536 when it is the first packet of a host, or of one whose numbers follow no order;
//! - of one in 2^32, as between OpenRNIC NICs, when packets come over IPv6 or all have identification 0.
//!
//! A packet whose number is far from all known positions is dropped as one with a wrong ICRC, and its position is
//! recorded: the next one from there is accepted. A host from which [`DISORDER_AFTER`] such packets arrive in a row,
//! which corruption causes once in 2^128, generates its numbers at random, and all are accepted from then on.

use std::net::{IpAddr, Ipv4Addr};

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_wire::IcrcPrefix;
use rnic_wire::icrc::IdentificationFinder;

use crate::carry;

/// Latest identification numbers of hosts.
#[derive(Debug)]
pub(crate) struct Identifications {
    /// Hosts by address. Hosts that share an entry replace each other: the next packet counts as a first one again.
    hosts: Box<[Host]>,
    /// Finders by packet length.
    finders: Box<[Option<(u32, IdentificationFinder)>]>,
}

#[derive(Clone, Debug)]
struct Host {
    ip: Ipv4Addr,
    /// Number sequences, latest first.
    streams: ArrayVec<Stream, STREAMS>,
    /// Consecutive packets whose numbers were far from all known ones.
    strays: u8,
}

/// The last number of a sequence of a host, and its time.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u16,
    heard: Time,
}

impl Default for Identifications {
    fn default() -> Self {
        let unused = Host { ip: Ipv4Addr::UNSPECIFIED, streams: ArrayVec::new(), strays: 0 };
        Self { hosts: vec![unused; HOSTS].into_boxed_slice(), finders: vec![None; FINDERS].into_boxed_slice() }
    }
}

impl Identifications {
    /// Returns whether the last four bytes of `datagram`, which came from `source`, are its ICRC. `prefix` is that of
    /// packets with identification 0.
    pub(crate) fn verify(&mut self, now: Time, source: IpAddr, prefix: IcrcPrefix, datagram: &[u8]) -> bool {
        let Some(difference) = carry::difference(prefix, datagram) else { return false };
        if difference == 0 {
            return true;
        }
        let IpAddr::V4(ip) = source.to_canonical() else { return false };
        let Some(identification) = self.finder(datagram.len() as u32).find(difference) else { return false };
        self.host(ip).expects(now, identification)
    }

    /// Returns the identification for which the ICRC of `datagram` is right, if there is one.
    pub(crate) fn find(&mut self, prefix: IcrcPrefix, datagram: &[u8]) -> Option<u16> {
        let difference = carry::difference(prefix, datagram)?;
        self.finder(datagram.len() as u32).find(difference)
    }

    fn finder(&mut self, len: u32) -> IdentificationFinder {
        // A connection has few different packet lengths, and they are multiples of four.
        let place = &mut self.finders[(len / 4) as usize % FINDERS];
        match place {
            Some((known, finder)) if *known == len => *finder,
            _ => place.insert((len, IdentificationFinder::new(len))).1,
        }
    }

    fn host(&mut self, ip: Ipv4Addr) -> &mut Host {
        let [a, b, c, d] = ip.octets();
        let host = &mut self.hosts[usize::from(a ^ b ^ c ^ d) % HOSTS];
        if host.ip != ip {
            *host = Host { ip, streams: ArrayVec::new(), strays: 0 };
        }
        host
    }
}

impl Host {
    /// Returns whether a packet with this number is expected; records its position.
    fn expects(&mut self, now: Time, identification: u16) -> bool {
        let here = Stream { last: identification, heard: now };
        if let Some(index) = self.streams.iter().position(|stream| stream.leads_to(now, identification)) {
            let stream = &mut self.streams[index];
            let is_newer = identification.wrapping_sub(stream.last) <= u16::MAX / 2;
            *stream = if is_newer { here } else { Stream { heard: now, ..*stream } };
            self.streams[..=index].rotate_right(1);
            // A host with random numbers is still treated so when some of its numbers happen to be near.
            if !self.is_in_disorder() {
                self.strays = 0;
            }
            return true;
        }
        let is_first = self.streams.is_empty();
        if self.streams.is_full() {
            self.streams.pop();
        }
        self.streams.insert(0, here);
        self.strays = if is_first { 0 } else { self.strays.saturating_add(1) };
        is_first || self.is_in_disorder()
    }

    fn is_in_disorder(&self) -> bool {
        self.strays >= DISORDER_AFTER
    }
}

impl Stream {
    /// Returns whether `identification` may come next, or belongs to a packet that was overtaken.
    fn leads_to(&self, now: Time, identification: u16) -> bool {
        let ticks = now.since(self.heard).as_ps() / TICK.as_ps();
        let ahead = NEAR.saturating_add(u16::try_from(ticks).unwrap_or(u16::MAX)).min(AHEAD_MAX);
        identification.wrapping_sub(self.last) <= ahead || self.last.wrapping_sub(identification) <= NEAR
    }
}

/// Number of hosts in the table.
const HOSTS: usize = 256;

/// Number of packet lengths whose finders are kept.
const FINDERS: usize = 64;

/// Number sequences per host: its queue pairs may count separately, and some at the same time.
const STREAMS: usize = 4;

/// Largest distance of a number: numbers between two received packets may have been used for other hosts or lost, and a
/// packet may be overtaken by as many. A train split by the local kernel is numbered from 0, and has fewer packets.
const NEAR: u16 = 256;

/// Largest number of skipped identifications, after any pause.
const AHEAD_MAX: u16 = 1 << 14;

/// In a pause, Linux skips at most as many numbers as its clock ticks: 1000 a second.
const TICK: Duration = Duration::from_ms(1);

/// Number of consecutive packets far from all known positions after which a host counts as random.
const DISORDER_AFTER: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { ip: Ipv4Addr::LOCALHOST, streams: ArrayVec::new(), strays: 0 }
    }

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn numbers_that_count_on_are_expected() {
        let mut host = host();
        assert!(host.expects(at_ms(0), 65_500), "the first may be any");
        for step in 1..200u16 {
            assert!(host.expects(at_ms(0), 65_500u16.wrapping_add(step * 3)), "{step}");
        }
        assert!(!host.expects(at_ms(0), 30_000));
        assert!(host.expects(at_ms(0), 30_001), "where one was the next may be");
        assert!(host.expects(at_ms(0), 562), "and the others go on where they were");
        assert!(!host.expects(at_ms(1), 562 + 300));
        assert!(host.expects(at_ms(501), 562 + 300 + 700), "a pause skips numbers");
    }

    #[test]
    fn queue_pairs_that_count_for_themselves_are_kept_apart() {
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
            // 0 itself is right without anybody's word.
            assert!((1..64).all(|number| host.expects(at_ms(0), number)));
        }
    }

    #[test]
    fn random_numbers_are_expected_after_a_while() {
        let mut host = host();
        let mut random = rnic_base::RandomStreams::new(3).stream("identification");
        let taken = (0..1_000).filter(|_| host.expects(at_ms(0), random.bits() as u16)).count();
        assert!(taken > 950, "{taken}");
    }

    #[test]
    fn corruption_is_hardly_ever_expected() {
        let mut host = host();
        let mut random = rnic_base::RandomStreams::new(5).stream("corruption");
        let (mut next, mut wrong, mut missed) = (7u16, 0, 0);
        for _ in 0..100_000 {
            next = next.wrapping_add(1);
            // What was taken wrongly may lead away from the right place, for one packet.
            missed += u32::from(!host.expects(at_ms(0), next));
            // As often as every second packet, and among them only those that have a number at all.
            wrong += u32::from(host.expects(at_ms(0), random.bits() as u16));
        }
        let expected = 100_000 * STREAMS as u32 * u32::from(2 * NEAR) / 65_536;
        assert!(missed <= 2_000, "{missed} of 100000");
        assert!(wrong <= expected * 5 / 4, "{wrong} of 100000, at most {expected} with all places taken");
    }
}
