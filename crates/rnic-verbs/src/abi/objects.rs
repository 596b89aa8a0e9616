//! Objects, and what they are made with.

use std::ffi::{c_int, c_void};

use super::context::ibv_context;
use super::requests::*;

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_xrcd {
    pub(crate) context: *mut ibv_context,
}

#[repr(C)]
pub(crate) struct ibv_xrcd_init_attr {
    pub(crate) comp_mask: u32,
    pub(crate) fd: c_int,
    pub(crate) oflags: c_int,
}

#[repr(C)]
pub(crate) struct ibv_td {
    pub(crate) context: *mut ibv_context,
}

#[repr(C)]
pub(crate) struct ibv_td_init_attr {
    pub(crate) comp_mask: u32,
}

#[repr(C)]
pub(crate) struct ibv_parent_domain_init_attr {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) td: *mut ibv_td,
    pub(crate) comp_mask: u32,
    pub(crate) alloc: *mut c_void,
    pub(crate) free: *mut c_void,
    pub(crate) pd_context: *mut c_void,
}

#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
pub(crate) struct ibv_mr_init_attr {
    pub(crate) length: usize,
    pub(crate) access: c_int,
    pub(crate) comp_mask: u64,
    pub(crate) iova: u64,
    pub(crate) addr: *mut c_void,
    pub(crate) fd: c_int,
    pub(crate) fd_offset: u64,
    pub(crate) dmah: *mut c_void,
    pub(crate) buf: *mut crate::newer::Buf,
}

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) cond: libc::pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_poll_cq_attr {
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_wc_tm_info {
    pub(crate) tag: u64,
    pub(crate) priv_: u32,
}

/// Begins as `ibv_cq` does.
#[repr(C)]
pub(crate) struct ibv_cq_ex {
    pub(crate) cq: ibv_cq,
    pub(crate) comp_mask: u32,
    pub(crate) status: u32,
    pub(crate) wr_id: u64,
    pub(crate) start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
    pub(crate) next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
    pub(crate) end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
    pub(crate) read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub(crate) read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub(crate) read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    pub(crate) read_cvlan: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u16>,
    pub(crate) read_flow_tag: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub(crate) read_tm_info: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)>,
    pub(crate) read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
}

#[repr(C)]
pub(crate) struct ibv_cq_init_attr_ex {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut ibv_pd,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_srq_attr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

#[repr(C)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
}

#[repr(C)]
pub(crate) struct ibv_srq_init_attr_ex {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut ibv_xrcd,
    pub(crate) cq: *mut ibv_cq,
    /// `struct ibv_tm_cap`: tags and operations.
    pub(crate) tm_cap: [u32; 2],
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) cond: libc::pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_rx_hash_conf {
    pub(crate) rx_hash_function: u8,
    pub(crate) rx_hash_key_len: u8,
    pub(crate) rx_hash_key: *mut u8,
    pub(crate) rx_hash_fields_mask: u64,
}

/// Begins as `ibv_qp_init_attr` does, without its padding.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr_ex {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut ibv_xrcd,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    pub(crate) rx_hash_conf: ibv_rx_hash_conf,
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) alt_ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: u32,
    pub(crate) qp_type: u32,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) cond: libc::pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp_ex {
    pub(crate) qp_base: ibv_qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: u32,
    pub(crate) wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
    pub(crate) wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
    pub(crate) wr_bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub(crate) wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub(crate) wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    pub(crate) wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    pub(crate) wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub(crate) wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub(crate) wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub(crate) wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub(crate) wr_send_tso: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u16, u16)>,
    pub(crate) wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
    pub(crate) wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub(crate) wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
    pub(crate) wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
    pub(crate) wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub(crate) wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
    pub(crate) wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub(crate) wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
    pub(crate) wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub(crate) wr_atomic_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void)>,
    /// Newer headers end with this one.
    pub(crate) wr_flush: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_ece {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
    pub(crate) comp_mask: u32,
}

#[repr(C)]
pub(crate) struct ibv_ah {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_modify_cq_attr {
    pub(crate) attr_mask: u32,
    pub(crate) cq_count: u16,
    pub(crate) cq_period: u16,
}

#[repr(C)]
pub(crate) struct ibv_values_ex {
    pub(crate) comp_mask: u32,
    pub(crate) raw_clock: libc::timespec,
}
