//! Traffic classes of connected queue pairs: differentiated services code points (DSCP) in the IP headers of all their
//! packets, acknowledgements included.
//!
//! Source: InfiniBand Architecture annex A17 (RoCEv2): the traffic class of the global route is that of the IP header.
//! Its lower two bits belong to congestion notification (RFC 3168), and so to the transport, as in RoCEv2 adapters.
//!
//! The table is read only for packets to peers with such a queue pair ([`crate::peer::Peer::is_special`]). The class is
//! passed to the kernel with each train of packets, and trains contain packets of one class only. Datagrams have the
//! class of their address handle instead ([`crate::PackedIpFields`]).

use std::collections::HashMap;

use rnic_wire::Qpn;

use crate::ip_fields::PackedIpFields;
use crate::number::ByNumber;

/// The traffic classes that differ from the default.
#[derive(Debug, Default)]
pub(crate) struct TrafficClasses {
    /// Never iterated.
    queue_pairs: HashMap<Qpn, PackedIpFields, ByNumber>,
    /// Congestion notification bits of packets, which a class replaces together with the socket's default.
    ecn: u8,
}

impl TrafficClasses {
    /// Specifies whether the transport reacts to congestion marks, so that packets must allow them.
    pub(crate) fn set_ecn_capable(&mut self, is_capable: bool) {
        self.ecn = if is_capable { ECT_0 } else { 0 };
    }

    /// Sets the traffic class of a queue pair, without its lower two bits; returns whether it is not the default.
    pub(crate) fn set(&mut self, qpn: Qpn, class: u8) -> bool {
        if class & !ECN == 0 {
            self.queue_pairs.remove(&qpn);
            return false;
        }
        self.queue_pairs.insert(qpn, PackedIpFields::new(class & !ECN | self.ecn, 0, 0));
        true
    }

    /// Removes a queue pair that is no longer connected.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.queue_pairs.remove(&qpn);
    }

    /// Returns the IP header fields of packets that `qpn` sends.
    #[inline]
    pub(crate) fn of(&self, qpn: Qpn) -> PackedIpFields {
        self.queue_pairs.get(&qpn).copied().unwrap_or_default()
    }
}

/// The bits of a traffic class for congestion notification.
const ECN: u8 = 0b11;

/// Value of these bits in packets that may be marked: ECT(0).
const ECT_0: u8 = 0b10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_leaves_the_congestion_bits_to_the_transport() {
        let (one, other) = (Qpn::new(1), Qpn::new(2));
        let mut classes = TrafficClasses::default();
        assert!(classes.set(one, 0x6b));
        assert_eq!((classes.of(one), classes.of(other)), (PackedIpFields::new(0x68, 0, 0), PackedIpFields::NONE));
        classes.set_ecn_capable(true);
        assert!(classes.set(other, 0xff));
        assert_eq!(classes.of(other), PackedIpFields::new(0xfe, 64, 0));
        assert!(!classes.set(one, 3), "only congestion bits");
        classes.forget(other);
        assert_eq!((classes.of(one), classes.of(other)), (PackedIpFields::NONE, PackedIpFields::NONE));
    }
}
