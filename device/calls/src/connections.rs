//! The calls of librdmacm, rsockets apart.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Connections;
pub(crate) const V1_0: &str = "RDMACM_1.0";
pub(crate) const V1_1: &str = "RDMACM_1.1";
pub(crate) const V1_2: &str = "RDMACM_1.2";
pub(crate) const V1_3: &str = "RDMACM_1.3";
pub(crate) const V1_4: &str = "RDMACM_1.4";

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* connections {
        rdma_create_event_channel: null(V1_0).creates(EventChannel, Process).fails(MAKE_FILE),
        rdma_destroy_event_channel: plain(V1_0).destroys(EventChannel).page("rdma_create_event_channel"),
        rdma_get_cm_event: minus(V1_0).waits(EventChannel).fails(CM_WAIT),
        rdma_ack_cm_event: minus(V1_0).acknowledges(EventChannel).fails(CM),
        rdma_write_cm_event: minus(V1_4).changes(Identifier).no_page().fails(CM),
        rdma_event_str: null(V1_0).converts(),
        rdma_get_devices: null(V1_0).creates(DeviceList, Process).fails(DEVICES),
        rdma_free_devices: plain(V1_0).destroys(DeviceList).page("rdma_get_devices"),

        rdma_create_id: minus(V1_0).creates(Identifier, EventChannel).fails(MAKE_FILE),
        rdma_destroy_id: minus(V1_0).destroys(Identifier).fails(DESTROY),
        rdma_migrate_id: minus(V1_0).changes(Identifier).fails(CM),
        rdma_set_option: minus(V1_0).changes(Identifier).fails(CM),
        rdma_create_ep: minus(V1_0).creates(Identifier, AddressList).fails(MAKE_FILE),
        rdma_destroy_ep: plain(V1_0).destroys(Identifier).page("rdma_create_ep"),
        rdma_get_request: minus(V1_0).waits(Identifier).fails(CM_WAIT),
        rdma_get_src_port: plain(V1_0).queries(Identifier),
        rdma_get_dst_port: plain(V1_0).queries(Identifier),

        rdma_getaddrinfo: minus(V1_0).creates(AddressList, Process).fails(ADDRESS),
        rdma_freeaddrinfo: plain(V1_0).destroys(AddressList).page("rdma_getaddrinfo"),
        rdma_bind_addr: minus(V1_0).changes(Identifier).fails(ADDRESS),
        rdma_resolve_addr: minus(V1_0).changes(Identifier).fails(ADDRESS),
        rdma_resolve_route: minus(V1_0).changes(Identifier).fails(CONNECT),
        rdma_resolve_addrinfo: minus(V1_4).changes(Identifier).no_page().fails(ADDRESS),
        rdma_query_addrinfo: minus(V1_4).queries(Identifier).no_page().fails(CM),

        rdma_listen: minus(V1_0).listens(Identifier).fails(ADDRESS),
        rdma_connect: minus(V1_0).changes(Identifier).fails(CONNECT),
        rdma_accept: minus(V1_0).changes(Identifier).fails(CONNECT),
        rdma_establish: minus(V1_2).changes(Identifier).fails(CONNECT),
        rdma_reject: minus(V1_0).changes(Identifier).fails(CONNECT),
        rdma_reject_ece: minus(V1_3).changes(Identifier).no_page().fails(CONNECT),
        rdma_notify: minus(V1_0).changes(Identifier).fails(NOTIFY),
        rdma_disconnect: minus(V1_0).changes(Identifier).fails(CONNECT),
        rdma_set_local_ece: minus(V1_3).changes(Identifier).fails(CM),
        rdma_get_remote_ece: minus(V1_3).queries(Identifier).fails(QUERY),
        rdma_join_multicast: minus(V1_0).changes(Identifier).fails(ADDRESS),
        rdma_join_multicast_ex: minus(V1_1).changes(Identifier).fails(ADDRESS),
        rdma_leave_multicast: minus(V1_0).changes(Identifier).fails(DESTROY),

        rdma_create_qp: minus(V1_0).creates(QueuePair, Identifier).fails(MAKE),
        rdma_create_qp_ex: minus(V1_0).creates(QueuePair, Identifier).page("rdma_create_qp").fails(MAKE),
        rdma_destroy_qp: plain(V1_0).destroys(QueuePair).page("rdma_create_qp"),
        rdma_init_qp_attr: minus(V1_2).queries(Identifier).fails(QUERY),
        rdma_create_srq: minus(V1_0).creates(ReceiveQueue, Identifier).fails(MAKE),
        rdma_create_srq_ex: minus(V1_0).creates(ReceiveQueue, Identifier).page("rdma_create_srq").fails(MAKE),
        rdma_destroy_srq: plain(V1_0).destroys(ReceiveQueue).page("rdma_create_srq"),
    } } };
}
pub(crate) use rows;
