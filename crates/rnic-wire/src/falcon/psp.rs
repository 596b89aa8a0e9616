//! What lies around a Falcon packet: the PSP security protocol over UDP (PSP Architecture Specification, 2022; OCP Falcon
//! Transport Protocol, Rev 0.9, section 7.1), with Falcon's timestamp in the initialization vector.
//!
//! ```text
//!     Ethernet | IP | UDP, port 1000 | PSP | Falcon, upper layer, payload, padding | ICV
//! ```
//!
//! Encryption itself is a body's business; lengths and offsets are these. Neither specification says how a timestamp of
//! 32 bits lies in a vector of 64: here it is the low half. The high half is the sender's, to keep vectors of one key
//! apart: several packets leave within a unit of time.

use crate::falcon::Timestamp;

/// The UDP port that PSP packets go to.
pub const UDP_PORT: u16 = 1000;
/// The PSP next header of Falcon.
pub const NEXT_HEADER: u8 = 252;

/// The initialization vector, 64 bits. No two packets of one key may have the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Iv {
    /// High half: what tells packets of one unit of time apart.
    pub salt: u32,
    /// Low half: when the packet left.
    pub timestamp: Timestamp,
}

/// How packets are protected: PSP's version field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Cipher {
    /// 0: AES-GCM with a key of 128 bits.
    #[default]
    Gcm128 = 0,
    /// 1: AES-GCM with a key of 256 bits.
    Gcm256 = 1,
    /// 2: AES-GMAC with a key of 128 bits: authenticated, not encrypted.
    Gmac128 = 2,
    /// 3: AES-GMAC with a key of 256 bits.
    Gmac256 = 3,
}

/// A PSP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Header {
    /// How packets are protected.
    pub cipher: Cipher,
    /// The packet is to be sampled.
    pub sample: bool,
    /// The packet is to be dropped after it was counted.
    pub drop: bool,
    /// Which key: security parameters index, whose highest bit names one of two device keys. 0 means none.
    pub spi: u32,
    /// Initialization vector.
    pub iv: Iv,
    /// The virtualization cookie: tells connections of one tunnel apart.
    pub cookie: Option<u64>,
}
