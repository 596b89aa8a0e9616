//! The upper layer of a connection, which gives its transactions their meaning: RDMA or NVMe.
//!
//! The connection processing (`drive.rs`) calls it at each step; no other module depends on which one it is.

use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, Leaving, Reception};
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction::Transactions;
use rnic_policy::FalconErrors;
use rnic_wire::falcon::{Body, Packet, PacketType};

use super::BlockedOn;
use super::nic::FalconNic;
use super::request::{Requests, Submitted, untag};
use super::serve::Serving;
use super::upper::{NoPayload, Upper};
use crate::completion::WcStatus;
use crate::core::Core;
use crate::dma::Dma;
use crate::nvme::NvmeEnd;
use crate::timer::Deadline;
use crate::verbs::Verbs;

/// The upper layer's part of a connection.
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
    /// Passes `arrival` to the connection, and the resulting requests and notifications to the upper layer.
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
                requests.note_peer_alive(now);
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

    /// Writes the connection's next packet into `packet`, if one may be sent now.
    #[inline(always)]
    pub(super) fn transmit(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        resources: &mut Resources,
        packet: &mut Packet,
    ) -> Option<Leaving> {
        let (now, dma) = (core.now, &mut NoPayload);
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

    /// Processes the timeouts that are due, in the connection and in the upper layer.
    #[inline]
    pub(super) fn expire(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        resources: &mut Resources,
    ) {
        let (now, dma) = (core.now, &mut NoPayload);
        match self {
            Self::Rdma(Rdma { requests, serving }) => {
                let mut upper = Upper { verbs, core, requests, serving, dma, at_hand: None };
                connection.expire(now, resources, &mut upper);
            }
            Self::Nvme(end) => connection.expire(now, resources, &mut end.upper(verbs, core, dma)),
        }
    }

    /// Processes the timeouts of the upper layer that are due, after [`Self::expire`].
    #[inline]
    pub(super) fn watch(&mut self, connection: &Connection, verbs: &mut Verbs, core: &mut Core) {
        match self {
            Self::Rdma(rdma) => rdma.requests.watch_target(verbs, core, connection),
            Self::Nvme(end) => end.expire(verbs, core),
        }
    }

    /// Returns the earliest time at which [`Self::watch`] has something to do, apart from [`Self::far_deadline`].
    #[inline]
    pub(super) fn deadline(&self) -> Deadline {
        match self {
            Self::Rdma(rdma) => rdma.requests.watch,
            Self::Nvme(_) => Deadline::NEVER,
        }
    }

    /// Returns the same for far deadlines, most often none: an NVMe command may take half a minute.
    #[inline]
    pub(super) fn far_deadline(&self) -> Deadline {
        match self {
            Self::Rdma(_) => Deadline::NEVER,
            Self::Nvme(end) => end.deadline(),
        }
    }

    /// Submits requests to the transaction layer, as long as it accepts them; and responses, unless
    /// [`Self::pending_replies`] covers them.
    #[inline]
    pub(super) fn submit_pending(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
    ) -> Submitted {
        match self {
            Self::Rdma(rdma) => rdma.requests.submit_pending(verbs, core, nic, connection),
            Self::Nvme(end) => submit_pending_nvme(end, connection, verbs, core, nic),
        }
    }

    /// Returns whether there is something to submit.
    #[inline]
    pub(super) fn has_to_hand_in(&self, verbs: &Verbs, connection: &Connection) -> bool {
        match self {
            Self::Rdma(rdma) => {
                verbs.send.queue.has_unsent() && !connection.transactions().is_full() || rdma.serving.has_replies()
            }
            Self::Nvme(end) => end.has_to_hand_in(verbs),
        }
    }

    /// Returns RDMA's part when it has results or responses to pass to the peer.
    #[inline]
    pub(super) fn pending_replies(&mut self) -> Option<&mut Serving> {
        match self {
            Self::Rdma(rdma) if rdma.serving.has_replies() => Some(&mut rdma.serving),
            Self::Rdma(_) | Self::Nvme(_) => None,
        }
    }

    /// Collects the payload of a packet to be sent, where `tag` is the transaction's tag if it is a local one; returns
    /// false when the memory is no longer valid.
    #[inline(always)]
    pub(super) fn gather(&mut self, verbs: &Verbs, core: &mut Core, packet: &Packet, tag: Option<u64>) -> bool {
        let len = packet.payload_len;
        match self {
            Self::Rdma(rdma) => match (&packet.body, tag) {
                // The program may have taken its memory back.
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

    /// Returns whether the queue pair fails when the memory of a response is no longer valid.
    pub(super) fn fails_without_memory(&self) -> bool {
        match self {
            Self::Rdma(rdma) => rdma.serving.errors() == FalconErrors::Verbs,
            Self::Nvme(_) => false,
        }
    }

    /// Returns the status with which the oldest entry of the send queue will complete, if it is known that it will
    /// fail.
    pub(super) fn known_failure(&self, verbs: &Verbs, connection: &Connection) -> Option<WcStatus> {
        match self {
            Self::Rdma(_) => Requests::known_failure(&verbs.send, connection),
            Self::Nvme(_) => None,
        }
    }

    /// Returns the number of invalid NVMe packets received from the peer.
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
fn submit_pending_nvme(
    end: &mut NvmeEnd,
    connection: &mut Connection,
    verbs: &mut Verbs,
    core: &mut Core,
    nic: &mut FalconNic,
) -> Submitted {
    // No resources are freed in between.
    let held = |transactions: &Transactions| (transactions.stats().submitted, transactions.usage().data.packets);
    let before = held(connection.transactions());
    let blocked = end.submit_pending(verbs, core, &mut nic.resources, connection);
    let transactions = connection.transactions();
    let after = held(transactions);
    let (requests, answers) = (after.0 > before.0, after.1 > before.1);
    let lack = if blocked.answer {
        let is_over = transactions.answers_exceed_share(&nic.resources);
        Some(if is_over { BlockedOn::Share } else { BlockedOn::Answer })
    } else if blocked.request {
        let is_over = transactions.requests_exceed_share(&nic.resources);
        Some(if is_over { BlockedOn::Share } else { BlockedOn::Request })
    } else {
        None
    };
    Submitted { requests, answers, lack }
}
