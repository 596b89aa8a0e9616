//! Falcon with timeouts from measured round-trip times: an end whose process was descheduled, a peer that is gone,
//! and a long path.

use super::common::*;
use rnic_base::{Duration, Time};
use rnic_engine::*;

/// As on sockets: timeouts are at least 4 ms, and Swift's target delay is above the delay of the path.
fn setup() -> Setup {
    Setup::new(&[("measured_timeouts", "true"), ("rto", "4ms"), ("rto_min", "4ms"), ("base_target", "50ms")])
}

fn write(pair: &mut Pair, wr_id: u64) {
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE, 20 * MTU);
}

fn warm_up(pair: &mut Pair) {
    for wr_id in 0..40 {
        write(pair, wr_id);
        pair.run_for(Duration::from_us(200));
    }
    let done = pair.ends[0].take();
    assert!(done.len() == 40 && done.iter().all(|(_, status)| *status == WcStatus::Success), "{done:?}");
}

fn again(pair: &Pair) -> u64 {
    pair.ends[0].engine.stats().packets_retransmitted
}

/// All acknowledgements have arrived, but the driver has not run for 50 ms.
#[test]
fn nothing_is_retransmitted_after_the_driver_was_descheduled() {
    let mut pair = Pair::new(&setup(), |_| DELIVERED);
    warm_up(&mut pair);
    let before = again(&pair);
    // The acknowledgements take this long to be processed; the timeouts would have expired long before.
    let away = Duration::from_ms(50);
    let start = pair.now;
    pair.set_fate(move |sent| if sent.from == 1 { [Some(away), None] } else { DELIVERED });
    write(&mut pair, 50);
    let end = &mut pair.ends[0];
    let mut sent = Vec::new();
    while let Some(transmit) = end.engine.transmit(start).and_then(Departure::falcon).copied() {
        sent.push((transmit, end.engine.segments().to_vec()));
    }
    let late = start + away;
    pair.now = late;
    pair.ends[0].engine.note_absence(late, away);
    pair.ends[0].engine.tick(late);
    for (transmit, segments) in sent {
        let payload: Vec<u8> = segments
            .iter()
            .flat_map(|segment| pair.ends[0].memory[segment.local as usize..][..segment.len as usize].to_vec())
            .collect();
        pair.deliver(1, &transmit.packet, transmit.label, &payload);
    }
    pair.set_fate(|_| DELIVERED);
    pair.run_for(Duration::from_us(500));
    assert_eq!(pair.ends[0].take(), [(50, WcStatus::Success)]);
    assert_eq!(again(&pair), before, "acknowledged packets are retransmitted");
}

/// A peer is declared gone after the time that the retries take with the fixed timeout, 4 ms each; a time that would
/// be shorter is three timeouts.
#[test]
fn a_silent_peer_is_declared_gone_in_time() {
    for (retries, least, most) in [(1, 4, 40), (20, 80, 170), (100, 400, 810)] {
        let mut pair = Pair::new(&Setup { retry_count: retries, ..setup() }, |_| DELIVERED);
        warm_up(&mut pair);
        pair.set_fate(|_| LOST);
        write(&mut pair, 50);
        pair.run_for(Duration::from_ms(least) - Duration::from_us(100));
        assert_eq!(pair.ends[0].take(), [], "{retries} retries");
        pair.run_for(Duration::from_ms(most - least));
        assert_eq!(pair.ends[0].take(), [(50, WcStatus::RetryExceeded)], "{retries} retries");
    }
}

/// One packet is lost for 300 ms, with one retry of 4 ms; but the peer acknowledges all others.
#[test]
fn a_peer_that_responds_is_not_declared_gone() {
    let mut pair = Pair::new(&Setup { retry_count: 1, ..setup() }, |_| DELIVERED);
    warm_up(&mut pair);
    let (start, mut first) = (pair.now, None);
    pair.set_fate(move |sent| {
        let psn = sent.packet.body.psn().filter(|_| sent.from == 0);
        let is_first = psn.is_some() && psn == *first.get_or_insert(psn);
        if is_first && sent.at < start + Duration::from_ms(300) { LOST } else { DELIVERED }
    });
    // Further requests are sent, as long as the window allows.
    for wr_id in 0..30 {
        write(&mut pair, wr_id);
        pair.run_for(Duration::from_ms(10));
    }
    pair.run_for(Duration::from_secs(3));
    let done = pair.ends[0].take();
    assert!(done.len() == 30 && done.iter().all(|(_, status)| *status == WcStatus::Success), "{done:?}");
}

/// With a round trip of 20 ms and an initial timeout of 4 ms, nothing is sent twice once the round-trip time is
/// known.
#[test]
fn a_round_trip_longer_than_the_initial_timeout_is_measured() {
    let far = [Some(Duration::from_ms(10)), None];
    let mut pair = Pair::new(&setup(), move |_| far);
    for wr_id in 0..30 {
        write(&mut pair, wr_id);
        pair.run_for(Duration::from_ms(500));
    }
    let learned = again(&pair);
    for wr_id in 30..40 {
        write(&mut pair, wr_id);
        pair.run_for(Duration::from_ms(500));
    }
    let done = pair.ends[0].take();
    assert!(done.len() == 40 && done.iter().all(|(_, status)| *status == WcStatus::Success), "{done:?}");
    assert_eq!(again(&pair), learned, "more retransmissions than the {learned} before");
    assert!(pair.now > Time::ZERO);
}

/// Returns the packets of a burst that leaves while end `absent` is descheduled for 5 ms, for the last of several
/// bursts. `says_so` is `true` if its driver reports the absence. The target delay is 50 us.
fn burst_during_absence(absent: usize, says_so: bool) -> usize {
    let options = [("measured_timeouts", "true"), ("rto", "100ms"), ("rto_min", "100ms"), ("base_target", "50us")];
    let mut pair = Pair::new(&Setup::new(&options), |_| DELIVERED);
    let away = Duration::from_ms(5);
    let mut leaves_at = pair.now;
    for round in 0..20 {
        for wr_id in 0..8 {
            write(&mut pair, 8 * round + wr_id);
        }
        leaves_at = pair.now;
        let round_trips = leaves_at + away;
        pair.set_fate(move |sent| {
            let waits = if sent.from == absent { DELAY } else { (round_trips + DELAY).since(sent.at) };
            [Some(waits.max(DELAY)), None]
        });
        pair.run_for(away);
        if says_so {
            pair.ends[absent].engine.note_absence(round_trips, away);
        }
        pair.run_for(Duration::from_us(10));
        pair.ends[absent].engine.note_caught_up();
        pair.set_fate(|_| DELIVERED);
        pair.run_for(Duration::from_ms(1));
    }
    let end = leaves_at + away;
    pair.log.iter().filter(|sent| sent.from == 0 && sent.at >= leaves_at && sent.at < end).count()
}

/// F-17: measured delays contain only those of the network, whichever end is descheduled.
#[test]
fn time_waiting_for_a_descheduled_process_is_not_network_delay() {
    for absent in [0, 1] {
        let [told, unreported] = [true, false].map(|says_so| burst_during_absence(absent, says_so));
        assert!(told >= 3 * unreported, "end {absent}: {told} packets, {unreported} with an unreported absence");
    }
}
