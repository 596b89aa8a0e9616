//! What a Falcon connection costs that does nothing: counted as in `memory.rs`, in a process of its own, since all heap
//! is counted.

#[path = "common/idle.rs"]
mod idle;

use idle::idle_bytes;

/// Connected, nothing of the connection is there yet.
const CONNECTED: f64 = 1_088.0;
/// After a Write: both layers at both ends, at one contexts of packets and transactions; no bitmaps, for nothing came
/// out of order.
const USED: f64 = 6_100.0;

#[test]
fn an_idle_falcon_connection_has_its_bound_too() {
    let idle = idle_bytes("{ name = \"falcon\" }");
    println!("falcon: {idle:?} bytes of heap per connection of two queue pairs");
    assert!(idle.connected <= CONNECTED && idle.used <= USED, "{idle:?}");
    assert!(idle.used >= USED - 640.0, "the bound can be tightened: {idle:?}");
    assert!(idle.connected > 100.0, "two queue pairs are not nothing: {idle:?}");
}
