/* What programs share that connect to themselves: a listener and a client in one process, on one event channel. */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ends {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *client, *server;
};

/* Says what failed; 1, or 0 if nothing did. */
static int complain(const char *what, int failed)
{
	if (failed)
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return failed != 0;
}

static int make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	return complain("rdma_create_qp", rdma_create_qp(id, NULL, &wants));
}

/* The listener, and a client that has resolved its way to it. */
static int make_ends(struct ends *ends)
{
	memset(ends, 0, sizeof(*ends));
	if (!(ends->channel = rdma_create_event_channel()))
		return complain("rdma_create_event_channel", -1);
	if (complain("rdma_create_id", rdma_create_id(ends->channel, &ends->listener, NULL, RDMA_PS_TCP)))
		return 1;
	const char *own = getenv("PUMICE_ADDR");
	struct sockaddr_in address = {.sin_family = AF_INET};
	if (inet_pton(AF_INET, own ? own : "127.0.0.1", &address.sin_addr) != 1)
		return 1;
	if (complain("rdma_bind_addr", rdma_bind_addr(ends->listener, (struct sockaddr *)&address)) ||
	    complain("rdma_listen", rdma_listen(ends->listener, 1)))
		return 1;
	address.sin_port = rdma_get_src_port(ends->listener);
	/* Without a channel of its own, calls of this identifier return when they are done. */
	if (complain("rdma_create_id", rdma_create_id(NULL, &ends->client, NULL, RDMA_PS_TCP)) ||
	    complain("rdma_resolve_addr", rdma_resolve_addr(ends->client, NULL, (struct sockaddr *)&address, 1000)) ||
	    complain("rdma_resolve_route", rdma_resolve_route(ends->client, 1000)))
		return 1;
	return make_queue_pair(ends->client) ||
	       complain("rdma_migrate_id", rdma_migrate_id(ends->client, ends->channel));
}

static int give_back(struct ends *ends)
{
	int failed = 0;
	if (ends->server) {
		if (ends->server->qp)
			rdma_destroy_qp(ends->server);
		failed |= complain("rdma_destroy_id", rdma_destroy_id(ends->server));
	}
	if (ends->client) {
		if (ends->client->qp)
			rdma_destroy_qp(ends->client);
		failed |= complain("rdma_destroy_id", rdma_destroy_id(ends->client));
	}
	if (ends->listener)
		failed |= complain("rdma_destroy_id", rdma_destroy_id(ends->listener));
	if (ends->channel)
		rdma_destroy_event_channel(ends->channel);
	return failed;
}

/* Accepts the request of an event. */
static int serve(struct ends *ends, struct rdma_cm_id *id)
{
	struct rdma_conn_param wants = {.rnr_retry_count = 7};
	ends->server = id;
	return make_queue_pair(id) || complain("rdma_accept", rdma_accept(id, &wants));
}
