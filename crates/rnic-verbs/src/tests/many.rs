//! All the queue pairs that a device can have.

use std::time::Instant;

use super::bench::{Bench, Options};
use crate::abi::*;
use crate::{post, qp, query};

fn queue_pairs_offered(context: *mut ibv_context) -> i32 {
    // SAFETY: numbers and bytes, all of which may be zero.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: an open device, attributes that may be written.
    assert_eq!(unsafe { query::ibv_query_device(context, &raw mut attr) }, 0);
    attr.max_qp
}

/// Bytes of memory that this process has in use.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux says it");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4_096
}

fn number_of(pair: *mut ibv_qp) -> u32 {
    // SAFETY: a living queue pair.
    unsafe { (*pair).qp_num }
}

#[test]
fn a_device_has_as_many_queue_pairs_as_it_says_and_the_last_ones_work() {
    let bench = Bench::new(&Options::default());
    let (a, b) = (&bench.a, &bench.b);
    assert_eq!([a, b].map(|side| queue_pairs_offered(side.context)), [16_384; 2]);
    let (begin, before) = (Instant::now(), resident_bytes());
    // One is there already.
    let mut pairs: Vec<*mut ibv_qp> = (1..16_384).map(|_| a.another_qp().expect("room")).collect();
    let (took, bytes) = (begin.elapsed(), resident_bytes().saturating_sub(before));
    println!("{} queue pairs in {took:?}, {} bytes each", pairs.len(), bytes / pairs.len());
    assert_eq!(a.another_qp(), Err(libc::ENOMEM), "one more");
    pairs.sort_by_key(|pair| number_of(*pair));
    assert!(pairs.windows(2).all(|two| number_of(two[0]) < number_of(two[1])), "a number is given once");
    let last = pairs.pop().expect("there are many");
    let number = number_of(last);
    // SAFETY: a living queue pair, not used again.
    assert_eq!(unsafe { qp::ibv_destroy_qp(last) }, 0);
    pairs.push(a.another_qp().expect("room for one"));
    assert_eq!(number_of(pairs[16_382]), number, "no other is free");
    for (round, pair) in [pairs[16_382], pairs[16_000], pairs[8_192], pairs[4_096], pairs[0]].into_iter().enumerate() {
        bench.connect_to(pair);
        a.memory(|bytes| bytes[..64].fill(round as u8 + 1));
        b.memory(|bytes| bytes[..64].fill(0));
        let mut wr = bench.write(round as u64, 64);
        let mut bad = std::ptr::null_mut();
        // SAFETY: a living queue pair and a request.
        assert_eq!(unsafe { post::post_send(pair, &raw mut wr, &raw mut bad) }, 0);
        let wc = a.wait();
        assert_eq!((wc.status, wc.wr_id, wc.qp_num), (IBV_WC_SUCCESS, round as u64, number_of(pair)));
        b.memory(|bytes| assert_eq!(bytes[..64], [round as u8 + 1; 64]));
    }
    let begin = Instant::now();
    for pair in pairs {
        // SAFETY: a living queue pair, not used again.
        assert_eq!(unsafe { qp::ibv_destroy_qp(pair) }, 0);
    }
    println!("ended in {:?}", begin.elapsed());
}
