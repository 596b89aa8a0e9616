//! S-9 through the C interface: a program writes hints into memory, and its calls of verbs apply them.

use std::ptr;

use rnic_base::BitRate;
use rnic_host::observe::{ControlReply, LimitRequest};
use rnic_host::{Hint, HintLine};
use rnic_wire::Qpn;

use super::bench::{Bench, Options, Side, failed_with};
use crate::abi::*;
use crate::context::Context;
use crate::hint::rnic_hint_open;
use crate::import;

/// Returns the line of a side's device.
fn line(side: &Side) -> &HintLine {
    // SAFETY: an open device, which the side closes.
    unsafe { rnic_hint_open(side.context).as_ref() }.expect("a line")
}

/// Returns the rate in force of the queue pair of `side`, in Mbit/s.
fn mbps(side: &Side) -> Option<u64> {
    // SAFETY: an open device.
    let context = unsafe { Context::of(side.context) };
    let info = context.shared.inspect(|core| core.nic.query_qp(Qpn::new(side.qpn())));
    info.expect("the queue pair exists").dequeue_rate.map(|rate| rate.as_bps() / 1_000_000)
}

#[test]
fn s9_a_program_caps_its_queue_pairs_by_a_store_and_lifts_no_limit() {
    let bench = Bench::new(&Options::default());
    let completes = |wr_id| {
        assert_eq!(bench.a.post(&mut bench.write(wr_id, 8)), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
    };
    line(&bench.a).write(Hint { weight: 1, cap_kbps: 50_000 });
    completes(1);
    assert_eq!((mbps(&bench.a), mbps(&bench.b)), (Some(50), None), "a hint is for its own device");
    // SAFETY: an open device.
    let shared = unsafe { &Context::of(bench.a.context).shared };
    let rate = BitRate::bps(20_000_000);
    let request = LimitRequest { queue_pair: None, rate_bps: Some(rate.as_bps()) };
    assert_eq!(shared.control(|core| request.apply(&mut core.nic)), ControlReply::QueuePairs(1));
    for (wr_id, cap_kbps) in [(2, 80_000), (3, 0), (4, 1)] {
        line(&bench.a).write(Hint { weight: 1, cap_kbps });
        completes(wr_id);
        assert_eq!(mbps(&bench.a), Some(20), "{cap_kbps} kbit/s");
    }
    let stats = shared.inspect(|core| *core.nic.stats());
    assert_eq!((stats.hints_applied, stats.hints_rejected), (3, 1));
}

#[test]
fn s9_contexts_of_one_device_have_one_line_and_others_have_none() {
    let bench = Bench::new(&Options::default());
    assert!(!ptr::eq(line(&bench.a), line(&bench.b)));
    // SAFETY: an open device, whose descriptor is duplicated; the new context is closed once.
    unsafe {
        let context = import::ibv_import_device(libc::dup((*bench.a.context).cmd_fd));
        assert!(ptr::eq(rnic_hint_open(context), line(&bench.a)));
        assert_eq!(crate::open::ibv_close_device(context), 0);
        failed_with(libc::EINVAL, rnic_hint_open(ptr::null_mut()));
        let mut foreign: ibv_context = std::mem::zeroed();
        failed_with(libc::EINVAL, rnic_hint_open(&raw mut foreign));
    }
}
