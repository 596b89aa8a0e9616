//! The SR module: one event after the other, with the cycles that the circuit takes.

use super::{
    Ack, BLOCK_BITS, BLOCKS, Context, Event, Kind, Lane, Lost, Pool1, Pool2, Record, Retransmission, Say, Then, Timer,
    UNITS, Unit, distance, is_after, plus, rx, tx,
};

/// Inputs of an event other than those of its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Current time.
    pub now: u32,
    /// The timeout.
    pub rto: u32,
    /// Extension of the timeout while more packets are in flight.
    pub extension: u32,
}

/// Effects of an event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The acknowledgement to send.
    pub ack: Option<Ack>,
    /// Packets to retransmit.
    pub retransmissions: Vec<Retransmission>,
    /// The new state of the timer, if it changes.
    pub timer: Option<Timer>,
    /// Number of cycles.
    pub cycles: u32,
    /// The cycle, counted from 1, in which the context was written last.
    pub written: u32,
    /// Number of cycles until RCV-NXT was known, for a packet that closes a gap.
    pub update_cycles: Option<u32>,
}

/// The SR module: the pools that all queue pairs share.
#[derive(Clone, Debug)]
pub struct Sr {
    units: Pool1,
    blocks: Pool2,
}

impl Default for Sr {
    fn default() -> Self {
        Self { units: Pool1::new(UNITS), blocks: Pool2::new(BLOCKS) }
    }
}

/// The queue pair of an event, while the event is processed.
struct Work<'a> {
    context: &'a mut Context,
    unit: Unit,
    outcome: Outcome,
}

