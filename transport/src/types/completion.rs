//! Work completions.

use super::WcOpcode;

/// Outcome of a work request (`IBV_WC_*` status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    #[default]
    Success = 0,
    /// A message did not fit its buffer or the port.
    LocLenErr = 1,
    /// The queue pair could not execute the request.
    LocQpOpErr = 2,
    /// Of reliable datagrams, which RoCE adapters do not have: the EE context could not execute the request.
    LocEecOpErr = 3,
    /// A local buffer's key, range, right or PD is wrong.
    LocProtErr = 4,
    /// Not executed: the queue pair went to ERR before.
    WrFlushErr = 5,
    /// A memory window could not be bound.
    MwBindErr = 6,
    /// The peer's response was malformed.
    BadRespErr = 7,
    /// A local buffer could not be accessed while storing a response.
    LocAccessErr = 8,
    /// The peer found the request invalid (NAK 0x61).
    RemInvReqErr = 9,
    /// The peer refused access to its memory (NAK 0x62).
    RemAccessErr = 10,
    /// The peer failed to execute the request (NAK 0x63).
    RemOpErr = 11,
    /// No answer after all retries.
    RetryExcErr = 12,
    /// The peer had no receive posted after all RNR retries.
    RnrRetryExcErr = 13,
    /// Of reliable datagrams: the domain of a request or of its buffer is wrong.
    LocRddViolErr = 14,
    /// NAK 0x64; XRC: no such SRQ at the peer.
    RemInvRdReqErr = 15,
    /// Of reliable datagrams: the peer aborted the request.
    RemAbortErr = 16,
    /// Of reliable datagrams: the number of an EE context is wrong.
    InvEecnErr = 17,
    /// Of reliable datagrams: the state of an EE context is wrong.
    InvEecStateErr = 18,
    /// The device failed.
    FatalErr = 19,
    /// The peer did not answer in time.
    RespTimeoutErr = 20,
    /// Anything else.
    GeneralErr = 21,
    /// Tags could not be matched.
    TmErr = 22,
    /// A tagged message has a rendezvous that software has to finish.
    TmRndvIncomplete = 23,
}

impl WcStatus {
    /// All of them.
    pub const ALL: [WcStatus; 24] = [
        WcStatus::Success,
        WcStatus::LocLenErr,
        WcStatus::LocQpOpErr,
        WcStatus::LocEecOpErr,
        WcStatus::LocProtErr,
        WcStatus::WrFlushErr,
        WcStatus::MwBindErr,
        WcStatus::BadRespErr,
        WcStatus::LocAccessErr,
        WcStatus::RemInvReqErr,
        WcStatus::RemAccessErr,
        WcStatus::RemOpErr,
        WcStatus::RetryExcErr,
        WcStatus::RnrRetryExcErr,
        WcStatus::LocRddViolErr,
        WcStatus::RemInvRdReqErr,
        WcStatus::RemAbortErr,
        WcStatus::InvEecnErr,
        WcStatus::InvEecStateErr,
        WcStatus::FatalErr,
        WcStatus::RespTimeoutErr,
        WcStatus::GeneralErr,
        WcStatus::TmErr,
        WcStatus::TmRndvIncomplete,
    ];

    /// Name as in verbs, without the prefix.
    pub const fn name(self) -> &'static str {
        match self {
            WcStatus::Success => "SUCCESS",
            WcStatus::LocLenErr => "LOC_LEN_ERR",
            WcStatus::LocQpOpErr => "LOC_QP_OP_ERR",
            WcStatus::LocEecOpErr => "LOC_EEC_OP_ERR",
            WcStatus::LocProtErr => "LOC_PROT_ERR",
            WcStatus::WrFlushErr => "WR_FLUSH_ERR",
            WcStatus::MwBindErr => "MW_BIND_ERR",
            WcStatus::BadRespErr => "BAD_RESP_ERR",
            WcStatus::LocAccessErr => "LOC_ACCESS_ERR",
            WcStatus::RemInvReqErr => "REM_INV_REQ_ERR",
            WcStatus::RemAccessErr => "REM_ACCESS_ERR",
            WcStatus::RemOpErr => "REM_OP_ERR",
            WcStatus::RetryExcErr => "RETRY_EXC_ERR",
            WcStatus::RnrRetryExcErr => "RNR_RETRY_EXC_ERR",
            WcStatus::LocRddViolErr => "LOC_RDD_VIOL_ERR",
            WcStatus::RemInvRdReqErr => "REM_INV_RD_REQ_ERR",
            WcStatus::RemAbortErr => "REM_ABORT_ERR",
            WcStatus::InvEecnErr => "INV_EECN_ERR",
            WcStatus::InvEecStateErr => "INV_EEC_STATE_ERR",
            WcStatus::FatalErr => "FATAL_ERR",
            WcStatus::RespTimeoutErr => "RESP_TIMEOUT_ERR",
            WcStatus::GeneralErr => "GENERAL_ERR",
            WcStatus::TmErr => "TM_ERR",
            WcStatus::TmRndvIncomplete => "TM_RNDV_INCOMPLETE",
        }
    }
}

bitflags::bitflags! {
    /// Flags of a work completion (`IBV_WC_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct WcFlags: u32 {
        /// The buffer starts with the 40-byte GRH area.
        const GRH = 1;
        /// `imm_data` is valid.
        const WITH_IMM = 2;
        /// `invalidated_rkey` is valid.
        const WITH_INV = 8;
    }
}

/// A work completion (`struct ibv_wc`). On an unsuccessful status only `wr_id`, `status`, `qp_num`
/// and `vendor_err` carry meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkCompletion {
    /// Of the request.
    pub wr_id: u64,
    /// Outcome.
    pub status: WcStatus,
    /// What completed.
    pub opcode: WcOpcode,
    /// Always 0.
    pub vendor_err: u32,
    /// Bytes of the message; UD receives count the 40-byte GRH area.
    pub byte_len: u32,
    /// Immediate data, as it travelled.
    pub imm_data: [u8; 4],
    /// Key that a SEND with invalidate killed here.
    pub invalidated_rkey: u32,
    /// Local queue pair (for an XRC SRQ: the target's number).
    pub qp_num: u32,
    /// Remote queue pair.
    pub src_qp: u32,
    /// Which fields are valid.
    pub flags: WcFlags,
    /// P_Key index of a datagram.
    pub pkey_index: u16,
    /// Source LID: 0 on RoCE.
    pub slid: u16,
    /// Of a datagram received: 10 if it came over IPv4, 9 if over IPv6, as adapters say it. Else 0.
    pub sl: u8,
    /// 0 on RoCE.
    pub dlid_path_bits: u8,
}
