//! What a Falcon connection costs that does nothing: counted as in `memory.rs`, in a process of its own, since all heap
//! is counted.

#[path = "common/idle.rs"]
mod idle;

use idle::idle_bytes;

/// Connected, nothing of the connection is there yet.
const CONNECTED: f64 = 1_088.0;
/// After a Write: at both ends two windows each way, labels and echoes for eight flows, rings for four transactions.
const USED: f64 = 20_480.0;

#[test]
fn an_idle_falcon_connection_has_its_bound_too() {
    let idle = idle_bytes("{ name = \"falcon\" }");
    println!("falcon: {idle:?} bytes of heap per connection of two queue pairs");
    assert!(idle.connected <= CONNECTED && idle.used <= USED, "{idle:?}");
    assert!(idle.connected > 100.0, "two queue pairs are not nothing: {idle:?}");
}
