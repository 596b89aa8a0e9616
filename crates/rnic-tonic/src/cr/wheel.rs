//! The timing wheel: flows that wait for credit until a known cycle.
//!
//! Two levels of 2048 slots. A slot of the first is one cycle, a slot of the second 1024 cycles (2^21 cycles in all: 21
//! ms; a later time comes as the last slot, and the flow waits again). Each slot is a linked list, and moving a list is
//! one concatenation, so the work of a cycle is constant: one slot of the first level becomes due, one flow moves from
//! the second level to the first, one due flow leaves.
//!
//! The first level covers two periods of 1024 cycles: when a period begins, the flows of the next one leave the second
//! level, one a cycle, so that up to 1024 are in place in time. With more flows in one slot the last are late, which
//! costs no credit.

use crate::shape::FlowId;

const SLOTS: usize = 2048;

/// Number of cycles of a slot in the second level, as a power of two.
const PERIOD_SHIFT: u32 = 10;

const PERIOD: u64 = 1 << PERIOD_SHIFT;

/// Maximum number of cycles from arming to expiry.
pub const WAIT_MAX: u64 = (SLOTS as u64 - 3) << PERIOD_SHIFT;

/// Value of an index that refers to no flow.
const NONE: FlowId = FlowId::MAX;

/// First and last flow of a linked list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct List {
    first: FlowId,
    last: FlowId,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// A level of the hierarchical timing wheel: its lists of flows, and one bit for each list that is not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Level {
    lists: Vec<List>,
    used: [u64; SLOTS / 64],
}

impl Level {
    fn new() -> Self {
        Self { lists: vec![EMPTY; SLOTS], used: [0; SLOTS / 64] }
    }

    fn append(&mut self, slot: usize, flow: FlowId, next: &mut [FlowId]) {
        append(&mut self.lists[slot], List { first: flow, last: flow }, next);
        self.used[slot / 64] |= 1 << (slot % 64);
    }

    fn take(&mut self, slot: usize) -> List {
        self.used[slot / 64] &= !(1 << (slot % 64));
        core::mem::replace(&mut self.lists[slot], EMPTY)
    }

    /// Returns the distance from `from` to the first slot after it that is not empty.
    fn first_used(&self, from: usize) -> Option<usize> {
        // The word of `from` comes twice: its upper bits first, its lower ones last.
        let words = SLOTS / 64;
        (0..=words).find_map(|step| {
            let word = (from / 64 + step) % words;
            let mask = match step {
                0 => u64::MAX << (from % 64),
                last if last == words => !(u64::MAX << (from % 64)),
                _ => u64::MAX,
            };
            let found = self.used[word] & mask;
            (found != 0).then(|| (word * 64 + found.trailing_zeros() as usize + SLOTS - from) % SLOTS)
        })
    }
}

/// Appends the flows of `more` to `list`.
fn append(list: &mut List, more: List, next: &mut [FlowId]) {
    if more.first == NONE {
        return;
    }
    if list.first == NONE {
        *list = more;
    } else {
        next[usize::from(list.last)] = more.first;
        list.last = more.last;
    }
}

/// Timing wheel that releases flows at the times set by their rates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wheel {
    /// For each flow, the next flow in its list.
    next: Vec<FlowId>,
    /// For each flow, the cycle in which its timer expires.
    due_at: Vec<u64>,
    is_armed: Vec<bool>,
    cycles: Level,
    periods: Level,
    /// Flows that are being moved from the second level to the first.
    falling: List,
    /// Flows whose timers have expired and that have not been returned yet.
    due: List,
}

impl Wheel {
    /// Creates an empty timing wheel for `flows` flows.
    pub fn new(flows: u16) -> Self {
        let flows = usize::from(flows);
        Self {
            next: vec![NONE; flows],
            due_at: vec![0; flows],
            is_armed: vec![false; flows],
            cycles: Level::new(),
            periods: Level::new(),
            falling: EMPTY,
            due: EMPTY,
        }
    }

    /// Returns whether the flow's timer is armed.
    #[inline]
    pub fn is_armed(&self, flow: FlowId) -> bool {
        self.is_armed[usize::from(flow)]
    }

    /// Arms the timer of a flow, which must not be armed, in cycle `now`, after [`Wheel::advance`].
    pub fn arm(&mut self, flow: FlowId, due: u64, now: u64) {
        let due = due.clamp(now + 1, now + WAIT_MAX);
        self.is_armed[usize::from(flow)] = true;
        self.due_at[usize::from(flow)] = due;
        self.place(flow, now);
    }

    /// Inserts a flow whose expiry is after `now` into its list.
    fn place(&mut self, flow: FlowId, now: u64) {
        let due = self.due_at[usize::from(flow)];
        self.next[usize::from(flow)] = NONE;
        if due <= now {
            append(&mut self.due, List { first: flow, last: flow }, &mut self.next);
        } else if due >> PERIOD_SHIFT <= (now >> PERIOD_SHIFT) + 1 {
            self.cycles.append(due as usize % SLOTS, flow, &mut self.next);
        } else {
            self.periods.append((due >> PERIOD_SHIFT) as usize % SLOTS, flow, &mut self.next);
        }
    }