impl Sr {
    /// Creates the module with pools of other sizes than the circuit's.
    pub fn with_sizes(units: usize, blocks: usize) -> Self {
        Self { units: Pool1::new(units), blocks: Pool2::new(blocks) }
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u8 {
        self.blocks.free()
    }

    /// Returns a bit for each unit in use.
    pub fn units_taken(&self) -> u64 {
        self.units.taken()
    }

    /// Processes `event`, whose queue pair has `context` and `timer`, and sends packet `next` as its next new one.
    pub fn step(&mut self, event: &Event, context: &mut Context, next: u32, timer: Timer, clock: Clock) -> Outcome {
        let unit = context.unit.map_or_else(Unit::default, |at| self.units.get(at));
        let mut work = Work { context, unit, outcome: Outcome { cycles: 1, written: 1, ..Outcome::default() } };
        match event.kind {
            Kind::Data => self.on_data(event, &mut work),
            Kind::Extend if timer.is_due(clock.now) && !timer.extended => {
                let deadline = plus(clock.now, clock.extension);
                work.outcome.timer = Some(Timer { on: true, extended: true, deadline });
            }
            Kind::Arm if !timer.on && work.context.una != next => {
                work.outcome.timer = Some(clock.started());
            }
            Kind::Release => self.drop_unit(&mut work),
            Kind::Timeout if !timer.is_due(clock.now) || work.context.una == next => {}
            Kind::Extend | Kind::Arm => {}
            _ => self.on_ack(event, next, clock, &mut work),
        }
        work.outcome
    }

    fn on_data(&mut self, event: &Event, work: &mut Work<'_>) {
        let (can_open, free) = (self.can_open(work.context), self.blocks.free());
        let mut decision = rx::decide(event.cumulative, *work.context, work.unit.rx, can_open, free);
        work.outcome.cycles += self.record(&mut decision.lane, work.unit.rx.slow, decision.record);
        *work.context = decision.context;
        if decision.say == Say::Aack {
            work.outcome.update_cycles = Some(1);
        }
        let mut lost = decision.lost;
        if decision.then == Then::Walk {
            lost = self.walk(&mut decision.lane, work);
        }
        work.unit.rx = decision.lane;
        self.store(work);
        work.outcome.ack = (decision.say != Say::Nothing).then_some(Ack {
            qp: event.qp,
            say: decision.say,
            placed: decision.placed,
            cumulative: work.context.rcv_nxt,
            psn: event.cumulative,
            lost,
        });
    }

    /// Finds the next gap, from RCV-NXT on, which has just arrived, and releases the blocks before it. Returns the
    /// number of missing packets.
    fn walk(&mut self, lane: &mut Lane, work: &mut Work<'_>) -> Lost {
        let mut at = plus(work.context.rcv_nxt, 1 + u32::from(lane.run));
        loop {
            work.outcome.cycles += 1;
            if let Some(zero) = self.blocks.first_zero(lane.head, distance(lane.base, at)) {
                at = plus(lane.base, zero);
                break;
            }
            at = plus(lane.base, BLOCK_BITS);
            if lane.head == lane.tail {
                break;
            }
            lane.head = self.blocks.release(lane.head).expect("it is not the last block");
            lane.base = at;
        }
        (work.outcome.update_cycles, work.outcome.written) = (Some(work.outcome.cycles), work.outcome.cycles);
        work.context.rcv_nxt = at;
        lane.run = 0;
        if is_after(at, lane.high) {
            self.blocks.release(lane.head);
            *lane = Lane::default();
        } else if lane.lost.is_one() {
            (lane.run, lane.slow) = (distance(at, lane.high) as u16, false);
            work.outcome.cycles += self.release_list(lane);
        }
        lane.lost
    }

    fn on_ack(&mut self, event: &Event, next: u32, clock: Clock, work: &mut Work<'_>) {
        loop {
            let (can_open, free) = (self.can_open(work.context), self.blocks.free());
            let mut decision = tx::decide(event, next, *work.context, work.unit.tx, can_open, free);
            *work.context = decision.context;
            if decision.advanced || event.kind == Kind::Timeout {
                let started = clock.started();
                work.outcome.timer = Some(Timer { on: !decision.is_empty, ..started });
            }
            work.outcome.cycles += self.record(&mut decision.lane, work.unit.tx.slow, decision.record);
            work.unit.tx = decision.lane;
            match decision.then {
                Then::Release => work.outcome.cycles += self.release_list(&mut work.unit.tx),
                Then::Seek => work.outcome.cycles += self.seek(&work.unit.tx, event.psn),
                Then::Trim => work.outcome.cycles += self.trim(&mut work.unit.tx, work.context.una),
                _ => {}
            }
            if let Some((from, to)) = decision.retransmit {
                self.retransmit(event.qp, from, to, decision.then == Then::Scan, work);
            }
            self.store(work);
            if decision.then != Then::Trim {
                return;
            }
            work.outcome.cycles += 1;
            work.outcome.written = work.outcome.cycles;
        }
    }

    /// Releases the blocks before `una`, or all of a list that is being closed.
    fn trim(&mut self, lane: &mut Lane, una: u32) -> u32 {
        let mut released = 0;
        while lane.slow && (!lane.open || !is_after(plus(lane.base, BLOCK_BITS), una)) {
            released += 1;
            self.release_head(lane);
            lane.base = plus(lane.base, BLOCK_BITS);
        }
        if !lane.open {
            *lane = Lane::default();
        }
        released
    }

    /// Sets the bit of `psn` in a block that is not the tail; returns the number of blocks visited.
    fn seek(&mut self, lane: &Lane, psn: u32) -> u32 {
        let blocks = distance(lane.base, psn) / BLOCK_BITS;
        let at = (0..blocks).fold(lane.head, |at, _| self.blocks.get(at).next.expect("the list reaches the packet"));
        self.blocks.mark(at, 1 << (distance(lane.base, psn) % BLOCK_BITS));
        blocks + 1
    }

    /// Retransmits the packets from `from` up to `to`; with `scans`, those after the first one only if they are not
    /// recorded as received.
    fn retransmit(&self, qp: u16, from: u32, to: u32, scans: bool, work: &mut Work<'_>) {
        let range =
            |psn: u32, end: u32| Retransmission { qp, psn, is_map: false, argument: distance(psn, end) as u16 % 1_024 };
        let list = &mut work.outcome.retransmissions;
        if !scans {
            return list.push(range(from, to));
        }
        list.push(range(from, plus(from, 1)));
        let lane = work.unit.tx;
        let first = plus(from, 1 + u32::from(lane.run));
        let (mut at, mut start) = (lane.head, lane.base);
        loop {
            work.outcome.cycles += 1;
            let block = self.blocks.get(at);
            let is_wanted = |bit: &u32| {
                let psn = plus(start, *bit);
                block.word & 1 << bit == 0 && !is_after(first, psn) && is_after(to, psn)
            };
            let map = (0..BLOCK_BITS).filter(is_wanted).map(|bit| 1 << bit).sum();
            if map != 0 {
                list.push(Retransmission { qp, psn: start, is_map: true, argument: map });
            }
            start = plus(start, BLOCK_BITS);
            if !is_after(to, start) {
                return;
            }
            if at == lane.tail {
                break;
            }
            at = block.next.expect("it is not the last block");
        }
        // Packets that were reported when no block was free.
        work.outcome.cycles += 1;
        let rest = if is_after(first, start) { first } else { start };
        if is_after(to, rest) {
            list.push(range(rest, to));
        }
    }

    /// Takes blocks or sets a bit; returns the number of further cycles.
    fn record(&mut self, lane: &mut Lane, had_blocks: bool, record: Option<Record>) -> u32 {
        let Some(Record { needed, bit, first }) = record else { return 0 };
        if needed == 0 {
            self.blocks.mark(lane.tail, bit);
            return 0;
        }
        for number in 1..=needed {
            let mut word = if number == needed { bit } else { 0 };
            word |= if number == 1 { first } else { 0 };
            let tail = (had_blocks || number > 1).then_some(lane.tail);
            lane.tail = self.blocks.take(word, tail);
            if tail.is_none() {
                lane.head = lane.tail;
            }
            lane.last = if number == 1 { lane.last } else { plus(lane.last, BLOCK_BITS) };
        }
        u32::from(needed) - 1
    }

    /// Releases the whole list of a bitmap that needs none any more; returns the number of blocks.
    fn release_list(&mut self, lane: &mut Lane) -> u32 {
        let mut released = 1;
        while lane.head != lane.tail {
            released += 1;
            lane.head = self.blocks.release(lane.head).expect("it is not the last block");
        }
        self.blocks.release(lane.head);
        released
    }

    fn release_head(&mut self, lane: &mut Lane) {
        let is_last = lane.head == lane.tail;
        let next = self.blocks.release(lane.head);
        if is_last {
            lane.slow = false;
        } else {
            lane.head = next.expect("it is not the last block");
        }
    }

    /// Frees everything that a queue pair holds.
    fn drop_unit(&mut self, work: &mut Work<'_>) {
        let Some(at) = work.context.unit.take() else { return };
        for lane in [&mut work.unit.rx, &mut work.unit.tx] {
            while lane.slow {
                work.outcome.cycles += 1;
                self.release_head(lane);
            }
        }
        work.outcome.cycles += 1;
        work.outcome.written = work.outcome.cycles;
        self.units.release(at);
    }

    fn can_open(&self, context: &Context) -> bool {
        context.unit.is_some() || self.units.offer().is_some()
    }

    /// Stores the unit: it is taken with the first bitmap and released with the last.
    fn store(&mut self, work: &mut Work<'_>) {
        let is_used = work.unit.rx.open || work.unit.tx.open;
        match (is_used, work.context.unit) {
            (true, held) => {
                let at = held.or_else(|| self.units.offer()).expect("a unit is held or free");
                self.units.set(at, work.unit);
                work.context.unit = Some(at);
            }
            (false, Some(at)) => {
                self.units.release(at);
                work.context.unit = None;
            }
            (false, None) => {}
        }
    }

    /// Returns the bitmap of a queue pair: its receiver's or its sender's.
    pub fn lane(&self, context: &Context, of_receiver: bool) -> Lane {
        let unit = context.unit.map_or_else(Unit::default, |at| self.units.get(at));
        if of_receiver { unit.rx } else { unit.tx }
    }
}

impl Clock {
    fn started(self) -> Timer {
        Timer { on: true, extended: false, deadline: plus(self.now, self.rto) }
    }
}
