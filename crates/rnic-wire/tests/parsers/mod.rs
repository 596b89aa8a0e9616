//! Properties that every parser must have for arbitrary input: one function for each parser.
//!
//! The fuzz target in `/fuzz` calls these with the fuzzer's input, `tests/fuzz_bodies.rs` with a seeded random stream,
//! so that every ordinary test run has the same checks. Each function returns whether the parser accepted the input, so
//! that a caller can verify that it tests more than the first comparison. They panic when a property is violated.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::ICRC_LEN;
use rnic_wire::cm::ip::IpRequest;
use rnic_wire::cm::{self, PrivateData};
use rnic_wire::codec::{self, Decoded, HEADERS_MAX};
use rnic_wire::credit::Credit;
use rnic_wire::falcon;
use rnic_wire::gsi;
use rnic_wire::header::{bth, fasr, irn};
use rnic_wire::hello::Hello;
use rnic_wire::icrc::{self, IcrcPrefix};
use rnic_wire::net::Addresses;
use rnic_wire::packet::{AtomicOp, Format, Headers, PlacementOp};
use rnic_wire::scr::{self, Message};

/// A parser under test and the check of its properties.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name by which the fuzzer selects it, and of its corpus.
    pub name: &'static str,
    /// Checks one input; returns whether the parser accepted it.
    pub check: fn(&[u8]) -> bool,
}

/// All targets.
pub const TARGETS: [Target; 21] = [
    // RoCEv2, every service.
    Target { name: "roce", check: |data| datagram(data, irn::VERSION_ROCE) },
    Target { name: "irn", check: |data| datagram(data, irn::VERSION_IRN) },
    Target { name: "fasr", check: |data| datagram(data, fasr::VERSION) },
    Target { name: "falcon", check: falcon },
    Target { name: "falcon_datagram", check: falcon_datagram },
    Target { name: "falcon_esp", check: falcon_esp },
    Target { name: "icrc", check: icrc },
    Target { name: "ip_packet", check: ip_packet },
    Target { name: "gsi", check: gsi },
    Target { name: "cm_request", check: |data| message(cm::Request::ATTRIBUTE, data) },
    Target { name: "cm_reject", check: |data| message(cm::Reject::ATTRIBUTE, data) },
    Target { name: "cm_reply", check: |data| message(cm::Reply::ATTRIBUTE, data) },
    Target { name: "cm_ready_to_use", check: |data| message(cm::ReadyToUse::ATTRIBUTE, data) },
    Target { name: "cm_disconnect_request", check: |data| message(cm::DisconnectRequest::ATTRIBUTE, data) },
    Target { name: "cm_disconnect_reply", check: |data| message(cm::DisconnectReply::ATTRIBUTE, data) },
    Target { name: "cm_lookup_request", check: |data| message(cm::LookupRequest::ATTRIBUTE, data) },
    Target { name: "cm_lookup_reply", check: |data| message(cm::LookupReply::ATTRIBUTE, data) },
    Target { name: "cm_ip_request", check: cm_ip_request },
    Target { name: "credit", check: credit },
    Target { name: "hello", check: hello },
    Target { name: "scr", check: scr },
];

/// Checks datagrams of a version: decodes `data` unchanged, and then with the given version.
fn datagram(data: &[u8], version: u8) -> bool {
    if let Ok(decoded) = codec::decode(data) {
        check_round_trip(data, &decoded);
    }
    let mut data = data.to_vec();
    if let Some(byte) = data.get_mut(1) {
        *byte = *byte & 0xf0 | version;
    }
    match codec::decode(&data) {
        Ok(decoded) => {
            check_round_trip(&data, &decoded);
            true
        }
        Err(_) => false,
    }
}

