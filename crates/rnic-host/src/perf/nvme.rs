//! NVMe commands of `rnic perf`: the namespace at the server, and its parameters that the client needs.

use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_base::{BitRate, Duration};
use rnic_engine::{
    DeviceConfig, DeviceService, NVME_UNIT, NVME_UNITS_MAX, NamespaceConfig, NamespaceId, NvmeInitiator, NvmeReads,
    NvmeRole, PdId,
};

use super::{Op, PerfConfig, PerfError};
use crate::defaults::TransportChoice;
use crate::memory::Region;
use crate::nic::Nic;

/// Block size as a power of two.
const BLOCK_LOG2: u32 = 9;
/// Namespace number in a session.
const NAMESPACE_NUMBER: u16 = 1;
/// Send queue entries for each command in flight: a Write that is read back uses two, and an entry becomes free only
/// after all earlier ones.
pub(super) const ENTRIES: u32 = 4;
/// Maximum number of commands in flight on a queue pair.
const DEPTH_MAX: u32 = WORK_REQUESTS_MAX / ENTRIES;
const DEPTH_EXPECTED: &str = "at most 8192, because a command may use 4 of the 32768 entries of a send queue; \
                              reduce the depth or use more queue pairs";
const _: () = assert!(DEPTH_MAX == 8_192 && WORK_REQUESTS_MAX == 32_768);
/// Time limit of a command: the default of NVMe hosts.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Model of the NVMe device: backed by memory, with almost no latency, and with a queue deep enough for all requests in
/// flight.
const DEVICE: DeviceConfig = {
    let service = DeviceService { latency: Duration::ZERO, bandwidth: BitRate::gbps(10_000) };
    DeviceConfig { read: service, write: service, queue_depth: 1 << 16, block_log2: BLOCK_LOG2 }
};

/// Checks that the NVMe commands of `config` are possible.
///
/// # Errors
/// [`PerfError::Plan`] or [`PerfError::NvmeNeedsFalcon`].
pub(super) fn check(config: &PerfConfig, choice: &TransportChoice, mtu_bytes: u32) -> Result<(), PerfError> {
    if !config.op.is_nvme() {
        return Ok(());
    }
    if choice.profile.protocol.falcon().is_none() {
        return Err(PerfError::NvmeNeedsFalcon { op: config.op.name(), transport: choice.profile.name });
    }
    if mtu_bytes < NVME_UNIT {
        let (what, expected) = ("MTU for NVMe", "at least 4096 bytes, the size of an NVMe unit");
        return Err(PerfError::Plan { what, given: mtu_bytes.into(), expected });
    }
    if config.depth > DEPTH_MAX {
        let what = "depth of a queue pair for NVMe";
        return Err(PerfError::Plan { what, given: config.depth.into(), expected: DEPTH_EXPECTED });
    }
    let (size, most) = (config.size_bytes, NVME_UNIT * NVME_UNITS_MAX);
    if size == 0 || size > most || !size.is_multiple_of(1 << BLOCK_LOG2) {
        let expected = "a multiple of the block size of 512 bytes, at most 1 MiB";
        return Err(PerfError::Plan { what: "size of an NVMe command", given: size.into(), expected });
    }
    Ok(())
}

/// Returns the role of a queue pair at the client.
pub(super) fn initiator(op: Op) -> Option<NvmeRole> {
    let role = NvmeInitiator {
        namespace: NAMESPACE_NUMBER,
        block_log2: BLOCK_LOG2,
        reads: NvmeReads::Push,
        timeout: COMMAND_TIMEOUT,
    };
    op.is_nvme().then_some(NvmeRole::Initiator(role))
}

/// Creates the namespace of a session, backed by `region`.
///
/// # Errors
/// The reason, as text.
pub(super) fn namespace(nic: &mut Nic, pd: PdId, region: &Region) -> Result<NamespaceId, String> {
    let blocks = (region.len() as u64) >> BLOCK_LOG2;
    let (addr, key) = (region.addr(), region.key());
    let config = NamespaceConfig { number: NAMESPACE_NUMBER, blocks, pd, addr, key, device: DEVICE };
    nic.verbs().nvme().create_namespace(&config).map_err(|error| error.to_string())
}
