//! Control connections of clients that have not sent their first order.
//!
//! A client that connects and then sends nothing does not block others: several wait in parallel, each for a short
//! time, and when the limit is reached the one that has waited longest is closed for the next.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use super::control::Control;
use super::plan::{Answer, Order};
use super::setup::{ServeConfig, turn_away};
use super::{PerfError, protection};
use crate::cm::ConnectionId;
use crate::connection::ConnectionRequest;
use crate::nic::Nic;

/// The waiting clients, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<Entrant>);

/// A waiting client.
#[derive(Debug)]
pub(super) struct Entrant {
    pub(super) control: Control,
    /// Number of the session that it requests.
    pub(super) session: u64,
    since: Time,
    /// Set after it has been refused because another session is being served.
    is_refused: bool,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Accepts a control connection.
    ///
    /// # Errors
    /// When it is not accepted: the reason, for the user at this end. The other end has then received a rejection.
    pub(super) fn admit(
        &mut self,
        nic: &mut Nic,
        config: &ServeConfig,
        request: &ConnectionRequest,
        session: u64,
    ) -> Result<(), String> {
        if let Err([there, here]) = protection::check_request(nic, request) {
            turn_away(nic, request.id, there);
            return Err(here.to_owned());
        }
        if self.0.len() == ENTRANTS_MAX
            && let Some(longest) = self.0.pop_front()
        {
            longest.control.close(nic);
        }
        let control = Control::open(nic, config.patience, |nic, config| nic.accept(request.id, &config));
        let control = control.map_err(|error| error.to_string())?;
        self.0.push_back(Entrant { control, session, since: nic.now(), is_refused: false });
        Ok(())
    }

    /// Marks a connection as ended, if it is one of these.
    pub(super) fn end(&mut self, id: ConnectionId) {
        if let Some(entrant) = self.0.iter_mut().find(|entrant| entrant.control.id == id) {
            entrant.control.end();
        }
    }

    /// Removes a client that has sent an order, failed or timed out; returns it with its order, or the reason why there
    /// is none.
    pub(super) fn next(&mut self, nic: &mut Nic, config: &ServeConfig) -> Option<(Entrant, Result<Order, PerfError>)> {
        let patience = FIRST_ORDER_WITHIN.min(config.patience);
        let now = nic.now();
        let mut found = None;
        for (index, entrant) in self.0.iter_mut().enumerate() {
            let said = entrant.control.poll::<Order>(nic);
            let peer = entrant.control.peer;
            let said = match said {
                Ok(None) if now.since(entrant.since) > patience => Err(PerfError::Silent { peer, after: patience }),
                Ok(None) => continue,
                Ok(Some(order)) => Ok(order),
                Err(error) => Err(error),
            };
            found = Some((index, said));
            break;
        }
        let (index, said) = found?;
        Some((self.0.remove(index)?, said))
    }

    /// While a session is served: refuses the clients that have sent an order.
    pub(super) fn refuse(&mut self, nic: &mut Nic) {
        for entrant in self.0.iter_mut().filter(|entrant| !entrant.is_refused) {
            if let Ok(Some(Order::Prepare { .. })) = entrant.control.poll(nic) {
                // The client may have disconnected: then sending fails, without consequences.
                let _ = entrant.control.send(nic, &Answer::Refused { reason: BUSY.to_owned() });
                entrant.is_refused = true;
            }
        }
    }

    /// Closes all connections.
    pub(super) fn close(self, nic: &mut Nic) {
        self.0.into_iter().for_each(|entrant| entrant.control.close(nic));
    }
}

impl Entrant {
    /// Returns whether its failure is reported as a session: not when it was refused.
    pub(super) fn is_news(&self) -> bool {
        !self.is_refused
    }
}

/// Refusal reason for a client that sends an order while a session is served.
pub(super) const BUSY: &str = "busy with another session";

/// Maximum number of waiting clients: each has a queue pair and 32 KiB of memory.
const ENTRANTS_MAX: usize = 64;

/// Time limit for the first order: it follows its connection within a round trip, and a few retransmissions when
/// packets are lost.
pub(super) const FIRST_ORDER_WITHIN: Duration = Duration::from_secs(5);
