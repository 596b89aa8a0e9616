//! The state of one connected queue pair.

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::PathLabel;
use rnic_wire::Qpn;

use crate::PeerId;
use crate::messages::limit::{Bounds, RemoteLimit};
use crate::messages::pressure::PressureLaw;
use crate::messages::prober::{PATHS_MAX, Prober};

/// Path numbers of the probes of a queue pair: those below are of its path policy.
pub(crate) const DRIVER_PATH: u8 = PATHS_MAX as u8 - 2;
/// Path number of the probes of its congestion control.
pub(crate) const CONTROL_PATH: u8 = PATHS_MAX as u8 - 1;

const _: () = assert!(rnic_policy::paths::PROBED_MAX == DRIVER_PATH as usize);

/// A queue pair that is connected to one of the peer.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) peer: PeerId,
    /// Queue pair of the peer.
    pub(super) dest_qpn: Qpn,
    /// Path label of the last data packet.
    pub(super) label: PathLabel,
    /// True when the queue pair has sent data.
    pub(super) has_sent: bool,
    /// True when the peer gets grants for it.
    pub(super) is_granted: bool,
    /// Time of the last received data.
    pub(super) received_at: Option<Time>,
    pub(super) pressure: PressureLaw,
    pub(super) prober: Prober,
    /// Last measured round trip.
    pub(super) round_trip: Option<Duration>,
    /// Limit by messages of the peer.
    limit: RemoteLimit,
    /// The limit that the queue pair has been told.
    in_force: Option<BitRate>,
    /// Time of the driver's next probe.
    pub(super) probe_at: Option<Time>,
    /// Time of the next tick that the path policy has asked for.
    pub(super) path_tick_at: Option<Time>,
}

impl Flow {
    pub(super) fn new(peer: PeerId, dest_qpn: Qpn, threshold_bytes: u64) -> Self {
        Self {
            peer,
            dest_qpn,
            label: PathLabel::default(),
            has_sent: false,
            is_granted: false,
            received_at: None,
            pressure: PressureLaw::new(dest_qpn, threshold_bytes),
            prober: Prober::default(),
            round_trip: None,
            limit: RemoteLimit::default(),
            in_force: None,
            probe_at: None,
            path_tick_at: None,
        }
    }

    /// Returns the earliest timeout.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let times = [self.limit.next_timeout(), self.prober.next_timeout(), self.probe_at, self.path_tick_at];
        times.into_iter().flatten().min()
    }

    /// Returns the limit that messages of the peer put on the rate.
    pub(super) fn limit(&self) -> Option<BitRate> {
        self.in_force
    }

    /// Changes the limit by `change`, and brings it to `now`; returns the limit if it is another one than before.
    pub(super) fn change_limit(
        &mut self,
        now: Time,
        bounds: &Bounds,
        change: impl FnOnce(&mut RemoteLimit),
    ) -> Option<Option<BitRate>> {
        change(&mut self.limit);
        self.limit.advance(now, bounds);
        let limit = self.limit.limit(bounds);
        (std::mem::replace(&mut self.in_force, limit) != limit).then_some(limit)
    }
}
