//! I-10 from the other side: congestion control can be plugged in, and is orthogonal to loss recovery. DCQCN's
//! notification point (one CNP in 50 us for a queue pair whose packets are marked) and its effect on the sender.

use super::*;

fn dcqcn() -> Pair {
    irn_with(&[("control", "dcqcn")])
}

fn cnps(pair: &Pair) -> Vec<u64> {
    let is_cnp = |sent: &&Sent| matches!(sent.packet.headers, Headers::Cnp);
    let at = |sent: &Sent| sent.at.as_ps() / Duration::from_us(1).as_ps();
    pair.log.iter().filter(is_cnp).map(at).collect()
}

fn mark_data(sent: &Sent) -> Fate {
    if sent.kind == TransmitKind::Ack { Fate::Deliver } else { Fate::Marked }
}

/// Every packet is marked. The receiver notifies at the first one and then at most every 50 us.
#[test]
fn marked_packets_cause_at_most_one_cnp_per_50_us() {
    let mut pair = dcqcn();
    pair.wire(mark_data);
    for at in 0..20 {
        pair.run_until(us(at * 10));
        pair.now = us(at * 10);
        write(&mut pair, at, 2);
    }
    pair.run();
    let times = cnps(&pair);
    assert_eq!(times[0], 5);
    assert!(times.len() >= 3 && times.windows(2).all(|pair| pair[1] - pair[0] >= 50), "{times:?}");
}

/// Checks that no CNP is sent without marks, nor by a transport without congestion control.
#[test]
fn no_cnp_is_sent_without_marks_or_without_congestion_control() {
    let mut pair = dcqcn();
    write(&mut pair, 1, 50);
    pair.run();
    assert_eq!(cnps(&pair), []);
    let mut pair = irn();
    pair.wire(mark_data);
    write(&mut pair, 1, 50);
    pair.run();
    assert_eq!(cnps(&pair), []);
}

/// Until the notification comes, the sender is at line rate; from then on packets are spaced. The first cut halves
/// 100 Gbit/s (alpha is 1): 1102 bytes on the link take 176 ns.
#[test]
fn a_cnp_reduces_the_rate() {
    let mut pair = dcqcn();
    pair.wire(mark_data);
    write(&mut pair, 1, 400);
    pair.run();
    let sent: Vec<_> = pair.log.iter().filter(|sent| sent.from == From::Left).map(|sent| sent.at).collect();
    assert_eq!(sent[109], Time::ZERO, "the first window is not sent at once");
    let after: Vec<_> = sent.iter().filter(|at| **at >= us(11) && **at < us(50)).collect();
    let gap = after[1].since(*after[0]);
    assert!(after.windows(2).all(|pair| pair[1].since(*pair[0]) >= gap), "packets are sent faster than the rate");
    assert!(gap >= Duration::from_ns(170) && gap <= Duration::from_ns(180), "{gap}");
    assert!(pair.left.engine.stats().waits[WaitReason::Rate as usize] > 0);
    all_succeed(&mut pair.left, [1]);
}

/// Loss alone does not change the rate with DCQCN either: repairs leave immediately, and no packet ever waits for the
/// rate to recover.
#[test]
fn loss_alone_does_not_reduce_the_rate() {
    let mut pair = dcqcn();
    pair.wire(drop_requests(FIRST, &[(5, 0), (120, 0), (121, 0)]));
    write(&mut pair, 1, 300);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [5, 120, 121]);
    assert_eq!(pair.left.engine.stats().waits[WaitReason::Rate as usize], 0);
    assert_eq!(cnps(&pair), []);
    all_succeed(&mut pair.left, [1]);
}
