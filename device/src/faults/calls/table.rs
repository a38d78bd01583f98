//! Which calls can fail, and with what.
//!
//! The manual pages are those of rdma-core 44. Few list errnos ([`Errnos::Listed`]): a rule may use only
//! those. Most say "the value of errno on failure" and no more ([`Errnos::Usual`]): a rule may use those that
//! libibverbs, librdmacm and the kernel's commands behind the call are known to give.

use libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EALREADY, EBADF, EBUSY, ECONNABORTED,
    ECONNREFUSED, ECONNRESET, EDESTADDRREQ, EEXIST, EFAULT, EHOSTUNREACH, EINPROGRESS, EINTR, EINVAL, EIO,
    EISCONN, EMFILE, EMSGSIZE, ENETUNREACH, ENFILE, ENOBUFS, ENODATA, ENODEV, ENOENT, ENOMEM, ENOPROTOOPT,
    ENOSPC, ENOSYS, ENOTCONN, ENOTSOCK, EOPNOTSUPP, EPERM, EPIPE, EPROTO, EPROTONOSUPPORT, ETIMEDOUT,
};

/// The errnos of a call. The first is what a rule without an errno uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errnos {
    /// Its manual page lists them.
    Listed(&'static [i32]),
    /// Its manual page says "errno", or it has none.
    Usual(&'static [i32]),
}

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallInfo {
    /// Its name.
    pub name: &'static str,
    /// Its manual page in section 3; empty if rdma-core 44 has none.
    pub page: &'static str,
    /// What it can fail with.
    pub errnos: Errnos,
}

impl CallInfo {
    /// The call of this name.
    pub fn of(name: &str) -> Option<&'static CallInfo> {
        let position = CALLS.binary_search_by(|info| info.name.cmp(name)).ok()?;
        CALLS.get(position)
    }

    /// What it can fail with; the first is the default.
    pub const fn errnos(&self) -> &'static [i32] {
        match self.errnos {
            Errnos::Listed(errnos) | Errnos::Usual(errnos) => errnos,
        }
    }
}

const fn call(name: &'static str, page: &'static str, errnos: Errnos) -> CallInfo {
    CallInfo { name, page, errnos }
}

/// Making an object.
const MAKE: Errnos =
    Errnos::Usual(&[ENOMEM, EINVAL, EAGAIN, ENOSPC, EPERM, EFAULT, EBUSY, EOPNOTSUPP, ENODEV, EIO]);
/// Making an object that has a descriptor.
const MAKE_FILE: Errnos =
    Errnos::Usual(&[ENOMEM, EINVAL, EMFILE, ENFILE, EAGAIN, EPERM, EBUSY, EOPNOTSUPP, ENODEV, EIO]);
/// Destroying an object.
const DESTROY: Errnos = Errnos::Usual(&[EBUSY, EINVAL, ENODEV, EIO]);
/// Changing an object.
const CHANGE: Errnos = Errnos::Usual(&[EINVAL, ENOMEM, EPERM, EBUSY, EOPNOTSUPP, ETIMEDOUT, ENODEV, EIO]);
/// Asking for a value.
const QUERY: Errnos = Errnos::Usual(&[EINVAL, ENOMEM, ENOENT, EOPNOTSUPP, ENODEV, EIO]);
/// Posting requests: a full queue, a wrong request, a device that failed.
const POST: Errnos = Errnos::Usual(&[ENOMEM, EINVAL, EIO]);
/// Arming a completion queue.
const ARM: Errnos = Errnos::Usual(&[EIO, EINVAL]);
/// Polling: the manual page promises a negative number only.
const POLL: Errnos = Errnos::Usual(&[EIO, EINVAL]);
/// Waiting for an event, which is read(2) of a descriptor.
const WAIT: Errnos = Errnos::Usual(&[EIO, EINTR, EAGAIN, EBADF, EINVAL]);
/// Waiting for an event of connection management.
const CM_WAIT: Errnos = Errnos::Usual(&[EIO, EINTR, EAGAIN, EBADF, EINVAL, ENOMEM, ECONNREFUSED, ETIMEDOUT]);
/// Addresses and routes.
const ADDRESS: Errnos = Errnos::Usual(&[
    EADDRNOTAVAIL,
    EADDRINUSE,
    EAFNOSUPPORT,
    ENODEV,
    ENETUNREACH,
    EHOSTUNREACH,
    ETIMEDOUT,
    EINVAL,
    ENOMEM,
    EIO,
]);
/// The steps of a connection.
const CONNECT: Errnos = Errnos::Usual(&[
    ECONNREFUSED,
    ETIMEDOUT,
    ENOTCONN,
    EISCONN,
    ENETUNREACH,
    EHOSTUNREACH,
    EINVAL,
    ENOMEM,
    ENODEV,
    EIO,
]);
/// Other calls of librdmacm.
const CM: Errnos = Errnos::Usual(&[EINVAL, ENOMEM, EOPNOTSUPP, EBUSY, ENODEV, EIO]);
const LIST: Errnos = Errnos::Listed(&[ENOMEM, EPERM, ENOSYS]);
const DEVICES: Errnos = Errnos::Usual(&[ENOMEM, ENODEV, EPERM, ENOSYS]);
const GID: Errnos = Errnos::Usual(&[ENODATA, EINVAL, EOPNOTSUPP, EIO]);
const FORK: Errnos = Errnos::Listed(&[EINVAL]);
const ADVISE: Errnos = Errnos::Listed(&[ENOMEM, EOPNOTSUPP, EFAULT, EINVAL, EPERM, ENOENT, ENOSYS]);
const ECE: Errnos = Errnos::Listed(&[EINVAL, EOPNOTSUPP]);
const NOTIFY: Errnos = Errnos::Usual(&[EINVAL, EISCONN, ENODEV, EIO]);

