//! Connection management messages: exact bytes, encoding and decoding, and messages that are rejected.

mod common;

use common::messages;
use proptest::prelude::*;

use rnic_base::Psn;
use rnic_wire::cm::{
    self, Bits, CmError, DisconnectReply, DisconnectRequest, Failover, Gid, LookupReply, LookupRequest, LookupStatus,
    Mad, Message, Path, PathMtu, PrivateData, ReadyToUse, Reject, RejectInfo, RejectReason, Rejected, Reply, Request,
    ServiceId, TransportService, Vendor,
};
use rnic_wire::{Qpn, gsi, icrc};

#[test]
fn messages_match_the_layouts_of_the_specification() {
    for golden in messages::all() {
        assert_eq!(cm::emit(&golden.mad), golden.bytes, "{}", golden.name);
        assert_eq!(cm::parse(&golden.bytes).as_ref(), Ok(&golden.mad), "{}", golden.name);
    }
}

#[test]
fn each_check_has_its_error() {
    let broken = |name: &str, at: usize, value: u8| {
        let golden = messages::all().into_iter().find(|golden| golden.name == name).expect("a golden message");
        let mut bytes = golden.bytes;
        bytes[at] = value;
        cm::parse(&bytes).err()
    };
    assert_eq!(broken("RTU", 0, 2), Some(CmError::BaseVersion));
    assert_eq!(broken("RTU", 1, 0x03), Some(CmError::Class));
    assert_eq!(broken("RTU", 2, 1), Some(CmError::ClassVersion));
    assert_eq!(broken("RTU", 3, 0x81), Some(CmError::Method));
    assert_eq!(broken("RTU", 17, 0x11), Some(CmError::Attribute), "MRA is not supported");
    assert_eq!(broken("REJ", 24 + 9, 72 << 1), None);
    assert_eq!(broken("REJ", 24 + 9, 73 << 1), Some(CmError::RejectInfo));
}

#[test]
fn reserved_bits_are_ignored() {
    for golden in messages::all() {
        let mut bytes = golden.bytes;
        // Status, class-specific bytes and the bytes after the attribute are ignored.
        for at in [4, 5, 6, 7, 18, 19] {
            bytes[at] = 0xff;
        }
        assert_eq!(cm::parse(&bytes).as_ref(), Ok(&golden.mad), "{}", golden.name);
        // The modifier is ignored too, except in messages where it contains a vendor's options.
        bytes[20..24].copy_from_slice(&[0xff; 4]);
        let vendor = matches!(golden.mad.message, Message::Request(_) | Message::Reply(_) | Message::LookupReply(_));
        assert_eq!(cm::parse(&bytes).as_ref() == Ok(&golden.mad), !vendor, "{}", golden.name);
    }
}

/// Returns the bits that the decoded representation keeps: a message with all bits set, decoded and encoded again.
fn known_bits(attribute: u16) -> [u8; 256] {
    let mut ones = [0xff; 256];
    ones[..4].copy_from_slice(&[1, 7, 2, 3]);
    ones[16..18].copy_from_slice(&attribute.to_be_bytes());
    if attribute == Reject::ATTRIBUTE {
        ones[24 + 9] = 72 << 1;
    }
    cm::emit(&cm::parse(&ones).expect("a message of ones"))
}

/// Checks the number of bits that the specification's message tables reserve: a forgotten field would change it.
#[test]
fn every_bit_of_the_tables_is_known() {
    let reserved_bits = |attribute: u16| known_bits(attribute)[24..].iter().map(|byte| byte.count_zeros()).sum::<u32>();
    // A byte at 4, a word at 24, two EE context numbers, RDC, and in each path 6 + 3 + 3 bits; SAP support is one of
    // the last three of the alternate path.
    assert_eq!(reserved_bits(Request::ATTRIBUTE), 8 + 32 + 24 + 24 + 1 + 2 * (6 + 3 + 3));
    // EE context number, four bits after SRQ.
    assert_eq!(reserved_bits(Reply::ATTRIBUTE), 24 + 4);
    // Two bytes after the partition key; information length and additional information.
    assert_eq!(reserved_bits(LookupRequest::ATTRIBUTE), 16);
    assert_eq!(reserved_bits(LookupReply::ATTRIBUTE), 8 + 72 * 8);
    assert_eq!(reserved_bits(ReadyToUse::ATTRIBUTE), 0);
    assert_eq!(reserved_bits(DisconnectRequest::ATTRIBUTE), 8);
    assert_eq!(reserved_bits(DisconnectReply::ATTRIBUTE), 0);
    // Six bits after the message, one after the length, and the length's 7 ones are 72.
    assert_eq!(reserved_bits(Reject::ATTRIBUTE), 6 + 1 + (7 - 72u32.count_ones()));
}

