//! Memory of an idle Falcon connection: measured as in `memory.rs`, but in a process of its own, since the whole heap
//! is counted.

#[path = "common/idle.rs"]
mod idle;

use idle::idle_bytes;

/// Limit in bytes after connecting: the state of the Falcon connection is not allocated yet.
const CONNECTED_BYTES_MAX: f64 = 1_088.0;
/// Limit in bytes after a Write: both layers at both ends, each with contexts for one packet and one transaction; no
/// bitmaps, since no packet arrived out of order.
const USED_BYTES_MAX: f64 = 6_100.0;

#[test]
fn an_idle_falcon_connection_stays_below_its_limit() {
    let idle = idle_bytes("{ name = \"falcon\" }");
    println!("falcon: {idle:?} bytes of heap per connection of two queue pairs");
    assert!(idle.connected <= CONNECTED_BYTES_MAX && idle.used <= USED_BYTES_MAX, "{idle:?}");
    assert!(idle.used >= USED_BYTES_MAX - 640.0, "the bound can be tightened: {idle:?}");
    assert!(idle.connected > 100.0, "too few bytes were counted: {idle:?}");
}
