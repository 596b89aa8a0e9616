//! One complete connection: both layers, and the gates of its flows to the adaptive engine.
//!
//! Source: Falcon (SIGCOMM'25) figure 2. Objects shared by the connections of a NIC ([`Resources`], the adaptive
//! engine, the timing wheel, the ring of connections that can send) belong to the driver and are passed in with each
//! call.
//!
//! The driver:
//!
//! * submits requests with [`Connection::submit`] and its upper layer's responses with [`Connection::answer`];
//! * passes received packets to [`Connection::receive`], and calls [`Connection::transmit`] until it returns no packet;
//! * calls [`Connection::expire`] at [`Connection::timeout`], and [`Connection::transmit`] at
//!   [`Connection::departure`];
//! * after each of these, calls [`Connection::report_to_fae`], and passes responses that arrive later to
//!   [`Connection::apply_response`].
//!
//! Transactions settled by the upper layer are reported to the delivery layer before a call returns; when the delivery
//! layer is dead, the transaction layer becomes dead too.

use rnic_base::{Absence, LazyQueue, Time, prefetch_whole};
use rnic_fae::{Event, FaeError, FlowGate, record::Response};
use rnic_policy::Cwnd;
use rnic_policy::FlowActions;
use rnic_policy::control::report::{Carried, Ticks};
use rnic_wire::falcon::{NackCode, Packet, Rsn};

use crate::adaptive::AdaptiveEngine;
use crate::delivery::per_flow::PerFlow;
use crate::delivery::{Arrival, Delivery, DeliveryConfig, Departure, Leaving, Reception};
use crate::resources::Resources;
use crate::resources::threshold::Alpha;
use crate::seam::Context;
use crate::transaction::{
    Answer, AnswerError, Layer, Settled, Submission, SubmitError, TransactionConfig, Transactions, UpperLayer,
};

/// One Falcon connection: transaction layer, delivery layer, and the event gates of its flows.
#[derive(Debug)]
pub struct Connection {
    transactions: Transactions,
    delivery: Delivery,
    gates: PerFlow<FlowGate>,
    /// Number of the connection in the adaptive engine.
    number: u32,
    /// True until the adaptive engine has accepted the first event of the connection.
    is_fresh: bool,
    /// State carried with events, for a stateless adaptive engine. Allocated only in that case.
    carried: Option<Box<Travelling>>,
    /// Requests whose payload was still kept when the connection died or its upper layer failed.
    kept: LazyQueue<Rsn>,
}

/// State returned by the last responses, to be carried by the next event.
#[derive(Debug)]
struct Travelling {
    flows: PerFlow<Carried>,
    /// The NIC window belongs to the connection, and so do the time and the direction of its last change; these fields
    /// of `flows` are ignored. If each flow knew only the changes made by its own responses, each would change the
    /// window once per round trip.
    nic_marker: Ticks,
    nic_grew: bool,
    /// Belongs to the connection too, because Swift uses it for the shares of resources.
    metadata: u32,
}

impl Travelling {
    fn new(flows: usize) -> Self {
        let flows = PerFlow::new(flows, |_| Carried::default());
        Self { flows, nic_marker: Ticks::ZERO, nic_grew: false, metadata: 0 }
    }

    /// Returns the state that the next event of `flow` carries.
    fn of(&self, flow: u8) -> Carried {
        let Self { nic_marker, nic_grew, metadata, .. } = *self;
        Carried { nic_marker, nic_grew, metadata, ..self.flows[flow] }
    }

    fn keep(&mut self, flow: u8, carried: Carried) {
        self.flows[flow] = carried;
        let Carried { nic_marker, nic_grew, metadata, .. } = carried;
        (self.nic_marker, self.nic_grew, self.metadata) = (nic_marker, nic_grew, metadata);
    }
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// Parameters of the transaction layer.
    pub transactions: TransactionConfig,
    /// Parameters of the packet delivery layer.
    pub delivery: DeliveryConfig,
    /// RSN of the first local request, and of the peer's first request.
    pub first_rsn: [Rsn; 2],
}

