//! Loss recovery policies: the registry.

use rnic_policy::RecoveryPolicy;

crate::registry! { RecoveryPolicy:
    fasr::Fasr,
    go_back_n::GoBackN,
    irn::Irn,
}
