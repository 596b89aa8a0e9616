//! Compares the structures and constants of this module with the system's header.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::*;

/// A table of sizes and offsets: each entry has the name in C and this module's value.
macro_rules! layouts {
    ($($name:ident: $($field:ident $(as $c:literal)?),*;)*) => {
        fn layouts() -> Vec<(String, i64)> {
            let mut all = Vec::new();
            $(
                all.push((format!("sizeof(struct {})", stringify!($name)), size_of::<$name>() as i64));
                $(
                    let field = [$($c,)? stringify!($field)][0];
                    let name = format!("offsetof(struct {}, {field})", stringify!($name));
                    all.push((name, offset_of!($name, $field) as i64));
                )*
            )*
            all
        }
    };
}

layouts! {
    ibv_device: ops as "_ops", node_type, transport_type, name, dev_name, dev_path, ibdev_path;
    ibv_device_attr: fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver,
        max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
        max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
        max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
        max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
        phys_port_cnt;
    ibv_device_attr_ex: orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock,
        device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps,
        cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex;
    ibv_packet_pacing_caps: qp_rate_limit_min, qp_rate_limit_max, supported_qpts;
    ibv_qp_rate_limit_attr: rate_limit, max_burst_sz, typical_pkt_sz, comp_mask;
    ibv_odp_caps: general_caps, per_transport_caps;
    ibv_rss_caps: supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size, rx_hash_fields_mask,
        rx_hash_function;
    ibv_port_attr: state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
        pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
        active_speed, phys_state, link_layer, flags, port_cap_flags2;
    ibv_context_ops: _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd, _compat_reg_mr,
        _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw, _compat_create_cq, poll_cq, req_notify_cq,
        _compat_cq_event, _compat_resize_cq, _compat_destroy_cq, _compat_create_srq, _compat_modify_srq,
        _compat_query_srq, _compat_destroy_srq, post_srq_recv, _compat_create_qp, _compat_query_qp, _compat_modify_qp,
        _compat_destroy_qp, post_send, post_recv, _compat_create_ah, _compat_destroy_ah, _compat_attach_mcast,
        _compat_detach_mcast, _compat_async_event;
    ibv_context: device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat;
    verbs_context: query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow, create_counters,
        destroy_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp, destroy_flow_action,
        create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq,
        post_srq_ops, destroy_rwq_ind_table, create_rwq_ind_table, destroy_wq, modify_wq, create_wq, query_rt_values,
        create_cq_ex, priv_ as "priv", query_device_ex, ibv_destroy_flow, ABI_placeholder2, ibv_create_flow,
        ABI_placeholder1, open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd, close_xrcd, _ABI_placeholder3,
        sz, context;
    ibv_pd: context, handle;
    ibv_xrcd: context;
    ibv_xrcd_init_attr: comp_mask, fd, oflags;
    ibv_td: context;
    ibv_td_init_attr: comp_mask;
    ibv_parent_domain_init_attr: pd, td, comp_mask, alloc, free, pd_context;
    ibv_mr: context, pd, addr, length, handle, lkey, rkey;
    ibv_comp_channel: context, fd, refcnt;
    ibv_cq: context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed;
    ibv_poll_cq_attr: comp_mask;
    ibv_wc_tm_info: tag, priv_ as "priv";
    ibv_cq_ex: cq as "context", comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode,
        read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl,
        read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_tm_info,
        read_completion_wallclock_ns;
    ibv_cq_init_attr_ex: cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain;
    ibv_srq_attr: max_wr, max_sge, srq_limit;
    ibv_srq_init_attr: srq_context, attr;
    ibv_srq_init_attr_ex: srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap;
    ibv_srq: context, srq_context, pd, handle, mutex, cond, events_completed;
    ibv_qp_cap: max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
    ibv_qp_init_attr: qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all;
    ibv_rx_hash_conf: rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask;
    ibv_qp_init_attr_ex: qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
        create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags;
    ibv_qp_attr: qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
        cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
        max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
        rate_limit;
    ibv_qp: context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
        events_completed;
    ibv_qp_ex: qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv,
        wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso,
        wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list,
        wr_start, wr_complete, wr_abort, wr_atomic_write;
    ibv_ece: vendor_id, options, comp_mask;
    ibv_ah: context, pd, handle;
    ibv_modify_cq_attr: attr_mask, cq_count as "moderate.cq_count", cq_period as "moderate.cq_period";
    ibv_values_ex: comp_mask, raw_clock;
    ibv_gid_entry: gid, gid_index, port_num, gid_type, ndev_ifindex;
    ibv_global_route: dgid, flow_label, sgid_index, hop_limit, traffic_class;
    ibv_grh: version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid;
    ibv_ah_attr: grh, dlid, sl, src_path_bits, static_rate, is_global, port_num;
    ibv_wc: wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
        dlid_path_bits;
    ibv_sge: addr, length, lkey;
    ibv_data_buf: addr, length;
    ibv_mw: context, pd, rkey, handle, kind as "type";
    ibv_mw_bind: wr_id, send_flags, bind_info;
    ibv_mw_bind_info: mr, addr, length, mw_access_flags;
    ibv_send_wr: wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
        remote_srqn as "qp_type.xrc.remote_srqn", bind_mw;
    ibv_recv_wr: wr_id, next, sg_list, num_sge;
}

