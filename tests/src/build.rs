//! Builds the network of a scenario.

use rnic_base::{BitRate, Probability};
use rnic_fabric::Plan;
use rnic_fabric::fault::{FaultKind, FaultPlan, Target};
use rnic_host::{Impairment, NicConfig};
use rnic_policy::Store;

use crate::backend::{Fabric, Sockets};
use crate::scenario::{Place, Scenario, Trouble};

/// Builds the fabric of a scenario.
///
/// # Errors
/// When the plan cannot be run.
pub fn fabric(scenario: &Scenario) -> Result<Fabric, String> {
    let wiring = &scenario.wiring;
    let mtu = scenario.links.iter().map(|link| link.mtu).max().unwrap_or(1_024);
    let topology = match wiring.switch_buffer {
        None => "{ kind = \"point-to-point\" }".to_owned(),
        Some(_) if wiring.is_tree => "{ kind = \"fat-tree\", k = 4 }".to_owned(),
        Some(_) => format!("{{ kind = \"star\", hosts = {} }}", wiring.hosts),
    };
    let marks = if wiring.marks { ", ecn = { kmin = \"4KB\", kmax = \"20KB\", pmax = \"10%\" }" } else { "" };
    let switch = wiring.switch_buffer.map_or(String::new(), |buffer| {
        let pfc = wiring.pauses;
        let model = if wiring.shares_buffer { "shared-buffer" } else { "input-queued" };
        format!("switch = {{ model = \"{model}\", buffer = \"{buffer}B\", pfc = {{ enabled = {pfc} }}{marks} }}")
    });
    let (rate, delay) = (wiring.rate_gbps, wiring.delay);
    // With bitmaps in host memory, the NICs wait for accesses over the bus.
    let (named, nic) = match scenario.profile(0).store {
        Store::Host => ("srnic", "nic = { wqe_fetch = \"on-demand\" }\n"),
        _ => ("irn", ""),
    };
    let text = format!(
        "name = \"conformance\"\nmtu = {mtu}\npayload = \"checked\"\nwire = \"encoded\"\ntopology = {topology}\n\
         links = {{ rate = \"{rate}Gbps\", delay = \"{delay}\" }}\n{switch}\n\
         transport = {{ name = \"{named}\", cap_packets = 64, rto_high = \"320us\" }}\n\
         workload = {{ kind = \"manual\" }}\nrun = {{ limit = \"1000s\" }}\n{nic}"
    );
    let mut plan = Plan::from_toml(&text).map_err(|error| format!("{error}\n{text}"))?;
    // In the tree, the hosts are in different pods.
    let stride = if wiring.is_tree { TREE_STRIDE } else { 1 };
    // Queue pairs are created with the scenario's own transports; the plan's transport is used for the reports alone.
    plan.transport = scenario.profile(0);
    for (host, trouble) in scenario.troubles.iter().enumerate() {
        plan.faults.extend(faults(host * stride, trouble));
    }
    Fabric::new(&plan, scenario.seed, stride).map_err(|error| error.to_string())
}

/// Returns the faults of packets on the outgoing link of `host`.
fn faults(host: usize, trouble: &Trouble) -> Vec<FaultPlan> {
    let mut faults = Vec::new();
    let mut add = |kind, target| faults.push(FaultPlan { kind, target, links: format!("host-{host}>*") });
    for (chance, target) in [(trouble.loss, Target::All), (trouble.ack_loss, Target::Acks)] {
        if !chance.is_never() {
            add(FaultKind::Drop(chance), target);
        }
    }
    if !trouble.burst.is_never() {
        let (begin, end, loss) = (trouble.burst, Probability::ratio(1, 8), Probability::ALWAYS);
        add(FaultKind::Burst { begin, end, loss }, Target::All);
    }
    if let Some(down) = trouble.down {
        add(FaultKind::Down { from: down.from, until: down.until }, Target::All);
    }
    for (chance, target) in [(trouble.corrupt, Target::All), (trouble.ack_corrupt, Target::Acks)] {
        if !chance.is_never() {
            add(FaultKind::Corrupt(chance), target);
        }
    }
    if !trouble.duplicate.is_never() {
        add(FaultKind::Duplicate(trouble.duplicate), Target::All);
    }
    if trouble.delay + trouble.jitter > rnic_base::Duration::ZERO {
        add(FaultKind::Delay { fixed: trouble.delay, jitter: trouble.jitter }, Target::All);
    }
    if !trouble.reorder.is_never() {
        add(FaultKind::Reorder { probability: trouble.reorder, delay: trouble.hold }, Target::All);
    }
    faults
}

/// Opens the sockets of a scenario, or its shared memory.
///
/// # Errors
/// When a socket cannot be opened.
pub fn sockets(scenario: &Scenario, place: Place) -> Result<Sockets, String> {
    let wiring = &scenario.wiring;
    let base = match place {
        Place::Memory => NicConfig::shared(),
        _ => NicConfig::at(([127, 0, 0, 1], 0).into()),
    };
    let config = |(host, trouble): (usize, &Trouble)| NicConfig {
        name: format!("host-{host}"),
        line_rate: BitRate::gbps(wiring.rate_gbps),
        mtu_max_bytes: 4_096,
        receive_buffer_bytes: wiring.receive_buffer,
        segmentation: wiring.offload,
        receive_offload: wiring.offload,
        impairment: impairment(scenario.seed, trouble),
        secret: Some(scenario.seed.wrapping_add(host as u64)),
        ..base.clone()
    };
    Sockets::new(scenario.troubles.iter().enumerate().map(config).collect()).map_err(|error| error.to_string())
}

fn impairment(seed: u64, trouble: &Trouble) -> Impairment {
    Impairment {
        seed,
        loss: trouble.loss,
        corrupt: trouble.corrupt,
        duplicate: trouble.duplicate,
        reorder: trouble.reorder,
        reorder_packets: trouble.hold_packets,
        reorder_hold: trouble.hold,
        delay: trouble.delay,
        jitter: trouble.jitter,
        ..Impairment::default()
    }
}

/// Hosts of a pod of a fat-tree of four-port switches.
const TREE_STRIDE: usize = 4;
