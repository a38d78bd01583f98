//! Statuses of work completions.

use super::entry::ExplainEntry;

const LOG: &str =
    "Run both programs with `pumice run --log warn`: the queue pair that failed says why, with its numbers.";
const OLD_TRANSPORT: &str =
    "It belongs to a transport (RD) or a feature that neither RoCE adapters nor pumice have.";

const BY_PLAN: &str = "pumice gives this status only by a rule \"complete\" of a fault plan. Without a plan, \
                       see what else the completion was read from.";

const fn unused(name: &'static str, number: i32, meaning: &'static str) -> ExplainEntry {
    ExplainEntry { name, number: Some(number), meaning, causes: &[OLD_TRANSPORT], look_at: &[BY_PLAN] }
}

/// All statuses of work completions, by number.
pub(super) const STATUSES: &[ExplainEntry] = &[
    ExplainEntry {
        name: "SUCCESS",
        number: Some(0),
        meaning: "The work request was carried out. For RC it means that the peer's adapter has \
                  acknowledged it, not that the peer's program has seen it.",
        causes: &[],
        look_at: &["Only with this status the other fields of the completion are valid."],
    },
    ExplainEntry {
        name: "LOC_LEN_ERR",
        number: Some(1),
        meaning: "A message did not fit: a send request is longer than the port or the path MTU allows, \
                  or an arriving message is longer than the receive request.",
        causes: &[
            "The receive buffer is smaller than the message that the peer sends.",
            "A datagram (UD) is longer than the path MTU.",
            "A receive of a shared queue has no room for the 40 bytes in front of a datagram (GRH).",
            "The two ends of a connection were given different path MTUs.",
        ],
        look_at: &[
            "Compare the length of the send request with the length of the receive request's elements.",
            "Compare path_mtu of both queue pairs (ibv_query_qp).",
            LOG,
        ],
    },
    ExplainEntry {
        name: "LOC_QP_OP_ERR",
        number: Some(2),
        meaning: "The queue pair could not carry out the request although the request itself was accepted.",
        causes: &[
            "The operation does not fit the queue pair: an atomic or a READ on UC, a bind on UD.",
            "A key was to be invalidated that cannot be invalidated by a queue pair.",
            "A receive request names more elements or other memory than the message can use.",
        ],
        look_at: &["Which operations its transport has: RC has all of them.", LOG],
    },
    unused("LOC_EEC_OP_ERR", 3, "An end-to-end context could not carry out the request."),
    ExplainEntry {
        name: "LOC_PROT_ERR",
        number: Some(4),
        meaning: "An element of a work request names memory that the queue pair may not use.",
        causes: &[
            "The lkey is of no memory region: a typing error, the rkey of another process, or a region that \
            has \
             been deregistered.",
            "The memory region belongs to another protection domain than the queue pair or the SRQ.",
            "The range of the element (address and length) is not inside the memory region.",
            "The memory region has no IBV_ACCESS_LOCAL_WRITE, and the device must write to it: a receive, a \
            READ \
             or an atomic.",
        ],
        look_at: &[
            "The sentence of `--log warn` names which of these it was, with the lkey, the range and the \
            wr_id.",
            "ibv_dereg_mr is called only after all requests that use the region have completed.",
        ],
    },
    ExplainEntry {
        name: "WR_FLUSH_ERR",
        number: Some(5),
        meaning: "The request was not carried out because its queue pair went to the state ERR before. It \
                  is a consequence, never the cause.",
        causes: &[
            "An earlier request of the same queue pair failed: the first completion whose status is another \
            one \
             says why.",
            "The program moved the queue pair to ERR, or disconnected it (rdma_disconnect, the peer's exit).",
            "The peer sent a request that was refused; then the queue pair failed without a failed request \
            of its \
             own.",
        ],
        look_at: &[
            "The first completion that is not WR_FLUSH_ERR, in the completion queue of sends and in that of \
             receives.",
            "Asynchronous events (ibv_get_async_event) and events of the connection manager.",
            LOG,
        ],
    },
    ExplainEntry {
        name: "MW_BIND_ERR",
        number: Some(6),
        meaning: "A memory window could not be bound.",
        causes: &[
            "The memory region has no IBV_ACCESS_MW_BIND, or lacks the right that the window is to give.",
            "The range of the window is not inside the memory region.",
            "The window, the region and the queue pair are not of one protection domain.",
            "A window of type 2 is bound already, or one of type 1 is bound by a work request.",
        ],
        look_at: &["The access flags of the memory region and the type of the window.", LOG],
    },
    ExplainEntry {
        name: "BAD_RESP_ERR",
        number: Some(7),
        meaning: "The peer's response does not fit the request that it answers.",
        causes: &[
            "A READ was answered with more or fewer bytes than were asked for: the path MTUs of the two ends \
             differ.",
            "The peer's device answers otherwise than RoCEv2 requires.",
            "Packets of another sender reach this queue pair.",
        ],
        look_at: &[
            "Compare path_mtu of both queue pairs.",
            "A capture: `pumice run --capture FILE`, then `pumice capture FILE`.",
        ],
    },
    ExplainEntry {
        name: "LOC_ACCESS_ERR",
        number: Some(8),
        meaning: "A local buffer could not be accessed while the device stored a response or a message \
                  into it.",
        causes: &[
            "The memory region was deregistered, or its memory was unmapped, while the request was under \
            way.",
            "The memory region has no IBV_ACCESS_LOCAL_WRITE.",
        ],
        look_at: &["When ibv_dereg_mr, munmap and free are called: only after the completion.", LOG],
    },
    ExplainEntry {
        name: "REM_INV_REQ_ERR",
        number: Some(9),
        meaning: "The peer found the request invalid and refused it (NAK 0x61).",
        causes: &[
            "The peer's receive request is shorter than the message.",
            "The peer's queue pair does not allow the operation: its qp_access_flags lack REMOTE_READ, \
             REMOTE_WRITE or REMOTE_ATOMIC.",
            "The path MTUs of the two ends differ.",
            "More READs or atomics are under way than the peer's max_dest_rd_atomic.",
        ],
        look_at: &[
            "qp_access_flags and max_dest_rd_atomic in the peer's ibv_modify_qp.",
            "The peer's own log: it says which request it refused and why.",
        ],
    },
    ExplainEntry {
        name: "REM_ACCESS_ERR",
        number: Some(10),
        meaning: "The peer refused access to its memory (NAK 0x62).",
        causes: &[
            "The rkey is wrong, or of a region that the peer has deregistered.",
            "The remote range is not inside the peer's memory region.",
            "The peer's memory region lacks IBV_ACCESS_REMOTE_READ, _WRITE or _ATOMIC.",
            "The memory region and the queue pair of the peer are of different protection domains.",
        ],
        look_at: &[
            "The rkey and the address as they were exchanged: byte order and width.",
            "The peer's own log: it names the R_Key, the range and what was wrong.",
        ],
    },
    ExplainEntry {
        name: "REM_OP_ERR",
        number: Some(11),
        meaning: "The peer accepted the request but could not carry it out (NAK 0x63).",
        causes: &[
            "The peer's receive request names memory that its queue pair may not use (its completion is \
             LOC_PROT_ERR).",
            "The peer's completion queue overran, or its device failed.",
        ],
        look_at: &["The peer's completions and its log: they have the cause."],
    },
    ExplainEntry {
        name: "RETRY_EXC_ERR",
        number: Some(12),
        meaning: "The request was sent 1 + retry_cnt times and was never acknowledged.",
        causes: &[
            "The peer's process is gone, stopped, or has destroyed the queue pair.",
            "dest_qp_num or the GID of the peer is wrong.",
            "The peer's queue pair is not in RTR yet.",
            "sq_psn here is not rq_psn there: the peer drops every packet, or answers none of them.",
            "A firewall drops UDP port 4791, or no route leads to the peer.",
            "timeout and retry_cnt are too short for a network that loses packets, or for a peer on a \
            machine with \
             too much load.",
        ],
        look_at: &[
            "The sentence of `--log warn` on both sides: it says what came from the peer, if anything, and \
            the \
             peer says which packets it drops.",
            "The numbers that the programs exchanged: QP number, PSN, GID; byte order included.",
            "`pumice stat` on the peer's host: rx_unknown_qpn, rx_out_of_sequence, rx_wrong_state, \
             rx_wrong_address.",
            "The time until it fails is about (1 + retry_cnt) × 4.096 µs × 2^timeout.",
        ],
    },
    ExplainEntry {
        name: "RNR_RETRY_EXC_ERR",
        number: Some(13),
        meaning: "The peer had no receive request posted, 1 + rnr_retry times in a row.",
        causes: &[
            "The peer posts its receives too late, too few of them, or to another queue pair or SRQ.",
            "rnr_retry is small; 7 means that it is tried without end.",
            "The peer's min_rnr_timer is short, so that the tries are over before a receive is posted.",
        ],
        look_at: &[
            "That receives are posted before the peer may send, and again for each one that completes.",
            "rnr_retry here and min_rnr_timer at the peer.",
        ],
    },
    unused("LOC_RDD_VIOL_ERR", 14, "The reliable datagram domains of queue pair and address do not match."),
    ExplainEntry {
        name: "REM_INV_RD_REQ_ERR",
        number: Some(15),
        meaning: "The peer refused the XRC SRQ number that the request names (NAK 0x64).",
        causes: &[
            "The number was exchanged wrongly, or the SRQ has been destroyed.",
            "The SRQ belongs to another XRC domain than the peer's target queue pair.",
        ],
        look_at: &[
            "ibv_get_srq_num at the peer, and remote_srqn of the request.",
            "Both processes open the same XRC domain.",
        ],
    },
    ExplainEntry {
        name: "REM_ABORT_ERR",
        number: Some(16),
        meaning: "The peer aborted the operation.",
        causes: &[OLD_TRANSPORT],
        look_at: &[BY_PLAN],
    },
    unused("INV_EECN_ERR", 17, "The number of an end-to-end context is invalid."),
    unused("INV_EEC_STATE_ERR", 18, "An end-to-end context is in the wrong state."),
    ExplainEntry {
        name: "FATAL_ERR",
        number: Some(19),
        meaning: "The device failed, and the request with it.",
        causes: &["A fault plan asks for it; pumice itself never gives this status."],
        look_at: &[
            "`pumice fault kinds` explains the rule \"complete\".",
            "Asynchronous events: IBV_EVENT_DEVICE_FATAL or IBV_EVENT_QP_FATAL.",
            LOG,
        ],
    },
    unused("RESP_TIMEOUT_ERR", 20, "A response did not come in time."),
    ExplainEntry {
        name: "GENERAL_ERR",
        number: Some(21),
        meaning: "The request failed for a reason that no other status describes.",
        causes: &["A fault plan or `pumice sweep --completions` asks for it; pumice itself never does so."],
        look_at: &[LOG],
    },
    ExplainEntry {
        name: "TM_ERR",
        number: Some(22),
        meaning: "An operation on the list of tags of an SRQ failed.",
        causes: &["IBV_WR_TAG_DEL names a buffer that is not in the list: a message has taken it before."],
        look_at: &["The completion of the message, which has the recv_wr_id of the buffer."],
    },
    ExplainEntry {
        name: "TM_RNDV_INCOMPLETE",
        number: Some(23),
        meaning: "A rendezvous matched a tag, and the program has to read its payload.",
        causes: &[
            "The buffer with the tag is shorter than the payload; it has both headers of the message now.",
        ],
        look_at: &["The length in the rendezvous header (struct ibv_rvh) at byte 16 of the buffer."],
    },
];
