//! Loss recovery policies: the registry.

use rnic_policy::RecoveryPolicy;

crate::registry! { RecoveryPolicy:
    fasr::Fasr,
    go_back_n::GoBackN,
    irn::Irn,
    cx7_selective::Cx7Selective,
    timeout_only::TimeoutOnly,
    tcp_sack::TcpSack,
    rack_tlp::RackTlp,
    ooo_distance::OooDistance,
}
