//! A host with Falcon, a cache of connection state and a pipeline: every packet, received or sent, waits until the
//! state of its connection is on the chip (F-38); what leaves, also for its queue pair's turn and for the pipeline's.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2, "Connection State Caching", and figure 21: state that is not on the chip
//! comes from a larger memory of the NIC's own, over enough bandwidth that misses all the time are no cliff. Here that
//! memory is what stands behind the bus: its latency, its rate, and so many reads at a time, which is what "enough" is
//! measured by. A plan that makes the bus the host's gets the other curve of the figure. What figure 20b
//! has for one queue pair and for many is taken for two limits on packets a second, of a queue pair and of the NIC:
//! their values are the plan's.
//!
//! Packets whose state is there overtake those whose state is not: a connection's packets stay in order, connections do
//! not wait for each other, but for a place: of what leaves, so many packets ([`AHEAD`]) may wait at once for their
//! state or their turn.
//!
//! Deviations: the second level is the NIC's alone (the paper's is shared with other blocks). Work requests, payload
//! and what arrives cost the pipeline nothing; the RoCE family's model has them. A packet has the time at which the
//! engine made it (T1), so the wait for state, and for a turn, counts as delay of the fabric, as it would in hardware
//! that stamps before its cache.

use std::collections::BTreeMap;

use rnic_base::{Duration, Time};
use rnic_wire::Qpn;

use crate::agenda::NEVER;
use crate::entry::{Entry, Flags};
use crate::host::Host;
use crate::host::turn::Steps;
use crate::network::Network;

/// Packets that wait for the state of their connections.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    arrived: BTreeMap<(Time, u64), Entry>,
    leaving: BTreeMap<(Time, u64), Entry>,
    order: u64,
    /// By queue pair number: when its next packet may leave. Empty where the plan has no such limit.
    turns: Vec<Time>,
}

impl Waiting {
    /// A queue pair is no more: the next one of that number has its turn at once.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        if let Some(turn) = self.turns.get_mut(qpn.get() as usize) {
            *turn = Time::ZERO;
        }
    }

    /// When a packet of `qpn` that could leave at `ready` has its turn, with `cycle` between two.
    fn turn(&mut self, ready: Time, qpn: Qpn, cycle: Duration) -> Time {
        if cycle == Duration::ZERO {
            return ready;
        }
        let index = qpn.get() as usize;
        if self.turns.len() <= index {
            self.turns.resize(index + 1, Time::ZERO);
        }
        let at = self.turns[index].max(ready);
        self.turns[index] = at + cycle;
        at
    }
}

/// Packets that wait to leave, at most: as many of 4 KB as a hundred gigabit link sends in twenty microseconds, as many
/// of 8 bytes as 120 million a second are in half of one.
const AHEAD: usize = 64;

fn first(packets: &BTreeMap<(Time, u64), Entry>) -> Time {
    packets.first_key_value().map_or(NEVER, |((ready, _), _)| *ready)
}

/// A host with Falcon and a modelled NIC.
pub(in crate::host) struct WithFalconAndNic;

impl Steps for WithFalconAndNic {
    #[inline]
    fn due(host: &Host) -> Time {
        host.nic.as_ref().map_or(NEVER, |nic| first(&nic.falcon.arrived))
    }

    #[inline]
    fn act(host: &mut Host, now: Time, network: &mut Network) {
        let waiting = host.nic.as_mut().and_then(|nic| nic.falcon.arrived.pop_first());
        let (_, entry) = waiting.expect("just seen");
        host.arrive_with_state(now, &entry, network);
    }

    #[inline]
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        host.fetch_state_of_arrival(now, entry, network);
    }

    #[inline]
    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        host.offer_falcon_with_state(now, network);
    }
}

impl Host {
    #[inline(never)]
    fn arrive_with_state(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        self.arrive_with_falcon(now, entry, network);
    }

    fn fetch_state_of_arrival(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        // What is damaged has no connection, as bytes and by its mark.
        let packet = entry.has(Flags::FALCON).then(|| self.carriage.unload_falcon(entry, &network.falcon_packets));
        let (Some(nic), Some((packet, _))) = (&mut self.nic, packet.flatten()) else {
            return self.arrive_with_state(now, entry, network);
        };
        let ready = nic.contexts.access(now, Qpn::new(packet.cid.get()), &mut nic.bus);
        nic.falcon.order += 1;
        nic.falcon.arrived.insert((ready, nic.falcon.order), *entry);
    }

    /// Takes from the engine what there is room for, and asks for its state.
    fn fetch_state_of_leaving(&mut self, now: Time, network: &mut Network) {
        while self.nic.as_ref().is_some_and(|nic| nic.falcon.leaving.len() < AHEAD) {
            let Some((entry, from)) = self.next_packet_of_any(now, network) else { break };
            let Some(nic) = &mut self.nic else { break };
            let ready = nic.contexts.access(now, from, &mut nic.bus);
            let ready = nic.falcon.turn(ready, from, nic.plan.qp_cycle);
            nic.falcon.order += 1;
            nic.falcon.leaving.insert((ready, nic.falcon.order), entry);
        }
    }

    /// Sends what can leave, asks for the state of what comes next, and remembers when to look again.
    fn offer_falcon_with_state(&mut self, now: Time, network: &mut Network) {
        if let Some(doorbells) = &mut self.sessions.doorbells {
            doorbells.clear();
        }
        if self.port.is_paused() {
            return;
        }
        self.fetch_state_of_leaving(now, network);
        let Some(nic) = &mut self.nic else { return };
        if first(&nic.falcon.leaving) <= now && self.port.free_at.max(nic.pipeline) <= now {
            let (_, entry) = nic.falcon.leaving.pop_first().expect("just seen");
            nic.pipeline = now + nic.plan.cycle;
            self.port.send(now, entry, network);
            // Its place may be what another waits for.
            self.fetch_state_of_leaving(now, network);
        }
        let Some(nic) = &self.nic else { return };
        let next = first(&nic.falcon.leaving);
        // With nothing to send, whoever posts or arrives looks again.
        self.wake = if next == NEVER { NEVER } else { next.max(self.port.free_at).max(nic.pipeline) };
    }
}
