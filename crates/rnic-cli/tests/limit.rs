//! Checks `rnic limit`: limits of a running process, here of this test process and of unmodified programs.

mod common;

use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use common::rnic;
use rnic_base::BitRate;
use rnic_engine::{QpAttributes, RateLimit, Service, Transport};
use rnic_host::observe::{self, Identity, Observer};
use rnic_host::{Nic, NicConfig, Settings};
use rnic_wire::Qpn;

/// A device of this process with one queue pair.
struct LimitedDevice {
    nic: Arc<Mutex<Nic>>,
    qpn: Qpn,
    _observer: Observer,
}

/// Tests of this file change the limits of all devices of this process, so only one of them has a device at a time.
static DEVICE: Mutex<()> = Mutex::new(());

fn device() -> LimitedDevice {
    let mut nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a NIC");
    let qpn = create_qp(&mut nic);
    let nic = Arc::new(Mutex::new(nic));
    let (shown, limited) = (Arc::clone(&nic), Arc::clone(&nic));
    let identity = Identity::of_process("rnic0", "RoCEv2 over UDP", &Settings::default());
    let observer = observe::serve_with_control(
        move || Some(shown.lock().expect("no panic").snapshot(&identity)),
        move |request| Some(request.apply(&mut limited.lock().expect("no panic"))),
    );
    LimitedDevice { nic, qpn, _observer: observer.expect("a socket and a thread") }
}

fn create_qp(nic: &mut Nic) -> Qpn {
    let profile = rnic_transports::profile("irn").expect("a transport");
    let mut verbs = nic.verbs();
    let pd = verbs.create_pd().expect("a protection domain");
    let cq = verbs.create_cq(16).expect("a completion queue");
    let attributes = QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: true,
        service: Service::ReliableConnection,
        transport: Arc::new(Transport::new(profile).expect("a valid profile")),
        number: None,
        nvme: None,
    };
    verbs.create_qp(&attributes).expect("legal attributes")
}

impl LimitedDevice {
    /// Returns the operator's limit of a queue pair.
    fn limit_of(&self, qpn: Qpn) -> Option<BitRate> {
        let info = self.nic.lock().expect("no panic").query_qp(qpn).expect("the queue pair exists");
        let [_, operator, _] = info.rate_limits;
        operator.map(|RateLimit { rate, .. }| rate)
    }
}

#[test]
fn a_limit_applies_to_the_queue_pairs_of_a_process_and_to_later_ones() {
    let _only = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device();
    let pid = process::id().to_string();
    let report = rnic(&["limit", &pid, "2Gbps", "--json"]).json();
    assert_eq!((&report["queue_pairs"], &report["rate_bps"]), (&1.into(), &2_000_000_000_u64.into()), "{report}");
    assert_eq!(device.limit_of(device.qpn), Some(BitRate::gbps(2)));
    let later = create_qp(&mut device.nic.lock().expect("no panic"));
    assert_eq!(device.limit_of(later), Some(BitRate::gbps(2)));
    let only_later = format!("{:#x}", later.get());
    let output = rnic(&["limit", &pid, "500Mbps", "--qp", &only_later]).ok();
    assert!(output.out.contains(&only_later) && output.out.contains("500 Mbit/s"), "{output:#?}");
    assert_eq!(device.limit_of(later), Some(BitRate::bps(500_000_000)));
    assert_eq!(device.limit_of(device.qpn), Some(BitRate::gbps(2)));
    let output = rnic(&["limit", &pid, "none"]).ok();
    assert!(output.out.contains("none (queue pairs now: 2)"), "{output:#?}");
    assert_eq!((device.limit_of(device.qpn), device.limit_of(later)), (None, None));
}

#[test]
fn an_invalid_limit_is_refused_in_one_line_and_changes_nothing() {
    let _only = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device();
    let pid = process::id().to_string();
    rnic(&["limit", &pid, "1Gbps"]).ok();
    let unknown = format!("{:#x}", device.qpn.get() ^ 1);
    for (arguments, expected) in [
        (vec![pid.as_str(), "0Gbps"], "between 1 Mbit/s and 100 Gbit/s"),
        (vec![pid.as_str(), "999kbps"], "between 1 Mbit/s and 100 Gbit/s"),
        (vec![pid.as_str(), "101Gbps"], "between 1 Mbit/s and 100 Gbit/s"),
        (vec![pid.as_str(), "2Gbps", "--qp", &unknown], "has no queue pair with the number"),
        (vec![pid.as_str(), "2Gbps", "--qp", "0x1000000"], "expected a queue pair number"),
        (vec![pid.as_str(), "fast"], "`none`"),
        (vec!["1", "2Gbps"], "rnic top"),
        (vec!["4294967295", "2Gbps"], "rnic top"),
    ] {
        rnic(&[&["limit"], &arguments[..]].concat()).assert_refused(2, &[expected]);
    }
    assert_eq!(device.limit_of(device.qpn), Some(BitRate::gbps(1)));
}

/// The process of another user or none at all is refused; one without traffic has no signals.
#[test]
fn signals_are_those_of_a_process_with_a_device() {
    let _only = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device();
    let pid = process::id().to_string();
    let output = rnic(&["signals", &pid, "--for", "200ms"]).ok();
    assert_eq!(output.out, "", "{output:#?}");
    let cap_kbps = 700_000;
    let hint = rnic_host::Hint { weight: 2, cap_kbps };
    let mut nic = device.nic.lock().expect("no panic");
    nic.verbs().hint_line().write(hint);
    nic.progress();
    drop(nic);
    let output = rnic(&["signals", &pid, "--for", "300ms"]).ok();
    assert!(output.out.contains(r#""signal":"hint""#) && output.out.contains("700000000"), "{output:#?}");
    rnic(&["signals", "4294967295"]).assert_refused(2, &["rnic top"]);
    rnic(&["signals", &pid, "--for", "0s"]).assert_refused(2, &["above zero"]);
}
