//! Configuration with which a NIC is opened.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rnic_base::BitRate;
use rnic_base::limits::{MTU_MAX, MTU_MIN};
use rnic_engine::{RATE_LIMIT_MIN, SCHEDULE_THREADS_MAX, WEIGHT_MAX};
use rnic_wire::net::UDP_PORT;

use crate::error::NicError;
use crate::impair::Impairment;
use crate::messages::MessagesConfig;
use crate::protection::Protection;
use crate::share::ShareConfig;

/// Settings with which a NIC is opened.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// True when the number of every queue pair encodes the UDP port that it uses, so that any number of NICs can
    /// share a machine's addresses and a peer is identified by its address alone ([`crate::Nic::acquire_host`]).
    /// `bind` is ignored then: the NIC binds a free port, on all addresses of both IP versions, and packets are sent
    /// from port 4791. This NIC's connection manager makes connections only if the peers are adapters of other
    /// vendors.
    pub shared: bool,
    /// With `shared`: true when the peers are adapters of other vendors, or Linux's `rdma_rxe`. Packets are then sent
    /// to port 4791 and received on it, which only one NIC of a machine can do; the wire MTU is one of the MTUs of
    /// InfiniBand.
    pub real_roce_peers: bool,
    /// With `shared`: true when NICs of the same user on the same machine exchange packets through shared memory.
    pub bypass: bool,
    /// With `real_roce_peers`: true when the network may mark packets to signal congestion (ECN), for transports that
    /// control their rate by the marks that a peer reports (CNP). Such transports report marks on the peer's packets
    /// in either case.
    pub marks_congestion: bool,
    /// Local address and UDP port. The port of RoCEv2 is 4791; port 0 lets the kernel choose one, and then peers must
    /// know it.
    pub bind: SocketAddr,
    /// Name of this NIC; part of the seed for generated random values.
    pub name: String,
    /// Link rate that congestion control assumes, and the highest dequeue rate to which queue pairs can be limited.
    pub line_rate: BitRate,
    /// Operator's limit of the dequeue rate of each queue pair; `None` for none.
    pub rate_limit: Option<BitRate>,
    /// Settings for sharing a link with the other NICs of the user; `None` if this NIC does not share a link.
    pub share: Option<ShareConfig>,
    /// Number of threads, at most [`SCHEDULE_THREADS_MAX`], on which schedulers that set rates run; with 0 they run on
    /// the threads that use the NIC.
    pub schedule_threads: usize,
    /// Largest wire MTU to offer: payload bytes of a full packet, a multiple of 4.
    pub mtu_max_bytes: u32,
    /// Size of the receive buffer that is requested from the kernel, in bytes. The kernel grants at most
    /// `net.core.rmem_max`; the receive window is computed from the granted size.
    pub receive_buffer_bytes: usize,
    /// Size of the send buffer to request from the kernel, in bytes.
    pub send_buffer_bytes: usize,
    /// True if the kernel is to split large buffers into packets (GSO), if it supports that.
    pub segmentation: bool,
    /// True if the kernel is to merge received packets into large buffers (GRO), if it supports that.
    pub receive_offload: bool,
    /// With `shared`: true when Falcon packets, which have longer headers, will be sent to the NIC's peers. Such
    /// peers do not negotiate an MTU, so the wire MTU must allow for these headers before any queue pair exists.
    pub carries_falcon: bool,
    /// Keys and format for encrypting Falcon packets; `None` sends them unencrypted.
    pub protection: Option<Protection>,
    /// Settings of messages with the NICs of peers that support them; `None` disables messages. Cannot be combined with
    /// [`Self::protection`], which does not cover messages, or with [`Self::real_roce_peers`].
    pub messages: Option<MessagesConfig>,
    /// True to measure the parts of the latency of each send request, for monitoring.
    pub latencies: bool,
    /// Simulated network faults, applied to the packets that this NIC sends.
    pub impairment: Impairment,
    /// Seed that makes memory keys, queue pair numbers and all other random values reproducible. For tests only,
    /// because a process that knows the seed can predict these values. `None` uses the system's random numbers. The
    /// values that [`Self::protection`] needs come from the system in either case.
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
            rate_limit: None,
            share: None,
            schedule_threads: 0,
            mtu_max_bytes: 4_096,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            segmentation: true,
            receive_offload: true,
            carries_falcon: false,
            protection: None,
            messages: None,
            latencies: false,
            impairment: Impairment::default(),
            secret: None,
        }
    }
}

impl NicConfig {
    /// Returns the default settings for a NIC bound to `bind`.
    pub fn at(bind: SocketAddr) -> Self {
        Self { bind, ..Self::default() }
    }

    /// Returns the default settings for a NIC that shares its machine with others; see
    /// [`NicConfig::shared`](Self#structfield.shared).
    pub fn shared() -> Self {
        Self { shared: true, mtu_max_bytes: MTU_MAX, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), NicError> {
        if self.real_roce_peers && !self.shared {
            let (found, expected) = ("true".to_owned(), "false unless `shared` is set");
            return Err(NicError::Setting { what: "real_roce_peers", found, expected });
        }
        let mtu = self.mtu_max_bytes;
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) || !mtu.is_multiple_of(4) {
            let expected = "a multiple of 4 between 256 and 8192";
            return Err(NicError::Setting { what: "mtu_max_bytes", found: mtu.to_string(), expected });
        }
        if self.messages.is_some() && self.real_roce_peers {
            let expected = "off for RoCEv2 adapters as peers";
            return Err(NicError::Setting { what: "messages between NICs", found: "on".to_owned(), expected });
        }
        if self.schedule_threads > SCHEDULE_THREADS_MAX {
            let (found, expected) = (self.schedule_threads.to_string(), "0, 1 or 2");
            return Err(NicError::Setting { what: "the number of threads of schedulers", found, expected });
        }
        let Some(ShareConfig { weight, link_rate, .. }) = &self.share else { return Ok(()) };
        if !(1..=WEIGHT_MAX).contains(weight) {
            let expected = "a whole number from 1 to 1000";
            return Err(NicError::Setting { what: "the weight", found: weight.to_string(), expected });
        }
        if let Some(rate) = link_rate.filter(|rate| !(RATE_LIMIT_MIN..=self.line_rate).contains(rate)) {
            let expected = "a rate between 1 Mbit/s and the line rate";
            return Err(NicError::Setting { what: "the rate of the shared link", found: rate.to_string(), expected });
        }
        Ok(())
    }
}
