//! The sending half of one direction: header, vector, key, rotation.

use rnic_base::Time;
use rnic_wire::falcon::psp::{Cipher, Header, LEN_MAX, Layout};
use rnic_wire::falcon::{Cid, FlowLabel};

use crate::key::{Context, Direction, Form, Key, Role, Secret};
use crate::vector::Vectors;

/// A sender's keys, one after the other.
#[derive(Debug)]
pub(crate) struct KeyChain {
    direction: Direction,
    role: Role,
    generation: u32,
    key: Key,
    /// Packets that the key may still seal.
    left: u64,
    packets_per_key: u64,
}

impl KeyChain {
    /// From the first key of `direction` on, each for so many packets.
    pub(crate) fn new(direction: Direction, role: Role, packets_per_key: u64) -> Self {
        let key = direction.key(role, 0);
        Self { direction, role, generation: 0, key, left: packets_per_key, packets_per_key }
    }

    /// Each for so many packets, at least one and no more than it may be used for.
    pub(crate) fn rotating_after(&mut self, packets: u64) {
        self.packets_per_key = packets.clamp(1, self.packets_per_key);
        self.left = self.packets_per_key;
    }

    pub(crate) fn rotate(&mut self) {
        // Modulo 2^32: keys that come again do so after four billion packets at least, and `Time` has gone on.
        self.generation = self.generation.wrapping_add(1);
        self.key = self.direction.key(self.role, self.generation);
        self.left = self.packets_per_key;
    }

    /// The key for the next packet, its index, and which packet of that key it is, from 1 on.
    #[inline]
    pub(crate) fn next(&mut self) -> (&Key, u32, u64) {
        if self.left == 0 {
            self.rotate();
        }
        self.left -= 1;
        (&self.key, self.role.form.index(self.generation, self.role.cid), self.packets_per_key - self.left)
    }

    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// As if so many packets had left.
    #[cfg(test)]
    pub(crate) fn use_up(&mut self, packets: u64) {
        self.left -= packets;
    }
}

/// Seals the packets of one direction of one connection.
#[derive(Debug)]
pub struct Sealer {
    keys: KeyChain,
    cookie: u64,
    cipher: Cipher,
    vectors: Vectors,
}

impl Sealer {
    /// For packets to `cid`. `cookie` is drawn at random, for this direction alone: with one that was used before, for
    /// the same connection, vectors repeat, and AES-GCM protects nothing any more.
    ///
    /// Nobody opens packets to connection 0: their first index is 0, and that stands for packets without a key. So no
    /// receiver has that number; a caller that is told it of one seals what is refused there, as with any wrong number.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid, cookie: u64) -> Self {
        let role = Role { form: Form::Psp, cipher, cid };
        let keys = KeyChain::new(secret.direction(context, cookie), role, PACKETS_PER_KEY);
        Self { keys, cookie, cipher, vectors: Vectors::default() }
    }

    /// Takes a new key after so many packets, at least one, instead of [`PACKETS_PER_KEY`]. A receiver follows through
    /// 32 rotations of which it has heard nothing, and opens packets of one generation before its own.
    #[must_use]
    pub fn rotating_after(mut self, packets: u64) -> Self {
        self.keys.rotating_after(packets);
        self
    }

    /// Takes a new key for what leaves from now on.
    pub fn rotate(&mut self) {
        self.keys.rotate();
    }

    /// Writes the PSP header to the front of `datagram`, encrypts what is behind it and writes the check value to its
    /// end. The message stands there already, behind [`LEN_MAX`] bytes. Gives the header.
    ///
    /// # Panics
    /// When there is no room for header, version and connection, and check value.
    #[inline]
    pub fn seal(&mut self, now: Time, label: FlowLabel, datagram: &mut [u8]) -> Header {
        let iv = self.vectors.next(now, label).write();
        let (key, spi, _) = self.keys.next();
        let (cipher, cookie) = (self.cipher, Some(self.cookie));
        let header = Header { cipher, sample: false, drop: false, spi, iv, cookie };
        let layout = Layout::new(true, datagram.len());
        header.emit(datagram.first_chunk_mut::<LEN_MAX>().expect("the layout has room for the header"));
        key.seal(&header, layout, datagram);
        header
    }

    /// How often the key has been changed.
    pub const fn generation(&self) -> u32 {
        self.keys.generation()
    }
}

/// Packets after which a new key is taken: with packets of 4 KiB, a terabyte; 2^36 blocks of AES, far from the 2^64 and
/// more at which its outputs begin to repeat noticeably, and a rotation costs two microseconds.
pub const PACKETS_PER_KEY: u64 = 1 << 28;

#[cfg(test)]
#[path = "seal/tests.rs"]
mod tests;