    /// Runs cycle `now`; returns the next flow whose timer has expired.
    pub fn advance(&mut self, now: u64) -> Option<FlowId> {
        let expired = self.cycles.take(now as usize % SLOTS);
        append(&mut self.due, expired, &mut self.next);
        if now.is_multiple_of(PERIOD) {
            let period = self.periods.take(((now >> PERIOD_SHIFT) as usize + 1) % SLOTS);
            append(&mut self.falling, period, &mut self.next);
        }
        if let Some(flow) = Self::pop(&mut self.falling, &self.next) {
            self.place(flow, now);
        }
        let flow = Self::pop(&mut self.due, &self.next)?;
        self.is_armed[usize::from(flow)] = false;
        Some(flow)
    }

    fn pop(list: &mut List, next: &[FlowId]) -> Option<FlowId> {
        let flow = list.first;
        if flow == NONE {
            return None;
        }
        *list = if flow == list.last { EMPTY } else { List { first: next[usize::from(flow)], last: list.last } };
        Some(flow)
    }

    /// Returns the first cycle, not before `now`, in which [`Wheel::advance`] changes anything.
    pub fn next_event(&self, now: u64) -> Option<u64> {
        if self.falling != EMPTY || self.due != EMPTY {
            return Some(now);
        }
        let cycle = self.cycles.first_used(now as usize % SLOTS).map(|steps| now + steps as u64);
        // Periods up to the one that begins next have left the second level; at the beginning of one, the next leaves.
        let first = now.div_ceil(PERIOD) + 1;
        let period = self.periods.first_used(first as usize % SLOTS).map(|steps| (first - 1 + steps as u64) * PERIOD);
        [cycle, period].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::RandomStreams;

    use super::*;

    /// Arms flows at random and returns for each expiry (flow, cycle wanted, cycle of expiry). In lazy mode only the
    /// cycles of `next_event` are run.
    fn run(seed: u64, flows: u16, spread: u32, is_lazy: bool) -> Vec<(FlowId, u64, u64)> {
        let mut random = RandomStreams::new(seed).stream("wheel");
        let mut wheel = Wheel::new(flows);
        let mut expiries = Vec::new();
        let mut wanted = vec![0; usize::from(flows)];
        let mut now = random.below(1 << 40);
        // The cycles in which the test arms flows are drawn beforehand, so that both modes have the same.
        let mut arms: Vec<(u64, FlowId, u64)> = Vec::new();
        let mut at = now;
        for _ in 0..3_000 {
            let bits = random.below(u64::from(spread));
            at += random.below(4 << bits);
            let bits = random.below(u64::from(spread) + 3).min(20);
            let wait = 1 + random.below(1 << bits);
            arms.push((at, random.below(u64::from(flows)) as FlowId, wait));
        }
        let end = at + (1 << 22);
        let mut arms = arms.into_iter().peekable();
        while now < end {
            if is_lazy {
                let arm = arms.peek().map_or(end, |(cycle, ..)| *cycle);
                now = wheel.next_event(now).map_or(arm, |event| event.min(arm));
                if now >= end {
                    break;
                }
            }
            if let Some(flow) = wheel.advance(now) {
                expiries.push((flow, wanted[usize::from(flow)], now));
            }
            while let Some((_, flow, wait)) = arms.next_if(|(cycle, ..)| *cycle == now) {
                if !wheel.is_armed(flow) {
                    wanted[usize::from(flow)] = now + wait;
                    wheel.arm(flow, now + wait, now);
                }
            }
            now += 1;
        }
        assert_eq!(wheel.next_event(now), None, "all have expired");
        expiries
    }

    #[test]
    fn t15_timers_expire_in_their_cycle_or_while_others_leave() {
        for (seed, flows, spread) in [(1, 16, 6), (2, 512, 3), (3, 64, 12), (4, 2048, 10)] {
            let expiries = run(seed, flows, spread, true);
            assert!(expiries.len() > 1_000, "{} expiries", expiries.len());
            let mut last = 0;
            for (flow, wanted, cycle) in expiries {
                assert!(cycle >= wanted, "flow {flow}: {cycle} is before {wanted}");
                assert!(cycle > last, "one a cycle");
                // Late only while others leave, one in each cycle.
                let is_queued = cycle == wanted || last + 1 == cycle;
                assert!(is_queued, "flow {flow}: wanted {wanted}, left {cycle}, the one before at {last}");
                last = cycle;
            }
        }
    }

    #[test]
    fn passing_empty_cycles_changes_no_expiry() {
        for (seed, flows, spread) in [(5, 16, 6), (6, 300, 8), (7, 2048, 4)] {
            assert_eq!(run(seed, flows, spread, false), run(seed, flows, spread, true), "seed {seed}");
        }
    }

    #[test]
    fn t15_waits_beyond_the_wheel_end_at_its_last_slot() {
        let mut wheel = Wheel::new(1);
        wheel.arm(0, 1 << 40, 1_000);
        let mut now = 1_001;
        let expired = loop {
            now = wheel.next_event(now).expect("the flow waits");
            if wheel.advance(now).is_some() {
                break now;
            }
            now += 1;
        };
        assert_eq!(expired, 1_000 + WAIT_MAX);
        assert!(!wheel.is_armed(0));
    }
}
