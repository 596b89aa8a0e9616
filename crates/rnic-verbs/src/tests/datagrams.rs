//! Address handles and datagrams.

use std::ptr;

use super::bench::{Bench, Options};
use crate::abi::*;
use crate::{ah, qp};

/// Returns a datagram queue pair in addition to that of the bench, ready to send.
fn datagram_qp(bench: &Bench) -> *mut ibv_qp {
    let mut init = bench.init();
    init.qp_type = IBV_QPT_UD;
    // SAFETY: valid objects.
    let made = unsafe { qp::ibv_create_qp(bench.a.pd, &raw mut init) };
    assert!(!made.is_null());
    let attr = ibv_qp_attr { port_num: 1, qkey: 0x11, ..ibv_qp_attr::default() };
    for (state, mask) in
        [(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), (IBV_QPS_RTR, 0), (IBV_QPS_RTS, IBV_QP_SQ_PSN)]
    {
        let mut attr = ibv_qp_attr { qp_state: state, ..attr };
        // SAFETY: a valid queue pair.
        assert_eq!(unsafe { qp::ibv_modify_qp(made, &raw mut attr, (mask | IBV_QP_STATE) as i32) }, 0);
    }
    made
}

/// Requests may still be queued when the program destroys their address handle.
#[test]
fn an_address_handle_may_be_destroyed_before_its_datagrams_are_sent() {
    let bench = Bench::new(&Options::default());
    let queue = datagram_qp(&bench);
    // The address of a peer that no other object uses, so that the peer is removed with its last address handle.
    let loopback = |address: &crate::wire::Address| address.ip.is_ipv4() && address.ip.is_loopback();
    let index = crate::wire::addresses().iter().position(loopback).expect("the machine has an address");
    for round in 0..200 {
        let mut attr = bench.a.to_itself();
        attr.grh.dgid = crate::wire::gid_of([127, 0, 0, 9].into());
        attr.grh.sgid_index = index as u8;
        // SAFETY: valid objects, and a request whose list lives until the request is posted.
        unsafe {
            let handle = ah::ibv_create_ah(bench.a.pd, &raw mut attr);
            assert!(!handle.is_null());
            let (qpn, mut bad) = ((*queue).qp_num, ptr::null_mut());
            let mut wr = bench.send(round, 64);
            wr.send_flags = 0;
            wr.wr.ud = ibv_wr_ud { ah: handle, remote_qpn: qpn, remote_qkey: 0x11 };
            for _ in 0..6 {
                // A full queue is acceptable too.
                crate::post::post_send(queue, &raw mut wr, &raw mut bad);
            }
            assert_eq!(ah::ibv_destroy_ah(handle), 0);
        }
        assert!(bench.a.poll().expect("the completion queue works").is_none(), "nothing was signalled");
    }
    // SAFETY: destroyed once, here.
    assert_eq!(unsafe { qp::ibv_destroy_qp(queue) }, 0);
}

#[test]
fn datagrams_without_an_address_are_refused() {
    let bench = Bench::new(&Options::default());
    let queue = datagram_qp(&bench);
    let mut bad = ptr::null_mut();
    let mut wr = bench.send(1, 64);
    wr.wr.ud = ibv_wr_ud { ah: ptr::null_mut(), remote_qpn: 1, remote_qkey: 0x11 };
    // SAFETY: a valid queue pair and a request.
    assert_eq!(unsafe { crate::post::post_send(queue, &raw mut wr, &raw mut bad) }, libc::EINVAL);
    wr.opcode = IBV_WR_RDMA_WRITE;
    // SAFETY: as above.
    assert_eq!(unsafe { crate::post::post_send(queue, &raw mut wr, &raw mut bad) }, libc::EINVAL);
    // SAFETY: destroyed once, here.
    assert_eq!(unsafe { qp::ibv_destroy_qp(queue) }, 0);
}
