//! A simulation driven by its caller, which creates queue pairs, posts work and advances time; and the capture of its
//! packets.
//!
//! Tests of verbs semantics use the fabric in this way: the program that posts work, advances time and polls is the
//! same as on real sockets, but time is simulated. Work posted between two calls of [`Simulation::advance`] is posted
//! at [`Simulation::now`].

use core::any::Any;
use std::io::Write;

use rnic_base::Time;
use rnic_engine::{Completion, Engine, PdId, PostError, RecvRequest, SendRequest};
use rnic_wire::Qpn;
use rnic_wire::pcap::{self, CaptureError};

use super::Simulation;
use super::connect::QueueSizes;
use crate::calendar::NEVER;
use crate::endpoint::Endpoint;
use crate::host::memory::{Block, Memory};
use crate::host::{Host, MANUAL_WORK, attached};

/// Queue sizes of a queue pair created by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairSpec {
    /// Entries of the send queue.
    pub sends: u32,
    /// Entries of the receive queue.
    pub receives: u32,
    /// Scatter/gather entries of each work request.
    pub sges: u32,
}

impl From<QueuePairSpec> for QueueSizes {
    fn from(spec: QueuePairSpec) -> Self {
        Self { sends: spec.sends, receives: spec.receives, sges: spec.sges }
    }
}

impl Simulation {
    /// Returns the simulated time: all events before it have been processed.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Connects two hosts by a queue pair at each.
    ///
    /// # Panics
    /// When a host does not exist, or a size is out of range.
    pub fn connect_manually(&mut self, host_a: u32, host_b: u32, spec: QueuePairSpec) -> (Qpn, Qpn) {
        self.connect(self.now, (host_a, spec.into()), (host_b, spec.into()))
    }

    /// Posts a send request now. Its number must be below [`MANUAL_WORK`].
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    pub fn post_send(&mut self, host: u32, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        let marked = SendRequest { wr_id: request.wr_id | MANUAL_WORK, ..*request };
        let node = self.parts.host_mut(host);
        node.engine.post_send(qpn, &marked)?;
        let wake = node.schedule_wake(self.now);
        self.parts.lower(host, wake);
        Ok(())
    }

    /// Posts a receive now. Its number must be below [`MANUAL_WORK`].
    ///
    /// # Errors
    /// As [`Engine::post_recv`].
    pub fn post_recv(&mut self, host: u32, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let marked = RecvRequest { wr_id: request.wr_id | MANUAL_WORK, ..*request };
        self.parts.host_mut(host).engine.post_recv(qpn, &marked)
    }

    /// Returns the next completion of work posted by the caller at `host`, and its time.
    pub fn poll(&mut self, host: u32) -> Option<(Time, Completion)> {
        let (at, completion) = self.parts.host_mut(host).manual_completions.pop_front()?;
        Some((at, Completion { wr_id: completion.wr_id & !MANUAL_WORK, ..completion }))
    }

    /// Advances time to `until`, or, if that is earlier, to the time at which a completion is available at any host.
    /// Returns whether there is one.
    pub fn advance(&mut self, until: Time) -> bool {
        loop {
            if self.parts.hosts().any(Host::has_manual_completions) {
                return true;
            }
            let next = self.next_event();
            if next == NEVER || next >= until {
                self.now = self.now.max(until);
                return false;
            }
            self.window(next);
        }
    }

    /// Returns whether there are no more events: the state does not change until the caller posts work.
    pub fn is_idle(&self) -> bool {
        self.next_event() == NEVER
    }

    /// Returns the engine of `host`, for queries.
    pub fn engine(&self, host: u32) -> &Engine {
        &self.parts.host(host).engine
    }

    /// Calls `action` with the engine of `host` and the present time: for queue pairs, completion queues and keys that
    /// differ from those of [`Simulation::connect_manually`]. Completion queues created by `action` have to be polled
    /// in the same way; [`Simulation::advance`] does not poll them.
    pub fn with_engine<T>(&mut self, host: u32, action: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let node = self.parts.host_mut(host);
        let result = action(&mut node.engine, self.now);
        let wake = node.schedule_wake(self.now);
        self.parts.lower(host, wake);
        result
    }