/// Checks that a decoded packet has the correct offsets and lengths, and that it encodes to the original bytes.
fn check_round_trip(data: &[u8], decoded: &Decoded) {
    let Decoded { format, packet, payload } = decoded;
    assert_eq!(payload.len(), packet.payload_len as usize);
    assert_eq!(payload.start, packet.headers_len(*format) as usize);
    assert_eq!(payload.end + packet.pad_len() as usize + ICRC_LEN, data.len());
    assert_eq!(packet.udp_payload_len(*format) as usize, data.len());

    let mut headers = [0; HEADERS_MAX];
    let len = codec::encode_headers(*format, packet, &mut headers).expect("a decoded packet can be encoded");
    let mut expected = data[..payload.start].to_vec();
    clear_reserved(&mut expected, decoded);
    assert_eq!(headers[..len], expected);
}

/// Sets the bits that receivers ignore to the values that OpenRNIC sends.
fn clear_reserved(headers: &mut [u8], decoded: &Decoded) {
    let extended = bth::LEN;
    let end = headers.len();
    headers[1] &= !0x40;
    headers[1] |= if matches!(decoded.packet.headers, Headers::Cnp | Headers::Datagram { .. }) { 0 } else { 0x40 };
    headers[bth::VARIANT_BYTE] &= 0xc0;
    headers[8] &= 0x80;
    match decoded.packet.headers {
        Headers::Cnp => headers[extended..].fill(0),
        Headers::Datagram { .. } => headers[extended + 4] = 0,
        Headers::AtomicRequest { op: AtomicOp::FetchAdd { .. }, .. } => headers[extended + 20..extended + 28].fill(0),
        Headers::PlacementRequest { op: PlacementOp::Flush { .. }, .. } => {
            headers[extended..extended + 3].fill(0);
            headers[extended + 3] &= 0x3f;
        }
        _ => {}
    }
    if decoded.packet.headers.srqn().is_some() {
        headers[extended] = 0;
    }
    let irn = decoded.format.allows_independent_placement();
    match decoded.packet.headers {
        Headers::ReadRequest { fasr: Some(_), .. } => {
            headers[end - fasr::FASR_READ_FIELDS_LEN] = 0;
            headers[end - fasr::FASR_READ_FIELDS_LEN - irn::WQE_SN_LEN] = 0;
        }
        Headers::AtomicRequest { .. } | Headers::PlacementRequest { .. } if decoded.format == Format::Fasr => {
            headers[end - fasr::EXPECTED_PSN_LEN] = 0;
            headers[end - fasr::EXPECTED_PSN_LEN - irn::WQE_SN_LEN] = 0;
        }
        Headers::ReadResponse { sink: Some(_), .. } | Headers::AtomicResponse { sink: Some(_), .. } => {
            headers[end - irn::WQE_SN_LEN] = 0;
        }
        Headers::ReadRequest { .. } | Headers::AtomicRequest { .. } | Headers::PlacementRequest { .. } if irn => {
            headers[end - irn::WQE_SN_LEN] = 0;
        }
        Headers::Write { recv_sn: Some(_), .. } | Headers::SharedWrite { recv_sn: Some(_), .. } => {
            headers[end - irn::WQE_SN_LEN] = 0;
        }
        Headers::Ack { sack: Some(_), .. } | Headers::ReadAck { sack: Some(_), .. } => {
            headers[end - irn::SACK_LEN] &= 0x80;
        }
        Headers::TrimNack { .. } => headers[end - irn::SACK_LEN] &= 0x40,
        Headers::Pull { .. } => {
            headers[end - irn::PULL_LEN] = 0;
            headers[end - irn::PULL_LEN + 4..].fill(0);
        }
        Headers::Ack { .. } | Headers::ReadAck { .. } if irn => headers[end - irn::SACK_LEN..].fill(0),
        _ => {}
    }
}

/// Checks Falcon messages, unchanged and then with the correct version.
///
/// # Panics
/// When a decoded message does not encode and decode to the same message, or its encoding has bits that the input does
/// not have.
fn falcon(data: &[u8]) -> bool {
    message_round_trips(data);
    let mut data = data.to_vec();
    if let Some(byte) = data.first_mut() {
        *byte = falcon::header::base::VERSION << 4 | *byte & 0xf;
    }
    message_round_trips(&data)
}

