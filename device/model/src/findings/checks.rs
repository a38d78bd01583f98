//! The kinds of findings that checks make: what each is, why that matters on real hardware, and the remedy.

pub use super::finding::{FindingFamily, FindingKind};

use super::finding::Level;

macro_rules! kinds {
    ($($constant:ident $name:literal $family:ident
        what: $what:expr, why: $why:expr, remedy: $remedy:expr;)*) => {
        $(
            #[doc = $what]
            pub static $constant: FindingKind = FindingKind {
                name: $name,
                family: FindingFamily::$family,
                level: level($name, FindingFamily::$family),
                what: $what,
                why: $why,
                remedy: $remedy,
            };
        )*

        /// All kinds, family by family.
        pub static KINDS: &[&FindingKind] = &[$(&$constant),*];
    };
}

kinds! {
    REMOTE_RACE "remote-race" Ordering
        what: "Two requests of different queue pairs use the same memory of a peer, at least one writes it, \
            and nothing orders them.",
        why: "Queue pairs are not ordered with respect to each other. Which bytes stay, or whether a READ \
            brings old, new or mixed bytes, differs from run to run.",
        remedy: "Poll the completion of the first request before posting the second one, use one queue pair \
            for both, or let the peers agree by messages who writes when.";

    WRITE_PASSES_READ "write-passes-read" Ordering
        what: "A WRITE follows a READ of the same remote memory on the same queue pair, without a fence.",
        why: "A responder may take the bytes of a READ later than it executes WRITEs that follow, so the \
            READ may bring what the WRITE stored.",
        remedy: "Set IBV_SEND_FENCE on the WRITE, or poll the completion of the READ first.";

    WRITE_PASSES_WRITE "write-passes-write" Ordering
        what: "A WRITE follows another one to the same remote memory on the same queue pair, where nothing \
            keeps them in order.",
        why: "Stores to a region with relaxed ordering, and those of a queue pair that places data out of \
            order, may be done in any order: which of both stays differs from run to run.",
        remedy: "Poll the completion of the first WRITE before posting the second one, or leave out \
            IBV_ACCESS_RELAXED_ORDERING and MLX5DV_QP_CREATE_OOO_DP.";

    READ_RESULT_EARLY "read-result-early" Ordering
        what: "The program uses memory that an earlier READ or atomic has still to fill: it looks at it or \
            writes to it, or a request sends it.",
        why: "The result is there when the completion is polled. Before, the memory has the old bytes, new \
            ones, or some of both, which differs from run to run; an adapter may also take the payload of a \
            request before the answer of the READ has come.",
        remedy: "Poll the completion of the READ or atomic first. A request that sends the result may have \
            IBV_SEND_FENCE instead, if it is on the same queue pair.";

    NOTIFIED_ON_OTHER_QP "notified-on-other-qp" Ordering
        what: "A program tells its peer of WRITEs by messages on another queue pair, before the WRITEs are \
            known to be in memory.",
        why: "Queue pairs are not ordered with respect to each other: the message may come before the data, \
            and the peer reads old bytes. In a region with relaxed ordering the data may still be under way \
            when the sender has polled the WRITE's completion.",
        remedy: "Send the message on the queue pair of the WRITE, or use RDMA_WRITE_WITH_IMM there. Polling \
            the WRITE's completion before posting the message is enough if the region was registered \
            without IBV_ACCESS_RELAXED_ORDERING.";

    WRITE_POLLED_IN_MEMORY "write-polled-in-memory" Ordering
        what: "The program looks at memory in order to know that a WRITE of more than 8 bytes has arrived.",
        why: "The specification does not say in which order the bytes of a WRITE are placed: the last byte \
            may be there before the others. Adapters with relaxed ordering, and paths that split a \
            message, do that.",
        remedy: "Use RDMA_WRITE_WITH_IMM or a SEND after the WRITE on the same queue pair, and wait for its \
            completion; or write a flag of at most 8 aligned bytes by a second WRITE on the same queue \
            pair, where the adapter is known to keep that order.";

    CQ_TOO_SMALL "cq-too-small" Completions
        what: "A completion queue has room for fewer completions than can come to it.",
        why: "When more completions come than fit, the queue overruns: the adapter raises CQ_ERR, \
            completions are lost, and all queue pairs on it go to the error state.",
        remedy: "Make the completion queue as deep as all receives and signaled sends that can be under \
            way on it at once, over all queue pairs, or post fewer before polling.";

    SEND_QUEUE_NEVER_REAPED "send-queue-never-reaped" Completions
        what: "A send queue is full of requests without IBV_SEND_SIGNALED, so no completion will free \
            it.",
        why: "An adapter frees entries of a send queue only when a completion is polled. Without one, \
            each further post fails with ENOMEM for ever.",
        remedy: "Signal a request at least once for each length of the send queue, and poll its \
            completion before the queue is full.";

    COMPLETIONS_NEVER_POLLED "completions-never-polled" Completions
        what: "Completions came to a completion queue that the program never polled.",
        why: "The program does not learn of failures, may reuse buffers too early, and the queue \
            overruns once it is full.",
        remedy: "Poll the queue, or post requests without asking for completions.";

    COMPLETIONS_TAKEN_ELSEWHERE "completions-taken-elsewhere" Completions
        what: "A thread polls a completion queue for what another thread has taken from it.",
        why: "A completion is there once: of several threads that poll a queue, the first one gets it, and \
            the others wait for ever if it was for one of them.",
        remedy: "Let one thread poll a queue and tell the others, by wr_id, what is theirs; or give each \
            thread a completion queue of its own.";

    LOST_WAKEUP "lost-wakeup" Completions
        what: "The program sleeps for a completion event while completions wait in the queue.",
        why: "Arming a queue promises an event for the next completion only. Those that came between \
            the last poll and the arming wait for ever if no other comes.",
        remedy: "After ibv_req_notify_cq poll once more until the queue is empty, and sleep only then; \
            arm again after each event.";

    EVENTS_NOT_ACKNOWLEDGED "events-not-acknowledged" Completions
        what: "The program got events of an object, and destroys it or ends without acknowledging them.",
        why: "The destroying call blocks until all events are acknowledged. If the acknowledgement \
            would come later in the same thread, the program hangs for ever.",
        remedy: "Call ibv_ack_cq_events, ibv_ack_async_event or rdma_ack_cm_event for each event before \
            destroying the object.";

    EVENTS_ACKNOWLEDGED_TWICE "events-acknowledged-twice" Completions
        what: "The program acknowledges more completion events of a queue than it got, or an event of \
            rdma_cm twice.",
        why: "The library counts completion events: ibv_destroy_cq blocks for ever, or destroys the queue \
            while another thread still looks at an event of it. An event of rdma_cm is freed by its \
            acknowledgement, so a second one frees memory twice.",
        remedy: "Acknowledge each event that ibv_get_cq_event or rdma_get_cm_event gives once.";

    ASYNC_EVENTS_NEVER_READ "async-events-never-read" Completions
        what: "Asynchronous events of failures or limits came, and the program never read one.",
        why: "Nothing else tells of a completion queue that overran, of a request of the peer that was \
            refused, or of a shared receive queue that runs low: the program waits for what cannot come.",
        remedy: "Let a thread call ibv_get_async_event and ibv_ack_async_event in a loop, or poll the \
            async_fd of the context.";

    WC_FIELD_OF_ERROR "wc-field-of-error" Completions
        what: "The program reads a field of a failed completion that is valid for successful ones only.",
        why: "Of a failed completion only wr_id, status, qp_num and vendor_err are defined. On \
            adapters the other fields keep the bytes that were there before.",
        remedy: "Look at the status first; know the operation of a failed request from its wr_id.";

    RECEIVE_TOO_LATE "receive-too-late" Connections
        what: "Messages come to a queue pair before the program has posted receives for them.",
        why: "Reliable peers get RNR NAKs and pause each time, for min_rnr_timer at least; after \
            rnr_retry pauses the connection fails. Unreliable services lose the message.",
        remedy: "Post receives before the peer may send, and post new ones before answering.";

    RNR_STORM "rnr-storm" Connections
        what: "A queue pair answers the same messages with RNR NAKs again and again, because its \
            min_rnr_timer is shorter than the program takes to post a receive.",
        why: "The NAKs and the repetitions take the link and the adapters from all other traffic, and an \
            rnr_retry below 7 is used up in no time.",
        remedy: "Post more receives, before the peer can send; and set min_rnr_timer of the receiver to the \
            time after which one is posted: 12 (0.64 ms), 16 (2.56 ms) or more.";

    RESET_AT_ONE_END "reset-at-one-end" Connections
        what: "The program resets one end of a connection and connects it again, and leaves the other end as \
            it was.",
        why: "Each end counts PSNs for itself: the end that was not reset takes new messages for \
            repetitions, which it acknowledges and drops, or waits for what it takes for lost. Messages \
            vanish, or requests fail with RETRY_EXC_ERR.",
        remedy: "Move both ends to RESET, and connect both again with PSNs that they have told each other.";

    TIMEOUT_FOR_EVER "timeout-for-ever" Connections
        what: "A queue pair goes to RTS with timeout 0, which means to wait for ever.",
        why: "If a packet or its acknowledgement is lost, nothing is sent again and no error comes: \
            the request hangs for ever.",
        remedy: "Set timeout to 14 or so (4.096 µs × 2^timeout).";

    RNR_TIMER_LONGEST "rnr-timer-longest" Connections
        what: "A queue pair goes to RTR with min_rnr_timer 0, which is the longest wait of all, 655.36 \
            ms.",
        why: "Each time that the peer finds no receive it pauses for more than half a second. The code \
            0 looks like no wait at all; 1 is the shortest, 0.01 ms.",
        remedy: "Set min_rnr_timer to 12 (0.64 ms) or so.";

    RETRIES_ZERO "retries-zero" Connections
        what: "A queue pair goes to RTS with retry_cnt 0, so nothing is ever sent again.",
        why: "A single lost packet ends the connection with RETRY_EXC_ERR.",
        remedy: "Set retry_cnt to 7.";

    RNR_RETRIES_ZERO "rnr-retries-zero" Connections
        what: "A queue pair with rnr_retry 0 ended at the first message for which the peer had no receive.",
        why: "A receive that is posted a moment too late ends the connection with RNR_RETRY_EXC_ERR. The \
            wait that the peer asks for with min_rnr_timer does not help, because nothing is sent a second \
            time.",
        remedy: "Set rnr_retry to 7, or to 1 to 6 for a limit, and post receives before the peer can send.";

    RNR_RETRY_FOR_EVER "rnr-retry-for-ever" Connections
        what: "A queue pair with rnr_retry 7 has waited for more than a second for the peer to post a \
            receive.",
        why: "The value 7 is no number but means for ever: if the peer posts no receive, the request never \
            completes and no error comes.",
        remedy: "Let the peer post receives before this side sends; to learn of a peer that does not, set \
            rnr_retry to 6 or less.";

    MTU_ABOVE_ACTIVE "mtu-above-active" Connections
        what: "A queue pair asks for a path MTU above the active MTU of the port.",
        why: "The call fails here, and on other ports with another active MTU. Where it does not fail, \
            packets that are too long for the link are dropped.",
        remedy: "Use the smaller of both ports' active_mtu, which ibv_query_port tells.";

    READ_DEPTH_MISMATCH "read-depth-mismatch" Connections
        what: "A queue pair may have more READs and atomics under way (max_rd_atomic) than its peer \
            serves at once (max_dest_rd_atomic).",
        why: "A responder with fewer resources answers the surplus with a NAK, and the connection \
            fails with REM_INV_REQ_ERR as soon as enough are under way.",
        remedy: "Exchange the values, and set max_rd_atomic to at most the peer's max_dest_rd_atomic.";

    READ_DEPTH_ZERO "read-depth-zero" Connections
        what: "The program posts a READ or an atomic on a queue pair whose max_rd_atomic is 0.",
        why: "Such a queue pair may have no READ or atomic under way. Some adapters take 0 for 1; on others, \
            and on rdma_rxe, the request never leaves, and no completion comes.",
        remedy: "Give ibv_modify_qp a max_rd_atomic of 1 at least when the queue pair goes to RTS.";

    GID_OF_OTHER_FAMILY "gid-of-other-family" Connections
        what: "The GID at sgid_index is of another IP version than the peer's GID.",
        why: "Packets cannot go from an IPv4 address to an IPv6 address: nothing arrives, and the \
            requests fail with RETRY_EXC_ERR.",
        remedy: "Choose the GID index by the peer's GID: an IPv4-mapped one (::ffff:a.b.c.d) for an \
            IPv4-mapped peer.";

    QKEY_MISMATCH "qkey-mismatch" Connections
        what: "Datagrams came with another Q_Key than that of the queue pair, and were dropped.",
        why: "The adapter drops such datagrams without telling either side. A remote_qkey with the \
            highest bit set sends the sender's own Q_Key instead.",
        remedy: "Give senders, as remote_qkey, the Q_Key with which the receiver went to INIT.";

    PKEY_MISMATCH "pkey-mismatch" Connections
        what: "Packets came with a P_Key that does not match that of the queue pair, and were dropped.",
        why: "The adapter drops such packets without telling either side; reliable senders fail with \
            RETRY_EXC_ERR.",
        remedy: "Let both sides choose the index of the same P_Key, and not two limited memberships.";

    MRC_OPERATION_UNKNOWN "mrc-operation-unknown" Connections
        what: "The program posts a request to a queue pair of MRC that is no RDMA WRITE.",
        why: "MRC has RDMA WRITE, with and without immediate, and nothing else: the call fails, and the \
            requests after it in the list are not posted either.",
        remedy: "Post SENDs, READs and atomics to an RC queue pair beside the one of MRC, or let the peer \
            WRITE with immediate.";

    MRC_WITHOUT_RECEIVE "mrc-without-receive" Connections
        what: "A WRITE with immediate came to a queue pair of MRC, and no receive was posted for it.",
        why: "MRC has no RNR NAKs: the sender does not wait, as it does with RC, but its request fails with \
            REM_OP_ERR, and both queue pairs are in the error state.",
        remedy: "Post as many receives as the peer may have WRITEs with immediate in flight (max_wimm_dest) \
            before it may send, and a new one for each that completes.";

    MRC_LIMITS_DIFFER "mrc-limits-differ" Connections
        what: "The two queue pairs of an MRC connection have other limits for the same direction.",
        why: "MRC does not negotiate: each side is told the limits of the other one. More WRITEs with \
            immediate than the peer has granted end the connection with REM_INV_REQ_ERR, and packets beyond \
            its window are refused and sent again; without DYNAMIC_MPR on both sides a window that shrinks \
            is not seen.",
        remedy: "Let the sides tell each other their values: max_wimm is at most the peer's max_wimm_dest, \
            mpr at most its mpr_dest, and DYNAMIC_MPR is in cap of both or of none.";

    MRC_PROFILE_UNKNOWN "mrc-profile-unknown" Connections
        what: "The program gives a queue pair of MRC a profile that is not ONLINE.",
        why: "Profiles are made by the controller, and each may be used from ONLINE on: until then \
            mrc_modify_qp fails with ENOENT.",
        remedy: "Move the profile to OFFLINE and to ONLINE before, by mrc_ctl_modify_ev_profile or \
            mrc_ctl_modify_cc_profile, or leave the attribute out, so that the device chooses.";

    CONNECTED_TOO_LATE "connected-too-late" Connections
        what: "Packets of the peer came before the queue pair was in RTR, and were dropped.",
        why: "The peer sends them again after its timeout, if it has one, so the connection begins \
            slowly; with few retries it fails with RETRY_EXC_ERR.",
        remedy: "Let each side tell the other that it is in RTR before the other one sends.";

    DATAGRAM_TOO_LONG "datagram-too-long" Connections
        what: "A datagram came that was longer than its receive, of which the first 40 bytes are for the \
            header (GRH), and was dropped.",
        why: "The adapter drops such datagrams without telling either side: the sender's request ends \
            well, and the receive waits for the next datagram.",
        remedy: "Post receives of 40 bytes more than the longest message has; the message begins at byte 40.";

    DATAGRAM_TO_NO_QP "datagram-to-no-qp" Connections
        what: "The program sends datagrams to a queue pair number that no queue pair has, or to a multicast \
            group to which no queue pair is attached.",
        why: "The sender's request ends well, because nothing acknowledges datagrams, and no receiver ever \
            gets them.",
        remedy: "Give the sender the receiver's qp_num, in the byte order of the host, and 0xffffff for a \
            group; attach the receiver to the group with ibv_attach_mcast before the first message.";

    CONNECTED_WITHOUT_QP "connected-without-qp" Connections
        what: "The program connects or accepts an identifier of rdma_cm that has no queue pair, and its \
            parameters name none.",
        why: "The peer is told queue pair number 0: its own queue pair cannot be connected, or what it sends \
            reaches nothing.",
        remedy: "Call rdma_create_qp before rdma_connect or rdma_accept, or give the number of a queue pair \
            as qp_num.";

    CONNECTED_TO_ITSELF "connected-to-itself" Connections
        what: "A queue pair has its own number as dest_qp_num, and drops what it sends to itself.",
        why: "The peer never gets a message. Whether the sender's requests fail or seem to end well depends \
            on the first PSNs.",
        remedy: "Give ibv_modify_qp the number of the peer as dest_qp_num; each end tells its own number and \
            takes the one that it is told.";

    FAILED_CONNECTION_USED "failed-connection-used" Connections
        what: "The program goes on with an identifier of rdma_cm after an event that says that it is not \
            connected.",
        why: "The queue pair of such an identifier is not in RTS: posts are refused or flushed, and what \
            the program waits for never comes.",
        remedy: "Look at the event and its status before acknowledging it: only RDMA_CM_EVENT_ADDR_RESOLVED, \
            RDMA_CM_EVENT_ROUTE_RESOLVED and RDMA_CM_EVENT_ESTABLISHED say that the next step can be done. \
            After others destroy the identifier, or begin anew.";

    NUMBER_TOO_LONG "number-too-long" Connections
        what: "A queue pair is given a first PSN, or a number of its peer, of more than 24 bits.",
        why: "Packets have room for 24 bits: some adapters drop the upper ones, others take them for \
            something else. A number of a peer that is so long often has its bytes in the wrong order.",
        remedy: "Mask a PSN before it is used and before it is told to the peer: psn & 0xffffff. Bring \
            numbers that travel in network order back into that of the host with ntohl, once.";

    STEP_BEFORE_EVENT "step-before-event" Connections
        what: "The program takes the next step of a connection by rdma_cm before it has got the event of the \
            step before.",
        why: "The kernel is not done with that step: the call fails with EINVAL, or at times it does not.",
        remedy: "Wait for the event with rdma_get_cm_event and look at it, then call what comes next.";

    IN_FLIGHT_AT_DESTROY "in-flight-at-destroy" Connections
        what: "The program destroys a connected queue pair, or moves it to RESET, while signaled send \
            requests are not completed.",
        why: "What is under way may or may not arrive, and no completion will tell.",
        remedy: "Poll the completions of all requests before ibv_destroy_qp and before RESET, or move the \
            queue pair to ERR and poll those that are flushed.";

    SEND_BUFFER_CHANGED "send-buffer-changed" Memory
        what: "The payload of a send request changes before its completion is polled.",
        why: "The adapter reads the payload when it sends, and again if it must send again: the peer \
            gets the old contents, the new ones, or a mixture.",
        remedy: "Leave the buffer as it is until the completion of the request, or of a later one, is \
            polled; use several buffers in turn, or IBV_SEND_INLINE for short payload.";

    RECEIVE_BUFFER_WRITTEN "receive-buffer-written" Memory
        what: "The program writes to the buffer of a posted receive.",
        why: "A message may be stored there at any time: what the program writes is lost, or destroys \
            the message.",
        remedy: "Prepare a buffer before its receive is posted, and touch it again only after its \
            completion is polled.";

    BUFFERS_OVERLAP "buffers-overlap" Memory
        what: "The buffers of two posted requests overlap, and what came for one harmed the other.",
        why: "A message is lost when another is stored over it before the program has polled its \
            completion; payload that is changed before it leaves arrives changed.",
        remedy: "Give each posted receive and READ a buffer of its own, and post it again only after \
            its contents are used.";

    WRITE_INTO_POSTED "write-into-posted" Memory
        what: "A peer's WRITE or atomic stores to the buffer of a posted request, and one of both is lost.",
        why: "What a WRITE stores in a buffer of a posted receive is lost when a message comes there; \
            payload that it changes before it leaves arrives changed.",
        remedy: "Give peers memory to write to that no posted request uses.";

    HEADER_READ_AS_PAYLOAD "header-read-as-payload" Memory
        what: "The program reads the payload of a datagram at the beginning of its receive, where the header \
            (GRH) is.",
        why: "The first 40 bytes of each receive of a UD queue pair are for the header. Where the packet is \
            of IPv4, its first 20 bytes keep what was there before.",
        remedy: "Read the payload at byte 40 of the receive; its length is byte_len - 40.";

    FREED_WHILE_IN_USE "freed-while-in-use" Memory
        what: "The program frees or unmaps memory that a posted request uses.",
        why: "The adapter goes on with the pages that it has pinned: what it sends or stores is not \
            what the program has at that address by then.",
        remedy: "Free buffers after the completions of all requests that use them are polled, and after \
            ibv_dereg_mr.";

    DEREGISTERED_WHILE_IN_USE "deregistered-while-in-use" Memory
        what: "The program deregisters a memory region that a posted request uses.",
        why: "A request under way fails with LOC_PROT_ERR when its turn comes, and its queue pair goes to \
            the error state. Only a polled completion says that it is over.",
        remedy: "Poll the completions of the requests first; to take back receives, move the queue pair \
            to ERR or destroy it.";

    PRIVATE_DATA_AFTER_ACK "private-data-after-ack" Memory
        what: "The program reads the private data of an event of rdma_cm after it has acknowledged the \
            event.",
        why: "rdma_ack_cm_event frees the event and its private data. What is read then is what the \
            allocator has left there: the first bytes are gone at once, the others with the next \
            allocation.",
        remedy: "Read or copy what private_data points at before calling rdma_ack_cm_event.";

    STALE_RKEY "stale-rkey" Memory
        what: "A peer uses the R_Key of a memory region that was deregistered.",
        why: "The request is refused, and the peer's queue pair fails with REM_ACCESS_ERR. If the key is \
            given to another region, the peer reads or writes that one.",
        remedy: "Deregister memory only after the peer has said that it is done with it.";

    KEYS_CROSSED "keys-crossed" Memory
        what: "A peer names memory by its lkey, or a buffer names memory by its rkey.",
        why: "The two keys are one number on rdma_rxe and on mlx5, so it works there. Devices such as EFA \
            and MANA give out a number for each: there the request may be refused, and its queue pair then \
            fails with REM_ACCESS_ERR or LOC_PROT_ERR.",
        remedy: "Send the peer mr->rkey, and put mr->lkey into scatter/gather elements.";

    FORK_WITHOUT_INIT "fork-without-init" Process
        what: "The program forks while memory is registered, and has not called ibv_fork_init.",
        why: "Where the kernel does not copy registered pages at a fork, the parent's next write moves \
            the page away from the adapter: data goes to memory that the program does not see.",
        remedy: "Call ibv_fork_init before any other call of verbs, or ask ibv_is_fork_initialized \
            whether it is needed.";

    USED_AFTER_FORK "used-after-fork" Process
        what: "A child process uses an object that its parent made.",
        why: "The child has no mapping of the adapter's doorbells and queues, and its calls on the \
            device's file change the parent's objects.",
        remedy: "Open the device in the child, and make its own objects there.";

    USED_AFTER_DESTROY "used-after-destroy" Process
        what: "The program gives a call an object that it has destroyed.",
        why: "The memory of the object is freed: the call crashes, or reaches another object that was \
            made since.",
        remedy: "Forget the pointer when the object is destroyed, and destroy it after its last use.";

    CHANNEL_DESTROYED_EARLY "channel-destroyed-early" Process
        what: "The program destroys an event channel of rdma_cm, and identifiers still use it.",
        why: "The memory of the channel is freed: librdmacm looks at it when the identifiers are destroyed.",
        remedy: "Destroy the identifiers first, then their event channel.";

    OBJECT_OF_OTHER_CONTEXT "object-of-other-context" Process
        what: "The program uses objects together that it made on different contexts.",
        why: "An object belongs to the context that it was made on, also if both contexts are of one device: \
            the kernel does not find it for the other one, and the call fails with EINVAL.",
        remedy: "Open the device once and make everything on that context, or import it with \
            ibv_import_device.";

    THREAD_DOMAIN_SHARED "thread-domain-shared" Process
        what: "Two threads are at the same time in calls with objects that are for one thread at a time.",
        why: "The library takes no locks for objects of a thread domain, nor for a completion queue with \
            IBV_CREATE_CQ_ATTR_SINGLE_THREADED: the queue is damaged, requests and completions are lost.",
        remedy: "Give each thread a thread domain of its own, take a lock of the program's own around the \
            calls, or do not ask for one thread.";

    OBJECTS_LEFT "objects-left" Process
        what: "The program ends well, or closes a device, and has not destroyed an object.",
        why: "The kernel cleans up at exit, but a device that stays open leaks pinned memory and queue \
            pairs, and peers are not told that the connection is over.",
        remedy: "Destroy objects in the reverse order of making them, and close the device.";

    MTU_BELOW_PATH "mtu-below-path" Slow
        what: "A queue pair uses a smaller path MTU than the port's active MTU.",
        why: "Each message is cut into more packets than needed, each with its headers and its \
            processing.",
        remedy: "Use the smaller of both ports' active_mtu.";

    QUEUE_PAIR_FAILED "queue-pair-failed" Failed
        what: "A request failed, or the peer's request was refused, and the queue pair went to the error \
            state.",
        why: "All further requests of the queue pair end with WR_FLUSH_ERR, and nothing arrives at it any \
            more, until the program resets it or makes a new one.",
        remedy: "Correct what the sentence names; a program that means to fail names this kind in its \
            suppressions.";

    FAILURE_INJECTED "failure-injected" Failed
        what: "Something failed or came late because a rule of the fault plan wanted that.",
        why: "It is no mistake of the program, of its peer or of the network. What the program does next is \
            what the plan is for.",
        remedy: "Nothing has to be done; --fail-on injected makes such a run fail.";

    CALL_REFUSED "call-refused" Failed
        what: "A call that posts requests or changes an object was refused because of its arguments.",
        why: "The call has done nothing: a request that was refused never completes, and so do those \
            behind it in its list.",
        remedy: "Look at what the call returns, and give it what the sentence says.";

    WAITS_IN_VAIN "waits-in-vain" Failed
        what: "A thread has waited for some seconds for what will not come.",
        why: "The program hangs, without an error and without a completion.",
        remedy: "Remove the reason that the sentence gives.";

    REGISTERING_IN_LOOP "registering-in-loop" Slow
        what: "The program registers memory again and again at one place.",
        why: "A registration pins pages and calls the kernel: it takes longer than most messages.",
        remedy: "Register buffers once, and keep them; or use a cache of registrations.";

    SIGNAL_ON_EVERY_REQUEST "signal-on-every-request" Slow
        what: "The program asks for a completion of each of many send requests.",
        why: "Each completion is written by the adapter over PCIe and polled by the program.",
        remedy: "Signal one request of many, at least one for each length of the send queue.";

    QUEUE_PAIR_PER_MESSAGE "queue-pair-per-message" Slow
        what: "The program makes a queue pair, sends or receives a message or two, and destroys it, again \
            and again.",
        why: "To make and to connect a queue pair takes several calls of the kernel and an exchange with the \
            peer: 100 to 1000 times as long as a message.",
        remedy: "Keep the connection, and send all messages on it; or keep a pool of connected queue pairs.";

    EVENT_PER_MESSAGE "event-per-message" Slow
        what: "The program sleeps until an event comes for each single completion, while completions follow \
            each other closely.",
        why: "An interrupt, a wake-up and an arming for each message take longer than most messages.",
        remedy: "Poll until the queue is empty, and for some µs more, before arming it and sleeping; or let \
            ibv_modify_cq moderate the events.";

    SLEEPS_BETWEEN_POLLS "sleeps-between-polls" Slow
        what: "The program sleeps for a while, as by usleep, between two polls of an empty completion queue.",
        why: "A completion that comes meanwhile waits until the thread wakes, which takes 50 µs more than \
            usleep was asked for.",
        remedy: "Poll without a sleep if latency counts; else arm the queue with ibv_req_notify_cq, and \
            sleep in ibv_get_cq_event, which the completion ends at once.";

    SHORT_WITHOUT_INLINE "short-without-inline" Slow
        what: "The program sends many short requests, and none of their payload inline.",
        why: "For each request the adapter reads the payload from memory over PCIe, which takes longer \
            than to get it with the request.",
        remedy: "Ask for max_inline_data, and set IBV_SEND_INLINE on short requests.";

    ONE_POST_PER_DOORBELL "one-post-per-doorbell" Slow
        what: "The program posts requests one by one where one call could post a list.",
        why: "Each call rings the adapter's doorbell, a write over PCIe.",
        remedy: "Link the requests by their next pointers, and call ibv_post_send once.";

    SRQ_LIMIT_NEVER_ARMED "srq-limit-never-armed" Slow
        what: "A shared receive queue ran empty, and its limit was never armed.",
        why: "Each sender waits and sends again, once the queue is empty; messages of the services UC and UD \
            are lost. Only the limit tells before.",
        remedy: "Arm the limit with ibv_modify_srq and IBV_SRQ_LIMIT, post receives at \
            IBV_EVENT_SRQ_LIMIT_REACHED, and arm it again; or make the queue longer.";

    POLLS_ONE_AT_A_TIME "polls-one-at-a-time" Slow
        what: "The program polls one completion at a time while several wait.",
        why: "Each call takes the lock of the queue and tells the adapter how far it was read.",
        remedy: "Give ibv_poll_cq an array of 16 or more.";
}

