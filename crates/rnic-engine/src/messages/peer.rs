//! The peers with which a NIC exchanges messages: which message is accepted, which is answered, and which is dropped.
//!
//! Messages are mechanism S-6 of SCR (NSDI'25, section 4.3.1), which says nothing of security. These rules are
//! OpenRNIC's:
//!
//! 1. A message is accepted from the address and port of a connected peer only. The driver checks this, and that the
//!    queue pairs named in the message are connected ([`Origin`]). Other messages are dropped and never answered.
//! 2. Each NIC has a random *cookie* for each peer, which it announces in probes and answers. A message must carry the
//!    receiver's cookie, so a sender that cannot read the packets between the two (*off the path*) changes nothing. A
//!    probe without it is answered with an announcement and changes no state but the rate limit of announcements.
//! 3. The sequence number must not be more than 2^16 ahead of the highest one, nor as far behind. A message that
//!    changes behaviour must be newer than the last such message; probes on paths of different length may overtake each
//!    other. Two consecutive numbers further ahead are taken for an interruption of the network (as RFC 3550, appendix
//!    A.1, does), so that one of up to 2^31 messages ends.
//! 4. A message causes at most one answer of the same length. Answers to a peer are limited, by default to 1000 per
//!    second and 64 at once, of which announcements are a part of their own: 64 per second and 4 at once. A flood of
//!    probes without a cookie does not take the answers of probes with one.
//! 5. The number of peers is bounded by [`PEERS_MAX`].
//! 6. Where data of a queue pair comes from several source ports, its path labels, a peer announces each port by a
//!    probe that comes from it, names it as its label, and carries the receiver's cookie ([`Exchange::announcer`]). At
//!    most [`LABELS_MAX`] ports of a NIC are accepted, until its last queue pair is disconnected or it starts anew.
//!
//! [`Exchange::announcer`]: super::exchange::Exchange::announcer
//!
//! An announced cookie is recorded only when the message that announces it carries the receiver's cookie. A peer that
//! announces another cookie than before has started anew, and its sequence numbers with it.

use std::collections::BTreeMap;

use rnic_base::{Duration, Psn32, Time};
use rnic_wire::scr::{Cookie, Message, Type};

use super::config::AnswerLimit;
use crate::NicId;

/// Maximum number of peers with which messages are exchanged.
pub const PEERS_MAX: usize = 1 << 12;

/// Maximum number of labels from which data of one NIC is accepted.
pub const LABELS_MAX: usize = 16;

/// Largest distance of a sequence number from the highest one.
pub const SEQUENCE_WINDOW: i64 = 1 << 16;

/// Origin of a message, which the driver derives from the source address and the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Peer that has the address and port of the sender.
    pub peer: NicId,
    /// True when the queue pairs in the message are connected to each other; for a message to the whole NIC, when any
    /// queue pair is connected to the peer.
    pub is_connected: bool,
}

/// Decision about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The message is valid.
    Accept {
        /// True when an answer has to be sent.
        answer: bool,
    },
    /// The message is ignored, but a probe answer without further content is sent, which announces this NIC's cookie.
    Announce {
        /// Cookie of the peer, for the answer.
        cookie: Cookie,
        /// Cookie of this NIC, which the response announces.
        announced: Cookie,
    },
    /// The message is ignored.
    Drop(DropCause),
}

/// Reason why a message is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// The sender is not a peer.
    UnknownPeer,
    /// The queue pairs in the message are not connected to each other.
    NotConnected,
    /// The message does not carry this NIC's cookie.
    Cookie,
    /// The peer has not announced its cookie.
    NotAnnounced,
    /// The sequence number is too old.
    Old,
    /// The sequence number is too far ahead.
    Ahead,
    /// The peer has exceeded its rate of requests.
    RateLimited,
}

/// Fields that a message to a peer carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Cookie of the peer; `None` in a first probe.
    pub cookie: Option<Cookie>,
    /// Cookie of the sending NIC, if the message announces it.
    pub announced: Option<Cookie>,
    /// Sequence number.
    pub sequence: Psn32,
}

