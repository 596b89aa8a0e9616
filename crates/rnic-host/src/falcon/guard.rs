//! What stands before one Falcon queue pair: whose packets it takes, and their keys.

use std::net::IpAddr;

use rnic_base::{Psn, Time};
use rnic_engine::{PeerId, QpConnection};
use rnic_psp::{Context, Opener, Refusal, Sealer, Vector};
use rnic_wire::falcon::psp::{Header, Layout};
use rnic_wire::falcon::{Cid, FlowLabel};
use rnic_wire::{Addresses, Qpn};

use super::Protection;
use crate::stats::RxDrop;

/// See the module.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Its packets take several paths.
    spreads: bool,
    far: Option<FarEnd>,
    keys: Option<Box<Keys>>,
}

/// Whom it is connected to.
#[derive(Clone, Copy, Debug)]
struct FarEnd {
    peer: PeerId,
    here: IpAddr,
    there: IpAddr,
    local: Cid,
    remote: Cid,
    rq_psn: Psn,
}

#[derive(Debug)]
struct Keys {
    sealer: Sealer,
    opener: Opener,
}

impl Guard {
    pub(super) fn new(spreads: bool) -> Self {
        Self { spreads, far: None, keys: None }
    }

    pub(super) fn spreads(&self) -> bool {
        self.spreads
    }

    pub(super) fn connect(&mut self, qpn: Qpn, connection: &QpConnection, addresses: &Addresses) {
        let cid = |qpn: Qpn| Cid::new(qpn.get());
        self.keys = None;
        self.far = Some(FarEnd {
            peer: connection.peer,
            here: addresses.src().ip(),
            there: addresses.dst().ip(),
            local: cid(qpn),
            remote: cid(connection.dest_qpn),
            rq_psn: connection.rq_psn,
        });
    }

    /// Makes the keys of both directions. What both ends call a direction: who sends and who receives, by address,
    /// connection and first sequence number.
    pub(super) fn protect(&mut self, protection: &Protection, sq_psn: Psn, cookie: u64) {
        let Some(far) = self.far.filter(|_| self.keys.is_none()) else { return };
        let here = (far.here, far.local, sq_psn);
        let there = (far.there, far.remote, far.rq_psn);
        let Protection { secret, cipher } = protection;
        let sealer = Sealer::new(secret, *cipher, &context(here, there), far.remote, cookie);
        let opener = Opener::new(secret, *cipher, &context(there, here), far.local);
        self.keys = Some(Box::new(Keys { sealer, opener }));
    }

    /// The peer, if packets from `source` can be its.
    #[inline]
    pub(super) fn peer_at(&self, source: IpAddr) -> Option<PeerId> {
        self.far.as_ref().filter(|far| far.there == source).map(|far| far.peer)
    }

    /// Whether there is a key to seal with.
    #[inline]
    pub(super) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Seals a datagram.
    ///
    /// # Panics
    /// When there is no key ([`Self::has_keys`]).
    #[inline]
    pub(super) fn seal(&mut self, now: Time, label: FlowLabel, datagram: &mut [u8]) {
        let keys = self.keys.as_mut().expect("asked before");
        keys.sealer.seal(now, label, datagram);
    }

    /// Opens a datagram.
    #[inline]
    pub(super) fn open(&mut self, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<Vector, RxDrop> {
        let keys = self.keys.as_mut().ok_or(RxDrop::Protection)?;
        let opened = keys.opener.open(header, layout, datagram).map_err(|refusal| match refusal {
            Refusal::Unprotected | Refusal::Index => RxDrop::Protection,
            Refusal::Replay => RxDrop::Replay,
            Refusal::Forged => RxDrop::Forged,
        })?;
        Ok(opened.vector)
    }
}

/// What both ends call the direction from `from` to `to`.
fn context(from: (IpAddr, Cid, Psn), to: (IpAddr, Cid, Psn)) -> Context {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let of = |(ip, cid, psn): (IpAddr, Cid, Psn)| {
        [&octets(ip)[..], &cid.get().to_be_bytes(), &psn.value().to_be_bytes()].concat()
    };
    Context::new(&[of(from), of(to)].concat())
}
