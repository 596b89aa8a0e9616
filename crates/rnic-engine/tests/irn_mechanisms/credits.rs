//! I-20: end-to-end credits (IBA 9.7.7.2), with and without them, for IRN and for RoCE.

use rnic_base::Serial;
use rnic_wire::{Aeth, Packet, PacketFlags, Syndrome};

use super::*;

const TRANSPORTS: [&str; 2] = ["irn", "roce-gbn"];

/// Returns a pair that uses credits, whose receiver sets an RNR timer of 0.64 ms.
fn with_credits(transport: &str) -> Pair {
    Pair::new(&setup(transport, true))
}

fn setup(transport: &str, credits: bool) -> Setup {
    let text = if credits { "true" } else { "false" };
    let mut setup = Setup::new(transport, &[("end_to_end_credits", text)]);
    (setup.rnr_retry, setup.rnr_timer) = (Some(6), RnrTimer::from_code(12));
    setup
}

/// Posts Sends of `packets` full packets.
fn send(pair: &mut Pair, wr_ids: impl IntoIterator<Item = u64>, packets: u32) {
    for wr_id in wr_ids {
        pair.left.post(wr_id, SendOp::Send { immediate: None }, &[pair.left.sge(0, packets * MTU)]);
    }
}

fn post_receives(pair: &mut Pair, wr_ids: impl IntoIterator<Item = u64>) {
    for wr_id in wr_ids {
        pair.right.post_recv(wr_id, &[pair.right.sge(TARGET, 4 * MTU)]);
    }
}

/// Returns MSN and credits of each acknowledgement and response of the right side.
fn advertised(pair: &Pair) -> Vec<(u32, u8)> {
    let entry = |sent: &Sent| {
        let aeth = match sent.packet.headers {
            Headers::Ack { aeth, .. } | Headers::AtomicResponse { aeth, .. } => Some(aeth),
            Headers::ReadResponse { aeth, .. } => aeth,
            _ => None,
        };
        match aeth.filter(|_| sent.from == From::Right)?.syndrome {
            Syndrome::Ack { credits } => Some((aeth?.msn.value(), credits)),
            _ => None,
        }
    };
    pair.log.iter().filter_map(entry).collect()
}

/// The number of posted receives is advertised in the coarse credit code of every acknowledgement; without the
/// option, and with a shared receive queue, it is not.
#[test]
fn i20_acknowledgements_advertise_the_posted_receives() {
    for transport in TRANSPORTS {
        let mut pair = with_credits(transport);
        post_receives(&mut pair, 0..8);
        send(&mut pair, 0..2, 1);
        pair.run();
        read(&mut pair, 2, 1);
        let remote = pair.right.remote(TARGET);
        pair.left.post(3, SendOp::FetchAdd { remote, add: 1 }, &[pair.left.sge(700_000, 8)]);
        pair.run();
        let mut said = advertised(&pair);
        said.dedup();
        // Seven receives have the same code as six.
        assert_eq!(said, [(1, 5), (2, 5), (3, 5), (4, 5)], "{transport}");
        all_succeed(&mut pair.left, 0..4);

        let shared = Setup { srq: Some(16), ..setup(transport, true) };
        for setup in [setup(transport, false), shared] {
            let mut pair = Pair::new(&setup);
            write(&mut pair, 0, 1);
            read(&mut pair, 1, 1);
            pair.run();
            let said = advertised(&pair);
            assert!(said.len() >= 2 && said.iter().all(|(_, credits)| *credits == 31), "{transport}: {said:?}");
        }
    }
}

/// Two receives and ten Sends; a third receive is posted a while later, then the others. Without credits the third
/// Send draws an RNR NAK, and all Sends after it are retransmitted with it; with credits no packet after it is sent
/// unnecessarily.
#[test]
fn i20_sends_are_limited_to_the_advertised_receives() {
    for transport in TRANSPORTS {
        let run = |credits: bool| {
            let mut pair = Pair::new(&setup(transport, credits));
            post_receives(&mut pair, [0, 1]);
            send(&mut pair, [0], 1);
            pair.run();
            send(&mut pair, 1..10, 1);
            pair.run_until(us(100));
            post_receives(&mut pair, [2]);
            pair.run_until(us(2_000));
            post_receives(&mut pair, 3..10);
            pair.run();
            all_succeed(&mut pair.left, 0..10);
            all_succeed(&mut pair.right, 0..10);
            let waits = pair.left.engine.stats().waits[WaitReason::Credits as usize];
            (pair.data_of(From::Left, FIRST).len(), waits > 0)
        };
        let ((free, waited), (held, has_waited)) = (run(false), run(true));
        assert!(!waited && has_waited, "{transport}");
        assert!(held < 15 && free > 25, "{transport}: {held} packets with credits, {free} without");
    }
}

