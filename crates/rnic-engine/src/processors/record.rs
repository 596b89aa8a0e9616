//! Conversion of records of sent packets into events of a scheduler.

use rnic_policy::{ScheduleEvent, Served};
use rnic_scr::Signal;

use crate::limiter::OVERHEAD_BYTES;

/// Converts a record to the packets that the scheduler's event reports.
pub(crate) fn served_of(record: &Signal) -> Served {
    let packets = u64::from(record.count);
    let bytes = record.bytes.saturating_sub(packets * OVERHEAD_BYTES);
    Served { bytes, wire_bytes: record.bytes, packets, last_at: record.last }
}

/// Converts a record to the event of a scheduler: sent packets, or a tick.
pub(crate) fn event_of(record: &Signal) -> ScheduleEvent {
    if record.count == 0 { ScheduleEvent::Tick } else { ScheduleEvent::Served(served_of(record)) }
}
