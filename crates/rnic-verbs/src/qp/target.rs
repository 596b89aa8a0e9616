//! Targets of extended reliable connections: queue pairs that are created in an XRC domain, and receive through the
//! shared receive queues that messages specify.

use std::ptr;
use std::sync::Arc;

use rnic_base::limits::SGE_MAX;
use rnic_engine::{QpAttributes, Service};

use super::object_of;
use crate::abi::*;
use crate::context::Context;
use crate::core::{Core, Qp, TargetParts};
use crate::errno::Result;
use crate::object::{Ptr, QpObject};
use crate::xrc;

/// Creates a target.
///
/// # Safety
/// `context` is open, and the domain in `init` is valid.
pub(super) unsafe fn create(context: *mut ibv_context, init: &mut ibv_qp_init_attr_ex) -> Result<*mut QpObject> {
    // SAFETY: guaranteed by the caller.
    let mut core = unsafe { Context::of(context) }.shared.enter()?;
    // SAFETY: as above.
    let xrcd = unsafe { xrc::join(&mut core, init.xrcd) }?;
    let parts = match parts(&mut core, xrcd) {
        Ok(parts) => parts,
        Err(errno) => {
            xrc::remove_user(&mut core, xrcd);
            return Err(errno);
        }
    };
    let transport = Arc::clone(core.offers.preferred());
    let created = core.nic.verbs().create_qp(&QpAttributes {
        pd: parts.pd,
        send_cq: parts.cq,
        recv_cq: parts.cq,
        srq: None,
        max_send_wr: 0,
        // An XRC target receives one message at a time.
        max_recv_wr: 1,
        max_send_sge: 0,
        max_recv_sge: SGE_MAX as u32,
        signal_all: false,
        service: Service::ReliableConnection,
        transport,
        number: None,
        nvme: None,
    });
    let qpn = created.inspect_err(|_| release(&mut core, &parts))?;
    core.nic.verbs().make_target(qpn, xrcd)?;
    init.cap = ibv_qp_cap::default();
    (init.send_cq, init.recv_cq, init.srq) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let object = Box::into_raw(Box::new(object_of(context, ptr::null_mut(), init, qpn.get())));
    let handle = core.qps.insert(Qp {
        qpn,
        object: Ptr(object),
        pd: parts.pd,
        cap: init.cap,
        signal_all: false,
        qp_type: init.qp_type,
        attr: ibv_qp_attr::default(),
        peer: None,
        target: Some(parts),
        inline: None,
        burst_bytes: 0,
        posted: 0,
    }) as u32;
    core.by_qpn.insert(qpn, handle);
    // SAFETY: the object is new.
    unsafe { (*object).c.qp_base.handle = handle };
    Ok(object)
}

/// Creates the protection domain and the completion queue that the engine requires for a target: no memory is ever
/// registered in the former, and only flushed receives are reported in the latter.
fn parts(core: &mut Core, xrcd: u32) -> Result<TargetParts> {
    let pd = core.nic.verbs().create_pd()?;
    match core.nic.verbs().create_cq(FLUSHED_MAX) {
        Ok(cq) => Ok(TargetParts { pd, cq, xrcd }),
        Err(error) => {
            core.nic.verbs().destroy_pd(pd)?;
            Err(error.into())
        }
    }
}

/// Releases the resources of a target.
pub(super) fn release(core: &mut Core, parts: &TargetParts) {
    // Both were created for this target only.
    let _ = core.nic.verbs().destroy_cq(parts.cq);
    let _ = core.nic.verbs().destroy_pd(parts.pd);
    xrc::remove_user(core, parts.xrcd);
}

/// Number of entries of a target's completion queue. A completion is added only when the connection fails while a
/// message is in progress, whose receive is flushed: one for each failure. A reset removes it again.
const FLUSHED_MAX: u32 = 16;
