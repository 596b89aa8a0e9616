//! The messages between NICs whose bytes are in `tests/golden/scr.txt`, and strategies for any message.

use proptest::prelude::*;

use rnic_base::Psn32;
use rnic_wire::Qpn;
use rnic_wire::scr::{
    Answer, BackPressure, Body, Cookie, Grant, GrantKind, Hint, MESSAGE_LEN, Message, NodeReport, ProbePath,
    RECORDS_MAX, Records,
};

/// Length of a message without its ICRC.
pub const COVERED_LEN: usize = MESSAGE_LEN - 4;

/// A message, its name, and its bytes without the ICRC.
pub struct Golden {
    pub name: &'static str,
    pub message: Message,
    pub bytes: [u8; COVERED_LEN],
}

/// Every golden message, in the order of the file.
pub fn all() -> Vec<Golden> {
    let sections = super::golden::sections(include_str!("../golden/scr.txt"));
    let messages = messages();
    assert_eq!(sections.len(), messages.len(), "a message without bytes or bytes without a message");
    let golden = |((name, hex), (known, message)): ((&'static str, String), (&str, Message))| {
        assert_eq!(name, known);
        let written = super::golden::unhex(&hex);
        let mut bytes = [0; COVERED_LEN];
        bytes[..written.len()].copy_from_slice(&written);
        Golden { name, message, bytes }
    };
    sections.into_iter().zip(messages).map(golden).collect()
}

fn messages() -> [(&'static str, Message); 7] {
    let base = Message {
        dest_qpn: Qpn::GSI,
        source_qpn: Qpn::GSI,
        cookie: Cookie::new(0xa1a2_a3a4_a5a6_a7a8),
        announced: None,
        answer_wanted: false,
        is_last: false,
        sequence: Psn32::new(0),
        time: 0,
        body: Body::Probe(ProbePath::default()),
    };
    let own = Cookie::new(0x0102_0304_0506_0708);
    let path = ProbePath { index: 3, label: 0xc0de };
    let of_flow = Message { dest_qpn: Qpn::new(0x12_3456), source_qpn: Qpn::new(0x65_4321), ..base };
    let first = Message { cookie: None, announced: own, answer_wanted: true, ..base };
    let (echoed, received, sent) = (0x2122_2324_2526_2728, 0x4142_4344_4546_4748, 0x5152_5354_5556_5758);
    let answer = Body::Answer(Answer { path, echoed, received, sent });
    let report = NodeReport {
        bus_latency_ns: 600,
        bus_use: 0xc000,
        nic_use: 0x4000,
        rx_rate: 0xd_4fdf,
        headroom: 0x2_b020,
        members: 1_024,
        drops: 42,
    };
    let limit =
        Grant { qpn: Qpn::new(0x12_3456), kind: GrantKind::Limit, rate_kbps: 50_000_000, valid_us: 160, reason: 1 };
    let lift = Grant { qpn: Qpn::new(0xab_cdef), kind: GrantKind::Lift, ..Grant::default() };
    let notice = BackPressure { qpn: Qpn::new(0x12_3456), severity: 2, waiting_bytes: 65_536, count: 3 };
    let hint = Hint { tenant: 42, weight: 0x2_8000, limit_kbps: 5_000_000 };
    let numbered =
        |message: Message, sequence, time, body| Message { sequence: Psn32::new(sequence), time, body, ..message };
    let probe = Message { answer_wanted: true, ..of_flow };
    [
        ("first probe", numbered(first, u32::MAX - 1, 0x1112_1314_1516_1718, base.body)),
        ("probe", numbered(probe, 0x89ab_cdef, 0x2122_2324_2526_2728, Body::Probe(path))),
        ("probe answer", numbered(Message { announced: own, ..of_flow }, 7, 0x3132_3334_3536_3738, answer)),
        (
            "node report",
            numbered(Message { is_last: true, ..base }, 8, 0x6162_6364_6566_6768, Body::NodeReport(report)),
        ),
        ("grants", numbered(base, 9, 0x7172_7374_7576_7778, Body::Grants(records(&[limit, lift])))),
        ("back-pressure", numbered(base, 10, 0x8182_8384_8586_8788, Body::BackPressure(records(&[notice])))),
        ("hint", numbered(base, 11, 0x9192_9394_9596_9798, Body::Hint(hint))),
    ]
}

fn records<T: Copy + Default>(entries: &[T]) -> Records<T> {
    Records::new(entries).expect("at most six")
}

/// Any message that can be encoded.
pub fn message() -> impl Strategy<Value = Message> {
    let qpns = (any::<u32>(), any::<u32>()).prop_map(|(to, from)| (Qpn::new(to), Qpn::new(from)));
    let cookies = (any::<Option<u64>>(), 1..=u64::MAX, any::<bool>());
    (qpns, cookies, any::<(bool, bool)>(), any::<(u32, u64)>(), body()).prop_map(
        |((dest_qpn, source_qpn), (own, theirs, is_first), (answer_wanted, is_last), (sequence, time), body)| {
            let is_probe = matches!(body, Body::Probe(_));
            let may_announce = is_probe || matches!(body, Body::Answer(_));
            let announced = own.filter(|_| may_announce).and_then(Cookie::new);
            let cookie = if is_first && is_probe && announced.is_some() { None } else { Cookie::new(theirs) };
            let answer_wanted = answer_wanted && !matches!(body, Body::Answer(_));
            let sequence = Psn32::new(sequence);
            Message { dest_qpn, source_qpn, cookie, announced, answer_wanted, is_last, sequence, time, body }
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    let path = || any::<(u8, u16)>().prop_map(|(index, label)| ProbePath { index, label });
    prop_oneof![
        path().prop_map(Body::Probe),
        (path(), any::<(u64, u64, u64)>()).prop_map(|(path, (echoed, received, sent))| Body::Answer(Answer {
            path,
            echoed,
            received,
            sent
        })),
        any::<(u32, u16, u16, u32, u32, u32, u32)>().prop_map(
            |(bus_latency_ns, bus_use, nic_use, rx_rate, headroom, members, drops)| {
                Body::NodeReport(NodeReport { bus_latency_ns, bus_use, nic_use, rx_rate, headroom, members, drops })
            }
        ),
        prop::collection::vec(any::<(u32, bool, u32, u16, u16)>(), 0..=RECORDS_MAX).prop_map(|entries| {
            let grant = |(qpn, is_lift, rate_kbps, valid_us, reason)| {
                let kind = if is_lift { GrantKind::Lift } else { GrantKind::Limit };
                Grant { qpn: Qpn::new(qpn), kind, rate_kbps, valid_us, reason }
            };
            Body::Grants(records(&entries.into_iter().map(grant).collect::<Vec<_>>()))
        }),
        prop::collection::vec(any::<(u32, u8, u32, u32)>(), 0..=RECORDS_MAX).prop_map(|entries| {
            let notice = |(qpn, severity, waiting_bytes, count)| BackPressure {
                qpn: Qpn::new(qpn),
                severity,
                waiting_bytes,
                count,
            };
            Body::BackPressure(records(&entries.into_iter().map(notice).collect::<Vec<_>>()))
        }),
        any::<(u32, u32, u32)>().prop_map(|(tenant, weight, limit_kbps)| Body::Hint(Hint {
            tenant,
            weight,
            limit_kbps
        })),
    ]
}
