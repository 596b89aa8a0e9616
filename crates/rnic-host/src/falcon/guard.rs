//! Admission check of one Falcon queue pair: the permitted sender of packets to it, and its keys.

use std::net::IpAddr;
use std::ops::Range;

use rnic_base::Time;
use rnic_engine::PeerId;
use rnic_psp::{Context, Opener, Refusal, Sealer, SecurityFormat, esp};
use rnic_wire::falcon::psp::{Header, Layout};
use rnic_wire::falcon::{self, Cid, FlowLabel};
use rnic_wire::{Addresses, Qpn};

use crate::protection::Protection;
use crate::stats::RxDrop;

/// The guard of one Falcon queue pair: addresses and ports of its peer, and its keys.
#[derive(Debug)]
pub(crate) struct Guard {
    /// True when the packets of the queue pair are sent on several paths.
    spreads: bool,
    /// The connected peer, the source address of its packets, and its queue pair.
    remote: Option<(PeerId, IpAddr, Qpn)>,
    keys: Option<Box<Keys>>,
}

/// Keys of both directions. If the system provided no random bits, there is no sealer: then no packet is sent, and no
/// received packet is accepted.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is boxed whole; another pointer would be in the way of each packet")]
enum Keys {
    Psp { sealer: Option<Sealer>, opener: Opener },
    Esp { sealer: Option<esp::Sealer>, opener: esp::Opener },
}

impl Keys {
    fn can_seal(&self) -> bool {
        match self {
            Self::Psp { sealer, .. } => sealer.is_some(),
            Self::Esp { sealer, .. } => sealer.is_some(),
        }
    }
}

impl Guard {
    pub(super) fn new(spreads: bool) -> Self {
        Self { spreads, remote: None, keys: None }
    }

    pub(super) fn spreads(&self) -> bool {
        self.spreads
    }

    pub(super) fn connect(&mut self, peer: PeerId, source: IpAddr, dest_qpn: Qpn) {
        self.remote = Some((peer, source, dest_qpn));
    }

    /// Returns the connected peer and its queue pair.
    pub(super) fn remote(&self) -> Option<(PeerId, Qpn)> {
        self.remote.map(|(peer, _, dest_qpn)| (peer, dest_qpn))
    }

    /// Returns the peer's queue pair; 0 when none is connected.
    #[inline]
    pub(super) fn dest_qpn(&self) -> Qpn {
        self.remote.map_or(Qpn::new(0), |(_, _, dest_qpn)| dest_qpn)
    }

    /// Creates the keys of both directions, for a queue pair and its remote queue pair. Both ends derive a
    /// direction's context from the sender and the receiver, each identified by address and connection. The initial
    /// sequence numbers are not part of the context, because the sending sequence number of a queue pair that only
    /// receives may never be set. If the queue pair was connected before, packets that its peer sent under the
    /// previous connection are still recognized as such.
    ///
    /// Without a `cookie` there is no key for encryption; protected packets are then not sent.
    pub(super) fn protect(
        &mut self,
        protection: &Protection,
        addresses: &Addresses,
        (local, remote): (Qpn, Qpn),
        cookie: Option<u64>,
    ) {
        let [local, remote] = [local, remote].map(|qpn| Cid::new(qpn.get()));
        let local_end = (addresses.src().ip(), local);
        let remote_end = (addresses.dst().ip(), remote);
        let Protection { secret, form, cipher, packets_per_key } = protection;
        let [outgoing, incoming] = [context(local_end, remote_end), context(remote_end, local_end)];
        let keys = match form {
            SecurityFormat::Psp => {
                let sealer = cookie.map(|cookie| Sealer::new(secret, *cipher, &outgoing, remote, cookie));
                let sealer = sealer.map(|sealer| sealer.rotating_after(*packets_per_key));
                let mut opener = Opener::new(secret, *cipher, &incoming, local);
                if let Some(Keys::Psp { opener: earlier, .. }) = self.keys.as_deref() {
                    opener = opener.after(earlier);
                }
                Keys::Psp { sealer, opener }
            }
            SecurityFormat::Esp => {
                let sealer = cookie.map(|cookie| esp::Sealer::new(secret, *cipher, &outgoing, remote, cookie));
                let sealer = sealer.map(|sealer| sealer.rotating_after(*packets_per_key));
                let mut opener = esp::Opener::new(secret, *cipher, &incoming, local);
                if let Some(Keys::Esp { opener: earlier, .. }) = self.keys.as_deref() {
                    opener = opener.after(earlier);
                }
                Keys::Esp { sealer, opener }
            }
        };
        self.keys = Some(Box::new(keys));
    }

