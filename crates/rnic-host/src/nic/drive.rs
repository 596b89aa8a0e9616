//! The loop of a NIC: what is due, what leaves, what comes in, when to sleep.

use rnic_base::{Duration, Time};

use super::Nic;
use crate::cm::GsiNews;
use crate::error::NicError;
use crate::link::Unreachable;
use crate::link::lane::Lane;
use crate::presence::Return;
use crate::sys;

/// What a NIC does at a time that it has set itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    /// Timeouts and pacing of queue pairs.
    Engine,
    /// Requests for credit that nobody has answered.
    Credit,
    /// Hello messages, and their repeats.
    Hello,
    /// Probes to processes that have been silent.
    Liveness,
    /// Messages of the connection manager, to be sent again or given up.
    Connections,
    /// Packets that impairment delays.
    Delayed,
}

impl Timer {
    /// All of them, in the order in which they are acted on.
    const ALL: [Self; 6] = [Self::Engine, Self::Credit, Self::Hello, Self::Liveness, Self::Connections, Self::Delayed];
}

impl Nic {
    /// Sends what is due, then takes in a batch of what has arrived; answers whether anything moved.
    ///
    /// In this order, what a program posts in answer to a completion, and the acknowledgements that the same packets
    /// call for, leave together with the next call: one trip through the kernel instead of two.
    pub fn progress(&mut self) -> bool {
        let now = self.device.clock.now();
        let gap = self.come_back(now);
        for timer in Timer::ALL {
            if self.due(timer).is_some_and(|due| due <= now) {
                self.expire(timer, now, gap);
            }
        }
        // A packet or two that have just come in call for acknowledgements, which wait for one more call: the program
        // may be about to post something that they can leave with. After more than that the other side waits for them.
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
            // Peers wait for them.
            self.device.link.send_waiting(now);
        }
        if self.device.link.has_late_errors {
            self.handle_late_errors(now);
        }
        self.connections.run(now, &mut self.device);
        if received || sent {
            self.presence.note_work();
        }
        received || sent
    }

    /// Wakes what went to sleep with the NIC; answers how long ago it was driven last.
    #[inline]
    fn come_back(&mut self, now: Time) -> Duration {
        let link = &mut self.device.link;
        if let Some(bypass) = &mut link.bypass {
            let was_asleep = bypass.wake_up();
            if was_asleep {
                link.lanes.iter_mut().for_each(Lane::wake);
            }
            bypass.look_for_letters(now, was_asleep);
        }
        let Return { gap, absence } = self.presence.come_back(now);
        if absence > Duration::ZERO {
            self.device.engine.note_absence(now, absence);
            // Packets that arrived meanwhile wait at quiet sockets too.
            self.device.link.lanes.iter_mut().for_each(Lane::wake);
        }
        gap
    }

    /// Returns when a timer expires, if it runs.
    #[inline]
    fn due(&self, timer: Timer) -> Option<Time> {
        match timer {
            Timer::Engine => self.device.engine.next_timeout(),
            Timer::Credit => self.device.link.credits.next_due(),
            Timer::Hello => self.device.link.hellos.next_due(),
            Timer::Liveness => self.device.liveness.next_due(),
            Timer::Connections => self.connections.next_due(),
            Timer::Delayed => self.device.link.next_due(),
        }
    }

    /// Acts on a timer that has expired, when the NIC was driven last `gap` ago.
    fn expire(&mut self, timer: Timer, now: Time, gap: Duration) {
        match timer {
            Timer::Engine => {
                if gap > LOOKED_LATELY {
                    self.catch_up(now);
                }
                self.device.engine.tick(now);
            }
            Timer::Credit => self.device.ask_again_for_credit(now),
            Timer::Hello => self.device.say_hello(now),
            Timer::Liveness => self.device.probe_silent(now),
            // Behind what has come in, which may be the answer: `Connections::run`.
            Timer::Connections => {}
            // With everything else that leaves: `Link::send_waiting`.
            Timer::Delayed => {}
        }
    }

    /// Takes in what has come while nobody drove the NIC: acknowledgements among it were in time, and what they
    /// acknowledge is not to be taken for lost because they were not looked at.
    #[cold]
    fn catch_up(&mut self, now: Time) {
        // Those that were quiet, too.
        self.device.link.lanes.iter_mut().for_each(Lane::wake);
        for _ in 0..CATCH_UP_LOOKS {
            if !self.receive(now) {
                break;
            }
        }
    }

    /// Takes in what has arrived, up to a budget; answers whether there was anything.
    #[inline]
    fn receive(&mut self, now: Time) -> bool {
        self.rx.receive_while_busy(now, &mut self.device, self.connections.manager())
    }

    /// Sends what is ready, up to a budget; answers whether anything left.
    #[inline]
    fn flush(&mut self, now: Time) -> bool {
        self.connections.send_messages(now, &mut self.device.link);
        self.device.flush(now)
    }

    /// Acts on what the network has reported about datagrams sent earlier.
    #[cold]
    fn handle_late_errors(&mut self, now: Time) {
        let Self { device, connections, .. } = self;
        for Unreachable { address, errno, quoted } in device.link.heed_late_errors(now) {
            if let Some(gsi) = device.link.gsi.as_ref().filter(|gsi| gsi.is_managed()) {
                gsi.push(GsiNews::Unreachable(address, errno, quoted.to_vec()));
            }
            let cm = connections.manager();
            match cm.sender_of(address, &quoted) {
                Some(id) => cm.unreachable(now, id, errno),
                None if errno == libc::ECONNREFUSED => device.note_refusal(now, address, &quoted),
                None => {}
            }
        }
    }

    /// Sleeps until a packet arrives, something is due, or `at_most` is over. Call it when [`Nic::progress`] has
    /// answered false and there is nothing else to do.
    ///
    /// # Errors
    /// When the system does not let us wait.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), NicError> {
        if self.wants_progress() {
            return Ok(());
        }
        let timeout = at_most.min(self.next_deadline().unwrap_or(Duration::MAX));
        if timeout == Duration::ZERO {
            return Ok(());
        }
        // Rounded up: waking too early would only mean waking twice.
        let timeout_ns = timeout.as_ps().div_ceil(1_000);
        let failed = |error| NicError::System { doing: "waiting for packets", error };
        let held_up = self.device.link.is_held_by_kernel();
        let has_errors = sys::wait(&self.raw_fds(), Some(timeout_ns), held_up).map_err(failed)?;
        self.device.link.has_late_errors |= has_errors;
        self.device.link.lanes.iter_mut().for_each(Lane::wake);
        Ok(())
    }

    /// How long until [`Nic::progress`] has work even if nothing comes in; `None` when only packets can make some.
    pub fn next_deadline(&self) -> Option<Duration> {
        let now = self.device.clock.now();
        self.next_due(now).map(|due| due.since(now))
    }

    /// When [`Nic::progress`] has work, even if nothing comes in.
    fn next_due(&self, now: Time) -> Option<Time> {
        let is_held_up = self.device.link.is_held_up();
        if self.device.engine.has_packets() && !is_held_up {
            return Some(now);
        }
        let held_up_until = is_held_up.then(|| now + HELD_UP_WAIT);
        Timer::ALL.iter().filter_map(|timer| self.due(*timer)).chain(held_up_until).min()
    }

    /// Sends what has been posted, and nothing else: for whoever posts and will not call [`Nic::progress`] soon. What
    /// is posted between two of these calls leaves together, which costs the kernel little more than one packet.
    #[inline]
    pub fn doorbell(&mut self) {
        let now = self.device.clock.now();
        self.flush(now);
    }

    /// Sends what is ready; answers whether there is more to do at once. When not, and until the next call of
    /// [`Nic::progress`], whatever comes in makes one of [`Nic::raw_fds`] readable: only then may one sleep on them.
    /// Peers on this machine then pay a call of the kernel for waking this NIC, so it is for those who do sleep;
    /// whoever only wants to send calls [`Nic::doorbell`].
    pub fn wants_progress(&mut self) -> bool {
        let now = self.device.clock.now();
        // What was received last may have called for answers.
        if self.flush(now) && !self.device.link.is_held_up() {
            return true;
        }
        let link = &mut self.device.link;
        // Whoever comes back has been woken by one of them, perhaps.
        link.lanes.iter_mut().for_each(Lane::wake);
        let has_come = link.bypass.as_mut().is_some_and(|bypass| bypass.fall_asleep() && bypass.wake_up());
        if !has_come {
            let due = self.next_due(now);
            self.presence.sleep(due);
        }
        has_come
    }
}

/// Sockets that were read within this time have nothing old in them: a timeout is a good deal longer.
const LOOKED_LATELY: Duration = Duration::from_us(20);

/// Reads of the sockets before timeouts are believed, at most: a full receive buffer takes fewer.
const CATCH_UP_LOOKS: u32 = 256;

/// Packets that a program gets that waits for an answer: the answer, and an acknowledgement of the request.
const FEW_PACKETS: u64 = 2;

/// How long to sleep when the kernel has no room for packets and does not say when it will: a queue of an interface
/// drains in less.
const HELD_UP_WAIT: Duration = Duration::from_us(500);
