//! Schedulers: the registry.

use rnic_policy::SchedulePolicy;

crate::registry! { SchedulePolicy:
    greedy::Greedy,
    round_robin::RoundRobin,
    static_shares::StaticShares,
    water_filling::WaterFilling,
}