fn bits<const WIDTH: u32>() -> impl Strategy<Value = Bits<WIDTH>> {
    (0..=Bits::<WIDTH>::MAX.get()).prop_map(Bits::clamped)
}

fn private<const LEN: usize>() -> impl Strategy<Value = PrivateData<LEN>> {
    prop::collection::vec(any::<u8>(), 0..=LEN).prop_map(|bytes| PrivateData::new(&bytes).expect("at most LEN bytes"))
}

fn vendor() -> impl Strategy<Value = Vendor> {
    (bits(), any::<u32>()).prop_map(|(id, options)| Vendor { id, options })
}

fn path() -> impl Strategy<Value = Path> {
    let addresses = any::<(u16, u16, [u8; 16], [u8; 16])>();
    (addresses, bits(), bits(), any::<(u8, u8, bool)>(), bits(), bits()).prop_map(
        |((local_lid, remote_lid, local, remote), flow_label, packet_rate, (class, hops, subnet), level, timeout)| {
            Path {
                local_lid,
                remote_lid,
                local_gid: Gid(local),
                remote_gid: Gid(remote),
                flow_label,
                packet_rate,
                traffic_class: class,
                hop_limit: hops,
                service_level: level,
                subnet_local: subnet,
                local_ack_timeout: timeout,
            }
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let numbers = any::<(u32, u64, u64, u32, u32, u32, u8, u8, u16)>();
    let service = prop_oneof![
        Just(TransportService::Reliable),
        Just(TransportService::Unreliable),
        Just(TransportService::ReliableDatagram),
        Just(TransportService::Extended),
    ];
    let timeouts = (bits(), bits(), bits(), bits(), bits(), bits(), bits());
    // All zeros is how the wire says "none".
    let alternate = prop::option::of(path()).prop_map(|path| path.filter(|path| *path != Path::default()));
    let rest = (any::<(bool, bool)>(), service, path(), alternate, vendor(), private());
    (numbers, timeouts, rest).prop_map(|(numbers, timeouts, rest)| {
        let (comm, service_id, guid, key, qpn, psn, resources, depth, partition_key) = numbers;
        let (remote_timeout, local_timeout, retry, mtu, rnr, cm_retries, extended) = timeouts;
        let ((flow_control, srq), transport_service, primary, alternate, vendor, private_data) = rest;
        Request {
            local_comm_id: comm,
            service_id: ServiceId(service_id),
            local_ca_guid: guid,
            local_queue_key: key,
            local_qpn: Qpn::new(qpn),
            responder_resources: resources,
            initiator_depth: depth,
            remote_cm_timeout: remote_timeout,
            transport_service,
            flow_control,
            starting_psn: Psn::new(psn),
            local_cm_timeout: local_timeout,
            retry_count: retry,
            partition_key,
            path_mtu: PathMtu::from_code(mtu),
            rnr_retry_count: rnr,
            cm_retries,
            shared_receive_queue: srq,
            extended_transport: extended,
            primary,
            alternate,
            vendor,
            private_data,
        }
    })
}

fn reject() -> impl Strategy<Value = Reject> {
    let rejected = prop_oneof![
        Just(Rejected::Request),
        Just(Rejected::Reply),
        Just(Rejected::NoMessage),
        Just(Rejected::Reserved),
    ];
    let info = prop::collection::vec(any::<u8>(), 0..=72).prop_map(|bytes| RejectInfo::new(&bytes).expect("fits"));
    (any::<(u32, u32, u16)>(), rejected, info, private()).prop_map(|((local, remote, reason), rejected, info, data)| {
        Reject {
            local_comm_id: local,
            remote_comm_id: remote,
            rejected,
            reason: RejectReason(reason),
            info,
            private_data: data,
        }
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    let failover = prop_oneof![
        Just(Failover::Accepted),
        Just(Failover::NotSupported),
        Just(Failover::Rejected),
        Just(Failover::Reserved),
    ];
    let numbers = any::<(u32, u32, u32, u32, u32, u8, u8, u64, bool, bool)>();
    (numbers, bits(), bits(), failover, vendor(), private()).prop_map(
        |(numbers, delay, rnr, failover, vendor, data)| {
            let (local, remote, key, qpn, psn, resources, depth, guid, flow_control, srq) = numbers;
            Reply {
                local_comm_id: local,
                remote_comm_id: remote,
                local_queue_key: key,
                local_qpn: Qpn::new(qpn),
                starting_psn: Psn::new(psn),
                responder_resources: resources,
                initiator_depth: depth,
                target_ack_delay: delay,
                failover,
                flow_control,
                rnr_retry_count: rnr,
                shared_receive_queue: srq,
                local_ca_guid: guid,
                vendor,
                private_data: data,
            }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let ids = any::<(u32, u32, u32)>;
    prop_oneof![
        request().prop_map(Message::Request),
        reject().prop_map(Message::Reject),
        reply().prop_map(Message::Reply),
        (ids(), private()).prop_map(|((local_comm_id, remote_comm_id, _), private_data)| {
            Message::ReadyToUse(ReadyToUse { local_comm_id, remote_comm_id, private_data })
        }),
        (ids(), private()).prop_map(|((local_comm_id, remote_comm_id, qpn), private_data)| {
            let remote_qpn = Qpn::new(qpn);
            Message::DisconnectRequest(DisconnectRequest { local_comm_id, remote_comm_id, remote_qpn, private_data })
        }),
        (ids(), private()).prop_map(|((local_comm_id, remote_comm_id, _), private_data)| {
            Message::DisconnectReply(DisconnectReply { local_comm_id, remote_comm_id, private_data })
        }),
        (any::<(u32, u16, u64)>(), private()).prop_map(|((request_id, partition_key, service), private_data)| {
            let service_id = ServiceId(service);
            Message::LookupRequest(LookupRequest { request_id, partition_key, service_id, private_data })
        }),
        (any::<(u32, u8, u32, u64, u32)>(), vendor(), private()).prop_map(|(numbers, vendor, private_data)| {
            let (request_id, status, qpn, service, queue_key) = numbers;
            let (status, qpn, service_id) = (LookupStatus(status), Qpn::new(qpn), ServiceId(service));
            let reply = LookupReply { request_id, status, qpn, service_id, queue_key, vendor, private_data };
            Message::LookupReply(reply)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_message_round_trips(transaction_id in any::<u64>(), message in message(), psn in any::<u32>()) {
        let mad = Mad { transaction_id, message };
        let bytes = cm::emit(&mad);
        prop_assert_eq!(cm::parse(&bytes), Ok(mad));

        let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(psn), mad: &bytes };
        for path in common::paths() {
            let datagram = packet.encode(&path);
            prop_assert!(icrc::verify(&path, &datagram));
            prop_assert_eq!(gsi::decode(&datagram), Ok(packet));
        }
    }

    #[test]
    fn every_known_bit_is_kept(body in prop::collection::vec(any::<u8>(), 232), kind in 0..7usize) {
        let attribute = [
            Request::ATTRIBUTE,
            Reply::ATTRIBUTE,
            ReadyToUse::ATTRIBUTE,
            DisconnectRequest::ATTRIBUTE,
            DisconnectReply::ATTRIBUTE,
            LookupRequest::ATTRIBUTE,
            LookupReply::ATTRIBUTE,
        ][kind];
        let mut bytes = [0; 256];
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[24..].copy_from_slice(&body);
        let known = known_bits(attribute);
        let expected: Vec<u8> = bytes.iter().zip(known).map(|(byte, known)| byte & known).collect();
        let written = cm::parse(&bytes).map(|mad| cm::emit(&mad));
        prop_assert_eq!(written.expect("only the header is checked").to_vec(), expected);
    }
}
