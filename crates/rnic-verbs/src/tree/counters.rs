//! What the counters below a port say: the sums over all processes of this user that have the device open now, as `rnic
//! top` finds them. A process that ends takes its counts along, which readers take for a reset, as of any counter.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rnic_host::observe::{self, DeviceCounters};

/// Where a value comes from.
type Value = fn(&DeviceCounters) -> u64;

/// A counter: where its value comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(Value);

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for Counter {}

impl Counter {
    /// All of them, by their paths below the port.
    pub(super) fn all() -> impl Iterator<Item = (&'static str, Self)> {
        COUNTERS.iter().map(|(name, value)| (*name, Self(*value)))
    }

    /// Its value now, or a moment ago: who reads one counter reads the others.
    pub(crate) fn read(self) -> u64 {
        static LATEST: Mutex<Option<(Instant, DeviceCounters)>> = Mutex::new(None);
        // Nobody waits: a process may have been forked while another thread had the lock.
        let latest = LATEST.try_lock();
        if let Ok(latest) = &latest
            && let Some((at, counters)) = &**latest
            && at.elapsed() < FRESH
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

/// What all processes have counted together.
fn sums() -> DeviceCounters {
    let (mut sums, begin) = (DeviceCounters::default(), Instant::now());
    for endpoint in observe::endpoints().unwrap_or_default() {
        if begin.elapsed() > PATIENCE {
            break;
        }
        if let Ok(snapshot) = observe::fetch(&endpoint, EACH) {
            sums.accumulate(&snapshot.counters);
        }
    }
    sums
}

/// How old a sum may be.
const FRESH: Duration = Duration::from_millis(50);
/// How long processes are asked for, one of them and all.
const EACH: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(1);

/// Packets of every kind that have left.
fn sent(of: &DeviceCounters) -> u64 {
    of.packets_sent + of.packets_retransmitted + of.acks_sent
}

/// Names of InfiniBand's port counters, which count data in words of four bytes, and of those that drivers have beside.
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
