//! The main loop of a NIC: timers, sending, receiving, and sleeping.

use rnic_base::{Duration, Time};

use super::Nic;
use crate::cm::GsiNews;
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
    /// Unanswered requests for credit.
    Credit,
    /// Hello messages and their retransmissions.
    Hello,
    /// Probes to processes that have been silent.
    Keepalive,
    /// Messages of the connection manager, to be retransmitted or given up.
    Connections,
    /// Packets that impairment delays.
    Delayed,
}

impl Timer {
    /// All timers, in the order in which they are handled.
    const ALL: [Self; 6] = [Self::Engine, Self::Credit, Self::Hello, Self::Keepalive, Self::Connections, Self::Delayed];
}

impl Nic {
    /// Sends what is due, then receives a batch of what has arrived; returns whether any packet was sent or received.
    ///
    /// In this order, requests that a program posts in response to a completion are sent by the next call together with
    /// the acknowledgements of the same packets: one kernel crossing instead of two.
    pub fn progress(&mut self) -> bool {
        let now = self.device.clock.now();
        let gap = self.record_driven(now);
        for timer in Timer::ALL {
            if self.due(timer).is_some_and(|due| due <= now) {
                self.expire(timer, now, gap);
            }
        }
        // Acknowledgements of one or two packets that have just arrived wait for one more call, because the program may
        // be about to post something that they can be sent with. After more packets the other side is waiting for the
        // acknowledgements, so they are sent without delay.
        let waits = std::mem::take(&mut self.acks_may_wait) && !self.device.has_work();
        let sent = waits || self.flush(now);
        let before = self.device.engine.stats().packets_received;
        let received = self.receive(now);
        if !received {
            self.device.engine.note_caught_up();
        }
        let few = self.device.engine.stats().packets_received - before <= FEW_PACKETS;
        self.acks_may_wait = received && few && !waits;
        if std::mem::take(&mut self.device.link.has_answers) {
            // Peers wait for these responses.
            self.device.link.send_waiting(now);
        }
        if self.device.link.has_pending_errors {
            self.handle_late_errors(now);
        }
        self.connections.run(now, &mut self.device);
        if received || sent {
            self.presence.note_work();
        }
        received || sent
    }