// Calls of rsockets: rsocket(7) lists no errnos, and says that they behave as those of sockets. So these are
// errnos that the calls of sockets are known to give, and what rsockets gives when a peer has ended.
const SOCKET: Errnos = Errnos::Usual(&[
    ENOMEM,
    ENOBUFS,
    EMFILE,
    ENFILE,
    EACCES,
    EAFNOSUPPORT,
    EINVAL,
    EPROTONOSUPPORT,
    EOPNOTSUPP,
]);
const BIND: Errnos = Errnos::Usual(&[EADDRINUSE, EADDRNOTAVAIL, EACCES, EBADF, EINVAL, ENOTSOCK, EFAULT]);
const LISTEN: Errnos = Errnos::Usual(&[EADDRINUSE, EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP]);
const ACCEPT: Errnos = Errnos::Usual(&[
    ECONNABORTED,
    EMFILE,
    ENFILE,
    ENOBUFS,
    ENOMEM,
    EAGAIN,
    EINTR,
    EBADF,
    EFAULT,
    EINVAL,
    ENOTSOCK,
    EOPNOTSUPP,
    EPERM,
    EPROTO,
]);
const CONNECT_SOCKET: Errnos = Errnos::Usual(&[
    ECONNREFUSED,
    ETIMEDOUT,
    ENETUNREACH,
    EHOSTUNREACH,
    ECONNRESET,
    EADDRINUSE,
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EACCES,
    EPERM,
    EAGAIN,
    EALREADY,
    EINPROGRESS,
    EINTR,
    EISCONN,
    EBADF,
    EFAULT,
    EINVAL,
    ENOMEM,
    ENOTSOCK,
]);
const SHUTDOWN: Errnos = Errnos::Usual(&[ENOTCONN, EBADF, EINVAL, ENOTSOCK]);
const CLOSE: Errnos = Errnos::Usual(&[EIO, EBADF, EINTR]);
const SEND: Errnos = Errnos::Usual(&[
    ECONNRESET,
    EPIPE,
    ENOBUFS,
    ENOMEM,
    EAGAIN,
    EINTR,
    ENOTCONN,
    EMSGSIZE,
    EDESTADDRREQ,
    EISCONN,
    EACCES,
    EBADF,
    EFAULT,
    EINVAL,
    ENOTSOCK,
    EOPNOTSUPP,
    EIO,
]);
const RECEIVE: Errnos = Errnos::Usual(&[
    ECONNRESET,
    ECONNREFUSED,
    ENOMEM,
    EAGAIN,
    EINTR,
    ENOTCONN,
    ETIMEDOUT,
    EBADF,
    EFAULT,
    EINVAL,
    ENOTSOCK,
    EIO,
]);
const WAIT_SOCKETS: Errnos = Errnos::Usual(&[ENOMEM, EINTR, EINVAL, EFAULT, EBADF]);
const NAME: Errnos = Errnos::Usual(&[ENOTCONN, ENOBUFS, EBADF, EFAULT, EINVAL, ENOTSOCK]);
const OPTION: Errnos = Errnos::Usual(&[ENOPROTOOPT, EBADF, EFAULT, EINVAL, ENOTSOCK, EOPNOTSUPP]);
const FILE_FLAGS: Errnos = Errnos::Usual(&[EINVAL, EACCES, EAGAIN, EBADF, EPERM, EOPNOTSUPP]);
const MAP: Errnos = Errnos::Usual(&[ENOMEM, EINVAL, EBADF, ENOTSOCK, ENOTCONN, EOPNOTSUPP]);
const EPOLL: Errnos = Errnos::Usual(&[ENOMEM, EMFILE, ENFILE, EINVAL]);
const EPOLL_CONTROL: Errnos = Errnos::Usual(&[ENOMEM, ENOSPC, EEXIST, ENOENT, EBADF, EINVAL, EPERM, EFAULT]);

