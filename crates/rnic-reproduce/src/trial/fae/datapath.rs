//! The datapath side of the trial: creates events, and stores the per-connection state carried in events and responses.

use rnic_base::{RandomStream, RandomStreams};
use rnic_fae::{Event, EventRecord, ResponseRecord, StateLocation};
use rnic_policy::FlowActions;
use rnic_policy::control::report::{Carried, CurrentSettings, FlowReport, Ticks};
use rnic_policy::kit::report;

use super::BATCH_EVENTS;

/// Creates a batch of events, and processes its responses.
pub(super) struct Datapath {
    random: RandomStream,
    connections: u64,
    /// Number of events so far. The first events of the connections are made in the order of their numbers, and are not
    /// counted.
    event_count: u64,
    /// Current time in 1/2^20 ticks.
    now: u64,
    contexts: Vec<(Carried, CurrentSettings)>,
    pub(super) events: Vec<EventRecord>,
    pub(super) responses: Vec<ResponseRecord>,
}

impl Datapath {
    pub(super) fn new(connections: u32, first: &FlowActions, form: StateLocation, seed: u64) -> Self {
        let context_count = if form == StateLocation::Stateless { connections as usize } else { 1 };
        Self {
            random: RandomStreams::new(seed).stream("fae"),
            connections: u64::from(connections),
            event_count: 0,
            now: 0,
            contexts: vec![(Carried::default(), first.in_force()); context_count],
            events: vec![EventRecord::default(); BATCH_EVENTS],
            responses: vec![ResponseRecord::default(); BATCH_EVENTS],
        }
    }

    pub(super) fn make_events(&mut self) {
        for index in 0..BATCH_EVENTS {
            self.now += (TICKS_BETWEEN << 20) / self.connections;
            let now = (self.now >> 20) as u32;
            let connection = if self.event_count < self.connections {
                self.event_count
            } else {
                self.random.below(self.connections)
            };
            self.event_count += 1;
            let connection = connection as u32;
            let delay = self.random.between(120, 320) as u32;
            let wait = self.random.below(60) as u32;
            let context = if self.contexts.len() > 1 { connection as usize } else { 0 };
            let (carried, in_force) = self.contexts[context];
            let times = [delay - delay / 2, wait, delay / 2];
            let report = FlowReport {
                acked: self.random.between(1, 8) as u16,
                hops: 3,
                rx_level: self.random.below(16) as u8,
                label: 0x1230,
                ..report(0, Ticks::new(now), times, in_force)
            };
            let event = Event { connection, first: false, queue: 0, report, carried };
            self.events[index] = EventRecord::pack(&event, true);
        }
    }

    pub(super) fn take_responses(&mut self) {
        if self.contexts.len() > 1 {
            for record in &self.responses {
                let response = record.unpack();
                self.contexts[response.connection as usize] = (response.carried, response.actions.in_force());
            }
        }
    }
}

/// Ticks between two events of a connection: two events per round trip of 200 ticks.
const TICKS_BETWEEN: u64 = 100;
