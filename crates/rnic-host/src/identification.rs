//! Which IPv4 identifications packets from real RoCEv2 peers may have.
//!
//! Adapters and Linux number their IPv4 packets, and the ICRC covers the number, which a UDP socket does not see. The
//! ICRC says which number would make a packet right ([`IdentificationFinder`]): one wrong packet in 65,536 has one. So
//! not every number is taken. Linux counts for each pair of hosts, and skips some while clock ticks pass; adapters
//! count, each queue pair perhaps for itself. A host is known by where its latest numbers were, at most [`STREAMS`]
//! places, and a packet is right whose number follows closely on one of them.
//!
//! A packet that was corrupted on the way, and that the checksums below us have not found, is taken for right
//!
//! - with a probability of `STREAMS * 2 * NEAR / 2^32`, one in two million, from a host that is heard of often; numbers
//!   that may have passed in a pause widen that to at most one in 65,536 after 16 seconds;
//! - of one in 65,536 when it is the first packet of a host, or of one whose numbers follow no order;
//! - of one in 2^32, as with our own, when packets come over IPv6 or all have identification 0.
//!
//! A packet whose number is far from all known places is dropped as one with a wrong ICRC, and its place is remembered:
//! the next one from there is right. A host of which [`DISORDER_AFTER`] such packets come in a row, which corruption
//! makes once in 2^128, draws its numbers at random, and all are taken from then on.

use std::net::{IpAddr, Ipv4Addr};

use arrayvec::ArrayVec;
use rnic_base::{Duration, Time};
use rnic_wire::IcrcPrefix;
use rnic_wire::icrc::IdentificationFinder;

use crate::carry;

/// Where hosts' numbers were last.
#[derive(Debug)]
pub(crate) struct Identifications {
    /// By address. Hosts that share a place forget each other: the next packet is a first one again.
    hosts: Box<[Host]>,
    /// By length.
    finders: Box<[Option<(u32, IdentificationFinder)>]>,
}

#[derive(Clone, Debug)]
struct Host {
    ip: Ipv4Addr,
    /// Latest first.
    streams: ArrayVec<Stream, STREAMS>,
    /// Packets in a row whose numbers were far from all known ones.
    strays: u8,
}

/// Where a host's numbers were last, and when.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u16,
    heard: Time,
}

impl Default for Identifications {
    fn default() -> Self {
        let nobody = Host { ip: Ipv4Addr::UNSPECIFIED, streams: ArrayVec::new(), strays: 0 };
        Self { hosts: vec![nobody; HOSTS].into_boxed_slice(), finders: vec![None; FINDERS].into_boxed_slice() }
    }
}

impl Identifications {
    /// Whether the last four bytes of `datagram`, which came from `source`, are its ICRC. `prefix` is that of packets
    /// with identification 0.
    pub(crate) fn verify(&mut self, now: Time, source: IpAddr, prefix: IcrcPrefix, datagram: &[u8]) -> bool {
        let Some(difference) = carry::difference(prefix, datagram) else { return false };
        if difference == 0 {
            return true;
        }
        let IpAddr::V4(ip) = source.to_canonical() else { return false };
        let Some(identification) = self.finder(datagram.len() as u32).find(difference) else { return false };
        self.host(ip).expects(now, identification)
    }

    /// The identification that makes `datagram` right, if there is one.
    pub(crate) fn find(&mut self, prefix: IcrcPrefix, datagram: &[u8]) -> Option<u16> {
        let difference = carry::difference(prefix, datagram)?;
        self.finder(datagram.len() as u32).find(difference)
    }

    fn finder(&mut self, len: u32) -> IdentificationFinder {
        // Lengths of a connection are few, and multiples of four.
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
    /// Returns whether a packet with this number is one to expect; notes where it was.
    fn expects(&mut self, now: Time, identification: u16) -> bool {
        let here = Stream { last: identification, heard: now };
        if let Some(index) = self.streams.iter().position(|stream| stream.leads_to(now, identification)) {
            let stream = &mut self.streams[index];
            let is_newer = identification.wrapping_sub(stream.last) <= u16::MAX / 2;
            *stream = if is_newer { here } else { Stream { heard: now, ..*stream } };
            self.streams[..=index].rotate_right(1);
            // One that draws at random stays so: now and then its numbers happen to be near.
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
    /// Returns whether `identification` may come next, or is one of those that were overtaken.
    fn leads_to(&self, now: Time, identification: u16) -> bool {
        let ticks = now.since(self.heard).as_ps() / TICK.as_ps();
        let ahead = NEAR.saturating_add(u16::try_from(ticks).unwrap_or(u16::MAX)).min(AHEAD_MAX);
        identification.wrapping_sub(self.last) <= ahead || self.last.wrapping_sub(identification) <= NEAR
    }
}

/// Hosts that are remembered.
const HOSTS: usize = 256;

/// Lengths whose finders are remembered.
const FINDERS: usize = 64;

/// Places of a host: its queue pairs may count for themselves, and some at the same time.
const STREAMS: usize = 4;

/// Numbers that may have gone to others, or got lost, between two packets that come, or that one may come late by.
/// A train that we cut is numbered from 0, and has fewer packets.
const NEAR: u16 = 256;

/// The most that is skipped, after any pause.
const AHEAD_MAX: u16 = 1 << 14;

/// In a pause, Linux skips as many numbers as its clock ticks, at most: 1000 a second.
const TICK: Duration = Duration::from_ms(1);

/// So many in a row follow no order.
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