/// Of a long Send without a credit, one packet is sent as a probe, with the acknowledge request bit; the others leave
/// when that packet has been accepted.
#[test]
fn i20_without_a_credit_one_packet_is_sent_as_a_probe() {
    for transport in TRANSPORTS {
        let mut pair = with_credits(transport);
        post_receives(&mut pair, [0]);
        send(&mut pair, [0], 1);
        pair.run();
        assert_eq!(advertised(&pair).last(), Some(&(1, 0)));
        let before = pair.data_of(From::Left, FIRST).len();
        let begun = pair.now;
        send(&mut pair, [1, 2], 3);
        pair.run_until(begun + Duration::from_us(300));
        assert_eq!(pair.data_of(From::Left, FIRST)[before..], [(1, false)], "{transport}: not refused once");
        let asking = pair.log.iter().rev().find(|sent| sent.from == From::Left).expect("a packet was sent");
        assert!(asking.packet.flags.ack_request);
        post_receives(&mut pair, [1, 2]);
        pair.run();
        all_succeed(&mut pair.left, 0..3);
        all_succeed(&mut pair.right, 0..3);
        assert_eq!(pair.resent(From::Left, FIRST), [1], "{transport}: other packets were sent unnecessarily");
    }
}

/// A request that consumes no receive is not delayed, and a Write with immediate uses its last packet as the probe.
#[test]
fn i20_writes_and_reads_need_no_credit() {
    for transport in TRANSPORTS {
        let mut pair = with_credits(transport);
        write(&mut pair, 0, 1);
        pair.run();
        (1..20).for_each(|wr_id| write(&mut pair, wr_id, 2));
        read(&mut pair, 20, 3);
        pair.run();
        all_succeed(&mut pair.left, 0..21);
        assert_eq!(pair.left.engine.stats().waits[WaitReason::Credits as usize], 0);
        let remote = pair.right.remote(TARGET);
        post_receives(&mut pair, [0]);
        let sge = pair.left.sge(0, 3 * MTU);
        pair.left.post(21, SendOp::Write { remote, immediate: Some(1) }, &[sge]);
        pair.run();
        all_succeed(&mut pair.left, [21]);
        assert_eq!(pair.left.engine.stats().waits[WaitReason::Credits as usize], 0, "{transport}: probe blocked");
    }
}

/// A receiver has one receive at a time, which is posted as late as possible, under losses both ways: everything
/// arrives once and in order.
#[test]
fn i20_credits_never_block_a_connection_for_ever() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport, true);
        (setup.rnr_retry, setup.rnr_timer) = (None, RnrTimer::from_code(1));
        let mut pair = Pair::new(&setup);
        // The first acknowledgement advertises that no receive is left.
        post_receives(&mut pair, [20]);
        send(&mut pair, [20], 1);
        pair.run();
        all_succeed(&mut pair.left, [20]);
        all_succeed(&mut pair.right, [20]);
        let mut sent = 0;
        pair.wire(move |_| {
            sent += 1;
            if sent % 7 == 3 { Fate::Drop } else { Fate::Deliver }
        });
        send(&mut pair, 0..20, 2);
        let mut received = Vec::new();
        for round in 0..20 {
            pair.run_until(pair.now + Duration::from_us(400));
            post_receives(&mut pair, [round]);
            while received.len() <= round as usize {
                pair.run_until(pair.now + Duration::from_us(50));
                received.extend(pair.right.statuses());
            }
        }
        pair.run();
        assert_eq!(received, (0..20).map(|wr_id| (wr_id, WcStatus::Success)).collect::<Vec<_>>(), "{transport}");
        all_succeed(&mut pair.left, 0..20);
        assert!(pair.left.engine.stats().waits[WaitReason::Credits as usize] > 0, "{transport}: never blocked");
    }
}

/// A peer accepts every message, but each acknowledgement reports that no message is complete and no receive is left:
/// one message leaves at a time, after the previous one is acknowledged. Then the peer advertises credits without
/// acknowledging anything new.
#[test]
fn i20_with_a_peer_that_advertises_no_receives_each_message_is_probed() {
    for transport in TRANSPORTS {
        let mut pair = with_credits(transport);
        let format = pair.left.format;
        let acknowledge = |pair: &mut Pair, offset: u32, msn: u32, credits: u8| {
            let aeth = Aeth { syndrome: Syndrome::Ack { credits }, msn: Serial::new(msn) };
            let (dest_qpn, flags) = (pair.left.qpn, PacketFlags::default());
            let headers = Headers::Ack { aeth, sack: None };
            let packet = Packet { dest_qpn, psn: FIRST.plus(offset), flags, payload_len: 0, headers };
            let meta = RxMeta { peer: PeerId(7), congested: false };
            pair.left.receive(us(1), format, &packet, meta, &[]);
        };
        let leaves = |pair: &mut Pair| {
            std::iter::from_fn(|| pair.left.engine.transmit(us(1)).and_then(Departure::roce).copied()).count()
        };
        send(&mut pair, [0], 1);
        assert_eq!(leaves(&mut pair), 1);
        acknowledge(&mut pair, 0, 0, 0);
        send(&mut pair, 1..10, 1);
        for message in 1..4 {
            assert_eq!(leaves(&mut pair), 1, "{transport}, message {message}");
            acknowledge(&mut pair, message, 0, 0);
        }
        assert_eq!(leaves(&mut pair), 1);
        // The message in flight takes the first of six credits: it is the fifth message, and each of the next five
        // has one.
        acknowledge(&mut pair, 3, 4, 5);
        assert_eq!(leaves(&mut pair), 5, "{transport}: an acknowledgement of nothing new, with credits");
        all_succeed(&mut pair.left, 0..4);
    }
}
