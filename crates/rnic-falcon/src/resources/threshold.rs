//! Limit on the resources that one connection may hold before its upper layer is paused: Xoff (Falcon mechanisms F-34
//! to F-36).
//!
//! Source: Falcon (SIGCOMM'25) section 4.6. The dynamic thresholds are those known from shared switch buffers: a
//! connection may hold T = alpha x the free amount. A slow connection holds its resources for longer, reaches its
//! threshold, and is paused while resources are still left for others. The adaptive engine sets alpha per connection,
//! a larger one for connections that make progress.
//!
//! Alpha is a power of two between 8 and 1/4096, four bits, as in the public simulator; a connection may always hold
//! one packet of each part, because otherwise it would stop permanently.
//!
//! Requests and responses have separate thresholds: a pause of one must not pause the other (responses free the other
//! side's resources), and a full NIC never pauses Pull Data: RDMA's section 6.5 forbids it. A connection's own
//! threshold blocks its responses until the peer has acknowledged earlier ones, which depends on no other connection.

use super::{Amount, ResourcePart, Resources};

/// Share of the free amount that a connection may hold: 2^(3 - shift).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alpha(u8);

impl Alpha {
    /// The largest shift, which stands for 1/4096.
    pub const SHIFT_MAX: u8 = 15;

    /// Returns 2^(3 - shift), for a shift of 4 bits.
    #[inline]
    pub const fn from_shift(shift: u8) -> Self {
        Self(if shift > Self::SHIFT_MAX { Self::SHIFT_MAX } else { shift })
    }

    /// Returns the shift.
    #[inline]
    pub const fn shift(self) -> u8 {
        self.0
    }

    /// Returns this share of `free`, rounded down.
    #[inline]
    pub(super) const fn share(self, free: u32) -> u64 {
        ((free as u64) << 3) >> self.0
    }
}

impl Default for Alpha {
    /// Returns 1, as in the shared buffers of switches: a single connection may hold half of all resources, enough
    /// for one round trip at line rate. The paper gives no value; the public simulator's 1/8, in which thresholds are
    /// disabled by default, would limit a connection to a tenth of the line rate.
    fn default() -> Self {
        Self::from_shift(3)
    }
}

/// Method that prevents a connection from occupying all resources (experiment F-R22 compares the three).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// No isolation: connections pause only when no resources are left.
    #[default]
    None,
    /// Each connection may hold at most a fixed amount of each resource.
    Static {
        /// Limit for sending.
        tx: Amount,
        /// Limit for receiving.
        rx: Amount,
    },
    /// Each connection may hold the share of the free amount given by its alpha.
    Dynamic,
}

/// Resources held by one connection's requests, and the shares assigned to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Resources held for sending requests.
    pub tx: Amount,
    /// Resources reserved for the responses to these requests.
    pub rx: Amount,
    /// Resources held for sending Pull Data.
    pub data: Amount,
    /// Maximum share of the free amount for requests.
    pub request_alpha: Alpha,
    /// Maximum share of the free amount for Pull Data.
    pub data_alpha: Alpha,
}

impl Usage {
    /// Returns `true` if no request of the local upper layer holds any resources.
    #[inline]
    pub const fn has_no_request(&self) -> bool {
        self.tx.packets == 0 && self.rx.packets == 0
    }

    /// Returns `true` if the upper layer must not submit more requests.
    #[inline]
    pub fn pauses_requests(&self, isolation: Isolation, resources: &Resources) -> bool {
        if isolation == Isolation::None {
            return false;
        }
        exceeds(self.tx, isolation, self.request_alpha, ResourcePart::RequestTx, resources)
            || exceeds(self.rx, isolation, self.request_alpha, ResourcePart::ResponseRx, resources)
    }

    /// Returns `true` if the upper layer must not respond to more Pull Requests.
    #[inline]
    pub fn pauses_data(&self, isolation: Isolation, resources: &Resources) -> bool {
        exceeds(self.data, isolation, self.data_alpha, ResourcePart::DataTx, resources)
    }
}

#[inline]
fn exceeds(used: Amount, isolation: Isolation, alpha: Alpha, part: ResourcePart, resources: &Resources) -> bool {
    // A connection that holds no packet holds no buffer either, and one packet is always allowed.
    used.packets > 0
        && match isolation {
            Isolation::None => false,
            Isolation::Static { tx, rx } => {
                let limit = if part == ResourcePart::ResponseRx { rx } else { tx };
                used.packets >= limit.packets || is_over(used.buffers, limit.buffers.into())
            }
            Isolation::Dynamic => {
                let free = resources.free(part);
                is_over(used.packets, alpha.share(free.packets)) || is_over(used.buffers, alpha.share(free.buffers))
            }
        }
}

#[inline]
fn is_over(used: u32, limit: u64) -> bool {
    used > 0 && u64::from(used) >= limit
}
