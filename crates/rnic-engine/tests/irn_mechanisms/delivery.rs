//! I-13 to I-15: every packet can be placed without the others.

use rnic_wire::{Position, SendTail};

use super::*;

/// Returns `true` if packet `packet` of a Write from the start of the left memory is in place.
fn arrived(pair: &Pair, packet: usize) -> bool {
    let (at, len) = (packet * MTU as usize, MTU as usize);
    pair.right.memory[TARGET as usize + at..][..len] == pair.left.memory[at..][..len]
}

/// Packet 5 of 0..9 is late by 50 us: 6 to 9 are in the application's memory long before it.
#[test]
fn i13_out_of_order_data_is_placed_in_memory_immediately() {
    let mut pair = irn();
    pair.wire(|sent| {
        let late = sent.kind == TransmitKind::Request && FIRST.distance_to(sent.packet.psn) == 5;
        if late || sent.kind == TransmitKind::RequestRetransmission {
            Fate::Late(Duration::from_us(50))
        } else {
            Fate::Deliver
        }
    });
    write(&mut pair, 1, 10);
    pair.run_until(us(6));
    let here: Vec<_> = (0..10).filter(|packet| arrived(&pair, *packet)).collect();
    assert_eq!(here, [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    assert_eq!(pair.right.info().expected.since(pair.left.info().una), 5, "5 is not the expected packet");
    pair.run();
    assert!(arrived(&pair, 5));
}

/// The same for a Send, whose address is in the receive request that it names, and for the response to a Read.
#[test]
fn i13_out_of_order_sends_and_responses_are_placed_immediately() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    pair.right.post_recv(7, &[pair.right.sge(TARGET, 9_000)]);
    pair.left.post(1, SendOp::Send { immediate: None }, &[pair.left.sge(0, 3 * MTU)]);
    pair.run_until(us(6));
    assert_eq!([0, 1, 2].map(|packet| arrived(&pair, packet)), [false, true, true]);

    let mut pair = irn();
    pair.wire(drop_data(From::Right, FIRST, &[(1, 0)]));
    read(&mut pair, 1, 3);
    pair.run_until(us(11));
    let here = |packet: usize| {
        let (at, len) = (packet * MTU as usize, MTU as usize);
        pair.left.memory[TARGET as usize + at..][..len] == pair.right.memory[at..][..len]
    };
    assert_eq!([0, 1, 2].map(here), [true, false, true]);
}

/// The cap limits how far packets can be out of order, and so what a NIC must store: a packet beyond that is not
/// held.
#[test]
fn i13_packets_beyond_the_bitmap_are_not_kept() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0), (0, 1)]));
    write(&mut pair, 1, 500);
    pair.run_until(us(40));
    assert_eq!(pair.right.engine.stats().packets_out_of_order, 109);
    assert_eq!(pair.right.engine.stats().drops[DropReason::OutOfWindow as usize], 0);
    assert!(arrived(&pair, 109) && !arrived(&pair, 110));
}

/// Every Write packet carries the key, the whole length and its own first address.
#[test]
fn i14_every_write_packet_carries_its_address() {
    let mut pair = irn();
    let (sge, remote) = (pair.left.sge(0, 4_500), pair.right.remote(TARGET + 3));
    pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.run();
    let reths = pair.log.iter().filter_map(|sent| match sent.packet.headers {
        Headers::Write { reth, .. } => Some(reth),
        _ => None,
    });
    for (index, reth) in reths.enumerate() {
        let reth = reth.expect("every packet has a RETH");
        let va = BASE + TARGET + 3 + index as u64 * u64::from(MTU);
        assert_eq!((reth.va, reth.rkey, reth.dma_len), (va, pair.right.key, 4_500));
    }
    assert_eq!(pair.data_of(From::Left, FIRST).len(), 5);
}

/// Each packet can therefore be placed alone: the packets of a Write arrive in reverse order, and after each one
/// exactly its bytes are in place.
#[test]
fn i14_packets_in_reverse_order_are_placed_one_by_one() {
    let mut pair = irn();
    pair.wire(|sent| match sent.kind {
        TransmitKind::Request => Fate::Late(Duration::from_us(10 - FIRST.distance_to(sent.packet.psn) as u64)),
        TransmitKind::RequestRetransmission => Fate::Drop,
        _ => Fate::Deliver,
    });
    write(&mut pair, 1, 10);
    for count in 1..=10 {
        pair.run_until(Time::from_ns(5_500 + count * 1_000));
        let here: Vec<_> = (0..10u64).filter(|packet| arrived(&pair, *packet as usize)).collect();
        assert_eq!(here, (10 - count..10).collect::<Vec<_>>());
    }
    pair.run();
    all_succeed(&mut pair.left, [1]);
}

