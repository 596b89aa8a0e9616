//! Receiver credits: the rates that a receiver grants to the queue pairs that send to it.
//!
//! Source: SCR (NSDI'25) section A.8, mechanism S-25: a receiver measures the bandwidth that other traffic uses and
//! grants the rest. For several queue pairs, the split, the threshold of sending and the lifetime are OpenRNIC's.
//!
//! Each period, with U the smoothed bandwidth: grant = (98 % of the line - (U of the port - U of the granted queue
//! pairs)) / number of granted queue pairs, and at least the floor. A grant is sent when it differs from the last one
//! by more than 2 % of the line, and otherwise every four periods, so that the loss of a message costs little.
//!
//! A queue pair that sends nothing for as long as its grant is valid gets no share any more, and its limit is lifted.
//! If that message is lost, the limit fades.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration};
use rnic_wire::Qpn;
use rnic_wire::scr::{Grant, GrantKind};

use crate::NicId;

/// Maximum number of queue pairs to which a NIC grants rates.
pub const GRANTED_MAX: usize = 1 << 12;

/// Number of periods for which a grant is valid.
pub const VALID_PERIODS: u64 = 8;

/// A queue pair of a peer, identified by the peer's number for it.
pub type Flow = (NicId, Qpn);

/// Computes the rates that a receiver grants.
#[derive(Debug)]
pub struct GrantLaw {
    line: BitRate,
    floor: BitRate,
    /// Bandwidth that the port receives.
    port: Bandwidth,
    flows: BTreeMap<Flow, Granted>,
}

/// State of one granted queue pair.
#[derive(Clone, Copy, Default, Debug)]
struct Granted {
    bandwidth: Bandwidth,
    /// The last grant, and the number of periods since it was sent.
    last: Option<(BitRate, u32)>,
    /// Time since the end of the measurement period in which the last packet arrived.
    idle: Duration,
}

/// A smoothed bandwidth.
#[derive(Clone, Copy, Default, Debug)]
struct Bandwidth {
    /// Bytes on the wire in this period.
    bytes: u64,
    /// Smoothed bits per second. A step is truncated by less than 4 bit/s.
    bps: u64,
}

/// The next grant to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewGrant {
    /// Peer to which the grant is sent.
    pub peer: NicId,
    /// The content of the grant.
    pub grant: Grant,
}

impl GrantLaw {
    /// Creates the grants of a NIC whose port receives at `line`; no grant is below `floor`.
    #[must_use]
    pub fn new(line: BitRate, floor: BitRate) -> Self {
        Self { line, floor, port: Bandwidth::default(), flows: BTreeMap::new() }
    }

    /// Adds a queue pair that receives grants; returns false if there are already [`GRANTED_MAX`].
    pub fn add(&mut self, flow: Flow) -> bool {
        let has_room = self.flows.len() < GRANTED_MAX || self.flows.contains_key(&flow);
        if has_room {
            self.flows.entry(flow).or_default();
        }
        has_room
    }

    /// Returns whether no queue pair gets grants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Removes a queue pair; returns the grant that removes its limit, if it had one.
    pub fn remove(&mut self, flow: Flow) -> Option<NewGrant> {
        self.flows.remove(&flow)?.lift(flow)
    }

    /// Counts received bytes on the wire, of any traffic.
    pub fn count(&mut self, flow: Option<Flow>, wire_bytes: u64) {
        self.port.count(wire_bytes);
        if let Some(granted) = flow.and_then(|flow| self.flows.get_mut(&flow)) {
            granted.bandwidth.count(wire_bytes);
        }
    }

