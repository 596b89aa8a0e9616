//! Set-up that all tests of these calls share.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use super::*;

pub(super) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Serialises tests that count the resources of the process.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    crate::event::lock(&ALONE)
}

pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "timed out while waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A fetched event, until it is acknowledged.
pub(super) struct Event(*mut rdma_cm_event);

impl Event {
    pub(super) fn id(&self) -> *mut rdma_cm_id {
        // SAFETY: the event is fetched and not acknowledged.
        unsafe { (*self.0).id }
    }

    pub(super) fn listener(&self) -> *mut rdma_cm_id {
        // SAFETY: as above.
        unsafe { (*self.0).listen_id }
    }

    pub(super) fn status(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (*self.0).status }
    }

    pub(super) fn conn(&self) -> rdma_conn_param {
        // SAFETY: as above; the caller knows which member of the union is valid.
        unsafe { (*self.0).param.conn }
    }

    /// # Safety
    /// The event must be one of a datagram service.
    pub(super) unsafe fn ud(&self) -> rdma_ud_param {
        // SAFETY: as above.
        unsafe { (*self.0).param.ud }
    }

    pub(super) fn data(&self) -> &[u8] {
        let conn = self.conn();
        // SAFETY: the event points to as many bytes as its length states.
        unsafe { std::slice::from_raw_parts(conn.private_data.cast(), conn.private_data_len.into()) }
    }

    pub(super) fn ud_data(&self) -> &[u8] {
        // SAFETY: the caller knows that it is an event of a datagram service, which points to as many bytes as its
        // length states.
        unsafe {
            let ud = self.ud();
            std::slice::from_raw_parts(ud.private_data.cast(), ud.private_data_len.into())
        }
    }

    pub(super) fn acknowledge(self) {
        // SAFETY: the event is acknowledged once, because this method consumes it.
        assert_eq!(unsafe { rdma_ack_cm_event(self.0) }, 0);
    }
}

