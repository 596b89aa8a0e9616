//! Wireshark's view of this project's captures: every RoCEv2 opcode and every connection management message, field by
//! field.
//!
//! Needs `tshark` (Debian package tshark). Without it the test says so and passes; with `RNIC_REQUIRE_TSHARK=1` in
//! the environment it fails. What tshark (4.0) does not check is checked here from the fields that it printed: the
//! ICRC, recomputed bit by bit.
//!
//! Payload heuristics (RPC over RDMA and others) are off: they would claim any payload.

mod common;

use common::dissect::{Frame, Numbers, Sent, dissect, find, find_key};
use common::{golden, messages};

use rnic_base::Psn;
use rnic_wire::cm::{Failover, Message, Rejected, TransportService};
use rnic_wire::{Addresses, Aeth, AtomicOp, Format, Headers, NakCode, Packet, Qpn, SendTail, Syndrome, codec, gsi};

#[test]
fn roce_packets_dissect_field_by_field() {
    for (name, format) in [
        ("roce", Format::RoceV2),
        ("unreliable_connection", Format::UnreliableConnection),
        ("unreliable_datagram", Format::UnreliableDatagram),
    ] {
        packets_dissect_field_by_field(name, format);
    }
}

/// Returns the packets of a format, except for those of annex A19, which the dissectors of Debian 12 do not support.
fn known_to_dissectors(format: Format) -> Vec<golden::Golden> {
    let is_known = |golden: &golden::Golden| !matches!(golden.packet.headers, Headers::PlacementRequest { .. });
    golden::of_format(format).into_iter().filter(is_known).collect()
}

fn packets_dissect_field_by_field(name: &str, format: Format) {
    let packets = known_to_dissectors(format);
    let Some(dissected) = dissect(name, &datagrams(&packets), &[]) else { return };
    for ((golden, path), frame) in with_ways(&packets).zip(&dissected) {
        let frame = Frame { name: golden.name, layers: frame };
        frame.check_clean(&path);
        frame.check_numbers(&base_header(golden));
        frame.check_numbers(&extended_headers(&golden.packet));
        frame.check_rest(golden);
    }
}

/// A RoCE dissector does not know IRN; this test checks that the base header and InfiniBand's extended headers have
/// the same positions as in RoCEv2, and that the version field distinguishes the two formats.
#[test]
fn irn_packets_keep_their_roce_headers() {
    keep_their_roce_headers(Format::Irn, "irn");
}

/// The same check for FaSR.
#[test]
fn fasr_packets_keep_their_roce_headers() {
    keep_their_roce_headers(Format::Fasr, "fasr");
}

fn keep_their_roce_headers(format: Format, name: &str) {
    let packets = known_to_dissectors(format);
    let Some(dissected) = dissect(name, &datagrams(&packets), &[]) else { return };
    for ((golden, path), frame) in with_ways(&packets).zip(&dissected) {
        let frame = Frame { name: golden.name, layers: frame };
        frame.check_clean(&path);
        frame.check_numbers(&base_header(golden));
        let unknown_to_roce = match golden.packet.headers {
            Headers::ReadAck { .. } | Headers::Pull { .. } | Headers::TrimNack { of_response: true, .. } => true,
            Headers::Write { position, .. } => !position.starts(),
            _ => false,
        };
        if !unknown_to_roce {
            frame.check_numbers(&extended_headers(&golden.packet));
        }
    }
}

#[test]
fn connection_management_dissects_field_by_field() {
    let messages = messages::all();
    // The dissector prints GIDs as addresses of the IP version that carried them.
    let [four, six] = common::paths();
    let path = |name: &str| if name.contains("alternate") { six } else { four };
    let datagrams: Vec<Sent> = messages
        .iter()
        .map(|golden| {
            let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(7), mad: &golden.bytes };
            Sent::plain(path(golden.name), packet.encode(&path(golden.name)).to_vec())
        })
        .collect();
    let Some(dissected) = dissect("cm", &datagrams, &[]) else { return };
    for (golden, frame) in messages.iter().zip(&dissected) {
        let frame = Frame { name: golden.name, layers: frame };
        frame.check_clean(&path(golden.name));
        frame.check_numbers(&management_headers(golden));
        frame.check_numbers(&message_fields(&golden.mad.message));
        frame.check_texts(&message_texts(&golden.mad.message));
    }
}

/// Each packet over each IP version.
fn with_ways(packets: &[golden::Golden]) -> impl Iterator<Item = (&golden::Golden, Addresses)> {
    packets.iter().flat_map(|golden| common::paths().map(|path| (golden, path)))
}

