//! The Tonic NIC as a whole: both engines, the driver's calls, one step per cycle, and skipping of cycles in which
//! nothing changes.

use crate::cr::{CreditCounters, CreditEngine};
use crate::dd::{DataDelivery, DeliveryCounters, Visits};
use crate::driver::{Driver, Refused};
use crate::program::{Installed, Scheme};
use crate::sets::{ActiveSet, Fifo};
use crate::shape::{FlowId, STATE_WORDS_MAX, SegmentId, Shape, SizeError, Sizes, Ticks};
use crate::state::Packed;
use crate::wires::{Address, Command, FlowSetup, Packet};

/// Inputs of the NIC in one clock cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Input {
    /// A packet from a flow's receiver.
    pub packet: Option<(FlowId, Packet)>,
    /// The output is blocked: the address in the output register is not consumed.
    pub is_blocked: bool,
}

/// The readable state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowView {
    /// The flow exists.
    pub exists: bool,
    /// First unacknowledged segment.
    pub start: SegmentId,
    /// Next segment to be sent for the first time.
    pub next: SegmentId,
    /// End (exclusive) of the announced segments.
    pub limit: SegmentId,
    /// Size of the window in segments.
    pub window: u16,
    /// Number of addresses generated, modulo 2^24, retransmissions included.
    pub total_sent: SegmentId,
    /// Number of segments marked for retransmission.
    pub marked: u32,
    /// Number of selectively acknowledged segments.
    pub acked: u32,
    /// Number of addresses that have not been passed on to the link.
    pub outstanding: u8,
    /// Duration of the retransmission timer; zero for none.
    pub timer: Ticks,
    /// Rate in bytes per 2^16 cycles; zero if the program does not use rates.
    pub rate: u32,
}

/// A Tonic NIC with a transport program (the paper calls the fixed part *template*).
#[derive(Debug)]
pub struct Tonic<S = Fifo> {
    shape: Shape,
    now: u64,
    delivery: DataDelivery<S>,
    credit: CreditEngine<S>,
    driver: Driver,
}

impl Tonic {
    /// Creates a Tonic NIC that serves its flows round robin.
    ///
    /// # Errors
    /// When a size is out of range.
    pub fn new(sizes: Sizes, program: Installed) -> Result<Self, SizeError> {
        let sets = [Fifo::new(sizes.flows), Fifo::new(sizes.flows)];
        Self::with_sets(sizes, program, sets)
    }
}

impl<S: ActiveSet> Tonic<S> {
    /// Creates a Tonic NIC with given service disciplines for the set of active flows and for the set of flows that are
    /// ready to transmit; [`Tonic::new`] uses the default ones.
    ///
    /// # Errors
    /// When a size is out of range.
    pub fn with_sets(sizes: Sizes, program: Installed, [active, ready]: [S; 2]) -> Result<Self, SizeError> {
        let words = program.initial_state().len().div_ceil(8);
        if words > STATE_WORDS_MAX {
            return Err(SizeError::State(words));
        }
        let shape = Shape::new(sizes, program.scheme(), program.state_bits())?;
        let initial_rate = program.initial().rate.get() as u32;
        Ok(Self {
            now: 0,
            delivery: DataDelivery::new(shape, program, active),
            credit: CreditEngine::new(shape, initial_rate, ready),
            driver: Driver::new(sizes.flows),
            shape,
        })
    }

    /// Returns the widths of all fields of the state.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the number of the next cycle.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Selects the runs of the program's periodic function that are executed; all by default. [`Tonic::advance_to`]
    /// skips cycles in which only other runs would occur in either case.
    pub fn set_visits(&mut self, visits: Visits) {
        self.delivery.set_visits(visits);
    }

    /// Returns the counters of data delivery and of credit.
    pub fn counters(&self) -> (DeliveryCounters, CreditCounters) {
        (*self.delivery.counters(), *self.credit.counters())
    }

    /// Adds a flow that has no segments yet.
    ///
    /// # Errors
    /// If the flow already exists, a pipeline stage still holds state of a removed flow with this number, or the
    /// segment length is zero or does not fit into 14 bits.
    pub fn add_flow(&mut self, flow: FlowId, setup: FlowSetup) -> Result<(), Refused> {
        let is_quiet = self.delivery.is_quiet(flow) && self.credit.is_quiet(flow);
        self.driver.add_flow(flow, setup, is_quiet)
    }

    /// Removes a flow. Addresses that have not been passed on to the link are dropped.
    ///
    /// # Errors
    /// When the flow does not exist.
    pub fn remove_flow(&mut self, flow: FlowId) -> Result<(), Refused> {
        self.driver.remove_flow(flow)
    }

