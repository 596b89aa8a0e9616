//! The lower bound for the time per packet-hop: a bare event loop that moves packets over the same network and does
//! nothing else.
//!
//! One event per hop in a calendar queue: buckets of a fixed width, the open one sorted, a heap for events far in the
//! future (Brown, CACM 1988, without the resizing, because the delays are known). A packet of 32 bytes contains its
//! route; at its destination it turns round. Links serialise: a departure waits until its link is free. No engine, no
//! buffer, no trace.

use std::hint::black_box;

const SWITCH_PORTS: u32 = 8;
const HOSTS: u32 = SWITCH_PORTS * SWITCH_PORTS * SWITCH_PORTS / 4;
/// Packets in flight for every host: the window that fills its link.
const WINDOW: u32 = 40;
/// Serialisation time of 4096 bytes and headers at 100 Gbit/s, and the delay of a link, in ps.
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
    created: u64,
}

const _: () = assert!(size_of::<Packet>() == 32);

/// Time of the event and packet index; events at the same time are ordered by their creation.
type Event = (u64, u32);

/// Calendar of buckets of 2^18 ps; 64 of them reach beyond the latest arrival that a link can cause.
struct Calendar {
    buckets: Vec<Vec<Event>>,
    open: usize,
    later: std::collections::BinaryHeap<std::cmp::Reverse<Event>>,
}

const WIDTH_BITS: u32 = 18;
const BUCKETS: usize = 64;

impl Calendar {
    fn new() -> Self {
        Self { buckets: vec![Vec::new(); BUCKETS], open: 0, later: std::collections::BinaryHeap::new() }
    }

    #[inline]
    fn push(&mut self, event: Event) {
        let slot = (event.0 >> WIDTH_BITS) as usize;
        if slot >= self.open + BUCKETS {
            self.later.push(std::cmp::Reverse(event));
            return;
        }
        let bucket = &mut self.buckets[slot % BUCKETS];
        if slot == self.open {
            // The open bucket is sorted, with the earliest event last.
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
            while let Some(std::cmp::Reverse(event)) = self.later.peek().copied()
                && ((event.0 >> WIDTH_BITS) as usize) < self.open + BUCKETS
            {
                self.later.pop();
                self.buckets[(event.0 >> WIDTH_BITS) as usize % BUCKETS].push(event);
            }
            self.buckets[self.open % BUCKETS].sort_unstable_by(|a, b| b.cmp(a));
        }
    }
}

/// Returns the number of the directed link that `packet` takes next. The layers of links are host up, edge up,
/// aggregation up, and the same down; each layer has as many links as there are hosts.
#[inline]
fn link(packet: &Packet) -> usize {
    let half = SWITCH_PORTS / 2;
    let (edge, pod) = (|host: u32| host / half, |host: u32| host / (half * half));
    let choice = |layer: u32| packet.hash.rotate_left(layer * 7) % half;
    let up_hops = packet.hops / 2;
    let down_from = packet.hops - packet.hop;
    let index = match (packet.hop < up_hops, packet.hop, down_from) {
        (true, 0, _) => packet.src,
        (true, 1, _) => HOSTS + edge(packet.src) * half + choice(1),
        (true, ..) => 2 * HOSTS + (pod(packet.src) * half + choice(1)) * half + choice(2),
        (false, _, 3) => 3 * HOSTS + (pod(packet.dst) * half + choice(1)) * half + choice(2),
        (false, _, 2) => 4 * HOSTS + edge(packet.dst) * half + choice(1),
        (false, ..) => 5 * HOSTS + packet.dst,
    };
    index as usize
}

/// Returns the number of links from one host to another.
fn distance(src: u32, dst: u32) -> u32 {
    let half = SWITCH_PORTS / 2;
    match (src / half == dst / half, src / (half * half) == dst / (half * half)) {
        (true, _) => 2,
        (false, true) => 4,
        (false, false) => 6,
    }
}

/// Moves packets until there were `hops` hops; returns their number.
pub fn run(hops: u64) -> u64 {
    let mut packets = Vec::new();
    let mut calendar = Calendar::new();
    for src in 0..HOSTS {
        let dst = (src + HOSTS / 2 + 5) % HOSTS;
        for number in 0..WINDOW {
            let hash = (src * WINDOW + number).wrapping_mul(0x9e37_79b9);
            let created = u64::from(number) * SERIALISATION;
            calendar.push((created, packets.len() as u32));
            packets.push(Packet { src, dst, hash, size: 4_096, hop: 0, hops: distance(src, dst), created });
        }
    }
    let mut free_at = vec![0u64; 6 * HOSTS as usize];
    let mut done = 0;
    while done < hops {
        let (now, index) = calendar.pop();
        let packet = &mut packets[index as usize];
        if packet.hop == packet.hops {
            (packet.src, packet.dst, packet.hop, packet.created) = (packet.dst, packet.src, 0, now);
        }
        let link = &mut free_at[link(packet)];
        // Packets on the way back are acknowledgements, which are small.
        let serialisation = if packet.src < packet.dst { SERIALISATION } else { SERIALISATION / 64 };
        *link = (*link).max(now) + serialisation;
        packet.hop += 1;
        calendar.push((*link + DELAY, index));
        done += 1;
    }
    black_box(packets.iter().map(|packet| packet.created + u64::from(packet.size)).sum::<u64>());
    done
}