impl DropCause {
    /// Number of causes.
    pub const COUNT: usize = 7;
}

/// All NICs with which messages are exchanged.
#[derive(Debug, Default)]
pub struct Peers {
    peers: BTreeMap<NicId, Peer>,
    /// Rate limit of the answers to a peer.
    answers: AnswerLimit,
}

/// State of one peer.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// This NIC's cookie for the peer.
    ours: Cookie,
    /// The cookie that the peer has announced to this NIC. The sequence numbers are valid from then on.
    theirs: Option<Cookie>,
    /// Highest sequence number of the peer.
    highest: Psn32,
    /// Highest sequence number of a message that changed behaviour, or a lower bound of it.
    applied: Psn32,
    /// The number after that of the last message that was too far ahead.
    resumes_at: Psn32,
    /// Sequence number of the next message to the peer.
    next: Psn32,
    answers: Bucket,
    announcements: Bucket,
}

const _: () = assert!(size_of::<Peer>() <= 48);

impl Peers {
    /// Creates an empty set of peers; `answers` limits the answers to each.
    #[must_use]
    pub const fn new(answers: AnswerLimit) -> Self {
        Self { peers: BTreeMap::new(), answers }
    }

    /// Returns whether the peer has announced its cookie, so that any message can be sent to it.
    #[must_use]
    pub fn knows(&self, id: NicId) -> bool {
        self.announced_by(id).is_some()
    }

    /// Returns the cookie that the peer has announced, if it has.
    #[must_use]
    pub fn announced_by(&self, id: NicId) -> Option<Cookie> {
        self.peers.get(&id)?.theirs
    }

    /// Returns whether a message carries this NIC's cookie for this peer.
    #[must_use]
    pub fn has_our_cookie(&self, id: NicId, message: &Message) -> bool {
        message.cookie.is_some() && self.peers.get(&id).map(|peer| peer.ours) == message.cookie
    }

    /// Adds a peer, and draws a cookie for it; returns false if there are already [`PEERS_MAX`] peers, in which case no
    /// messages are exchanged with this one. A known peer is unchanged.
    pub fn add(&mut self, id: NicId, cookie: Cookie) -> bool {
        if !self.peers.contains_key(&id) {
            if self.peers.len() >= PEERS_MAX {
                return false;
            }
            self.peers.insert(id, Peer::new(cookie));
        }
        true
    }

    /// Removes a peer to which no queue pair is connected any more.
    pub fn remove(&mut self, id: NicId) {
        self.peers.remove(&id);
    }

    /// Returns the fields of the next message of type `kind` to a peer, and counts it. `None` when the peer is unknown,
    /// or when it has not announced its cookie and the message is not a probe. Probes and answers announce this NIC's
    /// cookie.
    pub fn address(&mut self, id: NicId, kind: Type) -> Option<Envelope> {
        let peer = self.peers.get_mut(&id)?;
        if peer.theirs.is_none() && kind != Type::Probe {
            return None;
        }
        let announced = matches!(kind, Type::Probe | Type::Answer).then_some(peer.ours);
        Some(Envelope { cookie: peer.theirs, announced, sequence: peer.take_sequence() })
    }

    /// Returns the sequence number of an announcement ([`Verdict::Announce`]) to a peer, and counts it.
    pub fn number_announcement(&mut self, id: NicId) -> Option<Psn32> {
        self.peers.get_mut(&id).map(Peer::take_sequence)
    }

    /// Decides about a message that arrived at `now`.
    pub fn judge(&mut self, origin: Origin, message: &Message, now: Time) -> Verdict {
        let Some(peer) = self.peers.get_mut(&origin.peer) else { return Verdict::Drop(DropCause::UnknownPeer) };
        if !origin.is_connected {
            return Verdict::Drop(DropCause::NotConnected);
        }
        if message.cookie != Some(peer.ours) {
            return peer.judge_unverified(message, now);
        }
        peer.judge_verified(message, self.answers, now)
    }
}

