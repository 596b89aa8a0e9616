//! Exact error semantics, compared with verbs: which entry fails, with which status, in which order, at which end;
//! the outcome is the same whichever packet is lost.
//!
//! Source: InfiniBand Architecture volume 1, sections 9.7.5 (retries), 9.9 (error detection and handling), 10.3.1
//! (states), 10.7 and 11.4 (work requests and completions); the manual pages of `ibv_post_send`, `ibv_modify_qp`,
//! `ibv_poll_cq`.
//!
//! Every test runs on both transports.

mod common;

#[path = "verbs_errors/changes.rs"]
mod changes;
#[path = "verbs_errors/gone.rs"]
mod gone;
#[path = "verbs_errors/local.rs"]
mod local;
#[path = "verbs_errors/modify.rs"]
mod modify;
#[path = "verbs_errors/order.rs"]
mod order;
#[path = "verbs_errors/overlap.rs"]
mod overlap;
#[path = "verbs_errors/peers.rs"]
mod peers;
#[path = "verbs_errors/post.rs"]
mod post;
#[path = "verbs_errors/remote.rs"]
mod remote;
#[path = "verbs_errors/retries.rs"]
mod retries;
#[path = "verbs_errors/rnr.rs"]
mod rnr;
#[path = "verbs_errors/teardown.rs"]
mod teardown;
#[path = "verbs_errors/waking.rs"]
mod waking;

use common::*;
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;

const TRANSPORTS: [&str; 3] = ["roce-gbn", "irn", "fasr"];
/// Offset in memory that Writes and responses go to.
const TARGET: u64 = 500_000;

fn us(us: u64) -> Time {
    Time::from_us(us)
}

fn setup(transport: &str) -> Setup {
    Setup::new(transport, &[])
}

fn micros(time: Time) -> u64 {
    time.as_ps() / Duration::from_us(1).as_ps()
}

/// Posts a Write of `len` bytes to memory that allows it.
fn write(pair: &mut Pair, wr_id: u64, len: u32) {
    let (sge, remote) = (pair.left.sge(0, len), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

fn send(pair: &mut Pair, wr_id: u64, len: u32) {
    let sge = pair.left.sge(0, len);
    pair.left.post(wr_id, SendOp::Send { immediate: None }, &[sge]);
}

fn read(pair: &mut Pair, wr_id: u64, len: u32) {
    let (sge, remote) = (pair.left.sge(TARGET, len), pair.right.remote(0));
    pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
}

fn post_recvs(side: &mut Side, wr_ids: std::ops::Range<u64>, len: u32) {
    for wr_id in wr_ids {
        let sge = side.sge(TARGET, len);
        side.post_recv(wr_id, &[sge]);
    }
}

/// Returns `count` successes from wr_id 0 on, then `last`, then flushed requests up to `total`.
fn fails_at(count: u64, last: WcStatus, total: u64) -> Vec<(u64, WcStatus)> {
    let status = |wr_id: u64| match wr_id.cmp(&count) {
        std::cmp::Ordering::Less => WcStatus::Success,
        std::cmp::Ordering::Equal => last,
        std::cmp::Ordering::Greater => WcStatus::WrFlushed,
    };
    (0..total).map(|wr_id| (wr_id, status(wr_id))).collect()
}

fn all(wr_ids: std::ops::Range<u64>, status: WcStatus) -> Vec<(u64, WcStatus)> {
    wr_ids.map(|wr_id| (wr_id, status)).collect()
}

fn events(side: &mut Side) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| side.engine.objects_mut().poll_event()).collect()
}

/// Loses the `nth` packet (from 0) of each listed direction; acknowledgements are counted too.
fn lose_nth(losses: &[(From, u32)]) -> impl FnMut(&Sent) -> Fate + 'static {
    let losses = losses.to_vec();
    let mut sent_by = [0, 0];
    move |sent| {
        let count = &mut sent_by[usize::from(sent.from == From::Right)];
        let nth = *count;
        *count += 1;
        if losses.contains(&(sent.from, nth)) { Fate::Drop } else { Fate::Deliver }
    }
}

/// Returns every loss of one packet among the first ten of each direction, every loss of two in a row, and no loss.
fn loss_patterns() -> Vec<Vec<(From, u32)>> {
    let mut patterns = vec![vec![]];
    for from in [From::Left, From::Right] {
        for nth in 0..10 {
            patterns.push(vec![(from, nth)]);
            patterns.push(vec![(from, nth), (from, nth + 1)]);
        }
    }
    for nth in 0..8 {
        patterns.push(vec![(From::Left, nth), (From::Right, nth)]);
    }
    patterns
}

/// Makes another region of a side's memory with the rights `access`.
fn region(side: &mut Side, pd: PdId, at: u64, len: u64, access: Access) -> u32 {
    let region = MemoryRegion { pd, addr: BASE + at, len, local: at, access };
    side.engine.objects_mut().register(region).expect("a legal region").0
}
