//! State of transports on a NIC: our constants result in the papers' numbers, and `docs/memory.md` agrees with the
//! code.
#![expect(clippy::disallowed_methods, reason = "it writes the generated page")]

use std::fmt::Write as _;

use rnic_policy::footprint::CONTEXT_BYTES;
use rnic_policy::{Per, PoolShape, Profile, Store};

use crate::{profile, profiles, select};

const PAGE: &str = include_str!("../../../../docs/memory.md");
const PAGE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/memory.md");

fn named(name: &str) -> Profile {
    profile(name).expect("the transport exists")
}

/// Returns the bits for `connections` queue pairs with `wqes` work requests in total.
fn bits(profile: &Profile, connections: u64, wqes: u64) -> u64 {
    let [connection, wqe, nic] = [Per::Connection, Per::Wqe, Per::Nic].map(|per| profile.footprint_bits(per));
    connection * connections + wqe * wqes + nic
}

#[test]
fn i21_irn_adds_160_bits_five_bitmaps_of_128_three_bytes_a_work_request_and_ten_for_all() {
    let irn = named("irn");
    let (bitmaps, state): (Vec<_>, Vec<_>) = irn
        .footprint()
        .into_iter()
        .filter(|field| field.per == Per::Connection)
        .partition(|field| field.name.starts_with("bitmaps"));
    assert_eq!(state.iter().map(|field| field.bits).sum::<u64>(), 2 * 52 + 56);
    assert_eq!(bitmaps.iter().map(|field| field.bits).sum::<u64>(), 640);
    assert_eq!((irn.footprint_bits(Per::Wqe), irn.footprint_bits(Per::Nic)), (24, 80));
    let wide = select("irn", [("cap_packets", "275")]).expect("the cap is valid");
    assert_eq!(wide.footprint_bits(Per::Connection), 160 + 5 * 275, "bitmaps are not as wide as the cap");
}

/// "3-10 % of the current NIC cache for a couple of thousands of QPs and tens of thousands of WQEs", where the cache
/// has several MB. The test assumes 5 MB, 2000 QPs and 20000 WQEs, with a cap for 40 and for 100 Gbit/s. (With 4 MiB,
/// the latter would be 10.6 %.)
#[test]
fn i_r20_irn_takes_3_to_10_percent_of_a_nics_memory() {
    for cap in ["128", "275"] {
        let irn = select("irn", [("cap_packets", cap)]).expect("the cap is valid");
        let share = bits(&irn, 2_000, 20_000) as f64 / (8.0 * 5e6);
        assert!((0.03..=0.10).contains(&share), "{share}");
    }
}

/// Out-of-order packets of a thousand flows stored on the NIC instead of in host memory: 110 packets of 1 KB each.
#[test]
fn i_r26_storing_out_of_order_packets_on_the_nic_would_take_110_mb() {
    let cap = named("irn").cap_packets.expect("IRN has a packet cap");
    assert_eq!(1_000 * u64::from(cap) * 1_000, 110_000_000);
}

/// FaSR section V-A: 588.5 bytes a context for IRN+, 268 for SRNIC, 257 for FaSR.
#[test]
fn r23_contexts_have_the_sizes_that_fasr_compares() {
    let context = |name: &str| CONTEXT_BYTES * 8 + named(name).footprint_bits(Per::Connection);
    assert_eq!([context("irn-plus"), context("srnic"), context("fasr")], [4_708, 268 * 8, 257 * 8]);
    assert_eq!(context("roce-gbn"), 256 * 8);
}

/// FaSR section III-D: 20 units and 70 blocks of 10 bits take 0.92 KB.
#[test]
fn r12_the_pool_takes_0_92_kb() {
    let mut fasr = named("fasr");
    fasr.store = Store::Pool(PoolShape { units: 20, blocks: 70, block_bits: 10 });
    let bytes = fasr.footprint_bits(Per::Nic).div_ceil(8);
    assert!((915..=925).contains(&bytes), "{bytes} bytes");
}

const HEAD: &str = "\
# Memory of loss recovery on a NIC

Generated from the footprints of the profiles by `make generate`; a test compares it with the code.

The figures are the memory that a transport adds to the context that every RoCE adapter keeps for a queue pair (256
bytes, FaSR section V-A), with its default options: state, bitmaps as wide as its windows, sequence numbers of work
requests, and the memory that all queue pairs share. They exclude congestion control, and the memory for each packet in
flight: `falcon`, whose recovery uses transmit times, keeps a time, counters and flags (48 bytes in this software).
Where its receivers keep packets beyond their windows (`out_of_window=keep`), their bitmaps are wider than counted.
Bitmaps of `roce-sr` and `roce-ar` are as wide as the model here allows, because those of the adapter are not public.

";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += "| transport | bits per connection | bits per work request | shared bits | bytes for 5000 connections |\n";
    page += "|---|---|---|---|---|\n";
    for profile in profiles() {
        let [connection, wqe, nic] = [Per::Connection, Per::Wqe, Per::Nic].map(|per| profile.footprint_bits(per));
        let total = bits(&profile, 5_000, 0).div_ceil(8);
        let _ = writeln!(page, "| `{}` | {connection} | {wqe} | {nic} | {total} |", profile.name);
    }
    for profile in profiles() {
        let fields = profile.footprint();
        let _ = writeln!(page, "\n## `{}`\n", profile.name);
        if fields.is_empty() {
            page += "Nothing.\n";
            continue;
        }
        page += "| field | bits | per |\n|---|---|---|\n";
        for field in fields {
            let per = match field.per {
                Per::Connection => "connection",
                Per::Wqe => "work request",
                Per::Nic => "NIC",
            };
            let _ = writeln!(page, "| {} | {} | {per} |", field.name, field.bits);
        }
    }
    page
}

#[test]
fn the_memory_page_agrees_with_the_code() {
    assert!(PAGE == page(), "docs/memory.md is stale: run `make generate`");
}

#[test]
#[ignore = "writes docs/memory.md; run by `make generate`"]
fn write_the_memory_page() {
    std::fs::write(PAGE_PATH, page()).expect("docs/memory.md can be written");
}
