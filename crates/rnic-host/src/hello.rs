//! Check that both ends of a connection use the same settings, for connections on which no other mechanism ensures
//! it.
//!
//! Programs that exchange queue pair numbers themselves, without a connection manager, exchange no transport
//! settings. Ends with different transports drop each other's packets, and the program sees only "retry exceeded";
//! with different MTUs it sees an invalid request; differences in Falcon's ordering and flows are not reported at
//! all. So a NIC that shares its machine sends the settings of a queue pair when it is connected
//! ([`rnic_wire::hello`]), and receives those of the remote end. If they differ, a message tells the user what to
//! change ([`SettingsDiffer`]). The connection is used without waiting for this check, and the NIC takes no other
//! action, because the programs are responsible for the settings.
//!
//! The request of the end that is connected first has no effect: the other end knows of no connection yet, and does
//! not respond. When that end is connected, it sends its own settings, which are compared and answered. So a request
//! needs to be repeated only if the network lost a message, and a peer that does not support this protocol receives
//! only a few requests.
//!
//! Messages are not encrypted, and any process at the peer's address that knows both queue pair numbers can forge
//! one: the worst effects are a wrong line on standard error, once for each queue pair, and messages between NICs
//! ([`crate::messages`]) to a peer that exchanges none. It cannot turn these off: a later hello of the peer agrees.
//!
//! This is a state machine without a socket, like `credit`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use rnic_base::{Duration, Time};
use rnic_engine::PeerId;
use rnic_wire::Qpn;
use rnic_wire::hello::{Hello, Terms};

use crate::cm::{falcon_key_hint, falcon_params_text, is_flow_count};

/// State of the settings exchange for all connected queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Hellos {
    /// Queue pairs that have been connected.
    pairs: BTreeMap<Qpn, Pair>,
    /// Queue pairs whose remote end must be sent a request, with the time of the request; each queue pair is listed
    /// once.
    requests: BTreeSet<(Time, Qpn)>,
    /// Time before which no requests are sent.
    pause_until: Time,
    /// Version of the messages between NICs that this NIC exchanges; 0 for none.
    messages: u8,
}

/// A queue pair and the remote end of its connection.
#[derive(Clone, Copy, Debug)]
struct Pair {
    peer: PeerId,
    remote_qpn: Qpn,
    ours: Terms,
    /// Time of the next request; `None` once the remote end has responded, or the maximum number of requests has been
    /// sent.
    request_at: Option<Time>,
    request_count: u32,
    is_warned: bool,
    /// True once the remote end has sent its settings.
    has_theirs: bool,
    /// True once the remote end has announced that it supports this NIC's version of messages between NICs.
    has_agreed: bool,
}

/// Result of a hello message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HelloOutcome {
    /// The response, if one is needed.
    pub(crate) answer: Option<OutgoingHello>,
    /// The settings of the remote and of the local end, if they differ; reported once.
    pub(crate) differs: Option<[Terms; 2]>,
    /// True for the first message about a queue pair, and for the first that agrees to messages between NICs.
    pub(crate) is_news: bool,
}

/// A message to be sent to the NIC of `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutgoingHello {
    pub(crate) peer: PeerId,
    pub(crate) hello: Hello,
}

/// A report that the ends of a connection use different settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsDiffer {
    /// Address of the remote end.
    pub peer: IpAddr,
    /// Settings of the remote end.
    pub theirs: Terms,
    /// Settings of the local end.
    pub ours: Terms,
}

impl Hellos {
    /// Announces from now on that this NIC exchanges messages between NICs, of this version.
    pub(crate) fn announce_messages(&mut self, version: u8) {
        self.messages = version;
    }

    /// Records that queue pair `qpn`, with the settings `ours`, has been connected to queue pair `remote_qpn` of
    /// `peer`.
    pub(crate) fn connected(&mut self, now: Time, qpn: Qpn, (peer, remote_qpn): (PeerId, Qpn), ours: Terms) {
        self.disconnected(qpn);
        let pair = Pair {
            peer,
            remote_qpn,
            ours,
            request_at: Some(now),
            request_count: 0,
            is_warned: false,
            has_theirs: false,
            has_agreed: false,
        };
        self.pairs.insert(qpn, pair);
        self.requests.insert((now, qpn));
    }