    /// Ends a period that took `elapsed`; adds the grants to send to `out`: first those that remove the limits of idle
    /// queue pairs, then the others, each group ordered by peer, so that grants to one peer share messages.
    pub fn end_period(&mut self, elapsed: Duration, out: &mut Vec<NewGrant>) {
        if elapsed == Duration::ZERO {
            return;
        }
        self.port.end_period(elapsed);
        self.flows.values_mut().for_each(|flow| flow.end_period(elapsed));
        let valid = elapsed.saturating_mul(VALID_PERIODS);
        self.flows.retain(|key, flow| {
            let is_idle = flow.is_idle(valid);
            out.extend(flow.lift(*key).filter(|_| is_idle));
            !is_idle
        });
        let Some(grant) = self.share() else { return };
        let threshold = self.line.as_bps() / 50;
        let valid_us = u16::try_from(valid.as_ns() / 1_000).unwrap_or(u16::MAX).max(1);
        for ((peer, qpn), flow) in &mut self.flows {
            let is_due = flow.last.is_none_or(|(rate, periods)| {
                rate.as_bps().abs_diff(grant.as_bps()) > threshold || periods + 1 >= REPEAT_PERIODS
            });
            if is_due {
                flow.last = Some((grant, 0));
                let grant = Grant { qpn: *qpn, kind: GrantKind::Limit, rate_kbps: kbps(grant), valid_us, reason: 0 };
                out.push(NewGrant { peer: *peer, grant });
            } else if let Some((_, periods)) = &mut flow.last {
                *periods += 1;
            }
        }
    }

    /// Returns the rate for one queue pair: its share of what other traffic does not use; `None` without granted queue
    /// pairs.
    #[must_use]
    pub fn share(&self) -> Option<BitRate> {
        let count = u64::try_from(self.flows.len()).ok().filter(|count| *count > 0)?;
        let granted: u64 = self.flows.values().map(|flow| flow.bandwidth.bps).sum();
        let others = self.port.bps.saturating_sub(granted);
        let usable = self.line.as_bps() / 100 * 98;
        Some(BitRate::bps(usable.saturating_sub(others) / count).max(self.floor))
    }
}

impl Granted {
    fn end_period(&mut self, elapsed: Duration) {
        self.idle = if self.bandwidth.bytes > 0 { Duration::ZERO } else { self.idle + elapsed };
        self.bandwidth.end_period(elapsed);
    }

    /// Returns whether nothing has arrived for `valid`, the validity of a grant, and for the time of a few packets at
    /// the granted rate, which may be low.
    fn is_idle(&self, valid: Duration) -> bool {
        let packets = self.last.map_or(Duration::ZERO, |(rate, _)| rate.serialize(IDLE_BYTES));
        self.idle >= valid.max(packets)
    }

    /// Returns the grant that removes the limit, if there was one.
    fn lift(&self, (peer, qpn): Flow) -> Option<NewGrant> {
        let (rate, _) = self.last?;
        let grant = Grant { qpn, kind: GrantKind::Lift, rate_kbps: kbps(rate), valid_us: 0, reason: 0 };
        Some(NewGrant { peer, grant })
    }
}

impl Bandwidth {
    fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn end_period(&mut self, elapsed: Duration) {
        let bytes = std::mem::take(&mut self.bytes).min(BYTES_MAX);
        let sample = BitRate::from_transfer(bytes, elapsed.max(PERIOD_MIN)).as_bps().min(BPS_MAX);
        self.bps =
            if sample > self.bps { self.bps + (sample - self.bps) / 4 } else { self.bps - (self.bps - sample) / 4 };
    }
}

/// Returns a rate in kbit/s, limited to the range of the message field.
fn kbps(rate: BitRate) -> u32 {
    u32::try_from(rate.as_bps() / 1_000).unwrap_or(u32::MAX)
}

/// A queue pair is idle when this number of bytes could have arrived at the granted rate: four large packets.
const IDLE_BYTES: u64 = 4 * (4_096 + 78);

/// Number of periods after which a grant is repeated.
const REPEAT_PERIODS: u32 = 4;

