//! The sending half of one direction: header, vector, key, rotation.

use rnic_base::Time;
use rnic_wire::falcon::psp::{Cipher, Header, LEN_MAX, Layout};
use rnic_wire::falcon::{Cid, FlowLabel};

use crate::key::{Context, Direction, Key, Secret, Spi};
use crate::vector::Vectors;

/// Seals the packets of one direction of one connection.
#[derive(Debug)]
pub struct Sealer {
    direction: Direction,
    cipher: Cipher,
    cid: Cid,
    cookie: u64,
    generation: u32,
    spi: Spi,
    key: Key,
    vectors: Vectors,
    /// Packets that the key may still seal.
    left: u64,
    packets_per_key: u64,
}

impl Sealer {
    /// For packets to `cid`. `cookie` is drawn at random, for this direction alone: with one that was used before, for
    /// the same connection, vectors repeat, and AES-GCM protects nothing any more.
    ///
    /// Nobody opens packets to connection 0: their first index is 0, and that stands for packets without a key. So no
    /// receiver has that number; a caller that is told it of one seals what is refused there, as with any wrong number.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid, cookie: u64) -> Self {
        let direction = secret.direction(context, cookie);
        let key = direction.key(cipher, 0, cid);
        Self {
            direction,
            cipher,
            cid,
            cookie,
            generation: 0,
            spi: Spi::new(0, cid),
            key,
            vectors: Vectors::default(),
            left: PACKETS_PER_KEY,
            packets_per_key: PACKETS_PER_KEY,
        }
    }

    /// Takes a new key after so many packets, at least one, instead of [`PACKETS_PER_KEY`]. A receiver follows through
    /// 32 rotations of which it has heard nothing, and opens packets of one generation before its own.
    #[must_use]
    pub fn rotating_after(mut self, packets: u64) -> Self {
        self.packets_per_key = packets.clamp(1, PACKETS_PER_KEY);
        self.left = self.packets_per_key;
        self
    }

    /// Takes a new key for what leaves from now on.
    pub fn rotate(&mut self) {
        // Modulo 2^32: keys that come again do so after four billion packets at least, and `Time` has gone on.
        self.generation = self.generation.wrapping_add(1);
        self.spi = Spi::new(self.generation, self.cid);
        self.key = self.direction.key(self.cipher, self.generation, self.cid);
        self.left = self.packets_per_key;
    }

    /// Writes the PSP header to the front of `datagram`, encrypts what is behind it and writes the check value to its
    /// end. The message stands there already, behind [`LEN_MAX`] bytes. Gives the header.
    ///
    /// # Panics
    /// When there is no room for header, version and connection, and check value.
    #[inline]
    pub fn seal(&mut self, now: Time, label: FlowLabel, datagram: &mut [u8]) -> Header {
        if self.left == 0 {
            self.rotate();
        }
        self.left -= 1;
        let header = Header {
            cipher: self.cipher,
            sample: false,
            drop: false,
            spi: self.spi.value(),
            iv: self.vectors.next(now, label).write(),
            cookie: Some(self.cookie),
        };
        let layout = Layout::new(true, datagram.len());
        header.emit(datagram.first_chunk_mut::<LEN_MAX>().expect("the layout has room for the header"));
        self.key.seal(&header, layout, datagram);
        header
    }

    /// How often the key has been changed.
    pub const fn generation(&self) -> u32 {
        self.generation
    }
}

/// Packets after which a new key is taken: with packets of 4 KiB, a terabyte; 2^36 blocks of AES, far from the 2^64 and
/// more at which its outputs begin to repeat noticeably, and a rotation costs two microseconds.
pub const PACKETS_PER_KEY: u64 = 1 << 28;

#[cfg(test)]
#[path = "seal/tests.rs"]
mod tests;
