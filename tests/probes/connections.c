/* Connections: made, refused, and ended. */
#include "probe.h"

static const char text[255] = "what the peer is told";

static int connect_with(struct rdma_cm_id *id, struct rdma_conn_param with)
{
	return rdma_connect(id, &with);
}

static int accept_with(struct rdma_cm_id *id, uint8_t length)
{
	struct rdma_conn_param with = {.private_data = text, .private_data_len = length, .responder_resources = 1, .initiator_depth = 1};
	return rdma_accept(id, &with);
}

static void refused(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = resolved(on, RDMA_PS_TCP, 9);
	PROBE("rdma_connect without a queue pair", connect_with(id, (struct rdma_conn_param){.qp_num = 77}));
	told("where none listens", on, 20000);
	attributes("refused", id);
	PROBE("rdma_connect again", connect_with(id, (struct rdma_conn_param){.qp_num = 77}));
	PROBE("rdma_disconnect of what was refused", rdma_disconnect(id));
	PROBE("rdma_create_qp of what was refused", with_queue_pair(id));
	rdma_destroy_id(id);
	id = resolved(on, RDMA_PS_TCP, 9);
	PROBE("rdma_connect with 57 bytes", connect_with(id, (struct rdma_conn_param){.private_data = text, .private_data_len = 57}));
	rdma_destroy_id(id);
	id = resolved(on, RDMA_PS_TCP, 9);
	PROBE("rdma_connect with 200 resources", connect_with(id, (struct rdma_conn_param){.responder_resources = 200}));
	PROBE("rdma_connect with 200 READs", connect_with(id, (struct rdma_conn_param){.initiator_depth = 200}));
	PROBE("rdma_connect with 56 bytes", connect_with(id, (struct rdma_conn_param){.private_data = text, .private_data_len = 56}));
	told("its event", on, 20000);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);
}

static void asked(void)
{
	struct rdma_event_channel *there = channel(), *here = channel();
	struct rdma_cm_id *listener = listening(there, RDMA_PS_TCP), *client = resolved(here, RDMA_PS_TCP, port_of(listener));
	struct rdma_cm_event said;
	listener->context = here;
	PROBE("rdma_create_qp of a client", with_queue_pair(client));
	struct rdma_conn_param with = {.private_data = text, .private_data_len = 9, .initiator_depth = 3, .responder_resources = 5,
				       .retry_count = 6, .rnr_retry_count = 4};
	PROBE("rdma_connect", rdma_connect(client, &with));
	next_event(there, &said);
	struct rdma_conn_param *param = &said.param.conn;
	say("a request", "%s status %d, %d bytes, depths %d and %d, retries %d and %d, srq %d, flow control %d", rdma_event_str(said.event),
	    said.status, param->private_data_len, param->responder_resources, param->initiator_depth, param->retry_count,
	    param->rnr_retry_count, param->srq, param->flow_control);
	struct rdma_cm_id *server = said.id;
	say("its identifier", "listener %d, context %d, verbs %d, type %d, paths %d, ports %d", said.listen_id == listener,
	    server->context == here, !!server->verbs, server->qp_type, server->route.num_paths, port_of(server) == port_of(listener));
	attributes("requested", server);
	attributes("requesting", client);
	PROBE("rdma_connect while it connects", rdma_connect(client, &with));
	PROBE("rdma_connect of a request", rdma_connect(server, &with));
	PROBE("rdma_listen of a request", rdma_listen(server, 1));
	PROBE("rdma_bind_addr of a request", rdma_bind_addr(server, AT(own, 0)));
	PROBE("rdma_notify of a request", rdma_notify(server, IBV_EVENT_COMM_EST));
	PROBE("rdma_accept by the client", accept_with(client, 0));
	PROBE("rdma_create_qp of a request", with_queue_pair(server));
	PROBE("rdma_accept with 200 resources",
	      rdma_accept(server, &(struct rdma_conn_param){.responder_resources = 200}));
	PROBE("rdma_accept", accept_with(server, 7));
	PROBE("rdma_accept again", accept_with(server, 7));
	told("the client's event", here, 20000);
	told("the server's event", there, 20000);
	attributes("the client's, connected", client);
	attributes("the server's, connected", server);
	PROBE("rdma_accept of what is connected", accept_with(server, 0));
	PROBE("rdma_reject of what is connected", rdma_reject(server, NULL, 0));
	PROBE("rdma_connect of what is connected", rdma_connect(client, &with));
	PROBE("rdma_notify of what is connected", rdma_notify(server, IBV_EVENT_COMM_EST));
	PROBE("rdma_resolve_route of what is connected", rdma_resolve_route(client, 100));
	struct pair all = {there, here, listener, server, client};
	gone(&all);
}

