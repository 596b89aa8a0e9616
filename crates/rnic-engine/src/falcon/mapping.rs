//! The upper layer of a connection: what its transactions mean. RDMA, or NVMe.
//!
//! The driver (`drive.rs`) asks it at each of its turns; nothing else knows which one it is.

use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, Leaving, Reception};
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction::Transactions;
use rnic_policy::FalconErrors;
use rnic_wire::falcon::{Body, Packet, PacketType};

use super::Lack;
use super::nic::Nic;
use super::request::{Handed, Requests, untag};
use super::serve::Serving;
use super::upper::{Untouched, Upper};
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::Dma;
use crate::nvme::NvmeEnd;
use crate::timer::Deadline;
use crate::verbs::Verbs;

/// An upper layer's part of a connection.
#[derive(Debug)]
pub(super) enum Mapping {
    Rdma(Rdma),
    Nvme(Box<NvmeEnd>),
}

/// The state of RDMA's upper layer on a connection.
#[derive(Debug)]
pub(super) struct Rdma {
    pub(super) requests: Requests,
    pub(super) serving: Serving,
}

impl Mapping {
    /// Hands `arrival` to the connection, and what that asks and tells to the upper layer.
    #[inline]
    pub(super) fn receive<D: Dma>(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        resources: &mut Resources,
        arrival: &Arrival<'_>,
        dma: &mut D,
    ) -> Reception {
        let now = core.now;
        match self {
            Self::Rdma(Rdma { requests, serving }) => {
                requests.hear(now);
                let body = &arrival.packet.body;
                let at_hand = body.rsn().filter(|_| body.packet_type() == PacketType::PushData);
                let mut upper = Upper { verbs, core, requests, serving, dma, at_hand };
                connection.receive(now, arrival, resources, &mut upper)
            }
            Self::Nvme(end) => {
                let reception = connection.receive(now, arrival, resources, &mut end.upper(verbs, core, dma));
                end.settle(verbs, core);
                reception
            }
        }
    }

    /// Writes the connection's next packet into `packet`, if one may leave now.
    #[inline(always)]
    pub(super) fn transmit(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        resources: &mut Resources,
        packet: &mut Packet,
    ) -> Option<Leaving> {
        let (now, dma) = (core.now, &mut Untouched);
        match self {
            Self::Rdma(Rdma { requests, serving }) => {
                let mut upper = Upper { verbs, core, requests, serving, dma, at_hand: None };
                connection.transmit_into(now, packet, resources, &mut upper)
            }
            Self::Nvme(end) => {
                let mut upper = end.upper(verbs, core, dma);
                connection.transmit_into(now, packet, resources, &mut upper)
            }
        }
    }

    /// Does what is due: at the connection, and above.
    #[inline]
    pub(super) fn expire(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        resources: &mut Resources,
    ) {
        let (now, dma) = (core.now, &mut Untouched);
        match self {
            Self::Rdma(Rdma { requests, serving }) => {
                let mut upper = Upper { verbs, core, requests, serving, dma, at_hand: None };
                connection.expire(now, resources, &mut upper);
            }
            Self::Nvme(end) => connection.expire(now, resources, &mut end.upper(verbs, core, dma)),
        }
    }

    /// Does what is due above the connection, behind [`Self::expire`].
    #[inline]
    pub(super) fn watch(&mut self, connection: &Connection, verbs: &mut Verbs, core: &mut Core) {
        match self {
            Self::Rdma(rdma) => rdma.requests.watch_target(verbs, core, connection),
            Self::Nvme(end) => end.expire(verbs, core),
        }
    }

    /// Returns when [`Self::watch`] has something to do, at the earliest, beside what [`Self::far_deadline`] says.
    #[inline]
    pub(super) fn deadline(&self) -> Deadline {
        match self {
            Self::Rdma(rdma) => rdma.requests.watch,
            Self::Nvme(_) => Deadline::NEVER,
        }
    }

    /// Returns the same where it is far away, and nothing most often: a command of NVMe may take half a minute.
    #[inline]
    pub(super) fn far_deadline(&self) -> Deadline {
        match self {
            Self::Rdma(_) => Deadline::NEVER,
            Self::Nvme(end) => end.deadline(),
        }
    }

