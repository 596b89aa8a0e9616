//! The sending end: outstanding packets, packets to retransmit, and the retransmission timer.
//!
//! This is Tonic's fixed function (section 3.2): it moves the cumulative acknowledgement, records selective ones,
//! returns marked packets in ascending order, and runs one timer. The recovery policy decides which packets to mark.
//!
//! Packets to retransmit are recorded in one of two ways: a *cursor*, when every packet from it on is to be
//! retransmitted (go-back-N, with no bound on the packets in flight), or *marks*, a bitmap parallel to that of the
//! selective acknowledgements. The bitmaps are allocated when the first loss is reported: an idle window, or one
//! without losses, has none.

mod measured;

use std::collections::VecDeque;

use rnic_base::{AnyRing, BitRate, Duration, Seq, SeqRange, Time};
use rnic_policy::recovery::Interest;
use rnic_policy::{PolicyState, RecoveryActions, RecoveryEvent, TimerChange, WindowView};

use super::limit::Limit;
use super::pool::{Bits, Lost};
use super::timing::{Expiry, TimeoutConditions, Timing};
use crate::timer::Deadline;
use crate::transport::{NO_WINDOW, Transport};

/// Result of a timeout check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeoutVerdict {
    /// The timer is not due, or no packet is outstanding.
    NotDue,
    /// The timer was restarted with an extended wait.
    Extended,
    /// One or two packets are to be sent as probes, to obtain a response from the peer.
    Probe,
    /// The recovery policy was notified of the timeout and has marked packets for retransmission.
    Acted,
    /// No response was received from the peer for too long.
    PeerUnresponsive,
}

/// The sending end of one sequence space.
#[derive(Debug)]
pub(crate) struct SendWindow {
    /// The oldest packet that is not cumulatively acknowledged.
    pub(crate) una: Seq,
    /// The next packet to be sent for the first time.
    pub(crate) next: Seq,
    /// All packets from this one up to `next` are to be retransmitted; equal to `next` when there are none.
    cursor: Seq,
    marks: Option<Box<Marks>>,
    /// State of the recovery policy; allocated at its first use.
    recovery: Option<Box<Recovery>>,
    /// Duration of the timer; [`Duration::MAX`] when this transport has no timeout.
    rto: Duration,
    pub(crate) deadline: Deadline,
    extended: bool,
    /// Last value reported by the policy; see [`RecoveryActions::recovering`].
    recovering: bool,
    /// Set while packets wait to be sent as probes.
    probing: bool,
    /// Set when any response has been received since the last timeout, even one without new information.
    response_seen: bool,
    /// Set while the timeout is longer than the one derived from measurements.
    backs_off: bool,
    /// Limit on the packets in the path, if one has been found.
    limit: Limit,
    /// Maximum number of packets in flight, counted from `una`, at most 255, as set by a transport program;
    /// [`NO_WINDOW`] without one. A byte, so that windows have no padding.
    window: u8,
}

/// State that only recovery needs.
#[derive(Debug)]
struct Recovery {
    policy: PolicyState,
    /// The packet being timed and its send time: never a retransmitted packet (Karn), unless congestion control
    /// requests it.
    timed: Option<(Seq, Time)>,
    /// Ranges to be retransmitted that are being fetched from memory, each with the time when that is finished, in
    /// order of time.
    fetching: VecDeque<(SeqRange, Time)>,
    /// Timeout state, when timeouts are based on measured round trips.
    timing: Option<Box<Timing>>,
    /// Settings of a transport program, if one is used instead of a policy.
    program: Option<Box<ProgramSettings>>,
}

/// Settings of a window by a transport program, besides its packets and its timer.
#[derive(Debug)]
struct ProgramSettings {
    /// Rate of the sender; `None` for the rate of the link.
    rate: Option<BitRate>,
    /// Time of the next [`RecoveryEvent::Tick`].
    tick: Deadline,
    /// Number of packets retransmitted.
    repeats: u64,
    /// True from the time at which the program was replaced until that is counted.
    replaced: bool,
    /// Deadline of the timer before the last acknowledgement, and whether it had been extended.
    timer_before: (Deadline, bool),
}

/// Bitmaps by offset from `una`.
#[derive(Debug)]
struct Marks {
    /// Selectively acknowledged packets; `None` when they are recorded in the pool.
    sacked: Option<AnyRing>,
    marked: AnyRing,
    /// Highest packet selectively acknowledged so far.
    highest: Seq,
}

