//! Namespaces, and requirements on queue pairs for NVMe.

use rnic_base::limits::MTU_MAX;
use rnic_nvme::UNIT;

use super::Engine;
use crate::config::QpAttributes;
use crate::core::Core;
use crate::error::{ModifyError, ResourceError};
use crate::namespace::{NamespaceConfig, NamespaceId, NvmeInitiator, NvmeRole, check_block};
use crate::qp::Qp;
use crate::state::Service;

/// Access to the namespaces of an engine, and to the statistics of its queue pairs for NVMe; returned by
/// [`Engine::nvme`].
#[derive(Debug)]
pub struct Nvme<'a> {
    engine: &'a mut Engine,
}

impl Engine {
    /// Returns access to the engine's namespaces and NVMe statistics.
    pub fn nvme(&mut self) -> Nvme<'_> {
        Nvme { engine: self }
    }
}

impl Nvme<'_> {
    /// Creates a namespace in registered memory, which NVMe targets of this NIC may serve.
    ///
    /// # Errors
    /// When a size is out of range, or there are too many namespaces.
    pub fn create_namespace(&mut self, config: &NamespaceConfig) -> Result<NamespaceId, ResourceError> {
        self.engine.core.objects.check_pd(config.pd)?;
        self.engine.core.namespaces.create(config)
    }

    /// Destroys a namespace.
    ///
    /// # Errors
    /// When the namespace does not exist, or a target serves it.
    pub fn destroy_namespace(&mut self, id: NamespaceId) -> Result<(), ResourceError> {
        self.engine.core.namespaces.destroy(id)
    }

    /// Returns the number of invalid NVMe packets on connections that still exist.
    pub fn peer_errors(&self) -> u64 {
        self.engine.qps.iter().filter_map(|qp| qp.falcon()).map(|end| end.nvme_errors()).sum()
    }
}

/// Checks that a queue pair with these attributes can be an NVMe end, if they specify an NVMe role.
pub(super) fn check_role(core: &Core, attributes: &QpAttributes) -> Result<(), ResourceError> {
    let Some(role) = attributes.nvme else { return Ok(()) };
    if attributes.service != Service::ReliableConnection || attributes.transport.falcon().is_none() {
        return Err(ResourceError::NvmeWithoutFalcon);
    }
    match role {
        NvmeRole::Target(namespace) if core.namespaces.config(namespace).is_none() => {
            Err(ResourceError::Unknown("namespace"))
        }
        NvmeRole::Initiator(NvmeInitiator { block_log2, .. }) => check_block(block_log2),
        NvmeRole::Target(_) => Ok(()),
    }
}

/// Checks the path MTU of a queue pair: for NVMe, a packet must be able to carry a complete unit ([`UNIT`]).
pub(super) fn check_mtu_of(qp: &Qp, mtu: u32) -> Result<(), ModifyError> {
    let is_nvme = qp.falcon().is_some_and(|end| end.nvme_role().is_some());
    if !is_nvme || mtu >= UNIT {
        return Ok(());
    }
    let [requested, min, max] = [mtu, UNIT, MTU_MAX].map(u64::from);
    Err(ModifyError::Attribute { what: "path MTU of a queue pair for NVMe", requested, min, max, step: 4 })
}

/// Returns the namespace that a queue pair serves, if it is a target.
pub(super) fn namespace_of(qp: &Qp) -> Option<NamespaceId> {
    match qp.falcon()?.nvme_role()? {
        NvmeRole::Target(namespace) => Some(*namespace),
        NvmeRole::Initiator(_) => None,
    }
}
