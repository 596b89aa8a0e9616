//! Notices to the program about changed operating conditions that it did not request: the NIC continues, but in a
//! degraded or different mode.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use rnic_wire::Qpn;

use crate::hello::Differs;

/// A notice to the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Packets to this peer no longer fit the path: from now on they may be fragmented in the network, which is slow. A
    /// new connection would agree on a smaller MTU.
    PathTooNarrow(SocketAddr),
    /// Packets to this peer no longer fit the path, and are lost: those of RoCEv2 over IPv4 are not fragmented.
    PathRefuses(IpAddr),
    /// Packets to this peer fit again.
    PathWideAgain(SocketAddr),
    /// The kernel refuses to segment trains into packets (GSO) on the interface that they use: from now on each packet
    /// is sent by itself.
    SegmentationRefused,
    /// Packets are not sent from port 4791, for this reason: captures will not show them as RoCEv2. Nothing else
    /// changes.
    SourcePortTaken(String),
    /// Packets to other NICs of this machine are sent over UDP, for this reason.
    NoBypass(String),
    /// The other end of a connection uses settings that differ from those of this end.
    PeerDiffers(Differs),
    /// The queue pair at this address cannot be one of an OpenRNIC NIC: it belongs to a real adapter.
    RealRocePeer(IpAddr, Qpn),
    /// The peers are configured to be real RoCEv2 adapters, but this address belongs to an OpenRNIC process.
    PeerIsOurs(IpAddr),
    /// The capture could not be written and has stopped, for this reason.
    CaptureEnded(String),
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PathTooNarrow(peer) => write!(f, "packets to {peer} are larger than the path carries: fragmenting"),
            Self::PathRefuses(peer) => write!(
                f,
                "packets to {peer} are larger than the path carries, and RoCEv2's over IPv4 are not fragmented: they \
                 are lost, unless both ends take a smaller MTU"
            ),
            Self::PathWideAgain(peer) => write!(f, "packets to {peer} fit the path again"),
            Self::SegmentationRefused => write!(f, "segmentation offload is refused: sending packets one by one"),
            Self::SourcePortTaken(reason) => write!(f, "packets do not leave from port 4791: {reason}"),
            Self::NoBypass(reason) => write!(f, "packets within this machine take UDP: {reason}"),
            Self::PeerDiffers(differs) => differs.fmt(f),
            Self::RealRocePeer(peer, qpn) => write!(
                f,
                "queue pair {:#08x} at {peer} is not one of a process like this: if it is an adapter of another make, \
                 or Linux's rdma_rxe, this end needs `--peers roce` (RNIC_PEERS=roce)",
                qpn.get()
            ),
            Self::PeerIsOurs(peer) => write!(
                f,
                "at {peer} is a process like this one, without the `--peers roce` (RNIC_PEERS=roce) of this end: both \
                 ends need it or neither"
            ),
            Self::CaptureEnded(reason) => write!(f, "the capture has ended: {reason}"),
        }
    }
}

/// Notices that the program has not read yet; the oldest are discarded when it reads none.
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