impl SendWindow {
    /// Creates a window whose first packet is `start`.
    pub(crate) fn new(start: Seq, transport: &Transport) -> Self {
        let recovery = &transport.profile.recovery;
        Self {
            una: start,
            next: start,
            cursor: start,
            marks: None,
            recovery: None,
            rto: recovery.policy.first_timeout(&transport.recovery_words).unwrap_or(Duration::MAX),
            deadline: Deadline::NEVER,
            extended: false,
            recovering: transport.program.starts_recovering,
            probing: false,
            response_seen: false,
            backs_off: false,
            limit: Limit::NONE,
            window: transport.program.window,
        }
    }

    /// Returns the number of packets that may be sent within the limit of the path and the window of a transport
    /// program; `None` if neither exists.
    #[inline]
    pub(crate) fn remaining_limit(&self) -> Option<u64> {
        let by_path = self.remaining_path_limit();
        if self.window == NO_WINDOW { by_path } else { Some(self.remaining_window(by_path)) }
    }

    #[cold]
    fn remaining_window(&self, by_path: Option<u64>) -> u64 {
        u64::from(self.window).saturating_sub(self.in_flight()).min(by_path.unwrap_or(u64::MAX))
    }

    #[inline]
    fn remaining_path_limit(&self) -> Option<u64> {
        self.limit.packets().map(|limit| limit.saturating_sub(self.pipe()))
    }

    /// Returns whether the retransmission of `seq` has to wait, because the path's limit is reached or `seq` is outside
    /// the window set by the transport program. Probes never wait.
    #[inline]
    pub(crate) fn blocks_retransmission(&self, seq: Seq) -> bool {
        let is_beyond = self.window != NO_WINDOW && seq.since(self.una) >= self.window.into();
        !self.probing && (self.remaining_path_limit() == Some(0) || is_beyond)
    }

    /// Returns the window of a program.
    pub(crate) fn program_window(&self) -> Option<u64> {
        (self.window != NO_WINDOW).then(|| self.window.into())
    }

    /// Returns the rate that a program has set; `None` for the rate of the link.
    pub(crate) fn program_rate(&self) -> Option<BitRate> {
        self.recovery.as_ref()?.program.as_ref()?.rate
    }

    /// Returns 1 if the program has been replaced since the last call, for the engine's counter.
    pub(crate) fn take_replaced(&mut self) -> u64 {
        let program = self.recovery.as_mut().and_then(|recovery| recovery.program.as_mut());
        program.map_or(0, |program| u64::from(std::mem::take(&mut program.replaced)))
    }

    /// Returns the time of the next [`RecoveryEvent::Tick`] of a program.
    #[inline]
    pub(crate) fn next_tick(&self) -> Deadline {
        let program = self.recovery.as_ref().and_then(|recovery| recovery.program.as_ref());
        program.map_or(Deadline::NEVER, |program| program.tick)
    }

