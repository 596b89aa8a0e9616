//! What a NIC is opened with.

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
    /// Every queue pair's number says which UDP port it lives on, so that any number of NICs share a machine's
    /// addresses and peers need to know addresses only ([`crate::Nic::acquire_host`]). `bind` is ignored then: the NIC
    /// takes a free port, on all addresses of both IP versions, and packets leave from port 4791. Connections are not
    /// made by this NIC's connection manager, unless peers are adapters of other makes.
    pub shared: bool,
    /// With `shared`: peers are adapters of other makes, or Linux's `rdma_rxe`. Packets go to port 4791 and are
    /// received there, which one NIC of a machine can do; the wire MTU is one of InfiniBand's.
    pub real_roce_peers: bool,
    /// With `shared`: NICs of this user on this machine exchange packets through memory that they share.
    pub bypass: bool,
    /// With `real_roce_peers`: packets may be marked where a network is congested, for transports that control their
    /// rate by what a peer says of marks (CNP). Marks of the peer's packets are told to it by such transports in either
    /// case.
    pub marks_congestion: bool,
    /// Own address and UDP port. The port of RoCEv2 is 4791; port 0 lets the kernel choose one, and then peers must
    /// know it.
    pub bind: SocketAddr,
    /// Names this NIC in what is drawn from a seed.
    pub name: String,
    /// What congestion control takes for the rate of the link.
    pub line_rate: BitRate,
    /// Largest wire MTU to offer: payload bytes of a full packet, a multiple of 4.
    pub mtu_max_bytes: u32,
    /// Receive buffer to ask the kernel for. It grants what `net.core.rmem_max` allows; the receive window follows.
    pub receive_buffer_bytes: usize,
    /// Send buffer to ask the kernel for.
    pub send_buffer_bytes: usize,
    /// Let the kernel cut trains into packets, if it can.
    pub segmentation: bool,
    /// Let the kernel hand over trains of packets, if it can.
    pub receive_offload: bool,
    /// With `shared`: packets of Falcon will go to its peers, which have longer headers. Peers agree on nothing, so
    /// the wire MTU must be known to allow for them before there is a queue pair.
    pub carries_falcon: bool,
    /// What Falcon's packets are protected with; `None` leaves them in clear.
    pub protection: Option<Protection>,
    /// A bad network, on what this NIC sends.
    pub impairment: Impairment,
    /// Repeats the keys of memory, the numbers and all else that is drawn at random: for tests, since whoever knows the
    /// seed knows them. `None` draws from the system. What [`Self::protection`] needs is the system's in either case.
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
    /// The defaults, bound to `bind`.
    pub fn at(bind: SocketAddr) -> Self {
        Self { bind, ..Self::default() }
    }

    /// The defaults of a NIC that shares its machine with others; see [`NicConfig::shared`](Self#structfield.shared).
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
