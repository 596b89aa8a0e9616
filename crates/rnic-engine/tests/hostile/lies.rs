//! Inconsistent packets one by one: packets that contradict themselves or earlier packets, and how the receiver
//! treats each of them.

use rnic_base::{Psn, Serial};
use rnic_engine::*;
use rnic_wire::{
    Aeth, Format, Headers, NakCode, Packet, PacketFlags, Position, Reth, SendPlacement, SendTail, Syndrome,
};

use crate::common::*;

const FIRST: Psn = Psn::new(0xff_fffa);
const TARGET: u64 = 500_000;

/// Records the segments that payload is placed in.
#[derive(Default)]
struct Notes(Vec<Segment>);

impl Dma for Notes {
    fn place(&mut self, _: u32, target: Segment) -> Result<(), MemoryFault> {
        self.0.push(target);
        Ok(())
    }

    fn store(&mut self, local: u64, _: u64) -> Result<(), MemoryFault> {
        self.0.push(Segment { local, len: 8 });
        Ok(())
    }

    fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryFault> {
        panic!("no atomic was requested");
    }

    fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryFault> {
        panic!("no atomic was requested");
    }
}

/// Delivers to `to` a packet that its peer never sent; returns the outcome and the segments its payload was placed
/// in.
fn forge(pair: &mut Pair, to: From, psn: i64, headers: Headers, payload_len: u32) -> (RxOutcome, Vec<Segment>) {
    let now = pair.now;
    let side = if to == From::Left { &mut pair.left } else { &mut pair.right };
    let transport = side.format;
    let psn = FIRST.plus((psn & 0xff_ffff) as u32);
    let packet = Packet { dest_qpn: side.qpn, psn, flags: PacketFlags::default(), payload_len, headers };
    let (mut notes, meta) = (Notes::default(), RxMeta { peer: PeerId(7), congested: false });
    let outcome = side.engine.receive(now, Arrival::Roce(transport, &packet, meta), &mut notes);
    (outcome, notes.0)
}

fn write_headers(pair: &Pair, position: Position, at: u64, dma_len: u32, immediate: Option<u32>) -> Headers {
    let irn = pair.right.format == Format::Irn;
    let reth = Reth { va: BASE + TARGET + at, rkey: pair.right.key, dma_len };
    let reth = (irn || position.starts()).then_some(reth);
    let recv_sn = immediate.filter(|_| irn).map(|_| Serial::new(0));
    Headers::Write { position, reth, immediate, recv_sn }
}

fn send_headers(pair: &Pair, position: Position, recv_sn: u32, offset: u32) -> Headers {
    let irn = pair.right.format == Format::Irn;
    let placement = SendPlacement { recv_sn: Serial::new(recv_sn), offset: Serial::new(offset) };
    Headers::Send { position, tail: SendTail::Plain, placement: irn.then_some(placement) }
}

fn nak(code: NakCode) -> Headers {
    Headers::Ack { aeth: Aeth { syndrome: Syndrome::Nak(code), msn: Serial::new(0) }, sack: None }
}

/// Returns the NAK code of the right side's refusal, if it sent one.
fn refusal(pair: &mut Pair) -> Option<NakCode> {
    let transmit = pair.right.engine.transmit(pair.now).and_then(Departure::roce)?;
    match transmit.packet.headers {
        Headers::Ack { aeth: Aeth { syndrome: Syndrome::Nak(code), .. }, .. } => Some(code),
        _ => None,
    }
}

/// Each IRN packet carries the length of its message and its offset in it; only when the message is complete can that
/// length be compared with the number of packets. A message whose packets do not match it is refused, and its receive
/// does not complete with a false length.
#[test]
fn a_message_whose_length_differs_from_its_packets_is_refused() {
    type Lie = fn(&Pair) -> (Headers, u32);
    let lies: [(&str, Lie); 6] = [
        ("write of a packet that claims a GiB", |pair| (write_headers(pair, Position::Only, 0, 1 << 30, Some(1)), 10)),
        ("write of a packet that claims two", |pair| (write_headers(pair, Position::Only, 0, MTU + 1, Some(1)), 1_024)),
        ("end of a write that never began", |pair| {
            (write_headers(pair, Position::Last, MTU.into(), MTU + 9, Some(1)), 9)
        }),
        ("end of a send that never began", |pair| (send_headers(pair, Position::Last, 0, 3), 10)),
        ("write that claims more than 4 GiB can be", |pair| {
            (write_headers(pair, Position::Only, 0, u32::MAX, Some(1)), 4)
        }),
        ("write of nothing that claims much", |pair| (write_headers(pair, Position::Only, 0, 9_999, Some(1)), 0)),
    ];
    for (what, lie) in lies {
        let mut pair = Pair::of("irn");
        pair.right.post_recv(100, &[pair.right.sge(TARGET, 8_000)]);
        let (headers, len) = lie(&pair);
        forge(&mut pair, From::Right, 0, headers, len);
        assert_eq!(refusal(&mut pair), Some(NakCode::InvalidRequest), "{what}");
        assert_eq!(pair.right.statuses(), [(100, WcStatus::WrFlushed)], "{what}");
    }
}

