//! Errnos of calls: what they mean when libpumice.so returns or sets them.

use rustix::io::Errno;

use super::entry::ExplainEntry;

const LOG: &str = "The sentence of `--log warn`: a call that is refused says why.";
const DOCTOR: &str = "`pumice doctor` opens the device the same way and says what is in the way.";

type Sentences = &'static [&'static str];

const fn errno(
    name: &'static str,
    errno: Errno,
    meaning: &'static str,
    causes: Sentences,
    look_at: Sentences,
) -> ExplainEntry {
    ExplainEntry { name, number: Some(errno.raw_os_error()), meaning, causes, look_at }
}

/// The errnos that calls return, by name.
pub(super) const ERRNOS: &[ExplainEntry] = &[
    errno(
        "E2BIG",
        Errno::TOOBIG,
        "There are more entries than fit.",
        &[
            "mrc_ctl_query_ev_profile: the array has room for fewer entropy values than the profile has.",
            "mrc_ctl_modify_ev_profile: a profile would have more entropy values than the device keeps.",
        ],
        &[LOG, "mrc_ctl_query_device names the limits of profiles."],
    ),
    errno(
        "EACCES",
        Errno::ACCESS,
        "A policy of the system forbids it.",
        &[
            "The sandbox (seccomp, SELinux, AppArmor) does not allow the program to bind UDP port 4791.",
            "rdma_bind_addr: a port below 1024, without the capability CAP_NET_BIND_SERVICE.",
            "rdma_create_id and other calls of librdmacm: the user has changed since the channel was made.",
        ],
        &[DOCTOR, LOG],
    ),
    errno(
        "EADDRINUSE",
        Errno::ADDRINUSE,
        "The address, port or service is taken.",
        &[
            "rdma_bind_addr or rdma_listen: another listener of this host has the port.",
            "Opening the device: a process that does not share UDP port 4791 holds it, such as the kernel's \
             rdma_rxe or a process of another user.",
        ],
        &["`ss -lunp sport = 4791` shows who holds the UDP port.", DOCTOR],
    ),
    errno(
        "EADDRNOTAVAIL",
        Errno::ADDRNOTAVAIL,
        "The address is no address of this host or of this device.",
        &[
            "PUMICE_ADDR or --addr names an address that the host does not have.",
            "rdma_bind_addr or rdma_resolve_addr with a source address that is not in the GID table.",
            "rdma_bind_addr or rdma_listen at all addresses, beside an identifier that has the port at one.",
        ],
        &["`ip address`, and `pumice devices` for the GIDs."],
    ),
    errno(
        "EAFNOSUPPORT",
        Errno::AFNOSUPPORT,
        "The address is of a family that this call does not know, or not of the port's.",
        &["sa_family was not set.", "An IPv4 and an IPv6 address were given for the two ends."],
        &["sa_family of both addresses."],
    ),
    errno(
        "EAGAIN",
        Errno::AGAIN,
        "There is nothing yet, or no room yet; try again.",
        &[
            "A non-blocking completion channel, event channel or rsocket has nothing to give: this is no \
            error.",
            "The operating system has no more threads or processes for this user.",
        ],
        &[
            "poll(2) or epoll on the descriptor before the next call.",
            "ulimit -u and pids.max of the container.",
        ],
    ),
    errno(
        "EALREADY",
        Errno::ALREADY,
        "rconnect was called while the connection is being made already.",
        &["A non-blocking rsocket was connected twice."],
        &["Wait with rpoll until it is writable."],
    ),
    errno(
        "EBADF",
        Errno::BADF,
        "The number is no descriptor, or not one of the right kind.",
        &["The descriptor was closed.", "A descriptor of the system's was given to a call for rsockets."],
        &["Where it was closed; strace -e trace=close shows it."],
    ),
    errno(
        "EBUSY",
        Errno::BUSY,
        "The object is still in use by others.",
        &[
            "ibv_dealloc_pd before its memory regions, queue pairs, SRQs, address handles and windows are \
            gone.",
            "ibv_destroy_cq or ibv_destroy_srq before the queue pairs that use it are destroyed.",
            "ibv_dereg_mr while memory windows are bound to the region.",
        ],
        &[
            "The sentence of `--log warn` names the users.",
            "Destroy objects in the reverse of the order in which they were made.",
        ],
    ),
    errno(
        "ECONNABORTED",
        Errno::CONNABORTED,
        "An rsocket's connection failed before it was established.",
        &["The peer went away while the two were connecting."],
        &[LOG],
    ),
    errno(
        "ECONNREFUSED",
        Errno::CONNREFUSED,
        "The peer refused the connection.",
        &["No program listens on that address and port.", "The listener called rdma_reject."],
        &["The status of RDMA_CM_EVENT_REJECTED is the peer's reason: 8 is no listener, 28 is rdma_reject."],
    ),
    errno(
        "ECONNRESET",
        Errno::CONNRESET,
        "The connection is over.",
        &["The peer disconnected, exited or was killed.", "The queue pair of an rsocket failed."],
        &["The peer's own messages.", LOG],
    ),
    errno(
        "EDESTADDRREQ",
        Errno::DESTADDRREQ,
        "A datagram was sent without an address on an rsocket that is not connected.",
        &["rsend instead of rsendto, or no rconnect before."],
        &["The address argument of the call."],
    ),
    errno(
        "EDOM",
        Errno::DOM,
        "The value of an option is outside of what it may be.",
        &["A time-out with more than 999999 microseconds."],
        &["The value given to rsetsockopt."],
    ),
    errno(
        "EEXIST",
        Errno::EXIST,
        "It is there already.",
        &[
            "repoll_ctl adds a descriptor that is in the set.",
            "ibv_open_xrcd with O_EXCL for a domain that exists.",
        ],
        &["The flags of the call."],
    ),
    errno(
        "EFAULT",
        Errno::FAULT,
        "A pointer leads nowhere, or memory is not mapped with the rights asked for.",
        &[
            "ibv_reg_mr of memory that is not mapped, was freed, or is read-only although \
            IBV_ACCESS_LOCAL_WRITE is \
             asked for.",
            "A length that reaches beyond the mapping.",
            "A file on a disk that is mapped MAP_SHARED and for writing: Linux pins no such pages since 6.5.",
        ],
        &["/proc/PID/maps: address, length and rights of the memory.", LOG],
    ),
    errno(
        "EHOSTUNREACH",
        Errno::HOSTUNREACH,
        "No path leads to the address.",
        &["The GID is of another network, or of a family that the chosen source GID does not have."],
        &["`ip route get ADDRESS`.", "sgid_index of the address handle or of ibv_modify_qp."],
    ),
    errno(
        "EINPROGRESS",
        Errno::INPROGRESS,
        "A non-blocking rsocket is being connected.",
        &["This is no error."],
        &["Wait with rpoll until it is writable, then ask for SO_ERROR."],
    ),
    errno(
        "EINTR",
        Errno::INTR,
        "A signal interrupted a call that waits.",
        &["A handler was installed without SA_RESTART, or the program is being debugged or profiled."],
        &["Call again."],
    ),
    errno(
        "EINVAL",
        Errno::INVAL,
        "An argument is wrong.",
        &[
            "ibv_modify_qp: the attribute mask lacks an attribute that the transition needs, has one that \
            it does \
             not allow, or the queue pair is in another state.",
            "ibv_post_send or ibv_post_recv: the queue pair is in RESET or INIT, there are more elements \
            than \
             max_send_sge or max_recv_sge, inline data is longer than max_inline_data, or the operation is \
             not one \
             of this transport.",
            "A limit of the device is exceeded (ibv_query_device).",
            "A reserved field or a comp_mask has bits that are not known.",
        ],
        &[LOG, "`ibv_devinfo -v` for the limits; ibv_query_qp for the state."],
    ),
    errno(
        "EIO",
        Errno::IO,
        "The device or the object has failed.",
        &[
            "A completion queue has overrun: it can only be destroyed.",
            "A call ended with an error inside of pumice; this is worth a report.",
        ],
        &["Whether IBV_EVENT_CQ_ERR came.", LOG],
    ),
    errno(
        "EISCONN",
        Errno::ISCONN,
        "The rsocket or the identifier is connected already.",
        &["rconnect was called twice.", "rdma_notify came after RDMA_CM_EVENT_ESTABLISHED."],
        &["The program's own order of calls."],
    ),
    errno(
        "EMFILE",
        Errno::MFILE,
        "The process has as many descriptors open as it may.",
        &["Each channel and each device needs some, and they are not closed, or the limit is low."],
        &["ulimit -n; /proc/PID/fd."],
    ),
    errno(
        "EMSGSIZE",
        Errno::MSGSIZE,
        "A message is too long.",
        &["A datagram of an rsocket is longer than what fits one message."],
        &["The path MTU: `pumice devices`."],
    ),
    errno(
        "ENETUNREACH",
        Errno::NETUNREACH,
        "No route leads to the network of the address.",
        &["The interface is down, or there is no route."],
        &["`ip route get ADDRESS`."],
    ),
    errno(
        "ENOBUFS",
        Errno::NOBUFS,
        "There is no room for more.",
        &["A listener's backlog is full.", "A socket is in as many multicast groups as the system allows."],
        &["The backlog of rdma_listen; net.ipv4.igmp_max_memberships."],
    ),
    errno(
        "ENODATA",
        Errno::NODATA,
        "The place in the table is empty.",
        &["A GID index without an address, or a P_Key index beyond the table."],
        &["`pumice devices` or `ibv_devinfo -v`."],
    ),
    errno(
        "ENODEV",
        Errno::NODEV,
        "There is no device for this.",
        &[
            "No interface that is up has an address.",
            "The address given to rdma_bind_addr or rdma_resolve_addr belongs to no device: with --addr the \
            device \
             has only that one.",
        ],
        &["`pumice devices`, and PUMICE_ADDR.", DOCTOR],
    ),
    errno(
        "ENOENT",
        Errno::NOENT,
        "There is no such object.",
        &[
            "A handle of an object that has been destroyed, or of another device.",
            "A GID or P_Key that is not in the table.",
            "An extended completion queue is empty (ibv_start_poll, ibv_next_poll): this is no error.",
            "PUMICE_CAPTURE names a folder that does not exist.",
        ],
        &[LOG],
    ),
    errno(
        "ENOMEM",
        Errno::NOMEM,
        "A table or queue is full, or the system has no memory left.",
        &[
            "ibv_post_send or ibv_post_recv: max_send_wr or max_recv_wr requests are outstanding. Unsignaled \
             requests count until a later signaled one has been polled.",
            "As many objects exist as the device allows (ibv_query_device).",
            "RLIMIT_MEMLOCK or the container's memory limit.",
        ],
        &[
            "Post a signaled request at least once per queue length, and poll it.",
            "`ibv_devinfo -v` for the limits.",
            LOG,
        ],
    ),
    errno(
        "ENOPROTOOPT",
        Errno::NOPROTOOPT,
        "The rsocket has no such option.",
        &["An option of the system's TCP that rsockets do not have."],
        &["The level and name given to rsetsockopt."],
    ),
    errno(
        "ENOSPC",
        Errno::NOSPC,
        "A file system is full.",
        &["The folder in which the user's processes meet has no room left for some hundred kilobytes."],
        &[LOG, "`df` of the folder that the sentence names, or XDG_RUNTIME_DIR set to another one.", DOCTOR],
    ),
    errno(
        "ENOSYS",
        Errno::NOSYS,
        "The option or call does not exist here.",
        &["rdma_set_option with an option that librdmacm does not have either."],
        &["The level and name given to rdma_set_option."],
    ),
    errno(
        "ENOTCONN",
        Errno::NOTCONN,
        "There is no connection.",
        &[
            "rsend or rrecv before rconnect or raccept have finished.",
            "rdma_disconnect of an identifier without a queue pair.",
        ],
        &["The program's own order of calls."],
    ),
    errno(
        "ENOTSOCK",
        Errno::NOTSOCK,
        "The descriptor is no rsocket.",
        &["A descriptor of the system's socket(2) was given to a call for rsockets."],
        &["Where the descriptor comes from."],
    ),
    errno(
        "EOPNOTSUPP",
        Errno::OPNOTSUPP,
        "The device does not do that.",
        &[
            "A verb that needs hardware: counters and tunnels in flow rules, checksum offloads.",
            "A bit of a comp_mask or a flag that no software device has.",
            "The operation is not one of this transport, such as READ on UC.",
        ],
        &["verbs/capi/SUPPORT.md lists every verb.", LOG],
    ),
    errno(
        "EPERM",
        Errno::PERM,
        "Something may not be done with this object, or another user's file is in the way.",
        &[
            "The queue pair's send_ops_flags do not name the operation (ibv_wr_*).",
            "The memory lacks the right that ibv_advise_mr asks for.",
            "A queue pair for raw packets was asked for without the right CAP_NET_RAW.",
            "The folder of the registry belongs to another user, or others may write to it.",
        ],
        &[LOG, DOCTOR],
    ),
    errno(
        "EPIPE",
        Errno::PIPE,
        "The rsocket's sending half is closed.",
        &["rshutdown was called, or the peer has ended the connection."],
        &["Whether the program goes on sending after rrecv has returned 0."],
    ),
    errno(
        "EPROTO",
        Errno::PROTO,
        "What the peer of an rsocket sent makes no sense.",
        &["The peer is no rsocket, or one of another version."],
        &["What listens on that port.", LOG],
    ),
    errno(
        "EPROTONOSUPPORT",
        Errno::PROTONOSUPPORT,
        "The protocol is none that rsockets or this port space have.",
        &["rsocket with another protocol than TCP or UDP.", "A port space that the call does not serve."],
        &["The arguments of rsocket or rdma_create_id."],
    ),
    errno(
        "ESTALE",
        Errno::STALE,
        "The file of an XRC domain was replaced again and again while it was opened.",
        &["Processes open and close the domain all the time."],
        &["Keep the domain open in one process."],
    ),
    errno(
        "ETIMEDOUT",
        Errno::TIMEDOUT,
        "The peer did not answer in time.",
        &[
            "rdma_connect: nothing answered the connection request (RDMA_CM_EVENT_UNREACHABLE).",
            "rdma_resolve_addr: no host has the address, or its gateway's (RDMA_CM_EVENT_ADDR_ERROR).",
            "ibv_modify_qp to RTR, ibv_create_ah: the same for the peer's GID, after a second.",
            "An rsocket's peer no longer acknowledges.",
        ],
        &[
            "That the peer's host runs RoCE on that address, and that no firewall drops UDP port 4791.",
            DOCTOR,
        ],
    ),
    errno(
        "EUSERS",
        Errno::USERS,
        "As many processes share the address as can.",
        &["Each device that a process opens takes one of 254 process indices of its address."],
        &["`pumice stat` lists the processes.", "--addr with another address, such as one of 127.0.0.0/8."],
    ),
];
