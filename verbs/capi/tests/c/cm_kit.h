/* For programs about librdmacm: two channels, events that are expected, identifiers on their way. `own` is to be set. */
#include "expect.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

/* A call that returns -1 and this errno. */
#define REFUSES(call, number) CLAIM((errno = 0, (call) == -1) && errno == (number))

static struct rdma_event_channel *passive, *active;
static struct sockaddr_in own = {.sin_family = AF_INET};

/* The next event of a channel, which must be this one. */
__attribute__((unused)) static struct rdma_cm_event *next(struct rdma_event_channel *of, enum rdma_cm_event_type wanted, int status)
{
	struct rdma_cm_event *event;
	struct pollfd wait = {.fd = of->fd, .events = POLLIN};
	CLAIM(poll(&wait, 1, 60000) == 1);
	CLAIM(rdma_get_cm_event(of, &event) == 0);
	if (event->event != wanted || event->status != status) {
		fprintf(stderr, "%s, status %d, and not %s, status %d\n", rdma_event_str(event->event), event->status,
			rdma_event_str(wanted), status);
		exit(1);
	}
	return event;
}

__attribute__((unused)) static void see(struct rdma_event_channel *of, struct rdma_cm_id *id, enum rdma_cm_event_type wanted, int status)
{
	struct rdma_cm_event *event = next(of, wanted, status);
	CLAIM(event->id == id);
	CLAIM(rdma_ack_cm_event(event) == 0);
}

__attribute__((unused)) static int is_quiet(struct rdma_event_channel *of)
{
	struct pollfd wait = {.fd = of->fd, .events = POLLIN};
	return poll(&wait, 1, 0) == 0;
}

__attribute__((unused)) static struct rdma_cm_id *listener(enum rdma_port_space ps, struct sockaddr_in *at)
{
	struct rdma_cm_id *id;
	*at = own;
	CLAIM(rdma_create_id(passive, &id, &passive, ps) == 0);
	CLAIM(rdma_bind_addr(id, (struct sockaddr *)at) == 0);
	CLAIM((at->sin_port = rdma_get_src_port(id)) != 0 && rdma_get_dst_port(id) == 0);
	CLAIM(id->verbs && id->pd && id->port_num == 1 && id->context == &passive);
	CLAIM(rdma_listen(id, 4) == 0);
	return id;
}

/* An identifier that only has to connect. */
__attribute__((unused)) static struct rdma_cm_id *resolved(enum rdma_port_space ps, struct sockaddr_in *to)
{
	struct rdma_cm_id *id;
	CLAIM(rdma_create_id(active, &id, NULL, ps) == 0);
	REFUSES(rdma_resolve_route(id, 100), EINVAL);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 100) == 0);
	see(active, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CLAIM(id->verbs && rdma_get_dst_port(id) == to->sin_port);
	REFUSES(rdma_connect(id, NULL), EINVAL);
	CLAIM(rdma_resolve_route(id, 100) == 0);
	see(active, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	CLAIM(id->route.num_paths == 1 && id->route.path_rec);
	return id;
}

__attribute__((unused)) static void give_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = id->qp_type,
		.sq_sig_all = 1,
	};
	CLAIM(rdma_create_qp(id, NULL, &wants) == 0);
	CLAIM(id->qp && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
	REFUSES(rdma_create_qp(id, NULL, &wants), EINVAL);
}

__attribute__((unused)) static void gone(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CLAIM(id->qp == NULL && id->send_cq == NULL);
	CLAIM(rdma_destroy_id(id) == 0);
}

/* The address of this run, and the channels. */
__attribute__((unused)) static void begin(void)
{
	CLAIM(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	CLAIM((passive = rdma_create_event_channel()) && (active = rdma_create_event_channel()));
}
