//! The upper layer of a connection, which gives its transactions their meaning: RDMA or NVMe.
//!
//! The connection processing (`drive.rs`) calls it at each step; no other module depends on which upper layer it is.

use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, DepartureInfo, Reception};
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
use crate::scheduling::Scheduling;
use crate::timer::Deadline;
use crate::verbs::Verbs;

/// The state of the upper layer on a connection.
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
                let current_rsn = body.rsn().filter(|_| body.packet_type() == PacketType::PushData);
                let mut upper = Upper { verbs, core, requests, serving, dma, current_rsn };
                connection.receive(now, arrival, resources, &mut upper)
            }
            Self::Nvme(end) => {
                let reception = connection.receive(now, arrival, resources, &mut end.upper(verbs, core, dma));
                end.deliver_results(verbs, core);
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
    ) -> Option<DepartureInfo> {
        let (now, dma) = (core.now, &mut NoPayload);
        match self {
            Self::Rdma(Rdma { requests, serving }) => {
                let mut upper = Upper { verbs, core, requests, serving, dma, current_rsn: None };
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
                let mut upper = Upper { verbs, core, requests, serving, dma, current_rsn: None };
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

    /// Returns the earliest time at which [`Self::watch`] has a timeout to process, apart from
    /// [`Self::distant_deadline`].
    #[inline]
    pub(super) fn deadline(&self) -> Deadline {
        match self {
            Self::Rdma(rdma) => rdma.requests.watch,
            Self::Nvme(_) => Deadline::NEVER,
        }
    }

    /// Returns the earliest far deadline; usually there is none. NVMe commands need it, because one may take half a
    /// minute.
    #[inline]
    pub(super) fn distant_deadline(&self) -> Deadline {
        match self {
            Self::Rdma(_) => Deadline::NEVER,
            Self::Nvme(end) => end.deadline(),
        }
    }

    /// Submits requests to the transaction layer as long as it accepts them, and also responses, except for those
    /// that [`Self::pending_replies`] returns.
    #[inline]
    pub(super) fn submit_pending(
        &mut self,
        connection: &mut Connection,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        scheduling: Option<&mut Scheduling>,
    ) -> Submitted {
        match self {
            Self::Rdma(rdma) => rdma.requests.submit_pending(verbs, core, nic, connection, scheduling),
            Self::Nvme(end) => submit_pending_nvme(end, connection, verbs, core, nic, scheduling),
        }
    }

    /// Returns `true` if there are requests or responses to submit.
    #[inline]
    pub(super) fn has_to_submit(&self, verbs: &Verbs, connection: &Connection) -> bool {
        match self {
            Self::Rdma(rdma) => {
                verbs.send.queue.has_unsent() && !connection.transactions().is_full() || rdma.serving.has_replies()
            }
            Self::Nvme(end) => end.has_to_submit(verbs),
        }
    }

    /// Returns the state of RDMA if it has results or responses to pass to the peer.
    #[inline]
    pub(super) fn pending_replies(&mut self) -> Option<&mut Serving> {
        match self {
            Self::Rdma(rdma) if rdma.serving.has_replies() => Some(&mut rdma.serving),
            Self::Rdma(_) | Self::Nvme(_) => None,
        }
    }

    /// Collects the payload of a packet to be sent, where `tag` is the transaction's tag if it is a local one;
    /// returns `false` when the memory is no longer valid.
    #[inline(always)]
    pub(super) fn gather(&mut self, verbs: &Verbs, core: &mut Core, packet: &Packet, tag: Option<u64>) -> bool {
        let len = packet.payload_len;
        match self {
            Self::Rdma(rdma) => match (&packet.body, tag) {
                // The queue pair no longer sends, so the program may already use the memory for other purposes.
                (Body::PushData { .. } | Body::PullRequest { .. }, _) if !verbs.head.state.sends() => false,
                _ if len == 0 => true,
                (_, Some(tag)) => {
                    let (counter, index) = untag(tag);
                    verbs.send.gather(&verbs.head, core, counter, index * verbs.head.mtu(), len)
                }
                (Body::PullData { rsn, .. }, None) => rdma.serving.gather_response(verbs, core, *rsn, len),
                _ => true,
            },
            Self::Nvme(end) => len == 0 || end.gather(verbs, core, &packet.body, tag, len),
        }
    }

    /// Returns the send queue entry of the transaction with `tag`, which is a request of this queue pair.
    pub(super) fn entry_of(&self, tag: Option<u64>) -> Option<u32> {
        match self {
            Self::Rdma(_) => tag.map(|tag| untag(tag).0),
            Self::Nvme(_) => None,
        }
    }

    /// Returns `true` if the queue pair fails when the memory of a response is no longer valid.
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

    /// Returns the state of NVMe if NVMe is the upper layer.
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
    scheduling: Option<&mut Scheduling>,
) -> Submitted {
    // No resources are freed between the two calls, so an increase means that resources were used.
    let used = |transactions: &Transactions| (transactions.stats().submitted, transactions.usage().data.packets);
    let before = used(connection.transactions());
    let blocked = end.submit_pending(verbs, core, &mut nic.resources, connection, scheduling);
    let transactions = connection.transactions();
    let after = used(transactions);
    let (requests, responses) = (after.0 > before.0, after.1 > before.1);
    let blocked_on = if blocked.answer {
        let exceeds_share = transactions.responses_exceed_share(&nic.resources);
        Some(if exceeds_share { BlockedOn::Share } else { BlockedOn::Response })
    } else if blocked.request {
        let exceeds_share = transactions.requests_exceed_share(&nic.resources);
        Some(if exceeds_share { BlockedOn::Share } else { BlockedOn::Request })
    } else {
        None
    };
    Submitted { requests, responses, blocked_on }
}
