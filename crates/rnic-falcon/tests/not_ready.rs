//! A receiver that is not ready (F-7): what its sender does when refusals come late, twice, or for what is no more.

mod two_ends;

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{ControlSettings, Delivery, DeliveryConfig, Departure};
use rnic_policy::Cwnd;
use rnic_wire::falcon::{NackCode, Packet, PacketType, RnrTimer};
use two_ends::link::{LOST, Link, after};
use two_ends::packets::{ack, give, refusal};
use two_ends::upper::{Acknowledging, Counting};
use two_ends::{config_of, tune};

const RTO: Duration = Duration::from_ms(1);
const START: Time = Time::from_us(1_000);

/// A timeout of 1 ms, and nothing else that would send a packet again.
fn config() -> DeliveryConfig {
    let mut config = config_of("timeout-only", "ecmp");
    tune(&mut config, "rto", "1ms");
    config
}

fn psn(departure: &Departure) -> u32 {
    departure.packet.body.psn().expect("requests have one").value()
}

/// A sender and those above it, whose peer is the test.
struct Sender {
    delivery: Delivery,
    upper: Counting,
}

impl Sender {
    /// `count` Push Data have left at [`START`].
    fn of(count: u32) -> Self {
        let mut sender = Self { delivery: Delivery::new(config()), upper: Counting::new() };
        sender.upper.pushes(count);
        assert_eq!(sender.leaving(START).len(), count as usize);
        sender
    }

    /// What leaves at `now`.
    fn leaving(&mut self, now: Time) -> Vec<u32> {
        self.delivery.expire(now, &mut self.upper);
        std::iter::from_fn(|| self.delivery.transmit(now, &mut self.upper)).map(|left| psn(&left)).collect()
    }

    /// Push Data `number` is refused, in a NACK that echoes what left at `echoed`.
    fn refuse(&mut self, now: Time, number: u32, code: NackCode, echoed: Time) {
        // No bases but the first: nothing is acknowledged by it.
        let packet = Packet { body: refusal(number, code, echoed), ..ack(0, 0, echoed, now) };
        give(&mut self.delivery, &mut self.upper, now, packet);
    }
}

fn not_ready(wait: Duration) -> NackCode {
    NackCode::NotReady { timeout: RnrTimer::at_least(wait) }
}

/// What a gate keeps from leaving again waits for its receiver, too, when that was not ready for it.
#[test]
fn f7_a_refusal_counts_for_what_waits_for_its_turn() {
    let mut sender = Sender::of(6);
    sender.delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::ONE), ..Default::default() });
    let refused = START + RTO;
    assert_eq!(sender.leaving(refused), [0], "all have timed out, and one may leave");
    sender.refuse(refused, 5, not_ready(RTO * 10), START);
    assert_eq!(sender.upper.not_ready, 1);
    sender.delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(6)), ..Default::default() });
    assert_eq!(sender.leaving(refused), [1, 2, 3, 4]);
    assert!(!sender.leaving(refused + RTO * 9).contains(&5));
    assert!(sender.leaving(refused + RTO * 11).contains(&5));
}

/// A NACK echoes the packet that has come last, which may have left before the one that is refused, and been overtaken.
/// Of the only copy that there is no other can be meant.
#[test]
fn f7_the_refusal_of_a_packet_that_has_overtaken_another_counts() {
    let mut sender = Sender::of(1);
    let later = START + RTO / 4;
    sender.upper.pushes(1);
    assert_eq!(sender.leaving(later), [1]);
    sender.refuse(START + RTO / 2, 1, not_ready(RTO * 2), START);
    assert_eq!(sender.upper.not_ready, 1);
}

/// Packets that are sent again wait for ncwnd to have room (ORRC): what its receiver refuses takes none while it waits,
/// or what was lost behind it would never leave.
#[test]
fn f7_f18_what_was_refused_does_not_hold_back_what_was_lost() {
    let mut sender = Sender::of(2);
    sender.delivery.apply(0, &ControlSettings { ncwnd: Some(1), ..Default::default() });
    let first = START + RTO;
    assert_eq!(sender.leaving(first), [0], "both have timed out, and one may leave");
    sender.refuse(first + RTO / 4, 0, not_ready(RTO * 20), first);
    assert_eq!(sender.leaving(first + RTO / 4), [1]);
}

/// Of a NACK that the network has doubled, the second makes the packet wait once more at most, and refuses nothing.
#[test]
fn f7_a_refusal_that_comes_twice_counts_once() {
    let mut sender = Sender::of(1);
    let (code, refused) = (not_ready(RTO * 2), START + RTO / 2);
    sender.refuse(refused, 0, code, START);
    sender.refuse(refused, 0, code, START);
    assert_eq!(sender.upper.not_ready, 1, "it has not left since");
    let again = refused + RTO * 3;
    assert_eq!(sender.leaving(again), [0]);
    sender.refuse(again, 0, code, START);
    assert_eq!(sender.upper.not_ready, 1, "that is of the first");
    let third = again + RTO * 3;
    assert_eq!(sender.leaving(third), [0]);
    sender.refuse(third + RTO / 2, 0, code, third);
    assert_eq!(sender.upper.not_ready, 2);
}

/// A Resync has taken the packet's place: it does not wait for who was not ready for the packet.
#[test]
fn f7_f8_a_refusal_that_comes_behind_a_resync_changes_nothing() {
    let mut sender = Sender::of(1);
    let at = START + RTO / 2;
    sender.refuse(at, 0, NackCode::CompleteInError { ulp: 7 }, START);
    assert_eq!(sender.leaving(at), [0]);
    sender.refuse(at, 0, not_ready(RTO * 10), START);
    assert_eq!(sender.upper.not_ready, 0);
    assert_eq!(sender.leaving(at + RTO), [0], "its timeout is that of any packet");
}

/// Acknowledgements say that the packet has arrived, which may be the copy that was refused. So who does not hear of
/// the next one asks again after the timeout, not after what an upper layer may take.
#[test]
fn f7_probe3_the_next_copy_is_repeated_after_the_timeout() {
    let mut copies = 0;
    let rule = move |_, _, departure: &Departure| {
        let is_copy = departure.packet.body.packet_type() == PacketType::PushData && psn(departure) == 0;
        copies += u32::from(is_copy);
        if is_copy && copies == 2 { LOST } else { after(Duration::from_us(5)) }
    };
    let mut link = Link::new(config(), Box::new(rule));
    link.ends[1].upper.acknowledging = Acknowledging::After(Duration::from_us(1));
    link.ends[1].upper.refusals.insert(0, not_ready(RTO));
    link.ends[0].upper.pushes(1);
    link.run_for(RTO / 2);
    link.ends[1].upper.refusals.clear();
    // What comes behind it is acknowledged, in bitmaps that have the refused copy.
    for _ in 0..8 {
        link.ends[0].upper.pushes(1);
        link.run_for(RTO / 2);
    }
    let left = link.ends[0].left(PacketType::PushData);
    let copies: Vec<Time> = left.iter().filter(|(_, departure)| psn(departure) == 0).map(|(at, _)| *at).collect();
    assert!(copies.len() >= 3, "{copies:?}");
    let waited = copies[2].since(copies[1]);
    assert!(waited >= RTO && waited < RTO * 2, "{waited}");
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0, "the peer lives");
}
