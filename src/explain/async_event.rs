//! Asynchronous events.

use super::entry::ExplainEntry;

/// Cause of events that hardware raises and this device does not.
const NEVER: &[&str] = &["pumice never raises this event."];

/// Cause of events that this device raises only by a fault plan.
const BY_PLAN: &[&str] = &["pumice raises this event only by a rule \"event\" of a fault plan."];

/// All asynchronous events, by number.
pub(super) const ASYNC_EVENTS: &[ExplainEntry] = &[
    ExplainEntry {
        name: "CQ_ERR",
        number: Some(0),
        meaning: "A completion queue overran: a completion came and there was no room for it.",
        causes: &[
            "The queue has fewer entries than requests may be outstanding on all queue pairs that use it.",
            "The program polls it too rarely.",
            "Receives of peers that send without being asked were not counted.",
        ],
        look_at: &[
            "cqe of ibv_create_cq against the sum of max_send_wr and max_recv_wr of its queue pairs.",
            "The sentence of `--log warn`: it names the queue and its depth.",
        ],
    },
    ExplainEntry {
        name: "QP_FATAL",
        number: Some(1),
        meaning: "A queue pair failed for a reason that no completion tells, and is in ERR.",
        causes: &["Its completion queue overran.", "The device could not write a completion."],
        look_at: &["Whether an IBV_EVENT_CQ_ERR came before it.", "The sentence of `--log warn`."],
    },
    ExplainEntry {
        name: "QP_REQ_ERR",
        number: Some(2),
        meaning: "The peer sent an invalid request that this queue pair refused, and no receive request \
                  could be completed with the error.",
        causes: &[
            "qp_access_flags do not allow what the peer asks for.",
            "The two ends have different path MTUs.",
            "The peer has more READs or atomics under way than max_dest_rd_atomic.",
        ],
        look_at: &["The sentence of `--log warn`: which request was refused, and why."],
    },
    ExplainEntry {
        name: "QP_ACCESS_ERR",
        number: Some(3),
        meaning: "The peer asked for memory that it may not access, and this queue pair refused.",
        causes: &[
            "The peer uses a wrong R_Key or a range outside of the memory region.",
            "The memory region has been deregistered, lacks the right, or is of another protection domain.",
        ],
        look_at: &["The sentence of `--log warn`: it names the R_Key, the range and what was wrong."],
    },
    ExplainEntry {
        name: "COMM_EST",
        number: Some(4),
        meaning: "A packet arrived for a queue pair in RTR: the peer is ready before this side has \
                  moved to RTS.",
        causes: &["The peer sends as soon as it can; this is no error."],
        look_at: &["Move the queue pair to RTS (rdma_accept and rdma_notify do it)."],
    },
    ExplainEntry {
        name: "SQ_DRAINED",
        number: Some(5),
        meaning: "The send queue of a queue pair that was moved to SQD is drained: what was under way \
                  is done.",
        causes: &[
            "The program moved the queue pair from RTS to SQD and asked for the event; this is no error.",
        ],
        look_at: &["The queue pair can now be modified and moved back to RTS."],
    },
    ExplainEntry {
        name: "PATH_MIG",
        number: Some(6),
        meaning: "A queue pair uses its alternate path now.",
        causes: &[
            "The retries on the primary path were used up, and an alternate path was armed.",
            "The program, or the peer's, has set path_mig_state to MIGRATED.",
        ],
        look_at: &["Load another alternate path and set path_mig_state to REARM: nothing is armed now."],
    },
    ExplainEntry {
        name: "PATH_MIG_ERR",
        number: Some(7),
        meaning: "The peer has moved to a path that is not this queue pair's alternate one.",
        causes: &[
            "alt_ah_attr of the two sides are not the two ends of one path.",
            "A rule \"event\" of a fault plan.",
        ],
        look_at: &["The GID and GID index in alt_ah_attr of both sides."],
    },
    ExplainEntry {
        name: "DEVICE_FATAL",
        number: Some(8),
        meaning: "The device failed; nothing works on it any more.",
        causes: BY_PLAN,
        look_at: &[
            "The sentence of `--log warn` names the rule.",
            "`pumice fault kinds` explains device-fatal and unplug.",
        ],
    },
    ExplainEntry {
        name: "PORT_ACTIVE",
        number: Some(9),
        meaning: "The port is up: its address, or an interface with one, has come (back).",
        causes: &[
            "An address was added, or an interface went up; this is no error.",
            "A rule of a fault plan: port-down ended, port-up, or speed-change.",
        ],
        look_at: &["`pumice devices` lists the GIDs."],
    },
    ExplainEntry {
        name: "PORT_ERR",
        number: Some(10),
        meaning: "The port is down: no address of the device is there any more.",
        causes: &[
            "The interface went down, or its address was removed.",
            "A rule of a fault plan: port-down, or speed-change, after which PORT_ACTIVE comes at once.",
        ],
        look_at: &["`ip address` and `pumice devices`."],
    },
    ExplainEntry {
        name: "LID_CHANGE",
        number: Some(11),
        meaning: "The LID of the port changed.",
        causes: &[
            "PUMICE_LID=1 is set and the port came up; RoCE itself has no LIDs.",
            "A fault plan asks for it (`event kind=lid-change`).",
        ],
        look_at: &["ibv_query_port."],
    },
    ExplainEntry {
        name: "PKEY_CHANGE",
        number: Some(12),
        meaning: "The partition key table of the port changed.",
        causes: BY_PLAN,
        look_at: &["ibv_query_pkey, and pkeys in the profile (`pumice run --profile`)."],
    },
    ExplainEntry {
        name: "SM_CHANGE",
        number: Some(13),
        meaning: "The subnet manager changed.",
        causes: NEVER,
        look_at: &["RoCE has no subnet manager."],
    },
    ExplainEntry {
        name: "SRQ_ERR",
        number: Some(14),
        meaning: "A shared receive queue failed; it takes and gives no more receive requests.",
        causes: &["The completion queue of an XRC SRQ overran."],
        look_at: &["cqe of that completion queue, and how often it is polled."],
    },
    ExplainEntry {
        name: "SRQ_LIMIT_REACHED",
        number: Some(15),
        meaning: "Fewer receive requests than srq_limit are left in a shared receive queue. The limit is 0 \
                  (disarmed) from now on.",
        causes: &["Messages come faster than the program posts receive requests; this is no error."],
        look_at: &["Post receive requests, then arm the limit again with ibv_modify_srq."],
    },
    ExplainEntry {
        name: "QP_LAST_WQE_REACHED",
        number: Some(16),
        meaning: "A queue pair with an SRQ is in ERR and will use no more receive requests of it.",
        causes: &["The queue pair failed or was moved to ERR; the event ends its use of the SRQ."],
        look_at: &[
            "Wait for this event, and poll the completion queue empty, before the queue pair is destroyed.",
        ],
    },
    ExplainEntry {
        name: "CLIENT_REREGISTER",
        number: Some(17),
        meaning: "The subnet manager asks clients to register again.",
        causes: NEVER,
        look_at: &["RoCE has no subnet manager."],
    },
    ExplainEntry {
        name: "GID_CHANGE",
        number: Some(18),
        meaning: "The GID table of the port changed, because the host's addresses did.",
        causes: &["An address was added or removed, or an interface went up or down."],
        look_at: &["`pumice devices`; a GID that is left keeps its index."],
    },
    ExplainEntry {
        name: "WQ_FATAL",
        number: Some(19),
        meaning: "A work queue (ibv_create_wq) failed.",
        causes: NEVER,
        look_at: &["Work queues serve raw packet queue pairs only; see SUPPORT.md."],
    },
    ExplainEntry {
        name: "DEVICE_SPEED_CHANGE",
        number: Some(20),
        meaning: "The speed of the device changed.",
        causes: NEVER,
        look_at: &["ibv_query_port has the speed of the profile (`pumice run --profile`)."],
    },
];
