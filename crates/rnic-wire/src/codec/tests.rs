//! Packets that the codec rejects. Those that it accepts are in `tests/golden.rs` and `tests/round_trip.rs`.

use super::*;
use crate::packet::{
    Aeth, AtomicOp, Headers, NakCode, PackedPsn, PacketFlags, Position, Qpn, Reth, SendPlacement, SendTail, Syndrome,
    WqeSn,
};
use rnic_base::{Psn, Serial};

const BOTH: [Format; 2] = [Format::RoceV2, Format::Irn];
const AETH: Aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(1) };

fn packet(payload_len: u32, headers: Headers) -> Packet {
    Packet { dest_qpn: Qpn::new(9), psn: Psn::new(5), flags: PacketFlags::default(), payload_len, headers }
}

fn send(position: Position, tail: SendTail, placement: bool) -> Headers {
    let placement = placement.then_some(SendPlacement { recv_sn: WqeSn::new(1), offset: Serial::new(2) });
    Headers::Send { position, tail, placement }
}

fn write(position: Position, reth: bool, immediate: bool, recv_sn: bool) -> Headers {
    Headers::Write {
        position,
        reth: reth.then_some(Reth::default()),
        immediate: immediate.then_some(7),
        recv_sn: recv_sn.then_some(WqeSn::new(1)),
    }
}

/// Returns the text of the error with which the encoder rejects these headers.
fn refusal(format: Format, payload_len: u32, headers: Headers) -> String {
    let packet = packet(payload_len, headers);
    encode_headers(format, &packet, &mut [0; HEADERS_MAX]).expect_err("the format forbids these fields").to_string()
}

fn missing(format: Format, field: &str) -> String {
    format!("a {format:?} packet of this type and position in its message requires {field}")
}

fn unexpected(format: Format, field: &str) -> String {
    format!("a {format:?} packet of this type and position in its message cannot carry {field}")
}

#[test]
fn encode_allows_send_fields_only_where_defined() {
    for format in BOTH {
        let irn = format == Format::Irn;
        for position in [Position::First, Position::Middle] {
            let refused = refusal(format, 4, send(position, SendTail::Immediate(1), irn));
            assert_eq!(refused, unexpected(format, "immediate data"));
            let refused = refusal(format, 4, send(position, SendTail::Invalidate(1), irn));
            assert_eq!(refused, unexpected(format, "a key to invalidate"));
        }
    }
    let plain = |placement| send(Position::Only, SendTail::Plain, placement);
    assert_eq!(refusal(Format::RoceV2, 4, plain(true)), unexpected(Format::RoceV2, "a Send placement"));
    assert_eq!(refusal(Format::Irn, 4, plain(false)), missing(Format::Irn, "a Send placement"));
}

#[test]
fn encode_allows_write_fields_only_where_defined() {
    use Position::{First, Last, Middle, Only};
    let roce = Format::RoceV2;
    assert_eq!(refusal(roce, 4, write(Middle, true, false, false)), unexpected(roce, "a RETH"));
    assert_eq!(refusal(roce, 4, write(Last, true, false, false)), unexpected(roce, "a RETH"));
    assert_eq!(refusal(roce, 4, write(First, false, false, false)), missing(roce, "a RETH"));
    assert_eq!(refusal(roce, 4, write(Only, false, true, false)), missing(roce, "a RETH"));
    assert_eq!(refusal(roce, 4, write(First, true, true, false)), unexpected(roce, "immediate data"));
    let field = "a receive WQE sequence number";
    assert_eq!(refusal(roce, 4, write(Only, true, true, true)), unexpected(roce, field));

    let irn = Format::Irn;
    assert_eq!(refusal(irn, 4, write(Middle, false, false, false)), missing(irn, "a RETH"));
    assert_eq!(refusal(irn, 4, write(Last, true, true, false)), missing(irn, field));
    assert_eq!(refusal(irn, 4, write(Last, true, false, true)), unexpected(irn, field));
    assert_eq!(refusal(irn, 4, write(Middle, true, true, true)), unexpected(irn, "immediate data"));
}

