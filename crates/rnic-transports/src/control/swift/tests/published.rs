//! The examples of the public Falcon simulator's own tests, with its inputs and the windows that it expects.
//!
//! Source: isekai (github.com/falcon-transport/isekai), commit ab3a028, `rue/algorithm/swift_test.cc`, whose names are
//! kept here. Its tests compute what they expect from their configuration; the numbers here are the results, for a base
//! target of 100 ticks, 8 ticks a hop, 5 hops and flow scaling of up to 763 ticks. Where it passes a current time that
//! differs from T4, all four timestamps are shifted so that T4 is that time.
//!
//! Left out: its options that Swift has not got here (a greatest decrease by a NACK or a drop, fractions of ncwnd) and
//! those of its generations of hardware.

use rnic_policy::control::report::{CurrentSettings, DelaySelect};
use rnic_policy::kit::report;

use super::*;

/// Windows may differ by this many packets: the tolerance of the simulator's tests for a decrease.
const TOLERANCE: f64 = 0.01;

/// A report and the state before it.
#[derive(Clone, Copy)]
struct Example {
    kind: ReportKind,
    /// T2 and T4 after T1, and the time since the marker of fcwnd, in ticks.
    forward: u32,
    rtt: u32,
    since_marker: u32,
    fcwnd: f64,
    srtt: u32,
    level: u8,
    /// Time since the marker of ncwnd, and whether it grew then; ncwnd is 100.
    since_nic_marker: u32,
    grew: bool,
}

/// An acknowledgement of three packets.
const ACK: Example = Example {
    kind: ReportKind::Acked,
    forward: 153,
    rtt: 315,
    since_marker: 401,
    fcwnd: 8.0,
    srtt: 310,
    level: 7,
    since_nic_marker: 401,
    grew: true,
};

/// The same, late.
const LATE: Example = Example { forward: 879, rtt: 1_200, since_marker: 2_001, fcwnd: 2.75, srtt: 1_000, ..ACK };

/// A NACK for another reason than resources.
const NACK: Example = Example { kind: ReportKind::Nacked { code: 5 }, ..LATE };

/// A NACK because the receiver has no resources.
const REFUSAL: Example = Example { kind: ReportKind::Nacked { code: NACK_RESOURCES }, level: 17, grew: false, ..LATE };

const fn retransmission(count: u8, since_marker: u32) -> Example {
    let kind = ReportKind::Retransmitted { count, early: false };
    Example { kind, since_marker, fcwnd: 2.75, srtt: 1_200, ..ACK }
}

/// Returns fcwnd and ncwnd after the report.
fn respond(example: &Example) -> (f64, u16) {
    let Example { kind, forward, rtt, since_marker, fcwnd, srtt, level, since_nic_marker, grew } = *example;
    let mut params = Params::defaults(Swift::PARAMS);
    for (name, value) in [("base_target", "13107200ps"), ("hop_delay", "1048576ps"), ("scaling_range", "100us")] {
        assert_eq!(params.set(Swift::PARAMS, name, value), Ok(true), "{name}");
    }
    let now = 102_000;
    let in_force = CurrentSettings {
        fcwnd: cwnd((fcwnd * 1_024.0).round() as u32),
        ncwnd: 100,
        gap: Gap::NONE,
        rate: RateLimit::NONE,
        rto: Ticks::new(1_000),
        ack_rate: AckRate::ALL,
    };
    let times = [forward, 0, rtt - forward];
    let report = FlowReport {
        kind,
        acked: 3,
        hops: 5,
        rx_level: level,
        delay: DelaySelect::Forward,
        ..report(0, Ticks::new(now), times, in_force)
    };
    let carried = Carried {
        metadata: 0,
        fabric_marker: Ticks::new(now - since_marker),
        nic_marker: Ticks::new(now - since_nic_marker),
        nic_grew: grew,
        base_delay: Ticks::ZERO,
        delay_state: 0,
        rtt_state: Ticks::new(srtt),
        opaque: 0,
    };
    let mut swift = Swift::restore(&carried, &report, &params).expect("Swift runs without stored state");
    let flow = swift.on_event(&ControlEvent::Reported(report), &VIEW, &params).flow.expect("every report is answered");
    (flow.fcwnd.fixed() as f64 / 65_536.0, flow.ncwnd)
}

