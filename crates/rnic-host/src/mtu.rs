//! Packet sizes on a path.
//!
//! The *path MTU* is the maximum size of an IP packet; the *wire MTU* of a connection is the maximum payload of a
//! packet, which between two OpenRNIC NICs may be any multiple of four. Other stacks support only the MTUs of
//! InfiniBand: powers of two from 256 to 4096. An Ethernet path of 1500 bytes carries 1424 bytes of payload to an
//! OpenRNIC NIC and 1024 to others.
//!
//! Loopback carries packets of 64 KB, but the maximum wire MTU is 8192: 64 KiB Writes over UDP with a wire MTU of
//! 4096, 8192, 16384, 32768 and 61440 bytes achieved 33, 36, 36, 34 and 34 Gbit/s (segmentation offload makes long
//! trains of short packets), and through shared memory 77, 92, 77, 82 and 87 (with short packets, the reader can
//! start earlier). The benchmark is `benches/wire.rs`.

use rnic_base::limits::MTU_MIN;
use rnic_wire::falcon::psp;
use rnic_wire::{DATA_HEADERS_MAX, ICRC_LEN, IpVersion, net};

/// Returns the largest wire MTU for a path that carries IP packets of `path_mtu_bytes`, at most `limit`; `None` when
/// the path MTU is too small.
pub(crate) fn wire_mtu(path_mtu_bytes: u32, ip: IpVersion, limit: u32) -> Option<u32> {
    wire_mtu_beside(OVERHEAD_BYTES, path_mtu_bytes, ip, limit)
}

/// Returns the same for Falcon packets, whose headers are longer.
pub(crate) fn falcon_wire_mtu(path_mtu_bytes: u32, ip: IpVersion, limit: u32) -> Option<u32> {
    wire_mtu_beside(FALCON_OVERHEAD_BYTES, path_mtu_bytes, ip, limit)
}

fn wire_mtu_beside(overhead_bytes: u32, path_mtu_bytes: u32, ip: IpVersion, limit: u32) -> Option<u32> {
    let payload = path_mtu_bytes.checked_sub(ip.header_len() + net::UDP_LEN + overhead_bytes)?;
    let mtu = payload.min(limit) & !3;
    (mtu >= MTU_MIN).then_some(mtu)
}

/// Returns the largest MTU of InfiniBand that is not above `mtu`: 256 to 4096.
pub(crate) fn ib_mtu(mtu: u32) -> u32 {
    [4_096, 2_048, 1_024, 512].into_iter().find(|size| *size <= mtu).unwrap_or(MTU_MIN)
}

/// Returns the length of the longest datagram of a connection with a wire MTU of `mtu` bytes, over all transports,
/// because peers may use several.
pub(crate) const fn datagram_bytes(mtu: u32) -> u32 {
    mtu + if OVERHEAD_BYTES > FALCON_OVERHEAD_BYTES { OVERHEAD_BYTES } else { FALCON_OVERHEAD_BYTES }
}

/// Returns the same for the RoCE family, the only one whose packets go through shared memory.
pub(crate) const fn roce_datagram_bytes(mtu: u32) -> u32 {
    mtu + OVERHEAD_BYTES
}

/// Maximum length of the headers and the ICRC in bytes. Payload whose length is a multiple of four needs no padding.
const OVERHEAD_BYTES: u32 = (DATA_HEADERS_MAX + ICRC_LEN) as u32;

/// PSP's header with a cookie and PSP's check value, and 64 bytes for the headers of Falcon and RDMA, whose maximum
/// is that of the last packet of a Write with immediate.
const FALCON_OVERHEAD_BYTES: u32 = (psp::LEN_MAX + psp::ICV_LEN) as u32 + 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_paths() {
        let of = |path, ip| wire_mtu(path, ip, 8_192);
        assert_eq!(of(1_500, IpVersion::V4), Some(1_424));
        assert_eq!(of(1_500, IpVersion::V6), Some(1_404));
        assert_eq!(of(9_000, IpVersion::V4), Some(8_192));
        assert_eq!(of(65_536, IpVersion::V4), Some(8_192));
        assert_eq!(wire_mtu(65_536, IpVersion::V4, 4_096), Some(4_096));
        // An IPv4 host may have an MTU of only 576, an IPv6 host of only 1280.
        assert_eq!(of(576, IpVersion::V4), Some(500));
        assert_eq!(of(1_280, IpVersion::V6), Some(1_184));
    }

    /// The receive buffer is a power of two: with some MTUs, the window is reduced only by the longer headers of
    /// Falcon.
    #[test]
    fn receive_buffers_are_counted_in_the_longest_datagrams_of_any_transport() {
        assert_eq!(datagram_bytes(4_096), 4_096 + 104);
        let window = |datagram| crate::window::receive_window(1 << 20, datagram);
        let mtu = 1_604;
        assert!(window(datagram_bytes(mtu)) < window(roce_datagram_bytes(mtu)));
    }

    #[test]
    fn a_path_mtu_below_the_minimum_is_refused() {
        let least = 20 + 8 + OVERHEAD_BYTES + 256;
        assert_eq!(wire_mtu(least, IpVersion::V4, 4_096), Some(256));
        assert_eq!(wire_mtu(least - 1, IpVersion::V4, 4_096), None);
        assert_eq!(wire_mtu(0, IpVersion::V4, 4_096), None);
    }
}