#[test]
fn encode_requests_and_responses() {
    let reth = Reth::default();
    let op = AtomicOp::FetchAdd { add: 1 };
    let field = "a Read WQE sequence number";
    for (format, read_sn) in [(Format::RoceV2, Some(WqeSn::new(1))), (Format::Irn, None)] {
        let expected = if read_sn.is_some() { unexpected(format, field) } else { missing(format, field) };
        assert_eq!(refusal(format, 0, Headers::ReadRequest { reth, read_sn, fasr: None }), expected);
        assert_eq!(
            refusal(
                format,
                0,
                Headers::AtomicRequest { va: 8, rkey: 1, op, read_sn, expected_psn: PackedPsn::default() }
            ),
            expected
        );
    }
    for format in BOTH {
        let response = |position, aeth| Headers::ReadResponse { position, aeth, sink: None };
        assert_eq!(refusal(format, 4, response(Position::Middle, Some(AETH))), unexpected(format, "an AETH"));
        for position in [Position::First, Position::Last, Position::Only] {
            assert_eq!(refusal(format, 4, response(position, None)), missing(format, "an AETH"));
        }
    }
}

#[test]
fn encode_acknowledgements() {
    let roce = Format::RoceV2;
    let sack = Some(Psn::new(3));
    assert_eq!(refusal(roce, 0, Headers::Ack { aeth: AETH, sack }), unexpected(roce, "a selective acknowledgement"));
    let read_ack = Headers::ReadAck { aeth: AETH, sack: None };
    for format in [roce, Format::Fasr] {
        assert_eq!(refusal(format, 0, read_ack), unexpected(format, "a read acknowledgement"));
    }
    let credits = Aeth { syndrome: Syndrome::Ack { credits: 32 }, msn: Serial::new(0) };
    for format in BOTH {
        let refused = refusal(format, 0, Headers::Ack { aeth: credits, sack: None });
        assert_eq!(refused, "the credit count is 32, which exceeds the maximum of 31");
        let refused = refusal(format, 0, Headers::AtomicResponse { aeth: credits, original: 0, sink: None });
        assert_eq!(refused, "the credit count is 32, which exceeds the maximum of 31");
    }
}

#[test]
fn encode_trimmed_packets_and_pulls_only_in_irn() {
    let trim_nack = |aeth| Headers::TrimNack { aeth, trimmed: Psn::new(3), of_response: false };
    let nak = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), ..AETH };
    let pull = Headers::Pull { granted: Serial::new(7) };
    for format in [Format::RoceV2, Format::Fasr] {
        assert_eq!(refusal(format, 0, trim_nack(nak)), unexpected(format, "the number of a trimmed packet"));
        assert_eq!(refusal(format, 0, pull), unexpected(format, "a pull"));
    }
    assert_eq!(refusal(Format::Irn, 0, trim_nack(AETH)), missing(Format::Irn, "a NAK of the trimmed packet"));
    assert_eq!(packet(0, pull).trimmed(Format::Irn), None, "a packet without payload is trimmed");
    let data = |format: Format| packet(100, write(Position::First, true, false, false)).trimmed(format);
    assert_eq!([Format::RoceV2, Format::Fasr].map(data), [None; 2], "receivers do not know trimmed packets");
    let trimmed = data(Format::Irn).expect("a data packet");
    assert!(trimmed.is_trimmed() && !packet(0, trimmed.headers).is_trimmed());
    assert!(encode_headers(Format::Irn, &trimmed, &mut [0; HEADERS_MAX]).is_ok());
    assert!(encode_headers(Format::RoceV2, &trimmed, &mut [0; HEADERS_MAX]).is_err(), "RoCE has no trimmed packets");
}

