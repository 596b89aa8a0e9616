//! Configuration with which a NIC is opened.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rnic_base::BitRate;
use rnic_base::limits::{MTU_MAX, MTU_MIN};
use rnic_wire::net::UDP_PORT;

use crate::error::NicError;
use crate::impair::Impairment;
use crate::protection::Protection;

/// Settings of a NIC.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// True when every queue pair's number encodes the UDP port that it uses, so that any number of NICs share a
    /// machine's addresses and peers need to know addresses only ([`crate::Nic::acquire_host`]). `bind` is ignored
    /// then: the NIC binds a free port, on all addresses of both IP versions, and packets are sent from port 4791.
    /// Connections are not made by this NIC's connection manager, unless peers are adapters of other vendors.
    pub shared: bool,
    /// With `shared`: true when peers are adapters of other vendors, or Linux's `rdma_rxe`. Packets are sent to port
    /// 4791 and received there, which only one NIC of a machine can do; the wire MTU is one of InfiniBand's.
    pub real_roce_peers: bool,
    /// With `shared`: true when NICs of this user on this machine exchange packets through shared memory.
    pub bypass: bool,
    /// With `real_roce_peers`: true when packets may be marked where a network is congested, for transports that
    /// control their rate by a peer's reports of marks (CNP). Such transports report marks of the peer's packets to it
    /// in either case.
    pub marks_congestion: bool,
    /// Local address and UDP port. The port of RoCEv2 is 4791; port 0 lets the kernel choose one, and then peers must
    /// know it.
    pub bind: SocketAddr,
    /// Name of this NIC; part of the seed for generated random values.
    pub name: String,
    /// Link rate that congestion control assumes.
    pub line_rate: BitRate,
    /// Largest wire MTU to offer: payload bytes of a full packet, a multiple of 4.
    pub mtu_max_bytes: u32,
    /// Receive buffer to request from the kernel, in bytes. It grants what `net.core.rmem_max` allows; the receive
    /// window follows.
    pub receive_buffer_bytes: usize,
    /// Send buffer to request from the kernel, in bytes.
    pub send_buffer_bytes: usize,
    /// True when the kernel shall split trains into packets (GSO), if it can.
    pub segmentation: bool,
    /// True when the kernel shall deliver trains of packets (GRO), if it can.
    pub receive_offload: bool,
    /// With `shared`: true when packets of Falcon, which have longer headers, will be sent to its peers. Peers
    /// negotiate nothing, so the wire MTU must allow for the headers before there is a queue pair.
    pub carries_falcon: bool,
    /// Protection of Falcon's packets; `None` sends them in clear.
    pub protection: Option<Protection>,
    /// Simulated network faults, applied to the packets that this NIC sends.
    pub impairment: Impairment,
    /// Seed that makes the keys of memory, the numbers and all other random values reproducible: for tests only,
    /// because a process that knows the seed knows them. `None` uses the system's random numbers. The values that
    /// [`Self::protection`] needs come from the system in either case.
    pub secret: Option<u64>,
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            shared: false,
            real_roce_peers: false,
            marks_congestion: false,
            bypass: true,
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), UDP_PORT),
            name: "nic".to_owned(),
            line_rate: BitRate::gbps(100),
            mtu_max_bytes: 4_096,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            segmentation: true,
            receive_offload: true,
            carries_falcon: false,
            protection: None,
            impairment: Impairment::default(),
            secret: None,
        }
    }
}

impl NicConfig {
    /// Returns the defaults, bound to `bind`.
    pub fn at(bind: SocketAddr) -> Self {
        Self { bind, ..Self::default() }
    }

    /// Returns the defaults of a NIC that shares its machine with others; see
    /// [`NicConfig::shared`](Self#structfield.shared).
    pub fn shared() -> Self {
        Self { shared: true, mtu_max_bytes: MTU_MAX, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), NicError> {
        if self.real_roce_peers && !self.shared {
            let (found, expected) = ("true".to_owned(), "false, without `shared`");
            return Err(NicError::Setting { what: "real_roce_peers", found, expected });
        }
        let mtu = self.mtu_max_bytes;
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) || !mtu.is_multiple_of(4) {
            let expected = "a multiple of 4 between 256 and 8192";
            return Err(NicError::Setting { what: "mtu_max_bytes", found: mtu.to_string(), expected });
        }
        Ok(())
    }
}
