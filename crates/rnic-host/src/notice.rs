//! Notices to the program about changed operating conditions: the NIC continues, but in a degraded or different mode.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use rnic_wire::Qpn;

use crate::hello::SettingsDiffer;

/// A notice to the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Packets to this peer are larger than the path MTU: from now on the network may fragment them, which is slow. A
    /// new connection would agree on a smaller MTU.
    PathMtuTooSmall(SocketAddr),
    /// Packets to this peer are larger than the path MTU and are lost, because packets of RoCEv2 over IPv4 are not
    /// fragmented.
    PathMtuExceeded(IpAddr),
    /// Packets to this peer are no longer larger than the path MTU.
    PathMtuRestored(SocketAddr),
    /// The kernel refuses to split buffers into packets (GSO) on the interface to the peer: from now on each packet is
    /// sent separately.
    SegmentationRefused,
    /// A capture has been started whose packets are not sent from port 4791, so that programs do not recognise them as
    /// RoCEv2 by themselves. This has no other effect.
    SourcePortInUse {
        /// Port from which packets are sent instead.
        port: u16,
        /// Reason given by the kernel.
        reason: String,
    },
    /// Packets to other NICs of this machine are sent over UDP, for this reason.
    BypassUnavailable(String),
    /// The other end of a connection uses settings that differ from those of this end.
    PeerSettingsDiffer(SettingsDiffer),
    /// The queue pair at this address cannot belong to an OpenRNIC NIC: it belongs to a real adapter.
    RealRocePeer(IpAddr, Qpn),
    /// The peers are configured to be real RoCEv2 adapters, but this address belongs to an OpenRNIC process.
    PeerIsOpenRnic(IpAddr),
    /// The transport of a connection needs messages between NICs, which the process at this address does not support.
    PeerWithoutMessages(IpAddr),
    /// This NIC could not share a link with the other NICs of the user as configured, for the given reason.
    NotShared(String),
    /// The program names its peer without a GID, as only InfiniBand allows.
    NoGid,
    /// The capture could not be written and has stopped, for this reason.
    CaptureEnded(String),
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PathMtuTooSmall(peer) => write!(
                f,
                "packets to {peer} exceed the MTU of the path and are fragmented, which is slow; reconnect to use a \
                 smaller MTU"
            ),
            Self::PathMtuExceeded(peer) => write!(
                f,
                "packets to {peer} exceed the MTU of the path and are lost, because RoCEv2 over IPv4 is not \
                 fragmented; set a smaller MTU at both ends"
            ),
            Self::NoGid => f.write_str(
                "the program names its peer without a GID, which only InfiniBand allows; give both ends the option \
                 that selects one (ibv_rc_pingpong and the like: -g 0; perftest: -x 0), or, if the peer is on this \
                 host, use `rnic run --lids loopback`",
            ),
            Self::PathMtuRestored(peer) => write!(f, "packets to {peer} fit the MTU of the path again"),
            Self::SegmentationRefused => write!(
                f,
                "the kernel refuses segmentation offload (GSO) on this interface; packets are sent one by one"
            ),
            Self::SourcePortInUse { port, reason } => write!(
                f,
                "packets are sent from UDP port {port} instead of 4791 ({reason}); to read the capture as RoCEv2: \
                 tshark -d udp.port=={port},infiniband -r FILE"
            ),
            Self::BypassUnavailable(reason) => {
                write!(f, "packets to processes on this machine are sent over UDP instead of shared memory: {reason}")
            }
            Self::PeerSettingsDiffer(differs) => differs.fmt(f),
            Self::RealRocePeer(peer, qpn) => write!(
                f,
                "queue pair {:#08x} at {peer} does not belong to an OpenRNIC process; if the peer is a RoCEv2 \
                 adapter or Linux's rdma_rxe, set `--peers roce` (RNIC_PEERS=roce) at this end",
                qpn.get()
            ),
            Self::PeerIsOpenRnic(peer) => write!(
                f,
                "the peer at {peer} is an OpenRNIC process without `--peers roce` (RNIC_PEERS=roce), which this end \
                 uses; set it at both ends or at neither"
            ),
            Self::PeerWithoutMessages(peer) => write!(
                f,
                "the process at {peer} exchanges no messages between NICs, which this transport needs to measure round \
                 trips; set `--messages on` (RNIC_MESSAGES=on) at both ends"
            ),
            Self::NotShared(reason) => {
                write!(f, "the weights and the shared link of this user's processes are not as configured: {reason}")
            }
            Self::CaptureEnded(reason) => write!(f, "the packet capture stopped early and is incomplete: {reason}"),
        }
    }
}

/// Notices that the program has not read yet; if the program reads none, the oldest are discarded.
#[derive(Debug, Default)]
pub(crate) struct Notices(VecDeque<Notice>);

impl Notices {
    #[cold]
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.0.len() == NOTICES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(notice);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Notice> {
        self.0.pop_front()
    }
}

const NOTICES_MAX: usize = 256;
