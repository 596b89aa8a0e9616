//! Constants: enumerations of the header, as plain integers, because a program may pass any value.

/// Declares the numbers of a C enumeration, each under its C name.
macro_rules! numbers {
    ($($(#[$doc:meta])* $kind:ty { $($name:ident = $value:expr),* $(,)? })*) => {
        $($(pub(crate) const $name: $kind = $value;)*)*

        /// All numbers declared here, with their names, for the comparison with the header.
        pub(crate) const NUMBERS: &[(&str, i64)] = &[$($((stringify!($name), $value as i64)),*),*];
    };
}

numbers! {
    /// `enum ibv_node_type`, `enum ibv_transport_type`, `enum ibv_gid_type`, link layers.
    i32 {
        IBV_NODE_UNKNOWN = -1, IBV_NODE_CA = 1, IBV_NODE_SWITCH = 2, IBV_NODE_ROUTER = 3, IBV_NODE_RNIC = 4,
        IBV_NODE_USNIC = 5, IBV_NODE_USNIC_UDP = 6, IBV_NODE_UNSPECIFIED = 7,
        IBV_TRANSPORT_IB = 0,
    }
    u32 {
        IBV_GID_TYPE_IB = 0, IBV_GID_TYPE_ROCE_V1 = 1, IBV_GID_TYPE_ROCE_V2 = 2,
    }
    u8 { IBV_LINK_LAYER_ETHERNET = 2, }
    /// Device and port attributes.
    u32 {
        IBV_DEVICE_MEM_WINDOW = 1 << 17, IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
        IBV_DEVICE_RESIZE_MAX_WR = 1, IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7, IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
        IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12, IBV_DEVICE_XRC = 1 << 20,
        IBV_DEVICE_SRQ_RESIZE = 1 << 13, IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
        IBV_PORT_CM_SUP = 1 << 16, IBV_PORT_IP_BASED_GIDS = 1 << 26,
        IBV_MTU_256 = 1, IBV_MTU_512 = 2, IBV_MTU_1024 = 3, IBV_MTU_2048 = 4, IBV_MTU_4096 = 5,
        IBV_PORT_NOP = 0, IBV_PORT_DOWN = 1, IBV_PORT_INIT = 2, IBV_PORT_ARMED = 3, IBV_PORT_ACTIVE = 4,
        IBV_PORT_ACTIVE_DEFER = 5,
        IBV_ATOMIC_NONE = 0, IBV_ATOMIC_HCA = 1, IBV_ATOMIC_GLOB = 2,
    }
    /// Asynchronous event types.
    u32 {
        IBV_EVENT_CQ_ERR = 0, IBV_EVENT_QP_FATAL = 1, IBV_EVENT_QP_REQ_ERR = 2, IBV_EVENT_QP_ACCESS_ERR = 3,
        IBV_EVENT_COMM_EST = 4, IBV_EVENT_SQ_DRAINED = 5, IBV_EVENT_PATH_MIG = 6, IBV_EVENT_PATH_MIG_ERR = 7,
        IBV_EVENT_DEVICE_FATAL = 8, IBV_EVENT_PORT_ACTIVE = 9, IBV_EVENT_PORT_ERR = 10, IBV_EVENT_LID_CHANGE = 11,
        IBV_EVENT_PKEY_CHANGE = 12, IBV_EVENT_SM_CHANGE = 13, IBV_EVENT_SRQ_ERR = 14,
        IBV_EVENT_SRQ_LIMIT_REACHED = 15, IBV_EVENT_QP_LAST_WQE_REACHED = 16, IBV_EVENT_CLIENT_REREGISTER = 17,
        IBV_EVENT_GID_CHANGE = 18, IBV_EVENT_WQ_FATAL = 19,
    }
    /// Completion statuses, opcodes and flags.
    u32 {
        IBV_WC_SUCCESS = 0, IBV_WC_LOC_LEN_ERR = 1, IBV_WC_LOC_QP_OP_ERR = 2, IBV_WC_LOC_EEC_OP_ERR = 3,
        IBV_WC_LOC_PROT_ERR = 4, IBV_WC_WR_FLUSH_ERR = 5, IBV_WC_MW_BIND_ERR = 6, IBV_WC_BAD_RESP_ERR = 7,
        IBV_WC_LOC_ACCESS_ERR = 8, IBV_WC_REM_INV_REQ_ERR = 9, IBV_WC_REM_ACCESS_ERR = 10, IBV_WC_REM_OP_ERR = 11,
        IBV_WC_RETRY_EXC_ERR = 12, IBV_WC_RNR_RETRY_EXC_ERR = 13, IBV_WC_LOC_RDD_VIOL_ERR = 14,
        IBV_WC_REM_INV_RD_REQ_ERR = 15, IBV_WC_REM_ABORT_ERR = 16, IBV_WC_INV_EECN_ERR = 17,
        IBV_WC_INV_EEC_STATE_ERR = 18, IBV_WC_FATAL_ERR = 19, IBV_WC_RESP_TIMEOUT_ERR = 20, IBV_WC_GENERAL_ERR = 21,
        IBV_WC_TM_ERR = 22, IBV_WC_TM_RNDV_INCOMPLETE = 23,
        IBV_WC_SEND = 0, IBV_WC_RDMA_WRITE = 1, IBV_WC_RDMA_READ = 2, IBV_WC_COMP_SWAP = 3, IBV_WC_FETCH_ADD = 4,
        IBV_WC_BIND_MW = 5, IBV_WC_LOCAL_INV = 6,
        IBV_WC_ATOMIC_WRITE = 9,
        IBV_WC_RECV = 128, IBV_WC_RECV_RDMA_WITH_IMM = 129,
        IBV_WC_GRH = 1, IBV_WC_WITH_IMM = 2, IBV_WC_WITH_INV = 8,
    }
    u64 {
        IBV_WC_EX_WITH_BYTE_LEN = 1, IBV_WC_EX_WITH_IMM = 2, IBV_WC_EX_WITH_QP_NUM = 4, IBV_WC_EX_WITH_SRC_QP = 8,
        IBV_WC_EX_WITH_SLID = 16, IBV_WC_EX_WITH_SL = 32, IBV_WC_EX_WITH_DLID_PATH_BITS = 64,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 128, IBV_WC_EX_WITH_CVLAN = 256, IBV_WC_EX_WITH_FLOW_TAG = 512,
        IBV_WC_EX_WITH_TM_INFO = 1024, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 2048,
    }
    u32 {
        IBV_CQ_INIT_ATTR_MASK_FLAGS = 1, IBV_CQ_INIT_ATTR_MASK_PD = 2,
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 2,
        IBV_CQ_ATTR_MODERATE = 1,
    }
    /// Memory registration and access flags.
    u32 {
        IBV_ACCESS_LOCAL_WRITE = 1, IBV_ACCESS_REMOTE_WRITE = 2, IBV_ACCESS_REMOTE_READ = 4,
        IBV_ACCESS_REMOTE_ATOMIC = 8, IBV_ACCESS_MW_BIND = 16, IBV_ACCESS_ZERO_BASED = 32,
        IBV_ACCESS_ON_DEMAND = 64, IBV_ACCESS_HUGETLB = 128, IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
        IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000,
        IBV_REREG_MR_CHANGE_TRANSLATION = 1, IBV_REREG_MR_CHANGE_PD = 2, IBV_REREG_MR_CHANGE_ACCESS = 4,
    }
    u32 {
        IBV_MW_TYPE_1 = 1, IBV_MW_TYPE_2 = 2,
        IBV_ADVISE_MR_ADVICE_PREFETCH = 0, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2, IBV_ADVISE_MR_FLAG_FLUSH = 1,
        IBV_ODP_SUPPORT = 1, IBV_ODP_SUPPORT_IMPLICIT = 2,
        IBV_ODP_SUPPORT_SEND = 1, IBV_ODP_SUPPORT_RECV = 2, IBV_ODP_SUPPORT_WRITE = 4, IBV_ODP_SUPPORT_READ = 8,
        IBV_ODP_SUPPORT_ATOMIC = 16, IBV_ODP_SUPPORT_SRQ_RECV = 32,
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 2,
    }
    i32 {
        IBV_REREG_MR_ERR_INPUT = -1, IBV_REREG_MR_ERR_CMD = -4,
    }
    u32 {
        IBV_XRCD_INIT_ATTR_FD = 1, IBV_XRCD_INIT_ATTR_OFLAGS = 2,
    }
    /// Shared receive queue types and attributes.
    u32 {
        IBV_SRQ_MAX_WR = 1, IBV_SRQ_LIMIT = 2,
        IBV_SRQT_BASIC = 0, IBV_SRQT_XRC = 1, IBV_SRQT_TM = 2,
        IBV_SRQ_INIT_ATTR_TYPE = 1, IBV_SRQ_INIT_ATTR_PD = 2, IBV_SRQ_INIT_ATTR_XRCD = 4, IBV_SRQ_INIT_ATTR_CQ = 8,
        IBV_SRQ_INIT_ATTR_TM = 16,
    }
    /// Queue pair types, states and attributes.
    u32 {
        IBV_QPT_RC = 2, IBV_QPT_UC = 3, IBV_QPT_UD = 4, IBV_QPT_RAW_PACKET = 8, IBV_QPT_XRC_SEND = 9,
        IBV_QPT_XRC_RECV = 10, IBV_QPT_DRIVER = 255,
        IBV_QP_INIT_ATTR_PD = 1, IBV_QP_INIT_ATTR_XRCD = 2, IBV_QP_INIT_ATTR_CREATE_FLAGS = 4,
        IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 8, IBV_QP_INIT_ATTR_IND_TABLE = 16, IBV_QP_INIT_ATTR_RX_HASH = 32,
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 64,
        IBV_QP_STATE = 1, IBV_QP_CUR_STATE = 1 << 1, IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
        IBV_QP_ACCESS_FLAGS = 1 << 3, IBV_QP_PKEY_INDEX = 1 << 4, IBV_QP_PORT = 1 << 5, IBV_QP_QKEY = 1 << 6,
        IBV_QP_AV = 1 << 7, IBV_QP_PATH_MTU = 1 << 8, IBV_QP_TIMEOUT = 1 << 9, IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_RNR_RETRY = 1 << 11, IBV_QP_RQ_PSN = 1 << 12, IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        IBV_QP_ALT_PATH = 1 << 14, IBV_QP_MIN_RNR_TIMER = 1 << 15, IBV_QP_SQ_PSN = 1 << 16,
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17, IBV_QP_PATH_MIG_STATE = 1 << 18, IBV_QP_CAP = 1 << 19,
        IBV_QP_DEST_QPN = 1 << 20, IBV_QP_RATE_LIMIT = 1 << 25,
        IBV_QPS_RESET = 0, IBV_QPS_INIT = 1, IBV_QPS_RTR = 2, IBV_QPS_RTS = 3, IBV_QPS_SQD = 4, IBV_QPS_SQE = 5,
        IBV_QPS_ERR = 6, IBV_QPS_UNKNOWN = 7,
        IBV_MIG_MIGRATED = 0, IBV_MIG_REARM = 1, IBV_MIG_ARMED = 2,
    }
    u64 {
        IBV_QP_EX_WITH_RDMA_WRITE = 1, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 2, IBV_QP_EX_WITH_SEND = 4,
        IBV_QP_EX_WITH_SEND_WITH_IMM = 8, IBV_QP_EX_WITH_RDMA_READ = 16, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 32,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 64, IBV_QP_EX_WITH_LOCAL_INV = 128, IBV_QP_EX_WITH_BIND_MW = 256,
        IBV_QP_EX_WITH_SEND_WITH_INV = 512, IBV_QP_EX_WITH_TSO = 1024, IBV_QP_EX_WITH_ATOMIC_WRITE = 4096,
    }
    /// Work request opcodes and send flags.
    u32 {
        IBV_WR_RDMA_WRITE = 0, IBV_WR_RDMA_WRITE_WITH_IMM = 1, IBV_WR_SEND = 2, IBV_WR_SEND_WITH_IMM = 3,
        IBV_WR_RDMA_READ = 4, IBV_WR_ATOMIC_CMP_AND_SWP = 5, IBV_WR_ATOMIC_FETCH_AND_ADD = 6, IBV_WR_LOCAL_INV = 7,
        IBV_WR_BIND_MW = 8, IBV_WR_SEND_WITH_INV = 9, IBV_WR_TSO = 10, IBV_WR_DRIVER1 = 11,
        IBV_WR_ATOMIC_WRITE = 15,
        IBV_SEND_FENCE = 1, IBV_SEND_SIGNALED = 2, IBV_SEND_SOLICITED = 4, IBV_SEND_INLINE = 8,
        IBV_SEND_IP_CSUM = 16,
    }
    i32 {
        IBV_FORK_DISABLED = 0, IBV_FORK_ENABLED = 1, IBV_FORK_UNNEEDED = 2,
    }
    u32 {
        IBV_VALUES_MASK_RAW_CLOCK = 1,
    }
}

/// Numbers that are missing in the headers of rdma-core release 44: the FLUSH operation was added in release 46.
pub(crate) const IBV_WC_FLUSH: u32 = 8;
pub(crate) const IBV_QP_EX_WITH_FLUSH: u64 = 1 << 11;
pub(crate) const IBV_ACCESS_FLUSH_GLOBAL: u32 = 1 << 8;
pub(crate) const IBV_ACCESS_FLUSH_PERSISTENT: u32 = 1 << 9;
/// Bits of `device_cap_flags_ex`: the kernel's capability bits for the memory placement extensions.
pub(crate) const DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
pub(crate) const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;
/// On-demand paging capability bits that were added after release 44.
pub(crate) const IBV_ODP_SUPPORT_FLUSH: u32 = 1 << 6;
pub(crate) const IBV_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;
/// Bits of `comp_mask` that name the fields present in `ibv_mr_init_attr`; added in releases 59 and 64.
pub(crate) const IBV_REG_MR_MASK_IOVA: u64 = 1;
pub(crate) const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
pub(crate) const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
pub(crate) const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
pub(crate) const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
pub(crate) const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;
