//! Events of the connection manager.

use super::entry::ExplainEntry;

const LOG: &str = "`--log warn` on both sides.";

type Sentences = &'static [&'static str];

const fn event(
    name: &'static str,
    number: i32,
    meaning: &'static str,
    causes: Sentences,
    look_at: Sentences,
) -> ExplainEntry {
    ExplainEntry { name, number: Some(number), meaning, causes, look_at }
}

/// All events of the connection manager, by number.
pub(super) const CM_EVENTS: &[ExplainEntry] = &[
    event(
        "ADDR_RESOLVED",
        0,
        "rdma_resolve_addr found the device and the source address for the destination.",
        &["This is no error."],
        &["Go on with rdma_resolve_route."],
    ),
    event(
        "ADDR_ERROR",
        1,
        "rdma_resolve_addr found no device for the destination; the status is a negative errno.",
        &[
            "No route leads to the address.",
            "The device has only the address of --addr, and the route starts elsewhere.",
        ],
        &["`ip route get ADDRESS` and `pumice devices`.", "`pumice explain` with the status."],
    ),
    event(
        "ROUTE_RESOLVED",
        2,
        "rdma_resolve_route is done; with RoCE no other host has to be asked for it.",
        &["This is no error."],
        &["Go on with rdma_create_qp and rdma_connect."],
    ),
    event(
        "ROUTE_ERROR",
        3,
        "rdma_resolve_route found no path.",
        &["pumice never raises this event: the path is known with the address."],
        &["Whether the device is pumice's at all (ibv_get_device_name)."],
    ),
    event(
        "CONNECT_REQUEST",
        4,
        "A peer wants to connect to a listener; the event's id is new and belongs to the request.",
        &["This is no error."],
        &["Answer with rdma_accept or rdma_reject, on the new id."],
    ),
    event(
        "CONNECT_RESPONSE",
        5,
        "The peer has accepted, and the id has no queue pair of librdmacm's making.",
        &["The program makes and moves its queue pair itself; this is no error."],
        &["Move the queue pair to RTS, then call rdma_establish (or rdma_accept)."],
    ),
    event(
        "CONNECT_ERROR",
        6,
        "The connection could not be established although the peer answered; the status is a negative errno.",
        &["The queue pair could not be moved to RTR or RTS with what the peer agreed to."],
        &["`pumice explain` with the status.", LOG],
    ),
    event(
        "UNREACHABLE",
        7,
        "The peer did not answer the connection request; the status is a negative errno.",
        &[
            "No RoCE device is at the address, or its host is down.",
            "A firewall drops UDP port 4791 on either side.",
            "The listening process is stopped.",
            "A fault plan: a rule `unreachable`.",
        ],
        &[
            "`pumice doctor` on the peer.",
            "A capture: `pumice run --capture FILE`, then `pumice capture FILE`.",
        ],
    ),
    event(
        "REJECTED",
        8,
        "The peer refused the connection; the status is the reason that it gave.",
        &[
            "Reason 8 (invalid service id): no program listens on that port and port space.",
            "Reason 28 (rejected by the consumer): the listener called rdma_reject; its private data may \
            say why.",
            "Reason 10 (stale connection): the peer still remembers an older connection of the same queue \
            pair \
             number.",
        ],
        &[
            "The port, and RDMA_PS_TCP or RDMA_PS_UDP, of both programs.",
            "`pumice capture` spells the REJ out.",
        ],
    ),
    event(
        "ESTABLISHED",
        9,
        "The connection is established: both queue pairs are in RTS.",
        &["This is no error."],
        &["Its private data is what the peer said when it accepted."],
    ),
    event(
        "DISCONNECTED",
        10,
        "The connection is over.",
        &[
            "Either side called rdma_disconnect or destroyed its id.",
            "The peer's process exited or was killed.",
            "The peer repeated a request that looks like a new connection of the same queue pair.",
        ],
        &["The peer's own messages; completions with WR_FLUSH_ERR are the consequence."],
    ),
    event(
        "DEVICE_REMOVAL",
        11,
        "The device of the id has gone.",
        &["A rule \"event kind=unplug\" of a fault plan has pulled the device out."],
        &["Destroy the id; one that is made when the device is back is on a new context."],
    ),
    event(
        "MULTICAST_JOIN",
        12,
        "rdma_join_multicast is done; the event has the address handle's attributes.",
        &["This is no error."],
        &["Make the address handle with param.ud.ah_attr."],
    ),
    event(
        "MULTICAST_ERROR",
        13,
        "A multicast group could not be joined; the status is a negative errno.",
        &[
            "The group is of another family than the port's address.",
            "The system allows no more memberships.",
        ],
        &["`pumice explain` with the status.", LOG],
    ),
    event(
        "ADDR_CHANGE",
        14,
        "The hardware address that the id uses has changed.",
        &["A fault plan: `event kind=addr-change`. On Linux, another part of a bond became active."],
        &["Resolve the address again, and connect again: the connection leads to the adapter of before."],
    ),
    event(
        "TIMEWAIT_EXIT",
        15,
        "Nothing of the connection is under way any more; its queue pair number can be used again.",
        &["It follows DISCONNECTED; this is no error."],
        &["Destroy the id, if that was not done."],
    ),
    event(
        "ADDRINFO_RESOLVED",
        16,
        "rdma_resolve_addrinfo has its answer.",
        &["This is no error."],
        &["Fetch it with rdma_query_addrinfo."],
    ),
    event(
        "ADDRINFO_ERROR",
        17,
        "rdma_resolve_addrinfo failed; the status is a negative errno.",
        &["The name or the service is unknown."],
        &["`getent hosts NAME`."],
    ),
    event(
        "USER",
        18,
        "The program wrote this event itself (rdma_write_cm_event).",
        &["This is no error."],
        &["param.arg is what it gave."],
    ),
];
