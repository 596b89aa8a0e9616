//! The peers of this NIC: their addresses, and data that is cached for each peer to reduce the work per packet.
//!
//! A peer exists while it has a user: a connection, or a program that acquired it by address. Packets from all other
//! senders are dropped, except connection management messages, so unknown senders cannot increase the size of the
//! table.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use rnic_base::Time;
use rnic_engine::PeerId;
use rnic_wire::{Addresses, IcrcPrefix};

use crate::impair::PeerImpairment;

/// A remote NIC or host.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Addresses from the local end to the peer. When queue pair numbers encode ports, the peer's port in this field
    /// is always 4791, the port of RoCEv2.
    pub(crate) addresses: Addresses,
    /// Payload bytes of the largest packet that the path carries; 0 when this has not been determined.
    pub(crate) wire_mtu: u32,
    /// True when the peer is on this machine, so that packets to it may be sent through shared memory.
    pub(crate) is_local: bool,
    /// Local address for packets to this peer, if the socket has several addresses.
    pub(crate) from: Option<IpAddr>,
    /// Number of connections and programs that use the peer.
    users: u32,
    /// Sequence number of the peer among all peers ever created.
    number: u64,
    sent: PrefixCache,
    received: PrefixCache,
    /// Time at which packets to this peer were last found to be too large for the path; packets are fragmented while
    /// this is set.
    pub(crate) fragmenting: Option<Time>,
    pub(crate) impairment: Option<Box<PeerImpairment>>,
    /// True when packets of some queue pairs to the peer may leave from other ports ([`crate::paths`]), or have a
    /// traffic class of their own ([`crate::traffic_class`]).
    pub(crate) differs_by_queue_pair: bool,
}

impl Peer {
    /// Returns whether packets to the peer need special handling (impairment, fragmentation, several source ports, or
    /// traffic classes).
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.impairment.is_some() || self.fragmenting.is_some() || self.differs_by_queue_pair
    }

    /// Returns the addresses for datagrams to the peer's UDP port `port`.
    #[inline]
    pub(crate) fn path(&self, port: u16) -> Addresses {
        addresses_to(&self.addresses, port)
    }

    /// Returns the start of the ICRC, which covers the IP and UDP headers, of a datagram of `len` bytes to the peer's
    /// UDP port `port`.
    #[inline]
    pub(crate) fn sent_prefix(&mut self, len: u32, port: u16) -> IcrcPrefix {
        let addresses = &self.addresses;
        self.sent.get(len, port.into(), || IcrcPrefix::new(&addresses_to(addresses, port), len))
    }

    /// The same as `sent_prefix`, for a datagram that is sent on path number `path`, whose source port is that of
    /// `addresses`.
    pub(crate) fn sent_prefix_on(&mut self, len: u32, path: u8, addresses: &Addresses) -> IcrcPrefix {
        let key = u32::from(path) << 16 | u32::from(addresses.dst().port());
        self.sent.get(len, key, || IcrcPrefix::new(addresses, len))
    }

    /// The same as `sent_prefix`, for a datagram received from the peer's UDP port `port` with the addresses `path`.
    #[inline]
    pub(crate) fn received_prefix(&mut self, len: u32, port: u16, path: impl FnOnce() -> Addresses) -> IcrcPrefix {
        self.received.get(len, port.into(), || IcrcPrefix::new(&path(), len))
    }
}

fn addresses_to(addresses: &Addresses, port: u16) -> Addresses {
    let dst = SocketAddr::new(addresses.dst().ip(), port);
    Addresses::new(addresses.src(), dst).expect("the IP versions are those of a peer")
}

/// Cache of the ICRC prefixes for recently used lengths and ports; for packets that are sent, a port has the number of
/// the path in the upper bits. A connection uses few different lengths: full packets,
/// acknowledgements, and the last packets of messages.
#[derive(Debug, Default)]
struct PrefixCache([Option<(u32, u32, IcrcPrefix)>; PREFIXES]);