/// Layouts that the table above cannot express: unions, and parts of structures.
fn further_values() -> Vec<(String, i64)> {
    let wr = offset_of!(ibv_send_wr, wr);
    [
        ("sizeof(union ibv_gid)", size_of::<ibv_gid>()),
        ("_Alignof(union ibv_gid)", align_of::<ibv_gid>()),
        ("sizeof(struct ibv_async_event)", size_of::<ibv_async_event>()),
        ("offsetof(struct ibv_async_event, event_type)", offset_of!(ibv_async_event, event_type)),
        ("offsetof(struct ibv_send_wr, wr.rdma.rkey)", wr + offset_of!(ibv_wr_rdma, rkey)),
        ("offsetof(struct ibv_send_wr, wr.atomic.compare_add)", wr + offset_of!(ibv_wr_atomic, compare_add)),
        ("offsetof(struct ibv_send_wr, wr.atomic.swap)", wr + offset_of!(ibv_wr_atomic, swap)),
        ("offsetof(struct ibv_send_wr, wr.atomic.rkey)", wr + offset_of!(ibv_wr_atomic, rkey)),
        ("offsetof(struct ibv_send_wr, wr.ud.remote_qpn)", wr + offset_of!(ibv_wr_ud, remote_qpn)),
        ("offsetof(struct ibv_send_wr, wr.ud.remote_qkey)", wr + offset_of!(ibv_wr_ud, remote_qkey)),
    ]
    .map(|(name, value)| (name.to_owned(), value as i64))
    .into()
}

/// Returns the values that a C compiler computes for `expressions` with the header; `None` when the compiler or the
/// header is missing.
fn evaluate_in_c(expressions: impl Iterator<Item = String>) -> Option<Vec<i64>> {
    let mut source = "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for expression in expressions {
        writeln!(source, "printf(\"%lld\\n\", (long long)({expression}));").expect("writing to a string succeeds");
    }
    source.push_str("return 0;\n}\n");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (file, program) = (dir.path().join("ask.c"), dir.path().join("ask"));
    std::fs::write(&file, "#include <infiniband/verbs.h>\nint main(void) { return 0; }\n").expect("a file");
    let compile = || Command::new("cc").arg("-w").arg(&file).arg("-o").arg(&program).output();
    let has_header = compile().is_ok_and(|output| output.status.success());
    if !has_header {
        return None;
    }
    std::fs::write(&file, source).expect("a file");
    let output = compile().expect("the compiler runs");
    assert!(output.status.success(), "the header lacks a declaration: {}", String::from_utf8_lossy(&output.stderr));
    let program_output = Command::new(&program).output().expect("the compiled program runs");
    let lines = String::from_utf8(program_output.stdout).expect("numbers");
    Some(lines.lines().map(|line| line.parse().expect("a number")).collect())
}

/// A structure to which new releases add fields.
const GROWING_SIZE: &str = "sizeof(struct ibv_qp_ex)";

/// The header of an older release may not define a newer constant: such constants are skipped.
#[test]
fn structures_and_constants_match_the_header() {
    let numbers = NUMBERS.iter().map(|(name, value)| ((*name).to_owned(), *value));
    let our_values: Vec<(String, i64)> = layouts().into_iter().chain(further_values()).chain(numbers).collect();
    let Some(header_values) = evaluate_in_c(our_values.iter().map(|(name, _)| name.clone())) else {
        assert!(std::env::var_os("RNIC_REQUIRE_APPS").is_none(), "libibverbs-dev is not installed");
        eprintln!("skipped: libibverbs-dev is not installed");
        return;
    };
    let different: BTreeMap<_, _> = our_values
        .iter()
        .zip(&header_values)
        // The structure in this module ends with a function that older headers do not have; this library allocates
        // these structures, and programs only read them.
        .filter(|((name, ours), theirs)| ours != *theirs && (name != GROWING_SIZE || ours < *theirs))
        .map(|((name, ours), theirs)| (name, (ours, theirs)))
        .collect();
    assert!(different.is_empty(), "values differ from the header's: {different:#?}");
    assert!(header_values.len() > 400, "only {} values were compared", header_values.len());
}
