//! Ends of a link whose events are recorded: the link and the layers are those of rnic-falcon's own tests.

use rnic_base::{Duration, RandomStream, Time};
use rnic_falcon::delivery::{Arrival, DeliveryConfig, Departure};

use crate::two_ends::link::{Fate, LOST, Side, Wire, after};

/// Either end.
pub type End = Box<dyn Side>;

impl Side for End {
    fn transmit(&mut self, now: Time) -> Option<Departure> {
        (**self).transmit(now)
    }

    fn receive(&mut self, now: Time, arrival: &Arrival<'_>) {
        (**self).receive(now, arrival);
    }

    fn expire(&mut self, now: Time) {
        (**self).expire(now);
    }

    fn wake(&self, free_at: Time) -> Option<Time> {
        (**self).wake(free_at)
    }
}

/// Parts in a thousand of the packets that are lost, late or come twice.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lost: u64,
    pub late: u64,
    pub twice: u64,
}

/// Returns what happens to packets: all delays are multiples of `unit`, and a late packet takes up to 100 of them more.
pub fn fate(mut random: RandomStream, faults: Faults, unit: Duration) -> impl FnMut(Time, usize, &Departure) -> Fate {
    let hit = |random: &mut RandomStream, parts: u64| random.below(1_000) < parts;
    move |_, _, _| {
        if hit(&mut random, faults.lost) {
            return LOST;
        }
        let late = if hit(&mut random, faults.late) { random.below(100) } else { 0 };
        let delay = unit * (30 + late);
        if hit(&mut random, faults.twice) { [Some(delay), Some(delay + unit * random.below(60))] } else { after(delay) }
    }
}

/// Returns the configuration of the other end.
pub fn opposite(config: &DeliveryConfig) -> DeliveryConfig {
    DeliveryConfig { first_sent: config.first_received, first_received: config.first_sent, ..*config }
}

/// Runs the link until `is_enough`, at most for a minute of its time.
pub fn run(link: &mut Wire<'_, End>, is_enough: impl Fn() -> bool) {
    let end = link.now + Duration::from_secs(60);
    while !is_enough() && link.now < end {
        link.run_for(Duration::from_ms(1));
    }
    assert!(is_enough(), "the link is idle: nothing is left to be sent");
}