/// Returns the level of a kind. Slow ways are no mistakes, nor are injected faults; any other failure is an
/// error here as well.
const fn level(name: &str, family: FindingFamily) -> Level {
    match family {
        FindingFamily::Slow => Level::Note,
        FindingFamily::Failed if is_injected(name) => Level::Note,
        FindingFamily::Failed => Level::Error,
        _ => Level::Warning,
    }
}

const fn is_injected(name: &str) -> bool {
    matches!(name.as_bytes(), b"failure-injected")
}

/// The kinds that the device's events alone show, so that programs that run already are checked for them too
/// (`pumice check live`). The others need all calls of the program, from the first.
pub static JUDGED_LIVE: [&FindingKind; 19] = [
    &REMOTE_RACE,
    &WRITE_PASSES_READ,
    &WRITE_PASSES_WRITE,
    &READ_RESULT_EARLY,
    &NOTIFIED_ON_OTHER_QP,
    &SEND_BUFFER_CHANGED,
    &RECEIVE_BUFFER_WRITTEN,
    &BUFFERS_OVERLAP,
    &WRITE_INTO_POSTED,
    &DEREGISTERED_WHILE_IN_USE,
    &STALE_RKEY,
    &RECEIVE_TOO_LATE,
    &RNR_RETRY_FOR_EVER,
    &QKEY_MISMATCH,
    &PKEY_MISMATCH,
    &READ_DEPTH_ZERO,
    &IN_FLIGHT_AT_DESTROY,
    &QUEUE_PAIR_FAILED,
    &FAILURE_INJECTED,
];

/// Returns the kind of a name.
pub fn named(name: &str) -> Option<&'static FindingKind> {
    KINDS.iter().find(|kind| kind.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_with_dashes_and_differ() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(kind.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", kind.name);
            assert_eq!(KINDS.iter().position(|other| other.name == kind.name), Some(index));
            for sentence in [kind.what, kind.why, kind.remedy] {
                assert!(sentence.ends_with('.') && !sentence.contains("  "), "{}: {sentence}", kind.name);
            }
        }
        assert_eq!(named("lost-wakeup"), Some(&LOST_WAKEUP));
    }
}
