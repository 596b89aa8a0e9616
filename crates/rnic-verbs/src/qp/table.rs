//! Required and optional attributes of each state transition: InfiniBand Architecture volume 1, table 91.

use crate::abi::*;

/// A row of the table: a state transition for one type of queue pair, with its required and optional attributes.
struct Row {
    from: u32,
    to: u32,
    qp_type: u32,
    required: u32,
    optional: u32,
}

const fn row(from: u32, to: u32, qp_type: u32, required: u32, optional: u32) -> Row {
    Row { from, to, qp_type, required, optional }
}

const ACCESS: u32 = IBV_QP_ACCESS_FLAGS;
const PKEY: u32 = IBV_QP_PKEY_INDEX;
const QKEY: u32 = IBV_QP_QKEY;
const PORT: u32 = IBV_QP_PORT;
const CURRENT: u32 = IBV_QP_CUR_STATE;
const PATHS: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
const RNR: u32 = IBV_QP_MIN_RNR_TIMER;
const CONNECTION: u32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const TIMING: u32 = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
const NOTIFY: u32 = IBV_QP_EN_SQD_ASYNC_NOTIFY;
const RATE: u32 = IBV_QP_RATE_LIMIT;

use {
    IBV_QPS_INIT as INIT, IBV_QPS_RESET as RESET, IBV_QPS_RTR as RTR, IBV_QPS_RTS as RTS, IBV_QPS_SQD as SQD,
    IBV_QPS_SQE as SQE, IBV_QPT_RC as RC, IBV_QPT_UC as UC, IBV_QPT_UD as UD, IBV_QPT_XRC_RECV as XRC_RECV,
    IBV_QPT_XRC_SEND as XRC_SEND,
};

const ROWS: &[Row] = &[
    row(RESET, INIT, RC, PKEY | PORT | ACCESS, 0),
    row(RESET, INIT, UC, PKEY | PORT | ACCESS, 0),
    row(RESET, INIT, UD, PKEY | PORT | QKEY, 0),
    row(INIT, INIT, RC, 0, PKEY | PORT | ACCESS),
    row(INIT, INIT, UC, 0, PKEY | PORT | ACCESS),
    row(INIT, INIT, UD, 0, PKEY | PORT | QKEY),
    row(INIT, RTR, RC, CONNECTION | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, IBV_QP_ALT_PATH | ACCESS | PKEY | RATE),
    row(INIT, RTR, UC, CONNECTION, IBV_QP_ALT_PATH | ACCESS | PKEY | RATE),
    row(INIT, RTR, UD, 0, PKEY | QKEY | RATE),
    row(RESET, INIT, XRC_SEND, PKEY | PORT | ACCESS, 0),
    row(RESET, INIT, XRC_RECV, PKEY | PORT | ACCESS, 0),
    row(INIT, INIT, XRC_SEND, 0, PKEY | PORT | ACCESS),
    row(INIT, INIT, XRC_RECV, 0, PKEY | PORT | ACCESS),
    row(INIT, RTR, XRC_SEND, CONNECTION, IBV_QP_ALT_PATH | ACCESS | PKEY | RATE),
    row(INIT, RTR, XRC_RECV, CONNECTION | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, IBV_QP_ALT_PATH | ACCESS | PKEY),
    row(RTR, RTS, XRC_SEND, TIMING | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CURRENT | ACCESS | PATHS | RATE),
    row(RTR, RTS, XRC_RECV, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, CURRENT | ACCESS | RNR | PATHS),
    row(RTS, RTS, XRC_SEND, 0, CURRENT | ACCESS | PATHS | RATE),
    row(RTS, RTS, XRC_RECV, 0, CURRENT | ACCESS | RNR | PATHS),
    row(RTS, SQD, XRC_SEND, 0, NOTIFY),
    row(SQD, RTS, XRC_SEND, 0, CURRENT | ACCESS | PATHS | RATE),
    row(RTR, RTS, RC, TIMING | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CURRENT | ACCESS | RNR | PATHS | RATE),
    row(RTR, RTS, UC, IBV_QP_SQ_PSN, CURRENT | ACCESS | PATHS | RATE),
    row(RTR, RTS, UD, IBV_QP_SQ_PSN, CURRENT | QKEY | RATE),
    row(RTS, RTS, RC, 0, CURRENT | ACCESS | RNR | PATHS | RATE),
    row(RTS, RTS, UC, 0, CURRENT | ACCESS | PATHS | RATE),
    row(RTS, RTS, UD, 0, CURRENT | QKEY | RATE),
    row(RTS, SQD, RC, 0, NOTIFY),
    row(RTS, SQD, UC, 0, NOTIFY),
    row(RTS, SQD, UD, 0, NOTIFY),
    row(SQD, RTS, RC, 0, CURRENT | ACCESS | RNR | PATHS | RATE),
    row(SQD, RTS, UC, 0, CURRENT | ACCESS | PATHS | RATE),
    row(SQD, RTS, UD, 0, CURRENT | QKEY | RATE),
    row(
        SQD,
        SQD,
        RC,
        0,
        PORT | IBV_QP_AV | TIMING | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | ACCESS | PKEY | RNR | PATHS,
    ),
    row(SQE, RTS, UC, 0, CURRENT | ACCESS),
    row(SQE, RTS, UD, 0, CURRENT | QKEY),
    row(SQD, SQD, UC, 0, IBV_QP_AV | ACCESS | PKEY | PATHS),
    row(SQD, SQD, UD, 0, PKEY | QKEY),
];

/// Returns whether `mask` is valid for the transition from state `from` to state `to`.
pub(super) fn is_legal(from: u32, to: u32, qp_type: u32, mask: u32) -> bool {
    let (required, optional) = if to == IBV_QPS_RESET || to == IBV_QPS_ERR {
        (0, 0)
    } else {
        let found = ROWS.iter().find(|row| (row.from, row.to, row.qp_type) == (from, to, qp_type));
        let Some(row) = found else { return false };
        (row.required, row.optional)
    };
    mask & required == required && mask & !(required | optional | IBV_QP_STATE) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_needs_three_transitions() {
        let connect = CONNECTION | IBV_QP_MAX_DEST_RD_ATOMIC | RNR | IBV_QP_STATE;
        assert!(is_legal(RESET, INIT, RC, IBV_QP_STATE | PKEY | PORT | ACCESS));
        assert!(is_legal(INIT, RTR, RC, connect));
        assert!(is_legal(RTR, RTS, RC, IBV_QP_STATE | TIMING | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
        assert!(!is_legal(INIT, RTR, RC, connect & !IBV_QP_RQ_PSN), "a required attribute is missing");
        assert!(!is_legal(INIT, RTR, RC, connect | QKEY), "an attribute that is not permitted was accepted");
        assert!(!is_legal(INIT, RTR, UC, connect), "unreliable connections serve no reads");
        assert!(!is_legal(RESET, RTR, RC, connect), "the INIT state was skipped");
        assert!(is_legal(INIT, RTR, UD, IBV_QP_STATE));
    }

    #[test]
    fn every_state_allows_reset_and_error_without_further_attributes() {
        for from in [RESET, INIT, RTR, RTS, SQD, IBV_QPS_ERR] {
            for to in [RESET, IBV_QPS_ERR] {
                assert!(is_legal(from, to, RC, IBV_QP_STATE));
                assert!(!is_legal(from, to, RC, IBV_QP_STATE | ACCESS));
            }
        }
    }
}