    /// Returns the earlier one of the timer and the next tick.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Deadline {
        self.deadline.min(self.next_tick())
    }

    /// Passes a tick to the transport program, if it is due; returns whether it was.
    pub(crate) fn tick(&mut self, now: Time, transport: &Transport, bits: &Bits<'_>) -> bool {
        let is_due = self.next_tick().is_due(now);
        if is_due {
            self.recover(&RecoveryEvent::Tick, now, transport, bits);
        }
        is_due
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.next.since(self.una)
    }

    /// Returns the number of packets in the network as far as is known (RFC 6675's pipe): sent, and neither
    /// acknowledged in any way nor waiting to be retransmitted. With a pool, selectively acknowledged packets are not
    /// subtracted, because on the fast path they are not recorded.
    pub(crate) fn pipe(&self) -> u64 {
        let to_cursor = self.cursor.since(self.una);
        let not_in_network = |marks: &Marks| {
            let sacked = marks.sacked.as_ref().map_or(0, AnyRing::popcount);
            u64::from(sacked + marks.marked.popcount())
        };
        to_cursor.saturating_sub(self.marks.as_deref().map_or(0, not_in_network))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.una == self.next
    }

    /// Records that `packets` new packets have been sent; `request_ack` is set if they request an acknowledgement.
    #[inline]
    pub(crate) fn sent(&mut self, packets: u64, request_ack: bool, now: Time, transport: &Transport) {
        if self.is_empty() || transport.times_last_sent {
            self.restart_timer(now);
            if self.recovering {
                // Acknowledgements are events of a program, for which the timer's state before them is stored.
                self.recovery(transport);
            }
        }
        if request_ack && transport.times_packets {
            self.time_packet(now, transport);
        }
        let nothing_to_repeat = self.cursor == self.next;
        self.next += packets;
        if nothing_to_repeat {
            self.cursor = self.next;
        }
    }

    /// Starts to measure the round-trip time of the next packet, unless a packet in flight is being timed already.
    fn time_packet(&mut self, now: Time, transport: &Transport) {
        let next = self.next;
        self.recovery(transport).timed.get_or_insert((next, now));
    }

    fn recovery(&mut self, transport: &Transport) -> &mut Recovery {
        self.recovery.get_or_insert_with(|| {
            let recovery = &transport.profile.recovery;
            let words = &transport.recovery_words;
            let is_program = recovery.policy.program.is_some();
            let timing = |first| Box::new(Timing::new(first, if is_program { first } else { Duration::ZERO }));
            Box::new(Recovery {
                policy: recovery.policy.new_state(words),
                timed: None,
                fetching: VecDeque::new(),
                timing: recovery.policy.first_timeout(words).filter(|_| transport.measured).map(timing),
                program: is_program.then(|| Box::new(ProgramSettings::new(transport))),
            })
        })
    }

    /// Returns the timeout state based on measurements, once it exists.
    fn timing(&mut self) -> Option<&mut Timing> {
        self.recovery.as_mut()?.timing.as_deref_mut()
    }

    /// Returns the lowest packet that is to be retransmitted.
    #[inline(always)]
    pub(crate) fn first_to_retransmit(&self) -> Option<Seq> {
        if self.probing
            && let Some(seq) = self.probe()
        {
            return Some(seq);
        }
        if self.cursor < self.next {
            return Some(self.cursor);
        }
        if self.marks.is_none() { None } else { self.first_marked() }
    }

    /// Returns the packet to be sent next as a probe, if there is one.
    #[cold]
    fn probe(&self) -> Option<Seq> {
        self.recovery.as_ref()?.timing.as_deref()?.probe(self.una, self.next)
    }

    /// Returns the time when packet `seq`, which is to be retransmitted, will have been fetched, if it has not been
    /// fetched yet (IRN mechanism I-26).
    pub(crate) fn fetched_at(&mut self, seq: Seq, now: Time) -> Option<Time> {
        let fetching = &mut self.recovery.as_mut()?.fetching;
        while fetching.front().is_some_and(|(_, at)| *at <= now) {
            fetching.pop_front();
        }
        fetching.iter().find(|(range, _)| range.contains(seq)).map(|(_, at)| *at)
    }

    /// Starts to fetch `range`. A range that exceeds the limit on concurrent fetches is treated as fetched already.
    fn fetch(&mut self, range: SeqRange, now: Time, transport: &Transport) {
        let fetching = &mut self.recovery(transport).fetching;
        if fetching.len() < FETCHES_MAX {
            fetching.push_back((range, now + transport.retransmit_fetch));
        }
    }

    fn first_marked(&self) -> Option<Seq> {
        let marked = self.marks.as_ref()?.marked.first_one(0);
        marked.map(|offset| self.una + u64::from(offset))
    }

    /// Records that the packets from `seq` up to `end` have been retransmitted; `request_ack` is set when they request
    /// an acknowledgement.
    pub(crate) fn mark_retransmitted(
        &mut self,
        seq: Seq,
        end: Seq,
        request_ack: bool,
        now: Time,
        transport: &Transport,
    ) {
        if let Some(recovery) = &mut self.recovery {
            recovery.timed = recovery.timed.filter(|(timed, _)| *timed < seq || end <= *timed);
            if let Some(program) = &mut recovery.program {
                program.repeats += end.since(seq);
            }
        }
        if request_ack && transport.control_interest.times_retransmitted {
            self.recovery(transport).timed.get_or_insert((seq, now));
        }
        if self.probing {
            return self.probed(seq, end);
        }
        if self.cursor < self.next {
            self.cursor = end.min(self.next);
        } else if let Some(marks) = &mut self.marks {
            let una = self.una;
            for offset in seq.since(una)..end.since(una) {
                marks.marked.clear(offset as u32);
            }
        }
    }

    /// Does the same as [`SendWindow::mark_retransmitted`] for probes.
    #[cold]
    fn probed(&mut self, seq: Seq, end: Seq) {
        let is_over = self.timing().is_none_or(|timing| timing.probed(seq, end));
        self.probing = !is_over;
    }

    /// Advances the cumulative acknowledgement to `una`, or further if packets after it have already been selectively
    /// acknowledged; returns the number of packets acknowledged for the first time, and the round-trip time if one of
    /// them was being timed.
    ///
    /// # Panics
    /// When `una` was never sent: callers check the values received from peers.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Seq, now: Time) -> (u64, Option<Duration>) {
        assert!(una <= self.next, "acknowledgement {una} beyond {}", self.next);
        let mut packets = una.since(self.una);
        if packets == 0 {
            return (0, None);
        }
        let timer_before = (self.deadline, self.extended);
        if let Some(marks) = &mut self.marks {
            packets = marks.advance(packets);
        }
        let una = self.una + packets;
        self.una = una;
        self.cursor = self.cursor.max(una);
        self.probing = false;
        if self.limit != Limit::NONE {
            self.widen_limit(packets);
        }
        if self.backs_off {
            self.end_backoff(now);
        }
        if self.is_empty() {
            self.deadline = Deadline::NEVER;
        } else {
            self.restart_timer(now);
        }
        let rtt = if self.recovery.is_some() { self.take_rtt(now, timer_before) } else { None };
        (packets, rtt)
    }

    /// Records that a response without new information was received: it shows that the peer is reachable.
    #[inline]
    pub(crate) fn note_response(&mut self) {
        self.response_seen = true;
    }

    /// Does the same as [`SendWindow::acknowledge`] when the time of the acknowledgement is unknown: the timer
    /// continues to run. Returns the number of packets acknowledged.
    pub(crate) fn acknowledge_untimed(&mut self, una: Seq, transport: &Transport) -> u64 {
        let (deadline, before) = (self.deadline, self.una);
        let (packets, _) = self.acknowledge(una, Time::ZERO);
        if transport.profile.recovery.policy.program.is_some() && !self.recovering {
            // The next event shows the program this acknowledgement too.
            let policy = &transport.profile.recovery.policy;
            policy.note_start(&mut self.recovery(transport).policy, before);
            self.recovering = true;
        }
        if !self.is_empty() {
            self.deadline = deadline;
        }
        packets
    }

    /// Discards the record of selective acknowledgements, because the receiver refuses a packet permanently. The
    /// receiver may have kept and reported that packet, and some after it, before the refusal; those reports are no
    /// longer valid.
    pub(crate) fn discard_selective(&mut self, bits: &mut Bits<'_>) {
        if let Some(sacked) = self.marks.as_mut().and_then(|marks| marks.sacked.as_mut()) {
            sacked.reset();
        }
        bits.forget();
    }

    /// Records that `seq` has arrived out of order; returns false when this is already known, or is impossible.
    pub(crate) fn acknowledge_selectively(&mut self, seq: Seq, transport: &Transport) -> bool {
        // A receiver that had received `una` itself would have acknowledged it cumulatively.
        let is_reported = transport.places_out_of_order && !transport.places_writes_only;
        if !is_reported || seq <= self.una || seq >= self.next {
            return false;
        }
        let offset = seq.since(self.una);
        let marks = self.marks.get_or_insert_with(|| Marks::new(transport));
        // The packets in flight never exceed the bitmap: the gate ensures this.
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        assert!(offset < marks.marked.bits(), "packet {seq} in flight but outside the bitmap");
        marks.marked.clear(offset);
        marks.highest = marks.highest.max(seq);
        marks.sacked.as_mut().is_some_and(|sacked| sacked.set(offset))
    }

    /// Records in the pool that `seq` has arrived out of order, at a receiver that is missing the packets counted in
    /// `lost`; returns false when the queue pair has no recovery state (unit) in the pool.
    pub(crate) fn acknowledge_counted(
        &mut self,
        seq: Seq,
        lost: Lost,
        transport: &Transport,
        bits: &mut Bits<'_>,
    ) -> bool {
        self.acknowledge_selectively(seq, transport);
        bits.note_selective(self.una, seq, lost)
    }

    /// Returns whether packet `seq` is in flight and has not been reported as received.
    pub(crate) fn is_missing(&self, seq: Seq) -> bool {
        let is_sacked = |marks: &Marks| {
            let offset = u32::try_from(seq.since(self.una)).unwrap_or(u32::MAX);
            marks.sacked.as_ref().is_some_and(|sacked| offset < sacked.bits() && sacked.test(offset))
        };
        self.una <= seq && seq < self.next && !self.marks.as_deref().is_some_and(is_sacked)
    }

    /// Returns the number of packets marked for retransmission, where receivers place out-of-order packets.
    pub(crate) fn marked(&self) -> u64 {
        self.marks.as_deref().map_or(0, |marks| marks.marked.popcount().into())
    }

    /// Marks all unacknowledged packets for retransmission, after a receiver that was not ready requested a pause.
    pub(crate) fn mark_all(&mut self, transport: &Transport, bits: &Bits<'_>) {
        self.mark(SeqRange::new(self.una, self.next), transport, bits);
    }

    /// Marks `range` for retransmission, except the packets known to have arrived; returns the number of packets that
    /// were not marked before.
    fn mark(&mut self, range: SeqRange, transport: &Transport, bits: &Bits<'_>) -> u32 {
        self.probing = false;
        assert!(self.una <= range.start && range.end <= self.next, "marking {range:?} outside what is outstanding");
        if !transport.places_out_of_order {
            let old_cursor = self.cursor;
            self.cursor = range.start.min(old_cursor);
            return u32::try_from(old_cursor.since(self.cursor)).unwrap_or(u32::MAX);
        }
        let (una, marks) = (self.una, self.marks.get_or_insert_with(|| Marks::new(transport)));
        let mut added = 0;
        let Some(sacked) = &marks.sacked else {
            bits.each_unacknowledged(una, range, |seq| added += u32::from(marks.marked.set(seq.since(una) as u32)));
            return added;
        };
        for offset in range.start.since(una)..range.end.since(una) {
            let offset = offset as u32;
            if !sacked.test(offset) {
                added += u32::from(marks.marked.set(offset));
            }
        }
        added
    }

    /// Passes an event to the recovery policy and executes the actions that it returns.
    pub(crate) fn recover(
        &mut self,
        event: &RecoveryEvent,
        now: Time,
        transport: &Transport,
        bits: &Bits<'_>,
    ) -> RecoveryActions {
        self.recovery(transport);
        let policy = &transport.profile.recovery.policy;
        let recovery = self.recovery.as_mut().expect("the recovery state exists");
        let repeats = recovery.program.as_ref().map_or(0, |program| program.repeats);
        let view = WindowView {
            now,
            una: self.una,
            next: self.next,
            highest_sacked: self.marks.as_ref().map(|marks| marks.highest).filter(|seq| *seq > self.una),
            sacked: self.marks.as_ref().and_then(|marks| marks.sacked.as_ref()),
            marked: self.marks.as_ref().map(|marks| &marks.marked),
            sent: self.next.get() + repeats,
        };
        let actions = policy.answer(&mut recovery.policy, event, &view, &transport.recovery_words);
        // When timeouts are based on measurements, those of the policy are not used, except that the timer of a program
        // is their minimum.
        match actions.rto {
            Some(rto) if !transport.measured => self.rto = rto.unwrap_or(Duration::MAX),
            Some(rto) if policy.program.is_some() => self.set_timeout_floor(rto.unwrap_or(Duration::ZERO)),
            _ => {}
        }
        if let Some(range) = actions.retransmit {
            if transport.retransmit_fetch != Duration::ZERO {
                self.fetch(range, now, transport);
            }
            let lost = self.mark(range, transport, bits);
            if transport.measured && matches!(event, RecoveryEvent::Nacked { .. }) {
                self.limit_to_what_arrives(lost, transport.places_out_of_order);
            }
        }
        match actions.timer {
            TimerChange::Keep => {}
            // The timer of an empty window does not run.
            TimerChange::Restart if self.is_empty() => {}
            TimerChange::Restart => self.restart_timer(now),
            TimerChange::Extend(by) => {
                self.deadline = Deadline::after(now, by);
                self.extended = true;
            }
            TimerChange::Continue => self.continue_timer(event, transport),
        }
        if policy.program.is_some() {
            self.follow_program(now, &actions);
        }
        self.recovering = actions.recovering;
        actions
    }

    /// Notifies a transport program that packet `seq` has arrived, if no other event does.
    pub(crate) fn report_arrived(&mut self, seq: Option<Seq>, now: Time, transport: &Transport, bits: &Bits<'_>) {
        let is_program = transport.profile.recovery.policy.program.is_some();
        if let Some(seq) = seq.filter(|seq| is_program && *seq > self.una) {
            self.recover(&RecoveryEvent::Arrived { seq }, now, transport, bits);
        }
    }

    /// Makes the timer of a program the minimum of the timeout that is based on measurements.
    fn set_timeout_floor(&mut self, floor: Duration) {
        let Some(timing) = self.timing() else { return };
        if timing.set_floor(floor) {
            self.rto = timing.first_wait();
        }
    }

    /// Stores the settings that a program has returned.
    fn follow_program(&mut self, now: Time, actions: &RecoveryActions) {
        if let Some(window) = actions.window {
            self.window = u8::try_from(window).unwrap_or(u8::MAX);
        }
        if let Some(program) = self.recovery.as_mut().and_then(|recovery| recovery.program.as_mut()) {
            program.rate = actions.rate.unwrap_or(program.rate);
            program.replaced |= actions.replaced;
            program.tick = actions.tick_after.map_or(Deadline::NEVER, |after| Deadline::after(now, after));
        }
    }

    /// Undoes the restart of the timer by an acknowledgement. Timeouts that are measured restart in any case.
    fn continue_timer(&mut self, event: &RecoveryEvent, transport: &Transport) {
        let program = self.recovery.as_ref().and_then(|recovery| recovery.program.as_ref());
        if let Some(program) = program
            && matches!(event, RecoveryEvent::Acked { .. })
            && program.timer_before.0.is_set()
            && !self.is_empty()
            && !transport.measured
        {
            (self.deadline, self.extended) = program.timer_before;
        }
    }

    /// Updates the path's limit after a receiver's report has shown that `lost` packets are lost.
    fn limit_to_what_arrives(&mut self, lost: u32, keeps_out_of_order: bool) {
        let (una, next, mut limit) = (self.una, self.next, self.limit);
        if let Some(timing) = self.timing() {
            timing.losses.note([una, next], lost, keeps_out_of_order, &mut limit);
            self.limit = limit;
        }
    }

    /// Returns whether the recovery policy currently processes acknowledgements.
    #[inline]
    pub(crate) fn wants_acknowledgements(&self, transport: &Transport) -> bool {
        match transport.recovery_interest {
            Interest::Never => false,
            Interest::Recovering => self.recovering,
            Interest::Always => true,
        }
    }

    /// Handles the timeout if the timer is due.
    pub(crate) fn check_timeout(
        &mut self,
        now: Time,
        transport: &Transport,
        bits: &Bits<'_>,
        timeout_conditions: &TimeoutConditions,
    ) -> TimeoutVerdict {
        if !self.deadline.is_due(now) || self.is_empty() {
            return TimeoutVerdict::NotDue;
        }
        if transport.measured {
            return self.check_measured(now, transport, bits, timeout_conditions);
        }
        let event = RecoveryEvent::TimedOut { extended: self.extended };
        self.restart_timer(now);
        let actions = self.recover(&event, now, transport, bits);
        if matches!(actions.timer, TimerChange::Extend(_)) {
            return TimeoutVerdict::Extended;
        }
        TimeoutVerdict::Acted
    }

    /// Restarts the timer, which has just expired for the `excess`-th time beyond the permitted number of retries; the
    /// wait grows with `excess`.
    pub(crate) fn back_off(&mut self, now: Time, excess: u32) {
        let wait = self.rto.saturating_mul(1 << excess.min(DOUBLINGS_MAX)).min(RETRANSMIT_INTERVAL_MAX.max(self.rto));
        self.deadline = Deadline::after(now, wait);
    }

    /// Does the same as [`SendWindow::check_timeout`] when timeouts are based on measured round trips.
    fn check_measured(
        &mut self,
        now: Time,
        transport: &Transport,
        bits: &Bits<'_>,
        timeout_conditions: &TimeoutConditions,
    ) -> TimeoutVerdict {
        let TimeoutConditions { absence, silence_max, may_probe, is_peer_full, acks } = *timeout_conditions;
        let (una, last, response_seen) = (self.una, self.next - 1, self.response_seen);
        let (limit, in_flight) = (self.limit, self.in_flight());
        let (first, due) = (self.rto, self.deadline.time().unwrap_or(now));
        let (is_first, retransmit_seq) = (!self.extended, self.first_to_retransmit());
        self.recovery(transport);
        let Some(timing) = self.timing() else { return TimeoutVerdict::NotDue };
        if is_first {
            timing.begin(first);
        }
        let extension = timing.excuse(due, absence);
        let expiry = match extension.or_else(|| (retransmit_seq == Some(una)).then(|| timing.extend_for_peer(acks))) {
            Some(wait) => Expiry::Wait(wait),
            None => timing.expire(may_probe && retransmit_seq.is_none(), is_peer_full),
        };
        match expiry {
            Expiry::Wait(wait) => self.extend_timer(now, wait),
            Expiry::Probe(wait) => {
                timing.set_probes(una, last);
                self.probing = true;
                self.extend_timer(now, wait);
                return TimeoutVerdict::Probe;
            }
            Expiry::TimedOut => {
                timing.limit_before = limit;
                if timing.time_out(now, una, response_seen, silence_max) {
                    return TimeoutVerdict::PeerUnresponsive;
                }
                let is_first = timing.is_first_timeout();
                self.rto = timing.first_wait();
                if is_first {
                    self.limit.halve(in_flight, transport.places_out_of_order);
                }
                (self.response_seen, self.backs_off) = (false, true);
                self.restart_timer(now);
                // The policy's extended timeout is over as well.
                self.recover(&RecoveryEvent::TimedOut { extended: true }, now, transport, bits);
                return TimeoutVerdict::Acted;
            }
        }
        TimeoutVerdict::Extended
    }

    fn extend_timer(&mut self, now: Time, wait: Duration) {
        (self.deadline, self.extended) = (Deadline::after(now, wait), true);
    }

    /// Stops the timer during a pause that the receiver has requested.
    pub(crate) fn pause_timer(&mut self) {
        self.deadline = Deadline::NEVER;
    }

    #[inline]
    pub(crate) fn restart_timer(&mut self, now: Time) {
        self.extended = false;
        // Saturates: a timeout of `MAX` never expires.
        self.deadline = Deadline::after(now, self.rto);
    }
}

