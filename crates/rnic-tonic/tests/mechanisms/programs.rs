//! Small programs, one for each credit scheme and one with deadlines.

/// Retransmits everything outstanding when a gap is reported or the timer expires.
pub mod repeat {
    use rnic_program::prelude::*;

    transport! {
        /// Retransmits everything outstanding when a gap is reported or the timer expires.
        program Repeat("repeat") {
            scheme: window,
            start: { window: cap, rate: 0, timer: rto },
        }
        state State {
            nacks: 8,
        }
        parameters Parameters {
            /// Segments of the window.
            cap: 9 = 128 [1..=256],
            /// Duration of the retransmission timer; zero for none.
            rto: 24 = 320 us,
        }
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = i.nack;
        a.from = i.start;
        a.to = i.next;
        a.restart = i.start.after(i.old_start);
        a.timer = p.rto;
        if i.nack {
            s.nacks = s.nacks.saturating_add(1);
        }
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = v.expired;
        a.from = v.start;
        a.to = v.next;
        a.timer = p.rto;
        if v.expired {
            s.nacks = u(0);
        }
    }
}

/// Marks single segments and moves its window: halves it when a segment is missing, opens it otherwise.
pub mod adapt {
    use rnic_program::prelude::*;

    transport! {
        /// Marks the first segment of a gap, halves the window then, and opens it with every new acknowledgement.
        program Adapt("adapt") {
            scheme: window,
            start: { window: 8, rate: 0, timer: rto },
        }
        state State {
            window: 9 = 8,
            marked: 24,
            is_marked: flag,
        }
        parameters Parameters {
            /// Segments of the window at most.
            cap: 9 = 128 [1..=256],
            /// Duration of the retransmission timer.
            rto: 24 = 20 us,
        }
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        let advances = i.start.after(i.old_start);
        let is_gap = i.sack_new && !(s.is_marked && s.marked == i.start);
        if is_gap {
            s.marked = i.start;
            s.is_marked = true;
            s.window = (s.window >> 1).max(2);
        }
        if advances && s.window < p.cap {
            s.window += 1;
        }
        a.mark = is_gap;
        a.from = i.start;
        a.to = i.start + 1;
        a.restart = advances;
        a.window = s.window;
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = v.expired;
        a.from = v.start;
        a.to = v.start + 1;
        a.timer = p.rto;
        if v.expired {
            s.is_marked = false;
            s.window = u(1);
            a.window = u(1);
        }
    }
}

/// Sends at a rate, which congestion notifications cut and a timer restores.
pub mod rated {
    use rnic_program::prelude::*;

    transport! {
        /// Sends at a rate, which notifications halve; a timer and a count of segments raise it again.
        program Rated("rated") {
            scheme: rate,
            start: { window: 128, rate: rate, timer: rto },
        }
        state State {
            /// Current rate.
            current: 23 = rate,
            raise_at: 24 due time,
            raise_count: 24 due sent,
            raises: 8,
        }
        parameters Parameters {
            /// Largest rate.
            rate: 23 = 10 gbps,
            /// Time between raises; zero for none.
            period: 24 = 0 us [0..=1000],
            /// Duration of the retransmission timer; zero for none.
            rto: 24 = 100 us,
        }
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        if i.cnp {
            s.current = (s.current >> 1).max(100);
            if p.period != 0 {
                s.raise_at = i.now + p.period;
                s.raise_count = i.total_sent + 50;
            }
        }
        a.rate = s.current;
        a.mark = i.nack;
        a.from = i.start;
        a.to = i.next;
        a.restart = i.start.after(i.old_start);
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        let is_time = s.raise_at != 0 && v.now.at_least(s.raise_at);
        let is_count = s.raise_count != 0 && v.total_sent.at_least(s.raise_count);
        if is_time {
            s.raise_at = u(0);
        }
        if is_count {
            s.raise_count = u(0);
        }
        if (is_time || is_count) && p.period != 0 {
            s.current = s.current.saturating_add(s.current).min(p.rate);
            s.raises += 1;
        }
        a.rate = s.current;
        a.mark = v.expired;
        a.from = v.start;
        a.to = v.next;
        a.timer = p.rto;
    }
}

/// Retransmits what is reported missing; its receiver grants every segment.
pub mod granted {
    use rnic_program::prelude::*;

    transport! {
        /// Retransmits segments that are reported missing, and all after a timeout.
        program Granted("granted") {
            scheme: token,
            start: { window: 128, rate: 0, timer: rto },
        }
        state State {
            timeouts: 8,
        }
        parameters Parameters {
            /// Duration of the retransmission timer.
            rto: 24 = 30 us,
        }
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = i.trimmed;
        a.from = i.sack;
        a.to = i.sack + 1;
        a.restart = i.start.after(i.old_start);
        a.timer = p.rto;
        s.timeouts = s.timeouts.max(0);
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = v.expired;
        a.from = v.start;
        a.to = v.next;
        a.timer = p.rto;
        if v.expired {
            s.timeouts = s.timeouts.saturating_add(1);
        }
    }
}

/// Notes what it is given.
pub mod spy {
    use rnic_program::prelude::*;

    transport! {
        /// Notes what it is given.
        program Spy("spy") {
            scheme: window,
            start: { window: 16, rate: 0, timer: 0 },
        }
        state State {
            newly: 9,
            acked: 9,
            first: 9,
            is_new: flag,
            times_sent: 2,
        }
        parameters Parameters {
            /// Unused.
            nothing: 1 = 0 [0..=1],
        }
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        s.newly = i.newly;
        s.acked = i.acked.count();
        s.first = i.acked.first_one(0);
        s.is_new = i.sack_new;
        s.times_sent = i.times_sent;
        a.restart = p.nothing != 0;
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        s.is_new = s.is_new && !v.expired;
        a.restart = p.nothing != 0;
    }
}
