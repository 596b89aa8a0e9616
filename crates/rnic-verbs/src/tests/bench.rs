//! Two queue pairs in one process, connected to each other.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::{channel, cq, errno, mr, open, poll, post, qp, query};

/// Settings that differ from test to test.
pub(super) struct Options {
    pub(super) entries: u32,
    /// Entries of the completion queues.
    pub(super) completions: c_int,
    pub(super) inline: u32,
    /// Access rights of the memory of `b`.
    pub(super) access: u32,
    /// Access rights of the queue pair `b`.
    pub(super) qp_access: u32,
    /// `timeout` and `retry_cnt` of `a`.
    pub(super) patience: (u8, u8),
    pub(super) rnr_retry: u8,
    /// State up to which both queue pairs are moved.
    pub(super) until: u32,
    /// `true` if `a` is connected to a queue pair that does not exist.
    pub(super) is_alone: bool,
    /// Functions of the extended interface with which the queue pairs are created; 0 creates ordinary ones.
    pub(super) send_ops: u64,
    pub(super) path_mtu: u32,
    pub(super) static_rate: u8,
}

const ALL: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

impl Default for Options {
    fn default() -> Self {
        Self {
            entries: 16,
            completions: 64,
            inline: 0,
            access: ALL,
            qp_access: ALL,
            patience: (14, 7),
            rnr_retry: 7,
            until: IBV_QPS_RTS,
            is_alone: false,
            send_ops: 0,
            path_mtu: IBV_MTU_1024,
            static_rate: 0,
        }
    }
}

/// One end of the connection.
pub(super) struct Side {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) cq: *mut ibv_cq,
    pub(super) mr: *mut ibv_mr,
    pub(super) qp: *mut ibv_qp,
    pub(super) memory: *mut u8,
    _memory: Box<UnsafeCell<[u8; BYTES]>>,
}

/// Registered bytes of each end.
pub(super) const BYTES: usize = 8_192;

pub(super) struct Bench {
    pub(super) a: Side,
    pub(super) b: Side,
}

/// Returns an entry for `length` bytes of a side's memory.
pub(super) fn sge(side: &Side, length: u32) -> ibv_sge {
    // SAFETY: a valid region.
    ibv_sge { addr: side.memory as u64, length, lkey: unsafe { (*side.mr).lkey } }
}

/// Asserts that a call has returned null and set `errno` to `number`.
#[track_caller]
pub(super) fn failed_with<T>(number: c_int, pointer: *mut T) {
    assert!(pointer.is_null());
    assert_eq!(errno::Errno::last(), errno::Errno(number));
}

fn non_null<T>(pointer: *mut T) -> *mut T {
    assert!(!pointer.is_null(), "{:?}", errno::Errno::last());
    pointer
}

fn init_attr(cq: *mut ibv_cq, options: &Options) -> ibv_qp_init_attr {
    let cap = ibv_qp_cap {
        max_send_wr: options.entries,
        max_recv_wr: options.entries,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: options.inline,
    };
    ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: ptr::null_mut(),
        cap,
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    }
}

fn extended(pd: *mut ibv_pd, cq: *mut ibv_cq, options: &Options, operations: u64) -> ibv_qp_init_attr_ex {
    let plain = init_attr(cq, options);
    // SAFETY: null pointers and zeros are all valid.
    let mut init: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    (init.send_cq, init.recv_cq, init.cap, init.qp_type) = (cq, cq, plain.cap, plain.qp_type);
    (init.pd, init.send_ops_flags) = (pd, operations);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init
}

impl Side {
    fn open(options: &Options, access: u32) -> Self {
        let context = non_null(open::ibv_open_device(ptr::null_mut()));
        let bytes = Box::new(UnsafeCell::new([0; BYTES]));
        let memory = bytes.get().cast::<u8>();
        // SAFETY: each object is created from valid ones.
        unsafe {
            let pd = non_null(mr::ibv_alloc_pd(context));
            let channel = non_null(channel::ibv_create_comp_channel(context));
            let cq = non_null(cq::ibv_create_cq(context, options.completions, ptr::null_mut(), channel, 0));
            let mr = non_null(mr::ibv_reg_mr(pd, memory.cast(), BYTES, access as c_int));
            let qp = match options.send_ops {
                0 => non_null(qp::ibv_create_qp(pd, &mut init_attr(cq, options))),
                operations => non_null(qp::create_qp_ex(context, &mut extended(pd, cq, options, operations))),
            };
            Self { context, pd, channel, cq, mr, qp, memory, _memory: bytes }
        }
    }

    pub(super) fn qpn(&self) -> u32 {
        // SAFETY: a valid queue pair.
        unsafe { (*self.qp).qp_num }
    }

