//! Memory of an idle connection.
//!
//! A connection is a queue pair at each of two hosts. The test counts everything that the simulation has allocated
//! for both, per connection: right after they are connected, and again after each has carried a message. The queue
//! that the message was posted to, with room for one, is included.

mod common;
#[path = "common/idle.rs"]
mod idle;

use idle::idle_bytes;

/// Limit in bytes per connection, both ends together.
const HEAP_BYTES_MAX: f64 = 1_024.0;

#[test]
fn an_idle_connection_takes_at_most_a_kibibyte() {
    for transport in common::TRANSPORTS {
        let idle = idle_bytes(transport);
        println!("{transport}: {idle:?} bytes of heap per connection of two queue pairs");
        assert!(idle.connected <= HEAP_BYTES_MAX, "{transport}: {idle:?}");
        assert!(idle.used <= HEAP_BYTES_MAX, "{transport}: {idle:?}");
        assert!(idle.connected > 100.0, "{transport}: too few bytes were counted: {idle:?}");
    }
}