/// Checks cleartext Falcon inside PSP.
///
/// # Panics
/// When a decoded header does not encode to the same bits, the parts of the layout do not cover the datagram, or
/// decoding its front gives another result.
fn falcon_datagram(data: &[u8]) -> bool {
    check_front(data);
    let Ok((header, layout)) = falcon::psp::parse(data) else {
        assert!(falcon::codec::decode_datagram(data).is_err());
        return false;
    };
    assert_eq!((layout.associated().start, layout.icv().end), (0, data.len()));
    assert_eq!(layout.associated().end, layout.sealed().start);
    assert_eq!(layout.sealed().end, layout.icv().start);
    assert_eq!(layout.message().start + falcon::psp::CLEAR_LEN, layout.sealed().start);
    assert_eq!(layout.message().end, layout.sealed().end);
    let mut written = [0; falcon::psp::LEN_MAX];
    let len = header.emit(&mut written);
    assert_eq!(len, layout.message().start);
    only_input_bits(data, &written[..len]);
    assert_eq!(header.nonce(), data[4..16]);

    let message = &data[layout.message()];
    match (falcon::codec::decode_datagram(data), falcon::codec::decode(message, header.iv.timestamp)) {
        (Ok((around, whole)), Ok(alone)) => {
            assert_eq!((around, whole.packet), (header, alone.packet));
            assert_eq!(data[whole.payload], message[alone.payload]);
            true
        }
        (whole, alone) => {
            assert_eq!(whole.err(), alone.err());
            false
        }
    }
}

/// Checks cleartext Falcon inside ESP.
///
/// # Panics
/// When header, message, trailer and check value do not cover the datagram, or do not encode to the same bytes.
fn falcon_esp(data: &[u8]) -> bool {
    use falcon::{esp, psp::Cipher};
    let Ok((header, layout)) = esp::parse(data) else { return false };
    let mut written = [0; esp::LEN];
    header.emit(&mut written);
    assert_eq!(data[..esp::LEN], written);
    assert_eq!(header.nonce([0; 4])[4..], data[8..16]);
    let (sealed, plain) = (layout.sealed(Cipher::Gcm128), layout.associated(Cipher::Gmac128));
    assert_eq!((sealed.start, sealed.end, plain.end), (esp::LEN, layout.icv().start, layout.icv().start));
    assert_eq!(layout.icv().end, data.len());
    let Ok(message) = layout.message(data) else { return false };
    assert!(message.start == esp::LEN && message.end + 2 <= layout.icv().start);
    let trailer_len = layout.icv().start - message.end;
    let mut again = data.to_vec();
    again[message.end..layout.icv().start].fill(0xee);
    layout.close(&mut again, trailer_len);
    assert_eq!(again, data, "a trailer is written as it was read");
    falcon::codec::decode(&data[message], header.iv.timestamp).is_ok()
}

/// Checks that decoding the front of a datagram, of the largest length of all headers, gives the same result as
/// decoding all of it.
fn check_front(data: &[u8]) {
    const FRONT_MAX: usize = falcon::psp::LEN_MAX + falcon::HEADERS_MAX;
    // The check value is excluded, as in a datagram passed through memory. Input shorter than the headers may fail with
    // another error.
    let Some(len) = data.len().checked_sub(falcon::psp::ICV_LEN).filter(|len| *len >= falcon::psp::LEN_MAX) else {
        return;
    };
    let front = &data[..len.min(FRONT_MAX)];
    let by_front = falcon::psp::parse_front(front, data.len());
    assert_eq!(by_front, falcon::psp::parse(data));
    let Ok((header, layout)) = by_front else { return };
    let message = layout.message();
    let alone = falcon::codec::decode_front(&front[message.start..], message.len(), header.iv.timestamp);
    assert_eq!(alone, falcon::codec::decode(&data[message], header.iv.timestamp));
}