    /// Returns the protection domain of the memory of `host`.
    pub fn protection_domain(&self, host: u32) -> PdId {
        self.parts.host(host).pd
    }

    /// Connects `endpoint` to the link of `host`, in place of the host's engine.
    ///
    /// # Panics
    /// When packets carry bytes in this plan: those of endpoints have none.
    pub fn attach(&mut self, host: u32, endpoint: Box<dyn Endpoint>) {
        assert!(!self.plan.encoded && !self.plan.checked_payload, "endpoints exchange headers alone");
        let node = self.parts.host_mut(host);
        attached::attach(node, endpoint);
        let wake = node.schedule_wake(self.now);
        self.parts.lower(host, wake);
    }

    /// Returns the endpoint that is connected to the link of `host`, if it is a `T`.
    pub fn endpoint<T: Endpoint>(&self, host: u32) -> Option<&T> {
        let endpoint: &dyn Any = attached::endpoint(self.parts.host(host))?;
        endpoint.downcast_ref()
    }

    /// Disables all fault rules of the plan from now on. Packets in flight are not changed.
    pub fn end_faults(&mut self) {
        self.parts.hosts_mut().for_each(|host| host.port.end_faults());
        self.parts.switches_mut().for_each(crate::switch::Switch::end_faults);
    }

    /// Allocates and registers memory at `host`; returns its block, and the address and key for work requests.
    ///
    /// # Panics
    /// When the plan does not check payload: hosts have no memory then.
    pub fn allocate(&mut self, host: u32, len: u64) -> (Block, u64, u32) {
        let host = self.parts.host_mut(host);
        let memory = host.memory.as_mut().expect("the plan checks payload");
        let used_before = memory.used();
        let block = memory.allocate(len);
        host.caller_memory_bytes += memory.used() - used_before;
        let (addr, key) = host.register(block);
        (block, addr, key.0)
    }

    /// Returns the memory of `host`.
    ///
    /// # Panics
    /// When the plan does not check payload.
    pub fn memory(&mut self, host: u32) -> &mut Memory {
        self.parts.host_mut(host).memory.as_mut().expect("the plan checks payload")
    }

    /// Writes every packet that a host sends to `output`, as a capture. This requires encoding each packet.
    ///
    /// # Errors
    /// When the header of the capture cannot be written.
    pub fn capture_to(&mut self, output: impl Write + Send + 'static) -> Result<(), CaptureError> {
        self.capture = Some(Box::new(Capture { inner: pcap::Capture::new(output)?, failed: None }));
        for host in self.parts.hosts_mut() {
            host.start_capture();
        }
        Ok(())
    }

    /// Writes the packets sent in this window, in order of time.
    pub(super) fn write_capture(&mut self) {
        let Some(capture) = &mut self.capture else { return };
        let mut sent: Vec<_> = self.parts.hosts_mut().flat_map(Host::take_captured).collect();
        sent.sort_by_key(|packet| packet.at);
        for packet in sent {
            capture.write(&packet);
        }
    }

    /// Returns the reason why the capture could not be written, if writing it has failed; no more packets are
    /// captured then.
    pub fn capture_failure(&self) -> Option<&CaptureError> {
        self.capture.as_ref()?.failure()
    }
}

/// A capture that is being written to an output.
pub struct Capture<W: Write> {
    inner: pcap::Capture<W>,
    failed: Option<CaptureError>,
}

/// A [`Capture`] with any type of output.
pub(super) trait CaptureSink: Send {
    fn write(&mut self, packet: &crate::host::Captured);
    fn failure(&self) -> Option<&CaptureError>;
}

impl<W: Write + Send> CaptureSink for Capture<W> {
    fn write(&mut self, packet: &crate::host::Captured) {
        if self.failed.is_none() {
            self.failed = self.inner.write_with(packet.at, &packet.addresses, packet.fields, &packet.datagram).err();
        }
    }

    fn failure(&self) -> Option<&CaptureError> {
        self.failed.as_ref()
    }
}
