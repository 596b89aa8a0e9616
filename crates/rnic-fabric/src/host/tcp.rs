//! A host with TCP: NewReno in bytes, for comparisons with transport programs, with which it shares no code.
//!
//! Sources: RFC 9293 (segments), RFC 5681 (slow start, congestion avoidance, fast retransmit, delayed
//! acknowledgements), RFC 6582 (NewReno), RFC 6298 (timeouts; Karn's algorithm).
//!
//! Everything that an event causes happens at its instant: a sender puts all segments that its window allows into the
//! host's queue at once, so connections of a host are not served round robin.
//!
//! Deviations: connections exist from the start, their first sequence number is zero and their data does not end; only
//! full segments are sent; there is no limited transmit (RFC 3042); the loss that the receiving NIC may add
//! ([`PositionLoss`]) is of a host for experiments. `rnic-check` keeps this folder free of programs and of the policies
//! of rnic-transports.

mod loss;
mod receiver;
mod rto;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use crate::endpoint::{Datagram, Endpoint, Incoming, Outgoing, TcpSegment};

pub use loss::PositionLoss;
pub use receiver::DelayedAcks;
pub use rto::RtoLimits;
pub use sender::{SenderView, TcpParameters};

use receiver::Receiver;
use sender::Sender;

/// A host with any number of connections, sending and receiving.
#[derive(Debug, Default)]
pub struct TcpHost {
    senders: Vec<(u32, Sender)>,
    receivers: Vec<(u32, Receiver)>,
    /// Connection number to the position in `senders` or `receivers`.
    places: Vec<Option<Place>>,
    /// Segments that wait for the link.
    queue: VecDeque<Outgoing>,
    loss: Option<PositionLoss>,
    /// Earliest timer of all connections.
    earliest: Option<Time>,
    /// Segments that the NIC has lost.
    lost: u64,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug)]
enum Place {
    Sender(usize),
    Receiver(usize),
}

/// Counters of a receiving end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverView {
    /// Bytes that have arrived in order.
    pub bytes: u64,
    /// Number of received data segments, including retransmissions, but not those that were dropped as lost.
    pub segments: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
}

impl TcpHost {
    /// Creates a host without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the sending end of a connection to host `to`: its first segments are sent as soon as the link is free.
    ///
    /// # Panics
    /// When the number is at least [`CONNECTIONS_MAX`], or taken.
    pub fn add_sender(&mut self, connection: u32, to: u32, parameters: TcpParameters) {
        self.enter(connection, Place::Sender(self.senders.len()));
        let mut sender = Sender::new(parameters);
        sender.send(Time::ZERO, &mut |sequence, len| {
            let segment = TcpSegment { connection, sequence, acknowledgement: 0, window: 0, len };
            self.queue.push_back(Outgoing { to, datagram: Datagram::Tcp(segment) });
        });
        self.senders.push((to, sender));
        self.set_earliest();
    }

    /// Adds the receiving end of a connection from host `from`.
    ///
    /// # Panics
    /// As [`Self::add_sender`].
    pub fn add_receiver(&mut self, connection: u32, from: u32, acks: DelayedAcks, window: u32) {
        self.enter(connection, Place::Receiver(self.receivers.len()));
        self.receivers.push((from, Receiver::new(acks, window)));
    }

    /// Makes the NIC lose arriving segments.
    pub fn set_loss(&mut self, loss: PositionLoss) {
        self.loss = Some(loss);
    }

    fn enter(&mut self, connection: u32, place: Place) {
        assert!(connection < CONNECTIONS_MAX, "connection {connection}: a host has at most {CONNECTIONS_MAX}");
        let index = connection as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        let previous = self.places[index].replace(place);
        assert!(previous.is_none(), "connection {connection} exists already");
    }

