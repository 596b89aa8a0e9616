//! Parts of the latency of operations.

use rnic_base::{Duration, Time};
use serde::Serialize;

use super::Spread;

/// Parts of the time from the post of an operation to its completion, in microseconds; the parts of one operation add
/// up to its latency exactly.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct LatencyParts {
    /// From the post until only the window or the pacing of the queue pair holds the operation back: requests before
    /// it, credit, fences, the turn of the queue pair; with Falcon, the resources of the NIC.
    pub admission_us: Spread,
    /// From then until the first packet is sent.
    pub window_us: Spread,
    /// From then until the remote NIC has received the last request packet and everything before it.
    pub wire_us: Spread,
    /// From then until the remote NIC sends the acknowledgement, or the last packet of the response.
    pub remote_us: Spread,
    /// From then to the completion.
    pub acknowledgement_us: Spread,
    /// The sum.
    pub total_us: Spread,
}

/// The six times that divide the latency of an operation.
pub(crate) type Moments = [Time; 6];

/// Collects the parts of latencies.
#[derive(Debug, Default)]
pub(crate) struct LatencyCollector([Vec<Duration>; 5]);

impl LatencyCollector {
    /// Adds an operation.
    pub(crate) fn add(&mut self, moments: &Moments) {
        for (part, values) in self.0.iter_mut().enumerate() {
            values.push(moments[part + 1].since(moments[part]));
        }
    }

    /// Returns the parts of all operations; `None` when there are none.
    pub(crate) fn parts(&self) -> Option<LatencyParts> {
        let spread = |values: &mut dyn Iterator<Item = Duration>| {
            Spread::of(&mut values.map(|value| value.as_us_f64()).collect::<Vec<_>>())
        };
        let part = |index: usize| spread(&mut self.0[index].iter().copied());
        let sum = |operation: usize| self.0.iter().fold(Duration::ZERO, |sum, values| sum + values[operation]);
        Some(LatencyParts {
            admission_us: part(0)?,
            window_us: part(1)?,
            wire_us: part(2)?,
            remote_us: part(3)?,
            acknowledgement_us: part(4)?,
            total_us: spread(&mut (0..self.0[0].len()).map(sum))?,
        })
    }
}