/// Checks that a decoded message is encoded only with bits of the input, and decodes to the same message again.
fn message_round_trips(data: &[u8]) -> bool {
    let timestamp = falcon::Timestamp::new(7);
    let Ok(falcon::Decoded { packet, payload }) = falcon::codec::decode(data, timestamp) else {
        return false;
    };
    assert_eq!(payload.len(), packet.payload_len as usize);
    assert_eq!(payload.start, packet.headers_len() as usize);
    assert_eq!(packet.message_len() as usize, data.len());

    let mut headers = [0; falcon::HEADERS_MAX];
    let len = falcon::codec::encode_headers(&packet, &mut headers).expect("a decoded packet can be encoded");
    assert_eq!(len, payload.start);
    only_input_bits(data, &headers[..len]);
    let mut again = data.to_vec();
    again[..len].copy_from_slice(&headers[..len]);
    assert_eq!(falcon::codec::decode(&again, timestamp), Ok(falcon::Decoded { packet, payload }));
    true
}

/// Checks that only bits that were read are written, because reserved bits are sent as zero.
fn only_input_bits(read: &[u8], written: &[u8]) {
    let added = read.iter().zip(written).position(|(before, after)| after & !before != 0);
    assert_eq!(added, None, "a bit was added");
}

/// Checks the ICRC of any datagram between any addresses: a correct one is accepted, one with a wrong bit is not.
///
/// # Panics
/// When that does not hold.
fn icrc(data: &[u8]) -> bool {
    let Some((chosen, datagram)) = data.split_first_chunk::<40>() else {
        return false;
    };
    let path = addresses(chosen);
    let prefix_of = |len: usize| IcrcPrefix::new(&path, len as u32);
    let arrived = icrc::verify(&path, datagram);
    if datagram.len() < bth::LEN || datagram.len() > BYTES_MAX {
        return arrived;
    }
    let mut right = datagram.to_vec();
    let prefix = prefix_of(right.len() + ICRC_LEN);
    right.extend_from_slice(&prefix.start(datagram).finish());
    assert!(icrc::verify(&path, &right));
    assert!(prefix.verify(&right));
    let [.., at_high, at_low, bit, _] = *chosen;
    let at = usize::from(u16::from_be_bytes([at_high, at_low])) % right.len();
    right[at] ^= 1 << (bit & 7);
    assert_eq!(icrc::verify(&path, &right), at == bth::VARIANT_BYTE);
    true
}

/// Returns two addresses of the IP version selected by the last byte.
fn addresses(chosen: &[u8; 40]) -> Addresses {
    let word = |at: usize| u16::from_be_bytes([chosen[at], chosen[at + 1]]);
    let octets = |at: usize| -> [u8; 16] { chosen[at..at + 16].try_into().expect("sixteen bytes") };
    let ip = |at: usize| match chosen[39] & 1 {
        0 => Ipv4Addr::from_bits(u32::from(word(at)) << 16 | u32::from(word(at + 2))).into(),
        // Never an IPv4-mapped address, because the pair could then have two IP versions.
        _ => Ipv6Addr::from(u128::from_be_bytes(octets(at)) | 1 << 127).into(),
    };
    Addresses::new(SocketAddr::new(ip(0), word(32)), SocketAddr::new(ip(16), word(34))).expect("one IP version")
}

/// Checks the ICRC of captured IP packets.
///
/// # Panics
/// When an ICRC with a wrong bit is accepted.
fn ip_packet(data: &[u8]) -> bool {
    let right = icrc::verify_ip_packet(data);
    if right {
        let udp_at = if data[0] >> 4 == 4 { 20 } else { 40 };
        let end = udp_at + usize::from(u16::from_be_bytes([data[udp_at + 4], data[udp_at + 5]]));
        let mut wrong = data.to_vec();
        wrong[end - 1] ^= 1;
        assert!(!icrc::verify_ip_packet(&wrong));
    }
    right
}

