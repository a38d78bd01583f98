/* What fault plans do to connections (tests/incidents.rs has the plan): a request of RC and one of UD to which no answer comes, at once;
 * and the addresses of the device lead elsewhere after the first call of ibv_query_pkey. The argument is the device's address. */
#include "cm_kit.h"

static void is_unreachable(enum rdma_port_space ps, struct sockaddr_in *to)
{
	struct rdma_cm_id *id = resolved(ps, to);
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	give_queue_pair(id);
	CLAIM(rdma_connect(id, &param) == 0);
	see(active, id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	rdma_destroy_qp(id);
	CLAIM(rdma_destroy_id(id) == 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in stream, datagram;
	CLAIM(argc == 2 && inet_pton(AF_INET, argv[1], &own.sin_addr) == 1);
	CLAIM((passive = rdma_create_event_channel()) && (active = rdma_create_event_channel()));
	struct rdma_cm_id *listens = listener(RDMA_PS_TCP, &stream), *serves = listener(RDMA_PS_UDP, &datagram);
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	is_unreachable(RDMA_PS_TCP, &stream);
	is_unreachable(RDMA_PS_UDP, &datagram);
	clock_gettime(CLOCK_MONOTONIC, &after);
	/* The last time-out of one such request comes after a minute. */
	CLAIM(after.tv_sec - before.tv_sec < 40);
	CLAIM(is_quiet(passive));

	struct rdma_cm_id *id = resolved(RDMA_PS_TCP, &stream);
	uint16_t pkey;
	CLAIM(ibv_query_pkey(id->verbs, 1, 0, &pkey) == 0);
	see(active, id, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	see(passive, listens, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	see(passive, serves, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	CLAIM(rdma_destroy_id(id) == 0 && rdma_destroy_id(listens) == 0 && rdma_destroy_id(serves) == 0);
	return 0;
}