static void rejected(void)
{
	struct pair pair = requested(RDMA_PS_TCP);
	PROBE("rdma_reject of a listener", rdma_reject(pair.listener, NULL, 0));
	PROBE("rdma_reject with 149 bytes", rdma_reject(pair.server, text, 149));
	PROBE("rdma_reject", rdma_reject(pair.server, text, 5));
	PROBE("rdma_reject again", rdma_reject(pair.server, text, 5));
	PROBE("rdma_accept of what was rejected", accept_with(pair.server, 0));
	told("the client's event", pair.here, 20000);
	PROBE("rdma_create_qp of what was rejected", with_queue_pair(pair.server));
	told("the server's event", pair.there, 300);
	gone(&pair);

	pair = requested(RDMA_PS_TCP);
	MUST(!with_queue_pair(pair.server));
	PROBE("rdma_accept with 197 bytes", accept_with(pair.server, 197));
	told("the client's event", pair.here, 20000);
	PROBE("rdma_accept of what failed", accept_with(pair.server, 0));
	told("the server's event", pair.there, 300);
	gone(&pair);

	pair = requested(RDMA_PS_TCP);
	MUST(!with_queue_pair(pair.server));
	PROBE("rdma_accept with 196 bytes", accept_with(pair.server, 196));
	told("the client's event", pair.here, 20000);
	told("the server's event", pair.there, 20000);
	gone(&pair);

	pair = requested(RDMA_PS_TCP);
	MUST(!rdma_destroy_id(pair.server));
	pair.server = NULL;
	told("of a request that was destroyed", pair.here, 20000);
	gone(&pair);
}

void probe_connecting(void)
{
	refused();
	asked();
	rejected();
	struct pair pair = requested(RDMA_PS_TCP);
	rdma_destroy_qp(pair.client);
	MUST(!rdma_destroy_id(pair.client));
	pair.client = NULL;
	told("of a request that was given up", pair.there, 500);
	attributes("given up", pair.server);
	PROBE("rdma_create_qp of a request that was given up", with_queue_pair(pair.server));
	PROBE("rdma_accept of a request that was given up", accept_with(pair.server, 0));
	PROBE("rdma_reject of a request that was given up", rdma_reject(pair.server, NULL, 0));
	told("then", pair.there, 300);
	gone(&pair);

	pair = requested(RDMA_PS_TCP);
	struct rdma_event_channel *other = channel();
	PROBE("rdma_migrate_id of a request", rdma_migrate_id(pair.server, other));
	MUST(!with_queue_pair(pair.server));
	MUST(!accept_with(pair.server, 0));
	told("the event of the client", pair.here, 20000);
	told("the event on the other channel", other, 20000);
	gone(&pair);
	rdma_destroy_event_channel(other);
}

void probe_ending(void)
{
	struct pair pair = connected();
	PROBE("rdma_disconnect of a listener", rdma_disconnect(pair.listener));
	PROBE("rdma_disconnect", rdma_disconnect(pair.client));
	told("the server's event", pair.there, 20000);
	attributes("the peer has disconnected", pair.server);
	PROBE("rdma_disconnect of the server", rdma_disconnect(pair.server));
	told("the client's event", pair.here, 20000);
	PROBE("rdma_disconnect again", rdma_disconnect(pair.client));
	PROBE("rdma_connect of what has ended", connect_with(pair.client, (struct rdma_conn_param){0}));
	PROBE("rdma_accept of what has ended", accept_with(pair.server, 0));
	PROBE("rdma_resolve_addr of what has ended", rdma_resolve_addr(pair.client, NULL, AT(own, 9), 100));
	gone(&pair);

	pair = connected();
	rdma_destroy_qp(pair.client);
	MUST(!rdma_destroy_id(pair.client));
	pair.client = NULL;
	told("when the peer is destroyed", pair.there, 20000);
	rdma_destroy_qp(pair.server);
	PROBE("rdma_disconnect without a queue pair", rdma_disconnect(pair.server));
	gone(&pair);

	pair = connected();
	MUST(!rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	told("when the listener is destroyed", pair.there, 300);
	gone(&pair);
}
