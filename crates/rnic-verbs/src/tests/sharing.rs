//! Parent domains, imported objects, on-demand paging.

use std::ffi::c_int;
use std::ptr;

use super::bench::{Bench, Options, failed_with};
use crate::abi::*;
use crate::{domain, import, mr, odp, open};

const ACCESS: c_int = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int;

fn parent_of(pd: *mut ibv_pd, td: *mut ibv_td) -> ibv_parent_domain_init_attr {
    let none = ptr::null_mut();
    ibv_parent_domain_init_attr { pd, td, comp_mask: 0, alloc: none, free: none, pd_context: none }
}

#[test]
fn a_parent_domain_uses_and_retains_its_protection_domain() {
    let bench = Bench::new(&Options::default());
    let (context, pd) = (bench.a.context, bench.a.pd);
    // SAFETY: valid objects, each destroyed once.
    unsafe {
        let td = domain::alloc_td(context, &mut ibv_td_init_attr { comp_mask: 0 });
        assert!(!td.is_null());
        let own = mr::ibv_alloc_pd(context);
        let parent = domain::alloc_parent_domain(context, &mut parent_of(own, td));
        assert!(!parent.is_null());
        assert_eq!(domain::dealloc_td(td), libc::EBUSY);
        assert_eq!(mr::ibv_dealloc_pd(own), libc::EBUSY);
        assert_eq!(mr::ibv_dealloc_pd(parent), 0);
        assert_eq!((domain::dealloc_td(td), mr::ibv_dealloc_pd(own)), (0, 0));

        // A region of the parent domain belongs to the queue pair's domain: a Write from it succeeds.
        let parent = domain::alloc_parent_domain(context, &mut parent_of(pd, ptr::null_mut()));
        let memory = bench.a.memory.cast();
        let region = mr::ibv_reg_mr(parent, memory, 64, ACCESS);
        let mut wr = bench.write(1, 8);
        (*wr.sg_list).lkey = (*region).lkey;
        assert_eq!(bench.a.post(&mut wr), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
        assert_eq!((mr::ibv_dereg_mr(region), mr::ibv_dealloc_pd(parent)), (0, 0));
    }
}

#[test]
fn invalid_parent_domains_are_refused() {
    let bench = Bench::new(&Options::default());
    let (context, pd) = (bench.a.context, bench.a.pd);
    let with = |change: &dyn Fn(&mut ibv_parent_domain_init_attr)| {
        let mut attr = parent_of(pd, ptr::null_mut());
        change(&mut attr);
        // SAFETY: an open context, and attributes that refer to valid objects.
        unsafe { domain::alloc_parent_domain(context, &raw mut attr) }
    };
    failed_with(libc::EINVAL, with(&|attr| attr.pd = ptr::null_mut()));
    failed_with(libc::EINVAL, with(&|attr| attr.pd = bench.b.pd));
    failed_with(libc::EINVAL, with(&|attr| attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS));
    failed_with(libc::EOPNOTSUPP, with(&|attr| attr.comp_mask = 1 << 30));
}

#[test]
fn imported_objects_refer_to_the_devices_objects() {
    let bench = Bench::new(&Options::default());
    let b = &bench.b;
    // SAFETY: valid objects, each destroyed once.
    unsafe {
        let fd = libc::dup((*b.context).cmd_fd);
        let context = import::ibv_import_device(fd);
        assert!(!context.is_null());
        let pd = import::ibv_import_pd(context, (*b.pd).handle);
        let region = import::ibv_import_mr(pd, (*b.mr).handle);
        assert!((*region).addr.is_null());
        assert_eq!(((*region).length, (*region).rkey), ((*b.mr).length, (*b.mr).rkey));
        failed_with(libc::ENOENT, import::ibv_import_mr(pd, 1_000));
        failed_with(libc::ENOENT, import::ibv_import_pd(context, 1_000));
        // Objects created in the imported domain can be used by the exporter's queue pairs.
        let own = mr::ibv_reg_mr(pd, b.memory.cast(), 64, ACCESS);
        let mut wr = bench.write(1, 8);
        wr.wr.rdma.rkey = (*own).rkey;
        assert_eq!(bench.a.post(&mut wr), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
        assert_eq!(mr::ibv_dereg_mr(own), 0);
        import::ibv_unimport_mr(region);
        import::ibv_unimport_pd(pd);
        assert_eq!(open::ibv_close_device(context), 0);
        assert_eq!(libc::fcntl(fd, libc::F_GETFD), -1, "the descriptor is still open");
    }
    // The exporter continues to work.
    assert_eq!(bench.a.post(&mut bench.write(2, 8)), Ok(()));
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
    let foreign = std::fs::File::open("/dev/null").expect("a file");
    failed_with(libc::EOPNOTSUPP, import::ibv_import_device(std::os::fd::AsRawFd::as_raw_fd(&foreign)));
    failed_with(libc::EBADF, import::ibv_import_device(-1));
}

#[test]
fn all_memory_of_a_process_can_be_registered_at_once() {
    let bench = Bench::new(&Options::default());
    let flags = ACCESS | IBV_ACCESS_ON_DEMAND as c_int;
    failed_with(libc::EINVAL, mr::ibv_reg_mr(bench.b.pd, ptr::null_mut(), usize::MAX, ACCESS));
    for _ in 0..3 {
        let all = mr::ibv_reg_mr(bench.b.pd, ptr::null_mut(), usize::MAX, flags);
        assert!(!all.is_null());
        let target = Box::new([0u8; 6_000]);
        bench.a.memory(|bytes| bytes[..6_000].fill(0x5a));
        let mut wr = bench.write(1, 6_000);
        // SAFETY: a valid region.
        wr.wr.rdma = ibv_wr_rdma { remote_addr: target.as_ptr() as u64, rkey: unsafe { (*all).rkey } };
        assert_eq!(bench.a.post(&mut wr), Ok(()));
        assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
        // SAFETY: the bytes are only written by other threads, and are read as volatile.
        assert!((0..6_000).all(|at| unsafe { ptr::read_volatile(&raw const target[at]) } == 0x5a));
        // SAFETY: a valid region, deregistered once.
        assert_eq!(unsafe { mr::ibv_dereg_mr(all) }, 0);
    }
}

#[test]
fn prefetch_advice_requires_on_demand_paging() {
    let bench = Bench::new(&Options::default());
    let (pd, other) = (bench.a.pd, bench.b.pd);
    let flags = ACCESS | IBV_ACCESS_ON_DEMAND as c_int;
    let region = mr::ibv_reg_mr(pd, bench.a.memory.cast(), super::bench::BYTES, flags);
    // SAFETY: valid objects.
    let (lkey, pinned) = unsafe { ((*region).lkey, (*bench.a.mr).lkey) };
    let advise = |pd, advice: u32, flags: u32, offset: u64, length: u32, lkey: u32| {
        let mut sge = ibv_sge { addr: bench.a.memory as u64 + offset, length, lkey };
        // SAFETY: a valid domain, one entry.
        unsafe { odp::advise_mr(pd, advice, flags, &raw mut sge, 1) }
    };
    let flush = IBV_ADVISE_MR_FLAG_FLUSH;
    for advice in 0..=2 {
        assert_eq!([advise(pd, advice, 0, 0, 100, lkey), advise(pd, advice, flush, 4_000, 200, lkey)], [0, 0]);
    }
    assert_eq!(advise(pd, 3, 0, 0, 100, lkey), libc::EINVAL);
    assert_eq!(advise(pd, 0, 2, 0, 100, lkey), libc::EINVAL);
    assert_eq!(advise(pd, 0, 0, super::bench::BYTES as u64, 1, lkey), libc::EFAULT);
    assert_eq!(advise(pd, 0, 0, 0, 100, lkey ^ 1), libc::ENOENT);
    assert_eq!(advise(other, 0, 0, 0, 100, lkey), libc::ENOENT, "a key of another device was accepted");
    assert_eq!(advise(pd, 0, 0, 0, 100, pinned), libc::EINVAL);
    // SAFETY: a valid region, deregistered once.
    assert_eq!(unsafe { mr::ibv_dereg_mr(region) }, 0);
}
