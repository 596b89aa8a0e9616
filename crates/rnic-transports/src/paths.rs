//! Path policies: the registry.

use rnic_policy::PathPolicy;

crate::registry! { PathPolicy:
    ecmp::Ecmp,
    spray::Spray,
    largest_window::LargestWindow,
    scatter::Scatter,
    weighted::Weighted,
    probed::Probed,
}
