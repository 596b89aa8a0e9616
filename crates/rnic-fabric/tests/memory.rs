//! What a connection costs that does nothing.
//!
//! A connection is a queue pair at each of two hosts. Counted is everything that the simulation has allocated for both,
//! per connection: when they have just been connected, and again after each has carried a message; the queue that it
//! was posted to, with room for one, is part of that.

mod common;
#[path = "common/idle.rs"]
mod idle;

use idle::idle_bytes;

/// What a connection may cost, both of its ends together.
const LARGEST: f64 = 1_024.0;

#[test]
fn an_idle_connection_is_a_kibibyte_at_most() {
    for transport in common::TRANSPORTS {
        let idle = idle_bytes(transport);
        println!("{transport}: {idle:?} bytes of heap per connection of two queue pairs");
        assert!(idle.connected <= LARGEST, "{transport}: {idle:?}");
        assert!(idle.used <= LARGEST, "{transport}: {idle:?}");
        assert!(idle.connected > 100.0, "{transport}: two queue pairs are not nothing: {idle:?}");
    }
}
