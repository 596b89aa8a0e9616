//! I-16 to I-18 and I-20: effects that happen in order although packets arrive out of order.

use super::*;

/// A packet of the Write is late by 50 us (and so are its repairs), the Read after it is not. The Read waits in its
/// slot and returns the written data.
#[test]
fn i16_a_read_after_a_delayed_write_returns_the_new_data() {
    let mut pair = irn();
    pair.wire(|sent| {
        let late = sent.from == From::Left && FIRST.distance_to(sent.packet.psn) == 1;
        if late { Fate::Late(Duration::from_us(50)) } else { Fate::Deliver }
    });
    write(&mut pair, 1, 3);
    let (sge, remote) = (pair.left.sge(700_000, 3 * MTU), pair.right.remote(TARGET));
    pair.left.post(2, SendOp::Read { remote }, &[sge]);
    pair.run_until(us(54));
    assert_eq!(pair.data_of(From::Right, FIRST), [], "a request is executed before 55 us");
    pair.run();
    all_succeed(&mut pair.left, [1, 2]);
    assert_eq!(pair.left.memory[700_000..703_072], pair.left.memory[..3_072]);
}

/// An atomic is not executed early either; it is executed once, when its turn comes, and the second one after it.
#[test]
fn i16_out_of_order_atomics_wait_for_all_earlier_requests() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    let remote = pair.right.remote(TARGET);
    pair.left.memory[..8].copy_from_slice(&1_000u64.to_ne_bytes());
    pair.left.post(1, SendOp::Write { remote, immediate: None }, &[pair.left.sge(0, 8)]);
    pair.left.post(2, SendOp::FetchAdd { remote, add: 1 }, &[pair.left.sge(700_000, 8)]);
    pair.left.post(3, SendOp::CompareSwap { remote, compare: 1_001, swap: 7 }, &[pair.left.sge(700_008, 8)]);
    pair.left.post(4, SendOp::Read { remote }, &[pair.left.sge(700_016, 8)]);
    pair.run();
    all_succeed(&mut pair.left, 1..5);
    let found = [700_000, 700_008, 700_016].map(|at| &pair.left.memory[at..at + 8]);
    assert_eq!(found, [1_000u64, 1_001, 7].map(u64::to_ne_bytes));
}

/// Each read and atomic names its slot of the Read WQE buffer, in the order of posting; other requests in between
/// take no slot.
#[test]
fn i16_reads_and_atomics_are_numbered_separately_from_other_requests() {
    let mut pair = irn();
    for round in 0..3 {
        write(&mut pair, round * 3, 1);
        read(&mut pair, round * 3 + 1, 2);
        let remote = pair.right.remote(800);
        pair.left.post(round * 3 + 2, SendOp::FetchAdd { remote, add: 1 }, &[pair.left.sge(900_000, 8)]);
    }
    pair.run();
    let names = pair.log.iter().filter_map(|sent| match sent.packet.headers {
        Headers::ReadRequest { read_sn, .. } | Headers::AtomicRequest { read_sn, .. } => Some(read_sn),
        _ => None,
    });
    let names: Vec<_> = names.map(|sn| sn.expect("every request has one").value()).collect();
    assert_eq!(names, [0, 1, 2, 3, 4, 5]);
    all_succeed(&mut pair.left, 0..9);
}

/// Acknowledgements carry the number of completed messages. Of three Writes of two packets, the very first packet is
/// lost: no message counts until it arrives, then all of them count.
#[test]
fn i17_the_message_count_never_exceeds_the_contiguous_messages() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    (1..4).for_each(|wr_id| write(&mut pair, wr_id, 2));
    pair.run();
    let counts = pair.log.iter().filter_map(|sent| match sent.packet.headers {
        Headers::Ack { aeth, .. } => Some(aeth.msn.value()),
        _ => None,
    });
    assert_eq!(counts.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 3]);
    all_succeed(&mut pair.left, 1..4);
}

/// The second of three Sends misses a packet: the first one completes at both ends; the third, although complete in
/// memory, completes at neither end before the second.
#[test]
fn i17_completions_wait_for_contiguous_data_at_both_ends() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(3, 0), (3, 1)]));
    (0..3).for_each(|wr_id| pair.right.post_recv(10 + wr_id, &[pair.right.sge(TARGET + wr_id * 5_000, 5_000)]));
    (0..3).for_each(|wr_id| {
        let sge = pair.left.sge(wr_id * 5_000, 2 * MTU);
        pair.left.post(wr_id, SendOp::Send { immediate: None }, &[sge]);
    });
    pair.run_until(us(50));
    all_succeed(&mut pair.left, [0]);
    all_succeed(&mut pair.right, [10]);
    assert_eq!(pair.right.info().msn, 1);
    assert_eq!(pair.right.memory[510_000..512_048], pair.left.memory[10_000..12_048], "the third is not placed");
    pair.run();
    all_succeed(&mut pair.left, [1, 2]);
    all_succeed(&mut pair.right, [11, 12]);
    assert_eq!(pair.right.info().msn, 3);
}

