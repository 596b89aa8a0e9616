//! Simulations driven by the test itself: engines with resources that the test creates, and faults that end.

mod common;

use core::ops::ControlFlow;

use common::{STAR, WIRE, simulation};
use rnic_base::Duration;
use rnic_engine::{Completion, CqId, SendFlags, SendOp, SendRequest, WcStatus};
use rnic_fabric::Simulation;
use rnic_fabric::simulation::QueuePairSpec;

const MANUAL: (&str, &str) = ("workload", "{ kind = \"manual\" }");
/// Loses every packet, so that packets get through only after the fault has ended.
const LOSE_ALL: (&str, &str) = ("fault", "[{ kind = \"drop\", probability = \"100%\" }]");

fn completions_of(simulation: &mut Simulation, host: u32, cq: CqId) -> Vec<Completion> {
    simulation.with_engine(host, |engine, _| std::iter::from_fn(|| engine.objects_mut().poll_cq_one(cq)).collect())
}

#[test]
fn faults_end_on_links_of_hosts_and_of_switches() {
    for text in [WIRE, STAR] {
        let mut simulation = simulation(text, &[MANUAL, LOSE_ALL], 1);
        let (qpn, _) = simulation.connect_manually(0, 1, QueuePairSpec { sends: 4, receives: 4, sges: 1 });
        let op = SendOp::Write { remote: Default::default(), immediate: None };
        let request = SendRequest { wr_id: 7, op, sges: &[], flags: SendFlags::SIGNALED };
        simulation.post_send(0, qpn, &request).expect("the queue has a free entry");
        let later = simulation.now() + Duration::from_ms(5);
        assert!(!simulation.advance(later), "a packet was delivered in spite of the fault");
        simulation.end_faults();
        assert!(simulation.advance(later + Duration::from_ms(5)), "packets are still lost");
        let (_, completion) = simulation.poll(0).expect("the Write is done");
        assert_eq!((completion.wr_id, completion.status), (7, WcStatus::Success));
        let report = simulation.run(&mut |_| ControlFlow::Continue(()));
        assert!(report.drops.fault > 10, "{:?}", report.drops);
        report.check().expect("the run has no violations");
    }
}

#[test]
fn work_posted_directly_to_the_engine_is_sent_immediately() {
    let mut simulation = simulation(WIRE, &[MANUAL], 1);
    let (qpn, _) = simulation.connect_manually(0, 1, QueuePairSpec { sends: 4, receives: 4, sges: 1 });
    let cq = simulation.with_engine(0, |engine, _| {
        let cq = engine.objects_mut().create_cq(8).expect("the size is legal");
        let op = SendOp::Write { remote: Default::default(), immediate: None };
        let request = SendRequest { wr_id: 9, op, sges: &[], flags: SendFlags::SIGNALED };
        engine.post_send(qpn, &request).expect("the queue has a free entry");
        // Nothing has been sent yet. The completion queue created here belongs to no queue pair and stays empty.
        let info = engine.query_qp(qpn).expect("the queue pair exists");
        assert_eq!(info.next, info.una);
        cq
    });
    let end = simulation.now() + Duration::from_ms(1);
    simulation.advance(end);
    let info = simulation.engine(0).query_qp(qpn).expect("the queue pair exists");
    assert_eq!(info.una.since(info.next), 0);
    assert_eq!(simulation.engine(0).stats().packets_sent, 1, "the engine was not polled");
    assert!(completions_of(&mut simulation, 0, cq).is_empty());
}

/// A simulation is `Send`: many can run side by side, each on a thread of its own.
#[test]
fn a_simulation_can_be_sent_to_a_thread() {
    fn sent<T: Send>(simulation: T) -> T {
        simulation
    }
    let report = sent(simulation(WIRE, &[], 1)).run(&mut |_| ControlFlow::Continue(()));
    assert_eq!(report.flows, 1);
}
