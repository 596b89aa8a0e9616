//! Translations of addresses and contexts of completion queues: tables in the host's memory that a NIC caches, as it
//! does contexts of queue pairs.
//!
//! Each payload that is read from or written to the host's memory needs the translation of its page, after the context
//! of its queue pair (and, at a requester, after the work request) names its address. Each end of a queue pair has a
//! buffer of its own, `region` bytes long, through which the packets go by their sequence numbers, from its start again
//! when they have reached its end; payload does not cross from one page into another here. A packet that can complete a
//! request needs the context of the completion queue: an acknowledgement and the last response of a Read or an atomic
//! operation at the requester, the last packet of a Send or a Write with immediate data at the responder. Whether it
//! does complete one is known only when it has been processed, so an acknowledgement that completes nothing counts too.
//!
//! The reads follow one another: context, translation, context of the completion queue. (A NIC could read the last one
//! beside the second: the queue pair's context names the completion queue.) Source: FaSR (2025) section V-A, in which
//! 1.2 MB are for translations; Falcon (SIGCOMM'25) figure 21. Sizes are ours: translations and contexts of completion
//! queues of 64 bytes, a cache line. Work requests have no translation.

use rnic_base::{RandomStream, Time};
use rnic_wire::{Headers, Packet, Qpn};

use super::bus::Bus;
use super::cache::Cache;
use crate::plan::TablesPlan;

/// The two caches of a NIC.
#[derive(Debug)]
pub(super) struct Tables {
    plan: TablesPlan,
    pub(super) translations: Cache,
    pub(super) cqs: Cache,
}

impl Tables {
    /// Creates empty caches; the streams supply the random choice of entries to evict.
    pub(super) fn new(plan: &TablesPlan, [translations, cqs]: [RandomStream; 2]) -> Self {
        Self {
            plan: *plan,
            translations: Cache::new(plan.translation_entries, ENTRY_BYTES, translations).clean(),
            cqs: Cache::new(plan.cq_entries, ENTRY_BYTES, cqs),
        }
    }

    /// Requests the translation for a payload of `packet` from or to the memory of `qpn`, once its address is known at
    /// `begins`; returns the time at which it is available.
    pub(super) fn translate(&mut self, now: Time, begins: Time, packet: &Packet, qpn: Qpn, bus: &mut Bus) -> Time {
        if packet.payload_len == 0 {
            return begins;
        }
        let page = self.plan.page_of(qpn, packet.psn.value());
        self.translations.access_after(now, begins, page, bus)
    }

    /// Requests what a received packet needs after the context of its queue pair, which is available at `begins`.
    pub(super) fn receive(&mut self, now: Time, begins: Time, packet: &Packet, bus: &mut Bus) -> Time {
        let ready = self.translate(now, begins, packet, packet.dest_qpn, bus);
        if !may_complete(packet) {
            return ready;
        }
        self.cqs.access_after(now, ready, self.plan.cq_of(packet.dest_qpn), bus)
    }

    /// Removes the entries of a queue pair that was destroyed; a completion queue of several queue pairs remains.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        self.plan.pages(qpn).for_each(|page| self.translations.forget(page));
        if self.plan.cqs.is_none() {
            self.cqs.forget(qpn.get());
        }
    }
}

/// Returns whether the packet can complete a request at its receiver.
fn may_complete(packet: &Packet) -> bool {
    match &packet.headers {
        Headers::Send { position, .. } | Headers::SharedSend { position, .. } => position.ends(),
        Headers::Write { immediate, .. } => immediate.is_some(),
        Headers::ReadResponse { position, .. } => position.ends(),
        Headers::SharedWrite { .. }
        | Headers::AtomicResponse { .. }
        | Headers::Ack { .. }
        | Headers::LossAck { .. } => true,
        _ => false,
    }
}

/// Size of an entry of either cache.
const ENTRY_BYTES: u64 = 64;
