//! Work requests and completions, addresses, events.

use std::ffi::{c_int, c_void};

use super::context::ibv_context;
use super::objects::*;

/// `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ibv_gid {
    pub(crate) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_global_route {
    pub(crate) dgid: ibv_gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_grh {
    pub(crate) version_tclass_flow: u32,
    pub(crate) paylen: u16,
    pub(crate) next_hdr: u8,
    pub(crate) hop_limit: u8,
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_ah_attr {
    pub(crate) grh: ibv_global_route,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_async_event {
    /// A union: the object concerned, or the number of the port.
    pub(crate) element: *mut c_void,
    pub(crate) event_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// A union: immediate data in network order, or the invalidated key in our own.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_data_buf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_wr_rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_wr_atomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_wr_ud {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// The union `wr` of `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ibv_wr_target {
    pub(crate) rdma: ibv_wr_rdma,
    pub(crate) atomic: ibv_wr_atomic,
    pub(crate) ud: ibv_wr_ud,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    /// A union: immediate data in network order, or the key to invalidate in our own.
    pub(crate) imm_data: u32,
    pub(crate) wr: ibv_wr_target,
    /// The union `qp_type`: the shared receive queue of XRC.
    pub(crate) remote_srqn: u32,
    /// The union of `bind_mw` and `tso`, which is not supported.
    pub(crate) bind_mw: ibv_wr_bind_mw,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) kind: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_mw_bind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_wr_bind_mw {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}