/// Checks management datagrams.
///
/// # Panics
/// When a decoded datagram, or its MAD, does not encode to the same value.
fn gsi(data: &[u8]) -> bool {
    let Ok(packet) = gsi::decode(data) else {
        return false;
    };
    assert!(gsi::is_gsi(data));
    assert_eq!(data.len(), gsi::DATAGRAM_LEN);
    let path = addresses(&[1; 40]);
    let datagram = packet.encode(&path);
    assert!(icrc::verify(&path, &datagram));
    assert_eq!(gsi::decode(&datagram), Ok(packet));
    if let Ok(mad) = cm::parse(packet.mad) {
        round_trips(packet.mad, &mad);
    }
    true
}

/// Checks a message of the connection manager: parses `data` as one of type `attribute`, behind a header with that
/// attribute.
fn message(attribute: u16, data: &[u8]) -> bool {
    let mut bytes = [0; gsi::MAD_LEN];
    let len = data.len().min(bytes.len() - 24);
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
    bytes[24..24 + len].copy_from_slice(&data[..len]);
    match cm::parse(&bytes) {
        Ok(mad) => {
            assert_eq!(mad.message.attribute(), attribute);
            round_trips(&bytes, &mad);
            true
        }
        Err(_) => false,
    }
}

/// Checks that a parsed message is encoded only with bits of the input, and parses to the same message.
fn round_trips(bytes: &[u8; gsi::MAD_LEN], mad: &cm::Mad) {
    let written = cm::emit(mad);
    only_input_bits(bytes, &written);
    assert_eq!(cm::parse(&written).as_ref(), Ok(mad));
}

/// Checks the IP addressing header in the private data of a REQ.
///
/// # Panics
/// When a parsed value does not encode to the same value.
fn cm_ip_request(data: &[u8]) -> bool {
    let private = PrivateData::new(&data[..data.len().min(92)]).expect("at most 92 bytes");
    let Some(request) = IpRequest::parse(&private) else {
        return false;
    };
    let written = request.emit().expect("both addresses are of the version that was read");
    assert_eq!(IpRequest::parse(&written), Some(request));
    true
}

/// Checks credit messages.
///
/// # Panics
/// When a parsed message does not encode to the same value, or the connection manager would also accept it.
fn credit(data: &[u8]) -> bool {
    vendor_message(data, Credit::parse, |message| message.emit())
}

/// Checks hello messages.
///
/// # Panics
/// When a parsed message does not encode to the same value, contains unprintable names, or would also be accepted by
/// the connection manager.
fn hello(data: &[u8]) -> bool {
    vendor_message(data, Hello::parse, |message| {
        let name = message.terms.transport.as_str();
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
        message.emit()
    })
}

/// Checks messages between NICs.
///
/// # Panics
/// When a parsed message does not encode to the same bytes, or another parser would also accept it.
fn scr(data: &[u8]) -> bool {
    let Ok(message) = Message::parse(data) else {
        return false;
    };
    assert!(scr::is_message(data) && !gsi::is_gsi(data));
    assert!(codec::decode(data).is_err());
    let path = addresses(&[1; 40]);
    let written = message.encode(&path).expect("a parsed message can be encoded");
    let mut expected = data[..scr::MESSAGE_LEN - ICRC_LEN].to_vec();
    expected[bth::VARIANT_BYTE] = 0;
    assert_eq!(written[..scr::MESSAGE_LEN - ICRC_LEN], expected);
    assert_eq!(Message::parse_verified(&written, &path), Ok(message));
    true
}

/// Checks a vendor management datagram of OpenRNIC.
fn vendor_message<M: PartialEq + core::fmt::Debug>(
    data: &[u8],
    parse: fn(&[u8; gsi::MAD_LEN]) -> Option<M>,
    emit: fn(&M) -> [u8; gsi::MAD_LEN],
) -> bool {
    let mut mad = [0; gsi::MAD_LEN];
    let len = data.len().min(mad.len());
    mad[..len].copy_from_slice(&data[..len]);
    let Some(message) = parse(&mad) else {
        return false;
    };
    let written = emit(&message);
    only_input_bits(&mad, &written);
    assert_eq!(parse(&written), Some(message));
    assert!(cm::parse(&mad).is_err());
    true
}

/// Longer datagrams do not test any additional case and take much time.
const BYTES_MAX: usize = 16_384;
