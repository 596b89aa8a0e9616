//! Consecutive Writes to the same addresses, where out-of-order packets are placed as they arrive.
//!
//! Source: IRN section 5.3.4: "data written to a particular memory location is overwritten by a retransmitted packet
//! from an older message". Verbs promise the order of InfiniBand (volume 1, section 9.5); option `fence_overlaps`
//! restores it.

use super::*;

/// Transports that place out-of-order packets immediately.
const PLACING: [&str; 6] = ["irn", "irn-plus", "srnic", "tcp", "roce-sr", "fasr"];

/// Posts three Writes to overlapping addresses; the second one overlaps parts of the first and third.
fn post(pair: &mut Pair) -> Vec<u8> {
    let mut expected = pair.right.memory[TARGET as usize..][..6 * MTU as usize].to_vec();
    for (wr_id, (at, len)) in (0..).zip([(0, 3 * MTU), (2 * MTU - 100, 2 * MTU), (3 * MTU, 3 * MTU)]) {
        let from = 10_000 * (1 + wr_id);
        let (sge, remote) = (pair.left.sge(from, len), pair.right.remote(TARGET + u64::from(at)));
        pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
        let (at, from, len) = (at as usize, from as usize, len as usize);
        expected[at..at + len].copy_from_slice(&pair.left.memory[from..from + len]);
    }
    expected
}

/// Returns, for every loss of one packet or two and for every delay, `true` if the memory finally contains what was
/// written last.
fn outcomes(transport: &str, options: &[(&str, &str)]) -> Vec<bool> {
    let losses = loss_patterns().into_iter().map(|losses| Box::new(lose_nth(&losses)) as Box<dyn FnMut(&Sent) -> Fate>);
    let late = (0..8).map(|which| {
        let mut sent_before = 0;
        Box::new(move |sent: &Sent| {
            sent_before += u32::from(sent.from == From::Left);
            let is_it = sent.from == From::Left && sent_before == which + 1;
            if is_it { Fate::Late(Duration::from_us(30)) } else { Fate::Deliver }
        }) as Box<dyn FnMut(&Sent) -> Fate>
    });
    let outcome = |fate| {
        let mut pair = Pair::new(&Setup::new(transport, options));
        pair.wire(fate);
        let expected = post(&mut pair);
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..3, WcStatus::Success), "{transport}, {options:?}");
        pair.right.memory[TARGET as usize..][..expected.len()] == expected
    };
    losses.chain(late).map(outcome).collect()
}

/// Checks that the hazard exists without the option, and that the option removes it.
#[test]
fn a_retransmitted_packet_overwrites_a_newer_write_unless_overlaps_are_fenced() {
    for transport in PLACING {
        let wrong = outcomes(transport, &[]).iter().filter(|right| !**right).count();
        assert!(wrong > 0, "{transport}: no loss shows the hazard");
        let fenced = outcomes(transport, &[("fence_overlaps", "true")]);
        assert!(fenced.iter().all(|right| *right), "{transport}: {fenced:?}");
    }
    // There is no hazard where packets are placed in order.
    assert!(outcomes("roce-gbn", &[]).iter().all(|right| *right));
}

/// Writes to adjacent memory, Writes of zero bytes, and Writes after one that has arrived do not wait; and a wait
/// ends with the acknowledgement of the overlapped Write, not of all Writes posted before.
#[test]
fn a_write_waits_only_for_unacknowledged_writes_that_overlap_it() {
    let posted = |writes: &[(u64, u32)]| {
        let mut pair = Pair::new(&Setup::new("irn", &[("fence_overlaps", "true")]));
        for (wr_id, (at, len)) in (0..).zip(writes) {
            let (sge, remote) = (pair.left.sge(0, *len), pair.right.remote(TARGET + at));
            pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
        }
        pair.run_until(us(1));
        let at_once = pair.log.len();
        let waits = pair.left.engine.stats().waits[WaitReason::Fence as usize];
        pair.run();
        assert_eq!(pair.left.statuses().len(), writes.len());
        (at_once, waits > 0)
    };
    assert_eq!(posted(&[(0, 100), (100, 100), (50, 0), (300, 50)]), (4, false));
    assert_eq!(posted(&[(0, 100), (99, 1), (500, 1)]), (1, true), "a later request does not wait");
    assert_eq!(posted(&[(100, 100), (0, 101)]), (1, true));
    assert_eq!(posted(&[(0, 0), (0, 100)]), (2, false));
    // The second one is lost; the third overlaps the first one only, and leaves when that is acknowledged.
    let mut pair = Pair::new(&Setup::new("irn", &[("fence_overlaps", "true"), ("cap_packets", "8")]));
    pair.wire(|sent| match sent.packet.psn {
        psn if psn == Psn::new(0xff_fffb) && sent.at < us(80) => Fate::Drop,
        _ => Fate::Deliver,
    });
    for (wr_id, at) in [(0, 0), (1, 5_000), (2, 0)] {
        let (sge, remote) = (pair.left.sge(0, 100), pair.right.remote(TARGET + at));
        pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
    }
    pair.run_until(us(12));
    assert_eq!(pair.data_of(From::Left, Psn::new(0xff_fffa)), [(0, false), (1, false), (2, false)]);
    pair.run();
    assert_eq!(pair.left.statuses(), all(0..3, WcStatus::Success));
}
