//! Bytes of heap per idle connection.

#[path = "../../../rnic-engine/tests/common/heap.rs"]
mod heap;

use rnic_base::Duration;
use rnic_engine::{SendFlags, SendOp, SendRequest, WcStatus};
use rnic_fabric::simulation::QueuePairSpec;
use rnic_fabric::{Plan, Simulation};

/// Connections that are created: so many that the fixed memory of the simulation is negligible.
const CONNECTIONS: u32 = 20_000;

/// Bytes of heap per connection: two queue pairs, each with room for one request, and their share of every table.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Directly after it was connected.
    pub connected: f64,
    /// After it has carried a Write and is idle again.
    pub used: f64,
}

/// Measures the heap per idle connection over `transport`, which is written as in a plan.
pub fn idle_bytes(transport: &str) -> Idle {
    let text = format!(
        "mtu = 1024
        topology = {{ kind = \"point-to-point\" }}
        links = {{ rate = \"100Gbps\", delay = \"1us\" }}
        transport = {transport}
        workload = {{ kind = \"manual\" }}"
    );
    let plan = Plan::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut simulation = Simulation::new(&plan, 1).expect("the plan is valid");
    let before = heap::live_bytes();
    let spec = QueuePairSpec { sends: 1, receives: 1, sges: 1 };
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| simulation.connect_manually(0, 1, spec).0).collect();
    let per_connection = |bytes: i64| (bytes - i64::from(CONNECTIONS) * 4) as f64 / f64::from(CONNECTIONS);
    let connected = per_connection(heap::live_bytes() - before);
    for qpn in &connections {
        let op = SendOp::Write { remote: Default::default(), immediate: None };
        let request = SendRequest { wr_id: 1, op, sges: &[], flags: SendFlags::SIGNALED };
        simulation.post_send(0, *qpn, &request).expect("the queue has a free entry");
        let end = simulation.now() + Duration::from_ms(1);
        assert!(simulation.advance(end), "the Write did not complete");
        let (_, completion) = simulation.poll(0).expect("a completion is available");
        assert_eq!(completion.status, WcStatus::Success);
    }
    Idle { connected, used: per_connection(heap::live_bytes() - before) }
}
