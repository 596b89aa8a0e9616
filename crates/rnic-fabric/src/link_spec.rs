//! Links as topologies, routes and plans describe them: ends, class, rate and delay.

use rnic_base::{BitRate, Duration};

/// Number of a node: hosts have the lowest numbers, followed by switches.
pub type Node = u32;

/// Class of a link: the plan gives each class a rate and a delay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkClass {
    /// Between a host and its neighbour.
    Host,
    /// Between two switches.
    Fabric,
    /// Between two switches of different pods or groups: spine and core of a Clos, groups of a dragonfly.
    Core,
    /// A link with its own rate and delay: an index into the topology's own links.
    Own(u32),
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPoint {
    /// Node at this end of the link.
    pub node: Node,
    /// Port of the node.
    pub port: u32,
}

/// A link, both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSpec {
    /// One end of the link.
    pub a: LinkPoint,
    /// The end of the link opposite to `a`.
    pub b: LinkPoint,
    /// Class of the link.
    pub class: LinkClass,
}

/// Properties of one class of links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkPlan {
    /// Rate of each direction.
    pub rate: BitRate,
    /// Propagation delay.
    pub delay: Duration,
}

/// Lowest rate of a link in bits per second.
pub(crate) const RATE_MIN: u64 = 1_000_000;
/// Highest rate of a link in bits per second.
pub(crate) const RATE_MAX: u64 = 10_000_000_000_000;
/// Minimum delay of a link. The shortest delay is the time by which nodes may advance independently of each other:
/// with a much shorter one, a run would mostly wait for synchronization.
pub(crate) const DELAY_MIN: Duration = Duration::from_ns(1);
/// Maximum delay of a link.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(1);
