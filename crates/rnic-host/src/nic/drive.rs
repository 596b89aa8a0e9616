//! The main loop of a NIC: timers, sending, receiving, and sleeping.

use rnic_base::{Duration, Time};

use super::Nic;
use crate::cm::GsiItem;
use crate::error::NicError;
use crate::link::Unreachable;
use crate::link::lane::Lane;
use crate::presence::DriveGap;
use crate::sys;

/// Timers of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    /// Timeouts and pacing of queue pairs.
    Engine,
    /// Credit requests to which no response has arrived.
    Credit,
    /// Hello messages and their retransmissions.
    Hello,
    /// Probes of processes from which no packets arrive.
    Keepalive,
    /// Messages of the connection manager that must be retransmitted or abandoned.
    Connections,
    /// Packets that are delayed by impairment or by the shared link.
    Delayed,
    /// Packets of the engine that wait for space in the queue of the shared link.
    SharedLink,
    /// Update of this NIC's entry in the shared page, and of its share.
    Share,
}

impl Timer {
    /// All timers of a NIC, in the order in which they are handled.
    const ALL: [Self; 8] = [
        Self::Engine,
        Self::Credit,
        Self::Hello,
        Self::Keepalive,
        Self::Connections,
        Self::Delayed,
        Self::SharedLink,
        Self::Share,
    ];
}

impl Nic {
    /// Sends what is due, then receives a batch of arrived packets; returns whether any packet was sent or received.
    ///
    /// Because of this order, requests that a program posts in response to a completion are sent by the next call
    /// together with the acknowledgements of the packets that caused the completion: in one system call instead of
    /// two.
    pub fn progress(&mut self) -> bool {
        let now = self.device.clock.now();
        let gap = self.record_driven(now);
        self.device.apply_hint(now);
        for timer in Timer::ALL {
            if self.due(timer).is_some_and(|due| due <= now) {
                self.expire(timer, now, gap);
            }
        }
        // If only one or two packets have arrived, their acknowledgements are sent in the next call, because the
        // program may be about to post requests with which they can be sent. After more packets the other side may be
        // waiting for the acknowledgements, so they are sent without delay.
        let acks_wait = std::mem::take(&mut self.acks_may_wait) && !self.device.has_work();
        let sent = acks_wait || self.flush(now);
        if self.device.capacity.is_some() {
            self.device.end_turn(!acks_wait);
        }
        let packets_before = self.device.engine.stats().packets_received;
        let received = self.receive(now);
        if !received {
            self.device.engine.note_caught_up();
        }
        if self.device.has_messages() {
            // Probes are answered before data is sent.
            self.device.send_messages(now);
        }
        if received {
            self.device.report_backlog(now);
        }
        let received_few = self.device.engine.stats().packets_received - packets_before <= LATENCY_PACKETS_MAX;
        self.acks_may_wait = received && received_few && !acks_wait;
        if std::mem::take(&mut self.device.link.has_responses) {
            // Peers wait for these responses.
            self.device.link.send_waiting(now);
        }
        if self.device.link.has_pending_errors {
            self.handle_deferred_errors(now);
        }
        self.connections.run(now, &mut self.device);
        if let Some(host) = &mut self.device.host {
            host.note_call(now, received || sent);
        }
        if received || sent {
            self.presence.note_work();
        }
        received || sent
    }

    /// Records that the NIC is driven, and after a sleep marks all sockets and the shared-memory path to be polled;
    /// returns the time since the NIC was last driven.
    #[inline]
    fn record_driven(&mut self, now: Time) -> Duration {
        let link = &mut self.device.link;
        if let Some(bypass) = &mut link.bypass {
            let was_asleep = bypass.wake_up();
            if was_asleep {
                link.lanes.iter_mut().for_each(Lane::wake);
            }
            bypass.poll_control_socket(now, was_asleep);
        }
        let DriveGap { gap, absence } = self.presence.record_driven(now);
        if self.device.capacity.is_some() {
            self.device.begin_turn(now);
        }
        if absence > Duration::ZERO {
            self.device.engine.note_absence(now, absence);
            // Packets that arrived during the absence may also wait at sockets that are polled less often.
            self.device.link.lanes.iter_mut().for_each(Lane::wake);
        }
        gap
    }

    /// Returns the time at which a timer expires, if it is running.
    #[inline]
    fn due(&self, timer: Timer) -> Option<Time> {
        match timer {
            Timer::Engine => self.device.engine.next_timeout(),
            Timer::Credit => self.device.link.credits.next_due(),
            Timer::Hello => self.device.link.hellos.next_due(),
            Timer::Keepalive => self.device.keepalive.next_due(),
            Timer::Connections => self.connections.next_due(),
            Timer::Delayed => self.device.link.next_due(),
            Timer::SharedLink => self.device.link.share.as_ref().and_then(|share| share.full_until()),
            Timer::Share => self.device.link.share.as_ref().map(|share| share.next_update()),
        }
    }

    /// Handles a timer that has expired; `gap` is the time since the NIC was last driven.
    fn expire(&mut self, timer: Timer, now: Time, gap: Duration) {
        match timer {
            Timer::Engine => {
                if gap > SOCKET_FRESH {
                    self.catch_up(now);
                }
                self.device.engine.tick(now);
            }
            Timer::Credit => self.device.retry_credit_requests(now),
            Timer::Hello => self.device.send_hellos(now),
            Timer::Keepalive => self.device.probe_silent(now),
            // `Connections::run` handles these after receiving, because a received message may be the response that
            // stops the timer.
            Timer::Connections => {}
            // `Device::flush` sends these together with all other packets.
            Timer::Delayed | Timer::SharedLink => {}
            Timer::Share => self.device.update_share(now),
        }
    }

