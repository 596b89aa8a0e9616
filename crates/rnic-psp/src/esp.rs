//! Sending and receiving side of one direction of a connection, with ESP.
//!
//! Sources: RFC 4303, sections 2.2, 3.3.3 and 3.4.3 (sequence numbers and the anti-replay window), RFC 4106 (AES-GCM
//! in ESP: nonce and associated data), RFC 4543 (the same without encryption); OCP Falcon Transport Protocol, Rev
//! 0.9, sections 7.1 and 10.1: ESP as an alternative to PSP, with the timestamp in the initialization vector (below:
//! vector).
//!
//! ```text
//!  index:      11 | generation, 6 | connection, 24      the leading ones: see rnic_wire::falcon::esp
//!  vector:     label, 7 | session + sequence number, 25 | timestamp, 32
//! ```
//!
//! ESP's keys normally come from IKE, which distinguishes each connection from all earlier ones. There is no IKE
//! here, and no field for a cookie as in PSP: the *session*, 25 random bits of the sender, is the difference between
//! a packet's vector and its sequence number, and it is an input of the key derivation, as the cookie is for PSP. No
//! vector is used twice under one key: there are fewer than 2^25 sequence numbers under one key, then the next key
//! replaces it. Two sessions of one pair of connections have the same keys in one of 2^25 cases, and a vector in
//! common only if packets with the same number were sent at the same time by clocks that wrap every nine minutes.
//!
//! Sequence numbers start at 1 with each key and never wrap. A duplicate is detected by its number, in a window of
//! [`WINDOW`] packets, before it is decrypted; only authentic packets move the window. A retransmitted packet therefore
//! has a new number, and unlike PSP's ([`crate::Replay`]) the check needs no clock. Extended sequence numbers are not
//! used, because no key is used long enough.

use rnic_base::{RingBitmap, Time};
use rnic_wire::falcon::esp::{Header, LEN, Layout, trailer_len};
use rnic_wire::falcon::psp::{Cipher, ICV_LEN, Iv};
use rnic_wire::falcon::{Cid, FlowLabel, Timestamp};

use crate::generations::{GENERATIONS_AHEAD, Generations, KeySelector};
use crate::key::{Context, Role, Secret, SecurityFormat};
use crate::open::{EARLIER_CONNECTIONS_MAX, Refusal};
use crate::seal::KeyChain;
use crate::vector::LABEL_BITS;

/// Number of packets before the newest one for which a receiver can detect duplicates: more than the extent of
/// reordering over several paths. The window takes half a kilobyte per key.
pub const WINDOW: u32 = ReplayWindow::BITS;

/// Number of packets after which a new key is used: as many as the vector can number. With packets of 4 KiB this is
/// 137 GB of data.
pub const PACKETS_PER_KEY: u64 = (1 << SESSION_BITS) - 1;

/// Number of random bits that distinguish a sender's direction from all earlier ones between the same two connections.
const SESSION_BITS: u32 = 32 - LABEL_BITS;
const SESSION_MASK: u32 = (1 << SESSION_BITS) - 1;

/// Encrypts and authenticates the packets of one direction of one connection.
#[derive(Debug)]
pub struct Sealer {
    keys: KeyChain,
    session: u32,
}

impl Sealer {
    /// Creates a sealer for packets to `cid`. Only the low 25 bits of `cookie`, which is randomly generated for this
    /// direction alone, are used.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid, cookie: u64) -> Self {
        let (session, role) = (cookie as u32 & SESSION_MASK, Role { form: SecurityFormat::Esp, cipher, cid });
        Self { keys: KeyChain::new(secret.direction(context, session.into()), role, PACKETS_PER_KEY), session }
    }

    /// Same as [`crate::Sealer::rotating_after`].
    #[must_use]
    pub fn rotating_after(mut self, packets: u64) -> Self {
        self.keys.rotating_after(packets);
        self
    }

    /// Changes to a new key for all subsequent packets.
    pub fn rotate(&mut self) {
        self.keys.rotate();
    }

    /// Writes the ESP header to the front of `datagram` and its trailer to the end, encrypts the part between them
    /// and writes the check value after it. The message of `message_len` bytes must already be in `datagram`, at
    /// offset [`LEN`]. Returns the header.
    ///
    /// # Panics
    /// When the length of `datagram` is not that of header, message, trailer and check value.
    #[inline]
    pub fn seal(&mut self, now: Time, label: FlowLabel, message_len: usize, datagram: &mut [u8]) -> Header {
        let trailer_len = trailer_len(message_len);
        assert_eq!(datagram.len(), LEN + message_len + trailer_len + ICV_LEN, "wrong datagram length");
        let (key, spi, sequence) = self.keys.next();
        let sequence = u32::try_from(sequence).expect("a key must be replaced before it has encrypted 2^32 packets");
        let counter = self.session.wrapping_add(sequence) & SESSION_MASK;
        let iv = Iv { salt: label.get() << SESSION_BITS | counter, timestamp: Timestamp::at(now) };
        let header = Header { spi, sequence, iv };
        let layout = Layout::new(datagram.len());
        header.emit(datagram.first_chunk_mut().expect("the length was compared above"));
        layout.close(datagram, trailer_len);
        key.seal_esp(&header, layout, datagram);
        header
    }

    /// Returns the number of key changes so far.
    pub const fn generation(&self) -> u32 {
        self.keys.generation()
    }
}

/// Verifies and decrypts the packets of one direction of one connection.
#[derive(Debug)]
pub struct Opener {
    secret: Secret,
    context: Context,
    role: Role,
    /// Current session; present once an authentic packet has been received.
    current: Option<Session>,
    /// Session numbers of the senders of earlier connections of this receiver, the latest first.
    past_sessions: [Option<u32>; EARLIER_CONNECTIONS_MAX],
}

