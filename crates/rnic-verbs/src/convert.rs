//! Conversion from engine completions to the C structures of programs.

use rnic_engine::{Completion, WcFlags, WcOpcode, WcStatus};

use crate::abi::*;

/// Converts a completion of the engine to an `ibv_wc`.
#[inline]
pub(crate) fn work_completion(completion: &Completion) -> ibv_wc {
    let with_imm = completion.flags.contains(WcFlags::WITH_IMM);
    let with_inv = completion.flags.contains(WcFlags::WITH_INV);
    let mut wc_flags = 0;
    if with_imm {
        wc_flags |= IBV_WC_WITH_IMM;
    }
    if with_inv {
        wc_flags |= IBV_WC_WITH_INV;
    }
    if completion.flags.contains(WcFlags::GRH) {
        wc_flags |= IBV_WC_GRH;
    }
    ibv_wc {
        wr_id: completion.wr_id,
        status: status(completion.status),
        opcode: opcode(completion.opcode),
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_data: if with_imm { completion.word.to_be() } else { completion.word },
        qp_num: completion.qpn.get(),
        src_qp: completion.source.get(),
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: header_type(completion.flags),
        dlid_path_bits: 0,
    }
}

/// Returns the service level field of a completion. This library has no service levels; for a received datagram the
/// field instead encodes the type of header that precedes it, in the encoding of mlx5 adapters that UCX reads: 8 for
/// UDP, plus 1 for IPv6 or 2 for IPv4.
#[inline]
fn header_type(flags: WcFlags) -> u8 {
    match (flags.contains(WcFlags::GRH), flags.contains(WcFlags::IPV4)) {
        (false, _) => 0,
        (true, false) => 0b1001,
        (true, true) => 0b1010,
    }
}

#[inline]
fn status(status: WcStatus) -> u32 {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocalQpOperation => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        WcStatus::WrFlushed => IBV_WC_WR_FLUSH_ERR,
        WcStatus::BadResponse => IBV_WC_BAD_RESP_ERR,
        WcStatus::RemoteInvalidRequest => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemoteOperational => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExceeded => IBV_WC_RETRY_EXC_ERR,
        WcStatus::WindowBind => IBV_WC_MW_BIND_ERR,
        WcStatus::RnrRetryExceeded => IBV_WC_RNR_RETRY_EXC_ERR,
    }
}

#[inline]
fn opcode(opcode: WcOpcode) -> u32 {
    match opcode {
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::BindWindow => IBV_WC_BIND_MW,
        WcOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
        WcOpcode::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        WcOpcode::Flush => IBV_WC_FLUSH,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}