/// Maximum number of doublings: enough to go from a microsecond to more than [`RETRANSMIT_INTERVAL_MAX`].
const DOUBLINGS_MAX: u32 = 20;

/// Longest interval between retransmissions of packets that are not acknowledged: its cost is negligible, and the end
/// of a network outage of minutes is detected soon enough.
const RETRANSMIT_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Maximum number of concurrent fetches: enough for a worst-case fetch time of 2 us and one loss in ten packets of 64
/// bytes at 100 Gbit/s.
const FETCHES_MAX: usize = 64;

impl ProgramSettings {
    fn new(transport: &Transport) -> Self {
        let rate = transport.program.rate;
        Self { rate, tick: Deadline::NEVER, repeats: 0, replaced: false, timer_before: (Deadline::NEVER, false) }
    }
}

impl Marks {
    fn new(transport: &Transport) -> Box<Self> {
        let ring = || AnyRing::with_bits(transport.window_bits);
        let sacked = transport.pool.is_none().then(ring);
        Box::new(Self { sacked, marked: ring(), highest: Seq::UNSET })
    }

    /// Moves the heads of both bitmaps by `packets`, and past directly following packets that were received out of
    /// order: a receiver never discards packets that it has kept, so they count as acknowledged. Returns the total
    /// number of packets. With a pool, it is determined by the acknowledgement alone (FaSR mechanism R-7).
    fn advance(&mut self, packets: u64) -> u64 {
        let count = u32::try_from(packets).unwrap_or(u32::MAX);
        // An empty ring has no head to move.
        if !self.marked.is_empty() {
            self.marked.advance(count);
        }
        let Some(sacked) = self.sacked.as_mut().filter(|sacked| !sacked.is_empty()) else { return packets };
        sacked.advance(count);
        let run = sacked.first_zero(0).unwrap_or(sacked.bits());
        if run > 0 {
            sacked.advance(run);
            if !self.marked.is_empty() {
                self.marked.advance(run);
            }
        }
        packets + u64::from(run)
    }
}