    /// Announces that a flow has segments up to `limit` (exclusive). The last one has `last_bytes` bytes, or as many as
    /// the others when this is zero.
    ///
    /// # Errors
    /// When the limit goes backwards or too far, or a short segment before it is not acknowledged yet (Tonic, section
    /// 5).
    pub fn set_limit(&mut self, flow: FlowId, limit: SegmentId, last_bytes: u16) -> Result<(), Refused> {
        self.driver.check(flow)?;
        let window = self.delivery.window(flow);
        self.driver.set_limit(flow, window.in_use.then_some(window.start), limit, last_bytes)
    }

    /// Changes the length of a flow's segments.
    ///
    /// # Errors
    /// When announced segments are not acknowledged (Tonic, section 3.2.1), or addresses have not been passed on to the
    /// link.
    pub fn set_segment_bytes(&mut self, flow: FlowId, segment_bytes: u16) -> Result<(), Refused> {
        self.driver.check(flow)?;
        let (window, duty) = (self.delivery.window(flow), self.delivery.duty(flow));
        let start = (duty.outstanding == 0).then_some(window.start);
        self.driver.set_segment_bytes(flow, window.in_use.then_some(start), segment_bytes)
    }

    /// Returns the command that the next cycle takes, if any: circuits have no queue of commands.
    pub fn next_command(&self) -> Option<(FlowId, Command)> {
        self.driver.next()
    }

    /// Returns the readable state of a flow.
    ///
    /// # Errors
    /// When the flow number is out of range.
    pub fn flow(&self, flow: FlowId) -> Result<FlowView, Refused> {
        self.driver.check(flow)?;
        let (window, duty) = (self.delivery.window(flow), self.delivery.duty(flow));
        Ok(FlowView {
            exists: window.in_use,
            start: window.start,
            next: window.next,
            limit: window.limit,
            window: window.size,
            total_sent: duty.total_sent,
            marked: duty.marked.count(),
            acked: window.acked.count(),
            outstanding: duty.outstanding,
            timer: duty.timer,
            rate: duty.rate,
        })
    }

    /// Returns the whole state of a flow, packed: window, duty, ring and credit; and the program's state block.
    ///
    /// # Errors
    /// When the flow number is out of range.
    pub fn context(&self, flow: FlowId) -> Result<(Packed, &[u8]), Refused> {
        self.driver.check(flow)?;
        let mut packed = Packed::default();
        self.delivery.pack(flow, &mut packed);
        self.credit.pack(flow, &mut packed);
        Ok((packed, self.delivery.state(flow)))
    }

    /// Runs one cycle; returns the address in the output register, which is consumed unless `is_blocked`.
    ///
    /// Packets for flow numbers that are out of range are ignored.
    pub fn step(&mut self, input: &Input) -> Option<Address> {
        let packet = input.packet.filter(|(flow, _)| *flow < self.shape.flows());
        let command = self.driver.take();
        let (output, departed) = self.credit.step(self.now, !input.is_blocked);
        let delivered = self.delivery.step(self.now, packet, command, departed);
        self.credit.receive(delivered.forward, [delivered.from_incoming, delivered.from_periodic]);
        self.now += 1;
        output
    }

    /// Returns the first cycle from [`Tonic::now`] on, and before `end`, in which anything can change without further
    /// input; `None` if there is none.
    pub fn next_event(&mut self, end: u64) -> Option<u64> {
        if self.now >= end {
            return None;
        }
        if !self.driver.is_empty() || self.credit.is_busy() || self.delivery.is_busy() {
            return Some(self.now);
        }
        let expiry = match self.shape.scheme() {
            Scheme::Rate => self.credit.next_expiry(self.now).filter(|expiry| *expiry < end),
            Scheme::Window | Scheme::Token => None,
        };
        let end = expiry.unwrap_or(end);
        self.delivery.next_service_cycle(self.now, end).or(expiry)
    }

    /// Runs those cycles before `end` in which anything can change, without packets and with an open output, until an
    /// address leaves; returns it with its cycle. [`Tonic::now`] is then the cycle after it, otherwise `end`.
    ///
    /// Outputs and contexts are those of [`Tonic::step`] in every cycle.
    pub fn advance_to(&mut self, end: u64) -> Option<(u64, Address)> {
        while let Some(event) = self.next_event(end) {
            self.skip_to(event);
            if let Some(address) = self.step(&Input::default()) {
                return Some((event, address));
            }
        }
        self.skip_to(end);
        None
    }

    /// Skips the cycles before `cycle`, in which nothing changes.
    fn skip_to(&mut self, cycle: u64) {
        if cycle > self.now {
            self.delivery.skip(cycle - self.now);
            self.now = cycle;
        }
    }
}