/// Sends carry the number of their receive request and their offset in the message. The last packet of a Write with
/// immediate carries that number; plain Writes consume none.
#[test]
fn i15_packets_that_consume_receives_carry_receive_numbers() {
    let mut pair = irn();
    (0..3).for_each(|wr_id| pair.right.post_recv(wr_id, &[pair.right.sge(TARGET, 4_000)]));
    let remote = pair.right.remote(TARGET + 10_000);
    let sge = pair.left.sge(0, 2_048);
    pair.left.post(0, SendOp::Send { immediate: None }, &[sge]);
    pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.left.post(2, SendOp::Write { remote, immediate: Some(5) }, &[sge]);
    pair.left.post(3, SendOp::Send { immediate: Some(6) }, &[sge]);
    pair.run();
    let mut sends = Vec::new();
    let mut writes = Vec::new();
    for sent in &pair.log {
        match sent.packet.headers {
            Headers::Send { position, tail, placement } => {
                let placement = placement.expect("every Send packet has a placement");
                sends.push((position, tail, placement.recv_sn.value(), placement.offset.value()));
            }
            Headers::Write { position, immediate, recv_sn, .. } => {
                writes.push((position, immediate, recv_sn.map(|sn| sn.value())));
            }
            _ => {}
        }
    }
    use Position::{First, Last};
    let (plain, immediate) = (SendTail::Plain, SendTail::Immediate(6));
    assert_eq!(sends, [(First, plain, 0, 0), (Last, plain, 0, 1), (First, plain, 2, 0), (Last, immediate, 2, 1)]);
    assert_eq!(writes, [(First, None, None), (Last, None, None), (First, None, None), (Last, Some(5), Some(1))]);
}

/// Two Sends of four packets; of the first, 1 and 2 are lost, of the second, 4 (its first) and 7 (its last). Packets
/// that arrive early go into the right one of three receive requests, at the right offset.
#[test]
fn i15_two_interleaved_sends_with_losses_are_placed_in_the_right_buffers() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(1, 0), (2, 0), (4, 0), (7, 0)]));
    for (wr_id, at) in [(10, TARGET), (11, TARGET + 20_000), (12, TARGET + 40_000)] {
        pair.right.post_recv(wr_id, &[pair.right.sge(at, 5_000)]);
    }
    pair.left.post(1, SendOp::Send { immediate: None }, &[pair.left.sge(0, 4_000)]);
    pair.left.post(2, SendOp::Send { immediate: None }, &[pair.left.sge(10_000, 3_500)]);
    pair.left.post(3, SendOp::Send { immediate: None }, &[pair.left.sge(20_000, 10)]);
    pair.run();
    let received: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.byte_len)).collect();
    assert_eq!(received, [(10, 4_000), (11, 3_500), (12, 10)]);
    let (left, right) = (&pair.left.memory, &pair.right.memory);
    assert_eq!(right[500_000..504_000], left[..4_000]);
    assert_eq!(right[520_000..523_500], left[10_000..13_500]);
    assert_eq!(right[540_000..540_010], left[20_000..20_010]);
    all_succeed(&mut pair.left, 1..4);
}

/// Beyond the limit: the second Send arrives before a receive for it is posted. It is not held; when its turn comes
/// and there is still no receive, the receiver sends an RNR NACK.
#[test]
fn i15_an_out_of_order_send_without_a_receive_is_not_kept() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    pair.right.post_recv(10, &[pair.right.sge(TARGET, 100)]);
    (0..2).for_each(|wr_id| pair.left.post(wr_id, SendOp::Send { immediate: None }, &[pair.left.sge(0, 100)]));
    pair.run_until(us(400));
    assert_eq!(pair.right.engine.stats().packets_out_of_order, 0);
    assert!(pair.right.engine.stats().rnr_naks_sent > 0);
    pair.right.post_recv(11, &[pair.right.sge(TARGET + 1_000, 100)]);
    pair.run();
    all_succeed(&mut pair.left, 0..2);
    all_succeed(&mut pair.right, 10..12);
}