/// All calls that can fail, by name.
pub const CALLS: &[CallInfo] = &[
    call("ibv_advise_mr", "ibv_advise_mr", ADVISE),
    call("ibv_alloc_buf", "", MAKE),
    call("ibv_alloc_dm", "ibv_alloc_dm", MAKE),
    call("ibv_alloc_mw", "ibv_alloc_mw", MAKE),
    call("ibv_alloc_null_mr", "ibv_alloc_null_mr", MAKE),
    call("ibv_alloc_parent_domain", "ibv_alloc_parent_domain", MAKE),
    call("ibv_alloc_pd", "ibv_alloc_pd", MAKE),
    call("ibv_alloc_td", "ibv_alloc_td", MAKE),
    call("ibv_attach_mcast", "ibv_attach_mcast", CHANGE),
    call("ibv_bind_mw", "ibv_bind_mw", CHANGE),
    call("ibv_close_device", "ibv_open_device", DESTROY),
    call("ibv_close_xrc_domain", "", DESTROY),
    call("ibv_close_xrcd", "ibv_open_xrcd", DESTROY),
    call("ibv_create_ah", "ibv_create_ah", MAKE),
    call("ibv_create_ah_from_wc", "ibv_create_ah_from_wc", MAKE),
    call("ibv_create_comp_channel", "ibv_create_comp_channel", MAKE_FILE),
    call("ibv_create_cq", "ibv_create_cq", MAKE),
    call("ibv_create_cq_ex", "ibv_create_cq_ex", MAKE),
    call("ibv_create_qp", "ibv_create_qp", MAKE),
    call("ibv_create_qp_ex", "ibv_create_qp_ex", MAKE),
    call("ibv_create_srq", "ibv_create_srq", MAKE),
    call("ibv_create_srq_ex", "ibv_create_srq_ex", MAKE),
    call("ibv_create_xrc_rcv_qp", "", MAKE),
    call("ibv_create_xrc_srq", "", MAKE),
    call("ibv_dealloc_mw", "ibv_alloc_mw", DESTROY),
    call("ibv_dealloc_pd", "ibv_alloc_pd", DESTROY),
    call("ibv_dealloc_td", "ibv_alloc_td", DESTROY),
    call("ibv_dereg_mr", "ibv_reg_mr", DESTROY),
    call("ibv_destroy_ah", "ibv_create_ah", DESTROY),
    call("ibv_destroy_comp_channel", "ibv_create_comp_channel", DESTROY),
    call("ibv_destroy_cq", "ibv_create_cq", DESTROY),
    call("ibv_destroy_qp", "ibv_create_qp", DESTROY),
    call("ibv_destroy_srq", "ibv_create_srq", DESTROY),
    call("ibv_detach_mcast", "ibv_attach_mcast", DESTROY),
    call("ibv_export_buf_dmabuf_fd", "", MAKE),
    call("ibv_fork_init", "ibv_fork_init", FORK),
    call("ibv_free_dm", "ibv_alloc_dm", DESTROY),
    call("ibv_get_async_event", "ibv_get_async_event", WAIT),
    call("ibv_get_cq_event", "ibv_get_cq_event", WAIT),
    call("ibv_get_device_list", "ibv_get_device_list", LIST),
    call("ibv_get_pkey_index", "ibv_get_pkey_index", QUERY),
    call("ibv_get_srq_num", "ibv_get_srq_num", QUERY),
    call("ibv_import_device", "ibv_import_device", MAKE_FILE),
    call("ibv_import_dm", "ibv_import_dm", MAKE),
    call("ibv_import_mr", "ibv_import_mr", MAKE),
    call("ibv_import_pd", "ibv_import_pd", MAKE),
    call("ibv_init_ah_from_wc", "ibv_create_ah_from_wc", QUERY),
    call("ibv_memcpy_from_dm", "ibv_alloc_dm", CHANGE),
    call("ibv_memcpy_to_dm", "ibv_alloc_dm", CHANGE),
    call("ibv_modify_cq", "ibv_modify_cq", CHANGE),
    call("ibv_modify_qp", "ibv_modify_qp", CHANGE),
    call("ibv_modify_srq", "ibv_modify_srq", CHANGE),
    call("ibv_modify_xrc_rcv_qp", "", CHANGE),
    call("ibv_next_poll", "ibv_create_cq_ex", POLL),
    call("ibv_open_device", "ibv_open_device", MAKE_FILE),
    call("ibv_open_qp", "ibv_open_qp", MAKE),
    call("ibv_open_xrc_domain", "", MAKE),
    call("ibv_open_xrcd", "ibv_open_xrcd", MAKE),
    call("ibv_poll_cq", "ibv_poll_cq", POLL),
    call("ibv_post_recv", "ibv_post_recv", POST),
    call("ibv_post_send", "ibv_post_send", POST),
    call("ibv_post_srq_recv", "ibv_post_srq_recv", POST),
    call("ibv_query_device", "ibv_query_device", QUERY),
    call("ibv_query_device_ex", "ibv_query_device_ex", QUERY),
    call("ibv_query_ece", "ibv_query_ece", ECE),
    call("ibv_query_gid", "ibv_query_gid", QUERY),
    call("ibv_query_gid_ex", "ibv_query_gid_ex", GID),
    call("ibv_query_gid_table", "ibv_query_gid_table", QUERY),
    call("ibv_query_gid_type", "", QUERY),
    call("ibv_query_pkey", "ibv_query_pkey", QUERY),
    call("ibv_query_port", "ibv_query_port", QUERY),
    call("ibv_query_port_speed", "", QUERY),
    call("ibv_query_qp", "ibv_query_qp", QUERY),
    call("ibv_query_rt_values", "ibv_query_rt_values_ex", QUERY),
    call("ibv_query_srq", "ibv_query_srq", QUERY),
    call("ibv_query_xrc_rcv_qp", "", QUERY),
    call("ibv_read_sysfs_file", "", QUERY),
    call("ibv_reg_buf_mr", "", MAKE),
    call("ibv_reg_dm_mr", "ibv_reg_dm_mr", MAKE),
    call("ibv_reg_dmabuf_mr", "", MAKE),
    call("ibv_reg_mr", "ibv_reg_mr", MAKE),
    call("ibv_reg_mr_ex", "", MAKE),
    call("ibv_reg_mr_iova", "ibv_reg_mr", MAKE),
    call("ibv_reg_mr_iova2", "ibv_reg_mr", MAKE),
    call("ibv_reg_xrc_rcv_qp", "", CHANGE),
    call("ibv_req_notify_cq", "ibv_req_notify_cq", ARM),
    call("ibv_rereg_mr", "ibv_rereg_mr", MAKE),
    call("ibv_resize_cq", "ibv_resize_cq", CHANGE),
    call("ibv_set_ece", "ibv_set_ece", ECE),
    call("ibv_start_poll", "ibv_create_cq_ex", POLL),
    call("ibv_unreg_xrc_rcv_qp", "", DESTROY),
    call("ibv_wr_complete", "ibv_wr_post", POST),
    call("raccept", "rsocket", ACCEPT),
    call("rbind", "rsocket", BIND),
    call("rclose", "rsocket", CLOSE),
    call("rconnect", "rsocket", CONNECT_SOCKET),
    call("rdma_accept", "rdma_accept", CONNECT),
    call("rdma_ack_cm_event", "rdma_ack_cm_event", CM),
    call("rdma_bind_addr", "rdma_bind_addr", ADDRESS),
    call("rdma_connect", "rdma_connect", CONNECT),
    call("rdma_create_ep", "rdma_create_ep", MAKE_FILE),
    call("rdma_create_event_channel", "rdma_create_event_channel", MAKE_FILE),
    call("rdma_create_id", "rdma_create_id", MAKE_FILE),
    call("rdma_create_qp", "rdma_create_qp", MAKE),
    call("rdma_create_qp_ex", "rdma_create_qp", MAKE),
    call("rdma_create_srq", "rdma_create_srq", MAKE),
    call("rdma_create_srq_ex", "rdma_create_srq", MAKE),
    call("rdma_destroy_id", "rdma_destroy_id", DESTROY),
    call("rdma_disconnect", "rdma_disconnect", CONNECT),
    call("rdma_establish", "rdma_establish", CONNECT),
    call("rdma_get_cm_event", "rdma_get_cm_event", CM_WAIT),
    call("rdma_get_devices", "rdma_get_devices", DEVICES),
    call("rdma_get_remote_ece", "rdma_get_remote_ece", QUERY),
    call("rdma_get_request", "rdma_get_request", CM_WAIT),
    call("rdma_getaddrinfo", "rdma_getaddrinfo", ADDRESS),
    call("rdma_init_qp_attr", "rdma_init_qp_attr", QUERY),
    call("rdma_join_multicast", "rdma_join_multicast", ADDRESS),
    call("rdma_join_multicast_ex", "rdma_join_multicast_ex", ADDRESS),
    call("rdma_leave_multicast", "rdma_leave_multicast", DESTROY),
    call("rdma_listen", "rdma_listen", ADDRESS),
    call("rdma_migrate_id", "rdma_migrate_id", CM),
    call("rdma_notify", "rdma_notify", NOTIFY),
    call("rdma_query_addrinfo", "", CM),
    call("rdma_reject", "rdma_reject", CONNECT),
    call("rdma_reject_ece", "", CONNECT),
    call("rdma_resolve_addr", "rdma_resolve_addr", ADDRESS),
    call("rdma_resolve_addrinfo", "", ADDRESS),
    call("rdma_resolve_route", "rdma_resolve_route", CONNECT),
    call("rdma_set_local_ece", "rdma_set_local_ece", CM),
    call("rdma_set_option", "rdma_set_option", CM),
    call("rdma_write_cm_event", "", CM),
    call("repoll_create", "", EPOLL),
    call("repoll_ctl", "", EPOLL_CONTROL),
    call("repoll_wait", "", WAIT_SOCKETS),
    call("rfcntl", "rsocket", FILE_FLAGS),
    call("rgetpeername", "rsocket", NAME),
    call("rgetsockname", "rsocket", NAME),
    call("rgetsockopt", "rsocket", OPTION),
    call("riomap", "rsocket", MAP),
    call("riounmap", "rsocket", MAP),
    call("riowrite", "rsocket", SEND),
    call("rlisten", "rsocket", LISTEN),
    call("rpoll", "rsocket", WAIT_SOCKETS),
    call("rread", "rsocket", RECEIVE),
    call("rreadv", "rsocket", RECEIVE),
    call("rrecv", "rsocket", RECEIVE),
    call("rrecvfrom", "rsocket", RECEIVE),
    call("rrecvmsg", "rsocket", RECEIVE),
    call("rselect", "rsocket", WAIT_SOCKETS),
    call("rsend", "rsocket", SEND),
    call("rsendmsg", "rsocket", SEND),
    call("rsendto", "rsocket", SEND),
    call("rsetsockopt", "rsocket", OPTION),
    call("rshutdown", "rsocket", SHUTDOWN),
    call("rsocket", "rsocket", SOCKET),
    call("rwrite", "rsocket", SEND),
    call("rwritev", "rsocket", SEND),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_call_fails_with_something() {
        assert!(CALLS.is_sorted_by(|one, next| one.name < next.name));
        for info in CALLS {
            assert_eq!(CallInfo::of(info.name), Some(info));
            assert!(info.errnos().iter().all(|errno| crate::faults::calls::errno_name(*errno).is_some()));
            assert!(!info.errnos().is_empty());
        }
        assert_eq!(CallInfo::of("ibv_wc_status_str"), None);
    }
}
