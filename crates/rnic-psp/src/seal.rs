//! The sending side of one direction: header, vector, key, rotation.

use rnic_base::Time;
use rnic_wire::falcon::psp::{Cipher, Header, LEN_MAX, Layout};
use rnic_wire::falcon::{Cid, FlowLabel};

use crate::key::{Context, Direction, Key, Role, Secret, SecurityFormat};
use crate::vector::Vectors;

/// Keys of a sender, used one after the other.
#[derive(Debug)]
pub(crate) struct KeyChain {
    direction: Direction,
    role: Role,
    generation: u32,
    key: Key,
    /// Number of packets that may still be sealed with the current key.
    packets_left: u64,
    packets_per_key: u64,
}

impl KeyChain {
    /// Creates the keys of a sender, starting with the first key of `direction`; each is used for `packets_per_key`
    /// packets.
    pub(crate) fn new(direction: Direction, role: Role, packets_per_key: u64) -> Self {
        let key = direction.key(role, 0);
        Self { direction, role, generation: 0, key, packets_left: packets_per_key, packets_per_key }
    }

    /// Sets the number of packets per key: at least one, and at most the previous number.
    pub(crate) fn rotating_after(&mut self, packets: u64) {
        self.packets_per_key = packets.clamp(1, self.packets_per_key);
        self.packets_left = self.packets_per_key;
    }

    pub(crate) fn rotate(&mut self) {
        // Modulo 2^32: a key is reused only after at least four billion packets, and `Time` has advanced by then.
        self.generation = self.generation.wrapping_add(1);
        self.key = self.direction.key(self.role, self.generation);
        self.packets_left = self.packets_per_key;
    }

    /// Returns the key for the next packet, its index, and the number of that packet under the key, starting at 1.
    #[inline]
    pub(crate) fn next(&mut self) -> (&Key, u32, u64) {
        if self.packets_left == 0 {
            self.rotate();
        }
        self.packets_left -= 1;
        (&self.key, self.role.form.index(self.generation, self.role.cid), self.packets_per_key - self.packets_left)
    }

    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Advances the state as if this many packets had been sent.
    #[cfg(test)]
    pub(crate) fn skip_packets(&mut self, packets: u64) {
        self.packets_left -= packets;
    }
}

/// Encrypts and authenticates the packets of one direction of one connection.
#[derive(Debug)]
pub struct Sealer {
    keys: KeyChain,
    cookie: u64,
    cipher: Cipher,
    vectors: Vectors,
}

impl Sealer {
    /// Creates a sealer for packets to `cid`. `cookie` must be randomly generated for this direction alone: with a
    /// cookie that was used before for the same connection, vectors repeat, and AES-GCM provides no protection.
    ///
    /// No receiver has connection 0: its first index would be 0, which means packets without a key. Packets sealed
    /// for connection 0 are rejected by the receiver, as for any wrong connection number.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid, cookie: u64) -> Self {
        let role = Role { form: SecurityFormat::Psp, cipher, cid };
        let keys = KeyChain::new(secret.direction(context, cookie), role, PACKETS_PER_KEY);
        Self { keys, cookie, cipher, vectors: Vectors::default() }
    }

    /// Sets the number of packets after which a new key is used, at least one, instead of [`PACKETS_PER_KEY`]. A
    /// receiver can follow 32 rotations of whose generations it has received no packet, and accepts packets of the
    /// generation before its own.
    #[must_use]
    pub fn rotating_after(mut self, packets: u64) -> Self {
        self.keys.rotating_after(packets);
        self
    }

    /// Changes to a new key for all subsequent packets.
    pub fn rotate(&mut self) {
        self.keys.rotate();
    }

    /// Writes the PSP header to the front of `datagram`, encrypts the data after it and writes the check value to its
    /// end. The message must already be in `datagram`, after the first [`LEN_MAX`] bytes. Returns the header.
    ///
    /// # Panics
    /// When `datagram` is too short for header, version and connection, and check value.
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

    /// Returns the number of key changes so far.
    pub const fn generation(&self) -> u32 {
        self.keys.generation()
    }
}

/// Number of packets after which a new key is used. With packets of 4 KiB, this is a terabyte, or 2^36 AES blocks:
/// far below the 2^64 or more at which repeated AES outputs become noticeable. A rotation costs only two
/// microseconds.
pub const PACKETS_PER_KEY: u64 = 1 << 28;

#[cfg(test)]
#[path = "seal/tests.rs"]
mod tests;