impl PrefixCache {
    #[inline]
    fn get(&mut self, len: u32, port: u32, compute: impl FnOnce() -> IcrcPrefix) -> IcrcPrefix {
        // Lengths are multiples of four, and the lengths of a connection are close to each other; ports are mostly
        // multiples of 16.
        let slot = &mut self.0[(len / 4 + port / 16) as usize % PREFIXES];
        match slot {
            Some((known_len, known_port, prefix)) if (*known_len, *known_port) == (len, port) => *prefix,
            _ => slot.insert((len, port, compute())).2,
        }
    }
}

/// All peers, by number and by address.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<Option<Peer>>,
    free: Vec<u32>,
    /// Peers by the peer's address and the local address. Never iterated.
    by_address: HashMap<(SocketAddr, IpAddr), PeerId>,
    /// Sender of the last packet, which is usually also the sender of the next one.
    latest: Option<((SocketAddr, IpAddr), PeerId)>,
    /// Number of peers ever created; a peer's number selects its random stream.
    made: u64,
}

impl Peers {
    /// Adds a user to the peer at the remote end of `addresses`, and creates the peer if necessary; returns `None`
    /// when there are too many peers.
    pub(crate) fn acquire(
        &mut self,
        addresses: &Addresses,
        from: Option<IpAddr>,
        impairment: impl FnOnce(u64) -> Option<Box<PeerImpairment>>,
    ) -> Option<PeerId> {
        let key = (addresses.dst(), addresses.src().ip());
        if let Some(id) = self.by_address.get(&key).copied() {
            self.get_mut(id).users += 1;
            return Some(id);
        }
        if self.by_address.len() >= PEERS_MAX {
            return None;
        }
        let peer = Peer {
            addresses: *addresses,
            wire_mtu: 0,
            is_local: false,
            from,
            users: 1,
            number: self.made,
            sent: PrefixCache::default(),
            received: PrefixCache::default(),
            fragmenting: None,
            impairment: impairment(self.made),
            differs_by_queue_pair: false,
        };
        self.made += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[index as usize] = Some(peer);
        self.by_address.insert(key, PeerId(index));
        Some(PeerId(index))
    }

    /// Replaces the impairment of every peer with the one that `make` returns for its number.
    pub(crate) fn impair_all(&mut self, make: impl Fn(u64) -> Option<Box<PeerImpairment>>) {
        for peer in self.slots.iter_mut().flatten() {
            peer.impairment = make(peer.number);
        }
    }

    /// Removes a user of the peer; returns whether it was the last one and the peer has been removed.
    pub(crate) fn release(&mut self, id: PeerId) -> bool {
        let peer = self.get_mut(id);
        peer.users -= 1;
        if peer.users > 0 {
            return false;
        }
        let key = (peer.addresses.dst(), peer.addresses.src().ip());
        self.by_address.remove(&key);
        self.latest = None;
        self.slots[id.0 as usize] = None;
        self.free.push(id.0);
        true
    }

    /// Returns the peer that sends from `source` to the local address `local`.
    #[inline]
    pub(crate) fn find(&mut self, source: SocketAddr, local: IpAddr) -> Option<PeerId> {
        let key = (source, local);
        if let Some((latest, id)) = self.latest
            && latest == key
        {
            return Some(id);
        }
        let id = *self.by_address.get(&key)?;
        self.latest = Some((key, id));
        Some(id)
    }

