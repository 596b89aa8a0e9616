//! A machine of known speed, and a scheduler that keeps to the measured capacity.

use rnic_base::{RandomStream, RandomStreams};

use super::*;

/// Time of a turn.
const TURN: Duration = Duration::from_us(100);

/// A NIC whose machine sends at `speed`, and whose queue pairs want to send at `demand`.
struct Machine {
    meter: CapacityMeter,
    now: Time,
    speed: BitRate,
    demand: BitRate,
    sent: u64,
    /// Bytes that the scheduler has permitted and the machine has not sent yet.
    queued: u64,
    waits: u64,
    noise: RandomStream,
}

impl Machine {
    fn new(gbps: u64) -> Self {
        Self {
            meter: CapacityMeter::new(Time::ZERO, Counts::default(), BitRate::gbps(100)),
            now: Time::ZERO,
            speed: BitRate::gbps(gbps),
            demand: BitRate::gbps(100),
            sent: 0,
            queued: 0,
            waits: 0,
            noise: RandomStreams::new(7).stream("noise"),
        }
    }

    /// Runs for some turns, each of which takes between a half and three halves of [`TURN`]; returns the rate at which
    /// the machine has sent.
    fn run(&mut self, turns: u64) -> BitRate {
        let (begin, before) = (self.now, self.sent);
        for _ in 0..turns {
            self.meter.begin_turn(self.now, self.sent);
            let turn = TURN / 2 + Duration::from_ps(self.noise.below(TURN.as_ps()));
            let permitted = self.meter.capacity().unwrap_or(BitRate::gbps(100));
            // Permission that is not used within 20 ms is lost, as with the limiter of a queue pair.
            let longest = permitted.bytes_in(Duration::from_ms(20));
            self.queued = (self.queued + permitted.min(self.demand).bytes_in(turn)).min(longest);
            let sent = self.queued.min(self.speed.bytes_in(turn));
            (self.sent, self.queued, self.now) = (self.sent + sent, self.queued - sent, self.now + turn);
            // The scheduler holds the rest, if more is wanted than it permits.
            self.waits += u64::from(self.queued == 0 && permitted < self.demand);
            self.meter.end_turn(Counts { bytes: self.sent, waits: self.waits }, self.queued > 0);
        }
        BitRate::from_transfer(self.sent - before, self.now.since(begin))
    }

    /// Runs for some seconds.
    fn run_for(&mut self, seconds: u64) -> BitRate {
        self.run(seconds * 10_000)
    }

    /// Returns the capacity as a percentage of the machine's speed.
    fn percent(&self) -> u64 {
        self.meter.capacity().map_or(0, |capacity| capacity.as_bps() * 100 / self.speed.as_bps())
    }
}

/// 100 s with the scheduler at 95 % of the measured rate: 1000 windows.
#[test]
fn a_capacity_that_is_used_up_does_not_collapse() {
    let mut machine = Machine::new(10);
    assert_eq!(machine.meter.capacity(), None, "nothing has been measured");
    machine.run(1_000);
    for second in 0..100 {
        let rate = machine.run_for(1);
        assert!((90..=106).contains(&machine.percent()), "second {second}: {} %", machine.percent());
        assert!(rate > BitRate::gbps(9), "second {second}: {rate}");
    }
}

#[test]
fn the_capacity_follows_a_machine_that_becomes_slower_or_faster() {
    let mut machine = Machine::new(10);
    machine.run_for(2);
    machine.speed = BitRate::gbps(4);
    machine.run_for(1);
    assert!((90..=106).contains(&machine.percent()), "{} % of the slower machine", machine.percent());
    machine.speed = BitRate::gbps(8);
    machine.run_for(10);
    assert!((90..=106).contains(&machine.percent()), "{} % of the faster machine", machine.percent());
}

/// Queue pairs that want less than the capacity are not held and form no queue.
#[test]
fn idle_and_light_use_keep_the_capacity() {
    for demand in [BitRate::ZERO, BitRate::gbps(2)] {
        let mut machine = Machine::new(10);
        machine.run_for(2);
        machine.demand = demand;
        // The queue is sent first.
        machine.run_for(1);
        let kept = machine.meter.capacity();
        machine.run_for(60);
        assert_eq!(machine.meter.capacity(), kept, "{demand}");
    }
}

#[test]
fn without_a_queue_in_front_of_the_scheduler_nothing_is_measured() {
    let mut machine = Machine::new(10);
    machine.demand = BitRate::gbps(9);
    machine.run_for(10);
    assert_eq!(machine.meter.capacity(), None);
}

/// A process that was stopped for a second, with data to send, is not a slow machine.
#[test]
fn a_stop_does_not_lower_the_capacity() {
    let mut machine = Machine::new(10);
    machine.run_for(1);
    let before = machine.percent();
    machine.meter.end_turn(Counts { bytes: machine.sent, waits: machine.waits }, true);
    machine.now += Duration::from_secs(1);
    machine.run(2_000);
    assert!(machine.percent().abs_diff(before) <= 3, "{} %, {before} % before", machine.percent());
}
