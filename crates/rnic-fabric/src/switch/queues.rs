//! Packets waiting in a switch: for every output a queue per input (virtual output queues, served round robin), or one
//! queue.
//!
//! Source: IRN (SIGCOMM'18) section 4.1: "all switches in our simulation are input-queued with virtual output ports,
//! that are scheduled using round-robin". As there, an input may feed several outputs at the same time: its buffer is
//! limited, but not the bandwidth of its memory. With one source per output, the structure is a plain output queue.

use rnic_base::{Time, prefetch_all, prefetch_at, prefetch_soon_at, prefetch_whole_at};

use crate::entry::{Entry, Flags};

/// All queues of a switch.
#[derive(Debug)]
pub(super) struct Queues {
    /// Chunks of queues, and free chunks.
    pool: Vec<QueueChunk>,
    free: u32,
    /// `lists[output * sources + source]`.
    lists: Vec<List>,
    outputs: Vec<Output>,
    /// With more than 64 sources: one bit for every source of an output, set when the source has packets, `words`
    /// machine words per output. With fewer, the word is in the output.
    waiting: Vec<u64>,
    sources: usize,
    words: usize,
}

/// Several consecutive queue entries, in two cache lines. Entries that wait for a long time are evicted from the cache
/// before they are sent, so they are prefetched together.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
struct QueueChunk {
    entries: [Entry; CHUNK_ENTRIES],
    next: u32,
}

/// Source and chunk of the packet that an output sends next, when packets wait.
#[derive(Clone, Copy, Default, Debug)]
struct NextPacket {
    source: u32,
    chunk: u32,
}

const CHUNK_ENTRIES: usize = 5;

const _: () = assert!(size_of::<QueueChunk>() == 128);

/// A queue of entries in order of arrival.
#[derive(Clone, Copy, Debug)]
struct List {
    /// Index of the first chunk, or [`NO_CHUNK`] when the queue is empty.
    head: u32,
    /// Index of the last chunk; undefined when the queue is empty.
    tail: u32,
    /// Position of the first entry in the first chunk.
    head_position: u16,
    /// Position of the first free entry in the last chunk.
    tail_position: u16,
}

/// Totals over the queues of an output, in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Output {
    pub(super) bytes: u64,
    pub(super) packets: u32,
    last_served: u32,
    /// Maximum number of bytes that waited.
    pub(super) bytes_max: u64,
    last_change: Time,
    /// Integral of the depth over time, in bytes times picoseconds.
    pub(super) byte_time: u128,
    /// One bit for each source that has packets, with at most 64 sources.
    waiting: u64,
    /// The packet that the output sends next.
    upcoming: NextPacket,
}

const _: () = assert!(size_of::<Output>() == 64);

const NO_CHUNK: u32 = u32::MAX;

impl Queues {
    /// Creates the queues of a switch with `ports` ports; virtual output queues when `per_input` is set.
    pub(super) fn new(ports: usize, per_input: bool) -> Self {
        let sources = if per_input { ports } else { 1 };
        let words = sources.div_ceil(64);
        Self {
            pool: Vec::new(),
            free: NO_CHUNK,
            lists: vec![List { head: NO_CHUNK, tail: NO_CHUNK, head_position: 0, tail_position: 0 }; ports * sources],
            outputs: vec![Output::default(); ports],
            waiting: if words > 1 { vec![0; ports * words] } else { Vec::new() },
            sources,
            words,
        }
    }

    #[inline]
    pub(super) fn output(&self, output: usize) -> &Output {
        &self.outputs[output]
    }

    #[inline]
    pub(super) fn is_empty(&self, output: usize) -> bool {
        self.outputs[output].packets == 0
    }

    /// Returns the number of bytes that wait in all queues.
    pub(super) fn bytes(&self) -> u64 {
        self.outputs.iter().map(|output| output.bytes).sum()
    }

    /// Appends `entry`, which arrived at `input`, to its queue.
    #[inline]
    pub(super) fn push(&mut self, now: Time, output: usize, input: usize, entry: Entry) {
        self.push_tagged(now, output, input, entry, input as u16);
    }

    /// Does the same as [`Self::push`], and stores `tag` as the input of the entry.
    #[inline(always)]
    pub(super) fn push_tagged(&mut self, now: Time, output: usize, input: usize, entry: Entry, tag: u16) {
        let source = if self.sources == 1 { 0 } else { input };
        let state = &mut self.outputs[output];
        state.integrate(now);
        state.bytes += u64::from(entry.frame_len);
        state.packets += 1;
        state.bytes_max = state.bytes_max.max(state.bytes);
        let list = output * self.sources + source;
        let List { head, tail, tail_position, .. } = self.lists[list];
        let (chunk, position) = if head != NO_CHUNK && usize::from(tail_position) < CHUNK_ENTRIES {
            (tail, usize::from(tail_position))
        } else {
            *self.waiting_mut(output, source) |= 1 << (source % 64);
            let chunk = self.append_chunk(list);
            if head == NO_CHUNK {
                self.update_next_source(output, source, chunk);
            }
            (chunk, 0)
        };
        let slot = &mut self.pool[chunk as usize].entries[position];
        *slot = entry;
        slot.input = tag;
        self.lists[list].tail_position += 1;
    }

