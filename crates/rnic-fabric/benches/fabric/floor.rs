//! The floor: a bare event loop that moves packets over the same network and does nothing else.
//!
//! One event per hop in a calendar queue: buckets of a fixed width, the open one sorted, a heap for what lies far ahead
//! (Brown, CACM 1988, without the resizing: the delays are known). A packet of 32 bytes knows its way; at its end it
//! turns round. Links serialise: a departure waits until its link is free. No engine, no buffer, no trace.

use std::hint::black_box;

const K: u32 = 8;
const HOSTS: u32 = K * K * K / 4;
/// Packets under way for every host: the window that fills its link.
const WINDOW: u32 = 40;
/// Serialisation of 4096 bytes and headers at 100 Gbit/s, and the delay of a link, in ps.
const SERIALISATION: u64 = 334_000;
const DELAY: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Packet {
    src: u32,
    dst: u32,
    hash: u32,
    size: u32,
    hop: u32,
    hops: u32,
    born: u64,
}

const _: () = assert!(size_of::<Packet>() == 32);

/// An instant and a packet; equal instants are told apart by the order of their making.
type Event = (u64, u32);

/// Buckets of 2^18 ps; 64 of them reach beyond the latest arrival that a link makes.
struct Calendar {
    buckets: Vec<Vec<Event>>,
    open: usize,
    far: std::collections::BinaryHeap<std::cmp::Reverse<Event>>,
}

const WIDTH_BITS: u32 = 18;
const BUCKETS: usize = 64;

impl Calendar {
    fn new() -> Self {
        Self { buckets: vec![Vec::new(); BUCKETS], open: 0, far: std::collections::BinaryHeap::new() }
    }

    #[inline]
    fn push(&mut self, event: Event) {
        let slot = (event.0 >> WIDTH_BITS) as usize;
        if slot >= self.open + BUCKETS {
            self.far.push(std::cmp::Reverse(event));
            return;
        }
        let bucket = &mut self.buckets[slot % BUCKETS];
        if slot == self.open {
            // The open bucket is sorted, earliest last.
            let place = bucket.partition_point(|other| *other > event);
            bucket.insert(place, event);
        } else {
            bucket.push(event);
        }
    }

    #[inline]
    fn pop(&mut self) -> Event {
        loop {
            if let Some(event) = self.buckets[self.open % BUCKETS].pop() {
                return event;
            }
            self.open += 1;
            while let Some(std::cmp::Reverse(event)) = self.far.peek().copied()
                && ((event.0 >> WIDTH_BITS) as usize) < self.open + BUCKETS
            {
                self.far.pop();
                self.buckets[(event.0 >> WIDTH_BITS) as usize % BUCKETS].push(event);
            }
            self.buckets[self.open % BUCKETS].sort_unstable_by(|a, b| b.cmp(a));
        }
    }
}

/// The number of the directed link that `packet` takes next. Layers of links: host up, edge up, aggregation up, and the
/// same down; within each layer as many links as hosts.
#[inline]
fn link(packet: &Packet) -> usize {
    let half = K / 2;
    let (edge, pod) = (|host: u32| host / half, |host: u32| host / (half * half));
    let choice = |layer: u32| packet.hash.rotate_left(layer * 7) % half;
    let climbs = packet.hops / 2;
    let down_from = packet.hops - packet.hop;
    let index = match (packet.hop < climbs, packet.hop, down_from) {
        (true, 0, _) => packet.src,
        (true, 1, _) => HOSTS + edge(packet.src) * half + choice(1),
        (true, ..) => 2 * HOSTS + (pod(packet.src) * half + choice(1)) * half + choice(2),
        (false, _, 3) => 3 * HOSTS + (pod(packet.dst) * half + choice(1)) * half + choice(2),
        (false, _, 2) => 4 * HOSTS + edge(packet.dst) * half + choice(1),
        (false, ..) => 5 * HOSTS + packet.dst,
    };
    index as usize
}

/// Links from one host to another.
fn distance(src: u32, dst: u32) -> u32 {
    let half = K / 2;
    match (src / half == dst / half, src / (half * half) == dst / (half * half)) {
        (true, _) => 2,
        (false, true) => 4,
        (false, false) => 6,
    }
}

/// Moves packets until there were `hops` hops; answers how many there were.
pub fn run(hops: u64) -> u64 {
    let mut packets = Vec::new();
    let mut calendar = Calendar::new();
    for src in 0..HOSTS {
        let dst = (src + HOSTS / 2 + 5) % HOSTS;
        for number in 0..WINDOW {
            let hash = (src * WINDOW + number).wrapping_mul(0x9e37_79b9);
            let born = u64::from(number) * SERIALISATION;
            calendar.push((born, packets.len() as u32));
            packets.push(Packet { src, dst, hash, size: 4_096, hop: 0, hops: distance(src, dst), born });
        }
    }
    let mut free_at = vec![0u64; 6 * HOSTS as usize];
    let mut done = 0;
    while done < hops {
        let (now, index) = calendar.pop();
        let packet = &mut packets[index as usize];
        if packet.hop == packet.hops {
            (packet.src, packet.dst, packet.hop, packet.born) = (packet.dst, packet.src, 0, now);
        }
        let link = &mut free_at[link(packet)];
        // What goes back is an acknowledgement: small.
        let serialisation = if packet.src < packet.dst { SERIALISATION } else { SERIALISATION / 64 };
        *link = (*link).max(now) + serialisation;
        packet.hop += 1;
        calendar.push((*link + DELAY, index));
        done += 1;
    }
    black_box(packets.iter().map(|packet| packet.born + u64::from(packet.size)).sum::<u64>());
    done
}