    /// Calls `look` with the registered memory.
    pub(super) fn memory(&self, look: impl FnOnce(&mut [u8])) {
        // SAFETY: the bytes live as long as this side, and no request is in flight.
        look(unsafe { std::slice::from_raw_parts_mut(self.memory, BYTES) });
    }

    pub(super) fn modify(&self, attr: &ibv_qp_attr, mask: u32) -> Result<(), c_int> {
        let mut attr = *attr;
        // SAFETY: a valid queue pair.
        result(unsafe { qp::ibv_modify_qp(self.qp, &raw mut attr, mask as c_int) })
    }

    pub(super) fn state(&self) -> u32 {
        self.attributes().qp_state
    }

    /// Returns the attributes from `ibv_query_qp`.
    pub(super) fn attributes(&self) -> ibv_qp_attr {
        let (mut attr, mut init) = (ibv_qp_attr::default(), init_attr(self.cq, &Options::default()));
        // SAFETY: a valid queue pair.
        assert_eq!(unsafe { qp::ibv_query_qp(self.qp, &raw mut attr, 0, &raw mut init) }, 0);
        attr
    }

    /// Fetches and acknowledges the asynchronous events, the first of which occurs within `wait_ms`; returns their
    /// types.
    pub(super) fn async_events(&self, wait_ms: c_int) -> Vec<u32> {
        let mut kinds = Vec::new();
        let mut event = ibv_async_event { element: ptr::null_mut(), event_type: 0 };
        // SAFETY: an open device, an event that may be written.
        unsafe {
            let mut poll = libc::pollfd { fd: (*self.context).async_fd, events: libc::POLLIN, revents: 0 };
            while libc::poll(&raw mut poll, 1, if kinds.is_empty() { wait_ms } else { 100 }) == 1 {
                assert_eq!(channel::ibv_get_async_event(self.context, &raw mut event), 0);
                channel::ibv_ack_async_event(&raw mut event);
                kinds.push(event.event_type);
            }
        }
        kinds
    }

    fn connect(&self, to: u32, options: &Options) {
        self.connect_qp(self.qp, to, options);
    }

    pub(super) fn connect_qp(&self, qp: *mut ibv_qp, to: u32, options: &Options) {
        let attr = ibv_qp_attr {
            port_num: 1,
            qp_access_flags: options.qp_access,
            path_mtu: options.path_mtu,
            dest_qp_num: to,
            rq_psn: 0xff_fff0,
            sq_psn: 0xff_fff0,
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: options.patience.0,
            retry_cnt: options.patience.1,
            rnr_retry: options.rnr_retry,
            ah_attr: ibv_ah_attr { static_rate: options.static_rate, ..self.to_itself() },
            ..ibv_qp_attr::default()
        };
        let steps = [
            (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            (
                IBV_QPS_RTR,
                IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER,
            ),
            (
                IBV_QPS_RTS,
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
            ),
        ];
        for (state, mask) in steps.into_iter().filter(|(state, _)| *state <= options.until) {
            let mut attr = ibv_qp_attr { qp_state: state, ..attr };
            // SAFETY: a valid queue pair.
            let errno = unsafe { qp::ibv_modify_qp(qp, &raw mut attr, (mask | IBV_QP_STATE) as c_int) };
            assert_eq!(errno, 0, "the transition to state {state} failed");
        }
    }

    pub(super) fn to_itself(&self) -> ibv_ah_attr {
        let mut dgid = ibv_gid::default();
        // SAFETY: an open device.
        assert_eq!(unsafe { query::ibv_query_gid(self.context, 1, 0, &raw mut dgid) }, 0);
        let grh = ibv_global_route { dgid, ..ibv_global_route::default() };
        ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() }
    }

    pub(super) fn post(&self, wr: &mut ibv_send_wr) -> Result<(), c_int> {
        let mut bad = ptr::null_mut();
        // SAFETY: a valid queue pair and a request.
        let posted = result(unsafe { post::post_send(self.qp, wr, &raw mut bad) });
        assert!(posted.is_ok() || ptr::eq(bad, wr), "not the refused request was returned");
        posted
    }

    pub(super) fn post_recv(&self, wr_id: u64, length: u32) -> Result<(), c_int> {
        let mut entry = sge(self, length);
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut entry, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: a valid queue pair and a request.
        result(unsafe { post::post_recv(self.qp, &raw mut wr, &raw mut bad) })
    }

    /// Creates another queue pair, or returns the error number.
    pub(super) fn another_qp(&self) -> Result<*mut ibv_qp, c_int> {
        let options = Options { entries: 1, ..Options::default() };
        // SAFETY: a valid protection domain and completion queue.
        let qp = unsafe { qp::ibv_create_qp(self.pd, &mut init_attr(self.cq, &options)) };
        if qp.is_null() { Err(errno::Errno::last().0) } else { Ok(qp) }
    }

