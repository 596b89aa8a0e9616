//! A receiver that is not ready (F-7): the sender's behaviour when NACKs arrive late, twice, or for packets that are
//! no longer outstanding.

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
    departure.packet.body.psn().expect("requests have a PSN").value()
}

/// A sender and its upper layer; the test acts as the peer.
struct Sender {
    delivery: Delivery,
    upper: Counting,
}

impl Sender {
    /// A sender that has sent `count` Push Data at [`START`].
    fn of(count: u32) -> Self {
        let mut sender = Self { delivery: Delivery::new(config()), upper: Counting::new() };
        sender.upper.pushes(count);
        assert_eq!(sender.leaving(START).len(), count as usize);
        sender
    }

    /// Returns the numbers of the packets sent at `now`.
    fn leaving(&mut self, now: Time) -> Vec<u32> {
        self.delivery.expire(now, &mut self.upper);
        std::iter::from_fn(|| self.delivery.transmit(now, &mut self.upper)).map(|left| psn(&left)).collect()
    }

    /// Delivers a NACK for Push Data `number` that echoes the packet sent at `echoed`.
    fn refuse(&mut self, now: Time, number: u32, code: NackCode, echoed: Time) {
        // Both bases are 0: the packet acknowledges nothing.
        let packet = Packet { body: refusal(number, code, echoed), ..ack(0, 0, echoed, now) };
        give(&mut self.delivery, &mut self.upper, now, packet);
    }
}

fn not_ready(wait: Duration) -> NackCode {
    NackCode::NotReady { timeout: RnrTimer::at_least(wait) }
}

/// A packet whose retransmission is delayed by a window also waits for the time in a NACK that says its receiver is
/// not ready.
#[test]
fn f7_a_nack_applies_to_a_packet_that_waits_for_retransmission() {
    let mut sender = Sender::of(6);
    sender.delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::ONE), ..Default::default() });
    let refused = START + RTO;
    assert_eq!(sender.leaving(refused), [0], "all have timed out, and one may be sent");
    sender.refuse(refused, 5, not_ready(RTO * 10), START);
    assert_eq!(sender.upper.not_ready, 1);
    sender.delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(6)), ..Default::default() });
    assert_eq!(sender.leaving(refused), [1, 2, 3, 4]);
    assert!(!sender.leaving(refused + RTO * 9).contains(&5));
    assert!(sender.leaving(refused + RTO * 11).contains(&5));
}

/// A NACK echoes the packet that arrived last, which may have been sent before the refused one and been overtaken by
/// it. If only one copy of the refused packet was sent, the NACK can mean no other.
#[test]
fn f7_a_nack_applies_to_a_packet_that_has_overtaken_another() {
    let mut sender = Sender::of(1);
    let later = START + RTO / 4;
    sender.upper.pushes(1);
    assert_eq!(sender.leaving(later), [1]);
    sender.refuse(START + RTO / 2, 1, not_ready(RTO * 2), START);
    assert_eq!(sender.upper.not_ready, 1);
}

/// Retransmissions wait for room in ncwnd (ORRC): a refused packet uses none while it waits, otherwise a packet lost
/// after it would never be retransmitted.
#[test]
fn f7_f18_a_refused_packet_does_not_block_a_lost_packet() {
    let mut sender = Sender::of(2);
    sender.delivery.apply(0, &ControlSettings { ncwnd: Some(1), ..Default::default() });
    let first = START + RTO;
    assert_eq!(sender.leaving(first), [0], "both have timed out, and one may be sent");
    sender.refuse(first + RTO / 4, 0, not_ready(RTO * 20), first);
    assert_eq!(sender.leaving(first + RTO / 4), [1]);
}

/// If the network duplicates a NACK, the second one delays the packet at most once more and does not count as another
/// refusal.
#[test]
fn f7_a_duplicated_nack_counts_once() {
    let mut sender = Sender::of(1);
    let (code, refused) = (not_ready(RTO * 2), START + RTO / 2);
    sender.refuse(refused, 0, code, START);
    sender.refuse(refused, 0, code, START);
    assert_eq!(sender.upper.not_ready, 1, "the second NACK is a duplicate");
    let second = refused + RTO * 3;
    assert_eq!(sender.leaving(second), [0]);
    sender.refuse(second, 0, code, START);
    assert_eq!(sender.upper.not_ready, 1, "the NACK is for the first transmission");
    let third = second + RTO * 3;
    assert_eq!(sender.leaving(third), [0]);
    sender.refuse(third + RTO / 2, 0, code, third);
    assert_eq!(sender.upper.not_ready, 2);
}

/// A Resync has replaced the packet: it does not wait for the receiver that was not ready for the packet.
#[test]
fn f7_f8_a_not_ready_nack_after_a_resync_has_no_effect() {
    let mut sender = Sender::of(1);
    let at = START + RTO / 2;
    sender.refuse(at, 0, NackCode::CompleteInError { ulp: 7 }, START);
    assert_eq!(sender.leaving(at), [0]);
    sender.refuse(at, 0, not_ready(RTO * 10), START);
    assert_eq!(sender.upper.not_ready, 0);
    assert_eq!(sender.leaving(at + RTO), [0], "a Resync has the normal timeout");
}

/// Acknowledgements report that the packet has arrived, but this may be the refused copy. A sender that gets no
/// acknowledgement of the next copy therefore repeats it after the timeout, not after the longer time granted to an
/// upper layer.
#[test]
fn f7_probe3_the_next_copy_is_retransmitted_after_the_timeout() {
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
    // Later packets are acknowledged in bitmaps that include the refused copy.
    for _ in 0..8 {
        link.ends[0].upper.pushes(1);
        link.run_for(RTO / 2);
    }
    let left = link.ends[0].left(PacketType::PushData);
    let copies: Vec<Time> = left.iter().filter(|(_, departure)| psn(departure) == 0).map(|(at, _)| *at).collect();
    assert!(copies.len() >= 3, "{copies:?}");
    let waited = copies[2].since(copies[1]);
    assert!(waited >= RTO && waited < RTO * 2, "{waited}");
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0, "the peer is alive");
}
