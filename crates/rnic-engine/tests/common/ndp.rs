//! A transport whose receivers pull, with a recovery policy for tests: a NACK of packet S marks S, and a timeout marks
//! all outstanding packets.

use std::cell::Cell;
use std::sync::Arc;

use rnic_base::SeqRange;
use rnic_engine::Transport;
use rnic_policy::{Configured, Placement, Profile, RecoveryActions, RecoveryEvent, RecoveryPolicy};

use super::Setup;

/// Timeout of the transport, in microseconds.
pub const RTO_US: u64 = 320;

thread_local! {
    /// Packets that timeouts on this thread have marked.
    static MARKED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of packets that timeouts on this thread have marked so far.
pub fn marked() -> u64 {
    MARKED.get()
}

/// Returns the profile: IRN's headers, with pulls after `window` packets.
pub fn profile(window: u32) -> Profile {
    let profile = rnic_transports::select("irn", []).expect("the transport is registered");
    let rto = format!("{RTO_US}us");
    let timer = rnic_transports::select("roce-ar", [("rto", rto.as_str())]).expect("the transport is registered");
    let policy = RecoveryPolicy {
        name: "ndp-test",
        placement: Placement::PlaceOutOfOrder,
        reports_gaps: true,
        on_event: |_, event, view, _| {
            let retransmit = match event {
                RecoveryEvent::Trimmed { seq } => Some(SeqRange::single(*seq)),
                RecoveryEvent::TimedOut { .. } => {
                    let sacked = view.sacked.map_or(0, |sacked| sacked.popcount());
                    MARKED.set(MARKED.get() + view.in_flight() - u64::from(sacked));
                    Some(view.outstanding())
                }
                _ => None,
            };
            RecoveryActions { retransmit, ..RecoveryActions::default() }
        },
        ..timer.recovery.policy
    };
    Profile { pulls: Some(window), recovery: Configured { policy, ..timer.recovery }, ..profile }
}

/// Returns a setup with this transport.
pub fn setup(window: u32) -> Setup {
    let transport = Transport::new(profile(window)).expect("the profile is valid");
    Setup { transport: Arc::new(transport), ..Setup::new("irn", &[]) }
}
