//! Schedulers: the registry.

use rnic_policy::SchedulePolicy;

crate::registry! { SchedulePolicy:
    round_robin::RoundRobin,
}