#[test]
fn encode_fasr_rejects_fields_the_format_lacks() {
    use crate::packet::{LossCause, LossReportFields};
    let fasr = Format::Fasr;
    let long = |position| Headers::Write {
        position,
        reth: Some(Reth { va: 1, rkey: 2, dma_len: 3 }),
        immediate: None,
        recv_sn: None,
    };
    assert_eq!(refusal(fasr, 4, long(Position::Middle)), unexpected(fasr, "a length"));
    assert_eq!(refusal(fasr, 4, write(Position::Last, false, false, false)), missing(fasr, "a RETH"));
    assert_eq!(refusal(fasr, 4, send(Position::Only, SendTail::Plain, false)), missing(fasr, "a Send placement"));
    let sack = Headers::Ack { aeth: AETH, sack: Some(Psn::new(3)) };
    assert_eq!(refusal(fasr, 0, sack), unexpected(fasr, "a selective acknowledgement"));
    let report = |cause, lost, aeth| Headers::LossAck {
        aeth,
        report: LossReportFields { cause, psn: Psn::new(3), lost, overflow: false },
    };
    let field = "a syndrome and a count that its loss report allows";
    assert_eq!(refusal(fasr, 0, report(LossCause::OutOfOrder, 1, AETH)), missing(fasr, field));
    assert_eq!(refusal(fasr, 0, report(LossCause::Repaired, 8, AETH)), missing(fasr, field));
    for format in BOTH {
        let refused = refusal(format, 0, report(LossCause::Repaired, 1, AETH));
        assert_eq!(refused, unexpected(format, "a loss report"));
    }
}

#[test]
fn encode_payload_fits_the_opcode() {
    let roce = Format::RoceV2;
    let expected = |bytes: u32| format!("a packet of this type cannot carry a payload of {bytes} bytes");
    assert_eq!(refusal(roce, 0, send(Position::First, SendTail::Plain, false)), expected(0));
    assert_eq!(refusal(roce, 0, write(Position::Last, false, false, false)), expected(0));
    assert_eq!(refusal(roce, 8193, write(Position::Only, true, false, false)), expected(8193));
    assert_eq!(refusal(roce, 1, Headers::Ack { aeth: AETH, sack: None }), expected(1));
    assert_eq!(refusal(roce, 16, Headers::Cnp), expected(16));
}

/// Returns an empty Send in one packet, with space for an ICRC.
fn smallest() -> Vec<u8> {
    let mut headers = [0; HEADERS_MAX];
    let packet = packet(0, send(Position::Only, SendTail::Plain, false));
    let len = encode_headers(Format::RoceV2, &packet, &mut headers).expect("an empty Send");
    [&headers[..len], &[0; ICRC_LEN]].concat()
}

#[test]
fn decode_reports_each_failed_check() {
    let broken = |at: usize, value: u8| {
        let mut datagram = smallest();
        datagram[at] = value;
        decode(&datagram).err()
    };
    assert_eq!(broken(11, 5), None, "the packet that the others break");
    assert_eq!(broken(1, 0x43), Some(WireError::Version));
    assert_eq!(broken(0, 0x15), Some(WireError::Opcode));
    assert_eq!(broken(0, 0x18), Some(WireError::Opcode), "a read acknowledgement is not RoCE");
    assert_eq!(broken(0, 0x64), Some(WireError::Short), "no room for a DETH");
    assert_eq!(broken(0, 0x2c), Some(WireError::Opcode), "unreliable connections cannot read");
    assert_eq!(broken(3, 0xfe), Some(WireError::PartitionKey));
    assert_eq!(broken(1, 0x50), Some(WireError::Padding), "padding of an empty payload");
    assert_eq!(broken(0, 0x00), Some(WireError::PayloadLength), "a first packet without payload");
    assert_eq!(broken(0, 0x0a), Some(WireError::Short), "no room for a RETH");
    assert_eq!(broken(0, 0x11), Some(WireError::Short), "what would be the ICRC is the AETH");
}

#[test]
fn encode_each_service_has_its_operations() {
    let (connection, datagrams) = (Format::UnreliableConnection, Format::UnreliableDatagram);
    let plain = send(Position::Only, SendTail::Plain, false);
    let invalidating = send(Position::Only, SendTail::Invalidate(1), false);
    let datagram = Headers::Datagram { queue_key: 1, source_qpn: Qpn::new(9), immediate: None };
    let read = Headers::ReadRequest { reth: Reth::default(), read_sn: None, fasr: None };
    assert_eq!(refusal(connection, 4, invalidating), unexpected(connection, "a key to invalidate"));
    assert_eq!(refusal(connection, 4, datagram), unexpected(connection, "a DETH"));
    for headers in [read, Headers::Cnp, Headers::Ack { aeth: AETH, sack: None }] {
        assert_eq!(
            refusal(connection, 0, headers),
            unexpected(connection, "an operation other than a Send or a Write")
        );
        assert_eq!(refusal(datagrams, 0, headers), unexpected(datagrams, "an operation other than a datagram"));
    }
    assert_eq!(refusal(datagrams, 4, plain), unexpected(datagrams, "an operation other than a datagram"));
    for format in BOTH {
        assert_eq!(refusal(format, 4, datagram), unexpected(format, "a DETH"));
    }
}