/// As above, with the inconsistent packet arriving out of order: it is refused only when its turn comes.
#[test]
fn inconsistent_out_of_order_packets_are_refused_in_order() {
    let mut pair = Pair::of("irn");
    pair.right.post_recv(100, &[pair.right.sge(TARGET, 8_000)]);
    let lie = write_headers(&pair, Position::Only, 0, 1 << 20, Some(1));
    assert_eq!(forge(&mut pair, From::Right, 1, lie, 10).0, RxOutcome::OutOfOrder);
    let honest = write_headers(&pair, Position::Only, 0, 10, None);
    forge(&mut pair, From::Right, 0, honest, 10);
    let answers =
        std::iter::from_fn(|| Some(pair.right.engine.transmit(pair.now).and_then(Departure::roce)?.packet.headers));
    let last = answers.last().expect("a NACK and a refusal");
    let Headers::Ack { aeth, .. } = last else { panic!("{last:?}") };
    assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::InvalidRequest));
    assert_eq!(pair.right.statuses(), [(100, WcStatus::WrFlushed)]);
}

/// In RoCE the sequence of packet positions forms the message. Every sequence that does not form a message is
/// refused.
#[test]
fn packet_positions_that_form_no_message_are_refused() {
    use Position::{First, Last, Middle, Only};
    let write = |position| move |pair: &Pair| write_headers(pair, position, 0, 2 * MTU, None);
    let send = |position| move |pair: &Pair| send_headers(pair, position, 0, 0);
    type Make<'a> = &'a dyn Fn(&Pair) -> Headers;
    let orders: [&[(Make<'_>, u32)]; 9] = [
        &[(&write(Middle), MTU)],
        &[(&write(Last), 10)],
        &[(&send(Middle), MTU)],
        &[(&send(Last), 10)],
        &[(&write(First), MTU), (&write(First), MTU)],
        &[(&write(First), MTU), (&write(Only), MTU)],
        &[(&write(First), MTU), (&send(Last), 10)],
        &[(&send(First), MTU), (&write(Only), 10)],
        // Longer than its first packet announced.
        &[(&write(First), MTU), (&write(Middle), MTU)],
    ];
    for (index, order) in orders.iter().enumerate() {
        let mut pair = Pair::of("roce-gbn");
        pair.right.post_recv(100, &[pair.right.sge(TARGET, 8_000)]);
        for (psn, (make, len)) in (0..).zip(*order) {
            let headers = make(&pair);
            let (outcome, _) = forge(&mut pair, From::Right, psn, headers, *len);
            let refused = RxOutcome::Dropped(DropReason::Refused);
            assert_eq!(outcome == refused, psn as usize + 1 == order.len(), "order {index}: {outcome:?}");
        }
        assert_eq!(refusal(&mut pair), Some(NakCode::InvalidRequest), "order {index}");
    }
}

/// Checks that packets whose size does not match their position in the message are refused.
#[test]
fn packets_of_the_wrong_size_are_refused() {
    use Position::{First, Last, Middle, Only};
    for transport in ["roce-gbn", "irn"] {
        for (position, len) in [(First, MTU - 1), (First, 0), (Middle, MTU + 4), (Last, 0), (Only, MTU + 1)] {
            let mut pair = Pair::of(transport);
            pair.right.post_recv(100, &[pair.right.sge(TARGET, 8_000)]);
            for headers in [write_headers(&pair, position, 0, 3 * MTU, None), send_headers(&pair, position, 0, 0)] {
                let (outcome, bytes) = forge(&mut pair, From::Right, 0, headers, len);
                assert_eq!(outcome, RxOutcome::Dropped(DropReason::Refused), "{transport}: {position:?} of {len}");
                assert_eq!(bytes, []);
            }
        }
    }
}

/// Checks that a copy of a read request that asks for more than the original is ignored: otherwise a single packet
/// could make the responder send a GiB.
#[test]
fn a_repeated_read_that_requests_more_bytes_is_ignored() {
    let mut pair = Pair::of("roce-gbn");
    let (sge, remote) = (pair.left.sge(TARGET, 3 * MTU), pair.right.remote(0));
    pair.left.post(1, SendOp::Read { remote }, &[sge]);
    pair.run();
    for (dma_len, answers) in [(3 * MTU, 3), (3 * MTU + 1, 0), (900_000, 0), (u32::MAX, 0)] {
        let reth = Reth { va: BASE, rkey: pair.right.key, dma_len };
        let (outcome, _) =
            forge(&mut pair, From::Right, 0, Headers::ReadRequest { reth, read_sn: None, fasr: None }, 0);
        assert_eq!(outcome, RxOutcome::Duplicate);
        let sent = std::iter::from_fn(|| pair.right.engine.transmit(pair.now).map(|_| ())).count();
        assert_eq!(sent, answers, "a copy that asks for {dma_len} bytes");
    }
    assert_eq!(pair.right.info().state, QpState::ReadyToSend);
}

/// Copies of many old reads arrive before any of them is answered: no more than 8 responses, twice the limit of 4,
/// are queued, however many copies arrive.
#[test]
fn repeated_reads_queue_a_bounded_number_of_responses() {
    let mut pair = Pair::of("roce-gbn");
    for wr_id in 0..60 {
        let (sge, remote) = (pair.left.sge(TARGET, 100), pair.right.remote(0));
        pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
    }
    pair.run();
    let reth = Reth { va: BASE, rkey: pair.right.key, dma_len: 100 };
    for psn in 0..60 {
        forge(&mut pair, From::Right, psn, Headers::ReadRequest { reth, read_sn: None, fasr: None }, 0);
    }
    let sent = std::iter::from_fn(|| pair.right.engine.transmit(pair.now).map(|_| ())).count();
    assert_eq!(sent, 8);
}

/// Receives are used in the order of messages; a message that names a wrong receive, or one that is already in use,
/// is refused.
#[test]
fn messages_that_name_a_wrong_receive_are_refused() {
    for recv_sn in [1, 2, 127, 128, 0xff_ffff] {
        let mut pair = Pair::of("irn");
        (0..3).for_each(|wr_id| pair.right.post_recv(100 + wr_id, &[pair.right.sge(TARGET, 100)]));
        let headers = send_headers(&pair, Position::Only, recv_sn, 0);
        forge(&mut pair, From::Right, 0, headers, 10);
        assert_eq!(refusal(&mut pair), Some(NakCode::InvalidRequest), "named {recv_sn}");
    }
    // Two out-of-order messages name the same receive: the second message is not held.
    let mut pair = Pair::of("irn");
    (0..3).for_each(|wr_id| pair.right.post_recv(100 + wr_id, &[pair.right.sge(TARGET, 100)]));
    let headers = send_headers(&pair, Position::Only, 1, 0);
    assert_eq!(forge(&mut pair, From::Right, 1, headers, 10).0, RxOutcome::OutOfOrder);
    assert_eq!(forge(&mut pair, From::Right, 2, headers, 10).0, RxOutcome::Dropped(DropReason::Refused));
}

/// Every message takes at least one packet, so a packet that arrives five packets early can be at most five messages
/// ahead, not six. A forged packet therefore reserves no more of a shared receive queue than an honest one.
#[test]
fn out_of_order_messages_reserve_no_more_receives_than_packets() {
    for (recv_sn, kept, left) in [(5, true, 58), (6, false, 64), (63, false, 64)] {
        let mut setup = Setup::new("irn", &[]);
        setup.srq = Some(64);
        let mut pair = Pair::new(&setup);
        let srq = pair.right.srq.expect("the setup has an SRQ");
        for wr_id in 0..64 {
            let receive = RecvRequest { wr_id, sges: &[pair.right.sge(TARGET, 100)] };
            pair.right.engine.objects_mut().post_srq_recv(srq, &receive).expect("the queue is not full");
        }
        let headers = send_headers(&pair, Position::Only, recv_sn, 0);
        let (outcome, _) = forge(&mut pair, From::Right, 5, headers, 10);
        assert_eq!(outcome == RxOutcome::OutOfOrder, kept, "named {recv_sn}");
        assert_eq!(pair.right.engine.objects().srq_level(srq), Some(left), "named {recv_sn}");
    }
}

/// Checks that a packet of the other protocol is ignored, even if its contents are valid.
#[test]
fn packets_of_the_other_protocol_are_ignored() {
    for (transport, other) in [("roce-gbn", Format::Irn), ("irn", Format::RoceV2)] {
        let mut pair = Pair::of(transport);
        pair.right.post_recv(100, &[pair.right.sge(TARGET, 100)]);
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(1) };
        let all = [
            write_headers(&pair, Position::Only, 0, 10, None),
            send_headers(&pair, Position::Only, 0, 0),
            Headers::Ack { aeth, sack: None },
            Headers::Cnp,
        ];
        pair.right.format = other;
        for headers in all {
            let (outcome, bytes) = forge(&mut pair, From::Right, 0, headers, 10);
            assert_eq!(outcome, RxOutcome::Dropped(DropReason::WrongFormat), "{transport}: {headers:?}");
            assert_eq!(bytes, []);
        }
        assert!(pair.right.engine.transmit(pair.now).is_none(), "{transport}: no answer");
    }
}

/// Checks that acknowledgements of packets that were never sent, and responses that were never requested, have no
/// effect.
#[test]
fn acknowledgements_and_responses_without_a_request_have_no_effect() {
    for transport in ["roce-gbn", "irn"] {
        let mut pair = Pair::of(transport);
        let (sge, remote) = (pair.left.sge(0, 3_000), pair.right.remote(TARGET));
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run_until(rnic_base::Time::from_us(2));
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(9) };
        let sack = (transport == "irn").then(|| FIRST.plus(200));
        let unsolicited = RxOutcome::Dropped(DropReason::Unsolicited);
        let ack = Headers::Ack { aeth, sack };
        let answer = Headers::ReadResponse { position: Position::Only, aeth: Some(aeth), sink: None };
        for (headers, psn, len) in [
            (ack, 3, 0),
            (ack, 1_000_000, 0),
            (nak(NakCode::RemoteAccessError), 4, 0),
            (nak(NakCode::PsnSequenceError), 1_000, 0),
            (answer, 0, 100),
            (answer, 2, 100),
            (Headers::AtomicResponse { aeth, original: 5, sink: None }, 1, 0),
        ] {
            let (outcome, bytes) = forge(&mut pair, From::Left, psn, headers, len);
            assert_eq!((outcome, bytes), (unsolicited, vec![]), "{transport}: {headers:?} at {psn}");
        }
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
    }
}

