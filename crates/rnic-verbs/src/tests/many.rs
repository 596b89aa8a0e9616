//! The maximum number of queue pairs of a device.

use std::time::Instant;

use super::bench::{Bench, Options};
use crate::abi::*;
use crate::{post, qp, query};

fn queue_pairs_offered(context: *mut ibv_context) -> i32 {
    // SAFETY: integers and byte arrays, for which zero is valid.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: an open device, attributes that may be written.
    assert_eq!(unsafe { query::ibv_query_device(context, &raw mut attr) }, 0);
    attr.max_qp
}

/// Returns the bytes of memory that this process uses.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc can be read");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4_096
}

fn qpn_of(pair: *mut ibv_qp) -> u32 {
    // SAFETY: a valid queue pair.
    unsafe { (*pair).qp_num }
}

#[test]
fn all_offered_queue_pairs_exist_and_the_last_ones_work() {
    let bench = Bench::new(&Options::default());
    let (a, b) = (&bench.a, &bench.b);
    assert_eq!([a, b].map(|side| queue_pairs_offered(side.context)), [16_384; 2]);
    let (begin, before) = (Instant::now(), resident_bytes());
    // One queue pair exists already.
    let mut pairs: Vec<*mut ibv_qp> = (1..16_384).map(|_| a.another_qp().expect("a queue pair is available")).collect();
    let (took, bytes) = (begin.elapsed(), resident_bytes().saturating_sub(before));
    println!("{} queue pairs in {took:?}, {} bytes each", pairs.len(), bytes / pairs.len());
    assert_eq!(a.another_qp(), Err(libc::ENOMEM), "more queue pairs than offered were created");
    pairs.sort_by_key(|pair| qpn_of(*pair));
    assert!(pairs.windows(2).all(|two| qpn_of(two[0]) < qpn_of(two[1])), "a queue pair number was assigned twice");
    let last = pairs.pop().expect("there are queue pairs");
    let number = qpn_of(last);
    // SAFETY: a valid queue pair, not used afterwards.
    assert_eq!(unsafe { qp::ibv_destroy_qp(last) }, 0);
    pairs.push(a.another_qp().expect("one queue pair is available"));
    assert_eq!(qpn_of(pairs[16_382]), number, "not the only free number");
    for (round, pair) in [pairs[16_382], pairs[16_000], pairs[8_192], pairs[4_096], pairs[0]].into_iter().enumerate() {
        bench.connect_to(pair);
        a.memory(|bytes| bytes[..64].fill(round as u8 + 1));
        b.memory(|bytes| bytes[..64].fill(0));
        let mut wr = bench.write(round as u64, 64);
        let mut bad = std::ptr::null_mut();
        // SAFETY: a valid queue pair and a request.
        assert_eq!(unsafe { post::post_send(pair, &raw mut wr, &raw mut bad) }, 0);
        let wc = a.wait();
        assert_eq!((wc.status, wc.wr_id, wc.qp_num), (IBV_WC_SUCCESS, round as u64, qpn_of(pair)));
        b.memory(|bytes| assert_eq!(bytes[..64], [round as u8 + 1; 64]));
    }
    let begin = Instant::now();
    for pair in pairs {
        // SAFETY: a valid queue pair, not used again.
        assert_eq!(unsafe { qp::ibv_destroy_qp(pair) }, 0);
    }
    println!("ended in {:?}", begin.elapsed());
}