impl Peer {
    const fn new(ours: Cookie) -> Self {
        let zero = Psn32::new(0);
        Self {
            ours,
            theirs: None,
            highest: zero,
            applied: zero,
            resumes_at: zero,
            next: zero,
            answers: Bucket::NEW,
            announcements: Bucket::NEW,
        }
    }

    fn take_sequence(&mut self) -> Psn32 {
        let sequence = self.next;
        self.next = sequence.plus(1);
        sequence
    }

    /// Returns the verdict on a message without this NIC's cookie. Only the number of announcements changes.
    fn judge_unverified(&mut self, message: &Message, now: Time) -> Verdict {
        // The cookie in the message is used for this answer only: if it is a forged one, the peer drops the answer.
        let cookie = message.announced.or(self.theirs);
        match cookie.filter(|_| message.body.kind() == Type::Probe && message.answer_wanted) {
            None => Verdict::Drop(DropCause::Cookie),
            Some(_) if !self.announcements.take(now, ANNOUNCEMENTS) => Verdict::Drop(DropCause::RateLimited),
            Some(cookie) => Verdict::Announce { cookie, announced: self.ours },
        }
    }

    fn judge_verified(&mut self, message: &Message, answers: AnswerLimit, now: Time) -> Verdict {
        let changes_behaviour = message.body.kind().changes_behaviour();
        if message.announced.is_some() && message.announced != self.theirs {
            self.theirs = message.announced;
            self.highest = message.sequence;
            self.applied = message.sequence;
            self.resumes_at = message.sequence;
        } else if self.theirs.is_none() {
            return Verdict::Drop(DropCause::NotAnnounced);
        } else if let Err(cause) = self.check_sequence(message.sequence, changes_behaviour) {
            return Verdict::Drop(cause);
        }
        let answer = message.answer_wanted && self.answers.take(now, answers);
        if message.answer_wanted && !answer && !changes_behaviour {
            return Verdict::Drop(DropCause::RateLimited);
        }
        Verdict::Accept { answer }
    }

    /// Checks a sequence number, and records it.
    fn check_sequence(&mut self, sequence: Psn32, changes_behaviour: bool) -> Result<(), DropCause> {
        let ahead = self.highest.distance_to(sequence);
        if ahead > SEQUENCE_WINDOW && sequence != self.resumes_at {
            self.resumes_at = sequence.plus(1);
            return Err(DropCause::Ahead);
        }
        let is_old = if changes_behaviour { self.applied.distance_to(sequence) <= 0 } else { false };
        if is_old || ahead <= -SEQUENCE_WINDOW {
            return Err(DropCause::Old);
        }
        if ahead > 0 {
            self.highest = sequence;
        }
        if changes_behaviour {
            self.applied = sequence;
        }
        // The bound moves along, so that the two numbers stay comparable.
        let oldest = self.highest.plus((-SEQUENCE_WINDOW) as u32);
        if self.applied.is_before(oldest) {
            self.applied = oldest;
        }
        Ok(())
    }
}

/// A token bucket, as the time from which it is full again (the generic cell rate algorithm, ITU-T I.371).
#[derive(Clone, Copy, Debug)]
struct Bucket {
    full_at: Time,
}

impl Bucket {
    const NEW: Self = Self { full_at: Time::ZERO };

    /// Takes a token; returns false if there is none.
    fn take(&mut self, now: Time, limit: AnswerLimit) -> bool {
        let full_at = self.full_at.max(now) + limit.interval;
        let has_token = full_at.since(now) <= limit.interval.saturating_mul(limit.burst);
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }
}

/// Announcements to senders without this NIC's cookie.
const ANNOUNCEMENTS: AnswerLimit = AnswerLimit { interval: Duration::from_us(1_000_000 / 64), burst: 4 };

#[cfg(test)]
#[path = "peer/tests.rs"]
mod tests;
