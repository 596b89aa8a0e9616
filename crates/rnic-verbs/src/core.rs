//! What a context's lock protects: the NIC, and what the library knows of its objects.

use std::collections::HashMap;
use std::sync::Arc;

use rnic_base::Duration;
use rnic_engine::{AsyncEvent, CqId, PdId, PeerId, SendRequest, SrqId, Transport};
use rnic_host::{Marking, Nic, Region, Settings};
use rnic_wire::Qpn;

use crate::abi::*;
use crate::errno::{Errno, Result};
use crate::event::EventQueue;
use crate::file::File;
use crate::notice;
use crate::object::{ChannelObject, CqObject, Element, Ptr, QpObject, SrqObject};
use crate::slab::Slab;

/// An asynchronous event that waits for `ibv_get_async_event`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) element: Element,
    pub(crate) event_type: u32,
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) id: PdId,
    /// Address handles in it; the engine counts everything else.
    pub(crate) address_handles: u32,
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) region: Region,
    /// Handle of its protection domain.
    pub(crate) pd: u32,
    /// What it was registered with: where its first byte is, and the flags.
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
    /// Scatter/gather entries of a receive, at most. It never changes.
    pub(crate) max_sge: u32,
    /// Of one of extended reliable connections: the handle of its domain.
    pub(crate) xrcd: Option<u32>,
}

/// A domain of extended reliable connections.
#[derive(Debug)]
pub(crate) struct Xrcd {
    /// The file that it is shared by; `None` when it is not shared.
    pub(crate) file: Option<File>,
    /// How often it is open.
    pub(crate) opened: u32,
    /// Queue pairs and shared receive queues in it.
    pub(crate) users: u32,
}

/// An address handle: whom datagrams with it go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ah {
    pub(crate) peer: PeerId,
    pub(crate) pd: u32,
    /// Fields of their IP headers.
    pub(crate) marking: Marking,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) object: Ptr<QpObject>,
    pub(crate) pd: PdId,
    /// What it was made with, as granted.
    pub(crate) cap: ibv_qp_cap,
    pub(crate) signal_all: bool,
    pub(crate) qp_type: u32,
    /// What it has been told since, as `ibv_query_qp` answers.
    pub(crate) attr: ibv_qp_attr,
    /// Whom it is connected to.
    pub(crate) peer: Option<PeerId>,
    /// Of the target of an extended reliable connection, which has no domain and no completion queue of its own.
    pub(crate) target: Option<TargetParts>,
    /// Where inline data waits: one place for each entry of the send queue.
    pub(crate) inline: Option<Region>,
    /// Sends posted so far; entry `n` of the queue uses the place `n` modulo its size.
    pub(crate) posted: u64,
}

/// What the engine wants of every queue pair and a target has not; and its XRC domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetParts {
    pub(crate) pd: PdId,
    pub(crate) cq: CqId,
    pub(crate) xrcd: u32,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) nic: Nic,
    /// How reliable connections deliver.
    pub(crate) transport: Arc<Transport>,
    /// How those do whose other end lacks that, best first.
    pub(crate) fallbacks: Vec<Arc<Transport>>,
    /// What patience is counted in: [`rnic_policy::Profile::patience_timeout`].
    pub(crate) timeout: Duration,
    pub(crate) pds: Slab<Pd>,
    pub(crate) mrs: Slab<Mr>,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) srqs: Slab<Srq>,
    pub(crate) xrcds: Slab<Xrcd>,
    pub(crate) ahs: Slab<Ah>,
    pub(crate) qps: Slab<Qp>,
    /// Peers of address handles that are gone, while datagrams may still wait.
    retired: Vec<PeerId>,
    /// Calls that posted sends since one of another kind.
    posts_in_a_row: u32,
    /// An address without a GID is this host.
    pub(crate) lids_are_loopback: bool,
    /// Notices are not said.
    is_quiet: bool,
    /// All that was posted has been offered to the network.
    has_left: bool,
    /// Handles by number. Never iterated.
    pub(crate) by_qpn: HashMap<Qpn, u32>,
    pub(crate) by_cq: HashMap<CqId, u32>,
}

impl Core {
    pub(crate) fn new(nic: Nic, transport: Transport, fallbacks: Vec<Transport>, settings: &Settings) -> Self {
        Self {
            nic,
            timeout: transport.profile().patience_timeout().unwrap_or(TIMEOUT_UNKNOWN),
            transport: Arc::new(transport),
            fallbacks: fallbacks.into_iter().map(Arc::new).collect(),
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
            has_left: true,
            by_qpn: HashMap::new(),
            by_cq: HashMap::new(),
        }
    }

    /// Queue pair `qpn` shall speak the `index`-th transport of those that are offered.
    ///
    /// # Errors
    /// When it is not there, is connected already, or is no reliable connection.
    pub(crate) fn speak(&mut self, qpn: Qpn, index: usize) -> Result<()> {
        let Some(index) = index.checked_sub(1) else { return Ok(()) };
        let transport = self.fallbacks.get(index).ok_or(Errno::INVALID)?;
        self.nic.verbs().set_transport(qpn, transport)?;
        Ok(())
    }

