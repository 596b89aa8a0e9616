//! Modification of queue pairs: checks the attributes of the program, then applies them to the engine.

use rnic_base::{Duration, Psn};
use rnic_engine::{Access, QpConnection, QpTiming, RnrTimer};
use rnic_wire::Qpn;

use super::{rate, state_of, table};
use crate::abi::*;
use crate::core::{Core, Qp};
use crate::device::{PORT, READS_OFFERED};
use crate::errno::{Errno, Result};
use crate::strings::mtu_bytes;
use crate::{ah, mr, wire};

/// Returns whether every attribute in `mask` has a valid value.
fn is_in_range(attr: &ibv_qp_attr, mask: u32) -> bool {
    let has = |flag: u32| mask & flag != 0;
    let psn_max = 0xff_ffff;
    let checks = [
        (IBV_QP_PKEY_INDEX, attr.pkey_index == 0),
        (IBV_QP_PORT, attr.port_num == PORT),
        (IBV_QP_ACCESS_FLAGS, attr.qp_access_flags & !mr::QP_ACCESS_FLAGS == 0),
        (IBV_QP_PATH_MTU, mtu_bytes(attr.path_mtu).is_some()),
        (IBV_QP_TIMEOUT, attr.timeout < 32),
        (IBV_QP_RETRY_CNT, attr.retry_cnt < 8),
        (IBV_QP_RNR_RETRY, attr.rnr_retry < 8),
        (IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer < 32),
        (IBV_QP_RQ_PSN, attr.rq_psn <= psn_max),
        (IBV_QP_SQ_PSN, attr.sq_psn <= psn_max),
        (IBV_QP_DEST_QPN, attr.dest_qp_num <= psn_max),
        (IBV_QP_MAX_DEST_RD_ATOMIC, u32::from(attr.max_dest_rd_atomic) <= READS_OFFERED),
        // Alternate paths are not supported.
        (IBV_QP_ALT_PATH, false),
        (IBV_QP_PATH_MIG_STATE, attr.path_mig_state == IBV_MIG_MIGRATED),
    ];
    checks.iter().all(|(flag, is_valid)| !has(*flag) || *is_valid)
}

/// Returns `attr` with values that a peer may have announced limited to what the device supports: `max_rd_atomic`, for
/// which a peer with another implementation may offer more Reads and atomics in flight than the device has slots for.
fn within_limits(attr: &ibv_qp_attr, mask: u32) -> ibv_qp_attr {
    let mut attr = *attr;
    if mask & IBV_QP_MAX_QP_RD_ATOMIC != 0 {
        let reads_max = u8::try_from(READS_OFFERED).unwrap_or(u8::MAX);
        attr.max_rd_atomic = attr.max_rd_atomic.min(reads_max);
    }
    attr
}

/// Returns whether the address vector and the number of served Reads are unchanged; after a queue pair is connected,
/// they may only be set to the same values again.
fn is_connection_unchanged(core: &Core, known: &ibv_qp_attr, attr: &ibv_qp_attr, mask: u32) -> bool {
    let same_addresses = || ah::ip_addresses(core, &attr.ah_attr).ok() == ah::ip_addresses(core, &known.ah_attr).ok();
    (mask & IBV_QP_AV == 0 || same_addresses())
        && (mask & IBV_QP_MAX_DEST_RD_ATOMIC == 0 || attr.max_dest_rd_atomic == known.max_dest_rd_atomic)
}

