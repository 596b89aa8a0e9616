//! Protection of Falcon packets on a network: PSP or IPsec's ESP, with keys, AES-GCM, a replay check and key rotation.
//!
//! ```text
//! CRATE    rnic-psp (red: quote PSP's or Falcon's specification)
//! Purpose  keys from a secret, unique initialization vectors, encryption of datagrams, replay protection, key rotation
//! May use  rnic-base, rnic-wire
//! Must not allocate or loop per packet, draw random bits, read a clock, trust a byte before it is authenticated
//! Add here a cipher, another way to agree on keys
//! Not here the headers' layouts (rnic-wire), secrets and sockets (rnic-host)
//! Tested by PSP's and NIST's vectors, vectors of another implementation, every bit flipped, random histories
//! ```
//!
//! Sources: "PSP Architecture Specification" (Google, 2022): header, key derivation, AES-GCM; "OCP Falcon Transport
//! Protocol, Rev 0.9", section 9.2.2 for the checks of a receiver and for rotation; NIST SP 800-38D (GCM), SP 800-38B
//! (CMAC), SP 800-108 (key derivation in counter mode); RFC 4303, RFC 4106 and RFC 4543 for ESP.
//!
//! ```text
//!   secret, configured at both ends
//!     | + context known to both ends, + the sender's cookie                   one for each direction
//!   direction
//!     | + generation                                                          one for each rotation
//!   master key --PSP's derivation, + index (SPI)--> key --AES-GCM, + vector--> datagram
//! ```
//!
//! # What differs from PSP, and why
//!
//! In PSP a receiving adapter has two master keys of its own, derives a key for each index from them, and passes it to
//! the sender over a connection that is already secure. OpenRNIC provides no such connection to programs that exchange
//! queue pair numbers themselves. Both ends therefore hold a *secret*, and derive from it the value that PSP's adapter
//! generates randomly: a master key for each direction of a connection and generation. The rest is as in PSP: index,
//! phase bit, derivation.
//!
//! - The *cookie* of the PSP header is a number that the sender has randomly generated for this direction. No two
//!   senders have the same key, even if programs repeatedly choose equal numbers; the receiver learns the cookie from
//!   the first authentic packet, and accepts no other afterwards.
//! - The receiver contributes its connection's number, 24 bits, to the context. When the connection manager
//!   establishes connections, this number is random too, and so are the initial sequence numbers; programs that
//!   exchange numbers themselves choose the latter, and often the same. Packets of an earlier connection are accepted
//!   in a later one only if both ends use the same numbers again, only before the peer's first packet, and only if
//!   the same queue pair has not recently received packets of the earlier connection ([`Opener::after`]). They can
//!   then do harm in two ways: a packet within the window is accepted, which is unlikely with random sequence
//!   numbers, but not with programs that always start at 0; and the cookie of the earlier connection is mistaken for
//!   the peer's, whose packets are then rejected.
//! - There is no forward secrecy: an attacker who learns the secret can decrypt traffic recorded before.
//!
//! # ESP
//!
//! [`esp`] is the corresponding protection with IPsec's ESP: the same secret, directions, generations and rotation,
//! with ESP's index, sequence number, anti-replay window and trailer instead of PSP's header and margin. The
//! differences are described there.
//!
//! # Rotation
//!
//! In Falcon's specification the receiving adapter starts a generation, and a flag allows the previous one for some
//! time. Here the sender starts it: its next packet has the next generation's index, whose highest bit is the phase.
//! The receiver derives that key when it first receives the index, and makes it the current one once a packet is
//! authentic under it; the previous key opens only packets that were sent before, within the replay margin. No message
//! is needed, and none can be lost.
//!
//! # Libraries
//!
//! `ring` for AES-GCM (Apache-2.0 and ISC; needs only a C compiler to build). It was compared with `aes-gcm` (pure
//! Rust) and `aws-lc-rs` (needs CMake for some targets) on a Cascade Lake at 2.5 GHz. Nanoseconds to seal 64, 1024 and
//! 4096 bytes with a key of 128 bits: `ring` 115, 326, 929; `aes-gcm` 137, 955, 3569; `aws-lc-rs` 133, 346, 950. With
//! a key of 256 bits, `ring` needs 119, 400, 1241. ESP, on a busy AMD EPYC, takes 0.91, 1.02 and 0.99 times as long as
//! PSP. `ring` has no CMAC, so keys are derived with `cmac` and `aes`, which are not needed per packet. `cargo bench
//! -p rnic-psp` measures the library in use.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod esp;

mod generations;
mod key;
mod open;
mod replay;
mod seal;
mod vector;

pub use key::{
    CONTEXT_BYTES_MAX, Context, Direction, Key, MASTER_KEY_BYTES, MasterKey, Role, Secret, SecurityFormat, Spi,
};
pub use open::{Opened, Opener, Refusal};
pub use replay::{REPLAY_MARGIN, Replay};
pub use seal::{PACKETS_PER_KEY, Sealer};
pub use vector::{LABEL_BITS, Vector, Vectors};