#[test]
fn decode_rejects_management_datagrams() {
    let mut headers = [0; HEADERS_MAX];
    let datagram = Headers::Datagram { queue_key: 1, source_qpn: Qpn::new(9), immediate: None };
    for (number, expected) in [(0, Some(WireError::Opcode)), (1, Some(WireError::Opcode)), (2, None)] {
        let packet = Packet { dest_qpn: Qpn::new(number), ..packet(0, datagram) };
        let len = encode_headers(Format::UnreliableDatagram, &packet, &mut headers).expect("an empty datagram");
        let bytes = [&headers[..len], &[0; ICRC_LEN]].concat();
        assert_eq!(decode(&bytes).err(), expected, "queue pair {number}");
        assert_eq!(crate::gsi::is_gsi(&bytes), number == 1);
    }
}

#[test]
fn decode_lengths() {
    let datagram = smallest();
    for len in 0..datagram.len() {
        assert_eq!(decode(&datagram[..len]).err(), Some(WireError::Short), "{len} bytes");
    }
    for extra in 1..=3 {
        let longer = [&datagram[..], &vec![0; extra]].concat();
        assert_eq!(decode(&longer).err(), Some(WireError::Padding), "{extra} bytes more");
    }
    let four_more = [&datagram[..], &[0; 4]].concat();
    assert_eq!(decode(&four_more).map(|decoded| decoded.payload), Ok(12..16));
    let mut three_of_them_padding = four_more;
    three_of_them_padding[1] |= 0x30;
    assert_eq!(decode(&three_of_them_padding).map(|decoded| decoded.payload), Ok(12..13));
    let longest = [&datagram[..], &[0; 8192]].concat();
    assert_eq!(decode(&longest).map(|decoded| decoded.packet.payload_len), Ok(8192));
    let too_long = [&datagram[..], &[0; 8196]].concat();
    assert_eq!(decode(&too_long).err(), Some(WireError::PayloadLength));
}

#[test]
fn decode_rejects_acknowledgements_with_payload_or_reserved_syndrome() {
    let mut headers = [0; HEADERS_MAX];
    let packet = packet(0, Headers::Ack { aeth: AETH, sack: None });
    let len = encode_headers(Format::RoceV2, &packet, &mut headers).expect("an ACK");
    let datagram = [&headers[..len], &[0; ICRC_LEN]].concat();
    assert!(decode(&datagram).is_ok());
    let longer = [&datagram[..], &[0; 4]].concat();
    assert_eq!(decode(&longer).err(), Some(WireError::PayloadLength));
    let mut reserved = datagram;
    reserved[12] = 0x80;
    assert_eq!(decode(&reserved).err(), Some(WireError::Syndrome));
}

#[test]
fn assemble_rejects_a_payload_of_another_length() {
    let parse = |text: &str| text.parse().expect("an address");
    let path = Addresses::new(parse("10.0.0.1:1"), parse("10.0.0.2:4791")).expect("both IPv4");
    let packet = packet(5, send(Position::Only, SendTail::Plain, false));
    let mut out = Vec::new();
    let refused = assemble(Format::RoceV2, &packet, &[b"abc"], &path, &mut out);
    assert_eq!(refused, Err(EncodeError::PayloadLength { bytes: 3 }));
    assemble(Format::RoceV2, &packet, &[b"abc", b"de"], &path, &mut out).expect("five bytes in two parts");
    assert_eq!(out[12..20], *b"abcde\0\0\0");
    assert!(crate::icrc::verify(&path, &out));
}
