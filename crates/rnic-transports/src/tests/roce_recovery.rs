//! RoCE's recovery decisions on windows constructed by hand.

use rnic_base::{Psn, Seq, SeqRange, Time};
use rnic_policy::{Params, Recovery, RecoveryEvent, RecoveryPolicy, WindowView};

use crate::recovery::cx7_selective::Cx7Selective;
use crate::recovery::timeout_only::TimeoutOnly;

fn seq(index: u64) -> Seq {
    Seq::start(Psn::new(100)) + index
}

/// Returns the packets that `policy` marks for retransmission after each event; each is paired with the oldest
/// outstanding packet at that time. Ten packets have been sent.
fn marks(policy: RecoveryPolicy, events: &[(u64, RecoveryEvent)]) -> Vec<Option<SeqRange>> {
    let params = Params::defaults(policy.params);
    let mut state = (policy.start)(&params);
    let mut mark = |(una, event): &(u64, RecoveryEvent)| {
        let view = WindowView {
            now: Time::ZERO,
            una: seq(*una),
            next: seq(10),
            highest_sacked: None,
            sacked: None,
            marked: None,
            sent: 0,
        };
        (policy.on_event)(&mut state, event, &view, &params).retransmit
    };
    events.iter().map(&mut mark).collect()
}

fn kept(index: u64) -> RecoveryEvent {
    RecoveryEvent::Nacked { sack: Some(seq(index)), losses: None, is_new: true, advanced: false }
}

const DROPPED: RecoveryEvent = RecoveryEvent::Nacked { sack: None, losses: None, is_new: true, advanced: false };
const TIMED_OUT: RecoveryEvent = RecoveryEvent::TimedOut { extended: false };

fn range(start: u64, end: u64) -> Option<SeqRange> {
    Some(SeqRange::new(seq(start), seq(end)))
}

#[test]
fn selective_repeat_retransmits_each_gap_once_and_goes_back_for_dropped_packets() {
    let events = [(2, kept(3)), (2, kept(4)), (2, kept(9)), (6, kept(9)), (6, kept(9)), (8, DROPPED), (8, kept(9))];
    let expected = [range(2, 3), None, None, range(6, 7), None, range(8, 10), None];
    assert_eq!(marks(RecoveryPolicy::of::<Cx7Selective>(), &events), expected);
    let events = [(2, kept(3)), (2, TIMED_OUT), (2, DROPPED)];
    assert_eq!(marks(RecoveryPolicy::of::<Cx7Selective>(), &events), [range(2, 3), range(2, 10), range(2, 10)]);
}

#[test]
fn selective_repeat_retransmits_again_on_a_nack_caused_by_a_later_packet() {
    let (policy, mut params) = (RecoveryPolicy::of::<Cx7Selective>(), Params::defaults(Cx7Selective::PARAMS));
    // (next new packet, packet that caused the NACK): packet 10 is the first one sent after the first retransmission,
    // packet 20 the first after the second.
    let nacks = [(10, 3), (15, 9), (20, 10), (20, 19), (25, 20)];
    let marks = |params: &Params| {
        let mut state = (policy.start)(params);
        nacks.map(|(next, cause)| {
            let view = WindowView {
                now: Time::ZERO,
                una: seq(2),
                next: seq(next),
                highest_sacked: None,
                sacked: None,
                marked: None,
                sent: 0,
            };
            (policy.on_event)(&mut state, &kept(cause), &view, params).retransmit
        })
    };
    assert_eq!(marks(&params), [range(2, 3), None, range(2, 3), None, range(2, 3)]);
    params.set(Cx7Selective::PARAMS, "repair_again", "false").expect("the policy has this option");
    assert_eq!(marks(&params), [range(2, 3), None, None, None, None]);
}

#[test]
fn adaptive_routing_retransmits_only_on_timeout() {
    let events = [(2, kept(3)), (2, DROPPED), (2, TIMED_OUT)];
    assert_eq!(marks(RecoveryPolicy::of::<TimeoutOnly>(), &events), [None, None, range(2, 10)]);
}
