//! Compares the structures and constants of this module with the system's headers, by means of a C compiler.

use std::mem::offset_of;
use std::process::Command;

use super::*;

/// Sizes and offsets as C assertions; a field may have another name in C.
macro_rules! layouts {
    ($($name:ident: $($field:ident $(as $c:literal)?),*;)*) => {
        fn layouts() -> Vec<String> {
            let mut all = Vec::new();
            $(
                all.push(format!("sizeof(struct {}) == {}", stringify!($name), size_of::<$name>()));
                $(
                    let field = [$($c,)? stringify!($field)][0];
                    let offset = offset_of!($name, $field);
                    all.push(format!("offsetof(struct {}, {field}) == {offset}", stringify!($name)));
                )*
            )*
            all
        }
    };
}

layouts! {
    ibv_sa_path_rec: dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible, numb_path,
        pkey, sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference;
    rdma_ib_addr: sgid, dgid, pkey;
    rdma_addr: src_storage, dst_storage, ibaddr as "addr.ibaddr";
    rdma_route: addr, path_rec, num_paths;
    rdma_event_channel: fd;
    rdma_cm_id: verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel,
        recv_cq, srq, pd, qp_type;
    rdma_conn_param: private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
        rnr_retry_count, srq, qp_num;
    rdma_ud_param: private_data, private_data_len, ah_attr, qp_num, qkey;
    rdma_cm_event: id, listen_id, event, status, param;
    rdma_addrinfo: ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr, ai_dst_addr,
        ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len, ai_connect, ai_next;
}

macro_rules! numbers {
    ($($name:ident),* $(,)?) => {
        fn numbers() -> Vec<String> {
            vec![$(format!("{} == {}", stringify!($name), $name)),*]
        }
    };
}

numbers! {
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR,
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_UDP_QKEY,
    RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH, RAI_PASSIVE, RAI_NUMERICHOST, RDMA_OPTION_ID, RDMA_OPTION_IB,
    RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_OPTION_IB_PATH,
}

#[test]
fn structures_and_constants_match_the_headers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("ask.c");
    let compiles = |assertions: &[String]| {
        let checks: String = assertions.iter().map(|it| format!("_Static_assert({it}, \"differs\");\n")).collect();
        std::fs::write(&file, format!("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n{checks}")).expect("a file");
        Command::new("cc").args(["-w", "-fsyntax-only"]).arg(&file).output().ok()
    };
    if !compiles(&[]).is_some_and(|output| output.status.success()) {
        assert!(std::env::var_os("RNIC_REQUIRE_APPS").is_none(), "librdmacm-dev is not installed");
        eprintln!("skipped: librdmacm-dev is not installed");
        return;
    }
    let assertions_that_hold = [layouts(), numbers()].concat();
    let output = compiles(&assertions_that_hold).expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Check that a false assertion is detected.
    let false_assertion = compiles(&["sizeof(struct rdma_cm_id) == 1".to_owned()]).expect("the compiler runs");
    assert!(!false_assertion.status.success());
}
