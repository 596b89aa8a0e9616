//! Traffic class, hop limit and flow label in the IP header of a datagram.
//!
//! A program specifies these fields for each datagram ([`rnic_engine::DatagramAddress::mark`]); they are passed to the
//! socket in control messages, or in front of the packet in shared memory, and are delivered to the receiver in the
//! global routing header (GRH) before the payload. All datagrams that are passed to the kernel in one batch (GSO) have
//! the same fields. All other packets have the kernel's defaults, which need no control message.

use rnic_wire::IpFields;

/// The three fields as one number from 0 to 2^36 - 1; 0 is the default.
///
/// ```text
///   35                16 15                8 7             0
///  |     flow label     | hop limit, XOR 64 | traffic class |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PackedIpFields(u64);

impl PackedIpFields {
    /// Class 0, hop limit 64, label 0.
    pub const NONE: Self = Self(0);

    /// Returns the given fields. A hop limit of 0 selects the default, and a flow label has 20 bits.
    /// IPv4 has no flow labels.
    pub fn new(traffic_class: u8, hop_limit: u8, flow_label: u32) -> Self {
        let hops = if hop_limit == 0 { 0 } else { hop_limit ^ HOP_LIMIT };
        let label = u64::from(flow_label & LABEL_MASK);
        Self(label << 16 | u64::from(hops) << 8 | u64::from(traffic_class))
    }

    /// Returns the fields as a value for [`rnic_engine::DatagramAddress::mark`].
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the fields whose value is `bits`, if that is valid.
    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Option<Self> {
        (bits < 1 << BITS).then_some(Self(bits))
    }

    /// Returns the traffic class: differentiated services and ECN.
    pub fn traffic_class(self) -> u8 {
        self.0 as u8
    }

    /// Returns the hop limit; never 0 for fields from [`Self::new`].
    pub fn hop_limit(self) -> u8 {
        (self.0 >> 8) as u8 ^ HOP_LIMIT
    }

    /// Returns the flow label, which has 20 bits.
    pub fn flow_label(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Returns the fields with the traffic class replaced.
    pub(crate) fn with_traffic_class(self, class: u8) -> Self {
        Self::new(class, self.hop_limit(), self.flow_label())
    }

    /// Returns the fields with the hop limit replaced.
    pub(crate) fn with_hop_limit(self, hops: u8) -> Self {
        Self::new(self.traffic_class(), hops, self.flow_label())
    }

    /// Returns the fields with the flow label replaced by the low 20 bits of `word`.
    pub(crate) fn with_flow_label(self, word: u32) -> Self {
        Self::new(self.traffic_class(), self.hop_limit(), word)
    }

    /// Returns the IP header fields as they are recorded in a capture.
    pub(crate) fn fields(self) -> IpFields {
        IpFields {
            traffic_class: self.traffic_class(),
            hop_limit: self.hop_limit(),
            flow_label: self.flow_label(),
            ..IpFields::default()
        }
    }
}

/// Number of bits of the three fields.
pub(crate) const BITS: u32 = 36;

/// The kernel's default for packets.
const HOP_LIMIT: u8 = 64;

const LABEL_MASK: u32 = (1 << 20) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_ip_fields_are_encoded_as_zero() {
        assert_eq!(PackedIpFields::new(0, 64, 0), PackedIpFields::NONE);
        assert_eq!(PackedIpFields::new(0, 0, 0), PackedIpFields::NONE, "no packet leaves with a hop limit of 0");
        assert_eq!(
            (PackedIpFields::NONE.traffic_class(), PackedIpFields::NONE.hop_limit(), PackedIpFields::NONE.flow_label()),
            (0, 64, 0)
        );
    }

    #[test]
    fn one_integer_encodes_label_hop_limit_and_class() {
        for (class, hops, label) in [(0xb8, 1, 0xf_ffff), (0xff, 255, 0), (1, 64, 0x1_2345), (0, 65, 1)] {
            let ip_fields = PackedIpFields::new(class, hops, label);
            assert_eq!(
                (ip_fields.traffic_class(), ip_fields.hop_limit(), ip_fields.flow_label()),
                (class, hops, label)
            );
            assert_eq!(PackedIpFields::of_bits(ip_fields.bits()), Some(ip_fields));
        }
        assert_eq!(PackedIpFields::new(0, 64, 0x10_0001), PackedIpFields::new(0, 64, 1), "20 bits");
        assert_eq!(PackedIpFields::of_bits(1 << BITS), None);
    }
}
