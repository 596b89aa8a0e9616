//! State that a context's lock protects: the NIC, and the library's tables of its objects.

use std::collections::HashMap;

use rnic_base::Duration;
use rnic_engine::{AsyncEvent, CqId, PdId, PeerId, SendRequest, SrqId};
use rnic_host::{Nic, Notice, Offers, PackedIpFields, Region, Settings};
use rnic_wire::Qpn;
use slab::Slab;

use crate::abi::*;
use crate::errno::{Errno, Result};
use crate::event::EventQueue;
use crate::file::File;
use crate::notice;
use crate::object::{ChannelObject, CqObject, Element, Ptr, QpObject, SrqObject};

/// An asynchronous event that has not yet been fetched with `ibv_get_async_event`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingEvent {
    pub(crate) element: Element,
    pub(crate) event_type: u32,
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) id: PdId,
    /// Number of address handles in the domain; the engine counts all other objects.
    pub(crate) address_handles: u32,
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) region: Region,
    /// Handle of its protection domain.
    pub(crate) pd: u32,
    /// Parameters of the registration: address of the first byte, and the access flags.
    pub(crate) start: usize,
    pub(crate) access: u32,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) id: CqId,
    pub(crate) object: Ptr<CqObject>,
    pub(crate) channel: Option<Ptr<ChannelObject>>,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) id: SrqId,
    pub(crate) object: Ptr<SrqObject>,
    /// Maximum number of scatter/gather entries of a receive. Constant after creation.
    pub(crate) max_sge: u32,
    /// Handle of the XRC domain; `None` for a basic shared receive queue.
    pub(crate) xrcd: Option<u32>,
}

/// A domain of extended reliable connections (XRC domain).
#[derive(Debug)]
pub(crate) struct Xrcd {
    /// The file through which processes share the domain; `None` when it is not shared.
    pub(crate) file: Option<File>,
    /// Number of times the domain has been opened.
    pub(crate) opened: u32,
    /// Number of queue pairs and shared receive queues in the domain.
    pub(crate) users: u32,
}

/// An address handle: the destination of datagrams sent with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ah {
    pub(crate) peer: PeerId,
    pub(crate) pd: u32,
    /// Traffic class, hop limit and flow label of the datagrams' IP headers.
    pub(crate) ip_fields: PackedIpFields,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) object: Ptr<QpObject>,
    pub(crate) pd: PdId,
    /// Capabilities granted when the queue pair was created.
    pub(crate) cap: ibv_qp_cap,
    pub(crate) signal_all: bool,
    pub(crate) qp_type: u32,
    /// Attributes set by `ibv_modify_qp` since then, as `ibv_query_qp` returns them.
    pub(crate) attr: ibv_qp_attr,
    /// Burst set by `ibv_modify_qp_rate_limit`, in bytes; zero for the default.
    pub(crate) burst_bytes: u32,
    /// The peer that the queue pair is connected to.
    pub(crate) peer: Option<PeerId>,
    /// `Some` for the target queue pair of an extended reliable connection, which has no protection domain and no
    /// completion queue of its own.
    pub(crate) target: Option<TargetParts>,
    /// Buffer for inline data until it is sent: one slot for each entry of the send queue.
    pub(crate) inline: Option<Region>,
    /// Number of sends posted so far; entry `n` of the queue uses the slot `n` modulo the queue size.
    pub(crate) posted: u64,
}

/// The protection domain and completion queue that the engine requires for every queue pair and that an XRC target
/// queue pair does not have itself, and its XRC domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetParts {
    pub(crate) pd: PdId,
    pub(crate) cq: CqId,
    pub(crate) xrcd: u32,
}

/// All state that the lock protects.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) nic: Nic,
    /// Transports of reliable connections.
    pub(crate) offers: Offers,
    pub(crate) pds: Slab<Pd>,
    pub(crate) mrs: Slab<Mr>,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) srqs: Slab<Srq>,
    pub(crate) xrcds: Slab<Xrcd>,
    pub(crate) ahs: Slab<Ah>,
    pub(crate) qps: Slab<Qp>,
    /// Peers of destroyed address handles that are retained while datagrams to them may still be in a send queue.
    retired: Vec<PeerId>,
    /// Number of consecutive calls that posted sends, since the last call of another type.
    posts_in_a_row: u32,
    /// `true` if an address without a GID denotes this host.
    pub(crate) lids_are_loopback: bool,
    /// `true` if notices are not printed.
    is_quiet: bool,
    /// `true` if no posted requests are held back.
    doorbell_rung: bool,
    /// Queue pair handles by queue pair number. Never iterated.
    pub(crate) by_qpn: HashMap<Qpn, u32>,
    pub(crate) by_cq: HashMap<CqId, u32>,
}

