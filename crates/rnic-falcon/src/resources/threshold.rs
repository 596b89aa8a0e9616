//! How much one connection may hold before its upper layer is told to pause: Xoff (F-34 to F-36).
//!
//! Source: Falcon (SIGCOMM'25) section 4.6. Dynamic thresholds are those of shared switch buffers: a connection may
//! hold T = alpha x what is free. A slow connection holds what it has for longer, reaches its threshold, and is stopped
//! while there is room for others. The adaptive engine sets alpha by connection, larger for those that move.
//!
//! Alpha is a power of two between 8 and 1/4096, four bits, as in the public simulator; a connection may always hold
//! one unit of each, or it would never move again.
//!
//! Requests and responses have thresholds apart: a pause of one must not pause the other (responses free the other
//! side's room), and a NIC that is full never pauses Pull Data: RDMA's section 6.5 forbids it. What a connection's own
//! threshold holds back are its answers, until the peer has acknowledged earlier ones, which waits for nobody else.

use super::{Amount, Part, Resources};

/// A share of what is free: 2^(3 - shift).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alpha(u8);

impl Alpha {
    /// The largest shift: 1/4096.
    pub const SHIFT_MAX: u8 = 15;

    /// 2^(3 - shift), for a shift of 4 bits.
    #[inline]
    pub const fn from_shift(shift: u8) -> Self {
        Self(if shift > Self::SHIFT_MAX { Self::SHIFT_MAX } else { shift })
    }

    /// The shift.
    #[inline]
    pub const fn shift(self) -> u8 {
        self.0
    }

    /// That share of `free`, rounded down.
    #[inline]
    pub(super) const fn share(self, free: u32) -> u64 {
        ((free as u64) << 3) >> self.0
    }
}

impl Default for Alpha {
    /// 1, as in the shared buffers of switches: a connection alone may hold half of everything, which is a round trip's
    /// worth at line rate. The paper tells no value; the public simulator's 1/8, where thresholds are off unless
    /// asked for, would stop a connection at a tenth of the line rate.
    fn default() -> Self {
        Self::from_shift(3)
    }
}

/// How connections are kept from taking everything (F-R22 compares the three).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Not: all pause when everything is taken.
    #[default]
    None,
    /// Each may hold so much of each part.
    Static {
        /// To send.
        tx: Amount,
        /// To receive.
        rx: Amount,
    },
    /// Each may hold its share of what is free.
    Dynamic,
}

/// What one connection's requests hold, and the shares that it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// To send requests.
    pub tx: Amount,
    /// Reserved for what they bring.
    pub rx: Amount,
    /// To send Pull Data.
    pub data: Amount,
    /// The share that requests may have.
    pub request_alpha: Alpha,
    /// The share that Pull Data may have.
    pub data_alpha: Alpha,
}

impl Usage {
    /// Whether no request of its upper layer holds anything.
    #[inline]
    pub const fn has_no_request(&self) -> bool {
        self.tx.packets == 0 && self.rx.packets == 0
    }

    /// Whether its upper layer shall hand in no more requests.
    #[inline]
    pub fn pauses_requests(&self, isolation: Isolation, resources: &Resources) -> bool {
        if isolation == Isolation::None {
            return false;
        }
        over(self.tx, isolation, self.request_alpha, Part::RequestTx, resources)
            || over(self.rx, isolation, self.request_alpha, Part::ResponseRx, resources)
    }

    /// Whether its upper layer shall answer no more Pull Requests.
    #[inline]
    pub fn pauses_data(&self, isolation: Isolation, resources: &Resources) -> bool {
        over(self.data, isolation, self.data_alpha, Part::DataTx, resources)
    }
}

#[inline]
fn over(used: Amount, isolation: Isolation, alpha: Alpha, part: Part, resources: &Resources) -> bool {
    // Who has no packet has no buffer either, and one is always allowed.
    used.packets > 0
        && match isolation {
            Isolation::None => false,
            Isolation::Static { tx, rx } => {
                let limit = if part == Part::ResponseRx { rx } else { tx };
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
