//! A port: the sending end of a link.
//!
//! A transmission takes as long as the frame is on the wire, preamble and gap included; the last bit then travels for
//! the link's delay. A paused port completes the transmission that it has started (IEEE 802.1Qbb); pause frames
//! themselves are never held back and are sent before waiting packets.

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::CLASSES_MAX;

use crate::calendar::NEVER;
use crate::entry::{Entry, Flags, LINK_OVERHEAD};
use crate::fault::FaultChain;
use crate::link::LinkEnd;
use crate::network::Network;
use crate::trace::log::{Fate, PacketSummary, PortRecord};

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PortStats {
    /// Packets sent, including those lost to a fault, but without pause frames.
    pub(crate) packets: u64,
    /// Of these, packets lost to a fault.
    pub(crate) faulted: u64,
    /// Of the packets lost to a fault, acknowledgements and notifications.
    pub(crate) faulted_acks: u64,
    /// Packets that a fault marked.
    pub(crate) marked: u64,
    /// Pause frames (XOFF) sent.
    pub(crate) pauses_sent: u64,
    /// Time for which the neighbour paused this port, or, with classes, the sum of the times for which it paused each.
    pub(crate) paused: Duration,
}

/// The sending end of a link: one cache line with the fields that every packet needs; the other fields are in
/// [`RareState`].
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Port {
    /// Time at which the last bit of the present transmission is sent.
    pub(crate) free_at: Time,
    /// Time from which an arriving packet may be sent immediately: never while packets wait or the neighbour pauses the
    /// port.
    pub(crate) open_at: Time,
    delay: Duration,
    /// Time that frames take, until the end of the present transmission.
    busy: Duration,
    /// Transmission time of one byte in picoseconds, valid when `is_plain` is set.
    byte_time_ps: u32,
    /// Packets sent, modulo 2^32; the others are in `rare`.
    packets: u32,
    end: LinkEnd,
    paused: bool,
    /// True when the byte time is a whole number of picoseconds, of 32 bits, and there are no faults.
    is_plain: bool,
    /// True when `rare` has a log: a copy of that state.
    is_logged: bool,
    rare: Box<RareState>,
}

const _: () = assert!(size_of::<Port>() == 64);

/// Rarely used state of a port.
#[derive(Debug)]
struct RareState {
    rate: BitRate,
    faults: Option<FaultChain>,
    paused_since: Time,
    stats: PortStats,
    /// Events since they were last taken, for a trace.
    log: Vec<PortRecord>,
    /// Pauses of classes, in a network with classes.
    classes: ClassPauses,
}

/// Pauses of the classes at a port.
#[derive(Clone, Copy, Default, Debug)]
struct ClassPauses {
    /// Classes that the neighbour has paused here, a bit for each.
    paused: u8,
    /// Start of the pause in progress, by class.
    since: [Time; CLASSES_MAX],
    /// Time for which the neighbour has paused each class here.
    time: [Duration; CLASSES_MAX],
    /// Pause frames (XOFF) sent for each class.
    sent: [u64; CLASSES_MAX],
}

impl Port {
    pub(crate) fn new(rate: BitRate, delay: Duration, end: LinkEnd) -> Self {
        // 8 * 10^12 ps is the transmission time of a byte at one bit per second.
        let byte_time_ps = u32::try_from(rate.serialize(1).as_ps());
        let is_plain = byte_time_ps.is_ok() && 8_000_000_000_000u64.is_multiple_of(rate.as_bps());
        Self {
            free_at: Time::ZERO,
            open_at: Time::ZERO,
            delay,
            busy: Duration::ZERO,
            byte_time_ps: byte_time_ps.unwrap_or_default(),
            packets: 0,
            end,
            paused: false,
            is_plain,
            is_logged: false,
            rare: Box::new(RareState {
                rate,
                faults: None,
                paused_since: Time::ZERO,
                stats: PortStats::default(),
                log: Vec::new(),
                classes: ClassPauses::default(),
            }),
        }
    }