    /// Records that queue pair `qpn` is no longer connected.
    pub(crate) fn disconnected(&mut self, qpn: Qpn) {
        if let Some(at) = self.pairs.remove(&qpn).and_then(|pair| pair.request_at) {
            self.requests.remove(&(at, qpn));
        }
    }

    /// Returns the time of the next requests.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.requests.first().map(|(at, _)| (*at).max(self.pause_until))
    }

    /// Returns the requests that are due, a few at a time: if thousands of queue pairs are connected at the same
    /// time, their requests would fill the remote end's receive buffer, and other packets would be lost.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<OutgoingHello> {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            if due.len() == REQUESTS_PER_CALL {
                self.pause_until = now + BURST_INTERVAL;
                break;
            }
            let Some((_, qpn)) = self.requests.pop_first() else { break };
            let Some(pair) = self.pairs.get_mut(&qpn) else { continue };
            due.push(pair.outgoing(qpn, false, self.messages));
            pair.request_count += 1;
            pair.request_at = (pair.request_count < REQUESTS_MAX)
                .then(|| now + REQUEST_INTERVAL.saturating_mul(1 << pair.request_count));
            self.requests.extend(pair.request_at.map(|at| (at, qpn)));
        }
        due
    }

    /// Processes a message from `peer`.
    pub(crate) fn on_message(&mut self, peer: PeerId, hello: &Hello) -> HelloOutcome {
        let known = self.pairs.get_mut(&hello.to);
        let Some(pair) = known.filter(|pair| (pair.peer, pair.remote_qpn) == (peer, hello.from)) else {
            return HelloOutcome::default();
        };
        if let Some(at) = pair.request_at.take() {
            self.requests.remove(&(at, hello.to));
        }
        let differs = hello.terms != pair.ours && !std::mem::replace(&mut pair.is_warned, true);
        let answer = (!hello.is_response).then(|| pair.outgoing(hello.to, true, self.messages));
        let agrees = self.messages != 0 && hello.messages == self.messages;
        let is_news = !pair.has_theirs || agrees && !pair.has_agreed;
        (pair.has_theirs, pair.has_agreed) = (true, pair.has_agreed || agrees);
        HelloOutcome { answer, differs: differs.then_some([hello.terms, pair.ours]), is_news }
    }
}

impl Pair {
    fn outgoing(&self, from: Qpn, is_response: bool, messages: u8) -> OutgoingHello {
        let hello = Hello { is_response, from, to: self.remote_qpn, terms: self.ours, messages };
        OutgoingHello { peer: self.peer, hello }
    }
}

impl Display for SettingsDiffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { peer, theirs, ours } = self;
        let [there, here] = [theirs, ours].map(|terms| terms.transport.as_str().to_owned());
        if there != here {
            return write!(
                f,
                "the other end at {peer} uses transport {there}, but this end uses {here}; set the same --transport \
                 at both ends"
            );
        }
        if theirs.falcon != ours.falcon && is_flow_count(theirs.falcon) && is_flow_count(ours.falcon) {
            let [there, here] = [theirs, ours].map(|terms| terms.falcon.max(1));
            return write!(
                f,
                "the other end at {peer} uses flows={there}, but this end uses flows={here}; set the same --set flows \
                 at both ends"
            );
        }
        if theirs.falcon != ours.falcon {
            let [there, here] = [theirs, ours].map(|terms| falcon_params_text(terms.falcon));
            let hint = falcon_key_hint(ours.falcon, theirs.falcon);
            return write!(
                f,
                "the other end at {peer} uses {there}, but this end uses {here}{hint}; set the same --set and --key \
                 at both ends"
            );
        }
        let (there, here) = (theirs.mtu, ours.mtu);
        write!(
            f,
            "the other end at {peer} sends packets of {there} bytes, but this end sends packets of {here} bytes; set \
             the same --mtu at both ends, one that the path carries"
        )
    }
}

/// Maximum number of requests per connection: enough for losses in the network and for slow peers.
const REQUESTS_MAX: u32 = 4;

/// Maximum number of requests that are sent together; with the pause until the next ones, some 60,000 a second.
const REQUESTS_PER_CALL: usize = 16;
const BURST_INTERVAL: Duration = Duration::from_us(250);

/// Interval after the first request; it doubles with each further one.
const REQUEST_INTERVAL: Duration = Duration::from_ms(25);

#[cfg(test)]
#[path = "hello/tests.rs"]
mod tests;
