//! One complete connection: both layers, and the gates of its flows to the adaptive engine.
//!
//! Source: Falcon (SIGCOMM'25) figure 2. Objects shared by the connections of a NIC ([`Resources`], the adaptive
//! engine, the timing wheel, the ring of connections that can send) belong to the driver and are passed as arguments
//! of each call.
//!
//! The driver:
//!
//! * submits requests with [`Connection::submit`], and the responses of its upper layer with [`Connection::respond`];
//! * passes received packets to [`Connection::receive`], and calls [`Connection::transmit`] until it returns no
//!   packet;
//! * calls [`Connection::expire`] at [`Connection::timeout`], and [`Connection::transmit`] at
//!   [`Connection::departure`];
//! * after each of these, calls [`Connection::report_to_fae`], and passes responses that arrive later to
//!   [`Connection::apply_response`].
//!
//! Transactions settled by the upper layer are reported to the delivery layer before a call returns; when the
//! delivery layer has failed, the transaction layer is terminated too.

use rnic_base::{Absence, LazyQueue, Time, prefetch_whole};
use rnic_fae::{Event, FaeError, FlowAdmission, record::Response};
use rnic_policy::Cwnd;
use rnic_policy::FlowActions;
use rnic_policy::control::report::{Carried, Ticks};
use rnic_wire::falcon::{NackCode, Packet, Rsn};

use crate::adaptive::AdaptiveEngine;
use crate::delivery::per_flow::PerFlow;
use crate::delivery::{Arrival, Delivery, DeliveryConfig, Departure, DepartureInfo, Reception};
use crate::interface::Context;
use crate::resources::Resources;
use crate::resources::threshold::Alpha;
use crate::transaction::{
    Layer, PacketDecision, PullResponse, RespondError, Submission, SubmitError, TransactionConfig, Transactions,
    UpperLayer,
};

/// One Falcon connection: transaction layer, delivery layer, and the event admission of its flows.
#[derive(Debug)]
pub struct Connection {
    transactions: Transactions,
    delivery: Delivery,
    admissions: PerFlow<FlowAdmission>,
    /// Number of the connection at the adaptive engine.
    number: u32,
    /// True until the adaptive engine has accepted the first event of the connection.
    is_first_event_pending: bool,
    /// State carried with events; allocated only for a stateless adaptive engine.
    carried: Option<Box<CarriedState>>,
    /// Requests whose payload was still stored when the connection died or its upper layer failed.
    kept: LazyQueue<Rsn>,
}

/// State returned by the last responses, to be carried by the next event.
#[derive(Debug)]
struct CarriedState {
    flows: PerFlow<Carried>,
    /// The window towards the NIC belongs to the connection, and so do the time and the direction of its last change;
    /// these fields of `flows` are ignored. If each flow considered only the changes made by its own responses, each
    /// flow would change the window once per round trip.
    nic_marker: Ticks,
    nic_grew: bool,
    /// Also common to all flows, because Swift uses it for the shares of resources.
    metadata: u32,
}

impl CarriedState {
    fn new(flows: usize) -> Self {
        let flows = PerFlow::new(flows, |_| Carried::default());
        Self { flows, nic_marker: Ticks::ZERO, nic_grew: false, metadata: 0 }
    }

    /// Returns the state that the next event of `flow` carries.
    fn for_flow(&self, flow: u8) -> Carried {
        let Self { nic_marker, nic_grew, metadata, .. } = *self;
        Carried { nic_marker, nic_grew, metadata, ..self.flows[flow] }
    }