/// The last packet of a Send, with the immediate data, arrives first. The completion is reported when the other
/// packets have arrived, with that immediate data.
#[test]
fn i18_a_last_packet_that_arrives_first_completes_its_message_when_the_others_arrive() {
    let mut pair = irn();
    pair.wire(|sent| {
        let late = sent.from == From::Left && FIRST.distance_to(sent.packet.psn) < 2;
        if late { Fate::Late(Duration::from_us(30)) } else { Fate::Deliver }
    });
    pair.right.post_recv(10, &[pair.right.sge(TARGET, 9_000)]);
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::Send { immediate: Some(0xabc) },
        sges: &[pair.left.sge(0, 2_500)],
        flags: SendFlags::SIGNALED | SendFlags::SOLICITED,
    };
    pair.left.engine.post_send(pair.left.qpn, &request).expect("the queue is not full");
    pair.run_until(us(34));
    assert_eq!(pair.right.completions(), []);
    pair.run_until(us(35));
    let completions = pair.right.completions();
    let [completion] = completions[..] else { panic!("{completions:?}") };
    assert_eq!((completion.wr_id, completion.byte_len, completion.word), (10, 2_500, 0xabc));
    assert_eq!(completion.flags, WcFlags::WITH_IMM | WcFlags::SOLICITED);
}

/// Write with immediate, Send, Write with immediate: the held completions of the later ones are reported in order,
/// none before its turn.
#[test]
fn i18_held_completions_are_reported_in_order() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0), (2, 0)]));
    (0..3).for_each(|wr_id| pair.right.post_recv(10 + wr_id, &[pair.right.sge(TARGET + wr_id * 5_000, 5_000)]));
    let remote = pair.right.remote(600_000);
    let sge = pair.left.sge(0, 2_000);
    pair.left.post(1, SendOp::Write { remote, immediate: Some(1) }, &[sge]);
    pair.left.post(2, SendOp::Send { immediate: None }, &[sge]);
    pair.left.post(3, SendOp::Write { remote, immediate: Some(3) }, &[sge]);
    pair.run();
    let completions = pair.right.completions();
    let seen: Vec<_> = completions.iter().map(|c| (c.wr_id, c.opcode, c.word, c.byte_len)).collect();
    let (write, send) = (WcOpcode::RecvRdmaWithImm, WcOpcode::Recv);
    assert_eq!(seen, [(10, write, 1, 2_000), (11, send, 0, 2_000), (12, write, 3, 2_000)]);
    all_succeed(&mut pair.left, 1..4);
}

/// Sends into a shared receive queue, with losses: receives are used in the order in which they were posted, and a
/// Send that arrives early reserves the receives of the Sends before it too.
#[test]
fn i20_receives_of_a_shared_receive_queue_are_used_in_order() {
    let mut setup = Setup::new("irn", &[]);
    setup.srq = Some(16);
    let mut pair = Pair::new(&setup);
    pair.wire(drop_requests(FIRST, &[(0, 0), (3, 0)]));
    for wr_id in 0..6 {
        let sge = pair.right.sge(TARGET + wr_id * 1_000, 1_000);
        let request = RecvRequest { wr_id, sges: &[sge] };
        pair.right.engine.objects_mut().post_srq_recv(pair.right.srq.expect("it exists"), &request).expect("not full");
    }
    for wr_id in 0..6 {
        pair.left.post(wr_id, SendOp::Send { immediate: Some(wr_id as u32) }, &[pair.left.sge(wr_id * 1_000, 500)]);
    }
    pair.run();
    let received: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.word)).collect();
    assert_eq!(received, (0..6).map(|wr_id| (wr_id, wr_id as u32)).collect::<Vec<_>>());
    for at in (0..6_000).step_by(1_000) {
        assert_eq!(pair.right.memory[500_000 + at..500_500 + at], pair.left.memory[at..at + 500]);
    }
}

/// A Send with invalidate arrives before a Write that uses the key: the key is valid until the Send's turn has come,
/// and invalid afterwards.
#[test]
fn i20_send_with_invalidate_invalidates_the_key_in_order() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    let region = MemoryRegion {
        pd: pair.right.pd,
        addr: 0x9000_0000,
        len: 4_096,
        local: 800_000,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_INVALIDATE,
    };
    let rkey = pair.right.engine.objects_mut().register(region).expect("legal").0;
    let remote = RemoteMemory { addr: 0x9000_0000, rkey };
    pair.right.post_recv(10, &[pair.right.sge(TARGET, 100)]);
    pair.left.post(1, SendOp::Write { remote, immediate: None }, &[pair.left.sge(0, 1_000)]);
    pair.left.post(2, SendOp::SendInvalidate { rkey }, &[pair.left.sge(0, 10)]);
    pair.run();
    all_succeed(&mut pair.left, [1, 2]);
    let completions = pair.right.completions();
    assert_eq!(
        completions.iter().map(|c| (c.wr_id, c.word, c.flags)).collect::<Vec<_>>(),
        [(10, rkey, WcFlags::WITH_INV)]
    );
    assert_eq!(pair.right.memory[800_000..801_000], pair.left.memory[..1_000]);
    pair.left.post(3, SendOp::Write { remote, immediate: None }, &[pair.left.sge(0, 1_000)]);
    pair.run();
    assert_eq!(pair.left.statuses(), [(3, WcStatus::RemoteAccess)], "the key is still valid");
}