impl Core {
    pub(crate) fn new(nic: Nic, offers: Offers, settings: &Settings) -> Self {
        Self {
            nic,
            offers,
            pds: Slab::new(),
            mrs: Slab::new(),
            cqs: Slab::new(),
            srqs: Slab::new(),
            xrcds: Slab::new(),
            ahs: Slab::new(),
            qps: Slab::new(),
            retired: Vec::new(),
            posts_in_a_row: 0,
            lids_are_loopback: settings.lids_are_loopback,
            is_quiet: settings.quiet,
            doorbell_rung: true,
            by_qpn: HashMap::new(),
            by_cq: HashMap::new(),
        }
    }

    /// Returns the retransmission timeout, the unit in which the waiting time for a peer that does not respond is
    /// counted.
    pub(crate) fn timeout(&self) -> Duration {
        self.offers.silence_unit().unwrap_or(TIMEOUT_UNKNOWN)
    }

    /// Selects for queue pair `qpn` the transport with number `index` in the list of offered transports.
    ///
    /// # Errors
    /// When there is no such queue pair, it is connected already, or it is not a reliable connection.
    pub(crate) fn select_transport(&mut self, qpn: Qpn, index: usize) -> Result<()> {
        if index == 0 {
            return Ok(());
        }
        let transport = self.offers.get(index).ok_or(Errno::INVALID)?;
        self.nic.verbs().set_transport(qpn, transport)?;
        Ok(())
    }

    /// Queues a request for queue pair `handle`; for an extended reliable connection, `srqn` is the number of the
    /// remote shared receive queue.
    ///
    /// # Errors
    /// When there is no such queue pair, it cannot send, or the engine rejects the request.
    #[inline]
    pub(crate) fn post_send(&mut self, handle: u32, request: &SendRequest<'_>, srqn: u32) -> Result<()> {
        let qp = self.qps.get_mut(handle as usize).ok_or(Errno::INVALID)?;
        match qp.qp_type {
            IBV_QPT_XRC_SEND => self.nic.verbs().post_send_shared(qp.qpn, request, srqn)?,
            IBV_QPT_XRC_RECV => return Err(Errno::INVALID),
            _ => self.nic.verbs().post_send(qp.qpn, request)?,
        }
        qp.posted += 1;
        Ok(())
    }

    /// Rings the doorbell once for all posted requests, so that they are sent. In a long series of calls that only
    /// post requests, the doorbell is rung only once for several calls, because several packets sent together cost
    /// the kernel little more than one packet. The remaining requests are sent with the next call of another type, or
    /// the next time the progress thread polls.
    #[inline]
    pub(crate) fn ring_doorbell(&mut self) {
        self.posts_in_a_row += 1;
        if self.posts_in_a_row <= IMMEDIATE_POSTS || self.posts_in_a_row.is_multiple_of(POSTS_PER_DOORBELL) {
            self.nic.doorbell();
            self.doorbell_rung = true;
        } else {
            self.doorbell_rung = false;
        }
    }

    /// Releases a peer to which datagrams were sent, as soon as no datagram to it remains in a send queue.
    pub(crate) fn retire(&mut self, peer: PeerId) {
        self.retired.push(peer);
        self.flush_posts();
        let is_idle = |qp: &Qp| self.nic.send_queue_space(qp.qpn) == Some(qp.cap.max_send_wr);
        if self.qps.iter().map(|(_, qp)| qp).filter(|qp| qp.qp_type == IBV_QPT_UD).all(is_idle) {
            for peer in std::mem::take(&mut self.retired) {
                self.nic.release_peer(peer);
            }
        }
    }

    /// Sends due packets and processes received ones; returns `true` if there was any activity.
    pub(crate) fn progress(&mut self) -> bool {
        self.doorbell_rung = true;
        self.nic.progress()
    }

    /// Returns `true` if posted requests are held back to be sent together with later ones.
    pub(crate) fn has_unsent_posts(&self) -> bool {
        !self.doorbell_rung
    }

