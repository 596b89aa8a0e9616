//! Records of sent packets as events of a scheduler.

use rnic_policy::{ScheduleEvent, Served};
use rnic_scr::Signal;

use crate::limiter::OVERHEAD_BYTES;

/// Returns the packets of a record as a scheduler's event.
pub(crate) fn served_of(record: &Signal) -> Served {
    let packets = u64::from(record.count);
    let bytes = record.bytes.saturating_sub(packets * OVERHEAD_BYTES);
    Served { bytes, wire_bytes: record.bytes, packets, last_at: record.last }
}

/// Returns the event of a scheduler that a record is: packets that were sent, or the time of a tick.
pub(crate) fn event_of(record: &Signal) -> ScheduleEvent {
    if record.count == 0 { ScheduleEvent::Tick } else { ScheduleEvent::Served(served_of(record)) }
}
