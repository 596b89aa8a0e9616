//! C structures for contexts, objects and requests. They refer to each other, as in C.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(crate) struct ibv_device {
    /// `struct _ibv_device_ops`: two function pointers that are no longer called.
    pub(crate) ops: [*mut c_void; 2],
    pub(crate) node_type: i32,
    pub(crate) transport_type: i32,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    /// GUID of the node, in network byte order.
    pub(crate) node_guid: u64,
    /// GUID of the system image, in network byte order.
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: u32,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: u32,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `struct ibv_device_attr_ex`; fields that are always zero in this library are combined into one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_device_attr_ex {
    pub(crate) orig_attr: ibv_device_attr,
    pub(crate) comp_mask: u32,
    /// `general_caps`, followed by three fields of `per_transport_caps`.
    pub(crate) odp_caps: ibv_odp_caps,
    pub(crate) completion_timestamp_mask: u64,
    pub(crate) hca_core_clock: u64,
    pub(crate) device_cap_flags_ex: u64,
    /// `struct ibv_tso_caps`.
    pub(crate) tso_caps: [u32; 2],
    pub(crate) rss_caps: ibv_rss_caps,
    pub(crate) max_wq_type_rq: u32,
    pub(crate) packet_pacing_caps: ibv_packet_pacing_caps,
    pub(crate) raw_packet_caps: u32,
    /// `struct ibv_tm_caps`.
    pub(crate) tm_caps: [u32; 5],
    /// `struct ibv_cq_moderation_caps`.
    pub(crate) cq_mod_caps: [u16; 2],
    pub(crate) max_dm_size: u64,
    /// `struct ibv_pci_atomic_caps`.
    pub(crate) pci_atomic_caps: [u16; 3],
    pub(crate) xrc_odp_caps: u32,
    pub(crate) phys_port_cnt_ex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_packet_pacing_caps {
    pub(crate) qp_rate_limit_min: u32,
    pub(crate) qp_rate_limit_max: u32,
    pub(crate) supported_qpts: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_qp_rate_limit_attr {
    pub(crate) rate_limit: u32,
    pub(crate) max_burst_sz: u32,
    pub(crate) typical_pkt_sz: u16,
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_odp_caps {
    pub(crate) general_caps: u64,
    pub(crate) per_transport_caps: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_rss_caps {
    pub(crate) supported_qpts: u32,
    pub(crate) max_rwq_indirection_tables: u32,
    pub(crate) max_rwq_indirection_table_size: u32,
    pub(crate) rx_hash_fields_mask: u64,
    pub(crate) rx_hash_function: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: u32,
    pub(crate) max_mtu: u32,
    pub(crate) active_mtu: u32,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

/// A slot of a function table that is never called: obsolete functions, and functions that are not supported.
pub(crate) type Unused = *mut c_void;

#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) _compat_query_device: Unused,
    pub(crate) _compat_query_port: Unused,
    pub(crate) _compat_alloc_pd: Unused,
    pub(crate) _compat_dealloc_pd: Unused,
    pub(crate) _compat_reg_mr: Unused,
    pub(crate) _compat_rereg_mr: Unused,
    pub(crate) _compat_dereg_mr: Unused,
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
    pub(crate) bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub(crate) _compat_create_cq: Unused,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub(crate) _compat_cq_event: Unused,
    pub(crate) _compat_resize_cq: Unused,
    pub(crate) _compat_destroy_cq: Unused,
    pub(crate) _compat_create_srq: Unused,
    pub(crate) _compat_modify_srq: Unused,
    pub(crate) _compat_query_srq: Unused,
    pub(crate) _compat_destroy_srq: Unused,
    pub(crate) post_srq_recv:
        Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(crate) _compat_create_qp: Unused,
    pub(crate) _compat_query_qp: Unused,
    pub(crate) _compat_modify_qp: Unused,
    pub(crate) _compat_destroy_qp: Unused,
    pub(crate) post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(crate) post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(crate) _compat_create_ah: Unused,
    pub(crate) _compat_destroy_ah: Unused,
    pub(crate) _compat_attach_mcast: Unused,
    pub(crate) _compat_detach_mcast: Unused,
    pub(crate) _compat_async_event: Unused,
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: libc::pthread_mutex_t,
    /// All bits one: marks this context as part of a `verbs_context`.
    pub(crate) abi_compat: *mut c_void,
}

/// The function table that precedes `ibv_context` in memory, newest function first. A null slot means not supported:
/// the header's inline functions then return `EOPNOTSUPP`.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub(crate) advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int>,
    pub(crate) alloc_null_mr: Unused,
    pub(crate) read_counters: Unused,
    pub(crate) attach_counters_point_flow: Unused,
    pub(crate) create_counters: Unused,
    pub(crate) destroy_counters: Unused,
    pub(crate) reg_dm_mr: Unused,
    pub(crate) alloc_dm: Unused,
    pub(crate) free_dm: Unused,
    pub(crate) modify_flow_action_esp: Unused,
    pub(crate) destroy_flow_action: Unused,
    pub(crate) create_flow_action_esp: Unused,
    pub(crate) modify_qp_rate_limit: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) -> c_int>,
    pub(crate) alloc_parent_domain:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
    pub(crate) dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    pub(crate) alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub(crate) modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
    pub(crate) post_srq_ops: Unused,
    pub(crate) destroy_rwq_ind_table: Unused,
    pub(crate) create_rwq_ind_table: Unused,
    pub(crate) destroy_wq: Unused,
    pub(crate) modify_wq: Unused,
    pub(crate) create_wq: Unused,
    pub(crate) query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
    pub(crate) create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub(crate) priv_: *mut c_void,
    pub(crate) query_device_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *const u32, *mut ibv_device_attr_ex, usize) -> c_int>,
    pub(crate) ibv_destroy_flow: Unused,
    pub(crate) ABI_placeholder2: Unused,
    pub(crate) ibv_create_flow: Unused,
    pub(crate) ABI_placeholder1: Unused,
    pub(crate) open_qp: Unused,
    pub(crate) create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub(crate) get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
    pub(crate) create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub(crate) open_xrcd: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    pub(crate) close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
    pub(crate) _ABI_placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
}

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

/// A buffer allocated by the library; the header declares no fields.
#[repr(C)]
pub(crate) struct ibv_buf {
    _private: [u8; 0],
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
    pub(crate) buf: *mut ibv_buf,
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

/// Starts with the same fields as `ibv_cq`.
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

/// Starts with the same fields as `ibv_qp_init_attr`, without its padding.
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
    /// The last field in newer headers.
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
    /// A union: the object concerned, or the port number.
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
    /// A union: immediate data in network byte order, or the invalidated key in host byte order.
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
    /// A union: immediate data in network byte order, or the key to invalidate in host byte order.
    pub(crate) imm_data: u32,
    pub(crate) wr: ibv_wr_target,
    /// The union `qp_type`: number of the XRC shared receive queue.
    pub(crate) remote_srqn: u32,
    /// The union of `bind_mw` and `tso`; `tso` is not supported.
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
