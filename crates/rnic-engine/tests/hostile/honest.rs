//! Traffic on a connection that the attacker cannot forge: every operation is checked to the byte.

use rnic_engine::*;

use crate::node::{LOCAL, Node, READ, SOURCE, WRITE};
use crate::world::{Connection, SAFE};

/// Operations in flight.
const DEPTH: u64 = 6;
/// Bytes of each operation: two packets.
const MESSAGE: u32 = 300;

pub struct Honest {
    pub connection: Connection,
    /// Index of the part of the regions that it uses.
    index: u64,
    posted: u64,
    done: u64,
    received: u64,
}

impl Honest {
    pub fn new(connection: Connection, index: u64) -> Self {
        Self { connection, index, posted: 0, done: 0, received: 0 }
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the offset in each region at which operation `op` has its bytes.
    fn offset(&self, op: u64) -> u64 {
        (self.index * DEPTH + op % DEPTH) * u64::from(MESSAGE)
    }

    /// Returns the bytes of operation `op`.
    fn contents(&self, op: u64) -> impl Iterator<Item = u8> {
        let first = op * 31 + self.index * 7;
        (0..u64::from(MESSAGE)).map(move |at| (first + at * 3 + at / 256) as u8)
    }

    /// Fills the send queue: Writes, Sends and Reads in turn.
    pub fn post(&mut self, nodes: &mut [Node; 2]) {
        while self.posted < self.done + DEPTH {
            let (op, at) = (self.posted, self.offset(self.posted));
            let [left, right] = nodes;
            let (own, remote) = (left.domains[SAFE].regions, right.domains[SAFE].regions);
            // Memory that is sent or read.
            let (memory, region) =
                if op % 3 == 2 { (&mut right.memory, remote[READ]) } else { (&mut left.memory, own[SOURCE]) };
            let start = (region.region.local + at) as usize;
            for (byte, content) in memory[start..].iter_mut().zip(self.contents(op)) {
                *byte = content;
            }
            let (request, sge) = match op % 3 {
                0 => {
                    (SendOp::Write { remote: remote[WRITE].remote(at), immediate: None }, own[SOURCE].sge(at, MESSAGE))
                }
                1 => {
                    let receive = RecvRequest { wr_id: op, sges: &[remote[LOCAL].sge(at, MESSAGE)] };
                    right.engine.post_recv(self.connection.numbers[1], &receive).expect("the queue is not full");
                    (SendOp::Send { immediate: Some(op as u32) }, own[SOURCE].sge(at, MESSAGE))
                }
                _ => (SendOp::Read { remote: remote[READ].remote(at) }, own[LOCAL].sge(at, MESSAGE)),
            };
            let request = SendRequest { wr_id: op, op: request, sges: &[sge], flags: SendFlags::SIGNALED };
            left.engine.post_send(self.connection.numbers[0], &request).expect("the queue is not full");
            self.posted += 1;
        }
    }

    /// Verifies a completion on this connection: in order, successful, and with the right bytes in memory.
    pub fn check(&mut self, side: usize, completion: &Completion, nodes: &[Node; 2]) {
        let op = if side == 0 { self.done } else { self.received * 3 + 1 };
        assert_eq!((completion.wr_id, completion.status), (op, WcStatus::Success));
        if side == 0 {
            self.done += 1;
        } else {
            assert_eq!((completion.word, completion.byte_len), (op as u32, MESSAGE));
            self.received += 1;
        }
        let sink = match (side, op % 3) {
            (0, 0) => Some((1, WRITE)),
            (0, 2) => Some((0, LOCAL)),
            (1, _) => Some((1, LOCAL)),
            _ => None,
        };
        if let Some((node, region)) = sink {
            let start = (nodes[node].domains[SAFE].regions[region].region.local + self.offset(op)) as usize;
            let found = &nodes[node].memory[start..start + MESSAGE as usize];
            assert!(self.contents(op).eq(found.iter().copied()), "operation {op}: other bytes");
        }
    }
}