#[test]
fn published_windows_towards_the_fabric() {
    let examples = [
        (
            "ProcessAckMd150p",
            Example { forward: 440, rtt: 800, since_marker: 2_000, fcwnd: 4.0, srtt: 710, ..ACK },
            2.5964,
        ),
        ("ProcessAckAiOverCwnd", ACK, 8.375),
        ("ProcessAckAi", Example { fcwnd: 0.5, ..ACK }, 3.5),
        ("ProcessAckMaxMd", LATE, 1.375),
        ("ProcessAckSkipMd", Example { since_marker: 1_000, ..LATE }, 2.75),
        ("ProcessNackNoMaxDecr", Example { since_marker: 1_000, ..NACK }, 2.75),
        ("ProcessRetransmitNoDecr", retransmission(1, 0), 2.75),
        ("ProcessRetransmitFirst", retransmission(1, 2_000), 1.375),
        ("ProcessRetransmitSecond", retransmission(2, 2_000), 2.75),
        ("ProcessRetransmitLimit", retransmission(4, 2_000), 0.01),
    ];
    for (name, example, expected) in examples {
        let (fcwnd, _) = respond(&example);
        assert!((fcwnd - expected).abs() <= TOLERANCE, "{name}: {fcwnd}, not {expected}");
    }
}

#[test]
fn published_windows_towards_the_nic() {
    let examples = [
        ("NicCongestionWindowIncrease", ACK, 101),
        ("NicCongestionWindowIncrease2", Example { since_nic_marker: 300, grew: false, ..ACK }, 101),
        ("NicCongestionWindowDecrease1", Example { level: 16, ..ACK }, 95),
        ("NicCongestionWindowDecrease2", Example { level: 17, ..ACK }, 90),
        ("NicCongestionWindowNoDecrease", Example { level: 17, since_nic_marker: 300, grew: false, ..ACK }, 100),
        ("ProcessNackNicDecrease1", Example { since_nic_marker: 2_001, ..REFUSAL }, 50),
        ("ProcessNackNicDecrease2", Example { since_nic_marker: 1_000, grew: true, ..REFUSAL }, 50),
        ("ProcessNackNicNoDecrease1", Example { since_nic_marker: 1_000, level: 16, ..REFUSAL }, 100),
        (
            "ProcessNackNicDecreaseWrongNackCode",
            Example { since_nic_marker: 2_001, level: 16, grew: false, ..NACK },
            95,
        ),
    ];
    for (name, example, expected) in examples {
        assert_eq!(respond(&example).1, expected, "{name}");
    }
}

/// Two decisions in which ours differ on purpose (the head of `swift.rs`): a delay equal to the target increases the
/// window, where the simulator (`ProcessAckMdEqual`) leaves it at 3; and the gate of one round trip uses the smoothed
/// round trip, of 86 ticks, where the simulator's (`NicCongestionWindowNoIncrease`) uses the newest, of 315, and stays
/// closed.
#[test]
fn published_examples_that_are_decided_otherwise_on_purpose() {
    let equal = Example { forward: 266, rtt: 715, since_marker: 716, fcwnd: 3.0, srtt: 600, ..ACK };
    assert!((respond(&equal).0 - 4.0).abs() <= TOLERANCE, "{}", respond(&equal).0);
    let soon = Example { since_nic_marker: 300, srtt: 10, ..ACK };
    assert_eq!(respond(&soon).1, 101);
    assert_eq!(respond(&Example { srtt: 315, ..soon }).1, 100, "where both round trips are equal, both stay closed");
}