    /// Sends all held-back requests, because the program has stopped posting.
    #[inline]
    pub(crate) fn flush_posts(&mut self) {
        self.posts_in_a_row = 0;
        if !self.doorbell_rung {
            self.nic.doorbell();
            self.doorbell_rung = true;
        }
    }

    /// Prints a notice to standard error, unless the user wants none.
    #[cold]
    pub(crate) fn notify_user(&self, notice: &Notice) {
        if !self.is_quiet {
            notice::print(notice);
        }
    }

    /// Moves the NIC's events to their event queues and channels, and prints its notices to standard error.
    #[inline]
    pub(crate) fn deliver(&mut self, events: &EventQueue<PendingEvent>) {
        while let Some(notice) = self.nic.poll_notice() {
            self.notify_user(&notice);
        }
        while let Some(event) = self.nic.verbs().poll_event() {
            self.deliver_one(event, events);
        }
    }

    fn deliver_one(&mut self, event: AsyncEvent, events: &EventQueue<PendingEvent>) {
        let (element, event_type) = match event {
            AsyncEvent::CqNotify(id) => return self.notify(id),
            AsyncEvent::CqOverrun(id) => (self.element_of_cq(id), IBV_EVENT_CQ_ERR),
            AsyncEvent::SrqLimitReached(id) => (self.element_of_srq(id), IBV_EVENT_SRQ_LIMIT_REACHED),
            AsyncEvent::CommunicationEstablished(qpn) => (self.element_of_qp(qpn), IBV_EVENT_COMM_EST),
            AsyncEvent::QpFatal(qpn) => (self.element_of_qp(qpn), IBV_EVENT_QP_FATAL),
            AsyncEvent::QpAccessError(qpn) => (self.element_of_qp(qpn), IBV_EVENT_QP_ACCESS_ERR),
            AsyncEvent::QpRequestError(qpn) => (self.element_of_qp(qpn), IBV_EVENT_QP_REQ_ERR),
            AsyncEvent::LastWqeReached(qpn) => (self.element_of_qp(qpn), IBV_EVENT_QP_LAST_WQE_REACHED),
            AsyncEvent::SendQueueDrained(qpn) => {
                let wants_event = |qp: &Qp| qp.attr.en_sqd_async_notify != 0;
                let element = self.qp_of(qpn).filter(|qp| wants_event(qp)).map(|qp| Element::Qp(qp.object));
                (element, IBV_EVENT_SQ_DRAINED)
            }
        };
        // The object may have been destroyed already.
        if let Some(element) = element {
            events.push(PendingEvent { element, event_type });
        }
    }

    /// Delivers a completion event for a completion queue that requested notification.
    fn notify(&self, id: CqId) {
        let cq = self.by_cq.get(&id).and_then(|handle| self.cqs.get(*handle as usize));
        if let Some(Cq { object, channel: Some(channel), .. }) = cq {
            // SAFETY: a channel outlives its completion queues, because `ibv_destroy_comp_channel` refuses otherwise.
            let channel = unsafe { &*channel.0 };
            channel.events.push(*object);
        }
    }

    fn qp_of(&self, qpn: Qpn) -> Option<&Qp> {
        self.qps.get(*self.by_qpn.get(&qpn)? as usize)
    }

    fn element_of_qp(&self, qpn: Qpn) -> Option<Element> {
        self.qp_of(qpn).map(|qp| Element::Qp(qp.object))
    }

    fn element_of_cq(&self, id: CqId) -> Option<Element> {
        self.cqs.get(*self.by_cq.get(&id)? as usize).map(|cq| Element::Cq(cq.object))
    }

    fn element_of_srq(&self, id: SrqId) -> Option<Element> {
        self.srqs.iter().map(|(_, srq)| srq).find(|srq| srq.id == id).map(|srq| Element::Srq(srq.object))
    }
}

/// Number of consecutive posting calls whose requests are sent immediately: programs that wait for responses do not
/// make more calls in a row.
const IMMEDIATE_POSTS: u32 = 4;

/// Number of calls whose requests are sent together in a longer series; larger batches save no further time.
const POSTS_PER_DOORBELL: u32 = 16;

/// Result of [`Core::timeout`] when the transport has no retransmission timeout.
const TIMEOUT_UNKNOWN: Duration = Duration::from_ms(1);
