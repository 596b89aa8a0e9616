//! Congestion control policies: the registry.

mod timeouts;
mod window;

use rnic_policy::ControlPolicy;

crate::registry! { ControlPolicy:
    line_rate::LineRate,
    fixed_window::FixedWindow,
    dcqcn::Dcqcn,
    timely::Timely,
    rttcc::Rttcc,
    aimd::Aimd,
    dctcp::Dctcp,
    new_reno::NewReno,
    swift::Swift,
    swift_rate::SwiftRate,
    bottleneck::Bottleneck,
}
