//! Builds the network of a scenario.

use rnic_base::{BitRate, Probability};
use rnic_fabric::Plan;
use rnic_fabric::fault::{FaultKind, FaultPlan, Target};
use rnic_host::{Impairment, NicConfig};
use rnic_policy::Store;

use crate::backend::{Fabric, Sockets};
use crate::scenario::{Faults, Place, Scenario};

/// Builds the fabric of a scenario.
///
/// # Errors
/// When the plan cannot be run.
pub fn fabric(scenario: &Scenario) -> Result<Fabric, String> {
    let network = &scenario.network;
    let mtu = scenario.links.iter().map(|link| link.mtu).max().unwrap_or(1_024);
    let topology = match network.switch_buffer {
        None => "{ kind = \"point-to-point\" }".to_owned(),
        Some(_) if network.is_tree => "{ kind = \"fat-tree\", k = 4 }".to_owned(),
        Some(_) => format!("{{ kind = \"star\", hosts = {} }}", network.hosts),
    };
    let marks = if network.marks { ", ecn = { kmin = \"4KB\", kmax = \"20KB\", pmax = \"10%\" }" } else { "" };
    let switch = network.switch_buffer.map_or(String::new(), |buffer| {
        let pfc = network.pauses;
        let model = if network.shares_buffer { "shared-buffer" } else { "input-queued" };
        format!("switch = {{ model = \"{model}\", buffer = \"{buffer}B\", pfc = {{ enabled = {pfc} }}{marks} }}")
    });
    let (rate, delay) = (network.rate_gbps, network.delay);
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
    let stride = if network.is_tree { TREE_STRIDE } else { 1 };
    // Queue pairs are created with the scenario's own transports; the plan's transport is used for the reports alone.
    plan.transport = scenario.profile(0);
    for (host, faults) in scenario.faults.iter().enumerate() {
        plan.faults.extend(fault_plans(host * stride, faults));
    }
    Fabric::new(&plan, scenario.seed, stride).map_err(|error| error.to_string())
}

/// Returns the faults of packets on the outgoing link of `host`.
fn fault_plans(host: usize, faults: &Faults) -> Vec<FaultPlan> {
    let mut plans = Vec::new();
    let mut add = |kind, target| plans.push(FaultPlan { kind, target, links: format!("host-{host}>*") });
    for (chance, target) in [(faults.loss, Target::All), (faults.ack_loss, Target::Acks)] {
        if !chance.is_never() {
            add(FaultKind::Drop(chance), target);
        }
    }
    if !faults.burst.is_never() {
        let (begin, end, loss) = (faults.burst, Probability::ratio(1, 8), Probability::ALWAYS);
        add(FaultKind::Burst { begin, end, loss }, Target::All);
    }
    if let Some(down) = faults.down {
        add(FaultKind::Down { from: down.from, until: down.until }, Target::All);
    }
    for (chance, target) in [(faults.corrupt, Target::All), (faults.ack_corrupt, Target::Acks)] {
        if !chance.is_never() {
            add(FaultKind::Corrupt(chance), target);
        }
    }
    if !faults.duplicate.is_never() {
        add(FaultKind::Duplicate(faults.duplicate), Target::All);
    }
    if faults.delay + faults.jitter > rnic_base::Duration::ZERO {
        add(FaultKind::Delay { fixed: faults.delay, jitter: faults.jitter }, Target::All);
    }
    if !faults.reorder.is_never() {
        add(FaultKind::Reorder { probability: faults.reorder, delay: faults.hold }, Target::All);
    }
    plans
}

/// Opens the sockets of a scenario, or its shared memory.
///
/// # Errors
/// When a socket cannot be opened.
pub fn sockets(scenario: &Scenario, place: Place) -> Result<Sockets, String> {
    let network = &scenario.network;
    let base = match place {
        Place::Memory => NicConfig::shared(),
        _ => NicConfig::at(([127, 0, 0, 1], 0).into()),
    };
    let config = |(host, faults): (usize, &Faults)| NicConfig {
        name: format!("host-{host}"),
        line_rate: BitRate::gbps(network.rate_gbps),
        mtu_max_bytes: 4_096,
        receive_buffer_bytes: network.receive_buffer,
        segmentation: network.offload,
        receive_offload: network.offload,
        impairment: impairment(scenario.seed, faults),
        secret: Some(scenario.seed.wrapping_add(host as u64)),
        ..base.clone()
    };
    Sockets::new(scenario.faults.iter().enumerate().map(config).collect()).map_err(|error| error.to_string())
}

fn impairment(seed: u64, faults: &Faults) -> Impairment {
    Impairment {
        seed,
        loss: faults.loss,
        corrupt: faults.corrupt,
        duplicate: faults.duplicate,
        reorder: faults.reorder,
        reorder_packets: faults.hold_packets,
        reorder_hold: faults.hold,
        delay: faults.delay,
        jitter: faults.jitter,
        ..Impairment::default()
    }
}

/// Hosts of a pod of a fat-tree of four-port switches.
const TREE_STRIDE: usize = 4;
