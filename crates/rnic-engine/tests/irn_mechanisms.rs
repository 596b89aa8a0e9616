//! IRN's mechanisms, one test for each id, as seen on the wire and in memory.
//!
//! Source: IRN (SIGCOMM'18) sections 3, 5, 6 and 7. The ids I-1 to I-28 are those of the project's table of
//! mechanisms; each test does the check that the table lists, and the case one step beyond the limit. Not tested
//! here: I-21 to I-23 (sizes and modules of the hardware) and I-27 (negotiation, done by the connection manager).
//!
//! The wire takes 5 us one way and any number of packets at the same time, so a round trip is 10 us and times in
//! microseconds are exact. Packets are named by their distance from the first PSN, which lies six before the wrap.

mod common;

#[path = "irn_mechanisms/congestion.rs"]
mod congestion;
#[path = "irn_mechanisms/credits.rs"]
mod credits;
#[path = "irn_mechanisms/delivery.rs"]
mod delivery;
#[path = "irn_mechanisms/order.rs"]
mod order;
#[path = "irn_mechanisms/reads.rs"]
mod reads;
#[path = "irn_mechanisms/recovery.rs"]
mod recovery;
#[path = "irn_mechanisms/timers.rs"]
mod timers;
#[path = "irn_mechanisms/variants.rs"]
mod variants;
#[path = "irn_mechanisms/windows.rs"]
mod windows;

use common::*;
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;
use rnic_wire::Headers;

/// The first PSN of both sides.
const FIRST: Psn = Psn::new(0xff_fffa);
/// Offset in memory that Writes go to.
const TARGET: u64 = 500_000;

fn irn() -> Pair {
    Pair::of("irn")
}

fn irn_with(options: &[(&str, &str)]) -> Pair {
    Pair::new(&Setup::new("irn", options))
}

/// Posts a Write of `packets` full packets on the left side.
fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

/// Posts a Read of `packets` full packets on the left side.
fn read(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(TARGET, packets * MTU), pair.right.remote(0));
    pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
}

fn all_succeed(side: &mut Side, wr_ids: impl IntoIterator<Item = u64>) {
    let expected: Vec<_> = wr_ids.into_iter().map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(side.statuses(), expected);
}

fn us(us: u64) -> Time {
    Time::from_us(us)
}

/// Returns how many acknowledgements of responses `from` sent.
fn response_acks(pair: &Pair, from: From) -> usize {
    let is_ack = |sent: &&Sent| sent.from == from && matches!(sent.packet.headers, Headers::ReadAck { .. });
    pair.log.iter().filter(is_ack).count()
}

/// Runs in steps of `step` until no event is left, and calls `look` after each step.
fn run_watching(pair: &mut Pair, step: Duration, until: Time, mut look: impl FnMut(&Pair)) {
    while pair.now < until {
        let next = pair.now + step;
        pair.run_until(next);
        pair.now = next;
        look(pair);
    }
}
