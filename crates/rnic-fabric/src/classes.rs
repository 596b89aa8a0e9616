//! Priority classes of packets.

use rnic_engine::{CLASSES_MAX, ClassShare, ClassShares};

use crate::switch::SwitchPlan;

/// A class of packets, which has queues of its own in switches and in NICs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassPlan {
    /// Name in reports.
    pub name: String,
    /// Service at each output of a switch and at each NIC.
    pub share: ClassShare,
    /// Index of the class of the acknowledgements.
    pub acks: u8,
    /// Buffers, pauses and marks of the class in each switch, if the network has any.
    pub switch: Option<SwitchPlan>,
}

/// Returns the service of `classes`.
pub(crate) fn shares(classes: &[ClassPlan]) -> ClassShares {
    ClassShares::new(&classes.iter().map(|class| class.share).collect::<Vec<_>>())
}

/// Returns the class of the acknowledgements of each class.
pub(crate) fn ack_classes(classes: &[ClassPlan]) -> [u8; CLASSES_MAX] {
    core::array::from_fn(|class| classes.get(class).map_or(class as u8, |class| class.acks))
}
