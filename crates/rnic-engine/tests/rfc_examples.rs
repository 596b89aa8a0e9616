//! TCP's recovery beside its RFCs: RFC 2018's published examples, and windows that are worked out by hand from the
//! rules of RFC 5681, 6582 and 6675, which publish no numbers.
//!
//! A segment is a packet of the engine. The wire takes 5 us one way and any number of packets at a time, and every
//! packet is acknowledged, so a round trip is 10 us and packets are named by their distance from the first one.

mod common;

use common::*;
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;

/// The first PSN of both sides.
const FIRST: Psn = Psn::new(0xff_fffa);

/// Returns a pair that sends a Write of `packets` packets; the first transmission of packet n has the fate `fate(n)`.
fn writing(transport: &str, options: &[(&str, &str)], packets: u32, fate: impl Fn(i64) -> Fate + 'static) -> Pair {
    let mut pair = Pair::new(&Setup::new(transport, options));
    pair.wire(move |sent| match (sent.from, sent.kind) {
        (From::Left, TransmitKind::Request) => fate(FIRST.distance_to(sent.packet.psn)),
        _ => Fate::Deliver,
    });
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(500_000));
    pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
    pair
}

/// Returns the packets that the left side had sent by `until` at each time, as distances from the first packet, with a
/// mark at those that are retransmissions.
fn sent_by(pair: &Pair, until: u64) -> Vec<(u64, Vec<(i64, bool)>)> {
    let mut rounds: Vec<(u64, Vec<(i64, bool)>)> = Vec::new();
    for (us, packet, again) in pair.trace_of(From::Left, FIRST).into_iter().filter(|(us, ..)| *us <= until) {
        match rounds.last_mut().filter(|(at, _)| *at == us) {
            Some((_, packets)) => packets.push((packet, again)),
            None => rounds.push((us, vec![(packet, again)])),
        }
    }
    rounds
}

const fn new(packet: i64) -> (i64, bool) {
    (packet, false)
}

const fn again(packet: i64) -> (i64, bool) {
    (packet, true)
}

fn window(pair: &Pair) -> u64 {
    QpSnapshot::of(&pair.left.engine, pair.left.qpn).expect("the queue pair exists").window
}

