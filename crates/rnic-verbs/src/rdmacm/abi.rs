//! The C structures and numbers of `<rdma/rdma_cma.h>` and `<infiniband/sa.h>`, with the layout and values that are
//! compiled into programs.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::*;

pub(crate) const RDMA_CM_EVENT_ADDR_RESOLVED: u32 = 0;
pub(crate) const RDMA_CM_EVENT_ADDR_ERROR: u32 = 1;
pub(crate) const RDMA_CM_EVENT_ROUTE_RESOLVED: u32 = 2;
pub(crate) const RDMA_CM_EVENT_ROUTE_ERROR: u32 = 3;
pub(crate) const RDMA_CM_EVENT_CONNECT_REQUEST: u32 = 4;
pub(crate) const RDMA_CM_EVENT_CONNECT_RESPONSE: u32 = 5;
pub(crate) const RDMA_CM_EVENT_CONNECT_ERROR: u32 = 6;
pub(crate) const RDMA_CM_EVENT_UNREACHABLE: u32 = 7;
pub(crate) const RDMA_CM_EVENT_REJECTED: u32 = 8;
pub(crate) const RDMA_CM_EVENT_ESTABLISHED: u32 = 9;
pub(crate) const RDMA_CM_EVENT_DISCONNECTED: u32 = 10;
pub(crate) const RDMA_CM_EVENT_DEVICE_REMOVAL: u32 = 11;
pub(crate) const RDMA_CM_EVENT_MULTICAST_JOIN: u32 = 12;
pub(crate) const RDMA_CM_EVENT_MULTICAST_ERROR: u32 = 13;
pub(crate) const RDMA_CM_EVENT_ADDR_CHANGE: u32 = 14;
pub(crate) const RDMA_CM_EVENT_TIMEWAIT_EXIT: u32 = 15;

pub(crate) const RDMA_PS_TCP: u32 = 0x0106;
pub(crate) const RDMA_PS_UDP: u32 = 0x0111;
pub(crate) const RDMA_PS_IB: u32 = 0x013f;

pub(crate) const RDMA_UDP_QKEY: u32 = 0x0123_4567;

pub(crate) const RDMA_MAX_RESP_RES: u8 = 0xff;
pub(crate) const RDMA_MAX_INIT_DEPTH: u8 = 0xff;

pub(crate) const RAI_PASSIVE: c_int = 1;
pub(crate) const RAI_NUMERICHOST: c_int = 2;

pub(crate) const RDMA_OPTION_ID: c_int = 0;
pub(crate) const RDMA_OPTION_IB: c_int = 1;
pub(crate) const RDMA_OPTION_ID_TOS: c_int = 0;
pub(crate) const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
pub(crate) const RDMA_OPTION_ID_AFONLY: c_int = 2;
pub(crate) const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
pub(crate) const RDMA_OPTION_IB_PATH: c_int = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_sa_path_rec {
    pub(crate) dgid: ibv_gid,
    pub(crate) sgid: ibv_gid,
    /// Destination local identifier, in network byte order.
    pub(crate) dlid: u16,
    /// Source local identifier, in network byte order.
    pub(crate) slid: u16,
    pub(crate) raw_traffic: c_int,
    /// Flow label, in network byte order.
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reversible: c_int,
    pub(crate) numb_path: u8,
    /// Partition key, in network byte order.
    pub(crate) pkey: u16,
    pub(crate) sl: u8,
    pub(crate) mtu_selector: u8,
    pub(crate) mtu: u8,
    pub(crate) rate_selector: u8,
    pub(crate) rate: u8,
    pub(crate) packet_life_time_selector: u8,
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct rdma_ib_addr {
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
    /// Partition key, in network byte order.
    pub(crate) pkey: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_addr {
    /// A union: an address of any family.
    pub(crate) src_storage: libc::sockaddr_storage,
    /// A union: an address of any family.
    pub(crate) dst_storage: libc::sockaddr_storage,
    pub(crate) ibaddr: rdma_ib_addr,
}

#[repr(C)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    pub(crate) path_rec: *mut ibv_sa_path_rec,
    pub(crate) num_paths: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: u32,
    pub(crate) port_num: u8,
    pub(crate) event: *mut rdma_cm_event,
    pub(crate) send_cq_channel: *mut ibv_comp_channel,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq_channel: *mut ibv_comp_channel,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct rdma_ud_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

/// The union `param` of `struct rdma_cm_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union rdma_event_param {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
}

#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: u32,
    pub(crate) status: c_int,
    pub(crate) param: rdma_event_param,
}

#[repr(C)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: libc::socklen_t,
    pub(crate) ai_dst_len: libc::socklen_t,
    pub(crate) ai_src_addr: *mut libc::sockaddr,
    pub(crate) ai_dst_addr: *mut libc::sockaddr,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut rdma_addrinfo,
}

#[cfg(test)]
mod tests;