/// An event channel.
pub(super) struct Bench {
    pub(super) channel: *mut rdma_event_channel,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: the tests have destroyed the identifiers of the channel.
        unsafe { rdma_destroy_event_channel(self.channel) };
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        Self { channel }
    }

    pub(super) fn id(&self, space: u32) -> *mut rdma_cm_id {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is valid.
        assert_eq!(unsafe { rdma_create_id(self.channel, &raw mut id, ptr::null_mut(), space) }, 0);
        id
    }

    pub(super) fn is_readable(&self) -> bool {
        self.becomes_readable(0)
    }

    pub(super) fn becomes_readable(&self, within_ms: c_int) -> bool {
        // SAFETY: the channel is valid; one structure, which outlives the call.
        unsafe {
            let mut poll = libc::pollfd { fd: (*self.channel).fd, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut poll, 1, within_ms) == 1
        }
    }

    /// Returns the next event, which must be of this kind.
    pub(super) fn next(&self, kind: u32) -> Event {
        assert!(self.becomes_readable(20_000), "timed out while waiting for event {kind}");
        let event = self.fetch().expect("an event is queued");
        // SAFETY: the event was fetched above.
        assert_eq!(unsafe { (*event.0).event }, kind, "with status {}", event.status());
        event
    }

    pub(super) fn fetch(&self) -> Result<Event, c_int> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is valid.
        match unsafe { rdma_get_cm_event(self.channel, &raw mut event) } {
            0 => Ok(Event(event)),
            _ => Err(errno()),
        }
    }

    /// Moves an identifier to this channel.
    pub(super) fn take(&self, id: *mut rdma_cm_id) -> c_int {
        // SAFETY: both are valid.
        unsafe { rdma_migrate_id(id, self.channel) }
    }

    pub(super) fn bind(&self, id: *mut rdma_cm_id, host: &str, port: u16) -> c_int {
        let mut address = super::super::address::write(socket_address(host, port));
        // SAFETY: both are valid.
        unsafe { rdma_bind_addr(id, (&raw mut address).cast()) }
    }

    /// Returns an identifier that listens on a port chosen by the kernel.
    pub(super) fn listen(&self, host: &str, space: u32, backlog: c_int) -> (*mut rdma_cm_id, u16) {
        let id = self.id(space);
        assert_eq!(self.bind(id, host, 0), 0, "{host}: {}", errno());
        // SAFETY: the identifier is valid.
        unsafe {
            assert_eq!(rdma_listen(id, backlog), 0);
            (id, u16::from_be(rdma_get_src_port(id)))
        }
    }

    pub(super) fn start_resolving(&self, id: *mut rdma_cm_id, host: &str, port: u16) {
        let mut to = super::super::address::write(socket_address(host, port));
        // SAFETY: both are valid.
        assert_eq!(unsafe { rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 100) }, 0);
    }

    /// Returns an identifier with resolved address and route.
    pub(super) fn resolved(&self, host: &str, port: u16, space: u32) -> *mut rdma_cm_id {
        let id = self.id(space);
        self.start_resolving(id, host, port);
        self.next(RDMA_CM_EVENT_ADDR_RESOLVED).acknowledge();
        // SAFETY: the identifier is valid.
        assert_eq!(unsafe { rdma_resolve_route(id, 100) }, 0);
        self.next(RDMA_CM_EVENT_ROUTE_RESOLVED).acknowledge();
        // SAFETY: the identifier is valid.
        unsafe { assert!((*id).route.num_paths == 1 && !(*id).verbs.is_null()) };
        id
    }

    pub(super) fn make_qp(&self, id: *mut rdma_cm_id, qp_type: u32) {
        let mut wish = qp_attributes(qp_type);
        // SAFETY: the identifier is valid.
        assert_eq!(unsafe { rdma_create_qp(id, ptr::null_mut(), &raw mut wish) }, 0, "{}", errno());
    }

    pub(super) fn destroy(&self, ids: &[*mut rdma_cm_id]) {
        for id in ids {
            // SAFETY: the test no longer uses them.
            unsafe {
                rdma_destroy_qp(*id);
                assert_eq!(rdma_destroy_id(*id), 0);
            }
        }
    }
}

// The calls, for valid identifiers, which are the only ones in tests.

pub(super) fn source_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the identifier is valid.
    u16::from_be(unsafe { rdma_get_src_port(id) })
}

pub(super) fn destination_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the identifier is valid.
    u16::from_be(unsafe { rdma_get_dst_port(id) })
}

pub(super) fn qp_num(id: *mut rdma_cm_id) -> u32 {
    // SAFETY: the identifier is valid and has a queue pair.
    unsafe { (*(*id).qp).qp_num }
}

pub(super) fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the identifier is valid.
    unsafe { rdma_listen(id, backlog) }
}

pub(super) fn establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the identifier is valid.
    unsafe { super::super::connect::rdma_establish(id) }
}

pub(super) fn disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the identifier is valid.
    unsafe { rdma_disconnect(id) }
}

pub(super) fn destroy(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the identifier is valid, and destroyed once.
    unsafe { rdma_destroy_id(id) }
}

pub(super) fn reject(id: *mut rdma_cm_id, data: &[u8]) -> c_int {
    // SAFETY: the identifier is valid, and the data outlives the call.
    unsafe { rdma_reject(id, data.as_ptr().cast(), data.len() as u8) }
}

pub(super) fn socket_address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse::<IpAddr>().expect("an address"), port)
}

pub(super) fn qp_attributes(qp_type: u32) -> ibv_qp_init_attr {
    // SAFETY: zeros are legal attributes.
    let mut attributes: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    attributes.cap =
        ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    (attributes.qp_type, attributes.sq_sig_all) = (qp_type, 1);
    attributes
}