/// Changes those attributes of queue pair `handle` that are in `mask` to the values in `attr`. After an error no
/// attribute has changed.
pub(super) fn modify(core: &mut Core, handle: u32, attr: &ibv_qp_attr, mask: u32) -> Result<()> {
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let has = |flag: u32| mask & flag != 0;
    let from = state_of(core, qp);
    if has(IBV_QP_CUR_STATE) && attr.cur_qp_state != from {
        return Err(Errno::INVALID);
    }
    let to = if has(IBV_QP_STATE) { attr.qp_state } else { from };
    if !table::is_legal(from, to, qp.qp_type, mask) || !is_in_range(attr, mask) {
        return Err(Errno::INVALID);
    }
    if has(IBV_QP_RATE_LIMIT) && !rate::is_valid(core, attr.rate_limit) {
        return Err(Errno::INVALID);
    }
    let qp = core.qps.get(handle as usize).ok_or(Errno::INVALID)?;
    let attr = &within_limits(attr, mask);
    if from == IBV_QPS_SQD && !is_connection_unchanged(core, &qp.attr, attr, mask) {
        return Err(Errno::INVALID);
    }
    let mut merged = qp.attr;
    merge(&mut merged, attr, mask);
    let (qpn, qp_type) = (qp.qpn, qp.qp_type);
    match to {
        IBV_QPS_RESET => {
            core.nic.verbs().modify_to_reset(qpn)?;
            core.nic.verbs().forget_completions(qpn);
            release_connection_peer(core, handle);
            merged = ibv_qp_attr::default();
        }
        IBV_QPS_ERR => core.nic.verbs().modify_to_error(qpn)?,
        IBV_QPS_INIT => core.nic.verbs().modify_to_init(qpn)?,
        IBV_QPS_RTR if qp_type == IBV_QPT_UD => {
            core.nic.verbs().modify_to_rtr_unconnected(qpn, DATAGRAM_BYTES_MAX)?;
        }
        IBV_QPS_RTR => move_to_rtr(core, handle, &merged)?,
        IBV_QPS_RTS => {
            let timing = timing(core, qp_type, &merged);
            core.nic.verbs().modify_to_rts(qpn, &timing)?;
        }
        IBV_QPS_SQD => core.nic.verbs().modify_to_sqd(qpn)?,
        _ => return Err(Errno::INVALID),
    }
    if has(IBV_QP_ACCESS_FLAGS) {
        // Queue pairs have no access rights of their own for FLUSH: these rights belong to keys.
        let flushes = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        core.nic.verbs().set_access(qpn, mr::remote_rights(merged.qp_access_flags) | flushes)?;
    }
    if has(IBV_QP_QKEY) {
        core.nic.verbs().set_qkey(qpn, merged.qkey)?;
    }
    if has(IBV_QP_MIN_RNR_TIMER) {
        core.nic.verbs().set_min_rnr_timer(qpn, RnrTimer::from_code(merged.min_rnr_timer))?;
    }
    let qp = core.qps.get_mut(handle as usize).ok_or(Errno::INVALID)?;
    qp.attr = merged;
    if to == IBV_QPS_RESET {
        qp.burst_bytes = 0;
    }
    if has(IBV_QP_RATE_LIMIT) || has(IBV_QP_AV) {
        rate::apply(core, handle)?;
    }
    if has(IBV_QP_AV) {
        apply_traffic_class(core, handle);
    }
    Ok(())
}

/// Copies the attributes in `mask`.
fn merge(into: &mut ibv_qp_attr, from: &ibv_qp_attr, mask: u32) {
    macro_rules! take {
        ($($flag:ident: $($field:ident),*;)*) => {
            $(if mask & $flag != 0 { $(into.$field = from.$field;)* })*
        };
    }
    take! {
        IBV_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
        IBV_QP_DEST_QPN: dest_qp_num;
        IBV_QP_RATE_LIMIT: rate_limit;
    }
}

/// Releases the peer of a connection.
fn release_connection_peer(core: &mut Core, handle: u32) {
    if let Some(peer) = core.qps.get_mut(handle as usize).and_then(|qp| qp.peer.take()) {
        core.nic.release_peer(peer);
    }
}

/// Puts the traffic class in the address vector of queue pair `handle` into force, if it is connected.
fn apply_traffic_class(core: &mut Core, handle: u32) {
    let Some(Qp { qpn, peer: Some(peer), attr, .. }) = core.qps.get(handle as usize) else { return };
    let class = if attr.ah_attr.is_global == 0 { 0 } else { attr.ah_attr.grh.traffic_class };
    core.nic.verbs().set_traffic_class(*qpn, *peer, class);
}

fn move_to_rtr(core: &mut Core, handle: u32, attr: &ibv_qp_attr) -> Result<()> {
    let Some(&Qp { qpn, .. }) = core.qps.get(handle as usize) else { return Err(Errno::INVALID) };
    let (remote, local) = ah::used_ip_addresses(core, &attr.ah_attr)?;
    let peer = wire::acquire(&mut core.nic, remote, local)?;
    let connection = QpConnection {
        peer,
        dest_qpn: Qpn::new(attr.dest_qp_num),
        rq_psn: Psn::new(attr.rq_psn),
        mtu: packet_bytes(attr.path_mtu, core.nic.wire_mtu_to(peer)),
        min_rnr_timer: RnrTimer::from_code(attr.min_rnr_timer),
        max_dest_rd_atomic: u32::from(attr.max_dest_rd_atomic),
    };
    if let Err(error) = core.nic.verbs().modify_to_rtr(qpn, &connection) {
        core.nic.release_peer(peer);
        return Err(error.into());
    }
    if let Some(qp) = core.qps.get_mut(handle as usize) {
        qp.peer = Some(peer);
    }
    Ok(())
}

