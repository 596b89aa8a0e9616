//! Calls of releases after rdma-core 44.

use std::ffi::c_int;
use std::ptr;

use super::bench::{Bench, Options, failed_with};
use crate::abi::*;
use crate::{mr, newer_calls};

const ACCESS: c_int = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int;

fn attr(comp_mask: u64) -> ibv_mr_init_attr {
    // SAFETY: integers and pointers, for which zero is valid.
    let mut attr: ibv_mr_init_attr = unsafe { std::mem::zeroed() };
    (attr.comp_mask, attr.access) = (comp_mask, ACCESS);
    attr
}

#[test]
fn a_buffer_of_the_library_can_be_registered_and_written() {
    let bench = Bench::new(&Options::default());
    let (pd, mut buf) = (bench.b.pd, ptr::null_mut());
    // SAFETY: a valid protection domain, space for the handle.
    let start = unsafe { newer_calls::ibv_alloc_buf(pd, 10_000, &raw mut buf) };
    assert!(!start.is_null() && start.addr().is_multiple_of(4_096));
    // SAFETY: within the buffer, which has 10,000 bytes.
    let part = unsafe { start.byte_add(8_192) };
    // SAFETY: valid objects.
    let register = |pd, addr, length| unsafe { newer_calls::ibv_reg_buf_mr(pd, buf, addr, length, ACCESS) };
    failed_with(libc::EINVAL, register(pd, part, 1_809));
    failed_with(libc::EINVAL, register(pd, start.wrapping_byte_sub(1), 10));
    failed_with(libc::EINVAL, register(pd, part, usize::MAX));
    failed_with(libc::EINVAL, register(bench.a.pd, part, 10));
    let region = register(pd, part, 1_808);
    assert!(!region.is_null());
    // SAFETY: `region` is the registration made above and `buf` its buffer; neither is used after it is released.
    unsafe {
        assert_eq!(((*region).addr, (*region).length, (*region).pd), (part, 1_808, pd));
        bench.a.memory(|bytes| bytes[..5].copy_from_slice(b"hello"));
        let mut wr = bench.write(1, 5);
        wr.wr.rdma = ibv_wr_rdma { remote_addr: part.addr() as u64, rkey: (*region).rkey };
        assert_eq!(bench.a.post(&mut wr), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
        assert_eq!(std::slice::from_raw_parts(part.cast::<u8>(), 5), b"hello");
        assert_eq!(newer_calls::ibv_export_buf_dmabuf_fd(buf), -1);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        newer_calls::ibv_free_buf(buf);
    }
}

#[test]
fn one_call_registers_every_kind_of_memory() {
    let bench = Bench::new(&Options::default());
    let (pd, memory) = (bench.b.pd, bench.b.memory);
    // SAFETY: a valid protection domain, attributes that can be read.
    let register = |attr: &ibv_mr_init_attr| unsafe { newer_calls::ibv_reg_mr_ex(pd, attr) };
    let named = ibv_mr_init_attr {
        addr: memory.cast(),
        length: 64,
        iova: 1 << 20,
        ..attr(IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA)
    };
    let region = register(&named);
    assert!(!region.is_null());
    let mut wr = bench.write(1, 8);
    bench.a.memory(|bytes| bytes[..8].fill(9));
    // SAFETY: a valid region.
    wr.wr.rdma = ibv_wr_rdma { remote_addr: (1 << 20) + 8, rkey: unsafe { (*region).rkey } };
    assert_eq!(bench.a.post(&mut wr), Ok(()));
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
    bench.b.memory(|bytes| assert_eq!(bytes[..17], [0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0]));
    // SAFETY: a valid region.
    assert_eq!(unsafe { mr::ibv_dereg_mr(region) }, 0);
    let of_file = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    for (mask, errno) in [
        (0, libc::EINVAL),
        (IBV_REG_MR_MASK_IOVA, libc::EINVAL),
        (IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD_OFFSET, libc::EINVAL),
        (IBV_REG_MR_MASK_FD, libc::EINVAL),
        (of_file, libc::EOPNOTSUPP),
        (IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH, libc::EOPNOTSUPP),
        (IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF, libc::EINVAL),
        (IBV_REG_MR_MASK_ADDR | 1 << 40, libc::EOPNOTSUPP),
    ] {
        failed_with(errno, register(&ibv_mr_init_attr { addr: memory.cast(), length: 64, ..attr(mask) }));
    }
}

#[test]
fn the_port_speed_is_reported_and_counters_are_refused() {
    let bench = Bench::new(&Options::default());
    let context = bench.a.context;
    let (mut speed, mut caps) = (0, [7u8; 16]);
    // SAFETY: an open device, and memory that may be written.
    unsafe {
        assert_eq!(newer_calls::ibv_query_port_speed(context, 1, &raw mut speed), 0);
        assert_eq!(newer_calls::ibv_query_port_speed(context, 2, &raw mut speed), libc::EINVAL);
        assert_eq!(newer_calls::_ibv_query_comp_cntr_caps(context, caps.as_mut_ptr().cast(), 16), libc::EOPNOTSUPP);
    }
    assert_eq!((speed, caps), (1_000, [0; 16]), "not 100 Gbit/s without counters");
    let none = ptr::null_mut();
    failed_with(libc::EOPNOTSUPP, newer_calls::ibv_create_comp_cntr(context, none));
    failed_with(libc::EOPNOTSUPP, newer_calls::ibv_alloc_dmah(context, none));
    assert_eq!(newer_calls::ibv_qp_attach_comp_cntr(bench.a.qp, none, none), libc::EOPNOTSUPP);
    assert_eq!(newer_calls::ibv_read_comp_cntr(none, ptr::null_mut()), libc::EOPNOTSUPP);
}
