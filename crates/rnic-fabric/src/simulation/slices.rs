//! Takes the measure of hosts, slice by slice: what arrived is counted by the hosts ([`Meter`]), what waited for them
//! is measured at the end of each slice, between windows.
//!
//! [`Meter`]: crate::host::Meter

use rnic_base::{BitRate, Duration, Time};

use super::Simulation;
use crate::report::{HostSlices, Slices};
use crate::topology::{LinkPoint, Topology};

/// What has been measured, and what it is measured by.
#[derive(Debug)]
pub(super) struct Slicer {
    slice: Duration,
    /// When the slice that runs now is over.
    end: Time,
    hosts: Vec<HostSlicer>,
}

/// One host's queue. Sums grow all through the run; a slice has what they grow by.
#[derive(Debug)]
struct HostSlicer {
    name: String,
    /// Its place at its switch, if it has one: which switch, and which output.
    output: Option<(usize, usize)>,
    /// The sum at the end of the last slice: bytes times picoseconds in the switch.
    before: u128,
    queue_mean_bytes: Vec<f64>,
}

impl Slicer {
    /// For slices of `slice`; above zero.
    pub(super) fn new(slice: Duration, topology: &Topology) -> Self {
        let neighbours = topology.neighbours();
        let host = |host: u32| {
            let (LinkPoint { node, port }, _) = neighbours[host as usize][0];
            let switch = node.checked_sub(topology.hosts).map(|switch| switch as usize);
            let output = switch.map(|switch| (switch, port as usize));
            HostSlicer { name: topology.name(host), output, before: 0, queue_mean_bytes: Vec::new() }
        };
        Self { slice, end: Time::ZERO + slice, hosts: (0..topology.hosts).map(host).collect() }
    }
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
        let slicer = self.slicer.as_deref()?;
        let of_host = |(host, number): (&HostSlicer, u32)| {
            let meter = self.parts.host(number).meter.as_deref();
            let bytes = |index: usize| meter.map_or(0, |meter| meter.bytes_in(index));
            let rate = |index: usize| BitRate::from_transfer(bytes(index), slicer.slice).as_gbps_f64();
            let goodput_gbps = (0..host.queue_mean_bytes.len()).map(rate).collect();
            (host.name.clone(), HostSlices { goodput_gbps, queue_mean_bytes: host.queue_mean_bytes.clone() })
        };
        let hosts = slicer.hosts.iter().zip(0..).map(of_host).collect();
        Some(Slices { slice_us: slicer.slice.as_us_f64(), hosts })
    }

    fn measure_slice(&self, slicer: &mut Slicer) {
        // The last window may have gone beyond it.
        let now = slicer.end.max(self.now);
        for host in &mut slicer.hosts {
            let waited = host.output.map_or(0, |(switch, output)| self.parts.switch(switch).waited(output, now));
            host.queue_mean_bytes.push((waited - host.before) as f64 / slicer.slice.as_ps() as f64);
            host.before = waited;
        }
    }
}
