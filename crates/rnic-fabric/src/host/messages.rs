//! Messages between the NICs of hosts (SCR mechanism S-6): transported like packets, and passed to the engine when they
//! arrive, before any packet that waits for the host.

use rnic_base::Time;
use rnic_engine::messages::exchange::Exchange;
use rnic_engine::{Arrival, MessageArrival, MessageTransmit, Messages, NicId, NoDma, PeerId};
use rnic_policy::PathLabel;

use super::Host;
use crate::entry::Entry;
use crate::network::Network;
use crate::packets::Endpoints;

impl Host {
    /// Stores a message for transmission and returns its entry.
    #[cold]
    #[inline(never)]
    pub(super) fn store_message(&mut self, now: Time, transmit: &MessageTransmit, network: &mut Network) -> Entry {
        self.codec.store_message(now, transmit, &mut network.messages)
    }

    /// Handles the arrival of a pause frame or of a message.
    #[cold]
    #[inline(never)]
    pub(super) fn arrive_for_nic(&mut self, now: Time, entry: &Entry, network: &mut Network) {
        if entry.is_pause_frame() {
            return self.on_pause_frame(now, entry);
        }
        let Endpoints { src, source_port, .. } = network.messages.ends(entry.packet);
        match self.codec.decode_message(entry, &network.messages) {
            None => self.stats.corrupt += 1,
            Some(message) => {
                let (nic, label) = (NicId::of(PeerId(src)), PathLabel(source_port));
                report_load(self, now);
                let arrival = Arrival::Message(MessageArrival { message: &message, nic, label });
                let _ = self.engine.receive(now, arrival, &mut NoDma);
                let measured = Messages::of(&mut self.engine).take_round_trips();
                self.round_trips.extend(measured);
            }
        }
        network.messages.remove(entry.packet);
    }
}

/// Reports the load of the bus to the engine, which messages may carry.
#[inline]
pub(super) fn report_load(host: &mut Host, now: Time) {
    if let Some(nic) = host.nic.as_mut().filter(|_| Exchange::of(&host.engine).is_some()) {
        Messages::of(&mut host.engine).report_load(now, nic.host_load(now));
    }
}