impl Connection {
    /// Creates a connection without any traffic, called `name` by its driver.
    ///
    /// # Errors
    /// When the adaptive engine has no space for one more.
    pub fn new(config: &ConnectionConfig, adaptive: &mut AdaptiveEngine, name: u32) -> Result<Self, FaeError> {
        let [ours, theirs] = config.first_rsn;
        let number = adaptive.enter(name)?;
        let flows = usize::from(config.delivery.flows);
        let mut connection = Self {
            transactions: Transactions::between(config.transactions, ours, theirs),
            delivery: Delivery::with_policies(&config.delivery, adaptive.policies_of(&config.delivery)),
            gates: PerFlow::new(flows, |_| FlowGate::default()),
            number,
            is_fresh: true,
            carried: adaptive.is_stateless().then(|| Box::new(Travelling::new(flows))),
            kept: LazyQueue::new(),
        };
        let first = adaptive.first();
        let flows = config.delivery.flows;
        // No round trip was measured yet, so the recovery policy's timeout applies; without an acknowledgement for that
        // long, packets are retransmitted, and losses are not detected sooner.
        let rto = Ticks::of(connection.delivery.rto());
        for flow in 0..flows {
            let fcwnd = first.fcwnd.share(flow, flows);
            // An engine that leaves these times to the recovery policy leaves them to it from the start.
            let first_wait = |set: Ticks| if set == Ticks::ZERO { set } else { rto };
            let (rack, tlp) = (first_wait(first.rack), first_wait(first.tlp));
            connection.take_actions(flow, &FlowActions { fcwnd, rto, rack, tlp, ..*first });
        }
        Ok(connection)
    }

    /// Returns the transaction layer, for inspection.
    #[inline]
    pub const fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Returns the packet delivery layer, for inspection.
    #[inline]
    pub const fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// See [`Delivery::set_attempts_max`].
    pub fn set_attempts_max(&mut self, attempts_max: u16) {
        self.delivery.set_attempts_max(attempts_max);
    }

    /// Records the last period in which the connection was not driven: timers that were running in it are extended,
    /// when timeouts follow measured round trips. To be called before [`Connection::receive`] and
    /// [`Connection::expire`].
    #[inline]
    pub fn note_absence(&mut self, absence: Absence) {
        self.delivery.note_absence(absence);
    }

    /// See [`Delivery::repeat_acknowledgements`].
    pub fn repeat_acknowledgements(&mut self, now: Time) -> bool {
        self.delivery.repeat_acknowledgements(now)
    }

    /// See [`Delivery::repeat_refusal`].
    pub fn repeat_refusal(&mut self) -> bool {
        self.delivery.repeat_refusal()
    }

    /// See [`Transactions::expect`].
    #[inline]
    pub fn expect(&mut self, transactions: u32) {
        self.transactions.expect(transactions);
    }

