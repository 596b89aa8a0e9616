//! The real transaction layer above the delivery layer, and a load that gives it work.

use rnic_base::Time;
use rnic_falcon::delivery::Delivery;
use rnic_falcon::interface::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{Layer, PacketDecision, TransactionConfig, Transactions, UpperLayer};
use rnic_wire::falcon::{NackCode, Packet, Rsn};

/// The upper layer of a test: submits transactions and handles incoming requests.
pub trait Load {
    type Ulp: UpperLayer;

    /// The upper layer that transactions have.
    fn ulp(&mut self) -> &mut Self::Ulp;

    /// Hands in what there is room for, acknowledges and answers.
    fn work(&mut self, now: Time, transactions: &mut Transactions, resources: &mut Resources);

    /// Returns whether the upper layer was busy until now and accepts requests again.
    fn is_free_again(&mut self, _: Time) -> bool {
        false
    }

    /// When it has something to do.
    fn wake(&self, transactions: &Transactions, resources: &Resources) -> Option<Time>;
}

/// Everything above the delivery layer at one end.
#[derive(Debug)]
pub struct Stack<L> {
    pub transactions: Transactions,
    pub resources: Resources,
    pub load: L,
}

impl<L: Load> Stack<L> {
    /// Both ends count transactions from `first` on.
    pub fn new(config: TransactionConfig, first: Rsn, resources: ResourceConfig, load: L) -> Self {
        Self { transactions: Transactions::new(config, first), resources: Resources::new(resources), load }
    }

    fn layer(&mut self) -> Layer<'_, L::Ulp> {
        let Self { transactions, resources, load } = self;
        Layer { transactions, resources, ulp: load.ulp() }
    }
}

impl<L: Load> super::link::Above for Stack<L> {
    fn work(&mut self, now: Time, delivery: &mut Delivery) {
        self.load.work(now, &mut self.transactions, &mut self.resources);
        if self.load.is_free_again(now) {
            self.layer().resume(now);
        }
        self.layer().tick(now);
        while let Some(settled) = self.transactions.settled() {
            match settled {
                PacketDecision::Acknowledged(received) => delivery.acknowledge(now, received),
                PacketDecision::Refused(received, code) => delivery.refuse(received, code),
            }
        }
    }

    fn wake(&self) -> Option<Time> {
        let own = self.load.wake(&self.transactions, &self.resources);
        [own, self.transactions.next_timeout()].into_iter().flatten().min()
    }
}

impl<L: Load> Upper for Stack<L> {
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing> {
        self.layer().next(now, open)
    }

    fn retransmission(&mut self, now: Time, context: Context) -> Outgoing {
        self.layer().retransmission(now, context)
    }

    fn acked(&mut self, now: Time, context: Context) {
        self.layer().acked(now, context);
    }

    fn nacked(&mut self, now: Time, context: Context, code: NackCode) {
        self.layer().nacked(now, context, code);
    }

    fn exhausted(&mut self, now: Time, context: Context) -> Exhausted {
        self.layer().exhausted(now, context)
    }

    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        self.layer().offer(now, packet)
    }

    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode> {
        self.layer().duplicate(now, packet)
    }

    fn rx_level(&self) -> u8 {
        self.resources.rx_level()
    }
}
