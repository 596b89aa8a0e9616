//! A load of Pushes: a host that takes them at a certain speed, and a sender that always has more to send.

use rnic_base::{Duration, Serial, Time};
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{
    Completion, Kind, PullReply, PushReply, Request, Submission, TransactionConfig, Transactions, UpperLayer,
};
use rnic_wire::falcon::{Rsn, Ulp};

use super::driver::TRANSACTIONS;
use super::stack::{Load, Stack};

/// Bytes of a Push.
pub const LENGTH: u16 = 4_096;

/// Upper layer of a host that accepts Pushes at a limited rate.
#[derive(Debug)]
pub struct Doorway {
    /// Time that the host needs for a Push; zero for a host that is never busy.
    pub service: Duration,
    free_at: Time,
    is_busy: bool,
    pub taken: Vec<Rsn>,
    pub completed: u64,
    /// Pushes still to be handed in.
    to_send: u64,
}

impl UpperLayer for Doorway {
    fn push(&mut self, now: Time, request: &Request) -> PushReply {
        if now < self.free_at {
            self.is_busy = true;
            return PushReply::Busy;
        }
        self.free_at = now + self.service;
        self.taken.push(request.rsn);
        PushReply::Done
    }

    fn pull(&mut self, _: Time, _: &Request) -> PullReply {
        panic!("no Pull is expected")
    }

    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, _: &Completion) {
        self.completed += 1;
    }
}

/// Everything above the delivery layer at one end.
pub type Host = Stack<Doorway>;

impl Host {
    /// An ordered connection's end, which hands in `to_send` Pushes.
    pub fn sending(to_send: u64, resources: ResourceConfig) -> Self {
        let timeout = Duration::from_secs(1_000);
        let config = TransactionConfig { mtu: LENGTH, outstanding: 512, timeout, ..TRANSACTIONS };
        let (service, free_at) = (Duration::ZERO, Time::ZERO);
        let door = Doorway { service, free_at, is_busy: false, taken: Vec::new(), completed: 0, to_send };
        Self::new(config, Serial::new(0), resources, door)
    }
}

impl Load for Doorway {
    type Ulp = Self;

    fn ulp(&mut self) -> &mut Self {
        self
    }

    fn work(&mut self, _: Time, transactions: &mut Transactions, resources: &mut Resources) {
        while self.to_send > 0 {
            let (kind, payload_len) = (Kind::Push, u32::from(LENGTH));
            let submission =
                Submission { kind, length: LENGTH, payload_len, ulp: None, tag: self.to_send, continues: false };
            if transactions.submit(resources, &submission).is_err() {
                break;
            }
            self.to_send -= 1;
        }
    }

    fn is_free_again(&mut self, now: Time) -> bool {
        let is_free_again = self.is_busy && now >= self.free_at;
        self.is_busy &= !is_free_again;
        is_free_again
    }

    fn wake(&self, transactions: &Transactions, _: &Resources) -> Option<Time> {
        // As soon as a transaction is in progress, the event that makes room for the next one also wakes this end.
        let now = (self.to_send > 0 && transactions.is_idle()).then_some(Time::ZERO);
        let door = self.is_busy.then_some(self.free_at);
        [now, door].into_iter().flatten().min()
    }
}
