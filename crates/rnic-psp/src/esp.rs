//! Both halves of a direction within ESP.
//!
//! Sources: RFC 4303, sections 2.2, 3.3.3 and 3.4.3 (sequence numbers and the anti-replay window), RFC 4106 (AES-GCM in
//! ESP: nonce and associated data), RFC 4543 (the same without encryption); OCP Falcon Transport Protocol, Rev 0.9,
//! sections 7.1 and 10.1: ESP in PSP's place, the timestamp in the vector.
//!
//! ```text
//!  index:      11 | generation, 6 | connection, 24      see rnic_wire::falcon::esp for the ones
//!  vector:     label, 7 | session + sequence number, 25 | timestamp, 32
//! ```
//!
//! ESP's keys come from IKE, which tells both ends apart from any that were before. There is no IKE here, and no field
//! for a cookie as PSP has one: the *session*, 25 random bits of the sender's, is the difference between a packet's
//! vector and its sequence number, and keys are made with it as PSP's are with the cookie. No vector comes twice under
//! a key: sequence numbers under one key are fewer than 2^25, then the next takes its place. Two sessions of one pair
//! of connections have the same keys in one of 2^25 cases, and a vector in common only if packets of the same number
//! have left at the same moment of clocks that repeat every nine minutes.
//!
//! Sequence numbers begin at 1 with each key and never wrap. A copy is found by its number, in a window of [`WINDOW`]
//! packets, before it is decrypted; the window moves for authentic packets only. So a packet that is sent again has a
//! number of its own, and unlike PSP's ([`crate::Replay`]) the check needs no clock. Extended sequence numbers are not
//! used: no key lives long enough.

use rnic_base::{RingBitmap, Time};
use rnic_wire::falcon::esp::{Header, LEN, Layout, trailer_len};
use rnic_wire::falcon::psp::{Cipher, ICV_LEN, Iv};
use rnic_wire::falcon::{Cid, FlowLabel, Timestamp};

use crate::generations::{GENERATIONS_AHEAD, Generations, Which};
use crate::key::{Context, Form, Role, Secret};
use crate::open::{PAST, Refusal};
use crate::seal::KeyChain;
use crate::vector::LABEL_BITS;

/// Packets behind the newest that a receiver tells from those that have come: more than packets overtake each other by
/// on several paths, and half a kilobyte a key.
pub const WINDOW: u32 = Seen::BITS;

/// Packets after which a new key is taken: as many as the vector can number. With packets of 4 KiB, 137 GB.
pub const PACKETS_PER_KEY: u64 = (1 << SESSION_BITS) - 1;

/// Random bits that tell a sender's direction from all before it between the same two connections.
const SESSION_BITS: u32 = 32 - LABEL_BITS;
const SESSION_MASK: u32 = (1 << SESSION_BITS) - 1;

/// Seals the packets of one direction of one connection.
#[derive(Debug)]
pub struct Sealer {
    keys: KeyChain,
    session: u32,
}

impl Sealer {
    /// For packets to `cid`. Of `cookie`, which is drawn at random for this direction alone, the low 25 bits count.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid, cookie: u64) -> Self {
        let (session, role) = (cookie as u32 & SESSION_MASK, Role { form: Form::Esp, cipher, cid });
        Self { keys: KeyChain::new(secret.direction(context, session.into()), role, PACKETS_PER_KEY), session }
    }

    /// As [`crate::Sealer::rotating_after`].
    #[must_use]
    pub fn rotating_after(mut self, packets: u64) -> Self {
        self.keys.rotating_after(packets);
        self
    }

    /// Takes a new key for what leaves from now on.
    pub fn rotate(&mut self) {
        self.keys.rotate();
    }

    /// Writes the ESP header to the front of `datagram` and its trailer to the end, encrypts what is between and writes
    /// the check value behind it. The message of `message_len` bytes stands there already, behind [`LEN`] bytes. Gives
    /// the header.
    ///
    /// # Panics
    /// When `datagram` is not as long as header, message, trailer and check value.
    #[inline]
    pub fn seal(&mut self, now: Time, label: FlowLabel, message_len: usize, datagram: &mut [u8]) -> Header {
        let trailer_len = trailer_len(message_len);
        assert_eq!(datagram.len(), LEN + message_len + trailer_len + ICV_LEN, "there is room, and no more");
        let (key, spi, sequence) = self.keys.next();
        let sequence = u32::try_from(sequence).expect("a key has fewer");
        let counter = self.session.wrapping_add(sequence) & SESSION_MASK;
        let iv = Iv { salt: label.get() << SESSION_BITS | counter, timestamp: Timestamp::at(now) };
        let header = Header { spi, sequence, iv };
        let layout = Layout::new(datagram.len());
        header.emit(datagram.first_chunk_mut().expect("just compared"));
        layout.close(datagram, trailer_len);
        key.seal_esp(&header, layout, datagram);
        header
    }

    /// Changes of the key so far.
    pub const fn generation(&self) -> u32 {
        self.keys.generation()
    }
}