    /// Returns the peer, if it may send packets from `source`.
    #[inline]
    pub(super) fn peer_at(&self, source: IpAddr) -> Option<PeerId> {
        self.remote.filter(|(_, at, _)| *at == source).map(|(peer, ..)| peer)
    }

    /// Returns whether there is a key for encryption.
    #[inline]
    pub(super) fn has_keys(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.can_seal())
    }

    /// Seals a datagram around the packet at `message`; returns whether it is the first one with a new key.
    ///
    /// # Panics
    /// When there is no key ([`Self::has_keys`]).
    #[inline]
    pub(super) fn seal(&mut self, now: Time, label: FlowLabel, message: Range<usize>, datagram: &mut [u8]) -> bool {
        match self.keys.as_deref_mut() {
            Some(Keys::Psp { sealer: Some(sealer), .. }) => {
                let generation = sealer.generation();
                sealer.seal(now, label, datagram);
                sealer.generation() != generation
            }
            Some(Keys::Esp { sealer: Some(sealer), .. }) => {
                let generation = sealer.generation();
                sealer.seal(now, label, message.len(), datagram);
                sealer.generation() != generation
            }
            _ => unreachable!("the caller has checked has_keys"),
        }
    }

    /// Opens a PSP datagram; returns the low bits of its flow label.
    #[inline]
    pub(super) fn open(&mut self, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<u8, RxDrop> {
        match self.keys.as_deref_mut() {
            Some(Keys::Psp { sealer: Some(_), opener }) => {
                opener.open(header, layout, datagram).map(|opened| opened.vector.label).map_err(drop_of)
            }
            _ => Err(RxDrop::Protection),
        }
    }

    /// Opens an ESP datagram in the same way.
    #[inline]
    pub(super) fn open_esp(
        &mut self,
        header: &falcon::esp::Header,
        layout: falcon::esp::Layout,
        datagram: &mut [u8],
    ) -> Result<u8, RxDrop> {
        match self.keys.as_deref_mut() {
            Some(Keys::Esp { sealer: Some(_), opener }) => {
                opener.open(header, layout, datagram).map(|opened| opened.label).map_err(drop_of)
            }
            _ => Err(RxDrop::Protection),
        }
    }
}

fn drop_of(refusal: Refusal) -> RxDrop {
    match refusal {
        Refusal::Unprotected | Refusal::Index => RxDrop::Protection,
        Refusal::Replay => RxDrop::Replay,
        Refusal::Forged => RxDrop::Forged,
    }
}

/// Returns the key context of the direction from `from` to `to`, which both ends derive.
fn context(from: (IpAddr, Cid), to: (IpAddr, Cid)) -> Context {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let of = |(ip, cid): (IpAddr, Cid)| [&octets(ip)[..], &cid.get().to_be_bytes()].concat();
    Context::new(&[of(from), of(to)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected value computed by hand: address (IPv4-mapped IPv6 for IPv4) and connection of the sender, then
    /// address and connection of the receiver. Two builds that encode this differently cannot communicate.
    #[test]
    fn f42_golden_contexts() {
        let end = |ip: &str, cid: u32| (ip.parse::<IpAddr>().expect("an address"), Cid::new(cid));
        let mapped = |last: u8| [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, last]].concat();
        let expected = [&mapped(1)[..], &[0, 0, 0, 0x11], &mapped(2), &[0, 0, 0, 0x22]].concat();
        assert_eq!(context(end("10.0.0.1", 0x11), end("10.0.0.2", 0x22)), Context::new(&expected));
        let written = |last: u8| [&[0x20, 0x01, 0x0d, 0xb8][..], &[0; 11], &[last]].concat();
        let expected = [&written(1)[..], &[0, 0xab, 0xcd, 0xef], &written(2), &[0, 0x12, 0x34, 0x56]].concat();
        assert_eq!(context(end("2001:db8::1", 0xab_cdef), end("2001:db8::2", 0x12_3456)), Context::new(&expected));
    }
}
