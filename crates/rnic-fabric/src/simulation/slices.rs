//! Takes the measure of hosts at the end of each slice, between windows: nothing on the way of a packet knows of it.

use rnic_base::{BitRate, Duration, Time};

use super::Simulation;
use crate::report::{HostSlices, Slices};
use crate::topology::{LinkPoint, Topology};
use crate::workload::{Operation, Traffic};

/// What has been measured, and what it is measured by.
#[derive(Debug)]
pub(super) struct Slicer {
    slice: Duration,
    /// When the slice that runs now is over.
    end: Time,
    hosts: Vec<HostSlicer>,
}

/// One host's. Sums grow all through the run; a slice has what they grow by.
#[derive(Debug)]
struct HostSlicer {
    name: String,
    /// Its place at its switch, if it has one: which switch, and which output.
    output: Option<(usize, usize)>,
    /// Payload of flows that have ended.
    ended_bytes: u64,
    /// The sums at the end of the last slice: payload, and bytes times picoseconds in the switch.
    before: (u64, u128),
    done: HostSlices,
}

impl Slicer {
    /// For slices of `slice`; above zero.
    pub(super) fn new(slice: Duration, topology: &Topology) -> Self {
        let neighbours = topology.neighbours();
        let host = |host: u32| {
            let (LinkPoint { node, port }, _) = neighbours[host as usize][0];
            let switch = node.checked_sub(topology.hosts).map(|switch| switch as usize);
            let output = switch.map(|switch| (switch, port as usize));
            let name = topology.name(host);
            HostSlicer { name, output, ended_bytes: 0, before: (0, 0), done: HostSlices::default() }
        };
        Self { slice, end: Time::ZERO + slice, hosts: (0..topology.hosts).map(host).collect() }
    }

    /// A flow between these two hosts has ended, with `bytes` in all.
    pub(super) fn ended(&mut self, ends: (u32, u32), traffic: &Traffic, bytes: u64) {
        self.hosts[receiver(ends, traffic)].ended_bytes += bytes;
    }

    fn slices(&self) -> Slices {
        let hosts = self.hosts.iter().map(|host| (host.name.clone(), host.done.clone())).collect();
        Slices { slice_us: self.slice.as_us_f64(), hosts }
    }
}

/// Where payload goes: a Read brings it back.
fn receiver((src, dst): (u32, u32), traffic: &Traffic) -> usize {
    let host = if traffic.op == Operation::Read { src } else { dst };
    host as usize
}

impl Simulation {
    /// Ends the slices whose time is over at `until`, before which everything has happened.
    pub(super) fn cut_slices(&mut self, until: Time) {
        let Some(mut slicer) = self.slicer.take() else { return };
        while slicer.end <= until {
            self.measure_slice(&mut slicer);
            slicer.end += slicer.slice;
        }
        self.slicer = Some(slicer);
    }

    /// What the slices were, where the plan asks for it.
    pub(super) fn slices(&self) -> Option<Slices> {
        self.slicer.as_deref().map(Slicer::slices)
    }

    fn measure_slice(&self, slicer: &mut Slicer) {
        let mut bytes: Vec<u64> = slicer.hosts.iter().map(|host| host.ended_bytes).collect();
        for live in self.live.iter() {
            let flow = &self.flows[live.flow as usize];
            let sender = self.parts.host(flow.src).sessions.sender(live.sender);
            let completed = sender.traffic.message_bytes.saturating_mul(u64::from(sender.completed));
            bytes[receiver((flow.src, flow.dst), &sender.traffic)] += completed.min(flow.bytes);
        }
        // The last window may have gone beyond it.
        let now = slicer.end.max(self.now);
        for (host, bytes) in slicer.hosts.iter_mut().zip(bytes) {
            let waited = host.output.map_or(0, |(switch, output)| self.parts.switch(switch).waited(output, now));
            let (bytes_before, waited_before) = host.before;
            let rate = BitRate::from_transfer(bytes - bytes_before, slicer.slice);
            host.done.goodput_gbps.push(rate.as_gbps_f64());
            host.done.queue_mean_bytes.push((waited - waited_before) as f64 / slicer.slice.as_ps() as f64);
            host.before = (bytes, waited);
        }
    }
}
