//! Weighted flows: each flow gets its share of a connection's packets, spaced as evenly as possible.
//!
//! Source: the public simulator of Falcon has a weighted round robin by congestion windows (`OPEN_LOOP_FCWND_WRR`),
//! whose weights have four bits; the paper (SIGCOMM'25) describes the policy that is called `largest-window` here. A
//! window depends on the delay of its path, so a path with more capacity has a larger one, and carries more packets.
//! The order is that of smooth weighted round robin, as web servers use it for load balancing: every flow's counter
//! grows by its weight, the flow with the largest counter sends, and the sum of all weights is subtracted from its
//! counter.
//!
//! In contrast to `largest-window` nothing depends on the packets in flight: between two responses of the adaptive
//! engine the order is fixed, so the policy does not have to read counters that the acknowledgements of all flows
//! change.
//!
//! Deviations: the simulator does not specify the order within a round, as far as we know. Weights are those of the
//! datapath ([`FlowWeights`](rnic_policy::FlowWeights) describes their computation). Ties go to the first flow,
//! counted from a flow selected by the connection's hash, so that connections do not all start with the same flow;
//! nothing is random.

use bytemuck::{Pod, Zeroable};
use rnic_policy::paths::FLOWS_MAX;
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathView, Paths};

/// Counter of each flow: weights added minus sums subtracted. The counters of all flows add up to zero.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Weighted {
    gained: [i16; FLOWS_MAX],
    first: u16,
}

impl Paths for Weighted {
    const NAME: &'static str = "weighted";
    const SUMMARY: &'static str = "a connection's flows in turn, by the weight of their windows (Falcon's simulator)";
    const PARAMS: &'static [ParamSpec] = &[];
    const REORDERS: bool = true;
    const WEIGHS: bool = true;

    fn start(_: &Params, view: &PathView) -> (Self, PathLabel) {
        let label = PathLabel(view.flow_hash as u16);
        (Self { gained: [0; FLOWS_MAX], first: (view.flow_hash >> 16) as u16 }, label)
    }

    fn per_packet(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, event: &PathEvent, _: &PathView, _: &Params) -> PathActions {
        let PathEvent::Choosing { open, weights } = event else { return PathActions::default() };
        let count = open.as_slice().len();
        let first = usize::from(self.first) % count;
        let (mut chosen, mut total) = (first, 0);
        for step in 0..count {
            let flow = if first + step < count { first + step } else { first + step - count };
            let weight = i16::from(weights.of_flow(flow));
            total += weight;
            // Although the weights change with every response, no counter exceeds the sum of the weights of eight
            // flows by much.
            self.gained[flow] = self.gained[flow].saturating_add(weight);
            if self.gained[flow] > self.gained[chosen] {
                chosen = flow;
            }
        }
        self.gained[chosen] = self.gained[chosen].saturating_sub(total);
        PathActions { flow: Some(chosen as u8), ..PathActions::default() }
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::Time;
    use rnic_policy::{FlowWeights, OpenWindows};

    use super::*;

    /// Returns the flows chosen for `packets` packets, with these windows in packets.
    fn choices(windows: &[u64], flow_hash: u64, packets: usize) -> Vec<usize> {
        let (params, view) = (Params::defaults(&[]), PathView { now: Time::ZERO, flow_hash });
        let (mut state, _) = Weighted::start(&params, &view);
        let weights = FlowWeights::of(windows.iter().copied());
        let open = OpenWindows::new(&vec![0; windows.len()]);
        let event = PathEvent::Choosing { open, weights };
        (0..packets)
            .map(|_| state.on_event(&event, &view, &params).flow.expect("the policy chooses a flow").into())
            .collect()
    }

    #[test]
    fn each_flow_has_its_share_exactly_and_without_bursts() {
        for windows in [&[100, 25][..], &[60, 20, 20], &[1, 1, 1, 1], &[80, 40, 20, 10, 80, 40, 20, 10], &[7]] {
            let total: u64 = windows.iter().sum();
            let chosen = choices(windows, 5 << 16, 3_000);
            for (flow, window) in windows.iter().enumerate() {
                let share = chosen.iter().filter(|choice| **choice == flow).count() as f64 / 3_000.0;
                let expected = *window as f64 / total as f64;
                assert!((share / expected - 1.0).abs() < 0.08, "{windows:?}: flow {flow} has {share}");
                let positions: Vec<_> = chosen.iter().enumerate().filter(|(_, choice)| **choice == flow).collect();
                let gap_max = positions.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(1);
                assert!(gap_max as f64 <= 2.0 / share, "{windows:?}: flow {flow} waits for {gap_max} packets");
            }
        }
    }

    #[test]
    fn equal_weights_are_a_round_robin_starting_at_the_hash() {
        assert_eq!(choices(&[3, 3, 3], 1 << 16, 6), [1, 2, 0, 1, 2, 0]);
        assert_eq!(choices(&[9, 9, 9], 2 << 16, 4), [2, 0, 1, 2]);
        assert_eq!(choices(&[100, 25], 7, 500), choices(&[100, 25], 7, 500), "two runs differ");
    }
}
