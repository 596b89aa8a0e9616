//! Messages between NICs: queued and sent as packets are.

use std::net::IpAddr;

use rnic_base::Time;
use rnic_engine::PeerId;
use rnic_wire::scr::ProbePath;
use rnic_wire::{Addresses, ICRC_LEN, Qpn};

use super::Link;
use super::batch::SendPath;
use crate::bypass::{RecordKind, RingResult};
use crate::datagram::Datagram;
use crate::ip_fields::PackedIpFields;

impl Link {
    /// Sends `bytes`, a complete message, to `peer` on `path` with the given `addresses`: through shared memory, as a
    /// record of `kind`, if packets to the peer use it; otherwise it is queued for the socket. Impairment is applied as
    /// to any packet.
    pub(crate) fn send_message(
        &mut self,
        now: Time,
        peer: PeerId,
        addresses: &Addresses,
        path: u8,
        (bytes, kind): (&[u8], RecordKind),
    ) {
        let send_path = SendPath { peer, port: addresses.dst().port(), path, ip_fields: PackedIpFields::NONE };
        let passes = self.impair(now, send_path, bytes.len() as u32, |_, copy| {
            copy.clear();
            copy.extend_from_slice(bytes);
            Ok(())
        });
        if !passes.expect("NIC memory is mapped") {
            return;
        }
        self.capture(now, addresses, bytes);
        if self.peers.get(peer).is_local && self.put_message_into_ring(now, (peer, addresses.dst().port()), bytes, kind)
        {
            return;
        }
        let ip_fields = PackedIpFields::NONE;
        self.tx_backlog.push_back(Datagram { addresses: *addresses, bytes: bytes.to_vec(), ip_fields });
    }

    /// Returns the number and the source port of the path on which a probe of `qpn` to `ip` is sent; `None` if the
    /// probe is sent from the default port, for example because no further socket could be opened.
    pub(crate) fn path_of_probe(&mut self, ip: IpAddr, qpn: Qpn, probe: ProbePath) -> Option<(u8, u16)> {
        let path = self.paths.path_of_probe(qpn, probe);
        let lane = self.lane_of(ip);
        self.lanes[lane].open_path(path);
        let port = self.lanes[lane].port_of(path)?;
        self.paths.name_port(qpn, path, port);
        Some((path, port))
    }

    /// Writes a message, without its ICRC unless it is encrypted, into the ring to its receiver; returns false if there
    /// is no ring.
    fn put_message_into_ring(&mut self, now: Time, target: (PeerId, u16), bytes: &[u8], kind: RecordKind) -> bool {
        let peer = target.0;
        let Self { bypass: Some(bypass), peers, stats, .. } = self else { return false };
        let bytes = if kind.is_sealed { bytes } else { &bytes[..bytes.len() - ICRC_LEN] };
        let result = bypass.send_from_nic(now, target, bytes, kind);
        stats.count_bypass(result, bytes.len());
        match result {
            RingResult::NoRing => bypass.prepare(now, peer, &peers.get(peer).path(target.1)),
            RingResult::Full => self.queue_for_ring(now, target, bytes.to_vec(), kind),
            RingResult::Sent | RingResult::Dropped => {}
        }
        result != RingResult::NoRing
    }

    /// Returns whether no more answers are sent on `path` to `ip`, because half of the send buffer is reserved for
    /// data.
    pub(crate) fn is_crowded(&self, ip: IpAddr, path: u8) -> bool {
        self.has_many_queued_responses() || !self.lanes[self.lane_of(ip)].sender_on(path).is_half_free()
    }
}
