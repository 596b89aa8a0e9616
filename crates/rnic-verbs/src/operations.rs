//! The function table of a context: the functions that the inline functions of `<infiniband/verbs.h>` call.

use std::ptr;

use crate::abi::*;
use crate::device::{COMPLETION_VECTORS, Device};
use crate::{cq, domain, mw, odp, poll, post, qp, query, srq, xrc};

/// Returns the C structure of a context of `device`, with the descriptors still unset.
pub(crate) fn structure(device: &'static Device) -> verbs_context {
    // SAFETY: null pointers, absent functions and zeros are all valid for these fields.
    let mut c: verbs_context = unsafe { std::mem::zeroed() };
    c.query_port = Some(query::query_port);
    c.query_device_ex = Some(query::query_device_ex);
    c.open_xrcd = Some(xrc::open_xrcd);
    c.close_xrcd = Some(xrc::close_xrcd);
    c.advise_mr = Some(odp::advise_mr);
    c.alloc_td = Some(domain::alloc_td);
    c.dealloc_td = Some(domain::dealloc_td);
    c.alloc_parent_domain = Some(domain::alloc_parent_domain);
    c.query_rt_values = Some(query::query_rt_values);
    c.create_cq_ex = Some(cq::create_cq_ex);
    c.modify_cq = Some(cq::modify_cq);
    c.create_qp_ex = Some(qp::create_qp_ex);
    c.create_srq_ex = Some(srq::create_srq_ex);
    c.modify_qp_rate_limit = Some(qp::rate::modify_qp_rate_limit);
    c.get_srq_num = Some(srq::get_srq_num);
    c.sz = size_of::<verbs_context>();
    let context = &mut c.context;
    context.device = device.pointer();
    context.num_comp_vectors = COMPLETION_VECTORS;
    context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    let ops = &mut context.ops;
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(poll::req_notify_cq);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    c
}
