//! Falcon's RACK-TLP beside the examples of RFC 8985, section 3.
//!
//! The link takes 5 us one way, and every packet is acknowledged.

mod two_ends;

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{AckRequestRule, Departure};
use rnic_policy::Cwnd;
use rnic_wire::falcon::PacketType;
use two_ends::link::{Fate, LOST, Link, after};
use two_ends::{config, micros, tune};

/// One-way delay.
const DELAY: Duration = Duration::from_us(5);

/// Returns a link whose packets ask for acknowledgements; the n-th transmission of packet p by end 0 has the fate
/// `fate(p, n)`.
fn link(fate: impl Fn(u32, usize) -> Fate + 'static) -> Link<'static> {
    let mut config = config();
    config.ack_request = AckRequestRule::ALWAYS;
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(64), 64);
    tune(&mut config, "rto", "200us");
    let mut sent = std::collections::BTreeMap::new();
    let rule = move |_, from, departure: &Departure| {
        let psn = departure.packet.body.psn().map(|psn| psn.value());
        match psn {
            Some(psn) if from == 0 && departure.packet.body.packet_type() == PacketType::PushData => {
                let times: &mut usize = sent.entry(psn).or_default();
                *times += 1;
                fate(psn, *times)
            }
            _ => after(DELAY),
        }
    };
    Link::new(config, Box::new(rule))
}

/// Returns the times at which end 0 sent packet `number`.
fn departures(link: &Link<'_>, number: u32) -> Vec<Time> {
    let is_it = |departure: &Departure| departure.packet.body.psn().is_some_and(|psn| psn.value() == number);
    let pushes = link.ends[0].left(PacketType::PushData);
    pushes.iter().filter(|(_, departure)| is_it(departure)).map(|(at, _)| *at).collect()
}

/// RFC 8985, section 3.4, figure 1. P0 to P3 are sent, and P1 to P3 lost. After two round trips a probe leaves; the
/// acknowledgement of the probe reveals the other two losses; one of these retransmissions is lost, and the
/// acknowledgement of the other one reveals it. No timeout, and eight transmissions.
///
/// Falcon's probe is on purpose another packet: the lowest that is missing (section 4.1 of its paper), P1, where TCP's
/// is the last one, P3. The probe thus reveals P2 and P3, and of these P2 is lost once more: the RFC has three
/// transmissions of P1, and two of P2 and P3; ours are three of P2, and two of P1 and P3. The probe waits for the
/// receiver's coalescing time too, of 8 us.
///
/// Packets leave 300 ns apart. The receiver echoes the time of a packet in units of 131 ns, of which the start counts:
/// of two retransmissions within a unit, the arrival of the later one does not reveal the loss of the earlier one, as
/// it does in TCP, which compares sequence numbers too; a second probe does.
#[test]
fn rfc8985_figure_1_a_lost_tail_and_a_lost_retransmission_without_a_timeout() {
    let mut link = link(|packet, times| match (packet, times) {
        (1..=3, 1) | (2, 2) => LOST,
        _ => after(DELAY),
    });
    link.packet_time = Duration::from_ns(300);
    link.ends[0].upper.pushes(4);
    link.run_for(micros(180));
    let counters = link.ends[0].delivery.counters();
    assert_eq!((counters.timeouts, counters.probes), (0, 1));
    let left = [0, 1, 2, 3].map(|packet| departures(&link, packet));
    assert_eq!(left.each_ref().map(Vec::len), [1, 2, 3, 2]);
    assert!(link.ends[0].upper.all_acked());
    let waited = left[1][1].since(left[3][0]);
    assert!(waited >= micros(28) && waited <= micros(40), "two round trips, and 8 us: {waited}");
    let revealed = left[2][1].since(left[1][1]);
    assert!(revealed >= micros(10) && revealed <= micros(14), "the acknowledgement of the probe: {revealed}");
    let again = left[2][2].since(left[2][1]);
    assert!(again >= micros(10) && again <= micros(14), "P2 is lost again, and P3 reveals it: {again}");
}

/// RFC 8985, section 3.5. A segment is outstanding, and two more are sent just before its timer expires; none is lost,
/// but the acknowledgement of the first is late. Only the first is marked as lost. The acknowledgement of it then
/// arrives, and the other two are not retransmitted either.
#[test]
fn rfc8985_section_3_5_a_timeout_retransmits_the_oldest_segment_only() {
    let mut link = link(|packet, times| match (packet, times) {
        (0, 1) => after(micros(203)),
        _ => after(DELAY),
    });
    link.ends[0].upper.pushes(1);
    link.run_for(micros(197));
    link.ends[0].upper.pushes(2);
    link.run_for(micros(60));
    let left = [0, 1, 2].map(|packet| departures(&link, packet).len());
    assert_eq!(link.ends[0].delivery.counters().timeouts, 1);
    assert_eq!(left, [2, 1, 1]);
    assert!(link.ends[0].upper.all_acked());
}

/// RFC 8985, section 6.2, step 4: the reordering window is a quarter of the round trip. Of ten packets in flight, one
/// is late: by a fifth of the round trip it is not retransmitted; by half of it, it is.
#[test]
fn rfc8985_reordering_by_less_than_a_quarter_of_the_round_trip_is_no_loss() {
    for (late, transmissions) in [(2, 1), (5, 2)] {
        let mut link = link(move |packet, times| match (packet, times) {
            (30, 1) => after(DELAY + micros(late)),
            _ => after(DELAY),
        });
        link.ends[0].upper.pushes(200);
        link.run_for(micros(150));
        assert_eq!(departures(&link, 30).len(), transmissions, "late by {late} us");
        assert!(link.ends[0].upper.all_acked());
    }
}
