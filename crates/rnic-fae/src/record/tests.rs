//! Tests: records are compared with the specification's tables of field widths, bit by bit, and with bytes computed
//! by hand.

use super::*;

const EVENT: Event = Event {
    connection: 0x00ab_cdef,
    first: true,
    queue: 2,
    report: FlowReport {
        kind: ReportKind::Retransmitted { count: 5, early: true },
        flow: 3,
        flows: 6,
        acked: 1_000,
        marked: 0x155,
        sent: 0x2aa,
        in_flight: 0x133,
        lost: true,
        t1: Ticks::new(0x12_3456),
        t2: Ticks::new(0x9a_bcde),
        t3: Ticks::new(0xff_ffff),
        t4: Ticks::new(0x00_0001),
        hops: 11,
        rx_level: 29,
        ecn: 0x2aaa,
        csig: Csig::from_bits(0xbeef),
        occupancy: 21,
        label: 0xa_5a5a,
        extended: true,
        window_drop: false,
        delay: DelaySelect::Fabric,
        in_force: CurrentSettings {
            fcwnd: Cwnd::from_fixed(0x15_4321 << 6),
            ncwnd: 0x5a5,
            gap: Gap::slots(0xf_1234),
            rate: RateLimit::steps(0xc_3c3c),
            rto: Ticks::new(1_907),
            ack_rate: AckRate::code(4),
        },
    },
    carried: CARRIED,
};

const CARRIED: Carried = Carried {
    metadata: 0x765_432,
    fabric_marker: Ticks::new(0x8_0001),
    nic_marker: Ticks::new(0xc0_0003),
    nic_grew: true,
    base_delay: Ticks::new(191),
    delay_state: 0xf0_0f0f,
    rtt_state: Ticks::new(0x3_2100),
    opaque: 1,
};

const RESPONSE: Response = Response {
    connection: 0x00ab_cdef,
    flow: 3,
    queue: 2,
    delay: DelaySelect::Reverse,
    actions: FlowActions {
        fcwnd: Cwnd::from_fixed(0x15_4321 << 6),
        ncwnd: 0x5a5,
        gap: Gap::slots(0xf_1234),
        rate: RateLimit::steps(0xc_3c3c),
        rto: Ticks::new(1_907),
        rack: Ticks::new(0xaa_aaaa),
        tlp: Ticks::new(0x55_5555),
        repath: true,
        alpha_requests: Alpha::code(9),
        alpha_responses: Alpha::code(6),
        ack_rate: AckRate::code(4),
    },
    carried: CARRIED,
};

/// Returns the bytes that result from `fields`, given as (width, value), the first field in the lowest bits of the
/// first byte.
fn bytes_of(fields: &[(u32, u64)]) -> [u8; 64] {
    let mut bits = Vec::new();
    for (width, value) in fields {
        bits.extend((0..*width).map(|bit| value >> bit & 1));
    }
    assert_eq!(bits.len(), 512, "a record has 512 bits");
    let mut bytes = [0; 64];
    for (byte, eight) in bytes.iter_mut().zip(bits.chunks(8)) {
        *byte = eight.iter().enumerate().fold(0, |byte, (place, bit)| byte | (*bit as u8) << place);
    }
    bytes
}

/// The fields of specification 10.6.2.1 in the order of the public simulator, then those that are specific to this
/// project.
#[test]
fn f22_an_event_record_matches_the_table_bit_for_bit() {
    let table = [
        (24, 0xab_cdef), // connection_id
        (2, 2),          // event_type: retransmission
        (24, 0x12_3456), // t1
        (24, 0x9a_bcde), // t2
        (24, 0xff_ffff), // t3
        (24, 1),         // t4
        (3, 5),          // retransmit_count
        (1, 1),          // retransmit_reason: early
        (8, 0),          // nack_code
        (4, 11),         // forward_hops
        (5, 29),         // rx_buffer_level
        (24, 0x765_432), // cc_metadata
        (10, 0x321),     // fcwnd_fraction
        (11, 0x550),     // fcwnd_integer
        (20, 0xf_1234),  // inter_packet_gap
        (11, 0x5a5),     // ncwnd
        (24, 1_907),     // retransmit_timeout
        (10, 1_000),     // num_packets_acked
        (1, 0),          // eack_drop
        (1, 1),          // eack
        (8, 0),          // reserved
        (2, 2),          // event_queue_select
        (2, 1),          // delay_select
        (24, 0x8_0001),  // fabric_window_time_marker
        (24, 0xc0_0003), // nic_window_time_marker
        (1, 1),          // ncwnd_direction
        (24, 191),       // base_delay_target
        (24, 0xf0_0f0f), // delay_state
        (24, 0x3_2100),  // rtt_state
        (2, 1),          // cc_opaque
        (14, 0x2aaa),    // ecn_accumulated
        (3, 3),          // 107 reserved bits. Specific to this project: flow
        (4, 4),          // ACK-request rate that currently applies
        (5, 21),         // occupancy of the local resources
        (16, 0xbeef),    // CSIG
        (1, 1),          // CSIG is valid
        (1, 1),          // first of the connection
        (3, 5),          // flows of the connection, less one
        (10, 0x133),     // packets in flight
        (1, 1),          // packets were lost
        (20, 0xa_5a5a),  // flow label
        (10, 0x155),     // packets that arrived with an ECN mark
        (10, 0x2aa),     // packets that were sent
        (20, 0xc_3c3c),  // rate that currently applies
        (3, 0),          // reserved, zero
        (1, 1),          // gen
    ];
    let record = EventRecord::pack(&EVENT, true);
    assert_eq!(record.to_bytes(), bytes_of(&table));
    assert_eq!(record.unpack(), EVENT);
    assert!(record.generation());
    assert_eq!(EventRecord::from_bytes(&record.to_bytes()), record);
    assert_eq!(EventRecord::pack(&EVENT, false).to_bytes()[63] & 0x80, 0, "the last bit is the generation");
}