    /// Receives the packets that arrived while the NIC was not driven. They arrived in time, so packets that they
    /// acknowledge must not be treated as lost only because the sockets were not read.
    #[cold]
    fn catch_up(&mut self, now: Time) {
        // This includes lanes that are polled less often.
        self.device.link.lanes.iter_mut().for_each(Lane::wake);
        for _ in 0..CATCH_UP_READS_MAX {
            if !self.receive(now) {
                break;
            }
        }
    }

    /// Receives the packets that have arrived, up to a budget; returns whether there were any.
    #[inline]
    fn receive(&mut self, now: Time) -> bool {
        self.rx.receive_while_busy(now, &mut self.device, self.connections.manager())
    }

    /// Sends the packets that are ready, up to a budget; returns whether any was sent.
    #[inline]
    fn flush(&mut self, now: Time) -> bool {
        self.connections.send_messages(now, &mut self.device.link);
        self.device.flush(now)
    }

    /// Handles the errors that the network has reported about datagrams that were sent earlier.
    #[cold]
    fn handle_deferred_errors(&mut self, now: Time) {
        let Self { device, connections, .. } = self;
        for Unreachable { address, errno, quoted } in device.link.read_error_queue(now) {
            if let Some(gsi) = device.link.gsi.as_ref().filter(|gsi| gsi.is_managed()) {
                gsi.push(GsiItem::Unreachable(address, errno, quoted.to_vec()));
            }
            let cm = connections.manager();
            match cm.sender_of(address, &quoted) {
                Some(id) => cm.unreachable(now, id, errno),
                None if errno == libc::ECONNREFUSED => device.on_port_unreachable(now, address, &quoted),
                None => {}
            }
        }
    }

    /// Sleeps until a packet arrives, a timer expires, or the time `timeout_max` has passed. Call this when
    /// [`Nic::progress`] has returned false and the caller has no other work.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn wait(&mut self, timeout_max: Duration) -> Result<(), NicError> {
        if self.wants_progress() {
            return Ok(());
        }
        let timeout = timeout_max.min(self.next_deadline().unwrap_or(Duration::MAX));
        if timeout == Duration::ZERO {
            return Ok(());
        }
        // The time is rounded up, because a wakeup just before the deadline would require a second one.
        let timeout_ns = timeout.as_ps().div_ceil(1_000);
        let failed = |error| NicError::System { doing: "waiting for packets", error };
        let is_blocked_by_kernel = self.device.link.is_blocked_by_kernel();
        let has_errors = sys::wait(&self.raw_fds(), Some(timeout_ns), is_blocked_by_kernel).map_err(failed)?;
        self.device.link.has_pending_errors |= has_errors;
        self.device.link.lanes.iter_mut().for_each(Lane::wake);
        Ok(())
    }

    /// Returns the time until [`Nic::progress`] has work even if no packet arrives; `None` when only arriving packets
    /// can cause work.
    pub fn next_deadline(&self) -> Option<Duration> {
        let now = self.device.clock.now();
        self.next_due(now).map(|due| due.since(now))
    }

    /// Returns the time at which [`Nic::progress`] has work even if no packet arrives.
    fn next_due(&self, now: Time) -> Option<Time> {
        let link = &self.device.link;
        if self.device.engine.has_packets() && !link.is_blocked() {
            return Some(now);
        }
        let blocked_until = link.is_blocked_on_space().then(|| now + SEND_SPACE_POLL);
        Timer::ALL.iter().filter_map(|timer| self.due(*timer)).chain(blocked_until).min()
    }

    /// Sends what has been posted, and does no other work: for callers that post requests and will not call
    /// [`Nic::progress`] soon. Requests posted between two of these calls are sent together, which costs the kernel
    /// little more than one packet.
    #[inline]
    pub fn doorbell(&mut self) {
        let now = self.device.clock.now();
        self.device.apply_hint(now);
        self.flush(now);
    }

    /// Sends what is ready; returns whether there is more work to do immediately. If not, every packet that arrives
    /// before the next call of [`Nic::progress`] makes one of [`Nic::raw_fds`] readable, so the caller may sleep on
    /// them; it must not do so otherwise. Meanwhile, peers on this machine need a system call to wake this NIC, so
    /// call this only before sleeping; a caller that only wants to send uses [`Nic::doorbell`].
    pub fn wants_progress(&mut self) -> bool {
        let now = self.device.clock.now();
        // The packets received last may require responses.
        if self.flush(now) && !self.device.link.is_blocked() {
            return true;
        }
        let link = &mut self.device.link;
        // The caller may sleep on these sockets; the next call must poll all of them, because any of them may have
        // woken it.
        link.lanes.iter_mut().for_each(Lane::wake);
        let has_arrived = link.bypass.as_mut().is_some_and(|bypass| bypass.announce_sleep() && bypass.wake_up());
        if !has_arrived {
            let due = self.next_due(now);
            self.presence.sleep(due);
        }
        has_arrived
    }
}

/// If the sockets were read within this time, they are not read again before timeouts are processed: a timeout is
/// considerably longer, so no packet has been waiting for as long as that.
const SOCKET_FRESH: Duration = Duration::from_us(20);

/// Maximum number of reads of the sockets before timeouts are processed: emptying a full receive buffer needs fewer.
const CATCH_UP_READS_MAX: u32 = 256;

/// Number of packets that arrive together for a program that waits for a response: the response, and an
/// acknowledgement of the request.
const LATENCY_PACKETS_MAX: u64 = 2;

/// Sleep time if the kernel has no space for packets and does not report when there will be: the queue of an
/// interface drains in less time.
const SEND_SPACE_POLL: Duration = Duration::from_us(500);