    /// See [`Transactions::submit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn submit(&mut self, resources: &mut Resources, submission: &Submission) -> Result<Rsn, SubmitError> {
        self.transactions.submit(resources, submission)
    }

    /// See [`Transactions::answer`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn answer(&mut self, resources: &mut Resources, rsn: Rsn, answer: &Answer) -> Result<(), AnswerError> {
        self.transactions.answer(resources, rsn, answer)
    }

    /// See [`Transactions::acknowledge`].
    ///
    /// # Errors
    /// As there.
    pub fn acknowledge(&mut self, now: Time, rsn: Rsn) -> Result<(), AnswerError> {
        self.transactions.acknowledge(rsn)?;
        self.settle(now);
        Ok(())
    }

    /// See [`Transactions::refuse`].
    ///
    /// # Errors
    /// As there.
    pub fn refuse(&mut self, now: Time, rsn: Rsn, code: NackCode) -> Result<(), AnswerError> {
        self.transactions.refuse(rsn, code)?;
        self.settle(now);
        Ok(())
    }

    /// Lets an upper layer perform several operations on the transaction layer, then settles their results.
    pub fn work<R>(&mut self, now: Time, work: impl FnOnce(&mut Transactions) -> R) -> R {
        let result = work(&mut self.transactions);
        self.settle(now);
        result
    }

    /// See [`Delivery::set_credit`].
    #[inline]
    pub fn set_credit(&mut self, packets: u64) {
        self.delivery.set_credit(packets);
    }

    /// See [`Transactions::withdraw`].
    pub fn withdraw(&mut self, context: Context) {
        self.transactions.withdraw(context);
    }

    /// Processes a packet that arrives now.
    pub fn receive<U: UpperLayer>(
        &mut self,
        now: Time,
        arrival: &Arrival<'_>,
        resources: &mut Resources,
        ulp: &mut U,
    ) -> Reception {
        let mut layer = Layer { transactions: &mut self.transactions, resources, ulp };
        let reception = self.delivery.receive(now, arrival, &mut layer);
        self.settle(now);
        reception
    }

    /// Returns the next packet that may be sent now.
    #[inline]
    pub fn transmit<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) -> Option<Departure> {
        let mut layer = Layer { transactions: &mut self.transactions, resources, ulp };
        self.delivery.transmit(now, &mut layer)
    }

    /// Same as [`Connection::transmit`], with the packet written to `packet`. When no packet is sent, `packet` may have
    /// been modified.
    #[inline]
    pub fn transmit_into<U: UpperLayer>(
        &mut self,
        now: Time,
        packet: &mut Packet,
        resources: &mut Resources,
        ulp: &mut U,
    ) -> Option<Leaving> {
        let mut layer = Layer { transactions: &mut self.transactions, resources, ulp };
        self.delivery.transmit_into(now, packet, &mut layer)
    }

    /// Returns whether [`Connection::transmit`] would have a packet to send, pacing aside. A connection for which this
    /// is false need not be checked again before a packet arrives, a timer is due, or a request or response is
    /// submitted.
    #[inline]
    pub fn has_to_send(&mut self, now: Time) -> bool {
        if self.delivery.has_to_repeat(now) {
            return true;
        }
        if !self.transactions.has_unsent() {
            return false;
        }
        let open = self.delivery.open_gates();
        open.any() && self.transactions.has_to_send(open)
    }

    /// Prefetches the memory that a packet of this connection needs and that is stored apart from the connection,
    /// including its state in `adaptive`.
    #[inline]
    pub fn prefetch_indirect(&self, adaptive: Option<&AdaptiveEngine>) {
        self.transactions.prefetch_indirect();
        self.delivery.prefetch_indirect();
        if let Some(carried) = &self.carried {
            prefetch_whole(&**carried);
        }
        if let Some(adaptive) = adaptive {
            adaptive.prefetch_state(self.number);
        }
    }

    /// Performs the actions that are due now.
    pub fn expire<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        let mut layer = Layer { transactions: &mut self.transactions, resources, ulp };
        self.delivery.expire(now, &mut layer);
        layer.tick(now);
        if self.delivery.is_dead() && !layer.transactions.is_dead() {
            layer.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
            layer.die(now);
        }
        self.settle(now);
    }

    /// Resumes delivery of requests to the upper layer, which was busy and accepts requests again.
    pub fn resume<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        Layer { transactions: &mut self.transactions, resources, ulp }.resume(now);
        self.settle(now);
    }

    /// Terminates the connection: every local transaction completes in error, held resources are released, and no
    /// packet is sent or accepted any more.
    pub fn die<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        self.delivery.die();
        if !self.transactions.is_dead() {
            self.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
            Layer { transactions: &mut self.transactions, resources, ulp }.die(now);
        }
    }

    /// Handles a permanent failure of the upper layer, see [`Transactions::refuse_all`].
    pub fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        self.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
        self.transactions.refuse_all(resources, code);
    }

    /// Returns each request of a dead connection, or of one whose upper layer has failed, whose payload was kept for
    /// later delivery and is needed no longer; each once.
    pub fn take_kept(&mut self) -> impl Iterator<Item = Rsn> {
        core::iter::from_fn(|| self.kept.pop_front())
    }

    /// Returns the number to the adaptive engine, which must not be used by this connection afterwards.
    pub fn leave(&mut self, adaptive: &mut AdaptiveEngine) {
        adaptive.leave(self.number);
    }

    /// Returns whether the connection has failed permanently.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.delivery.is_dead()
    }

    /// Returns the time at which [`Connection::expire`] is to be called, including due times of acknowledgements.
    #[inline]
    pub fn timeout(&self) -> Option<Time> {
        match (self.delivery.timeout(), self.transactions.next_timeout()) {
            (Some(below), Some(above)) => Some(below.min(above)),
            (below, above) => below.or(above),
        }
    }

    /// Returns the time at which [`Connection::expire`] is to be called even if [`Connection::transmit`] is called
    /// before.
    #[inline]
    pub fn expiry(&self) -> Option<Time> {
        match (self.delivery.expiry(), self.transactions.next_timeout()) {
            (Some(below), Some(above)) => Some(below.min(above)),
            (below, above) => below.or(above),
        }
    }

    /// Returns the time at which a packet that is ready but held back by pacing may be sent.
    #[inline]
    pub fn departure(&self) -> Option<Time> {
        self.delivery.departure()
    }

    /// Reports transactions settled by the upper layer to the delivery layer.
    fn settle(&mut self, now: Time) {
        while let Some(settled) = self.transactions.settled() {
            match settled {
                Settled::Acknowledged(received) => self.delivery.acknowledge(now, received),
                Settled::Refused(received, code) => self.delivery.refuse(received, code),
            }
        }
    }

    /// Returns whether there are reports for the adaptive engine.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.delivery.has_signal()
    }

    /// Passes the reports to the adaptive engine; responses available immediately are applied immediately.
    #[inline]
    pub fn report_to_fae(&mut self, now: Time, resources: &Resources, adaptive: &mut AdaptiveEngine) {
        while let Some(mut report) = self.delivery.signal() {
            report.occupancy = resources.rx_level();
            let flow = report.flow;
            let mut event =
                Event { connection: self.number, first: self.is_fresh, queue: 0, report, carried: Carried::default() };
            if let Some(carried) = &self.carried {
                // The windows are state too; of several reports passed together, the later ones were made before the
                // first was answered.
                (event.report.in_force.fcwnd, event.report.in_force.ncwnd) = self.delivery.windows(flow);
                event.carried = carried.of(flow);
            }
            let Ok(answer) = adaptive.offer(now, &mut self.gates[flow], &event) else { continue };
            self.is_fresh = false;
            if let Some(response) = answer {
                self.apply_actions(flow, &response);
            }
        }
    }

    /// Applies a response of the adaptive engine that arrived later.
    pub fn apply_response(&mut self, response: &Response) {
        self.gates[response.flow].answered();
        self.apply_actions(response.flow, response);
    }

    #[inline]
    fn apply_actions(&mut self, flow: u8, response: &Response) {
        if let Some(carried) = &mut self.carried {
            carried.keep(flow, response.carried);
        }
        self.take_actions(flow, &response.actions);
    }

    fn take_actions(&mut self, flow: u8, actions: &FlowActions) {
        self.delivery.apply_response(flow, actions);
        let alpha = |alpha: rnic_policy::control::report::Alpha| Alpha::from_shift(alpha.get());
        self.transactions.set_alphas(alpha(actions.alpha_requests), alpha(actions.alpha_responses));
    }

    /// Returns the connection's window, the sum over all flows.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.delivery.fcwnd()
    }
}