    /// Removes the entry that `output` sends next: the oldest one of the next source in round-robin order.
    ///
    /// # Panics
    /// When no packet waits.
    #[inline]
    pub(super) fn pop(&mut self, now: Time, output: usize) -> Entry {
        assert!(!self.is_empty(output), "no packet waits for output {output}");
        let source = self.outputs[output].upcoming.source as usize;
        let list = &mut self.lists[output * self.sources + source];
        let entry = self.pool[list.head as usize].entries[usize::from(list.head_position)];
        list.head_position += 1;
        let is_last = list.head == list.tail && list.head_position == list.tail_position;
        if is_last || usize::from(list.head_position) == CHUNK_ENTRIES {
            let used = list.head;
            list.head_position = 0;
            list.head = if is_last { NO_CHUNK } else { self.pool[used as usize].next };
            self.pool[used as usize].next = self.free;
            self.free = used;
            if is_last {
                *self.waiting_mut(output, source) &= !(1 << (source % 64));
            }
        }
        let state = &mut self.outputs[output];
        state.last_served = source as u32;
        state.integrate(now);
        state.bytes -= u64::from(entry.frame_len);
        state.packets -= 1;
        self.prefetch_next(output);
        entry
    }

    /// Records that `source` of `output` has packets again, starting with `chunk`: it may be the next one in
    /// round-robin order.
    #[inline]
    fn update_next_source(&mut self, output: usize, source: usize, chunk: u32) {
        let Output { packets, last_served, .. } = self.outputs[output];
        let after_last = |source: usize| {
            let turn = source + self.sources - 1 - last_served as usize;
            if turn < self.sources { turn } else { turn - self.sources }
        };
        let upcoming = &mut self.outputs[output].upcoming;
        if packets == 1 || after_last(source) < after_last(upcoming.source as usize) {
            *upcoming = NextPacket { source: source as u32, chunk };
        }
    }

    /// Determines and prefetches the packet that `output` will send next unless packets from other sources arrive
    /// before.
    #[inline]
    fn prefetch_next(&mut self, output: usize) {
        if self.is_empty(output) {
            return;
        }
        let source = self.next_source(output);
        let chunk = self.lists[output * self.sources + source].head;
        prefetch_soon_at(&self.pool, chunk as usize);
        self.outputs[output].upcoming = NextPacket { source: source as u32, chunk };
    }

    /// Prefetches the state that determines which packet `output` sends next.
    #[inline]
    pub(super) fn prefetch_output(&self, output: usize) {
        prefetch_at(&self.outputs, output);
    }

    /// Prefetches the queue of packets from `input` to `output`.
    #[inline]
    pub(super) fn prefetch_list(&self, output: usize, input: usize) {
        let source = if self.sources == 1 { 0 } else { input };
        prefetch_at(&self.lists, output * self.sources + source);
    }

    /// Prefetches the depths of all outputs.
    pub(super) fn prefetch_outputs(&self) {
        prefetch_all(&self.outputs);
    }

    /// Prefetches the packet that `output` sends next, after [`Queues::prefetch_output`].
    #[inline]
    pub(super) fn prefetch_first(&self, output: usize) {
        prefetch_whole_at(&self.pool, self.outputs[output].upcoming.chunk as usize);
    }

    /// Returns the first source with packets after the one served last, in round-robin order.
    #[inline]
    fn next_source(&self, output: usize) -> usize {
        let Output { last_served, waiting: word, .. } = self.outputs[output];
        let start = last_served as usize + 1;
        if self.words == 1 {
            let later = if start < 64 { word >> start << start } else { 0 };
            return if later != 0 { later } else { word }.trailing_zeros() as usize;
        }
        let waiting = &self.waiting[output * self.words..(output + 1) * self.words];
        let round_robin = (start..self.sources).chain(0..start);
        let has_packets = |source: &usize| waiting[source / 64] >> (source % 64) & 1 == 1;
        round_robin.into_iter().find(has_packets).expect("a packet waits")
    }

    /// Returns the word that has the bit of `source`.
    #[inline]
    fn waiting_mut(&mut self, output: usize, source: usize) -> &mut u64 {
        match self.words {
            1 => &mut self.outputs[output].waiting,
            words => &mut self.waiting[output * words + source / 64],
        }
    }