    /// Polls for a completion; returns `None` when there is none.
    pub(super) fn poll(&self) -> Result<Option<ibv_wc>, c_int> {
        let mut wc = ibv_wc::default();
        // SAFETY: a valid completion queue, space for one completion.
        match unsafe { poll::poll_cq(self.cq, 1, &raw mut wc) } {
            0 => Ok(None),
            1 => Ok(Some(wc)),
            error => Err(error),
        }
    }

    /// Waits for a completion and returns it.
    #[track_caller]
    pub(super) fn wait(&self) -> ibv_wc {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if let Some(wc) = self.poll().expect("the completion queue works") {
                return wc;
            }
            std::thread::yield_now();
        }
        panic!("no completion arrived in time");
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // SAFETY: valid objects, each destroyed once, users first.
        unsafe {
            assert_eq!(qp::ibv_destroy_qp(self.qp), 0);
            assert_eq!(mr::ibv_dereg_mr(self.mr), 0);
            assert_eq!(cq::ibv_destroy_cq(self.cq), 0);
            assert_eq!(channel::ibv_destroy_comp_channel(self.channel), 0);
            assert_eq!(mr::ibv_dealloc_pd(self.pd), 0);
            assert_eq!(open::ibv_close_device(self.context), 0);
        }
    }
}

fn result(errno: c_int) -> Result<(), c_int> {
    if errno == 0 { Ok(()) } else { Err(errno) }
}

impl Bench {
    pub(super) fn new(options: &Options) -> Self {
        let (a, b) = (Side::open(options, ALL), Side::open(options, options.access));
        // The port of `b`, with a queue pair number that does not exist there.
        let nobody = b.qpn() ^ 1;
        a.connect(if options.is_alone { nobody } else { b.qpn() }, options);
        b.connect(a.qpn(), options);
        Self { a, b }
    }

    /// Connects `qp`, another queue pair of `a`, to `b`, which is still in state `INIT`.
    pub(super) fn connect_to(&self, qp: *mut ibv_qp) {
        // SAFETY: a valid queue pair.
        let qpn = unsafe { (*qp).qp_num };
        let reset = ibv_qp_attr { qp_state: IBV_QPS_RESET, ..ibv_qp_attr::default() };
        assert_eq!(self.b.modify(&reset, IBV_QP_STATE), Ok(()));
        self.a.connect_qp(qp, self.b.qpn(), &Options::default());
        self.b.connect(qpn, &Options::default());
    }

    /// Returns a Send of eight bytes of the memory of `b`.
    pub(super) fn send_from_b(&self, wr_id: u64) -> ibv_send_wr {
        let mut wr = self.request(wr_id, IBV_WR_SEND, 0);
        (wr.sg_list, wr.num_sge) = (Box::into_raw(Box::new(sge(&self.b, 8))), 1);
        wr
    }

    pub(super) fn init(&self) -> ibv_qp_init_attr {
        init_attr(self.a.cq, &Options::default())
    }

    /// Returns a signalled request; its list contains `length` bytes, or is empty.
    fn request(&self, wr_id: u64, opcode: u32, length: u32) -> ibv_send_wr {
        // SAFETY: null pointers and zeros are all valid.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, IBV_SEND_SIGNALED);
        if length > 0 {
            // The list must remain valid until the request is posted; it is leaked, because tests are short.
            (wr.sg_list, wr.num_sge) = (Box::into_raw(Box::new(sge(&self.a, length))), 1);
        }
        wr
    }

    pub(super) fn send(&self, wr_id: u64, length: u32) -> ibv_send_wr {
        self.request(wr_id, IBV_WR_SEND, length)
    }

    pub(super) fn write(&self, wr_id: u64, length: u32) -> ibv_send_wr {
        self.remote(wr_id, IBV_WR_RDMA_WRITE, length)
    }

    /// Returns a Write or Read of the start of the memory of `b`.
    pub(super) fn remote(&self, wr_id: u64, opcode: u32, length: u32) -> ibv_send_wr {
        let mut wr = self.request(wr_id, opcode, length);
        // SAFETY: a valid region.
        wr.wr.rdma = ibv_wr_rdma { remote_addr: self.b.memory as u64, rkey: unsafe { (*self.b.mr).rkey } };
        wr
    }

    pub(super) fn atomic(&self, wr_id: u64, offset: u64) -> ibv_send_wr {
        let mut wr = self.request(wr_id, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
        wr.wr.atomic = ibv_wr_atomic {
            remote_addr: self.b.memory as u64 + offset,
            compare_add: 1,
            swap: 0,
            // SAFETY: a valid region.
            rkey: unsafe { (*self.b.mr).rkey },
        };
        wr
    }
}
