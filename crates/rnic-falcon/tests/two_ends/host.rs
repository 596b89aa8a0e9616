//! The real transaction layer above the delivery layer, with a host that takes Pushes at a certain speed, and a sender
//! that always has more to send.

use rnic_base::{Duration, Serial, Time};
use rnic_falcon::delivery::Delivery;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::seam::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};
use rnic_falcon::transaction::{
    Completion, Kind, Layer, Ordering, PullReply, PushReply, Request, Settled, Submission, TransactionConfig,
    Transactions, UpperLayer,
};
use rnic_wire::falcon::{NackCode, Packet, Rsn, Ulp, UlpProtocol};

/// Bytes of a Push.
pub const LENGTH: u16 = 4_096;

/// The way into the host.
#[derive(Debug)]
pub struct Doorway {
    /// How long a Push takes to get in; zero for a host that is never busy.
    pub service: Duration,
    free_at: Time,
    is_busy: bool,
    pub taken: Vec<Rsn>,
    pub completed: u64,
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
        panic!("nobody pulls here")
    }

    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, _: &Completion) {
        self.completed += 1;
    }
}

/// One end.
#[derive(Debug)]
pub struct Host {
    pub transactions: Transactions,
    pub resources: Resources,
    pub door: Doorway,
    /// Pushes still to be handed in.
    pub to_send: u64,
}

impl Host {
    /// An ordered connection's end.
    pub fn new(resources: ResourceConfig, to_send: u64) -> Self {
        let config = TransactionConfig {
            ordering: Ordering::Ordered,
            protocol: UlpProtocol::Rdma,
            mtu: LENGTH,
            outstanding: 512,
            timeout: Duration::from_secs(1_000),
            isolation: Isolation::None,
        };
        let door =
            Doorway { service: Duration::ZERO, free_at: Time::ZERO, is_busy: false, taken: Vec::new(), completed: 0 };
        let transactions = Transactions::new(config, Serial::new(0));
        Self { transactions, resources: Resources::new(resources), door, to_send }
    }

    fn layer(&mut self) -> Layer<'_, Doorway> {
        Layer { transactions: &mut self.transactions, resources: &mut self.resources, ulp: &mut self.door }
    }
}

impl super::link::Above for Host {
    fn work(&mut self, now: Time, delivery: &mut Delivery) {
        while self.to_send > 0 {
            let (kind, payload_len) = (Kind::Push, u32::from(LENGTH));
            let submission =
                Submission { kind, length: LENGTH, payload_len, ulp: None, tag: self.to_send, continues: false };
            if self.transactions.submit(&mut self.resources, &submission).is_err() {
                break;
            }
            self.to_send -= 1;
        }
        if self.door.is_busy && now >= self.door.free_at {
            self.door.is_busy = false;
            self.layer().resume(now);
        }
        self.layer().tick(now);
        while let Some(settled) = self.transactions.settled() {
            match settled {
                Settled::Acknowledged(received) => delivery.acknowledge(now, received),
                Settled::Refused(received, code) => delivery.refuse(received, code),
            }
        }
    }

    fn wake(&self) -> Option<Time> {
        // Once something is under way, whatever makes room for more wakes us.
        let now = (self.to_send > 0 && self.transactions.is_idle()).then_some(Time::ZERO);
        let door = self.door.is_busy.then_some(self.door.free_at);
        [now, door, self.transactions.next_timeout()].into_iter().flatten().min()
    }
}

impl Upper for Host {
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing> {
        self.layer().next(now, open)
    }

    fn again(&mut self, now: Time, context: Context) -> Outgoing {
        self.layer().again(now, context)
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