    /// Applies the rules `faults` to all packets from now on.
    pub(crate) fn set_faults(&mut self, faults: FaultChain) {
        self.rare.faults = Some(faults);
        self.is_plain = false;
    }

    /// Starts to log the events of the port.
    pub(crate) fn start_log(&mut self) {
        self.is_logged = true;
        // The packets of such a port take the path of links with faults.
        self.is_plain = false;
    }

    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Adds an event to the log, if there is one.
    #[cold]
    pub(crate) fn log(&mut self, record: PortRecord) {
        if self.is_logged {
            self.rare.log.push(record);
        }
    }

    /// Returns the events since the last call.
    pub(crate) fn take_log(&mut self) -> impl Iterator<Item = PortRecord> {
        self.rare.log.drain(..)
    }

    /// Returns the time until `now` in which the link has carried frames, since the beginning.
    pub(crate) fn busy_until(&self, now: Time) -> Duration {
        let ahead = self.free_at.as_ps().saturating_sub(now.as_ps());
        Duration::from_ps(self.busy.as_ps().saturating_sub(ahead))
    }

    /// Disables all faults from now on; packets delayed earlier may still be overtaken, so that order cannot be
    /// assumed.
    pub(crate) fn end_faults(&mut self) {
        if let Some(faults) = &mut self.rare.faults {
            faults.clear();
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the counters until `now`, including a pause in progress.
    pub(crate) fn stats_at(&self, now: Time) -> PortStats {
        let mut current_pause = if self.paused { now.since(self.rare.paused_since) } else { Duration::ZERO };
        let (stats, classes) = (&self.rare.stats, &self.rare.classes);
        for class in (0..CLASSES_MAX).filter(|class| classes.paused >> class & 1 == 1) {
            current_pause += now.since(classes.since[class]);
        }
        let packets = stats.packets + u64::from(self.packets);
        PortStats { packets, paused: stats.paused + current_pause, ..*stats }
    }

    /// Returns the number of pause frames (XOFF) sent.
    pub(crate) fn pauses_sent(&self) -> u64 {
        self.rare.stats.pauses_sent
    }

    /// Returns the time that a packet arriving `now` waits for `frames` waiting frames before it, `bytes` bytes in
    /// total, if the port is not paused. The preamble of each frame and the gap after it are included.
    pub(crate) fn delay_behind(&self, now: Time, frames: u32, bytes: u64) -> Duration {
        let sending = Duration::from_ps(self.free_at.as_ps().saturating_sub(now.as_ps()));
        sending + self.rate(now).serialize(bytes + u64::from(frames) * LINK_OVERHEAD)
    }

    /// Returns the rate of the link at `now`, reduced by faults.
    fn rate(&self, now: Time) -> BitRate {
        let slow = self.rare.faults.as_ref().and_then(|faults| faults.rate(now));
        slow.map_or(self.rare.rate, |slow| slow.min(self.rare.rate))
    }

    /// Prefetches the ring of the link on which this port sends, unless the link leads to another part of the network.
    #[inline]
    pub(crate) fn prefetch_ring(&self, network: &Network) {
        if self.end.part == network.part() {
            network.links.prefetch_ring(self.end.ring);
        }
    }

    /// Prefetches where the next packet on the link is stored; the step after [`Self::prefetch_ring`].
    #[inline]
    pub(crate) fn prefetch_tail(&self, network: &Network) {
        if self.end.part == network.part() {
            network.links.prefetch_next_slot(self.end.ring);
        }
    }

    #[inline]
    fn count_packet(&mut self) {
        self.packets = self.packets.wrapping_add(1);
        if self.packets == 0 {
            self.rare.stats.packets += 1 << 32;
        }
    }

    /// Sends a packet; the port must be free. The caller sets `open_at`.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, entry: Entry, network: &mut Network) {
        debug_assert!(self.free_at <= now && !self.paused);
        self.count_packet();
        if !self.is_plain {
            return self.send_carefully(now, entry, network);
        }
        let frame_time = Duration::from_ps(u64::from(self.byte_time_ps) * entry.link_len());
        self.free_at = now + frame_time;
        self.busy += frame_time;
        network.send_on_link(self.end, self.free_at + self.delay, entry);
    }

    /// Sends a packet on a link with faults or with a rate whose byte time is not a whole number of picoseconds.
    #[cold]
    fn send_carefully(&mut self, now: Time, entry: Entry, network: &mut Network) {
        let frame_time = self.rate(now).serialize(entry.link_len());
        self.free_at = now + frame_time;
        self.busy += frame_time;
        let arrival = self.free_at + self.delay;
        let Some(faults) = &mut self.rare.faults else {
            self.log_packet(now, Fate::Sent, &entry, network);
            return network.send_on_link(self.end, arrival, entry);
        };
        let outcome = faults.judge(now, arrival, &entry);
        self.log_packet(now, Fate::of(&outcome), &entry, network);
        let Some(faults) = &mut self.rare.faults else { return };
        if outcome.lost {
            self.rare.stats.faulted += 1;
            self.rare.stats.faulted_acks += u64::from(entry.has(Flags::ACK));
            network.remove(&entry);
            return;
        }
        let mut entry = entry;
        if outcome.marked && !entry.has(Flags::MARKED) {
            entry.set(Flags::MARKED);
            self.rare.stats.marked += 1;
        }
        for copy in 0..=outcome.copies {
            let mut packet = entry;
            if copy < outcome.copies {
                packet.packet = network.duplicate(&entry);
            }
            // Copies follow each other at the rate of the link.
            let arrival = arrival + outcome.delay + frame_time * u64::from(copy);
            if outcome.corrupt {
                faults.damage(&mut packet, |packet| network.bytes_mut(packet));
            }
            network.send_on_link_by_time(self.end, arrival, packet);
        }
    }

    /// Logs a packet that is sent from `now` until the port is free.
    fn log_packet(&mut self, now: Time, fate: Fate, entry: &Entry, network: &Network) {
        if self.is_logged {
            let packet = PacketSummary::of(entry, network);
            self.log(PortRecord::Packet { from: now, until: self.free_at, packet, fate });
        }
    }

    /// Sends a frame that pauses or resumes the neighbour: after the present transmission, before all waiting data.
    #[cold]
    pub(crate) fn send_pause_frame(&mut self, now: Time, flags: Flags, network: &mut Network) {
        self.send_control_frame(now, Entry::pause_frame(flags), flags, network);
    }

    /// Sends a frame that pauses or resumes one class of the neighbour, as [`Self::send_pause_frame`].
    #[cold]
    pub(crate) fn send_class_pause(&mut self, now: Time, flags: Flags, class: u8, network: &mut Network) {
        self.rare.classes.sent[usize::from(class)] += u64::from(flags == Flags::PAUSE);
        self.send_control_frame(now, Entry::class_pause_frame(flags, class), flags, network);
    }

    fn send_control_frame(&mut self, now: Time, frame: Entry, flags: Flags, network: &mut Network) {
        self.rare.stats.pauses_sent += u64::from(flags == Flags::PAUSE);
        let frame_time = self.rare.rate.serialize(frame.link_len());
        let from = self.free_at.max(now);
        self.free_at = from + frame_time;
        self.log(PortRecord::PauseFrame { from, until: self.free_at, is_pause: flags == Flags::PAUSE });
        self.busy += frame_time;
        if self.open_at != NEVER {
            self.open_at = self.free_at;
        }
        network.send_on_link_by_time(self.end, self.free_at + self.delay, frame);
    }

    /// Pauses this port at the request of the neighbour.
    pub(crate) fn pause(&mut self, now: Time) {
        if !self.paused {
            (self.paused, self.open_at, self.rare.paused_since) = (true, NEVER, now);
            self.log(PortRecord::Paused { at: now });
        }
    }

    /// Pauses or resumes a class at this port at the request of the neighbour; the port then has to look for packets of
    /// other classes itself. A caller without waiting packets sets `open_at` when no class is paused.
    pub(crate) fn set_class_paused(&mut self, now: Time, class: u8, is_paused: bool) {
        let classes = &mut self.rare.classes;
        let (bit, index) = (1 << class, usize::from(class));
        if (classes.paused & bit != 0) == is_paused {
            return;
        }
        let before = classes.paused;
        classes.paused ^= bit;
        if is_paused {
            (classes.since[index], self.open_at) = (now, NEVER);
        } else {
            let time = now.since(classes.since[index]);
            classes.time[index] += time;
            self.rare.stats.paused += time;
        }
        if before == 0 {
            self.log(PortRecord::Paused { at: now });
        } else if self.rare.classes.paused == 0 {
            self.log(PortRecord::Resumed { at: now });
        }
    }

    /// Returns the classes that the neighbour has paused, a bit for each.
    #[inline]
    pub(crate) fn paused_classes(&self) -> u8 {
        self.rare.classes.paused
    }

    /// Returns how many pause frames (XOFF) for `class` were sent, and for how long the neighbour paused it here, until
    /// `now`.
    pub(crate) fn class_pauses(&self, class: usize, now: Time) -> (u64, Duration) {
        let classes = &self.rare.classes;
        let is_paused = classes.paused >> class & 1 == 1;
        let current = if is_paused { now.since(classes.since[class]) } else { Duration::ZERO };
        (classes.sent[class], classes.time[class] + current)
    }

    /// Resumes this port at the request of the neighbour. A caller without waiting packets sets `open_at`.
    pub(crate) fn resume(&mut self, now: Time) {
        if self.paused {
            self.paused = false;
            self.rare.stats.paused += now.since(self.rare.paused_since);
            self.log(PortRecord::Resumed { at: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet waits as long as the port needs to send those before it, each with its preamble and the gap after it.
    #[test]
    fn a_wait_is_as_long_as_the_frames_before_it_keep_the_link_busy() {
        let mut port =
            Port::new(BitRate::gbps(100), Duration::from_us(1), LinkEnd { ring: 0, node: 0, port: 0, part: 0 });
        let frame = Entry::pause_frame(Flags::PAUSE);
        let (now, bytes) = (Time::from_us(5), u64::from(frame.frame_len));
        assert_eq!(port.delay_behind(now, 3, 3 * bytes), BitRate::gbps(100).serialize(3 * frame.link_len()));
        port.free_at = now + Duration::from_ns(30);
        assert_eq!(port.delay_behind(now, 0, 0), Duration::from_ns(30));
        assert_eq!(port.delay_behind(now + Duration::from_us(1), 0, 0), Duration::ZERO);
    }

    /// The count of packets is continued where its 32 bits end.
    #[test]
    fn packets_are_counted_beyond_32_bits() {
        let end = LinkEnd { ring: 0, node: 0, port: 0, part: 0 };
        let mut port = Port::new(BitRate::gbps(100), Duration::from_us(1), end);
        port.packets = u32::MAX - 1;
        (0..3).for_each(|_| port.count_packet());
        assert_eq!(port.stats_at(Time::ZERO).packets, (1 << 32) + 1);
    }

    /// A byte of a very slow link takes more picoseconds than the port's line has bits for.
    #[test]
    fn a_slow_link_has_no_plain_byte_time() {
        let end = LinkEnd { ring: 0, node: 0, port: 0, part: 0 };
        let is_plain = |rate| Port::new(rate, Duration::from_us(1), end).is_plain;
        assert!(is_plain(BitRate::gbps(100)) && is_plain(BitRate::bps(2_000)));
        assert!(!is_plain(BitRate::bps(1_000)));
    }
}
