/* Datagrams, groups, and synchronous identifiers. */
#include "probe.h"

static const char text[255] = "what the peer is told";

static void groups(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *tcp = listening(on, RDMA_PS_TCP), *id = identifier(on, RDMA_PS_UDP);
	struct rdma_cm_event said;
	PROBE("rdma_join_multicast of a stream", rdma_join_multicast(tcp, AT("239.1.2.3", 0), NULL));
	PROBE("rdma_join_multicast without an address", rdma_join_multicast(id, AT("239.1.2.3", 0), NULL));
	MUST(!rdma_bind_addr(id, AT(own, 0)));
	PROBE("rdma_join_multicast without a queue pair", rdma_join_multicast(id, AT("239.1.2.3", 0), on));
	next_event(on, &said);
	say("its event", "%s status %d, context %d, number %#x, Q_Key %#x", rdma_event_str(said.event), said.status,
	    said.param.ud.private_data == on, said.param.ud.qp_num, said.param.ud.qkey);
	PROBE("rdma_leave_multicast of another", rdma_leave_multicast(id, AT("239.1.2.4", 0)));
	PROBE("rdma_leave_multicast", rdma_leave_multicast(id, AT("239.1.2.3", 0)));
	PROBE("rdma_leave_multicast again", rdma_leave_multicast(id, AT("239.1.2.3", 0)));
	MUST(!with_queue_pair(id));
	PROBE("rdma_join_multicast", rdma_join_multicast(id, AT("239.1.2.3", 0), NULL));
	told("its event", on, 20000);
	PROBE("rdma_join_multicast twice", rdma_join_multicast(id, AT("239.1.2.3", 0), NULL));
	told("its event", on, 20000);
	PROBE("rdma_leave_multicast of one", rdma_leave_multicast(id, AT("239.1.2.3", 0)));
	rdma_destroy_qp(id);
	PROBE("rdma_destroy_id of a member", rdma_destroy_id(id));
	rdma_destroy_id(tcp);
	rdma_destroy_event_channel(on);
}

void probe_datagrams(void)
{
	groups();
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = resolved(on, RDMA_PS_UDP, 9);
	PROBE("rdma_create_qp for datagrams", with_queue_pair(id));
	attributes("for datagrams", id);
	PROBE("rdma_connect for datagrams with 181 bytes",
	      rdma_connect(id, &(struct rdma_conn_param){.private_data = text, .private_data_len = 181}));
	PROBE("rdma_connect for datagrams", rdma_connect(id, &(struct rdma_conn_param){0}));
	told("where none listens", on, 20000);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);

	struct pair pair = requested(RDMA_PS_UDP);
	attributes("of a question", pair.server);
	MUST(!with_queue_pair(pair.server));
	PROBE("rdma_accept for datagrams", rdma_accept(pair.server, &(struct rdma_conn_param){.private_data = text, .private_data_len = 3}));
	PROBE("rdma_accept for datagrams again", rdma_accept(pair.server, &(struct rdma_conn_param){0}));
	struct rdma_cm_event said;
	next_event(pair.here, &said);
	say("the client's event", "%s status %d, %d bytes, number %d, Q_Key %#x", rdma_event_str(said.event), said.status,
	    said.param.ud.private_data_len, said.param.ud.qp_num == pair.server->qp->qp_num, said.param.ud.qkey);
	told("the server's event", pair.there, 300);
	PROBE("rdma_disconnect for datagrams", rdma_disconnect(pair.client));
	gone(&pair);

	pair = requested(RDMA_PS_UDP);
	PROBE("rdma_reject for datagrams", rdma_reject(pair.server, text, 3));
	told("the client's event", pair.here, 20000);
	gone(&pair);

	pair = requested(RDMA_PS_UDP);
	MUST(!with_queue_pair(pair.server));
	PROBE("rdma_accept for datagrams with 137 bytes",
	      rdma_accept(pair.server, &(struct rdma_conn_param){.private_data = text, .private_data_len = 137}));
	told("the client's event", pair.here, 20000);
	gone(&pair);
}

void probe_synchronous(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id, *request;
	PROBE("rdma_create_id without a channel", rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	PROBE("rdma_migrate_id without a channel", rdma_migrate_id(id, NULL));
	PROBE("rdma_resolve_addr of a synchronous one, down", rdma_resolve_addr(id, NULL, AT(dead, 7471), 600));
	say("its event", "%s status %d", rdma_event_str(id->event->event), id->event->status);
	PROBE("rdma_resolve_addr of a synchronous one", rdma_resolve_addr(id, NULL, AT(own, 9), 600));
	PROBE("rdma_resolve_route of a synchronous one", rdma_resolve_route(id, 600));
	MUST(!with_queue_pair(id));
	PROBE("rdma_connect of a synchronous one", rdma_connect(id, NULL));
	say("its event", "%s status %d", rdma_event_str(id->event->event), id->event->status);
	PROBE("rdma_migrate_id to a channel", rdma_migrate_id(id, on));
	say("its event", "%d", !!id->event);
	PROBE("rdma_get_request of one with a channel", rdma_get_request(id, &request));
	rdma_destroy_qp(id);
	PROBE("rdma_destroy_id of what was synchronous", rdma_destroy_id(id));

	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr wanted = {.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1}};
	MUST(!rdma_getaddrinfo(dead, "7471", &hints, &found));
	PROBE("rdma_create_ep, down", rdma_create_ep(&id, found, NULL, NULL));
	rdma_freeaddrinfo(found);
	MUST(!rdma_getaddrinfo(own, "9", &hints, &found));
	PROBE("rdma_create_ep", rdma_create_ep(&id, found, NULL, &wanted));
	say("its fields", "verbs %d, qp %d, channels %d", !!id->verbs, !!id->qp, !!id->send_cq_channel);
	PROBE("rdma_connect of an endpoint", rdma_connect(id, NULL));
	rdma_freeaddrinfo(found);
	rdma_destroy_ep(id);
	rdma_destroy_event_channel(on);
}
