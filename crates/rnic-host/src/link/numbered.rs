//! ICRC of packets to real RoCEv2 peers over IPv4, which covers the identification.
//!
//! A datagram that is sent alone has identification 0, because it must not be fragmented (ip(7): the kernel numbers
//! only packets that may be fragmented). In a train the kernel numbers the packets 0, 1, 2 and so on, and
//! [`super::batch`] computes the ICRC of each for its number. If a packet is not sent in the train for which its ICRC
//! was computed, this module computes the ICRC again.

use std::net::IpAddr;

use rnic_base::Time;
use rnic_engine::PeerId;
use rnic_wire::{Addresses, ICRC_LEN, IcrcPrefix};

use super::batch::{Batch, Train};
use super::{Link, Ports};
use crate::copy_crc;

impl Link {
    /// Returns whether the ICRC of packets to `peer` covers the identification that the kernel assigns.
    #[inline]
    pub(crate) fn is_numbered(&self, peer: PeerId) -> bool {
        self.ports == Ports::RoceV2 && self.peers.get(peer).addresses.src().is_ipv4()
    }

    /// Returns whether the last four bytes of `datagram`, received from `source`, are its ICRC.
    #[inline]
    pub(crate) fn is_whole(&mut self, now: Time, source: IpAddr, prefix: IcrcPrefix, datagram: &[u8]) -> bool {
        match &mut self.identifications {
            None => copy_crc::verify(prefix, datagram),
            Some(known) => known.verify(now, source, prefix, datagram),
        }
    }

    /// Returns the packets of `train`, each with the ICRC that it has when it is sent as a separate datagram.
    #[cold]
    pub(super) fn separate_packets(&self, batch: &Batch<'_>, train: &Train) -> Vec<Vec<u8>> {
        let (is_numbered, addresses) = (self.is_numbered(train.peer), self.addresses_of(train.path()));
        let whole = |(number, bytes): (usize, &[u8])| {
            let mut bytes = bytes.to_vec();
            if is_numbered && number > 0 {
                seal(&addresses, &mut bytes);
            }
            bytes
        };
        batch.packets(train).enumerate().map(whole).collect()
    }

    /// Returns the identification with which `bytes` were sent or received, computed from their ICRC.
    pub(super) fn identification_of(&mut self, addresses: &Addresses, bytes: &[u8]) -> u16 {
        match &mut self.identifications {
            Some(known) if addresses.src().is_ipv4() => {
                known.find(IcrcPrefix::new(addresses, bytes.len() as u32), bytes).unwrap_or(0)
            }
            _ => 0,
        }
    }
}

/// Writes the ICRC of a datagram with identification 0.
fn seal(addresses: &Addresses, bytes: &mut [u8]) {
    let prefix = IcrcPrefix::new(addresses, bytes.len() as u32);
    if let Some((covered, icrc)) = bytes.split_last_chunk_mut::<ICRC_LEN>() {
        *icrc = prefix.start(covered).finish();
    }
}
