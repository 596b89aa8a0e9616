//! One connection, whole: both layers, and the gates of its flows to the adaptive engine.
//!
//! Source: Falcon (SIGCOMM'25) figure 2. What the connections of a NIC share ([`Resources`], the adaptive engine, the
//! wheel, the ring of those that can send) belongs to whoever drives them, and comes in with each call.
//!
//! Whoever drives it:
//!
//! * hands in requests with [`Connection::submit`] and what its upper layer answers with [`Connection::answer`];
//! * gives it what arrives ([`Connection::receive`]), and calls [`Connection::transmit`] until nothing leaves;
//! * calls [`Connection::expire`] at [`Connection::timeout`], and [`Connection::transmit`] at
//!   [`Connection::departure`];
//! * after each of these, calls [`Connection::consult`], and brings answers that come later ([`Connection::obey`]).
//!
//! What is settled above is told below before a call returns; a connection that is dead below dies above.

use rnic_base::{Absence, RareQueue, Time, near_whole};
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
    /// How the adaptive engine knows it.
    number: u32,
    /// The adaptive engine has not heard of it.
    is_fresh: bool,
    /// Where the adaptive engine keeps nothing. Nowhere else is there memory for it.
    carried: Option<Box<Travelling>>,
    /// Requests whose payload was kept when it died, or when its upper layer failed.
    kept: RareQueue<Rsn>,
}

/// What the last answers brought, for the next event to take along.
#[derive(Debug)]
struct Travelling {
    flows: PerFlow<Carried>,
    /// The window towards the NIC is the connection's, and so is when it last changed and in which direction: of
    /// `flows` it does not count. Would each flow know that of its own answers alone, each would change the window
    /// once a round trip.
    nic_marker: Ticks,
    nic_grew: bool,
    /// So are shares of resources, which is what Swift has it for.
    metadata: u32,
}

impl Travelling {
    fn new(flows: usize) -> Self {
        let flows = PerFlow::new(flows, |_| Carried::default());
        Self { flows, nic_marker: Ticks::ZERO, nic_grew: false, metadata: 0 }
    }

    /// What the next event of `flow` takes along.
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

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// Of the transaction layer.
    pub transactions: TransactionConfig,
    /// Of the packet delivery layer.
    pub delivery: DeliveryConfig,
    /// The number of our first request, and of the peer's.
    pub first_rsn: [Rsn; 2],
}