fn param(data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u8,
        responder_resources: 5,
        initiator_depth: 3,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

pub(super) fn connect(id: *mut rdma_cm_id, data: &[u8]) -> c_int {
    // SAFETY: the identifier is valid, and the data outlives the call.
    unsafe { rdma_connect(id, &raw mut *Box::leak(Box::new(param(data)))) }
}

/// Connects with `retries` RNR retries.
pub(super) fn connect_retrying(id: *mut rdma_cm_id, retries: u8) -> c_int {
    let mut param = rdma_conn_param { rnr_retry_count: retries, ..param(b"") };
    // SAFETY: the identifier is valid, and the data outlives the call.
    unsafe { rdma_connect(id, &raw mut param) }
}

/// Connects as programs that manage their queue pairs themselves do.
pub(super) fn connect_without_qp(id: *mut rdma_cm_id, qp_num: u32) -> c_int {
    let mut param = rdma_conn_param { qp_num, ..param(b"") };
    // SAFETY: the identifier is valid, and the data outlives the call.
    unsafe { rdma_connect(id, &raw mut param) }
}

pub(super) fn accept(id: *mut rdma_cm_id, data: &[u8]) -> c_int {
    let mut param = rdma_conn_param { responder_resources: 2, initiator_depth: 2, ..param(data) };
    // SAFETY: the identifier is valid, and the data outlives the call.
    unsafe { rdma_accept(id, &raw mut param) }
}

/// Sends a message in each direction and checks it.
pub(super) fn exchange(one: *mut rdma_cm_id, other: *mut rdma_cm_id) {
    message(one, other, Duration::ZERO);
    message(other, one, Duration::ZERO);
}

/// Sends a message and checks it; the receive is posted the time `late` after it, or before it if `late` is zero.
pub(super) fn message(from: *mut rdma_cm_id, to: *mut rdma_cm_id, late: Duration) {
    // SAFETY: both identifiers have a protection domain and a connected queue pair; the buffers outlive the requests.
    unsafe {
        let mut bytes = [[0u8; 64]; 2];
        bytes[0].fill(0x5a);
        let memory = bytes.as_mut_ptr().cast::<c_void>();
        let register = |id: *mut rdma_cm_id| {
            let region = crate::mr::ibv_reg_mr((*id).pd, memory, 128, IBV_ACCESS_LOCAL_WRITE.cast_signed());
            assert!(!region.is_null());
            region
        };
        let (region, their_region) = (register(from), register(to));
        let base = memory as u64;
        let ops = &(*(*from).verbs).ops;
        let mut into = ibv_sge { addr: base + 64, length: 64, lkey: (*their_region).lkey };
        let mut receive = ibv_recv_wr { wr_id: 1, next: ptr::null_mut(), sg_list: &raw mut into, num_sge: 1 };
        let mut bad_receive = ptr::null_mut();
        let mut post_receive =
            || assert_eq!(ops.post_recv.expect("set")((*to).qp, &raw mut receive, &raw mut bad_receive), 0);
        let is_late = late > Duration::ZERO;
        if !is_late {
            post_receive();
        }
        let mut out = ibv_sge { addr: base, length: 64, lkey: (*region).lkey };
        let mut send: ibv_send_wr = std::mem::zeroed();
        (send.wr_id, send.sg_list, send.num_sge) = (2, &raw mut out, 1);
        (send.opcode, send.send_flags) = (IBV_WR_SEND, IBV_SEND_SIGNALED);
        let mut bad_send = ptr::null_mut();
        assert_eq!(ops.post_send.expect("set")((*from).qp, &raw mut send, &raw mut bad_send), 0);
        if is_late {
            std::thread::sleep(late);
            post_receive();
        }
        let poll = ops.poll_cq.expect("set");
        for (queue, what) in [((*to).recv_cq, "a receive"), ((*from).send_cq, "a send")] {
            let mut completion = ibv_wc::default();
            wait_for(what, || poll(queue, 1, &raw mut completion) == 1);
            assert_eq!(completion.status, IBV_WC_SUCCESS, "{what}");
        }
        assert_eq!(std::ptr::read_volatile(&raw const bytes[1]), [0x5a; 64]);
        assert_eq!(crate::mr::ibv_dereg_mr(region), 0);
        assert_eq!(crate::mr::ibv_dereg_mr(their_region), 0);
    }
}
