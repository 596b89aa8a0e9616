//! A policy's private memory: a small block of plain data.
//!
//! Tonic gives a program a context of fixed width, Linux a block of `ICSK_CA_PRIV_SIZE` bytes that is checked at build
//! time; this crate does the same. The block is [`bytemuck::Pod`]: it has no pointers and no padding, and can be
//! compared and copied byte for byte. Therefore a policy can be moved to another thread, to a program loaded at run
//! time or into registers.

use bytemuck::{Pod, Zeroable};

/// Number of words of one policy's state: 64 bytes, one cache line. Tonic's six programs need 1 to 30 bytes, Swift
/// about 50.
pub const STATE_WORDS: usize = 8;

/// The state block as the engine keeps it: opaque bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct PolicyState([u64; STATE_WORDS]);

impl PolicyState {
    /// Returns a block that holds `inner`, with the rest zero.
    #[inline]
    pub fn of<T: Pod>(inner: T) -> Self {
        let mut state = Self::default();
        *state.get_mut::<T>() = inner;
        state
    }

    /// Returns the policy's typed view of its block.
    ///
    /// If `T` is larger or more aligned than the block, the code does not compile.
    #[inline]
    pub fn get_mut<T: Pod>(&mut self) -> &mut T {
        const { assert!(size_of::<T>() <= size_of::<Self>(), "policy state exceeds STATE_WORDS") };
        const { assert!(align_of::<T>() <= align_of::<Self>(), "policy state is over-aligned") };
        bytemuck::from_bytes_mut(&mut bytemuck::bytes_of_mut(self)[..size_of::<T>()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Pod, Zeroable, PartialEq, Debug)]
    #[repr(C)]
    struct Small {
        seq: u64,
        count: u32,
        flags: u32,
    }

    #[test]
    fn state_keeps_the_values_that_the_policy_stored() {
        let mut state = PolicyState::of(Small { seq: 7, count: 1, flags: 2 });
        state.get_mut::<Small>().count += 1;
        assert_eq!(*state.get_mut::<Small>(), Small { seq: 7, count: 2, flags: 2 });
        assert_ne!(state, PolicyState::default());
    }
}