    /// Wakes the sockets and the shared-memory path after a sleep; returns the time since the NIC was last driven.
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
        if absence > Duration::ZERO {
            self.device.engine.note_absence(now, absence);
            // Packets that arrived during the absence may also wait at quiet sockets.
            self.device.link.lanes.iter_mut().for_each(Lane::wake);
        }
        gap
    }

    /// Returns the time at which a timer expires, if it runs.
    #[inline]
    fn due(&self, timer: Timer) -> Option<Time> {
        match timer {
            Timer::Engine => self.device.engine.next_timeout(),
            Timer::Credit => self.device.link.credits.next_due(),
            Timer::Hello => self.device.link.hellos.next_due(),
            Timer::Keepalive => self.device.keepalive.next_due(),
            Timer::Connections => self.connections.next_due(),
            Timer::Delayed => self.device.link.next_due(),
        }
    }

    /// Handles a timer that has expired, given that the NIC was last driven `gap` ago.
    fn expire(&mut self, timer: Timer, now: Time, gap: Duration) {
        match timer {
            Timer::Engine => {
                if gap > LOOKED_LATELY {
                    self.catch_up(now);
                }
                self.device.engine.tick(now);
            }
            Timer::Credit => self.device.ask_again_for_credit(now),
            Timer::Hello => self.device.send_hellos(now),
            Timer::Keepalive => self.device.probe_silent(now),
            // `Connections::run` handles these after receiving, because a received message may be the response that
            // stops the timer.
            Timer::Connections => {}
            // `Link::send_waiting` sends these together with all other packets.
            Timer::Delayed => {}
        }
    }

    /// Receives what arrived while the NIC was not driven: acknowledgements among it arrived in time, and the packets
    /// that they acknowledge must not be taken for lost because the sockets were not read.
    #[cold]
    fn catch_up(&mut self, now: Time) {
        // Includes lanes that have been quiet.
        self.device.link.lanes.iter_mut().for_each(Lane::wake);
        for _ in 0..CATCH_UP_LOOKS {
            if !self.receive(now) {
                break;
            }
        }
    }

    /// Receives what has arrived, up to a budget; returns whether there was anything.
    #[inline]
    fn receive(&mut self, now: Time) -> bool {
        self.rx.receive_while_busy(now, &mut self.device, self.connections.manager())
    }

    /// Sends what is ready, up to a budget; returns whether anything was sent.
    #[inline]
    fn flush(&mut self, now: Time) -> bool {
        self.connections.send_messages(now, &mut self.device.link);
        self.device.flush(now)
    }

    /// Handles the errors that the network has reported about datagrams sent earlier.
    #[cold]
    fn handle_late_errors(&mut self, now: Time) {
        let Self { device, connections, .. } = self;
        for Unreachable { address, errno, quoted } in device.link.read_error_queue(now) {
            if let Some(gsi) = device.link.gsi.as_ref().filter(|gsi| gsi.is_managed()) {
                gsi.push(GsiNews::Unreachable(address, errno, quoted.to_vec()));
            }
            let cm = connections.manager();
            match cm.sender_of(address, &quoted) {
                Some(id) => cm.unreachable(now, id, errno),
                None if errno == libc::ECONNREFUSED => device.on_port_unreachable(now, address, &quoted),
                None => {}
            }
        }
    }

    /// Sleeps until a packet arrives, a timer expires, or `at_most` is over. Call it when [`Nic::progress`] has
    /// returned false and there is nothing else to do.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), NicError> {
        if self.wants_progress() {
            return Ok(());
        }
        let timeout = at_most.min(self.next_deadline().unwrap_or(Duration::MAX));
        if timeout == Duration::ZERO {
            return Ok(());
        }
        // Rounded up, because a wakeup before the deadline only causes a second one.
        let timeout_ns = timeout.as_ps().div_ceil(1_000);
        let failed = |error| NicError::System { doing: "waiting for packets", error };
        let held_up = self.device.link.is_held_by_kernel();
        let has_errors = sys::wait(&self.raw_fds(), Some(timeout_ns), held_up).map_err(failed)?;
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
        let is_held_up = self.device.link.is_held_up();
        if self.device.engine.has_packets() && !is_held_up {
            return Some(now);
        }
        let held_up_until = is_held_up.then(|| now + HELD_UP_WAIT);
        Timer::ALL.iter().filter_map(|timer| self.due(*timer)).chain(held_up_until).min()
    }

    /// Sends what has been posted, and does nothing else: for callers that post and will not call [`Nic::progress`]
    /// soon. Requests posted between two of these calls are sent together, which costs the kernel little more than one
    /// packet.
    #[inline]
    pub fn doorbell(&mut self) {
        let now = self.device.clock.now();
        self.flush(now);
    }

    /// Sends what is ready; returns whether there is more to do immediately. When not, and until the next call of
    /// [`Nic::progress`], everything that arrives makes one of [`Nic::raw_fds`] readable: only then may the caller
    /// sleep on them. Peers on this machine then pay a system call for waking this NIC, so call it only before
    /// sleeping; a caller that only wants to send uses [`Nic::doorbell`].
    pub fn wants_progress(&mut self) -> bool {
        let now = self.device.clock.now();
        // Packets received last may have made responses necessary.
        if self.flush(now) && !self.device.link.is_held_up() {
            return true;
        }
        let link = &mut self.device.link;
        // The caller may sleep on these sockets; the next call must poll all of them, because any of them may have
        // woken it.
        link.lanes.iter_mut().for_each(Lane::wake);
        let has_come = link.bypass.as_mut().is_some_and(|bypass| bypass.fall_asleep() && bypass.wake_up());
        if !has_come {
            let due = self.next_due(now);
            self.presence.sleep(due);
        }
        has_come
    }
}

/// Sockets that were read within this time contain no old packets: a timeout is a good deal longer.
const LOOKED_LATELY: Duration = Duration::from_us(20);

/// Maximum number of reads of the sockets before timeouts are processed: emptying a full receive buffer takes fewer.
const CATCH_UP_LOOKS: u32 = 256;

/// Number of packets that a program receives when it waits for a response: the response, and an acknowledgement of the
/// request.
const FEW_PACKETS: u64 = 2;

/// Sleep time when the kernel has no space for packets and does not report when it will: the queue of an interface
/// drains in less.
const HELD_UP_WAIT: Duration = Duration::from_us(500);