    /// Returns the state of a sending end.
    pub fn sender(&self, connection: u32) -> Option<SenderView<'_>> {
        let Place::Sender(index) = self.place(connection)? else { return None };
        Some(self.senders[index].1.view())
    }

    /// Returns the counters of a receiving end.
    pub fn receiver(&self, connection: u32) -> Option<ReceiverView> {
        let Place::Receiver(index) = self.place(connection)? else { return None };
        Some(self.receivers[index].1.view())
    }

    /// Returns the number of segments that the NIC has lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn place(&self, connection: u32) -> Option<Place> {
        self.places.get(connection as usize).copied().flatten()
    }

    fn set_earliest(&mut self) {
        let senders = self.senders.iter().filter_map(|(_, sender)| sender.timer());
        let receivers = self.receivers.iter().filter_map(|(_, receiver)| receiver.timer());
        self.earliest = senders.chain(receivers).min();
    }

    /// Notes that a timer has changed from `before` to `after`.
    fn note_timer(&mut self, before: Option<Time>, after: Option<Time>) {
        if before == after {
            return;
        }
        if before == self.earliest {
            return self.set_earliest();
        }
        self.earliest = [self.earliest, after].into_iter().flatten().min();
    }

    fn receive_data(&mut self, now: Time, index: usize, segment: &TcpSegment) {
        if self.loss.as_mut().is_some_and(|loss| loss.loses(segment)) {
            self.lost += 1;
            return;
        }
        let (from, receiver) = &mut self.receivers[index];
        let before = receiver.timer();
        if let Some(acknowledgement) = receiver.receive(now, segment) {
            let datagram = Datagram::Tcp(receiver.acknowledge(segment.connection, acknowledgement));
            self.queue.push_back(Outgoing { to: *from, datagram });
        }
        let after = self.receivers[index].1.timer();
        self.note_timer(before, after);
    }

    fn receive_ack(&mut self, now: Time, index: usize, segment: &TcpSegment) {
        let (to, sender) = &mut self.senders[index];
        let before = sender.timer();
        let (connection, to) = (segment.connection, *to);
        let queue = &mut self.queue;
        sender.receive(now, segment, &mut |sequence, len| {
            let segment = TcpSegment { connection, sequence, acknowledgement: 0, window: 0, len };
            queue.push_back(Outgoing { to, datagram: Datagram::Tcp(segment) });
        });
        let after = sender.timer();
        self.note_timer(before, after);
    }
}

impl Endpoint for TcpHost {
    fn next_event(&self) -> Option<Time> {
        self.earliest
    }

    fn advance(&mut self, now: Time) {
        for (place, connection) in self.places.iter().zip(0..) {
            match *place {
                Some(Place::Sender(index)) if self.senders[index].1.timer().is_some_and(|at| at <= now) => {
                    let (to, sender) = &mut self.senders[index];
                    sender.time_out(now, &mut |sequence, len| {
                        let segment = TcpSegment { connection, sequence, acknowledgement: 0, window: 0, len };
                        self.queue.push_back(Outgoing { to: *to, datagram: Datagram::Tcp(segment) });
                    });
                }
                Some(Place::Receiver(index)) if self.receivers[index].1.timer().is_some_and(|at| at <= now) => {
                    let (from, receiver) = &mut self.receivers[index];
                    let acknowledgement = receiver.expire();
                    let datagram = Datagram::Tcp(receiver.acknowledge(connection, acknowledgement));
                    self.queue.push_back(Outgoing { to: *from, datagram });
                }
                _ => {}
            }
        }
        self.set_earliest();
    }

    fn receive(&mut self, now: Time, incoming: &Incoming) {
        let Datagram::Tcp(segment) = incoming.datagram else { return };
        match self.place(segment.connection) {
            Some(Place::Receiver(index)) if self.receivers[index].0 == incoming.from => {
                self.receive_data(now, index, &segment);
            }
            Some(Place::Sender(index)) if self.senders[index].0 == incoming.from => {
                self.receive_ack(now, index, &segment);
            }
            _ => {}
        }
    }

    fn transmit(&mut self, _: Time) -> Option<Outgoing> {
        self.queue.pop_front()
    }
}

/// Maximum number of connections of a host: bounds the table of their places.
pub const CONNECTIONS_MAX: u32 = 1 << 16;

/// Delay of acknowledgements: RFC 5681 allows 500 ms, Linux and ns-3 use tens of milliseconds.
pub const ACK_DELAY: Duration = Duration::from_ms(40);

/// Returns whether `a` comes after `b`: sequence numbers wrap (RFC 9293 section 3.4).
fn is_after(a: u32, b: u32) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 1 << 31
}