    fn store(&mut self, flow: u8, carried: Carried) {
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
    /// Creates a connection without any traffic, which the driver identifies by `driver_id`.
    ///
    /// # Errors
    /// Returns an error if the adaptive engine has no space for another connection.
    pub fn new(config: &ConnectionConfig, adaptive: &mut AdaptiveEngine, driver_id: u32) -> Result<Self, FaeError> {
        let [local_rsn, peer_rsn] = config.first_rsn;
        let number = adaptive.enter(driver_id)?;
        let flows = usize::from(config.delivery.flows);
        let mut connection = Self {
            transactions: Transactions::between(config.transactions, local_rsn, peer_rsn),
            delivery: Delivery::with_policies(&config.delivery, adaptive.policies_of(&config.delivery)),
            admissions: PerFlow::new(flows, |_| FlowAdmission::default()),
            number,
            is_first_event_pending: true,
            carried: adaptive.is_stateless().then(|| Box::new(CarriedState::new(flows))),
            kept: LazyQueue::new(),
        };
        let first = adaptive.first();
        let flows = config.delivery.flows;
        // No round trip was measured yet, so the recovery policy's timeout applies; packets are retransmitted after
        // that time without an acknowledgement, and losses are not detected sooner.
        let rto = Ticks::of(connection.delivery.rto());
        for flow in 0..flows {
            let fcwnd = first.fcwnd.share(flow, flows);
            // If the engine leaves these times to the recovery policy, it does so from the start.
            let initial_wait = |time: Ticks| if time == Ticks::ZERO { time } else { rto };
            let (rack, tlp) = (initial_wait(first.rack), initial_wait(first.tlp));
            connection.apply_flow_actions(flow, &FlowActions { fcwnd, rto, rack, tlp, ..*first });
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

    /// Records the last period in which the driver did not call the connection. If timeouts are based on measured round
    /// trips, the timers that were running in this period are extended by it. Call this before [`Connection::receive`]
    /// and [`Connection::expire`].
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
    /// See [`Transactions::submit`].
    #[inline]
    pub fn submit(&mut self, resources: &mut Resources, submission: &Submission) -> Result<Rsn, SubmitError> {
        self.transactions.submit(resources, submission)
    }

    /// See [`Transactions::respond`].
    ///
    /// # Errors
    /// See [`Transactions::respond`].
    #[inline]
    pub fn respond(
        &mut self,
        resources: &mut Resources,
        rsn: Rsn,
        response: &PullResponse,
    ) -> Result<(), RespondError> {
        self.transactions.respond(resources, rsn, response)
    }

    /// See [`Transactions::acknowledge`].
    ///
    /// # Errors
    /// See [`Transactions::acknowledge`].
    pub fn acknowledge(&mut self, now: Time, rsn: Rsn) -> Result<(), RespondError> {
        self.transactions.acknowledge(rsn)?;
        self.settle(now);
        Ok(())
    }

    /// See [`Transactions::refuse`].
    ///
    /// # Errors
    /// See [`Transactions::refuse`].
    pub fn refuse(&mut self, now: Time, rsn: Rsn, code: NackCode) -> Result<(), RespondError> {
        self.transactions.refuse(rsn, code)?;
        self.settle(now);
        Ok(())
    }

    /// Calls `work`, in which an upper layer performs several operations on the transaction layer, and then reports
    /// the transactions that it settled to the delivery layer.
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

    /// Same as [`Connection::transmit`], with the packet written to `packet`. If no packet is sent, `packet` may have
    /// been modified.
    #[inline]
    pub fn transmit_into<U: UpperLayer>(
        &mut self,
        now: Time,
        packet: &mut Packet,
        resources: &mut Resources,
        ulp: &mut U,
    ) -> Option<DepartureInfo> {
        let mut layer = Layer { transactions: &mut self.transactions, resources, ulp };
        self.delivery.transmit_into(now, packet, &mut layer)
    }

    /// Returns `true` if [`Connection::transmit`] would have a packet to send, without considering pacing. If not,
    /// the connection need not be checked again before a packet arrives, a timer is due, or a request or response is
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

    /// Prefetches memory that is needed to process a packet of this connection and that is not part of the connection
    /// itself, including its state in `adaptive`.
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
        if self.delivery.is_terminated() && !layer.transactions.is_terminated() {
            layer.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
            layer.terminate(now);
        }
        self.settle(now);
    }

    /// Resumes delivery of requests to the upper layer, which was busy and now accepts requests again.
    pub fn resume<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        Layer { transactions: &mut self.transactions, resources, ulp }.resume(now);
        self.settle(now);
    }

    /// Terminates the connection: every local transaction completes in error, held resources are released, and no
    /// packet is sent or accepted any more.
    pub fn terminate<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        self.delivery.terminate();
        if !self.transactions.is_terminated() {
            self.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
            Layer { transactions: &mut self.transactions, resources, ulp }.terminate(now);
        }
    }

