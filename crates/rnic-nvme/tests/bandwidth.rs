//! The cost of Falcon for a device: bandwidths and operations of an emulated block device over complete connections,
//! compared with the same device alone.
//!
//! Source: Falcon (SIGCOMM'25) section 6.3 and table 4 (Near Local Flash: 97.1 % of the bandwidth of reads, 91.0 of
//! writes, 100 of the operations; "within 10 %"). The flash is emulated, so the ratios measure the cost of transport
//! and mapping, and nothing about flash.

mod common;

use common::{BLOCK_LOG2, Net, WORLD, World};
use rnic_base::{BitRate, Duration, Time};
use rnic_nvme::Direction::{self, Read, Write};
use rnic_nvme::device::{Io, Service};
use rnic_nvme::initiator::Command;
use rnic_nvme::{Device, DeviceConfig, Extent, InitiatorConfig};

/// A fast drive: 3.25 GB/s for reads and 1.5 GB/s for writes.
const DRIVE: DeviceConfig = DeviceConfig {
    read: Service { latency: Duration::from_us(60), bandwidth: BitRate::gbps(26) },
    write: Service { latency: Duration::from_us(15), bandwidth: BitRate::gbps(12) },
    queue_depth: 128,
    block_log2: BLOCK_LOG2,
};

/// Warm-up, during which queues and windows fill.
const WARM_UP: Duration = Duration::from_ms(2);
const MEASURED: Duration = Duration::from_ms(10);

/// Returns the bytes that the device transfers without a network, with its queue always full of units of 4 KiB.
fn device_alone(direction: Direction) -> u64 {
    let mut device = Device::new(DRIVE);
    let (mut now, mut moved, mut tag) = (Time::ZERO, 0, 0);
    while now < Time::ZERO + WARM_UP + MEASURED {
        while !device.is_full() {
            let extent = Extent { first_block: u64::from(tag) * 8, blocks: 8 };
            device.submit(now, Io { owner: 0, tag, direction, extent }).expect("the device is not full");
            tag += 1;
        }
        now = device.next_done().expect("a request is in flight");
        while device.done(now).is_some() {
            moved += if now >= Time::ZERO + WARM_UP { 4_096 } else { 0 };
        }
    }
    moved
}

/// Returns the bytes transferred over Falcon by commands of `blocks` blocks each, `commands` of them in flight at any
/// time, on a network that loses `lost` packets per thousand.
fn bytes_over_falcon(direction: Direction, blocks: u32, commands: u32, lost: u64) -> u64 {
    let initiator = InitiatorConfig { commands, units: 512, ..WORLD.initiator };
    let mut net = Net::new(World { initiator, target_units: 512, device: DRIVE, lost, ..WORLD }, 1);
    net.keeps_sent = false;
    let (mut cookie, until) = (0, net.now + WARM_UP + MEASURED);
    let mut before = None;
    while net.now < until {
        loop {
            let first_block = net.random.below(1 << 12) * u64::from(blocks);
            let command = Command { direction, first_block, blocks, cookie };
            if net.initiator.submit(net.now, &command).is_err() {
                break;
            }
            net.host.buffers.insert(cookie, vec![cookie as u8; (blocks as usize) << BLOCK_LOG2]);
            cookie += 1;
        }
        net.run_for(Duration::from_us(2));
        while let Some(done) = net.initiator.poll() {
            assert_eq!(done.result, Ok(()));
        }
        if net.now + MEASURED >= until {
            before = before.or(Some(net.moved()));
        }
    }
    net.moved() - before.expect("the measured interval has started")
}

#[test]
fn a_device_over_falcon_is_within_ten_percent_of_the_device_alone() {
    let rows = [
        ("reads of 16 KB", Read, 32, 128, 0.97),
        ("writes of 1 MB", Write, 2_048, 8, 0.91),
        ("operations of 4 KB", Read, 8, 256, 0.97),
        ("writes of 4 KB", Write, 8, 256, 0.91),
    ];
    for (name, direction, blocks, commands, paper) in rows {
        let (device_alone, falcon) = (device_alone(direction), bytes_over_falcon(direction, blocks, commands, 0));
        let ratio = falcon as f64 / device_alone as f64;
        println!("{name}: {:.1} % of {} MB", ratio * 100.0, device_alone / 1_000_000);
        assert!(ratio > 0.9, "{name}: {ratio:.3} of the device alone; the paper has {paper}");
        assert!(ratio < 1.02, "{name}: {ratio:.3} of the device alone exceeds its bandwidth");
    }
    let ratio_with_loss = bytes_over_falcon(Read, 32, 128, 10) as f64 / device_alone(Read) as f64;
    println!("reads of 16 KB with 1 % lost: {:.1} %", ratio_with_loss * 100.0);
    assert!(ratio_with_loss > 0.9, "with 1 % lost: {ratio_with_loss:.3} of the device alone");
}
