//! The doors for Falcon's packets.
//!
//! A Falcon packet is up to two cache lines, a RoCE packet one. They are two types, and bodies hand each to its own
//! door, so that nothing on the way of the RoCE family becomes larger or takes a branch.
//!
//! What a body does beside calling them:
//!
//! * **time on the wire**: the engine writes [`falcon::Packet::timestamp`] when it hands a packet out; whoever puts it
//!   on the wire later may write the moment at which it leaves. A packet is received at the moment of its last bit;
//! * **paths**: [`FalconTransmit::label`] is what switches shall hash (the IPv6 flow label, or a source port for it),
//!   and the receiver must get the same label back with the packet: its low bits name the flow;
//! * **congestion marks** and **hops**: [`FalconArrival`]; hops count switches, 0 where nobody counts;
//! * **payload**: `Push Data` and `Pull Data` carry `payload_len` bytes from [`Engine::segments`]; what arrives early
//!   on an ordered connection is kept by the body ([`Dma::keep`]);
//! * **waking**: as for all packets, [`Engine::next_timeout`] and [`Engine::tick`].

use rnic_base::{Time, near, near_whole};
use rnic_wire::Qpn;

use super::Engine;
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::falcon::{Lack, tick_nic};
use crate::packet::{FalconArrival, FalconTransmit, Reach};
use crate::qp::{Carrier, Qp};
use crate::stats::FalconStats;
use crate::timer::Deadline;

impl Engine {
    /// Takes a Falcon packet in. Its payload is what `dma` copies from.
    pub fn receive_falcon<D: Dma>(&mut self, now: Time, arrival: &FalconArrival<'_>, dma: &mut D) -> RxOutcome {
        let Self { core, falcon, qps, .. } = self;
        core.now = now;
        core.stats.packets_received += 1;
        let Some(qp) = qps.find_mut(Qpn::new(arrival.packet.cid.get())) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::UnknownQp));
        };
        let Some(nic) = falcon else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::WrongFormat));
        };
        nic.release_ended(dma);
        let Qp { verbs, carrier: Carrier::Falcon(end) } = qp else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::WrongFormat));
        };
        let outcome = end.receive(verbs, core, nic, arrival, dma);
        nic.wake_waiting(&mut core.ready);
        core.watch.count(verbs.head.slot, outcome);
        if !core.overrun.is_empty() {
            self.fail_overrun();
        }
        outcome
    }

    /// The next Falcon packet to send, if there is one that may leave now. Its payload is [`Engine::segments`] until
    /// the next packet is made.
    pub fn transmit_falcon(&mut self, now: Time) -> Option<&FalconTransmit> {
        let Self { core, falcon, qps, .. } = self;
        core.now = now;
        let nic = falcon.as_deref_mut()?;
        while let Some(slot) = core.ready.pop_roomy() {
            if let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = qps.at_mut(slot) {
                end.on_credit(verbs, core);
            }
        }
        let mut made = false;
        while !made && let Some((slot, tag)) = core.ready.pop_falcon() {
            let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = qps.at_mut(slot) else { continue };
            made = end.transmit(verbs, core, nic, Lack::of_tag(tag));
        }
        if !core.overrun.is_empty() {
            self.fail_overrun();
        }
        self.falcon.as_ref().filter(|_| made).map(|nic| &nic.out)
    }

    /// Has the engine itself brought near.
    #[inline]
    pub fn touch(&self) {
        let core = &self.core;
        near(&core.now);
        near(&self.falcon);
        near(&core.mrs);
        near(&core.cqs);
        near(&core.timers);
        near(&core.segments);
        near(&core.stats);
        near(&core.watch);
        near(&core.overrun);
        near_whole(&core.ready);
        near(&core.control);
        self.qps.touch();
    }

    /// Has what all Falcon packets need brought near: for a body with many engines.
    #[inline]
    pub fn touch_falcon(&self) {
        self.qps.touch_pages();
        self.core.timers.touch();
        if let Some(nic) = &self.falcon {
            nic.touch();
        }
    }

    /// The same for what lies apart from that.
    #[inline]
    pub fn touch_falcon_apart(&self) {
        if let Some(nic) = &self.falcon {
            self.core.ready.touch_falcon();
            nic.touch_apart();
        }
    }

    /// And then for the rest.
    #[inline]
    pub fn touch_falcon_rest(&self) {
        if let Some(nic) = &self.falcon {
            nic.touch_rest();
        }
    }

    /// Has the place brought near where queue pair `number` is looked up.
    #[inline]
    pub fn touch_number(&self, number: Qpn) {
        self.qps.touch_number(number);
    }

    /// Where queue pair `number` lies, or any slot that there is not.
    #[inline]
    pub fn slot_of(&self, number: Qpn) -> u32 {
        self.qps.slot_of(number)
    }

    /// Where queue pairs lie that will send or look at the time before `horizon`, as far as that is known: the next
    /// few of those who can send, whose time comes, and whose packet is paced.
    pub fn falcon_slots_until(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let (nics, Core { ready, timers, .. }) = (self.falcon.iter(), &self.core);
        nics.flat_map(move |nic| ready.falcon_senders().chain(timers.few_until(horizon)).chain(nic.few_until(horizon)))
    }

    /// Has what the next packet of the queue pair in `slot` needs brought near, as far as `reach`.
    #[inline]
    pub fn touch_slot(&self, slot: u32, reach: Reach) {
        if reach == Reach::QueuePair {
            return self.qps.touch_at(slot);
        }
        if let (Some(nic), Some(Qp { verbs, carrier: Carrier::Falcon(end) })) = (&self.falcon, self.qps.at(slot)) {
            end.prefetch(verbs, nic, reach);
        }
    }

    /// How it stands with what the Falcon connections of this NIC share; `None` where there never was one.
    pub fn falcon_stats(&self) -> Option<FalconStats> {
        let nic = self.falcon.as_ref()?;
        let mut stats = nic.stats();
        for qp in self.qps.iter() {
            if let Some(delivery) = qp.falcon().and_then(|falcon| falcon.delivery()) {
                stats.add(delivery);
            }
        }
        Some(stats)
    }

    /// Whether [`Engine::transmit_falcon`] may have something to hand out.
    #[inline]
    pub fn has_falcon_packets(&self) -> bool {
        self.falcon.is_some() && self.core.ready.has_falcon()
    }

    /// The time of a Falcon queue pair, or of the NIC, has come; or of nobody, by now.
    #[cold]
    pub(super) fn tick_falcon(&mut self, deadline: Deadline, slot: u32) {
        let Self { core, falcon, qps, .. } = self;
        let Some(nic) = falcon else { return };
        if slot == crate::falcon::SLOT {
            if nic.armed == deadline {
                tick_nic(core, nic, |slot, core, response| {
                    if let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = qps.at_mut(slot) {
                        end.on_decision(verbs, core, response);
                    }
                });
            }
        } else if let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = qps.at_mut(slot)
            && end.take_alarm(deadline)
        {
            end.on_timeout(verbs, core, nic);
        }
        nic.wake_waiting(&mut core.ready);
    }
}

impl Engine {
    /// So many bytes of payload that Falcon's connections have placed are still on their way into the host's memory: a
    /// body whose memory takes them at once never says so. Until they are there they fill receive buffers of the NIC;
    /// peers hear of that in acknowledgements, and what finds no room is refused (Falcon, section 4.2: a bottleneck in
    /// the host).
    pub fn set_falcon_backlog(&mut self, bytes: u64) {
        if let Some(nic) = &mut self.falcon {
            nic.set_backlog(bytes);
        }
    }
}