/// Opens the packets of one direction of one connection.
#[derive(Debug)]
pub struct Opener {
    secret: Secret,
    context: Context,
    role: Role,
    /// Since the first authentic packet.
    current: Option<Session>,
    /// Those of senders of earlier connections of this receiver, the latest first.
    past: [Option<u32>; PAST],
}

/// State that the first authentic packet begins.
#[derive(Debug)]
struct Session {
    number: u32,
    keys: Generations<Seen>,
}

/// The header of an authentic packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The low bits of its flow label.
    pub label: u8,
    /// The key is a new one, since this packet.
    pub rotated: bool,
}

impl Opener {
    /// For packets to `cid`.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid) -> Self {
        let role = Role { form: Form::Esp, cipher, cid };
        Self { secret: secret.clone(), context: *context, role, current: None, past: [None; PAST] }
    }

    /// As [`crate::Opener::after`].
    #[must_use]
    pub fn after(mut self, earlier: &Self) -> Self {
        self.past = earlier.past;
        if let Some(session) = &earlier.current {
            self.past.rotate_right(1);
            self.past[0] = Some(session.number);
        }
        self
    }

    /// Checks `datagram` and decrypts it in place. When it is refused, its bytes mean nothing any more.
    ///
    /// # Errors
    /// [`Refusal`]: it is to be dropped, and nothing has changed here.
    ///
    /// # Panics
    /// When the layout is not the datagram's.
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
            None if self.past.contains(&Some(number)) => return Err(Refusal::Index),
            None => {
                self.open_first(number, header, layout, datagram)?;
                false
            }
        };
        Ok(Opened { label, rotated })
    }

    /// Changes of the key so far.
    pub fn generation(&self) -> u32 {
        self.current.as_ref().map_or(0, |session| session.keys.number())
    }

    /// Returns whether anything authentic has come.
    pub const fn is_begun(&self) -> bool {
        self.current.is_some()
    }

    /// The first packet, perhaps; what is said of PSP's holds here.
    #[cold]
    fn open_first(&mut self, number: u32, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<(), Refusal> {
        let generation = u32::from(Form::Esp.generation_of(header.spi));
        if generation > GENERATIONS_AHEAD {
            return Err(Refusal::Index);
        }
        if !Seen::default().accepts(header.sequence) {
            return Err(Refusal::Replay);
        }
        let direction = self.secret.direction(&self.context, number.into());
        let current = direction.key(self.role, generation);
        if !current.open_esp(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let mut keys = Generations::<Seen>::begin(direction, self.role, generation, current);
        keys.note(Which::Current, header.sequence);
        self.current = Some(Session { number, keys });
        Ok(())
    }
}

impl Session {
    /// Answers whether the key is a new one.
    #[inline]
    fn open(&mut self, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<bool, Refusal> {
        let which = self.keys.which(header.spi).ok_or(Refusal::Index)?;
        let is_new = match self.keys.state(which) {
            Some(seen) => seen.accepts(header.sequence),
            None => Seen::default().accepts(header.sequence),
        };
        if !is_new {
            return Err(Refusal::Replay);
        }
        if !self.keys.key(which).open_esp(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let Which::Later(ahead) = which else {
            self.keys.note(which, header.sequence);
            return Ok(false);
        };
        self.keys.turn(ahead);
        self.keys.note(Which::Current, header.sequence);
        Ok(true)
    }
}

impl Generations<Seen> {
    #[inline]
    fn note(&mut self, which: Which, sequence: u32) {
        if let Some(seen) = self.state(which) {
            seen.note(sequence);
        }
    }
}

/// Which packets of a key have come: all before `from`, and those after it whose bit is set.
#[derive(Debug)]
struct Seen {
    /// At least 1: 0 is no packet's number.
    from: u32,
    bits: RingBitmap<WORDS>,
}

const WORDS: usize = 64;

impl Default for Seen {
    fn default() -> Self {
        Self { from: 1, bits: RingBitmap::new() }
    }
}

impl Seen {
    const BITS: u32 = RingBitmap::<WORDS>::BITS;

    /// Returns whether packet `sequence` has neither come nor is too old to know.
    #[inline]
    fn accepts(&self, sequence: u32) -> bool {
        sequence.checked_sub(self.from).is_some_and(|offset| !self.bits.test(offset))
    }

    /// Packet `sequence`, which [`Self::accepts`], has come.
    #[inline]
    fn note(&mut self, sequence: u32) {
        let offset = sequence - self.from;
        let passed = (offset + 1).saturating_sub(Self::BITS);
        if passed > 0 {
            self.bits.advance(passed);
            self.from += passed;
        }
        self.bits.set(sequence - self.from);
    }
}

#[cfg(test)]
#[path = "esp/tests.rs"]
mod tests;