/// Returns the payload bytes of a full packet with path MTU `path_mtu` on a path that allows `path_bytes` bytes: the
/// smaller of both.
///
/// The largest path MTU of verbs, 4096, means "as much as the path allows": between two OpenRNIC endpoints that may
/// be more ([`rnic_host`] explains why). With real RoCEv2 peers it never is, because `path_bytes` is no more than 4096
/// for them.
fn packet_bytes(path_mtu: u32, path_bytes: u32) -> u32 {
    match mtu_bytes(path_mtu) {
        Some(bytes) if path_mtu < IBV_MTU_4096 => bytes.min(path_bytes),
        _ => path_bytes,
    }
}

fn timing(core: &Core, qp_type: u32, attr: &ibv_qp_attr) -> QpTiming {
    if qp_type == IBV_QPT_XRC_RECV {
        // An XRC target sends only responses, and programs do not set how often those are retransmitted.
        let retry_count = retries(attr.timeout, 7, core.timeout());
        return QpTiming { sq_psn: Psn::new(attr.sq_psn), retry_count, rnr_retry: None, max_rd_atomic: 0 };
    }
    if qp_type != IBV_QPT_RC && qp_type != IBV_QPT_XRC_SEND {
        // The other services do not retransmit.
        return QpTiming { sq_psn: Psn::new(attr.sq_psn), retry_count: 0, rnr_retry: None, max_rd_atomic: 0 };
    }
    QpTiming {
        sq_psn: Psn::new(attr.sq_psn),
        retry_count: retries(attr.timeout, attr.retry_cnt, core.timeout()),
        // Seven means unlimited.
        rnr_retry: (attr.rnr_retry < 7).then_some(u32::from(attr.rnr_retry)),
        max_rd_atomic: u32::from(attr.max_rd_atomic),
    }
}

/// Returns the number of consecutive timeouts of the transport (`transport_timeout`) after which a connection fails, so
/// that the total time is as verbs specifies: `4.096 us * 2^timeout` for the first try and for each of `retry_cnt`
/// retries. A `timeout` of zero means that it never fails because of timeouts.
fn retries(timeout: u8, retry_cnt: u8, transport_timeout: Duration) -> u32 {
    if timeout == 0 {
        return u32::MAX;
    }
    let try_time = Duration::from_ns(4_096).saturating_mul(1 << timeout);
    let total_time = try_time.saturating_mul(u64::from(retry_cnt) + 1).max(PEER_TIMEOUT_MIN);
    u32::try_from(total_time.as_ps().div_ceil(transport_timeout.as_ps().max(1))).unwrap_or(u32::MAX)
}

/// Minimum time without a response after which a connection fails, because a process may be descheduled for longer
/// than a hardware NIC would be silent.
const PEER_TIMEOUT_MIN: Duration = Duration::from_ms(100);

/// Maximum payload of a datagram in bytes: the MTU that the port reports.
const DATAGRAM_BYTES_MAX: u32 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_converted_to_retries_of_the_transport() {
        let ms = Duration::from_ms;
        assert_eq!(retries(0, 7, ms(1)), u32::MAX);
        // 4.096 us * 2^14 = 67.1 ms, for the first try and seven retries.
        assert_eq!(retries(14, 7, ms(1)), 537);
        assert_eq!(retries(14, 7, ms(8)), 68);
        assert_eq!(retries(1, 0, ms(1)), 100, "not the minimum time without a response");
        assert_eq!(retries(31, 7, ms(1)), 70_368_745);
    }

    #[test]
    fn packets_do_not_exceed_the_path_mtu() {
        for (path_mtu, path_bytes, packet) in
            [(IBV_MTU_256, 8_192, 256), (IBV_MTU_1024, 1_424, 1_024), (IBV_MTU_2048, 1_424, 1_424)]
        {
            assert_eq!(packet_bytes(path_mtu, path_bytes), packet);
        }
        assert_eq!(packet_bytes(IBV_MTU_4096, 8_192), 8_192, "the largest MTU limits packets between OpenRNIC ends");
        assert_eq!(packet_bytes(IBV_MTU_4096, 1_024), 1_024);
    }

    #[test]
    fn only_attributes_in_the_mask_are_checked() {
        let attr = ibv_qp_attr { timeout: 32, ..ibv_qp_attr::default() };
        assert!(is_in_range(&attr, IBV_QP_STATE));
        assert!(!is_in_range(&attr, IBV_QP_TIMEOUT));
        assert!(!is_in_range(&attr, IBV_QP_PORT), "port 0 is valid");
        assert!(!is_in_range(&attr, IBV_QP_PATH_MTU), "an MTU of 0 is valid");
        assert!(!is_in_range(&attr, IBV_QP_ALT_PATH));
    }
}