    /// Handles a permanent failure of the upper layer, see [`Transactions::refuse_all`].
    pub fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        self.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
        self.transactions.refuse_all(resources, code);
    }

    /// Returns, each once, the requests of a dead connection, or of one whose upper layer has failed, whose payload
    /// was stored for later delivery and is not needed any more.
    pub fn take_kept_requests(&mut self) -> impl Iterator<Item = Rsn> {
        core::iter::from_fn(|| self.kept.pop_front())
    }

    /// Releases the connection's number in the adaptive engine. The connection must not use `adaptive` afterwards.
    pub fn deregister(&mut self, adaptive: &mut AdaptiveEngine) {
        adaptive.deregister(self.number);
    }

    /// Returns `true` if the connection has failed permanently.
    #[inline]
    pub fn is_terminated(&self) -> bool {
        self.delivery.is_terminated()
    }

    /// Returns the time at which [`Connection::expire`] must be called, including due times of acknowledgements.
    #[inline]
    pub fn timeout(&self) -> Option<Time> {
        match (self.delivery.timeout(), self.transactions.next_timeout()) {
            (Some(delivery), Some(transactions)) => Some(delivery.min(transactions)),
            (delivery, transactions) => delivery.or(transactions),
        }
    }

    /// Returns the time at which [`Connection::expire`] must be called even if [`Connection::transmit`] is called
    /// earlier.
    #[inline]
    pub fn expiry(&self) -> Option<Time> {
        match (self.delivery.expiry(), self.transactions.next_timeout()) {
            (Some(delivery), Some(transactions)) => Some(delivery.min(transactions)),
            (delivery, transactions) => delivery.or(transactions),
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
                PacketDecision::Acknowledged(received) => self.delivery.acknowledge(now, received),
                PacketDecision::Refused(received, code) => self.delivery.refuse(received, code),
            }
        }
    }

    /// Returns `true` if there are reports for the adaptive engine.
    #[inline]
    pub fn has_reports(&self) -> bool {
        self.delivery.has_signal()
    }

    /// Passes the reports to the adaptive engine; responses available immediately are applied immediately.
    #[inline]
    pub fn report_to_fae(&mut self, now: Time, resources: &Resources, adaptive: &mut AdaptiveEngine) {
        while let Some(mut report) = self.delivery.signal() {
            report.occupancy = resources.rx_level();
            let flow = report.flow;
            let mut event = Event {
                connection: self.number,
                first: self.is_first_event_pending,
                queue: 0,
                report,
                carried: Carried::default(),
            };
            if let Some(carried) = &self.carried {
                // The windows are part of the state. When several reports are passed together, the later ones were
                // created before the response to the first, so they need the current windows.
                (event.report.in_force.fcwnd, event.report.in_force.ncwnd) = self.delivery.windows(flow);
                event.carried = carried.for_flow(flow);
            }
            let Ok(answer) = adaptive.offer(now, &mut self.admissions[flow], &event) else { continue };
            self.is_first_event_pending = false;
            if let Some(response) = answer {
                self.apply_actions(flow, &response);
            }
        }
    }

    /// Applies a response of the adaptive engine that was not available immediately.
    pub fn apply_response(&mut self, response: &Response) {
        self.admissions[response.flow].note_response();
        self.apply_actions(response.flow, response);
    }

    #[inline]
    fn apply_actions(&mut self, flow: u8, response: &Response) {
        if let Some(carried) = &mut self.carried {
            carried.store(flow, response.carried);
        }
        self.apply_flow_actions(flow, &response.actions);
    }

    fn apply_flow_actions(&mut self, flow: u8, actions: &FlowActions) {
        self.delivery.apply_response(flow, actions);
        let alpha = |alpha: rnic_policy::control::report::Alpha| Alpha::from_shift(alpha.get());
        self.transactions.set_alphas(alpha(actions.alpha_requests), alpha(actions.alpha_responses));
    }

    /// Returns the connection's window: the sum over all flows.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.delivery.fcwnd()
    }
}