    /// Returns all peers at `address`, with any local address.
    pub(crate) fn at(&self, address: SocketAddr) -> impl Iterator<Item = PeerId> {
        let of = move |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.addresses.dst() == address);
        self.slots.iter().enumerate().filter(move |(_, peer)| of(peer)).map(|(index, _)| PeerId(index as u32))
    }

    /// Returns the peer with this number, if it exists.
    pub(crate) fn look_up(&self, id: PeerId) -> Option<&Peer> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Returns the address of the peer with this number, if it exists.
    pub(crate) fn address_of(&self, id: PeerId) -> Option<SocketAddr> {
        self.look_up(id).map(|peer| peer.addresses.dst())
    }

    #[inline]
    pub(crate) fn get(&self, id: PeerId) -> &Peer {
        self.slots[id.0 as usize].as_ref().expect("a peer lives as long as it has users")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PeerId) -> &mut Peer {
        self.slots[id.0 as usize].as_mut().expect("a peer lives as long as it has users")
    }

    /// Returns the numbers of all peers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> {
        self.slots.iter().enumerate().filter(|(_, peer)| peer.is_some()).map(|(index, _)| PeerId(index as u32))
    }

    /// Returns the number of peers.
    pub(crate) fn len(&self) -> usize {
        self.by_address.len()
    }
}

/// Maximum number of peers of one NIC: each needs a few kilobytes.
const PEERS_MAX: usize = 4_096;

/// Number of lengths whose prefixes are cached for each direction.
const PREFIXES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(src: &str, dst: &str) -> Addresses {
        Addresses::new(src.parse().expect("an address"), dst.parse().expect("an address")).expect("both IPv4")
    }

    #[test]
    fn a_peer_lives_while_it_has_users() {
        let mut peers = Peers::default();
        let path = addresses("10.0.0.1:4791", "10.0.0.2:4791");
        let local = path.src().ip();
        assert_eq!(peers.find(path.dst(), local), None);
        let id = peers.acquire(&path, None, |_| None).expect("the table has space");
        assert_eq!(peers.acquire(&path, None, |_| None), Some(id));
        assert_eq!((peers.find(path.dst(), local), peers.len()), (Some(id), 1));
        assert_eq!(peers.find(path.dst(), "10.0.0.9".parse().expect("an address")), None, "found for another address");
        assert!(!peers.release(id));
        assert!(peers.release(id));
        assert_eq!((peers.find(path.dst(), local), peers.len()), (None, 0));
        let other_addresses = addresses("10.0.0.1:4791", "10.0.0.3:4791");
        assert_eq!(peers.acquire(&other_addresses, None, |_| None), Some(id), "the number was not reused");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut peers = Peers::default();
        for host in 0..PEERS_MAX {
            let path = addresses("10.0.0.1:4791", &format!("10.1.{}.{}:4791", host / 256, host % 256));
            assert!(peers.acquire(&path, None, |_| None).is_some());
        }
        assert_eq!(peers.acquire(&addresses("10.0.0.1:4791", "10.2.0.1:4791"), None, |_| None), None);
    }

    #[test]
    fn icrc_prefixes_match_the_addresses_of_the_packet() {
        let mut peers = Peers::default();
        let path = addresses("10.0.0.1:4791", "10.0.0.2:4000");
        let id = peers.acquire(&path, None, |_| None).expect("the table has space");
        let peer = peers.get_mut(id);
        // These alternating lengths use the same slot of the cache.
        for len in [24, 24 + 64, 24, 4_132, 24 + 64] {
            for port in [4_000, 4_016, 4_000] {
                let path = addresses("10.0.0.1:4791", &format!("10.0.0.2:{port}"));
                assert_eq!(peer.sent_prefix(len, port), IcrcPrefix::new(&path, len));
                let other =
                    Addresses::new("10.0.0.1:40000".parse().expect("an address"), path.dst()).expect("both IPv4");
                assert_eq!(peer.sent_prefix_on(len, 3, &other), IcrcPrefix::new(&other, len));
                assert_eq!(peer.sent_prefix(len, port), IcrcPrefix::new(&path, len));
                let back = || path.reversed();
                assert_eq!(peer.received_prefix(len, port, back), IcrcPrefix::new(&path.reversed(), len));
            }
        }
    }
}
