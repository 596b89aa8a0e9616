//! The cost of the ICRC, and a comparison of CRC crates.
//!
//! `crate/*`: one update of `crc32fast` and of `crc-fast` from a known state, over a header, 64 bytes, 1 KiB and 4
//! KiB. `icrc/*`: the work of a host per packet, with and without the cached prefix.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use rnic_wire::{Addresses, IcrcPrefix, icrc};

const LENGTHS: [usize; 4] = [28, 64, 1024, 4096];

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 3) as u8).collect()
}

fn crates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crate");
    for len in LENGTHS {
        let data = bytes(len);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("crc32fast/{len}"), |bencher| {
            bencher.iter(|| {
                let mut hasher = crc32fast::Hasher::new_with_initial(black_box(0x2144_df1c));
                hasher.update(black_box(&data));
                hasher.finalize()
            });
        });
        group.bench_function(format!("crc-fast/{len}"), |bencher| {
            bencher.iter(|| {
                let algorithm = crc_fast::CrcAlgorithm::Crc32IsoHdlc;
                let mut digest = crc_fast::Digest::new_with_init_state(algorithm, black_box(0x2144_df1c));
                digest.update(black_box(&data));
                digest.finalize()
            });
        });
    }
    group.finish();
}

fn packets(criterion: &mut Criterion) {
    let parse = |text: &str| text.parse().expect("an address");
    let path = Addresses::new(parse("10.1.2.3:49152"), parse("10.4.5.6:4791")).expect("both IPv4");
    let mut group = criterion.benchmark_group("icrc");
    group.bench_function("prefix", |bencher| bencher.iter(|| IcrcPrefix::new(black_box(&path), black_box(1060))));
    for payload in [0, 64, 1024, 4096] {
        let mut datagram = bytes(28 + payload);
        let len = datagram.len() as u32 + 4;
        let prefix = IcrcPrefix::new(&path, len);
        group.throughput(Throughput::Bytes(u64::from(len)));
        group.bench_function(format!("send headers and {payload}"), |bencher| {
            bencher.iter(|| {
                let (headers, body) = black_box(&datagram).split_at(28);
                let mut icrc = prefix.start(headers);
                icrc.update(body);
                icrc.finish()
            });
        });
        let trailer = prefix.start(&datagram).finish();
        datagram.extend_from_slice(&trailer);
        group.bench_function(format!("verify headers and {payload}"), |bencher| {
            bencher.iter(|| prefix.verify(black_box(&datagram)));
        });
        group.bench_function(format!("verify without prefix, headers and {payload}"), |bencher| {
            bencher.iter(|| icrc::verify(&path, black_box(&datagram)));
        });
    }
    group.finish();
}

criterion_group!(benches, crates, packets);
criterion_main!(benches);