fn datagrams(packets: &[golden::Golden]) -> Vec<Sent> {
    let assemble = |(golden, path): (&golden::Golden, Addresses)| {
        let mut out = Vec::new();
        let payload = common::payload(golden.packet.payload_len);
        codec::assemble(golden.format, &golden.packet, &[&payload], &path, &mut out).expect("a legal packet");
        Sent::plain(path, out)
    };
    with_ways(packets).map(assemble).collect()
}

impl Frame<'_> {
    /// Checks that tshark reports no problem, that checksums are right, and that the ICRC is right for the fields
    /// that tshark shows.
    fn check_clean(&self, path: &Addresses) {
        let complaints = [find_key(self.layers, "_ws.malformed"), find_key(self.layers, "_ws.expert")];
        assert_eq!(complaints, [None, None], "{}", self.name);
        assert_eq!(self.number("udp.checksum.status"), 1, "{}: UDP checksum", self.name);
        assert_eq!(self.number("udp.dstport"), 4791, "{}", self.name);

        let datagram = unhex(self.text("udp.payload"));
        let (covered, icrc) = datagram.split_at(datagram.len() - 4);
        let mut masked = vec![0xff; 8];
        if path.src().is_ipv4() {
            assert_eq!(self.number("ip.checksum.status"), 1, "{}: IP checksum", self.name);
            assert_eq!((self.number("ip.id"), self.number("ip.flags.df")), (0, 1), "{}", self.name);
            masked.extend([0x45, 0xff]);
            masked.extend((self.number("ip.len") as u16).to_be_bytes());
            masked.extend([0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
            masked.extend([self.text("ip.src"), self.text("ip.dst")].into_iter().flat_map(octets));
        } else {
            masked.extend([0x6f, 0xff, 0xff, 0xff]);
            masked.extend((self.number("ipv6.plen") as u16).to_be_bytes());
            masked.extend([17, 0xff]);
            masked.extend([self.text("ipv6.src"), self.text("ipv6.dst")].into_iter().flat_map(octets));
        }
        for key in ["udp.srcport", "udp.dstport", "udp.length"] {
            masked.extend((self.number(key) as u16).to_be_bytes());
        }
        masked.extend([0xff, 0xff]);
        masked.extend(covered.iter().enumerate().map(|(at, byte)| if at == 4 { 0xff } else { *byte }));
        assert_eq!(icrc, bitwise_crc(&masked), "{}: ICRC", self.name);
    }

    /// Checks fields that are not numbers: payload with padding, immediate data, key, ICRC.
    fn check_rest(&self, golden: &golden::Golden) {
        let datagram = self.text("udp.payload");
        let icrc = datagram.get(datagram.len() - 11..).expect("at least four bytes").replace(':', "");
        if golden.packet.headers == Headers::Cnp {
            // This dissector does not know the opcode, and shows all bytes after the base header unchanged.
            let reserved = "00:".repeat(16).replace(':', "") + &icrc;
            let vendor = find(&self.layers["infiniband"]["infiniband.vendor_tree"], "infiniband.vendor");
            assert_eq!(vendor.map(|text| text.replace(':', "")), Some(reserved), "{}", self.name);
            return;
        }
        assert_eq!(self.text("infiniband.invariant.crc"), format!("0x{icrc}"), "{}", self.name);
        let mut payload = common::payload(golden.packet.payload_len);
        payload.resize(payload.len() + golden.packet.pad_len() as usize, 0);
        if !payload.is_empty() {
            assert_eq!(unhex(self.text("data.data")), payload, "{}", self.name);
        }
        match golden.packet.headers {
            Headers::Send { tail: SendTail::Immediate(value), .. }
            | Headers::Write { immediate: Some(value), .. }
            | Headers::Datagram { immediate: Some(value), .. } => {
                assert_eq!(unhex(self.text("infiniband.immdt")), value.to_be_bytes(), "{}", self.name);
            }
            Headers::Send { tail: SendTail::Invalidate(rkey), .. } => {
                assert_eq!(unhex(self.text("infiniband.ieth")), rkey.to_be_bytes(), "{}", self.name);
            }
            _ => {}
        }
    }
}

fn version(format: Format) -> u64 {
    match format {
        Format::Irn => 1,
        Format::Fasr => 2,
        _ => 0,
    }
}

fn base_header(golden: &golden::Golden) -> Numbers {
    let packet = &golden.packet;
    vec![
        ("infiniband.bth.opcode", u64::from(golden.bytes[0])),
        ("infiniband.bth.se", u64::from(packet.flags.solicited)),
        ("infiniband.bth.m", u64::from(!matches!(packet.headers, Headers::Cnp | Headers::Datagram { .. }))),
        ("infiniband.bth.padcnt", u64::from(packet.pad_len())),
        ("infiniband.bth.tver", version(golden.format)),
        ("infiniband.bth.p_key", 0xffff),
        ("infiniband.bth.destqp", u64::from(packet.dest_qpn.get())),
        ("infiniband.bth.a", u64::from(packet.flags.ack_request)),
        ("infiniband.bth.psn", u64::from(packet.psn.value())),
    ]
}

fn extended_headers(packet: &Packet) -> Numbers {
    match packet.headers {
        Headers::Send { .. } | Headers::Cnp | Headers::ReadAck { .. } | Headers::PlacementRequest { .. } => vec![],
        Headers::SharedSend { .. } | Headers::SharedWrite { .. } | Headers::Pull { .. } => vec![],
        Headers::Write { reth, .. } => reth.as_ref().map(reth_fields).unwrap_or_default(),
        Headers::Datagram { queue_key, source_qpn, .. } => vec![
            ("infiniband.deth.q_key", u64::from(queue_key)),
            ("infiniband.deth.srcqp", u64::from(source_qpn.get())),
        ],
        Headers::ReadRequest { reth, .. } => reth_fields(&reth),
        Headers::ReadResponse { aeth, .. } => aeth.as_ref().map(aeth_fields).unwrap_or_default(),
        Headers::Ack { aeth, .. } | Headers::LossAck { aeth, .. } | Headers::TrimNack { aeth, .. } => {
            aeth_fields(&aeth)
        }
        Headers::AtomicRequest { va, rkey, op, .. } => {
            let (swap_or_add, compare) = match op {
                AtomicOp::CompareSwap { compare, swap } => (swap, compare),
                AtomicOp::FetchAdd { add } => (add, 0),
            };
            vec![
                ("infiniband.reth.va", va),
                ("infiniband.reth.r_key", u64::from(rkey)),
                ("infiniband.atomiceth.swapdt", swap_or_add),
                ("infiniband.atomiceth.cmpdt", compare),
            ]
        }
        Headers::AtomicResponse { aeth, original, .. } => {
            [aeth_fields(&aeth), vec![("infiniband.atomicacketh.origremdt", original)]].concat()
        }
    }
}

fn reth_fields(reth: &rnic_wire::Reth) -> Numbers {
    vec![
        ("infiniband.reth.va", reth.va),
        ("infiniband.reth.r_key", u64::from(reth.rkey)),
        ("infiniband.reth.dmalen", u64::from(reth.dma_len)),
    ]
}

fn aeth_fields(aeth: &Aeth) -> Numbers {
    let (kind, key, value) = match aeth.syndrome {
        Syndrome::Ack { credits } => (0, "infiniband.aeth.syndrome.credit_count", credits),
        Syndrome::RnrNak { timer } => (1, "infiniband.aeth.syndrome.timer", timer),
        Syndrome::Nak(NakCode::PsnSequenceError) => (3, "infiniband.aeth.syndrome.error_code", 0),
        Syndrome::Nak(NakCode::InvalidRequest) => (3, "infiniband.aeth.syndrome.error_code", 1),
        Syndrome::Nak(NakCode::RemoteAccessError) => (3, "infiniband.aeth.syndrome.error_code", 2),
        Syndrome::Nak(NakCode::RemoteOperationalError) => (3, "infiniband.aeth.syndrome.error_code", 3),
    };
    vec![
        ("infiniband.aeth.syndrome.opcode", kind),
        (key, u64::from(value)),
        ("infiniband.aeth.msn", u64::from(aeth.msn.value())),
    ]
}

fn management_headers(golden: &messages::Golden) -> Numbers {
    vec![
        ("infiniband.bth.opcode", 0x64),
        ("infiniband.bth.destqp", 1),
        ("infiniband.bth.psn", 7),
        ("infiniband.deth.q_key", 0x8001_0000),
        ("infiniband.deth.srcqp", 1),
        ("infiniband.mad.baseversion", 1),
        ("infiniband.mad.mgmtclass", 7),
        ("infiniband.mad.classversion", 2),
        ("infiniband.mad.method", 3),
        ("infiniband.mad.status", 0),
        ("infiniband.mad.transactionid", golden.mad.transaction_id),
        ("infiniband.mad.attributeid", u64::from(golden.mad.message.attribute())),
    ]
}

/// Returns the numbers of a message, except for the flow labels and the alternate path's packet rate, of which this
/// dissector reads only three of the four bytes.
fn message_fields(message: &Message) -> Numbers {
    match message {
        Message::Request(message) => request_fields(message),
        Message::Reply(message) => reply_fields(message),
        Message::Reject(message) => vec![
            ("infiniband.cm.rej.localcommid", u64::from(message.local_comm_id)),
            ("infiniband.cm.rej.remotecommid", u64::from(message.remote_comm_id)),
            (
                "infiniband.cm.rej.msgrej",
                match message.rejected {
                    Rejected::Request => 0,
                    Rejected::Reply => 1,
                    Rejected::NoMessage => 2,
                    Rejected::Reserved => 3,
                },
            ),
            ("infiniband.cm.rej.rejinfolen", message.info.as_bytes().len() as u64),
            ("infiniband.cm.rej.reason", u64::from(message.reason.0)),
        ],
        Message::ReadyToUse(message) => vec![
            ("infiniband.cm.rtu.localcommid", u64::from(message.local_comm_id)),
            ("infiniband.cm.rtu.remotecommid", u64::from(message.remote_comm_id)),
        ],
        Message::DisconnectRequest(message) => vec![
            ("infiniband.cm.dreq.localcommid", u64::from(message.local_comm_id)),
            ("infiniband.cm.dreq.remotecommid", u64::from(message.remote_comm_id)),
            ("infiniband.cm.req.remoteqpneecn", u64::from(message.remote_qpn.get())),
        ],
        Message::DisconnectReply(message) => vec![
            ("infiniband.cm.drsp.localcommid", u64::from(message.local_comm_id)),
            ("infiniband.cm.drsp.remotecommid", u64::from(message.remote_comm_id)),
        ],
        Message::LookupRequest(_) | Message::LookupReply(_) => vec![],
    }
}

fn request_fields(message: &rnic_wire::cm::Request) -> Numbers {
    let service = match message.transport_service {
        TransportService::Reliable => 0,
        TransportService::Unreliable => 1,
        TransportService::ReliableDatagram => 2,
        TransportService::Extended => 3,
    };
    let alternate = message.alternate.unwrap_or_default();
    let fields = |name: &'static str, value: u32| (name, u64::from(value));
    vec![
        fields("infiniband.cm.req", message.local_comm_id),
        ("infiniband.cm.req.serviceid", message.service_id.0),
        ("infiniband.cm.req.localcaguid", message.local_ca_guid),
        fields("infiniband.cm.req.localqkey", message.local_queue_key),
        fields("infiniband.cm.req.localqpn", message.local_qpn.get()),
        fields("infiniband.cm.req.responderres", message.responder_resources.into()),
        fields("infiniband.cm.req.initdepth", message.initiator_depth.into()),
        fields("infiniband.cm.req.remoteresptout", message.remote_cm_timeout.get()),
        ("infiniband.cm.req.transpsvctype", service),
        fields("infiniband.cm.req.e2eflowctrl", message.flow_control.into()),
        fields("infiniband.cm.req.startpsn", message.starting_psn.value()),
        fields("infiniband.cm.req.localresptout", message.local_cm_timeout.get()),
        fields("infiniband.cm.req.retrcount", message.retry_count.get()),
        fields("infiniband.cm.req.pkey", message.partition_key.into()),
        fields("infiniband.cm.req.pppmtu", message.path_mtu.code().get()),
        fields("infiniband.cm.req.rnrretrcount", message.rnr_retry_count.get()),
        fields("infiniband.cm.req.maxcmretr", message.cm_retries.get()),
        fields("infiniband.cm.req.srq", message.shared_receive_queue.into()),
        fields("infiniband.cm.req.ext_transport", message.extended_transport.get()),
        fields("infiniband.cm.req.prim_locallid", message.primary.local_lid.into()),
        fields("infiniband.cm.req.prim_remotelid", message.primary.remote_lid.into()),
        fields("infiniband.cm.req.prim_pktrate", message.primary.packet_rate.get()),
        fields("infiniband.cm.req.prim_tfcclass", message.primary.traffic_class.into()),
        fields("infiniband.cm.req.prim_hoplim", message.primary.hop_limit.into()),
        fields("infiniband.cm.req.prim_sl", message.primary.service_level.get()),
        fields("infiniband.cm.req.prim_subnetlocal", message.primary.subnet_local.into()),
        fields("infiniband.cm.req.prim_localacktout", message.primary.local_ack_timeout.get()),
        fields("infiniband.cm.req.alt_locallid", alternate.local_lid.into()),
        fields("infiniband.cm.req.alt_remotelid", alternate.remote_lid.into()),
        fields("infiniband.cm.req.alt_tfcclass", alternate.traffic_class.into()),
        fields("infiniband.cm.req.alt_hoplim", alternate.hop_limit.into()),
        fields("infiniband.cm.req.alt_sl", alternate.service_level.get()),
        fields("infiniband.cm.req.alt_subnetlocal", alternate.subnet_local.into()),
        fields("infiniband.cm.req.alt_localacktout", alternate.local_ack_timeout.get()),
    ]
}

fn reply_fields(message: &rnic_wire::cm::Reply) -> Numbers {
    let failover = match message.failover {
        Failover::Accepted => 0,
        Failover::NotSupported => 1,
        Failover::Rejected => 2,
        Failover::Reserved => 3,
    };
    vec![
        ("infiniband.cm.rep", u64::from(message.local_comm_id)),
        ("infiniband.cm.rep.remotecommid", u64::from(message.remote_comm_id)),
        ("infiniband.cm.rep.localqkey", u64::from(message.local_queue_key)),
        ("infiniband.cm.rep.localqpn", u64::from(message.local_qpn.get())),
        ("infiniband.cm.rep.startpsn", u64::from(message.starting_psn.value())),
        ("infiniband.cm.rep.respres", u64::from(message.responder_resources)),
        ("infiniband.cm.rep.initdepth", u64::from(message.initiator_depth)),
        ("infiniband.cm.rep.tgtackdelay", u64::from(message.target_ack_delay.get())),
        ("infiniband.cm.rep.failoveracc", failover),
        ("infiniband.cm.rep.e2eflowctrl", u64::from(message.flow_control)),
        ("infiniband.cm.rep.rnrretrcount", u64::from(message.rnr_retry_count.get())),
        ("infiniband.cm.rep.srq", u64::from(message.shared_receive_queue)),
        ("infiniband.cm.rep.localcaguid", message.local_ca_guid),
    ]
}

/// Returns the fields that tshark prints as text: addresses and private data.
fn message_texts(message: &Message) -> Vec<(&'static str, String)> {
    match message {
        Message::Request(message) if message.alternate.is_none() => vec![
            ("infiniband.cm.req.prim_localgid_ipv4", message.primary.local_gid.to_ip().to_string()),
            ("infiniband.cm.req.prim_remotegid_ipv4", message.primary.remote_gid.to_ip().to_string()),
            ("infiniband.cm.req.serviceid.dport", "0x1234".to_owned()),
            ("infiniband.cm.req.ip_cm.sport", "0x04d2".to_owned()),
            ("infiniband.cm.req.ip_cm.sip4", "10.1.2.3".to_owned()),
            ("infiniband.cm.req.ip_cm.dip4", "10.4.5.6".to_owned()),
            ("infiniband.cm.req.ip_cm.private", hex(&message.private_data.0[36..])),
        ],
        Message::Request(message) => vec![
            ("infiniband.cm.req.prim_localgid", message.primary.local_gid.to_ip().to_string()),
            ("infiniband.cm.req.prim_remotegid", message.primary.remote_gid.to_ip().to_string()),
            ("infiniband.cm.req.alt_localgid", hex(&message.alternate.unwrap_or_default().local_gid.0)),
            ("infiniband.cm.req.alt_remotegid", hex(&message.alternate.unwrap_or_default().remote_gid.0)),
        ],
        Message::Reject(message) => {
            let mut info = message.info.as_bytes().to_vec();
            info.resize(72, 0);
            let private = ("infiniband.cm.rej.private", hex(&message.private_data.0));
            vec![("infiniband.cm.rej.ari", hex(&info)), private]
        }
        Message::Reply(message) => vec![("infiniband.cm.rep.private", hex(&message.private_data.0))],
        Message::ReadyToUse(message) => vec![("infiniband.cm.rtu.private", hex(&message.private_data.0))],
        Message::DisconnectRequest(message) => vec![("infiniband.cm.dreq.private", hex(&message.private_data.0))],
        // The dissector knows only the names of these messages.
        Message::LookupRequest(_) | Message::LookupReply(_) => vec![],
        Message::DisconnectReply(message) => vec![("infiniband.cm.drsp.private", hex(&message.private_data.0))],
    }
}

fn octets(ip: &str) -> Vec<u8> {
    match ip.parse().expect("an address") {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn unhex(text: &str) -> Vec<u8> {
    golden::unhex(&text.replace(':', ""))
}

/// Ethernet's CRC as a shift register.
fn bitwise_crc(bytes: &[u8]) -> [u8; 4] {
    let mut register = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let carry = (register ^ u32::from(byte >> bit)) & 1;
            register = (register >> 1) ^ if carry == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    (!register).to_le_bytes()
}
