//! Congestion control policies: the registry.

use rnic_policy::ControlPolicy;

crate::registry! { ControlPolicy:
    line_rate::LineRate,
    dcqcn::Dcqcn,
}
