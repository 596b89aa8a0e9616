//! Two engines back to back: a fixed number of messages, whose instructions `scripts/instructions` counts.
//!
//! `instructions CASE COUNT` carries out COUNT messages and prints how many packets that took. Cases are
//! `irn/write_8B` and the like. Without a case it does nothing.
#![expect(clippy::disallowed_methods, reason = "its command line selects what runs")]

#[path = "common/end.rs"]
mod end;

use std::hint::black_box;

use rnic_base::Time;
use rnic_engine::*;

use end::{End, back_to_back, carry};

/// Messages in flight at a time.
const DEPTH: u32 = 16;

/// Simulated time that passes after each round of carrying all packets, in picoseconds.
const STEP_PS: u64 = 1_000_000;

struct Pair {
    left: End,
    right: End,
    now: Time,
}

impl Pair {
    fn post(&mut self, op: &str) {
        let (left, right) = (&mut self.left, &mut self.right);
        let remote = RemoteMemory { addr: 8_192, rkey: right.key };
        let (op, len) = match op {
            "write_8B" => (SendOp::Write { remote, immediate: None }, 8),
            "write_64KiB" => (SendOp::Write { remote, immediate: None }, 65_536),
            "read_64KiB" => (SendOp::Read { remote }, 65_536),
            "send_64B" => (SendOp::Send { immediate: None }, 64),
            _ => panic!("no operation {op}"),
        };
        if matches!(op, SendOp::Send { .. }) {
            let sges = [Sge { addr: 1 << 20, len, lkey: right.key }];
            right.engine.post_recv(right.qpns[0], &RecvRequest { wr_id: 2, sges: &sges }).expect("not full");
        }
        let sges = [Sge { addr: 4_096, len, lkey: left.key }];
        let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
        left.engine.post_send(left.qpns[0], &request).expect("the queue is not full");
    }

    /// Carries all packets; returns the number of messages that completed.
    fn turn(&mut self) -> u64 {
        self.now = Time::from_ps(self.now.as_ps() + STEP_PS);
        let (left, right) = (&mut self.left, &mut self.right);
        left.engine.tick(self.now);
        right.engine.tick(self.now);
        carry(&mut left.engine, &mut right.engine, self.now);
        carry(&mut right.engine, &mut left.engine, self.now);
        let mut done = 0;
        while let Some(completion) = left.engine.objects_mut().poll_cq_one(left.cq) {
            assert_eq!(black_box(completion).status, WcStatus::Success);
            done += 1;
        }
        while let Some(completion) = right.engine.objects_mut().poll_cq_one(right.cq) {
            black_box(completion);
        }
        done
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [case, count] = &arguments[..] else { return };
    let (transport, op) = case.split_once('/').expect("TRANSPORT/OPERATION");
    let count: u64 = count.parse().expect("a count");
    let (left, right) = back_to_back(transport, 1, DEPTH, DEPTH);
    let mut pair = Pair { left, right, now: Time::ZERO };
    let (mut posted, mut done) = (0, 0);
    while done < count {
        while posted < count && posted - done < u64::from(DEPTH) {
            pair.post(op);
            posted += 1;
        }
        done += pair.turn();
    }
    println!("{}", pair.left.engine.stats().packets_received + pair.right.engine.stats().packets_received);
}
