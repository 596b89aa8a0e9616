//! Field types shared by several messages.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

/// An unsigned field of `WIDTH` bits, at most 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bits<const WIDTH: u32>(u32);

impl<const WIDTH: u32> Bits<WIDTH> {
    /// Largest value that the field can hold.
    pub const MAX: Self = Self(u32::MAX >> (32 - WIDTH));

    /// Returns `value`, clamped to the largest value of the type: for counts, timeouts and limits.
    #[must_use]
    pub const fn clamped(value: u32) -> Self {
        if value > Self::MAX.0 { Self::MAX } else { Self(value) }
    }

    /// Returns the low `WIDTH` bits of `value`: for parsing.
    pub(super) const fn low(value: u32) -> Self {
        Self(value & Self::MAX.0)
    }

    /// Returns the value of the field.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the value in the low bits of a byte.
    ///
    /// # Panics
    /// Never: it is only for fields of at most eight bits, which is checked at compile time.
    pub(super) const fn byte(self) -> u8 {
        const { assert!(WIDTH <= 8) };
        self.0 as u8
    }
}

impl<const WIDTH: u32> fmt::Debug for Bits<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Vendor of the adapter that sent a message, and the options its adapters negotiate: enhanced connection establishment
/// (ECE). All zeros when the adapter sends no such information.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Vendor {
    /// Identifier of the vendor.
    pub id: Bits<24>,
    /// Options in the vendor's own encoding; carried in the attribute modifier of the MAD.
    pub options: u32,
}

impl Vendor {
    pub(super) const fn new(id: u32, options: u32) -> Self {
        Self { id: Bits::low(id), options }
    }
}

/// Address of a port. RoCEv2 uses its IP address; IPv4 addresses are mapped (`::ffff:a.b.c.d`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the IP address that this GID represents.
    #[must_use]
    pub const fn to_ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_octets(self.0)).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => Self(ip.octets()),
        }
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_ip())
    }
}

/// Identifier of a service offered by a passive side: the address that REQ messages request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// Returns the service of port `port` with TCP semantics, on which RDMA connection managers listen (annex A11:
    /// prefix 0x0000000001, protocol 6, port).
    #[must_use]
    pub const fn for_port(port: u16) -> Self {
        Self(PORT_PREFIX | port as u64)
    }

    /// Returns the service of `port` in a port space: 0x0106 for TCP, 0x0111 for UDP, 0x013f for InfiniBand.
    #[must_use]
    pub const fn in_port_space(space: u16, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// Returns the port when the service was constructed as in [`ServiceId::for_port`].
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        if self.0 & !0xffff == PORT_PREFIX { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The path MTU as a 4-bit code: 1 for 256 bytes to 5 for 4096. Code 6 is an OpenRNIC extension for 8192 bytes; other
/// stacks do not know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathMtu(Bits<4>);

impl PathMtu {
    /// Returns the largest MTU that is a power of two, has a code, and does not exceed `bytes`.
    ///
    /// `None` below 256 bytes.
    #[must_use]
    pub const fn at_most(bytes: u32) -> Option<Self> {
        match bytes.checked_ilog2() {
            None | Some(0..=CODE_BASE) => None,
            Some(log) if log > LOG_MAX => Some(Self(Bits::clamped(CODE_MAX))),
            Some(log) => Some(Self(Bits::clamped(log - CODE_BASE))),
        }
    }

    /// Returns the path MTU of `code`, which may be unknown.
    #[must_use]
    pub const fn from_code(code: Bits<4>) -> Self {
        Self(code)
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(self) -> Bits<4> {
        self.0
    }

    /// Returns the payload bytes of a full packet; `None` for an unknown code.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        match self.0.get() {
            code @ 1..=CODE_MAX => Some(1 << (code + CODE_BASE)),
            _ => None,
        }
    }
}

impl fmt::Debug for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{bytes}"),
            None => write!(f, "code {}", self.0.get()),
        }
    }
}

/// Private data exchanged by the two applications, padded with zeros to the length of the message's field.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<const LEN: usize>(pub [u8; LEN]);

impl<const LEN: usize> PrivateData<LEN> {
    /// Returns `bytes`, padded to the length of the field; `None` when there are more than `LEN` bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; LEN];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }
}

impl<const LEN: usize> Default for PrivateData<LEN> {
    fn default() -> Self {
        Self([0; LEN])
    }
}

impl<const LEN: usize> fmt::Debug for PrivateData<LEN> {
    /// Formats the data as hexadecimal, without the trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.0[..end].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        if end < LEN { write!(f, "[{} zeros]", LEN - end) } else { Ok(()) }
    }
}

const PORT_PREFIX: u64 = 0x0000_0000_0106_0000;
/// Difference between the binary logarithm of the MTU in bytes and the MTU's code.
const CODE_BASE: u32 = 7;
const CODE_MAX: u32 = 6;
const LOG_MAX: u32 = CODE_BASE + CODE_MAX;

const _: () = assert!(1 << LOG_MAX <= rnic_base::limits::MTU_MAX && 1 << (CODE_BASE + 1) == rnic_base::limits::MTU_MIN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_clamp_and_truncate() {
        assert_eq!(Bits::<5>::clamped(40).get(), 31);
        assert_eq!(Bits::<5>::low(40).get(), 8);
        assert_eq!(Bits::<32>::MAX.get(), u32::MAX);
    }

    #[test]
    fn path_mtu_codes() {
        let codes: Vec<Option<u32>> = (0..16).map(|code| PathMtu::from_code(Bits::clamped(code)).bytes()).collect();
        let known = [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), Some(8192)];
        assert_eq!(codes[..7], known);
        assert!(codes[7..].iter().all(Option::is_none));
        let at_most = |bytes| PathMtu::at_most(bytes).and_then(PathMtu::bytes);
        assert_eq!([at_most(255), at_most(256), at_most(1408)], [None, Some(256), Some(1024)]);
        assert_eq!([at_most(0), at_most(8_900), at_most(u32::MAX)], [None, Some(8192), Some(8192)]);
    }

    #[test]
    fn gids_are_ip_addresses() {
        for text in ["10.1.2.3", "fd00::7"] {
            let ip: IpAddr = text.parse().expect("an address");
            assert_eq!(Gid::from(ip).to_ip(), ip);
        }
        let expected = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        assert_eq!(Gid::from(IpAddr::from([10, 1, 2, 3])).0, expected);
    }

    #[test]
    fn services_are_ports() {
        assert_eq!(ServiceId::for_port(4660), ServiceId(0x0000_0000_0106_1234));
        assert_eq!(ServiceId(0x0000_0000_0106_1234).port(), Some(4660));
        assert_eq!(ServiceId(0x0000_0000_0111_1234).port(), None, "UDP's port space");
        assert_eq!(ServiceId::in_port_space(0x0106, 4660), ServiceId::for_port(4660));
        assert_eq!(ServiceId::in_port_space(0x0111, 4660), ServiceId(0x0000_0000_0111_1234));
    }

    #[test]
    fn private_data_is_padded_not_cut() {
        assert_eq!(PrivateData::<4>::new(&[1, 2]), Some(PrivateData([1, 2, 0, 0])));
        assert_eq!(PrivateData::<4>::new(&[1; 5]), None);
        assert_eq!(format!("{:?}", PrivateData([1, 0, 0xff, 0, 0])), "0100ff[2 zeros]");
    }
}
