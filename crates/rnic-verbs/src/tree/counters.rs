//! Values of the counters below a port: the sums over all processes of this user that have the device open, as found by
//! `rnic top`. When a process exits, its counts disappear from the sums, which readers treat as a counter reset.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rnic_host::observe::{self, DeviceCounters};

/// Function that extracts a value from a device's counters.
type Value = fn(&DeviceCounters) -> u64;

/// A counter file, defined by the function that extracts its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(Value);

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for Counter {}

impl Counter {
    /// Returns all counters, with their paths below the port.
    pub(super) fn all() -> impl Iterator<Item = (&'static str, Self)> {
        COUNTERS.iter().map(|(name, value)| (*name, Self(*value)))
    }

    /// Returns the counter's current value, cached for a short time (`CACHE_AGE_MAX`), because programs usually read
    /// several counters in a row.
    pub(crate) fn read(self) -> u64 {
        static LATEST: Mutex<Option<(Instant, DeviceCounters)>> = Mutex::new(None);
        // Never wait for the lock, because the process may have been forked while another thread held it.
        let latest = LATEST.try_lock();
        if let Ok(latest) = &latest
            && let Some((at, counters)) = &**latest
            && at.elapsed() < CACHE_AGE_MAX
        {
            return (self.0)(counters);
        }
        let counters = sums();
        if let Ok(mut latest) = latest {
            *latest = Some((Instant::now(), counters));
        }
        (self.0)(&counters)
    }
}

/// Returns the sums of the counters of all processes.
fn sums() -> DeviceCounters {
    let (mut sums, begin) = (DeviceCounters::default(), Instant::now());
    for endpoint in observe::endpoints().unwrap_or_default() {
        if begin.elapsed() > QUERY_TIMEOUT {
            break;
        }
        if let Ok(snapshot) = observe::fetch(&endpoint, PROCESS_QUERY_TIMEOUT) {
            sums.accumulate(&snapshot.counters);
        }
    }
    sums
}

/// Maximum age of a cached sum.
const CACHE_AGE_MAX: Duration = Duration::from_millis(50);
/// Time limits for querying one process, and for querying all of them.
const PROCESS_QUERY_TIMEOUT: Duration = Duration::from_millis(200);
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the number of transmitted packets of every type.
fn sent(of: &DeviceCounters) -> u64 {
    of.packets_sent + of.packets_retransmitted + of.acks_sent
}

/// File names of InfiniBand's port counters, which count data in words of four bytes, and of the counters that drivers
/// add to them.
const COUNTERS: &[(&str, Value)] = &[
    ("counters/port_xmit_data", |of| of.bytes_sent / 4),
    ("counters/port_rcv_data", |of| of.bytes_received / 4),
    ("counters/port_xmit_packets", sent),
    ("counters/port_rcv_packets", |of| of.packets_received),
    ("counters/unicast_xmit_packets", sent),
    ("counters/unicast_rcv_packets", |of| of.packets_received),
    ("counters/multicast_xmit_packets", |_| 0),
    ("counters/multicast_rcv_packets", |_| 0),
    ("counters/port_rcv_errors", |of| of.packets_dropped),
    ("counters/port_xmit_discards", |of| of.datagrams_refused + of.impairment_lost),
    ("counters/port_xmit_wait", |_| 0),
    ("counters/port_rcv_constraint_errors", |_| 0),
    ("counters/port_xmit_constraint_errors", |_| 0),
    ("counters/port_rcv_remote_physical_errors", |_| 0),
    ("counters/port_rcv_switch_relay_errors", |_| 0),
    ("counters/symbol_error", |_| 0),
    ("counters/link_error_recovery", |_| 0),
    ("counters/link_downed", |_| 0),
    ("counters/local_link_integrity_errors", |_| 0),
    ("counters/excessive_buffer_overrun_errors", |_| 0),
    ("counters/VL15_dropped", |_| 0),
    ("hw_counters/sent_pkts", sent),
    ("hw_counters/rcvd_pkts", |of| of.packets_received),
    ("hw_counters/retransmitted_pkts", |of| of.packets_retransmitted),
    ("hw_counters/duplicate_request", |of| of.packets_duplicate),
    ("hw_counters/out_of_sequence", |of| of.packets_out_of_order),
    ("hw_counters/packet_seq_err", |of| of.nacks),
    ("hw_counters/local_ack_timeout_err", |of| of.timeouts),
    ("hw_counters/out_of_buffer", |of| of.rnr_naks_sent),
    ("hw_counters/np_ecn_marked_roce_packets", |of| of.marks_received),
    ("hw_counters/np_cnp_sent", |of| of.cnps_sent),
    ("hw_counters/rp_cnp_handled", |of| of.cnps_received),
];
