//! Control connections of clients that have not sent their first order.
//!
//! A client that connects and then sends nothing does not block others: several clients wait in parallel, each for a
//! limited time. When the maximum number of clients is waiting, the one that has waited longest is disconnected to
//! accept a new one.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use super::control::Control;
use super::plan::{Answer, Order};
use super::setup::{ServeConfig, reject_client};
use super::{PerfError, protection};
use crate::cm::ConnectionId;
use crate::connection::ConnectionRequest;
use crate::nic::Nic;

/// The waiting clients, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<WaitingClient>);

/// A waiting client.
#[derive(Debug)]
pub(super) struct WaitingClient {
    pub(super) control: Control,
    /// Number of the session that it requests.
    pub(super) session: u64,
    since: Time,
    /// True after the request has been refused because another session is being served.
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
        if let Err([for_client, for_user]) = protection::check_request(nic, request) {
            reject_client(nic, request.id, for_client);
            return Err(for_user.to_owned());
        }
        if self.0.len() == WAITING_CLIENTS_MAX
            && let Some(longest) = self.0.pop_front()
        {
            longest.control.close(nic);
        }
        let control = Control::open(nic, config.patience, |nic, config| nic.accept(request.id, &config));
        let control = control.map_err(|error| error.to_string())?;
        self.0.push_back(WaitingClient { control, session, since: nic.now(), is_refused: false });
        Ok(())
    }

    /// Marks a connection as ended, if it is that of a waiting client.
    pub(super) fn end(&mut self, id: ConnectionId) {
        if let Some(client) = self.0.iter_mut().find(|client| client.control.id == id) {
            client.control.end();
        }
    }

    /// Removes a client that has sent an order, failed or timed out; returns the client with its order, or with the
    /// reason why there is none.
    pub(super) fn next(
        &mut self,
        nic: &mut Nic,
        config: &ServeConfig,
    ) -> Option<(WaitingClient, Result<Order, PerfError>)> {
        let patience = FIRST_ORDER_TIMEOUT.min(config.patience);
        let now = nic.now();
        let mut found = None;
        for (index, client) in self.0.iter_mut().enumerate() {
            let received = client.control.poll::<Order>(nic);
            let peer = client.control.peer;
            let received = match received {
                Ok(None) if now.since(client.since) > patience => Err(PerfError::Silent { peer, after: patience }),
                Ok(None) => continue,
                Ok(Some(order)) => Ok(order),
                Err(error) => Err(error),
            };
            found = Some((index, received));
            break;
        }
        let (index, received) = found?;
        Some((self.0.remove(index)?, received))
    }

    /// While a session is served: refuses the clients that have sent an order.
    pub(super) fn refuse(&mut self, nic: &mut Nic) {
        for client in self.0.iter_mut().filter(|client| !client.is_refused) {
            if let Ok(Some(Order::Prepare { .. })) = client.control.poll(nic) {
                // The client may have disconnected: then sending fails, without consequences.
                let _ = client.control.send(nic, &Answer::Refused { reason: BUSY.to_owned() });
                client.is_refused = true;
            }
        }
    }

    /// Closes all connections.
    pub(super) fn close(self, nic: &mut Nic) {
        self.0.into_iter().for_each(|client| client.control.close(nic));
    }
}

impl WaitingClient {
    /// Returns whether a failure of this client is reported as a session that failed: not when the client was
    /// refused.
    pub(super) fn is_session_failure(&self) -> bool {
        !self.is_refused
    }
}

/// Refusal reason for a client that sends an order while a session is served.
pub(super) const BUSY: &str = "the server is busy with another session";

/// Maximum number of waiting clients: each has a queue pair and 32 KiB of memory.
const WAITING_CLIENTS_MAX: usize = 64;

/// Time limit for the first order: a client sends it within a round trip after connecting; when packets are lost, it
/// takes a few retransmissions more.
pub(super) const FIRST_ORDER_TIMEOUT: Duration = Duration::from_secs(5);