/// Bytes of a period above this are not counted, and a shorter period counts as this one, so that no rate overflows.
const BYTES_MAX: u64 = 1 << 40;
const PERIOD_MIN: Duration = Duration::from_us(1);
/// Maximum measured bandwidth: the sum of [`GRANTED_MAX`] of them does not overflow.
const BPS_MAX: u64 = 1 << 50;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PeerId;

    const LINE: BitRate = BitRate::gbps(100);
    const FLOOR: BitRate = BitRate::gbps(1);
    const PERIOD: Duration = Duration::from_us(20);
    const FLOW: Flow = (NicId::of(PeerId(1)), Qpn::new(0x11));
    const OTHER: Flow = (NicId::of(PeerId(0)), Qpn::new(0x22));

    /// Returns the bytes that `gbps` Gbit/s carry in a period: 2,500 for each Gbit/s.
    fn bytes(gbps: u64) -> u64 {
        gbps * 2_500
    }

    fn law(flows: &[Flow]) -> GrantLaw {
        let mut law = GrantLaw::new(LINE, FLOOR);
        assert!(flows.iter().all(|flow| law.add(*flow)));
        law
    }

    /// Runs periods in which the port receives `others` Gbit/s in addition to the traffic of each granted queue pair.
    fn run(law: &mut GrantLaw, periods: u32, flows: &[(Flow, u64)], others: u64) -> Vec<NewGrant> {
        let mut out = Vec::new();
        for _ in 0..periods {
            flows.iter().for_each(|(flow, gbps)| law.count(Some(*flow), bytes(*gbps)));
            law.count(None, bytes(others));
            law.end_period(PERIOD, &mut out);
        }
        out
    }

    fn mbps(law: &GrantLaw) -> u64 {
        law.share().expect("a granted queue pair").as_bps() / 1_000_000
    }

    #[test]
    fn s25_the_grant_is_what_others_leave_of_98_percent() {
        for others in [0, 5, 40, 80] {
            let mut law = law(&[FLOW]);
            run(&mut law, 60, &[(FLOW, 10)], others);
            assert!(mbps(&law).abs_diff((98 - others) * 1_000) <= 1, "{others}: {}", mbps(&law));
        }
    }

    /// U after one period of 40 Gbit/s is 10, after two 17.5, after three 23.125.
    #[test]
    fn s25_the_use_of_others_is_smoothed_by_a_quarter() {
        let mut law = law(&[FLOW]);
        let grants = [88_000, 80_500, 74_875].map(|expected| {
            run(&mut law, 1, &[], 40);
            (mbps(&law), expected)
        });
        assert!(grants.iter().all(|(grant, expected)| grant == expected), "{grants:?}");
    }

    #[test]
    fn s25_granted_queue_pairs_get_equal_shares_and_their_own_use_does_not_count() {
        let mut law = law(&[FLOW, OTHER]);
        run(&mut law, 60, &[(FLOW, 60), (OTHER, 2)], 20);
        assert!(mbps(&law).abs_diff((98 - 20) * 1_000 / 2) <= 1, "{}", mbps(&law));
    }

    #[test]
    fn s25_no_grant_is_below_the_floor() {
        let mut law = law(&[FLOW]);
        run(&mut law, 60, &[(FLOW, 1)], 200);
        assert_eq!(law.share(), Some(FLOOR));
    }

    #[test]
    fn s25_a_steady_grant_is_repeated_every_four_periods() {
        let mut law = law(&[FLOW]);
        let counts: Vec<_> = (0..13).map(|_| run(&mut law, 1, &[(FLOW, 10)], 0).len()).collect();
        assert_eq!(counts, [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        let NewGrant { peer, grant } = run(&mut law, 4, &[(FLOW, 10)], 0)[0];
        assert_eq!((peer, grant.qpn, grant.kind), (FLOW.0, FLOW.1, GrantKind::Limit));
        assert_eq!((grant.rate_kbps, grant.valid_us), (98_000_000, 160), "98 Gbit/s for 8 periods of 20 us");
    }

    /// 8 Gbit/s of other traffic change U by 2 Gbit/s, which is 2 % and not more; 9 by more.
    #[test]
    fn s25_a_change_of_more_than_2_percent_is_sent_at_once() {
        for (others, sent) in [(8, 0), (9, 1)] {
            let mut law = law(&[FLOW]);
            assert_eq!(run(&mut law, 1, &[], 0).len(), 1, "the first grant");
            assert_eq!(run(&mut law, 1, &[], others).len(), sent, "{others}");
        }
    }

    #[test]
    fn s25_grants_are_ordered_by_peer_and_a_removed_queue_pair_is_told() {
        let mut law = law(&[FLOW, OTHER]);
        let peers: Vec<_> = run(&mut law, 1, &[], 0).iter().map(|grant| grant.peer).collect();
        assert_eq!(peers, [OTHER.0, FLOW.0]);
        let lifted = law.remove(FLOW).expect("it had a grant");
        assert_eq!((lifted.peer, lifted.grant.qpn, lifted.grant.kind), (FLOW.0, FLOW.1, GrantKind::Lift));
        assert_eq!((law.remove(FLOW), law.remove((NicId::of(PeerId(9)), FLOW.1))), (None, None));
        assert_eq!(run(&mut law, 5, &[], 0).len(), 2, "at once, because the share doubles, and repeated");
    }

    /// After 8 periods without a packet, the limit is removed, and the other queue pair receives the whole rate.
    #[test]
    fn s25_an_idle_queue_pair_is_lifted_and_gets_no_share() {
        let mut law = law(&[FLOW, OTHER]);
        run(&mut law, 60, &[(FLOW, 10), (OTHER, 10)], 0);
        assert!(mbps(&law).abs_diff(49_000) <= 1, "{}", mbps(&law));
        assert!(run(&mut law, 7, &[(FLOW, 10)], 0).iter().all(|new| new.grant.kind == GrantKind::Limit));
        let sent = run(&mut law, 1, &[(FLOW, 10)], 0);
        let lifts: Vec<_> = sent.iter().filter(|new| new.grant.kind == GrantKind::Lift).collect();
        assert!(matches!(lifts[..], [NewGrant { peer, grant }] if (*peer, grant.qpn) == OTHER), "{sent:?}");
        // Its use until then counts as that of others for a while.
        assert!(sent.iter().any(|new| new.peer == FLOW.0 && new.grant.rate_kbps > 96_000_000), "{sent:?}");
        let none = run(&mut law, 30, &[(FLOW, 10)], 0);
        assert!(none.iter().all(|new| new.peer == FLOW.0), "a lift is sent once");
        assert!(mbps(&law).abs_diff(98_000) <= 1, "{}", mbps(&law));
        assert!(law.add(OTHER), "it sends again");
        assert!(mbps(&law).abs_diff(49_000) <= 1, "{}", mbps(&law));
    }

    /// At 10 Mbit/s, a large packet takes 3.3 ms: 166 periods.
    #[test]
    fn s25_a_queue_pair_with_a_low_grant_is_not_idle_between_two_packets() {
        let mut law = GrantLaw::new(LINE, BitRate::bps(10_000_000));
        assert!(law.add(FLOW));
        run(&mut law, 60, &[(FLOW, 1)], 200);
        assert!(run(&mut law, 400, &[], 200).iter().all(|new| new.grant.kind == GrantKind::Limit));
        assert_eq!(law.share(), Some(BitRate::bps(10_000_000)));
        run(&mut law, 400, &[], 200);
        assert_eq!(law.share(), None);
    }

    #[test]
    fn s25_the_number_of_granted_queue_pairs_is_bounded() {
        let mut law = GrantLaw::new(LINE, BitRate::bps(1_000_000));
        for number in 0..GRANTED_MAX as u32 {
            assert!(law.add((NicId::of(PeerId(number)), FLOW.1)));
        }
        assert!(!law.add((NicId::of(PeerId::NONE), FLOW.1)) && law.add((NicId::of(PeerId(3)), FLOW.1)));
        law.end_period(Duration::ZERO, &mut Vec::new());
        assert_eq!(law.share(), Some(BitRate::bps(98_000_000_000 / 4_096)));
    }

    proptest! {
        /// For any traffic, a grant is between the floor and 98 % of the line.
        #[test]
        fn s25_every_grant_is_in_its_bounds(
            periods in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>(), 1..=u64::MAX), 0..100)
        ) {
            let mut law = law(&[FLOW, OTHER]);
            let mut out = Vec::new();
            for (flow_bytes, other_bytes, is_small, elapsed) in periods {
                let shift = if is_small { 40 } else { 0 };
                law.count(Some(FLOW), (flow_bytes >> shift).max(1));
                law.count(Some(OTHER), 1);
                law.count(None, other_bytes >> shift);
                law.end_period(Duration::from_ps(elapsed >> shift), &mut out);
                let share = law.share().expect("a granted queue pair");
                prop_assert!(FLOOR <= share && share <= BitRate::gbps(49));
            }
            prop_assert!(out.iter().all(|new| (1_000_000..=49_000_000).contains(&new.grant.rate_kbps)));
        }
    }
}