impl Connection {
    /// A connection on which nothing has happened, called `name` by its driver.
    ///
    /// # Errors
    /// When the adaptive engine has no room for one more.
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
            kept: RareQueue::new(),
        };
        let first = adaptive.first();
        let flows = config.delivery.flows;
        // Nothing was measured, so the recovery policy's timeout stands; who hears nothing for that long sends again,
        // and looks for losses no sooner.
        let rto = Ticks::of(connection.delivery.rto());
        for flow in 0..flows {
            let fcwnd = first.fcwnd.share(flow, flows);
            // Who leaves times to the recovery policy leaves them to it from the beginning.
            let first_wait = |set: Ticks| if set == Ticks::ZERO { set } else { rto };
            let (rack, tlp) = (first_wait(first.rack), first_wait(first.tlp));
            connection.take_actions(flow, &FlowActions { fcwnd, rto, rack, tlp, ..*first });
        }
        Ok(connection)
    }

    /// The transaction layer, to look at.
    #[inline]
    pub const fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// The packet delivery layer, to look at.
    #[inline]
    pub const fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// See [`Delivery::set_attempts_max`].
    pub fn set_attempts_max(&mut self, attempts_max: u16) {
        self.delivery.set_attempts_max(attempts_max);
    }

    /// Says when nobody drove the connection last: waits that this fell into are extended, where timeouts follow what
    /// is measured. To be called before [`Connection::receive`] and [`Connection::expire`].
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

    /// Lets an upper layer do several things with the transaction layer.
    pub fn work<R>(&mut self, now: Time, work: impl FnOnce(&mut Transactions) -> R) -> R {
        let result = work(&mut self.transactions);
        self.settle(now);
        result
    }

    /// See [`Delivery::set_room`].
    #[inline]
    pub fn set_room(&mut self, packets: u64) {
        self.delivery.set_room(packets);
    }

    /// See [`Transactions::withdraw`].
    pub fn withdraw(&mut self, context: Context) {
        self.transactions.withdraw(context);
    }

    /// Takes in a packet that arrives now.
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

    /// The next packet that may leave now.
    #[inline]
    pub fn transmit<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) -> Option<Departure> {
        let mut layer = Layer { transactions: &mut self.transactions, resources, ulp };
        self.delivery.transmit(now, &mut layer)
    }

    /// As [`Connection::transmit`], with the packet written to `packet`. When none leaves, that may have been touched.
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

    /// Whether [`Connection::transmit`] would have something to hand out, if it is not for its pacing. What has nothing
    /// need not be asked before something arrives, is due, is submitted or is answered.
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

    /// Has what a packet of this connection needs brought near, as far as it lies apart from the connection; its state
    /// in `adaptive` is among that.
    #[inline]
    pub fn touch_apart(&self, adaptive: Option<&AdaptiveEngine>) {
        self.transactions.touch_apart();
        self.delivery.touch_apart();
        if let Some(carried) = &self.carried {
            near_whole(&**carried);
        }
        if let Some(adaptive) = adaptive {
            adaptive.touch_state(self.number);
        }
    }

    /// Does what is due.
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

    /// The upper layer, which was busy, takes requests again.
    pub fn resume<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        Layer { transactions: &mut self.transactions, resources, ulp }.resume(now);
        self.settle(now);
    }

    /// Ends: every transaction of ours ends in error, what is held goes back, nothing more is sent or taken.
    pub fn die<U: UpperLayer>(&mut self, now: Time, resources: &mut Resources, ulp: &mut U) {
        self.delivery.die();
        if !self.transactions.is_dead() {
            self.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
            Layer { transactions: &mut self.transactions, resources, ulp }.die(now);
        }
    }

    /// The upper layer has failed for good, see [`Transactions::refuse_all`].
    pub fn refuse_all(&mut self, resources: &mut Resources, code: NackCode) {
        self.transactions.kept().for_each(|rsn| self.kept.push_back(rsn));
        self.transactions.refuse_all(resources, code);
    }

    /// Of a connection that is dead, or whose upper layer has failed: the requests whose payload was kept for their
    /// turn, and is nothing to anybody any more; each once.
    pub fn take_kept(&mut self) -> impl Iterator<Item = Rsn> {
        core::iter::from_fn(|| self.kept.pop_front())
    }

    /// Gives the number back to the adaptive engine: nothing is asked of it after this.
    pub fn leave(&mut self, adaptive: &mut AdaptiveEngine) {
        adaptive.leave(self.number);
    }

    /// Whether it has failed for good.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.delivery.is_dead()
    }

    /// When [`Connection::expire`] is to be called; acknowledgements wait for it too.
    #[inline]
    pub fn timeout(&self) -> Option<Time> {
        match (self.delivery.timeout(), self.transactions.next_timeout()) {
            (Some(below), Some(above)) => Some(below.min(above)),
            (below, above) => below.or(above),
        }
    }

    /// When [`Connection::expire`] is to be called even if [`Connection::transmit`] will be before.
    #[inline]
    pub fn expiry(&self) -> Option<Time> {
        match (self.delivery.expiry(), self.transactions.next_timeout()) {
            (Some(below), Some(above)) => Some(below.min(above)),
            (below, above) => below.or(above),
        }
    }

    /// When a packet that is ready and too early may leave.
    #[inline]
    pub fn departure(&self) -> Option<Time> {
        self.delivery.departure()
    }

    /// What the upper layer has settled is told below.
    fn settle(&mut self, now: Time) {
        while let Some(settled) = self.transactions.settled() {
            match settled {
                Settled::Acknowledged(received) => self.delivery.acknowledge(now, received),
                Settled::Refused(received, code) => self.delivery.refuse(received, code),
            }
        }
    }

    /// Whether there are reports for the adaptive engine.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.delivery.has_signal()
    }

    /// Takes reports to the adaptive engine; answers that come at once are heeded at once.
    #[inline]
    pub fn consult(&mut self, now: Time, resources: &Resources, adaptive: &mut AdaptiveEngine) {
        while let Some(mut report) = self.delivery.signal() {
            report.occupancy = resources.rx_level();
            let flow = report.flow;
            let mut event =
                Event { connection: self.number, first: self.is_fresh, queue: 0, report, carried: Carried::default() };
            if let Some(carried) = &self.carried {
                // Its windows are state too, and of several reports that come together the later ones were made
                // before the first was answered.
                (event.report.in_force.fcwnd, event.report.in_force.ncwnd) = self.delivery.windows(flow);
                event.carried = carried.of(flow);
            }
            let Ok(answer) = adaptive.offer(now, &mut self.gates[flow], &event) else { continue };
            self.is_fresh = false;
            if let Some(response) = answer {
                self.heed(flow, &response);
            }
        }
    }

    /// An answer of the adaptive engine has come.
    pub fn obey(&mut self, response: &Response) {
        self.gates[response.flow].answered();
        self.heed(response.flow, response);
    }

    #[inline]
    fn heed(&mut self, flow: u8, response: &Response) {
        if let Some(carried) = &mut self.carried {
            carried.keep(flow, response.carried);
        }
        self.take_actions(flow, &response.actions);
    }

    fn take_actions(&mut self, flow: u8, actions: &FlowActions) {
        self.delivery.obey(flow, actions);
        let alpha = |alpha: rnic_policy::control::report::Alpha| Alpha::from_shift(alpha.get());
        self.transactions.set_alphas(alpha(actions.alpha_requests), alpha(actions.alpha_responses));
    }

    /// The connection's window, of all flows.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.delivery.fcwnd()
    }
}
