//! Packet sizes on a path.
//!
//! The *path MTU* counts IP packets; the *wire MTU* of a connection counts payload, and may be any multiple of four
//! between two OpenRNIC NICs. Other stacks support the sizes of InfiniBand only: powers of two from 256 to 4096. An
//! Ethernet path of 1500 bytes carries 1424 bytes of payload to an OpenRNIC NIC and 1024 to others.
//!
//! Loopback carries 64 KB, but the maximum is 8192: 64 KiB Writes over UDP at 4096, 8192, 16384, 32768 and 61440 bytes
//! achieved 33, 36, 36, 34 and 34 Gbit/s (segmentation offload makes long trains of short packets), and through shared
//! memory 77, 92, 77, 82 and 87 (short packets let the reader start earlier). `benches/wire.rs` measures it.

use rnic_base::limits::MTU_MIN;
use rnic_wire::falcon::psp;
use rnic_wire::{DATA_HEADERS_MAX, ICRC_LEN, IpVersion, net};

/// Returns the largest wire MTU for a path that carries IP packets of `path_mtu_bytes`, at most `limit`; `None` when
/// the path MTU is too small.
pub(crate) fn wire_mtu(path_mtu_bytes: u32, ip: IpVersion, limit: u32) -> Option<u32> {
    wire_mtu_beside(OVERHEAD_BYTES, path_mtu_bytes, ip, limit)
}

/// Returns the same for Falcon's packets, whose headers are longer.
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

/// Returns the length of the longest datagram of a connection with a wire MTU of `mtu` bytes, for any transport: peers
/// have several.
pub(crate) const fn datagram_bytes(mtu: u32) -> u32 {
    mtu + if OVERHEAD_BYTES > FALCON_OVERHEAD_BYTES { OVERHEAD_BYTES } else { FALCON_OVERHEAD_BYTES }
}

/// Returns the same for the RoCE family, the only one whose packets go through shared memory.
pub(crate) const fn roce_datagram_bytes(mtu: u32) -> u32 {
    mtu + OVERHEAD_BYTES
}

/// Maximum bytes of headers, and ICRC. Payload that is a multiple of four needs no padding.
const OVERHEAD_BYTES: u32 = (DATA_HEADERS_MAX + ICRC_LEN) as u32;

/// PSP's header with a cookie and its check value, and 64 bytes of Falcon's and RDMA's headers: those of the end of a
/// Write with immediate.
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
        // An IPv4 host may have as little as 576, an IPv6 one 1280.
        assert_eq!(of(576, IpVersion::V4), Some(500));
        assert_eq!(of(1_280, IpVersion::V6), Some(1_184));
    }

    /// The kernel counts powers of two: at some sizes Falcon's longer headers are what makes the difference.
    #[test]
    fn receive_buffers_are_counted_in_the_longest_datagrams_of_any_transport() {
        assert_eq!(datagram_bytes(4_096), 4_096 + 104);
        let window = |datagram| crate::window::receive_window(1 << 20, datagram);
        let mtu = 1_604;
        assert!(window(datagram_bytes(mtu)) < window(roce_datagram_bytes(mtu)));
    }

    #[test]
    fn too_narrow_is_none() {
        let least = 20 + 8 + OVERHEAD_BYTES + 256;
        assert_eq!(wire_mtu(least, IpVersion::V4, 4_096), Some(256));
        assert_eq!(wire_mtu(least - 1, IpVersion::V4, 4_096), None);
        assert_eq!(wire_mtu(0, IpVersion::V4, 4_096), None);
    }
}
