//! Bytes of heap per idle connection, a queue pair at each end: connected, and after a message of one queue entry.
//!
//! Run `cargo bench -p rnic-fabric --bench idle`.

#[path = "../tests/common/idle.rs"]
mod idle;

fn main() {
    println!("bytes per idle connection (a queue pair at each end): connected, and after a message of one queue entry");
    for transport in ["irn", "roce-gbn", "falcon"] {
        let idle = idle::idle_bytes(&format!("{{ name = \"{transport}\" }}"));
        println!("  {transport:<28}{:6.0} {:6.0}", idle.connected, idle.used);
    }
}
