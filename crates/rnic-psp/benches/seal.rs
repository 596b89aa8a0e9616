//! The cost of protection per packet: encryption, decryption, and key rotation.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use rnic_base::{Duration, Time};
use rnic_psp::{Context, Opener, Sealer, Secret, esp};
use rnic_wire::falcon as wire;
use rnic_wire::falcon::psp::{self, Cipher, ICV_LEN, LEN_MAX};
use rnic_wire::falcon::{Cid, FlowLabel};

const CID: Cid = Cid::new(0x77_0002);

fn sealer_and_opener(cipher: Cipher) -> (Sealer, Opener) {
    let (secret, context) = (Secret::new([9; 32]), Context::new(b"this way"));
    (Sealer::new(&secret, cipher, &context, CID, 1), Opener::new(&secret, cipher, &context, CID))
}

fn packets(criterion: &mut Criterion) {
    for cipher in [Cipher::Gcm128, Cipher::Gcm256, Cipher::Gmac128] {
        let mut group = criterion.benchmark_group(format!("{cipher:?}"));
        for len in [64, 1_024, 4_096] {
            group.throughput(Throughput::Bytes(len as u64));
            let (mut sealer, mut opener) = sealer_and_opener(cipher);
            let mut datagram = vec![7; LEN_MAX + len + ICV_LEN];
            let mut now = Time::ZERO;
            group.bench_function(format!("seal/{len}"), |bencher| {
                bencher.iter(|| {
                    now += Duration::from_ns(50);
                    black_box(sealer.seal(now, FlowLabel::new(0), black_box(&mut datagram)))
                });
            });
            sealer.seal(now, FlowLabel::new(0), &mut datagram);
            let sealed = datagram.clone();
            // Includes the copy that restores the encrypted bytes.
            group.bench_function(format!("open/{len}"), |bencher| {
                bencher.iter(|| {
                    datagram.copy_from_slice(black_box(&sealed));
                    let (header, layout) = psp::parse(&datagram).expect("the PSP header is valid");
                    opener.open(&header, layout, &mut datagram).expect("the datagram is authentic")
                });
            });
        }
    }
}

/// Like [`packets`], in ESP encapsulation.
fn packets_esp(criterion: &mut Criterion) {
    for cipher in [Cipher::Gcm128, Cipher::Gcm256, Cipher::Gmac128] {
        let mut group = criterion.benchmark_group(format!("esp/{cipher:?}"));
        for len in [64, 1_024, 4_096] {
            group.throughput(Throughput::Bytes(len as u64));
            let (secret, context) = (Secret::new([9; 32]), Context::new(b"this way"));
            let mut sealer = esp::Sealer::new(&secret, cipher, &context, CID, 1);
            let mut datagram = vec![7; wire::esp::encapsulation_len(len) + len];
            let mut now = Time::ZERO;
            group.bench_function(format!("seal/{len}"), |bencher| {
                bencher.iter(|| {
                    now += Duration::from_ns(50);
                    black_box(sealer.seal(now, FlowLabel::new(0), len, black_box(&mut datagram)))
                });
            });
            // A packet can be opened only once, so each iteration seals one before it opens it.
            let mut opener = esp::Opener::new(&secret, cipher, &context, CID);
            let mut sealer = esp::Sealer::new(&secret, cipher, &context, CID, 1);
            group.bench_function(format!("both/{len}"), |bencher| {
                bencher.iter(|| {
                    sealer.seal(now, FlowLabel::new(0), len, &mut datagram);
                    let (header, layout) = wire::esp::parse(black_box(&datagram)).expect("the ESP header is valid");
                    opener.open(&header, layout, &mut datagram).expect("the datagram is authentic")
                });
            });
        }
    }
}

fn rotation(criterion: &mut Criterion) {
    let (mut sealer, _) = sealer_and_opener(Cipher::Gcm128);
    criterion.bench_function("rotate", |bencher| bencher.iter(|| sealer.rotate()));
}

criterion_group!(benches, packets, packets_esp, rotation);
criterion_main!(benches);