/// State created by the first authentic packet.
#[derive(Debug)]
struct Session {
    number: u32,
    keys: Generations<ReplayWindow>,
}

/// Information from the header of an authentic packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Low bits of the packet's flow label.
    pub label: u8,
    /// True when this packet is the first under a new key.
    pub rotated: bool,
}

impl Opener {
    /// Creates an opener for packets to `cid`.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid) -> Self {
        let role = Role { form: SecurityFormat::Esp, cipher, cid };
        Self {
            secret: secret.clone(),
            context: *context,
            role,
            current: None,
            past_sessions: [None; EARLIER_CONNECTIONS_MAX],
        }
    }

    /// Same as [`crate::Opener::after`].
    #[must_use]
    pub fn after(mut self, earlier: &Self) -> Self {
        self.past_sessions = earlier.past_sessions;
        if let Some(session) = &earlier.current {
            self.past_sessions.rotate_right(1);
            self.past_sessions[0] = Some(session.number);
        }
        self
    }

    /// Checks `datagram` and decrypts it in place. When it is rejected, its content is undefined afterwards.
    ///
    /// # Errors
    /// [`Refusal`] when the datagram is to be dropped; the state of the opener is unchanged.
    ///
    /// # Panics
    /// When the layout does not match the datagram.
    #[inline]
    pub fn open(&mut self, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<Opened, Refusal> {
        let number = header.iv.salt.wrapping_sub(header.sequence) & SESSION_MASK;
        let label = (header.iv.salt >> SESSION_BITS) as u8;
        if Cid::new(header.spi) != self.role.cid {
            return Err(Refusal::Index);
        }
        let rotated = match &mut self.current {
            Some(session) if session.number == number => session.open(header, layout, datagram)?,
            Some(_) => return Err(Refusal::Index),
            None if self.past_sessions.contains(&Some(number)) => return Err(Refusal::Index),
            None => {
                self.open_first(number, header, layout, datagram)?;
                false
            }
        };
        Ok(Opened { label, rotated })
    }

    /// Returns the number of key changes so far.
    pub fn generation(&self) -> u32 {
        self.current.as_ref().map_or(0, |session| session.keys.number())
    }

    /// Returns whether an authentic packet has been received.
    pub const fn has_session(&self) -> bool {
        self.current.is_some()
    }

    /// Opens a packet that may be the first of its sender; the same considerations apply as for PSP.
    #[cold]
    fn open_first(&mut self, number: u32, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<(), Refusal> {
        let generation = u32::from(SecurityFormat::Esp.generation_of(header.spi));
        if generation > GENERATIONS_AHEAD {
            return Err(Refusal::Index);
        }
        if !ReplayWindow::default().accepts(header.sequence) {
            return Err(Refusal::Replay);
        }
        let direction = self.secret.direction(&self.context, number.into());
        let current = direction.key(self.role, generation);
        if !current.open_esp(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let mut keys = Generations::<ReplayWindow>::begin(direction, self.role, generation, current);
        keys.record(KeySelector::Current, header.sequence);
        self.current = Some(Session { number, keys });
        Ok(())
    }
}

impl Session {
    /// Opens a packet; returns whether it is the first under a new key.
    #[inline]
    fn open(&mut self, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<bool, Refusal> {
        let selector = self.keys.selector_of(header.spi).ok_or(Refusal::Index)?;
        let is_new = match self.keys.state(selector) {
            Some(window) => window.accepts(header.sequence),
            None => ReplayWindow::default().accepts(header.sequence),
        };
        if !is_new {
            return Err(Refusal::Replay);
        }
        if !self.keys.key(selector).open_esp(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let KeySelector::Later(distance) = selector else {
            self.keys.record(selector, header.sequence);
            return Ok(false);
        };
        self.keys.advance_by(distance);
        self.keys.record(KeySelector::Current, header.sequence);
        Ok(true)
    }
}

impl Generations<ReplayWindow> {
    #[inline]
    fn record(&mut self, selector: KeySelector, sequence: u32) {
        if let Some(window) = self.state(selector) {
            window.record(sequence);
        }
    }
}

/// Set of received packets under one key: all before `first_sequence`, and those at or after `first_sequence` whose
/// bit is set.
#[derive(Debug)]
struct ReplayWindow {
    /// First sequence number of the window; at least 1, because 0 is not the number of any packet.
    first_sequence: u32,
    bits: RingBitmap<WINDOW_WORDS>,
}

const WINDOW_WORDS: usize = 64;

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { first_sequence: 1, bits: RingBitmap::new() }
    }
}

impl ReplayWindow {
    const BITS: u32 = RingBitmap::<WINDOW_WORDS>::BITS;

    /// Returns whether packet `sequence` has not been received before and is not too old to check.
    #[inline]
    fn accepts(&self, sequence: u32) -> bool {
        sequence.checked_sub(self.first_sequence).is_some_and(|bit_offset| !self.bits.test(bit_offset))
    }

    /// Records packet `sequence` as received; [`Self::accepts`] must have accepted it.
    #[inline]
    fn record(&mut self, sequence: u32) {
        let bit_offset = sequence - self.first_sequence;
        let advance_by = (bit_offset + 1).saturating_sub(Self::BITS);
        if advance_by > 0 {
            self.bits.advance(advance_by);
            self.first_sequence += advance_by;
        }
        self.bits.set(sequence - self.first_sequence);
    }
}

#[cfg(test)]
#[path = "esp/tests.rs"]
mod tests;