/// RFC 2018, section 7, case 2: of eight segments the first is lost. Every later one causes an acknowledgement of the
/// first, with a block that ends after it. Our acknowledgements name the segment that caused them, which is what each
/// acknowledgement adds to the block: after all seven it is the RFC's, 5500 to 9000.
#[test]
fn rfc2018_case_2_the_first_of_eight_segments_is_lost() {
    let mut pair = writing("tcp", &[("dupthresh", "100")], 8, |packet| match packet {
        0 => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.run_until(Time::from_us(20));
    let expected: Vec<(i64, Option<i64>)> = (1..8).map(|segment| (0, Some(segment))).collect();
    assert_eq!(pair.nacks_of(From::Right, FIRST), expected);
}

/// RFC 2018, section 7, case 3: the second, fourth, sixth and eighth of eight segments are lost; then the fourth and
/// the second arrive late. The RFC's first block has the segment that caused the acknowledgement; the others repeat
/// what earlier acknowledgements have reported, which ours do not. The late second segment is acknowledged with all up
/// to the sixth: 7500 in the RFC.
#[test]
fn rfc2018_case_3_every_other_segment_is_lost_and_two_arrive_late() {
    let mut pair = writing("tcp", &[("dupthresh", "100")], 8, |packet| match packet {
        1 => Fate::Late(Duration::from_us(40)),
        3 => Fate::Late(Duration::from_us(20)),
        5 | 7 => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.run_until(Time::from_us(60));
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(1, Some(2)), (1, Some(4)), (1, Some(6)), (1, Some(3))]);
    let acknowledged = pair.left.info().una;
    assert_eq!(FIRST.distance_to(acknowledged.wire()), 5, "5000, 5500, 6000, 6500 and 7000 are acknowledged");
}

/// RFC 6582, section 3.2, with segments 2 and 5 of the first ten lost:
///
/// * two acknowledgements in slow start raise the window from 10 to 12 (RFC 5681, 3.1): 10 to 13 are sent;
/// * 3, 4 and 6 cause three duplicate acknowledgements: FlightSize is 12, ssthresh 6, the window 9; 2 is repeated;
/// * 7, 8 and 9 inflate the window to 12, 10 to 13 to 16: 14 to 17 are sent;
/// * the repeated 2 causes a partial acknowledgement of three segments: the window is 16 - 3 + 1 = 14, 5 is repeated,
///   and 18 is sent;
/// * 14 to 17 inflate it to 18: 19 to 22 are sent;
/// * the repeated 5 causes a full acknowledgement, up to 18: the window is min(6, 5 + 1), and 23 is sent; 18 is
///   acknowledged in congestion avoidance, and 24 is sent.
#[test]
fn rfc6582_two_losses_of_a_window_need_one_partial_acknowledgement() {
    let lost = |packet| if matches!(packet, 2 | 5) { Fate::Drop } else { Fate::Deliver };
    let mut pair = writing("tonic-new-reno", &[], 60, lost);
    pair.run_until(Time::from_us(30));
    let expected = [
        (0, (0..10).map(new).collect()),
        (10, vec![new(10), new(11), new(12), new(13), again(2)]),
        (20, vec![new(14), new(15), new(16), new(17), again(5), new(18)]),
        (30, vec![new(19), new(20), new(21), new(22), new(23), new(24)]),
    ];
    assert_eq!(sent_by(&pair, 30), expected);
    assert_eq!(window(&pair), 6);
}

/// Returns what a Write sends in two round trips, of whose first ten packets 2 and 5 are lost.
fn two_losses(transport: &str) -> Vec<(u64, Vec<(i64, bool)>)> {
    let lost = |packet| if matches!(packet, 2 | 5) { Fate::Drop } else { Fate::Deliver };
    let mut pair = writing(transport, &[], 60, lost);
    pair.run_until(Time::from_us(20));
    assert_eq!(pair.left.info().stats.timeouts, 0);
    sent_by(&pair, 20)
}

/// RFC 6675, section 5, for the same losses. Two acknowledgements raise the window to 12: 10 to 13 are sent.
///
/// * 3 and 4 are acknowledged: pipe is 11 in each case, and step 3.3 sends 14 and 15;
/// * 6 is the third above 2, which is lost (`IsLost`). FlightSize is 12, since it does not include 14 and 15 (RFC 5681,
///   3.2): ssthresh and the window are 6, and 2 is repeated. Pipe is 11: 2 repeated, 5, and 7 to 15;
/// * 7, 8 and 9 are acknowledged: three are above 5, which is lost too, and pipe is 7;
/// * a round trip later 10 and 11 are acknowledged: pipe is 5, and `NextSeg` is 5, by its rule 1;
/// * 12 to 15 are acknowledged, and each lets one segment be sent: nothing else is lost, so these are 16 to 19, by its
///   rule 2;
/// * the repeated 2 acknowledges up to 5; in pipe are 5, repeated, and 16 to 19, so that 20 is sent.
#[test]
fn rfc6675_pipe_and_next_segment_with_two_losses() {
    let expected = [
        (0, (0..10).map(new).collect()),
        (10, vec![new(10), new(11), new(12), new(13), new(14), new(15), again(2)]),
        (20, vec![again(5), new(16), new(17), new(18), new(19), new(20)]),
    ];
    assert_eq!(two_losses("tcp"), expected);
}

/// The same in Tonic's program, which differs from RFC 6675 in two ways. FlightSize includes the two segments of step
/// 3.3, so that the window is 7; and a segment that is marked is repeated whether or not pipe has room, because the
/// template sends marked segments first and the window limits new ones alone: 5 is repeated as soon as it is lost. 11
/// is the first acknowledgement that lets a new segment be sent, 16.
#[test]
fn rfc6675_two_losses_in_tonics_program() {
    let expected = [
        (0, (0..10).map(new).collect()),
        (10, vec![new(10), new(11), new(12), new(13), new(14), new(15), again(2), again(5)]),
        (20, (16..=22).map(new).collect()),
    ];
    assert_eq!(two_losses("tonic-sack"), expected);
}
