//! Changes to queue pairs that are not yet connected: their transport, and the role as a target of extended reliable
//! connections.

use std::sync::Arc;

use rnic_base::Time;
use rnic_wire::Qpn;

use super::observer::{self, DriverCall};
use super::{Engine, flows};
use crate::error::{ModifyError, PostError, ResourceError};
use crate::limiter::{LimitSource, RATE_LIMIT_MIN, RateLimit};
use crate::state::QpState;
use crate::state::Service;
use crate::transport::Transport;
use crate::wr::SendRequest;

/// Limits the rate of queue pair `qpn` and its flows together.
fn set_rate_limit(engine: &mut Engine, qpn: Qpn, source: LimitSource, limit: Option<RateLimit>) {
    let part = flows::divide_limit(engine, qpn, source, limit);
    if let Some(qp) = engine.qps.find_mut(qpn) {
        qp.set_rate_limit(&mut engine.core, source, part);
    }
}

/// Gives queue pair `qpn`, which has no flows at present, another transport, with as many flows as that has.
fn replace_transport(engine: &mut Engine, qpn: Qpn, transport: &Arc<Transport>) -> Result<(), ResourceError> {
    let Some(qp) = engine.qps.find_mut(qpn) else { return Ok(()) };
    qp.set_transport(&mut engine.core, transport);
    let attributes = qp.verbs.attributes();
    flows::create(engine, qpn, &attributes)
}

impl Engine {
    /// Replaces the transport of a reliable connection before it is connected, with the one that both ends have
    /// negotiated. Permitted in states `Reset` and `Init`; posted requests remain queued.
    ///
    /// # Errors
    /// When the queue pair does not exist, is connected or has another service; or when the old or the new transport
    /// is Falcon, whose queue pairs have a different structure; or when the flows of the new transport cannot be
    /// created. Nothing has changed then.
    pub fn set_transport(&mut self, qpn: Qpn, transport: &Arc<Transport>) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        let from = qp.verbs.head.state;
        if !matches!(from, QpState::Reset | QpState::Init) {
            return Err(ModifyError::Transition { from, to: QpState::Init });
        }
        qp.check_roce()?;
        if transport.falcon().is_some() {
            return Err(ModifyError::Service(Service::ReliableConnection));
        }
        let former = Arc::clone(&qp.verbs.head.transport);
        let limits = self.query_qp(qpn).map(|info| info.rate_limits).unwrap_or_default();
        flows::destroy(self, qpn);
        let result = replace_transport(self, qpn, transport).map_err(|error| {
            // The numbers of its flows are free again.
            let _ = replace_transport(self, qpn, &former);
            ModifyError::Flows(error)
        });
        if limits.iter().any(Option::is_some) {
            // They have been divided among other flows, or not at all.
            for (source, limit) in LimitSource::ALL.into_iter().zip(limits) {
                set_rate_limit(self, qpn, source, limit);
            }
        }
        result
    }

    /// Limits the rate at which the data of a queue pair is taken out of memory, whatever its service and transport:
    /// its requests, its responses to the peer's Reads, and retransmissions (SCR section 4.2, mechanism S-1). `None`
    /// removes the limit of `source`. Permitted in any state, and effective for the next packet. A reset removes the
    /// limit of [`LimitSource::Program`].
    ///
    /// # Errors
    /// When the queue pair does not exist, or the rate is not between [`RATE_LIMIT_MIN`] and the rate of the link.
    pub fn set_rate_limit(
        &mut self,
        now: Time,
        qpn: Qpn,
        source: LimitSource,
        limit: Option<RateLimit>,
    ) -> Result<(), ModifyError> {
        self.qps.find(qpn).ok_or(ModifyError::UnknownQp)?;
        let (min, max) = (RATE_LIMIT_MIN, self.core.config.line_rate);
        if let Some(limit) = limit.filter(|limit| limit.rate < min || limit.rate > max) {
            let [requested, min, max] = [limit.rate, min, max].map(|rate| rate.as_bps() / 1_000);
            return Err(ModifyError::Attribute { what: "rate limit in kbit/s", requested, min, max, step: 1 });
        }
        self.core.now = now;
        set_rate_limit(self, qpn, source, limit);
        if self.observer.is_some() {
            observer::note(self, &DriverCall::RateLimit(qpn, source, limit));
        }
        Ok(())
    }

    /// Makes a new queue pair the target of an extended reliable connection: its messages consume receives from shared
    /// receive queues of the XRC domain `domain`.
    ///
    /// # Errors
    /// When the queue pair does not exist, is in another state than `Reset`, or is not a reliable connection of the
    /// RoCE family.
    pub fn make_target(&mut self, qpn: Qpn, domain: u32) -> Result<(), ModifyError> {
        let qp = self.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.check_roce()?;
        let from = qp.verbs.head.state;
        if from != QpState::Reset {
            return Err(ModifyError::Transition { from, to: QpState::Reset });
        }
        qp.make_target(&mut self.core, domain);
        Ok(())
    }

    /// As [`Engine::post_send`], to the target of an extended reliable connection: operations that consume a receive
    /// there consume it from the shared receive queue with the number `srqn`.
    ///
    /// # Errors
    /// As [`Engine::post_send`].
    pub fn post_send_shared(&mut self, qpn: Qpn, request: &SendRequest<'_>, srqn: u32) -> Result<(), PostError> {
        let qp = self.qps.find_mut(qpn).ok_or(PostError::UnknownQp)?;
        qp.post_send(&mut self.core, request, srqn)
    }
}