/// Checks that a response of the wrong kind or size to a read or an atomic makes the request fail, and that nothing
/// is written.
#[test]
fn responses_of_the_wrong_kind_or_size_fail_the_request() {
    for transport in ["roce-gbn", "irn"] {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(1) };
        let answer = Headers::ReadResponse { position: Position::Only, aeth: Some(aeth), sink: None };
        let atomic = Headers::AtomicResponse { aeth, original: 5, sink: None };
        for (reads, headers, len) in
            [(true, answer, 99), (true, answer, 101), (true, answer, 0), (true, atomic, 0), (false, answer, 8)]
        {
            let mut pair = Pair::of(transport);
            let remote = pair.right.remote(800);
            let (op, sge) = if reads {
                (SendOp::Read { remote }, pair.left.sge(TARGET, 100))
            } else {
                (SendOp::FetchAdd { remote, add: 1 }, pair.left.sge(TARGET, 8))
            };
            pair.left.post(1, op, &[sge]);
            pair.run_until(rnic_base::Time::from_us(2));
            let (_, bytes) = forge(&mut pair, From::Left, 0, headers, len);
            assert_eq!(bytes, [], "{transport}: {len} bytes");
            assert_eq!(pair.left.statuses(), [(1, WcStatus::BadResponse)], "{transport}: {headers:?} of {len} bytes");
        }
    }
}

/// Checks that a NACK whose selective part is invalid is treated as a plain NACK.
#[test]
fn a_nack_with_an_invalid_selective_part_is_a_plain_nack() {
    for sack in [-5, 0, 10, 11, 5_000, 1 << 23] {
        let mut pair = Pair::of("irn");
        let (sge, remote) = (pair.left.sge(0, 10 * MTU), pair.right.remote(TARGET));
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run_until(rnic_base::Time::from_us(2));
        let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), msn: Serial::new(0) };
        let headers = Headers::Ack { aeth, sack: Some(FIRST.plus((sack & 0xff_ffff) as u32)) };
        forge(&mut pair, From::Left, 0, headers, 0);
        let again: Vec<_> = std::iter::from_fn(|| {
            pair.left.engine.transmit(pair.now).and_then(Departure::roce).map(|sent| sent.packet.psn)
        })
        .collect();
        assert_eq!(again, [FIRST], "{sack}");
    }
}
