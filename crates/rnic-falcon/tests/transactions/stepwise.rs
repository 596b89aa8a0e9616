//! The net of the deadlock search, driven step by step; what it sends is recorded.

use std::ops::{Deref, DerefMut};

use rnic_falcon::interface::{Context, Exhausted, Upper};
use rnic_falcon::search::net::{self, Message, Scenario};
use rnic_wire::falcon::Packet;

use super::rsn;

/// See the module.
pub struct Net {
    net: net::Net,
    /// Every packet sent by the methods below and not lost at once, with its source NIC.
    pub sent: Vec<(usize, Packet)>,
}

impl Deref for Net {
    type Target = net::Net;

    fn deref(&self) -> &net::Net {
        &self.net
    }
}

impl DerefMut for Net {
    fn deref_mut(&mut self) -> &mut net::Net {
        &mut self.net
    }
}

impl Net {
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        Self { net: net::Net::new(scenario, seed), sent: Vec::new() }
    }

    /// Takes a step, of which the first `before` messages in flight are not a result, and records what it sends.
    fn step_after<R>(&mut self, before: usize, step: impl FnOnce(&mut net::Net) -> R) -> R {
        let result = step(&mut self.net);
        let packets = self.net.air[before..].iter().filter_map(|(to, _, message)| match message {
            Message::Packet(packet) => Some((1 - to, *packet)),
            Message::Acked(_) | Message::Nacked(..) => None,
        });
        self.sent.extend(packets);
        result
    }

    /// Sends the next packet; returns whether one was sent.
    pub fn send(&mut self, nic: usize, connection: usize) -> bool {
        self.step_after(self.net.air.len(), |net| net.send(nic, connection))
    }

    /// Retransmits the `nth` outstanding packet.
    pub fn repeat(&mut self, nic: usize, connection: usize, nth: usize) {
        self.step_after(self.net.air.len(), |net| net.repeat(nic, connection, nth));
    }

    /// Delivers a random message that is in flight; returns whether there was one.
    pub fn deliver(&mut self) -> bool {
        self.step_after(self.net.air.len().saturating_sub(1), net::Net::deliver)
    }

    /// Delivers the packet with that transaction number, and no other.
    pub fn deliver_rsn(&mut self, nic: usize, nth: u32) {
        let is_it = |(to, _, message): &(usize, usize, Message)| match message {
            Message::Packet(packet) => *to == nic && packet.body.rsn() == Some(rsn(nth)),
            Message::Acked(_) | Message::Nacked(..) => false,
        };
        let index = self.net.air.iter().position(is_it).expect("the packet is in flight");
        self.step_after(self.net.air.len() - 1, |net| net.arrive(index));
    }

    /// Runs all steps that are possible without a clock and without new requests, without loss.
    pub fn run(&mut self) {
        let ends: Vec<_> =
            [0, 1].into_iter().flat_map(|nic| (0..self.scenario.connections).map(move |end| (nic, end))).collect();
        let mut busy = true;
        while busy {
            busy = false;
            for (nic, connection) in ends.iter().copied() {
                while self.send(nic, connection) || self.deliver() || self.work(nic, connection) {
                    busy = true;
                }
            }
        }
    }

    /// Loses all messages in flight.
    pub fn lose_all(&mut self) {
        self.net.air.clear();
    }

    /// Signals the transaction layer that every outstanding packet has exceeded its retransmission limit.
    pub fn exhaust(&mut self, nic: usize, connection: usize) -> Vec<Exhausted> {
        let contexts: Vec<Context> = self.ends[nic][connection].outstanding.values().copied().collect();
        let now = self.now;
        contexts.into_iter().map(|context| self.net.layer(nic, connection).exhausted(now, context)).collect()
    }

    /// Fails the connection permanently at this end.
    pub fn terminate(&mut self, nic: usize, connection: usize) {
        let now = self.now;
        self.net.layer(nic, connection).terminate(now);
    }
}