#[test]
fn f23_a_response_record_matches_the_table_bit_for_bit() {
    let table = [
        (24, 0xab_cdef), // connection_id
        (1, 1),          // randomize_path
        (24, 0x765_432), // cc_metadata
        (10, 0x321),     // fcwnd_fraction
        (11, 0x550),     // fcwnd_integer
        (20, 0xf_1234),  // inter_packet_gap
        (11, 0x5a5),     // ncwnd
        (24, 1_907),     // retransmit_timeout
        (2, 2),          // event_queue_select: two of the four bits missing in the table
        (2, 3),          // delay_select: the other two
        (24, 0x8_0001),  // fabric_window_time_marker
        (24, 0xc0_0003), // nic_window_time_marker
        (1, 1),          // ncwnd_direction
        (24, 191),       // base_delay_target
        (24, 0xf0_0f0f), // delay_state
        (24, 0x3_2100),  // rtt_state
        (2, 1),          // cc_opaque
        (4, 0),          // 260 reserved bits: zero
        (24, 0xaa_aaaa), // specific to this project: RACK
        (24, 0x55_5555), // TLP
        (4, 9),          // alpha of requests
        (4, 6),          // alpha of responses
        (4, 4),          // ACK-request rate
        (3, 3),          // flow
        (1, 0),          // reserved, zero
        (20, 0xc_3c3c),  // rate
        (172, 0),        // reserved, zero
    ];
    let mut fields: Vec<(u32, u64)> = table.to_vec();
    // `bytes_of` accepts fields of at most 64 bits.
    let (rest, _) = fields.pop().expect("the reserved bits");
    fields.extend([(63, 0), (63, 0), (rest - 126, 0)]);
    let record = ResponseRecord::pack(&RESPONSE);
    assert_eq!(record.to_bytes(), bytes_of(&fields));
    assert_eq!(record.unpack(), RESPONSE);
    assert_eq!(ResponseRecord::from_bytes(&record.to_bytes()), record);
}

/// Computed by hand from the widths: connection 0xabcdef; then type 2 in two bits and t1 = 0x123456 above it, so byte
/// 3 is (0x56 << 2 | 2) & 0xff, and so on.
#[test]
fn the_first_bytes_of_an_event_match_a_hand_computation() {
    let bytes = EventRecord::pack(&EVENT, true).to_bytes();
    assert_eq!(bytes[..3], [0xef, 0xcd, 0xab]);
    assert_eq!(bytes[3], 0b0101_1010, "0x56 << 2 is 0x158: 0x58, and the type");
    assert_eq!(bytes[4], 0b1101_0001, "0x34 << 2, and the carry of 0x56");
    assert_eq!(bytes[5], 0b0100_1000, "0x12 << 2, and the carry of 0x34, which is none");
    assert_eq!(bytes[6], 0b0111_1000, "0xde << 2 is 0x378");
}

#[test]
fn values_that_do_not_fit_saturate() {
    let report = FlowReport { acked: 5_000, hops: 99, rx_level: 77, occupancy: 200, ..EVENT.report };
    let kind = ReportKind::Retransmitted { count: 200, early: false };
    let packed = EventRecord::pack(&Event { report: FlowReport { kind, ..report }, ..EVENT }, false).report();
    assert_eq!((packed.acked, packed.hops, packed.rx_level, packed.occupancy), (1_023, 15, 31, 31));
    assert_eq!(packed.kind, ReportKind::Retransmitted { count: 7, early: false });
}

#[test]
fn report_kinds_and_absent_signals_survive_packing() {
    for kind in [ReportKind::Acked, ReportKind::Nacked { code: 255 }, ReportKind::Nacked { code: 1 }] {
        let event = Event { report: FlowReport { kind, csig: None, ..EVENT.report }, ..EVENT };
        assert_eq!(EventRecord::pack(&event, false).unpack(), event);
    }
}
