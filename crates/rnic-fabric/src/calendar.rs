//! The time of the next event of every node.
//!
//! Each node has one entry: the time of its earliest event. Nodes are grouped in blocks, and each block stores a
//! minimum, so that a network in which few nodes have events is not searched node by node. When most nodes have
//! events, every block is visited.

use rnic_base::Time;

/// Time of the next event of a node that has none: later than the end of any run, and the largest time that fits next
/// to a port number in a [`crate::link::Key`].
pub(crate) const NEVER: Time = Time::from_ps((1 << 54) - 1);

/// Nodes per block: eight cache lines of times. The 9472 nodes of a fat-tree of 32-port switches make 148 blocks, so
/// that a search takes two steps of similar length.
const NODES_PER_BLOCK: usize = 64;

/// The time of the earliest event of every node.
#[derive(Debug)]
pub(crate) struct EventCalendar {
    next: Vec<Time>,
    /// Per block, a lower bound: no node of the block has an event before this time.
    blocks: Vec<Time>,
}

impl EventCalendar {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { next: vec![NEVER; nodes], blocks: vec![NEVER; nodes.div_ceil(NODES_PER_BLOCK)] }
    }

    /// Returns the time of the earliest event of all nodes.
    pub(crate) fn earliest(&self) -> Time {
        self.blocks.iter().copied().min().unwrap_or(NEVER)
    }

    /// Registers an event of `node` at `time`, which may be earlier than its current next event.
    #[inline]
    pub(crate) fn lower(&mut self, node: u32, time: Time) {
        let next = &mut self.next[node as usize];
        if time < *next {
            *next = time;
            let block = &mut self.blocks[node as usize / NODES_PER_BLOCK];
            *block = (*block).min(time);
        }
    }

    /// Sets the next event of `node` to `time`, after the node has processed all its earlier events.
    #[inline]
    pub(crate) fn set(&mut self, node: u32, time: Time) {
        self.next[node as usize] = time;
    }

    #[inline]
    pub(crate) fn next_of(&self, node: u32) -> Time {
        self.next[node as usize]
    }

    /// Returns the number of blocks.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the nodes of `block` when one of them may have an event before `horizon`, otherwise an empty range.
    #[inline]
    pub(crate) fn nodes_of(&self, block: usize, horizon: Time) -> core::ops::Range<u32> {
        if self.blocks[block] >= horizon {
            return 0..0;
        }
        let first = block * NODES_PER_BLOCK;
        first as u32..(first + NODES_PER_BLOCK).min(self.next.len()) as u32
    }

    /// Appends the nodes that have an event before `horizon` to `active`, in order.
    pub(crate) fn collect_active(&self, horizon: Time, active: &mut Vec<u32>) {
        for block in 0..self.blocks.len() {
            active.extend(self.nodes_of(block, horizon).filter(|node| self.next_of(*node) < horizon));
        }
    }

    /// Recomputes the minimum of each block in which one of `nodes`, which have run, is; they are in order.
    pub(crate) fn settle_all(&mut self, nodes: &[u32]) {
        let mut last = None;
        for node in nodes {
            let block = *node as usize / NODES_PER_BLOCK;
            if last.replace(block) != Some(block) {
                self.settle(block);
            }
        }
    }

    /// Recomputes the minimum of `block` after nodes of it have run.
    #[inline]
    pub(crate) fn settle(&mut self, block: usize) {
        let first = block * NODES_PER_BLOCK;
        let last = (first + NODES_PER_BLOCK).min(self.next.len());
        self.blocks[block] = self.next[first..last].iter().copied().min().unwrap_or(NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_and_settle_keep_the_earliest_event() {
        let mut calendar = EventCalendar::new(200);
        assert_eq!(calendar.earliest(), NEVER);
        for (node, us) in [(5, 30), (150, 10), (63, 20), (64, 40), (5, 50)] {
            calendar.lower(node, Time::from_us(us));
        }
        assert_eq!(calendar.earliest(), Time::from_us(10));
        assert_eq!(calendar.next_of(5), Time::from_us(30), "a later event does not replace an earlier one");
        assert_eq!(calendar.nodes_of(2, Time::from_us(10)), 0..0);
        assert_eq!(calendar.nodes_of(2, Time::from_us(11)), 128..192);
        calendar.set(150, NEVER);
        calendar.settle(2);
        assert_eq!(calendar.earliest(), Time::from_us(20));
        assert_eq!(calendar.nodes_of(3, NEVER), 0..0, "no node of the block has an event");
    }

    #[test]
    fn the_active_nodes_are_those_with_events_before_the_horizon() {
        let mut calendar = EventCalendar::new(200);
        for (node, us) in [(199, 4), (5, 3), (63, 2), (64, 9), (6, 5)] {
            calendar.lower(node, Time::from_us(us));
        }
        let mut active = Vec::new();
        calendar.collect_active(Time::from_us(5), &mut active);
        assert_eq!(active, [5, 63, 199]);
        active.iter().for_each(|node| calendar.set(*node, NEVER));
        calendar.settle_all(&active);
        assert_eq!(calendar.earliest(), Time::from_us(5), "of node 6, in a block that has run");
        assert_eq!(calendar.nodes_of(3, NEVER), 0..0);
    }
}
