//! A host with Falcon, a cache of connection state and a pipeline: every packet, received or sent, waits until the
//! state of its connection is on the chip (Falcon mechanism F-38); a sent packet also waits for the scheduling turn of
//! its queue pair and for the pipeline.
//!
//! Source: Falcon (SIGCOMM'25) section 5.2, "Connection State Caching", and figure 21: state that is not on the chip
//! is read from a larger memory of the NIC itself, with so much bandwidth that throughput does not collapse even when
//! every access misses. Here that memory is modelled by the bus: its latency, its rate, and its limit of concurrent
//! reads, which define how much bandwidth is enough. A plan that sets the parameters of the host's bus reproduces the
//! other curve of the figure. The values of figure 20b for one queue pair and for many are modelled as two limits in
//! packets per second, per queue pair and per NIC, set in the plan.
//!
//! Packets whose state is available overtake packets whose state is not. The packets of a connection stay in order,
//! and connections do not wait for each other, except for a queue entry: at most [`WAITING_DEPARTURES_MAX`] sent
//! packets may wait at the same time for their state or their turn.
//!
//! Deviations: the second level belongs to the NIC alone (the paper's is shared with other blocks). Work requests,
//! payload and received packets do not occupy the pipeline; the model for the RoCE family includes them. A packet
//! carries the time at which the engine created it (T1), so the wait for state and for a turn is measured as fabric
//! delay, as it would in hardware that writes timestamps before its cache.

use std::collections::BTreeMap;

use rnic_base::{Duration, Time};
use rnic_wire::Qpn;

use crate::calendar::NEVER;
use crate::entry::{Entry, Flags};
use crate::host::Host;
use crate::host::event_loop::HostModel;
use crate::network::Network;

/// Packets that wait for the state of their connections.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    arrived: BTreeMap<(Time, u64), Entry>,
    departures: BTreeMap<(Time, u64), Entry>,
    order: u64,
    /// Earliest time at which the next packet of a queue pair may be sent, by queue pair number. Empty when the plan
    /// has no such limit.
    next_turns: Vec<Time>,
}

impl Waiting {
    /// Removes the state of a queue pair that was destroyed, so that the next one with its number may send immediately.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        if let Some(turn) = self.next_turns.get_mut(qpn.get() as usize) {
            *turn = Time::ZERO;
        }
    }

    /// Returns the time at which a packet of `qpn` that is ready at `ready` may be sent, with `cycle` between two
    /// packets.
    fn turn(&mut self, ready: Time, qpn: Qpn, cycle: Duration) -> Time {
        if cycle == Duration::ZERO {
            return ready;
        }
        let index = qpn.get() as usize;
        if self.next_turns.len() <= index {
            self.next_turns.resize(index + 1, Time::ZERO);
        }
        let at = self.next_turns[index].max(ready);
        self.next_turns[index] = at + cycle;
        at
    }
}

/// Maximum number of packets that wait to be sent: with 4 KB each, the packets that a 100 Gbit/s link sends in twenty
/// microseconds; with 8 bytes each, the packets of half a microsecond at 120 million packets per second.
const WAITING_DEPARTURES_MAX: usize = 64;

fn first_ready_time(packets: &BTreeMap<(Time, u64), Entry>) -> Time {
    packets.first_key_value().map_or(NEVER, |((ready, _), _)| *ready)
}

/// A host with Falcon and a modelled NIC.
pub(in crate::host) struct WithFalconAndNic;

impl HostModel for WithFalconAndNic {
    #[inline]
    fn due(host: &Host) -> Time {
        host.nic.as_ref().map_or(NEVER, |nic| first_ready_time(&nic.falcon.arrived))
    }

    #[inline]
    fn step(host: &mut Host, now: Time, network: &mut Network) {
        let waiting = host.nic.as_mut().and_then(|nic| nic.falcon.arrived.pop_first());
        let (_, entry) = waiting.expect("a packet is waiting");
        host.receive_with_context(now, &entry, network);
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
    fn receive_with_context(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        self.arrive_with_falcon::<true>(now, entry, network);
    }

    fn fetch_state_of_arrival(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        // A damaged packet has no usable connection number, whether it is encoded to bytes or only marked.
        let packet = entry.has(Flags::FALCON).then(|| self.codec.decode_falcon(entry, &network.falcon_packets));
        let (Some(nic), Some((packet, _))) = (&mut self.nic, packet.flatten()) else {
            return self.receive_with_context(now, entry, network);
        };
        let ready = nic.contexts.access(now, packet.cid.get(), &mut nic.bus);
        nic.falcon.order += 1;
        nic.falcon.arrived.insert((ready, nic.falcon.order), *entry);
    }

    /// Polls the engine for as many packets as fit into the queue, and requests their state.
    fn fetch_state_of_departures(&mut self, now: Time, network: &mut Network) {
        while self.nic.as_ref().is_some_and(|nic| nic.falcon.departures.len() < WAITING_DEPARTURES_MAX) {
            let Some((entry, from)) = self.next_packet_of_any_family(now, network) else { break };
            let Some(nic) = &mut self.nic else { break };
            let ready = nic.contexts.access(now, from.get(), &mut nic.bus);
            let ready = nic.falcon.turn(ready, from, nic.plan.qp_cycle);
            nic.falcon.order += 1;
            nic.falcon.departures.insert((ready, nic.falcon.order), entry);
        }
    }

    /// Sends a packet that is ready, requests the state of the following packets, and records when to poll again.
    fn offer_falcon_with_state(&mut self, now: Time, network: &mut Network) {
        if let Some(doorbells) = &mut self.sessions.doorbells {
            doorbells.clear();
        }
        if self.port.is_paused() {
            return;
        }
        self.fetch_state_of_departures(now, network);
        let Some(nic) = &mut self.nic else { return };
        if first_ready_time(&nic.falcon.departures) <= now && self.port.free_at.max(nic.pipeline_free_at) <= now {
            let (_, entry) = nic.falcon.departures.pop_first().expect("a packet is waiting");
            nic.pipeline_free_at = now + nic.plan.cycle;
            self.port.send(now, entry, network);
            // Another packet may be waiting for the queue entry that was just released.
            self.fetch_state_of_departures(now, network);
        }
        let Some(nic) = &self.nic else { return };
        let next = first_ready_time(&nic.falcon.departures);
        // When there is no packet to send, the next posted request or received packet causes the next poll.
        self.wake = if next == NEVER { NEVER } else { next.max(self.port.free_at).max(nic.pipeline_free_at) };
    }
}
