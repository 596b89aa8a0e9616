//! Measures hosts per time slice: received bytes are counted by the hosts ([`Meter`]), and the bytes that waited
//! for their links are measured at the end of each slice, between windows.
//!
//! [`Meter`]: crate::host::Meter

use rnic_base::{BitRate, Duration, Time};

use super::Simulation;
use crate::report::{HostSlices, Slices};
use crate::topology::{LinkPoint, Topology};

/// Measurements of all time slices, and the state needed to continue them.
#[derive(Debug)]
pub(super) struct Slicer {
    slice: Duration,
    /// End of the current slice.
    end: Time,
    /// Number of complete slices.
    complete: usize,
    hosts: Vec<HostSlicer>,
}

/// Measurement of one host's queue. The sum grows during the complete run; the value of a slice is its increase.
#[derive(Debug)]
struct HostSlicer {
    name: String,
    /// Index of the switch and of its output to the host, when the host has a switch.
    output: Option<(usize, usize)>,
    /// The sum at the end of the last slice: bytes in the switch times picoseconds.
    previous_sum: u128,
    queue_mean_bytes: Vec<f64>,
}

impl Slicer {
    /// Creates a slicer for slices of length `slice`, above zero.
    pub(super) fn new(slice: Duration, topology: &Topology) -> Self {
        let neighbours = topology.neighbours();
        let host = |host: u32| {
            let (LinkPoint { node, port }, _) = neighbours[host as usize][0];
            let switch = node.checked_sub(topology.hosts).map(|switch| switch as usize);
            let output = switch.map(|switch| (switch, port as usize));
            HostSlicer { name: topology.name(host), output, previous_sum: 0, queue_mean_bytes: Vec::new() }
        };
        Self { slice, end: Time::ZERO + slice, complete: 0, hosts: (0..topology.hosts).map(host).collect() }
    }
}

impl Simulation {
    /// Completes the slices that end at or before `until`; all events before it have been processed.
    pub(super) fn cut_slices(&mut self, until: Time) {
        let Some(mut slicer) = self.slicer.take() else { return };
        while slicer.end <= until {
            self.measure_slice(&mut slicer);
            if let Some(tenancy) = &mut self.tenancy {
                tenancy.measure_settings(slicer.complete, &self.parts);
            }
            slicer.complete += 1;
            slicer.end += slicer.slice;
        }
        self.slicer = Some(slicer);
    }

    /// Returns the results of each time slice; `None` if the plan does not request slices.
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
        let mut slices = Slices { slice_us: slicer.slice.as_us_f64(), hosts, ..Slices::default() };
        if let Some(tenancy) = &self.tenancy {
            tenancy.add_slices(&mut slices, slicer.slice, slicer.complete, &self.parts);
        }
        Some(slices)
    }

    fn measure_slice(&self, slicer: &mut Slicer) {
        // The last window may extend beyond the end of the slice.
        let now = slicer.end.max(self.now);
        for host in &mut slicer.hosts {
            let waited = host.output.map_or(0, |(switch, output)| self.parts.switch(switch).waited(output, now));
            host.queue_mean_bytes.push((waited - host.previous_sum) as f64 / slicer.slice.as_ps() as f64);
            host.previous_sum = waited;
        }
    }
}