    /// Queues a request for queue pair `handle`; of an extended reliable connection, `srqn` names the shared receive
    /// queue at the other end.
    ///
    /// # Errors
    /// When there is no such queue pair, it sends nothing, or the engine refuses the request.
    #[inline]
    pub(crate) fn post_send(&mut self, handle: u32, request: &SendRequest<'_>, srqn: u32) -> Result<()> {
        let qp = self.qps.get_mut(handle).ok_or(Errno::INVALID)?;
        match qp.qp_type {
            IBV_QPT_XRC_SEND => self.nic.verbs().post_send_shared(qp.qpn, request, srqn)?,
            IBV_QPT_XRC_RECV => return Err(Errno::INVALID),
            _ => self.nic.verbs().post_send(qp.qpn, request)?,
        }
        qp.posted += 1;
        Ok(())
    }

    /// Makes what was posted leave: once for all of it. In a long row of calls that only post, only now and then: what
    /// leaves together costs the kernel little more than one packet. The rest leaves with the next call of another
    /// kind, or the progress thread's next look.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.posts_in_a_row += 1;
        if self.posts_in_a_row <= POSTS_AT_ONCE || self.posts_in_a_row.is_multiple_of(POSTS_TOGETHER) {
            self.nic.doorbell();
            self.has_left = true;
        } else {
            self.has_left = false;
        }
    }

    /// Gives a peer back that datagrams went to, as soon as none waits that still goes there.
    pub(crate) fn retire(&mut self, peer: PeerId) {
        self.retired.push(peer);
        self.end_of_posts();
        let is_idle = |qp: &Qp| self.nic.send_queue_room(qp.qpn) == Some(qp.cap.max_send_wr);
        if self.qps.iter().filter(|qp| qp.qp_type == IBV_QPT_UD).all(is_idle) {
            for peer in std::mem::take(&mut self.retired) {
                self.nic.release_peer(peer);
            }
        }
    }

    /// Sends what is due, takes in what has come; answers whether anything moved.
    pub(crate) fn progress(&mut self) -> bool {
        self.has_left = true;
        self.nic.progress()
    }

    /// Whether something that was posted waits for more to leave with it.
    pub(crate) fn has_unsent_posts(&self) -> bool {
        !self.has_left
    }

    /// The program has stopped posting: nothing waits for more.
    #[inline]
    pub(crate) fn end_of_posts(&mut self) {
        self.posts_in_a_row = 0;
        if !self.has_left {
            self.nic.doorbell();
            self.has_left = true;
        }
    }

    /// Hands the NIC's events to whoever waits for them, and its notices to the people who run the program.
    #[inline]
    pub(crate) fn deliver(&mut self, events: &EventQueue<Waiting>) {
        while let Some(notice) = self.nic.poll_notice() {
            if !self.is_quiet {
                notice::tell(&notice);
            }
        }
        while let Some(event) = self.nic.verbs().poll_event() {
            self.deliver_one(event, events);
        }
    }

    fn deliver_one(&mut self, event: AsyncEvent, events: &EventQueue<Waiting>) {
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
                let wants = |qp: &Qp| qp.attr.en_sqd_async_notify != 0;
                let element = self.qp_of(qpn).filter(|qp| wants(qp)).map(|qp| Element::Qp(qp.object));
                (element, IBV_EVENT_SQ_DRAINED)
            }
        };
        // Its object may be gone already.
        if let Some(element) = element {
            events.push(Waiting { element, event_type });
        }
    }

    /// A completion has come in that somebody wants to hear of.
    fn notify(&self, id: CqId) {
        let cq = self.by_cq.get(&id).and_then(|handle| self.cqs.get(*handle));
        if let Some(Cq { object, channel: Some(channel), .. }) = cq {
            // SAFETY: a channel outlives its completion queues: `ibv_destroy_comp_channel` refuses otherwise.
            let channel = unsafe { &*channel.0 };
            channel.events.push(*object);
        }
    }

    fn qp_of(&self, qpn: Qpn) -> Option<&Qp> {
        self.qps.get(*self.by_qpn.get(&qpn)?)
    }

    fn element_of_qp(&self, qpn: Qpn) -> Option<Element> {
        self.qp_of(qpn).map(|qp| Element::Qp(qp.object))
    }

    fn element_of_cq(&self, id: CqId) -> Option<Element> {
        self.cqs.get(*self.by_cq.get(&id)?).map(|cq| Element::Cq(cq.object))
    }

    fn element_of_srq(&self, id: SrqId) -> Option<Element> {
        self.srqs.iter().find(|srq| srq.id == id).map(|srq| Element::Srq(srq.object))
    }
}

/// Calls in a row whose requests leave at once: programs that wait for answers make no more.
const POSTS_AT_ONCE: u32 = 4;

/// Of longer rows, so many calls make one train: beyond, trains save nothing more.
const POSTS_TOGETHER: u32 = 16;

/// What patience is counted in when the transport has no timeout of its own.
const TIMEOUT_UNKNOWN: Duration = Duration::from_ms(1);