    /// Appends a new chunk to `list`.
    #[inline]
    fn append_chunk(&mut self, list: usize) -> u32 {
        let chunk = self.allocate();
        let list = &mut self.lists[list];
        if list.head == NO_CHUNK {
            (list.head, list.head_position) = (chunk, 0);
        } else {
            self.pool[list.tail as usize].next = chunk;
        }
        (list.tail, list.tail_position) = (chunk, 0);
        chunk
    }

    #[inline]
    fn allocate(&mut self) -> u32 {
        let index = self.free;
        if index == NO_CHUNK {
            self.pool.push(QueueChunk { entries: [Entry::pause_frame(Flags::NONE); CHUNK_ENTRIES], next: NO_CHUNK });
            return self.pool.len() as u32 - 1;
        }
        self.free = self.pool[index as usize].next;
        index
    }
}

impl Output {
    /// Returns the integral of the depth until `now`, which must not be before the last change.
    pub(super) fn byte_time_at(&self, now: Time) -> u128 {
        self.byte_time + u128::from(self.bytes) * u128::from(now.since(self.last_change).as_ps())
    }

    /// Extends the integral to `now`, with the present depth.
    #[inline]
    fn integrate(&mut self, now: Time) {
        self.byte_time = self.byte_time_at(now);
        self.last_change = now;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn entry(id: u64) -> Entry {
        Entry::new(id, 0, 0, 0, 100, Flags::NONE)
    }

    /// For random arrivals, each output serves the next source in round-robin order that has packets.
    #[test]
    fn the_next_source_in_round_robin_order_is_served() {
        let mut random = rnic_base::RandomStreams::new(3).stream("queues");
        for ports in [1usize, 4, 8, 64, 100] {
            let mut queues = Queues::new(ports, true);
            let mut model = vec![VecDeque::new(); ports];
            let (mut last, mut waiting) = (0, 0);
            for id in 0..20_000 {
                // The queues mostly fill during the first 300 of every 500 steps, and drain during the others.
                let fills = id % 500 < 300;
                if waiting == 0 || random.below(8) < if fills { 5 } else { 2 } {
                    let source = random.below(ports as u64) as usize;
                    queues.push(Time::ZERO, 0, source, entry(id));
                    model[source].push_back(id);
                    waiting += 1;
                } else {
                    let mut round_robin = (1..=ports).map(|turn| (last + turn) % ports);
                    last = round_robin.find(|source| !model[*source].is_empty()).expect("a packet waits");
                    assert_eq!(
                        queues.pop(Time::ZERO, 0).identity,
                        model[last].pop_front().expect("the source has a packet")
                    );
                    waiting -= 1;
                }
            }
        }
    }

    fn drain(queues: &mut Queues, output: usize) -> Vec<u64> {
        let mut order = Vec::new();
        while !queues.is_empty(output) {
            order.push(queues.pop(Time::ZERO, output).identity);
        }
        order
    }

    #[test]
    fn virtual_queues_are_served_round_robin_each_in_order() {
        for ports in [4usize, 200] {
            let mut queues = Queues::new(ports, true);
            let last = ports - 1;
            for (id, in_port) in [(10, 1), (11, 1), (12, 1), (20, last), (21, last), (30, 0)] {
                queues.push(Time::ZERO, 2, in_port, entry(id));
            }
            queues.push(Time::ZERO, 1, 1, entry(99));
            assert_eq!((queues.output(2).bytes, queues.bytes()), (600, 700));
            assert_eq!(drain(&mut queues, 2), [10, 20, 30, 11, 21, 12], "{ports} ports");
            assert_eq!(drain(&mut queues, 1), [99]);
        }
    }

    #[test]
    fn one_queue_per_output_is_first_in_first_out() {
        let mut queues = Queues::new(4, false);
        for (id, in_port) in [(1, 3), (2, 0), (3, 3), (4, 1)] {
            queues.push(Time::ZERO, 0, in_port, entry(id));
        }
        assert_eq!(drain(&mut queues, 0), [1, 2, 3, 4]);
    }

    #[test]
    fn depth_is_integrated_over_time() {
        let mut queues = Queues::new(2, true);
        queues.push(Time::from_ps(10), 0, 0, entry(1));
        queues.push(Time::from_ps(20), 0, 0, entry(2));
        queues.pop(Time::from_ps(50), 0);
        queues.pop(Time::from_ps(60), 0);
        let output = queues.output(0);
        assert_eq!((output.byte_time, output.bytes_max), (100 * 10 + 200 * 30 + 100 * 10, 200));
        let pool = queues.pool.len();
        queues.push(Time::from_ps(70), 1, 1, entry(3));
        assert_eq!(queues.pool.len(), pool, "a freed chunk was not reused");
    }
}
