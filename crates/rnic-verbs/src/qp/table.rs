//! Required and optional attributes of each state transition: InfiniBand Architecture volume 1, table 91.

use crate::abi::*;

/// A row of the table: a state transition for one type of queue pair, with its required and optional attributes.
struct Row {
    from: u32,
    to: u32,
    qp_type: u32,
    needs: u32,
    may: u32,
}

const fn row(from: u32, to: u32, qp_type: u32, needs: u32, may: u32) -> Row {
    Row { from, to, qp_type, needs, may }
}

const ACCESS: u32 = IBV_QP_ACCESS_FLAGS;
const KEY: u32 = IBV_QP_PKEY_INDEX;
const QKEY: u32 = IBV_QP_QKEY;
const PORT: u32 = IBV_QP_PORT;
const CURRENT: u32 = IBV_QP_CUR_STATE;
const PATHS: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
const RNR: u32 = IBV_QP_MIN_RNR_TIMER;
const CONNECTION: u32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const TIMING: u32 = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
const NOTIFY: u32 = IBV_QP_EN_SQD_ASYNC_NOTIFY;

use {
    IBV_QPS_INIT as INIT, IBV_QPS_RESET as RESET, IBV_QPS_RTR as RTR, IBV_QPS_RTS as RTS, IBV_QPS_SQD as SQD,
    IBV_QPS_SQE as SQE, IBV_QPT_RC as RC, IBV_QPT_UC as UC, IBV_QPT_UD as UD, IBV_QPT_XRC_RECV as XRC_RECV,
    IBV_QPT_XRC_SEND as XRC_SEND,
};

const ROWS: &[Row] = &[
    row(RESET, INIT, RC, KEY | PORT | ACCESS, 0),
    row(RESET, INIT, UC, KEY | PORT | ACCESS, 0),
    row(RESET, INIT, UD, KEY | PORT | QKEY, 0),
    row(INIT, INIT, RC, 0, KEY | PORT | ACCESS),
    row(INIT, INIT, UC, 0, KEY | PORT | ACCESS),
    row(INIT, INIT, UD, 0, KEY | PORT | QKEY),
    row(INIT, RTR, RC, CONNECTION | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, IBV_QP_ALT_PATH | ACCESS | KEY),
    row(INIT, RTR, UC, CONNECTION, IBV_QP_ALT_PATH | ACCESS | KEY),
    row(INIT, RTR, UD, 0, KEY | QKEY),
    row(RESET, INIT, XRC_SEND, KEY | PORT | ACCESS, 0),
    row(RESET, INIT, XRC_RECV, KEY | PORT | ACCESS, 0),
    row(INIT, INIT, XRC_SEND, 0, KEY | PORT | ACCESS),
    row(INIT, INIT, XRC_RECV, 0, KEY | PORT | ACCESS),
    row(INIT, RTR, XRC_SEND, CONNECTION, IBV_QP_ALT_PATH | ACCESS | KEY),
    row(INIT, RTR, XRC_RECV, CONNECTION | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, IBV_QP_ALT_PATH | ACCESS | KEY),
    row(RTR, RTS, XRC_SEND, TIMING | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CURRENT | ACCESS | PATHS),
    row(RTR, RTS, XRC_RECV, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, CURRENT | ACCESS | RNR | PATHS),
    row(RTS, RTS, XRC_SEND, 0, CURRENT | ACCESS | PATHS),
    row(RTS, RTS, XRC_RECV, 0, CURRENT | ACCESS | RNR | PATHS),
    row(RTS, SQD, XRC_SEND, 0, NOTIFY),
    row(SQD, RTS, XRC_SEND, 0, CURRENT | ACCESS | PATHS),
    row(RTR, RTS, RC, TIMING | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CURRENT | ACCESS | RNR | PATHS),
    row(RTR, RTS, UC, IBV_QP_SQ_PSN, CURRENT | ACCESS | PATHS),
    row(RTR, RTS, UD, IBV_QP_SQ_PSN, CURRENT | QKEY),
    row(RTS, RTS, RC, 0, CURRENT | ACCESS | RNR | PATHS),
    row(RTS, RTS, UC, 0, CURRENT | ACCESS | PATHS),
    row(RTS, RTS, UD, 0, CURRENT | QKEY),
    row(RTS, SQD, RC, 0, NOTIFY),
    row(RTS, SQD, UC, 0, NOTIFY),
    row(RTS, SQD, UD, 0, NOTIFY),
    row(SQD, RTS, RC, 0, CURRENT | ACCESS | RNR | PATHS),
    row(SQD, RTS, UC, 0, CURRENT | ACCESS | PATHS),
    row(SQD, RTS, UD, 0, CURRENT | QKEY),
    row(
        SQD,
        SQD,
        RC,
        0,
        PORT | IBV_QP_AV | TIMING | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | ACCESS | KEY | RNR | PATHS,
    ),
    row(SQE, RTS, UC, 0, CURRENT | ACCESS),
    row(SQE, RTS, UD, 0, CURRENT | QKEY),
    row(SQD, SQD, UC, 0, IBV_QP_AV | ACCESS | KEY | PATHS),
    row(SQD, SQD, UD, 0, KEY | QKEY),
];

/// Returns whether `mask` is valid for the transition `from` one state `to` another.
pub(super) fn is_legal(from: u32, to: u32, qp_type: u32, mask: u32) -> bool {
    let (needs, may) = if to == IBV_QPS_RESET || to == IBV_QPS_ERR {
        (0, 0)
    } else {
        let found = ROWS.iter().find(|row| (row.from, row.to, row.qp_type) == (from, to, qp_type));
        let Some(row) = found else { return false };
        (row.needs, row.may)
    };
    mask & needs == needs && mask & !(needs | may | IBV_QP_STATE) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_made_in_three_steps() {
        let connect = CONNECTION | IBV_QP_MAX_DEST_RD_ATOMIC | RNR | IBV_QP_STATE;
        assert!(is_legal(RESET, INIT, RC, IBV_QP_STATE | KEY | PORT | ACCESS));
        assert!(is_legal(INIT, RTR, RC, connect));
        assert!(is_legal(RTR, RTS, RC, IBV_QP_STATE | TIMING | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
        assert!(!is_legal(INIT, RTR, RC, connect & !IBV_QP_RQ_PSN), "something is missing");
        assert!(!is_legal(INIT, RTR, RC, connect | QKEY), "something is too much");
        assert!(!is_legal(INIT, RTR, UC, connect), "unreliable connections serve no reads");
        assert!(!is_legal(RESET, RTR, RC, connect), "a step is left out");
        assert!(is_legal(INIT, RTR, UD, IBV_QP_STATE));
    }

    #[test]
    fn every_state_leads_to_reset_and_error_with_nothing_else() {
        for from in [RESET, INIT, RTR, RTS, SQD, IBV_QPS_ERR] {
            for to in [RESET, IBV_QPS_ERR] {
                assert!(is_legal(from, to, RC, IBV_QP_STATE));
                assert!(!is_legal(from, to, RC, IBV_QP_STATE | ACCESS));
            }
        }
    }
}
