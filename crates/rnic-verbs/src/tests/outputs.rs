//! Structures that a call fills in: every field is set, whatever the program's memory contained.

use std::fmt::Debug;
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use super::bench::{Bench, Options};
use crate::abi::*;
use crate::{ah, cq, device, qp, query, srq};

/// Calls `fill` with a structure full of one pattern, and again with another: fields that are not set differ
/// afterwards.
#[track_caller]
fn check_fills<T: Debug>(name: &str, mut fill: impl FnMut(*mut T)) {
    let mut filled = |pattern: u8| {
        let mut place = MaybeUninit::<T>::uninit();
        // SAFETY: structures of integers and pointers, for which any bytes are valid, with their exact size.
        unsafe {
            ptr::write_bytes(place.as_mut_ptr().cast::<u8>(), pattern, size_of::<T>());
            fill(place.as_mut_ptr());
            format!("{:?}", place.assume_init())
        }
    };
    assert_eq!(filled(0x00), filled(0xa5), "{name}");
}

#[test]
fn queries_fill_all_fields() {
    let bench = Bench::new(&Options::default());
    let context = bench.a.context;
    // SAFETY: valid objects, and structures that may be written.
    unsafe {
        check_fills::<ibv_device_attr>("device", |attr| assert_eq!(query::ibv_query_device(context, attr), 0));
        check_fills::<ibv_device_attr_ex>("device, extended", |attr| {
            assert_eq!(query::query_device_ex(context, ptr::null(), attr, size_of::<ibv_device_attr_ex>()), 0);
        });
        check_fills::<ibv_port_attr>("port", |attr| {
            assert_eq!(query::query_port(context, 1, attr, size_of::<ibv_port_attr>()), 0);
        });
        check_fills::<[u64; 64]>("port, with fields of the future", |attr| {
            assert_eq!(query::query_port(context, 1, attr.cast(), size_of::<[u64; 64]>()), 0);
        });
        check_fills::<[u64; 64]>("GID, with fields of the future", |entry| {
            assert_eq!(query::_ibv_query_gid_ex(context, 1, 0, entry.cast(), 0, size_of::<[u64; 64]>()), 0);
        });
        check_fills::<ibv_gid_entry>("GID", |entry| {
            assert_eq!(query::_ibv_query_gid_ex(context, 1, 0, entry, 0, size_of::<ibv_gid_entry>()), 0);
        });
        check_fills::<ibv_gid>("GID, plain", |gid| assert_eq!(query::ibv_query_gid(context, 1, 0, gid), 0));
        check_fills::<u16>("partition key", |key| assert_eq!(query::ibv_query_pkey(context, 1, 0, key), 0));
        check_fills::<ibv_qp_attr>("queue pair", |attr| {
            let mut init = bench.init();
            assert_eq!(qp::ibv_query_qp(bench.a.qp, attr, 0, &raw mut init), 0);
        });
        // Only the part of the structure before the padding at its end.
        check_fills::<[u32; (offset_of!(ibv_qp_init_attr, sq_sig_all) + 4) / 4]>(
            "queue pair, as it was made",
            |words| {
                let mut attr = ibv_qp_attr::default();
                let mut init = MaybeUninit::<[u32; size_of::<ibv_qp_init_attr>() / 4]>::new(
                    [(&*words)[0]; size_of::<ibv_qp_init_attr>() / 4],
                );
                assert_eq!(qp::ibv_query_qp(bench.a.qp, &raw mut attr, 0, init.as_mut_ptr().cast()), 0);
                (*words).copy_from_slice(&init.assume_init()[..(&*words).len()]);
            },
        );
    }
}

#[test]
fn shared_queues_and_addresses_fill_all_fields() {
    let bench = Bench::new(&Options::default());
    let attr = ibv_srq_attr { max_wr: 3, max_sge: 0, srq_limit: 99 };
    let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
    // SAFETY: valid objects, destroyed at the end, and structures that may be written.
    unsafe {
        let queue = srq::ibv_create_srq(bench.a.pd, &raw mut init);
        assert!(!queue.is_null());
        assert_eq!((init.attr.max_wr, init.attr.max_sge), (3, 1), "not the granted values");
        check_fills::<ibv_srq_attr>("shared queue", |attr| assert_eq!(srq::ibv_query_srq(queue, attr), 0));
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        assert_eq!(cq::ibv_resize_cq(bench.a.cq, 100), 0);
        assert_eq!((*bench.a.cq).cqe, 100);

        let index = crate::wire::addresses().iter().position(|address| address.ip.is_ipv4()).expect("loopback");
        let own = crate::wire::addresses().swap_remove(index).ip;
        let Ok(v4) = own.to_string().parse::<std::net::Ipv4Addr>() else { unreachable!("it is IPv4") };
        let mut bytes = [0_u8; 40];
        bytes[20] = 0x45;
        bytes[32..36].copy_from_slice(&v4.octets());
        bytes[36..40].copy_from_slice(&v4.octets());
        let mut grh = bytes.as_ptr().cast::<ibv_grh>().read_unaligned();
        let mut wc = ibv_wc { wc_flags: IBV_WC_GRH, ..ibv_wc::default() };
        check_fills::<ibv_ah_attr>("address of a datagram", |attr| {
            assert_eq!(ah::ibv_init_ah_from_wc(bench.a.context, 1, &raw mut wc, &raw mut grh, attr), 0);
        });
    }
}

/// Performs a send and a receive, so that every field of a completion is used.
#[test]
fn completions_fill_all_fields() {
    let bench = Bench::new(&Options::default());
    check_fills::<ibv_wc>("completion", |place| {
        bench.b.post_recv(1, 64).expect("the receive queue has a free entry");
        assert_eq!(bench.a.post(&mut bench.send(2, 16)), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        // SAFETY: a valid completion queue, room for one.
        while unsafe { crate::poll::poll_cq(bench.b.cq, 1, place) } == 0 {
            assert!(std::time::Instant::now() < deadline, "no completion arrived in time");
            std::thread::yield_now();
        }
    });
}

/// The counter files of the port include the traffic of all running devices of this user: at least that of this one.
#[test]
fn port_counters_count_traffic() {
    let bench = Bench::new(&Options::default());
    let count = |name: &str| {
        let text = crate::sysfs::read(device::SYSFS_PATH, &format!("ports/1/counters/{name}")).expect("a counter");
        text.parse::<u64>().expect("a number")
    };
    for wr_id in 0..64 {
        assert_eq!(bench.a.post(&mut bench.write(wr_id, 8_192)), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Data is counted in words of four bytes; each Write is eight packets of 1024 bytes.
    let has_counted = || {
        count("port_xmit_data") >= 64 * 8_192 / 4
            && count("port_rcv_data") >= 64 * 8_192 / 4
            && count("port_xmit_packets") >= 64 * 8
            && count("port_rcv_packets") >= 64 * 8
    };
    while !has_counted() {
        assert!(std::time::Instant::now() < deadline, "{} words", count("port_xmit_data"));
        std::thread::sleep(std::time::Duration::from_millis(60));
    }
}
