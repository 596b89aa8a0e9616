//! Timeouts by what is measured, with Falcon: who is off its core, who is gone, what a long path costs.

use super::common::*;
use rnic_base::{Duration, Time};
use rnic_engine::*;

/// As on sockets: timeouts are 4 ms at least, and the delay that Swift aims at is above the path's.
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

/// All acknowledgements are here, but nobody has looked for 50 ms.
#[test]
fn a_driver_that_was_off_its_core_sends_nothing_again() {
    let mut pair = Pair::new(&setup(), |_| DELIVERED);
    warm_up(&mut pair);
    let before = again(&pair);
    // They take so long, and its timeouts would have come long before.
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
    assert_eq!(again(&pair), before, "nothing that was answered is sent again");
}

/// Patience is what the retries of the fixed timeout take, 4 ms each; a shorter one is three timeouts.
#[test]
fn a_peer_that_is_gone_is_given_up_in_time() {
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

/// One packet never gets through for 300 ms, with one retry of 4 ms; but the peer answers all others.
#[test]
fn a_peer_that_answers_is_not_given_up() {
    let mut pair = Pair::new(&Setup { retry_count: 1, ..setup() }, |_| DELIVERED);
    warm_up(&mut pair);
    let (start, mut first) = (pair.now, None);
    pair.set_fate(move |sent| {
        let psn = sent.packet.body.psn().filter(|_| sent.from == 0);
        let is_first = psn.is_some() && psn == *first.get_or_insert(psn);
        if is_first && sent.at < start + Duration::from_ms(300) { LOST } else { DELIVERED }
    });
    // Others keep coming, as long as the window lets them.
    for wr_id in 0..30 {
        write(&mut pair, wr_id);
        pair.run_for(Duration::from_ms(10));
    }
    pair.run_for(Duration::from_secs(3));
    let done = pair.ends[0].take();
    assert!(done.len() == 30 && done.iter().all(|(_, status)| *status == WcStatus::Success), "{done:?}");
}

/// A round trip of 20 ms, where timeouts begin with 4: once it is known, nothing is sent twice.
#[test]
fn a_path_that_is_longer_than_the_first_timeout_is_learned() {
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
    assert_eq!(again(&pair), learned, "of {learned} before");
    assert!(pair.now > Time::ZERO);
}

/// Packets of a burst that leaves while `absent` is off its core for 5 ms, the last of several; its driver says so, or
/// does not. The target delay is 50 us.
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
        let comes_back = leaves_at + away;
        pair.set_fate(move |sent| {
            let waits = if sent.from == absent { DELAY } else { (comes_back + DELAY).since(sent.at) };
            [Some(waits.max(DELAY)), None]
        });
        pair.run_for(away);
        if says_so {
            pair.ends[absent].engine.note_absence(comes_back, away);
        }
        pair.run_for(Duration::from_us(10));
        pair.ends[absent].engine.note_caught_up();
        pair.set_fate(|_| DELIVERED);
        pair.run_for(Duration::from_ms(1));
    }
    let end = leaves_at + away;
    pair.log.iter().filter(|sent| sent.from == 0 && sent.at >= leaves_at && sent.at < end).count()
}

/// F-17: delays are the network's, whichever end is off its core.
#[test]
fn what_waits_for_a_process_is_no_delay_of_the_network() {
    for absent in [0, 1] {
        let [told, untold] = [true, false].map(|says_so| burst_during_absence(absent, says_so));
        assert!(told >= 3 * untold, "end {absent}: {told} packets, and {untold} when nobody says why");
    }
}