    /// Hands requests to the transaction layer, as long as it takes them; and answers, as far as [`Self::telling`] does
    /// not speak of them.
    #[inline]
    pub(super) fn hand_in(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut Nic,
    ) -> Handed {
        match self {
            Self::Rdma(rdma) => rdma.requests.hand_in(verbs, core, nic, connection),
            Self::Nvme(end) => hand_in_nvme(end, connection, verbs, core, nic),
        }
    }

    /// Returns whether there is something to hand in.
    #[inline]
    pub(super) fn has_to_hand_in(&self, verbs: &Verbs, connection: &Connection) -> bool {
        match self {
            Self::Rdma(rdma) => {
                verbs.send.queue.has_unsent() && !connection.transactions().is_full() || rdma.serving.has_to_tell()
            }
            Self::Nvme(end) => end.has_to_hand_in(verbs),
        }
    }

    /// Returns RDMA's part where the peer is to be told something by it.
    #[inline]
    pub(super) fn telling(&mut self) -> Option<&mut Serving> {
        match self {
            Self::Rdma(rdma) if rdma.serving.has_to_tell() => Some(&mut rdma.serving),
            Self::Rdma(_) | Self::Nvme(_) => None,
        }
    }

    /// Collects the payload of a packet that leaves, with the transaction's tag where that is its own; false when the
    /// memory is not there any more.
    #[inline(always)]
    pub(super) fn gather(&mut self, verbs: &Verbs, core: &mut Core, packet: &Packet, tag: Option<u64>) -> bool {
        let len = packet.payload_len;
        match self {
            Self::Rdma(rdma) => match (&packet.body, tag) {
                // The program may have its memory back.
                (Body::PushData { .. } | Body::PullRequest { .. }, _) if !verbs.head.state.sends() => false,
                _ if len == 0 => true,
                (_, Some(tag)) => {
                    let (counter, index) = untag(tag);
                    verbs.send.gather(&verbs.head, core, counter, index * verbs.head.mtu(), len)
                }
                (Body::PullData { rsn, .. }, None) => rdma.serving.gather_answer(verbs, core, *rsn, len),
                _ => true,
            },
            Self::Nvme(end) => len == 0 || end.gather(verbs, core, &packet.body, tag, len),
        }
    }

    /// Returns whether the queue pair fails when the memory of an answer is gone.
    pub(super) fn fails_without_memory(&self) -> bool {
        match self {
            Self::Rdma(rdma) => rdma.serving.errors() == FalconErrors::Verbs,
            Self::Nvme(_) => false,
        }
    }

    /// Returns how the oldest entry of the send queue will end, if it is known that it will fail.
    pub(super) fn known_failure(&self, verbs: &Verbs, connection: &Connection) -> Option<WcStatus> {
        match self {
            Self::Rdma(_) => Requests::known_failure(&verbs.send, connection),
            Self::Nvme(_) => None,
        }
    }

    /// Returns how many packets of NVMe from the peer made no sense.
    pub(super) fn nvme_errors(&self) -> u64 {
        match self {
            Self::Rdma(_) => 0,
            Self::Nvme(end) => end.peer_errors(),
        }
    }

    /// Returns NVMe's part, where NVMe is the upper layer.
    pub(super) fn nvme(&mut self) -> Option<&mut NvmeEnd> {
        match self {
            Self::Rdma(_) => None,
            Self::Nvme(end) => Some(end),
        }
    }
}

#[inline(never)]
fn hand_in_nvme(
    end: &mut NvmeEnd,
    connection: &mut Connection,
    verbs: &mut Verbs,
    core: &mut Core,
    nic: &mut Nic,
) -> Handed {
    // Nothing gives room back meanwhile.
    let held = |transactions: &Transactions| (transactions.stats().submitted, transactions.usage().data.packets);
    let before = held(connection.transactions());
    let blocked = end.hand_in(verbs, core, &mut nic.resources, connection);
    let transactions = connection.transactions();
    let after = held(transactions);
    let (requests, answers) = (after.0 > before.0, after.1 > before.1);
    let lack = if blocked.answer {
        let is_over = transactions.answers_exceed_share(&nic.resources);
        Some(if is_over { Lack::Share } else { Lack::Answer })
    } else if blocked.request {
        let is_over = transactions.requests_exceed_share(&nic.resources);
        Some(if is_over { Lack::Share } else { Lack::Request })
    } else {
        None
    };
    Handed { requests, answers, lack }
}
