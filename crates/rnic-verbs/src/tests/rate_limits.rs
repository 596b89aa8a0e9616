//! S-1 through verbs: limits that a program sets, as manual pages describe them, hold for the data that it sends.

use std::ffi::c_int;
use std::ptr;
use std::time::Instant;

use rnic_base::BitRate;
use rnic_wire::Qpn;

use super::bench::{BYTES, Bench, Options, Side};
use crate::abi::*;
use crate::context::Context;
use crate::{qp, query};

fn limit(side: &Side, attr: ibv_qp_rate_limit_attr) -> c_int {
    let mut attr = attr;
    // SAFETY: a valid queue pair, attributes that can be read.
    unsafe { qp::rate::modify_qp_rate_limit(side.qp, &raw mut attr) }
}

fn kbps(rate_limit: u32) -> ibv_qp_rate_limit_attr {
    ibv_qp_rate_limit_attr { rate_limit, ..ibv_qp_rate_limit_attr::default() }
}

/// Returns the rate of `count` Writes of [`BYTES`] bytes, one after the other, in bits of payload per second.
fn measured(bench: &Bench, count: u64) -> f64 {
    let start = Instant::now();
    for wr_id in 0..count {
        assert_eq!(bench.a.post(&mut bench.write(wr_id, BYTES as u32)), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
    }
    (count * BYTES as u64 * 8) as f64 / start.elapsed().as_secs_f64()
}

/// A limit is never exceeded, apart from the burst at the beginning. Whether it is reached depends on the load of the
/// machine, so only a wide bound is tested.
fn holds(bench: &Bench, bps: f64) {
    // The burst, and the bytes of headers, are below these shares.
    let rate = measured(bench, 64);
    assert!(rate < bps * 1.25 && rate > bps * 0.3, "{rate} instead of {bps} bit/s");
}

#[test]
fn the_device_reports_the_limits_that_it_supports() {
    let bench = Bench::new(&Options::default());
    // SAFETY: a structure of numbers, all of which may be zero.
    let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let len = size_of::<ibv_device_attr_ex>();
    // SAFETY: an open device, `len` writable bytes.
    assert_eq!(unsafe { query::query_device_ex(bench.a.context, ptr::null(), &raw mut attr, len) }, 0);
    let ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts } = attr.packet_pacing_caps;
    assert_eq!((qp_rate_limit_min, qp_rate_limit_max), (1_000, 100_000_000));
    for qp_type in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD] {
        assert!(supported_qpts & 1 << qp_type != 0, "{qp_type}");
    }
    for rate in [1, 999, 100_000_001, u32::MAX] {
        assert_eq!(limit(&bench.a, kbps(rate)), libc::EINVAL, "{rate}");
    }
    assert_eq!(limit(&bench.a, ibv_qp_rate_limit_attr { comp_mask: 1, ..kbps(1_000) }), libc::EINVAL);
    assert_eq!(bench.a.attributes().rate_limit, 0, "a refused limit changes nothing");
    for rate in [1_000, 100_000_000, 0] {
        assert_eq!(limit(&bench.a, kbps(rate)), 0, "{rate}");
        assert_eq!(bench.a.attributes().rate_limit, rate);
    }
}

#[test]
fn s1_a_limit_of_the_extended_call_holds_and_is_removed_by_zero() {
    let bench = Bench::new(&Options::default());
    let small_burst = ibv_qp_rate_limit_attr { max_burst_sz: 16_384, ..kbps(40_000) };
    assert_eq!(limit(&bench.a, small_burst), 0);
    holds(&bench, 40e6);
    assert_eq!(limit(&bench.a, kbps(0)), 0);
    assert!(measured(&bench, 64) > 80e6, "the limit was not removed");
}

#[test]
fn s1_the_attribute_of_a_queue_pair_limits_it_while_it_sends() {
    let bench = Bench::new(&Options::default());
    let attr = |rate_limit| ibv_qp_attr { rate_limit, ..ibv_qp_attr::default() };
    assert_eq!(bench.a.modify(&attr(500), IBV_QP_RATE_LIMIT), Err(libc::EINVAL));
    assert_eq!(bench.a.modify(&attr(20_000), IBV_QP_RATE_LIMIT), Ok(()));
    assert_eq!(bench.a.attributes().rate_limit, 20_000);
    holds(&bench, 20e6);
    assert_eq!(bench.a.modify(&attr(0), IBV_QP_RATE_LIMIT), Ok(()));
    assert!(measured(&bench, 64) > 60e6, "the limit was not removed");
}

/// The static rate of the address vector is one of the limits; one above the rate of the link is none.
#[test]
fn s1_the_static_rate_of_a_connection_limits_it() {
    const IBV_RATE_2_5_GBPS: u8 = 2;
    const IBV_RATE_120_GBPS: u8 = 10;
    for (static_rate, gbps) in [(IBV_RATE_2_5_GBPS, Some(2.5)), (IBV_RATE_120_GBPS, None)] {
        let bench = Bench::new(&Options { static_rate, ..Options::default() });
        assert_eq!(bench.a.attributes().ah_attr.static_rate, static_rate);
        assert_eq!(rate_in_force(&bench.a), gbps);
        assert_eq!(limit(&bench.a, kbps(40_000)), 0);
        assert_eq!(rate_in_force(&bench.a), Some(0.04), "the lowest limit is not in force");
        assert_eq!(limit(&bench.a, kbps(0)), 0);
        assert_eq!(rate_in_force(&bench.a), gbps);
    }
}

/// Returns the rate in force, in Gbit/s.
fn rate_in_force(side: &Side) -> Option<f64> {
    // SAFETY: an open device.
    let context = unsafe { Context::of(side.context) };
    let info = context.shared.inspect(|core| core.nic.query_qp(Qpn::new(side.qpn())));
    info.expect("the queue pair exists").dequeue_rate.map(BitRate::as_gbps_f64)
}
