/*
 * Objects that are made and destroyed again and again, alone, with their device, and as connections: the heap does not
 * grow. GROWTH_ROUNDS says how often; 320. Run it with GLIBC_TUNABLES=glibc.malloc.tcache_count=0: what glibc keeps for
 * the next malloc of a thread counts as used, and grows for a few hundred rounds.
 */
#include "cm_kit.h"
#include <malloc.h>

/* Rounds before it is measured. They are multiples of 32: the memory of the 32 objects destroyed last is kept. */
#define FIRST 96
/* Bytes of a round at most. */
#define MOST 20

static struct ibv_context *opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CLAIM(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CLAIM(context);
	ibv_free_device_list(list);
	return context;
}

/* What is made on a context. */
enum { CQ = 1, MR = 2, QP = 4, SRQ = 8, AH = 16 };

static void made_and_destroyed(struct ibv_context *context, int what)
{
	struct ibv_pd *domain = ibv_alloc_pd(context);
	struct ibv_cq *queue = what & CQ ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	struct ibv_mr *region = what & MR ? ibv_reg_mr(domain, memory, 4096, RIGHTS) : NULL;
	struct ibv_srq_init_attr depth = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_srq *shared = what & SRQ ? ibv_create_srq(domain, &depth) : NULL;
	struct ibv_qp_init_attr wants = {
		.send_cq = queue, .recv_cq = queue, .cap = {4, 4, 1, 1}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *pair = what & QP ? ibv_create_qp(domain, &wants) : NULL;
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *handle = what & AH ? ibv_create_ah(domain, &address) : NULL;
	CLAIM(domain && !queue == !(what & CQ) && !region == !(what & MR) && !pair == !(what & QP));
	CLAIM(!shared == !(what & SRQ) && !handle == !(what & AH));
	if (handle)
		FAILS(ibv_destroy_ah(handle), 0);
	if (pair)
		FAILS(ibv_destroy_qp(pair), 0);
	if (shared)
		FAILS(ibv_destroy_srq(shared), 0);
	if (region)
		FAILS(ibv_dereg_mr(region), 0);
	if (queue)
		FAILS(ibv_destroy_cq(queue), 0);
	FAILS(ibv_dealloc_pd(domain), 0);
}

static void list(void)
{
	ibv_free_device_list(ibv_get_device_list(NULL));
}

static void device(void)
{
	FAILS(ibv_close_device(opened()), 0);
}

static void device_and_objects(void)
{
	struct ibv_context *context = opened();
	made_and_destroyed(context, CQ | MR | QP | SRQ);
	FAILS(ibv_close_device(context), 0);
}

static void objects(void)
{
	made_and_destroyed(ctx, CQ | MR | QP | SRQ | AH);
}

static void regions(void)
{
	made_and_destroyed(ctx, MR);
}

static void channels(void)
{
	struct ibv_comp_channel *one = ibv_create_comp_channel(ctx);
	struct rdma_event_channel *other = rdma_create_event_channel();
	CLAIM(one && other);
	FAILS(ibv_destroy_comp_channel(one), 0);
	rdma_destroy_event_channel(other);
}

/* Identifiers that resolve an address, and end. */
static void identifiers(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	CLAIM(rdma_destroy_id(asks) == 0 && rdma_destroy_id(waits) == 0);
}

static struct rdma_cm_id *waits_always;
static struct sockaddr_in waits_at;

/* Connections at once. Each is kept until its timewait has ended, for which the connection manager has to remember it. */
#define AT_ONCE 32

static struct rdma_cm_id *asks[AT_ONCE], *asked[AT_ONCE];

static void connect_one(int i)
{
	asks[i] = resolved(RDMA_PS_TCP, &waits_at);
	give_queue_pair(asks[i]);
	struct rdma_conn_param says = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	CLAIM(rdma_connect(asks[i], &says) == 0);
	struct rdma_cm_event *request = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	asked[i] = request->id;
	give_queue_pair(asked[i]);
	CLAIM(rdma_accept(asked[i], &says) == 0 && rdma_ack_cm_event(request) == 0);
	see(active, asks[i], RDMA_CM_EVENT_ESTABLISHED, 0);
	see(passive, asked[i], RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* Events of an identifier up to the last one. */
static void await_end(struct rdma_event_channel *of, int ends)
{
	while (ends) {
		struct rdma_cm_event *event;
		struct pollfd wait = {.fd = of->fd, .events = POLLIN};
		CLAIM(poll(&wait, 1, 60000) == 1 && rdma_get_cm_event(of, &event) == 0);
		CLAIM(event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		ends -= event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT;
		if (event->event == RDMA_CM_EVENT_DISCONNECTED)
			rdma_disconnect(event->id);
		CLAIM(rdma_ack_cm_event(event) == 0);
	}
}

static void connections(void)
{
	for (int i = 0; i < AT_ONCE; i++)
		connect_one(i);
	for (int i = 0; i < AT_ONCE; i++)
		CLAIM(rdma_disconnect(asks[i]) == 0);
	await_end(passive, AT_ONCE);
	await_end(active, AT_ONCE);
	for (int i = 0; i < AT_ONCE; i++) {
		gone(asks[i]);
		gone(asked[i]);
	}
}

static int is_leaking;

/* `objects`: how many a round has. */
static void measure(const char *name, void (*round)(void), int rounds, int objects)
{
	for (int i = 0; i < FIRST; i += objects)
		round();
	struct mallinfo2 before = mallinfo2();
	for (int i = 0; i < rounds; i += objects)
		round();
	struct mallinfo2 after = mallinfo2();
	long bytes = (long)(after.uordblks + after.hblkhd) - (long)(before.uordblks + before.hblkhd);
	printf("%s: %ld bytes a round\n", name, bytes / rounds);
	fflush(stdout);
	is_leaking |= bytes / rounds > MOST;
}

int main(void)
{
	int rounds = getenv("GROWTH_ROUNDS") ? atoi(getenv("GROWTH_ROUNDS")) : 320;
	measure("the list of devices", list, rounds, 1);
	measure("a device", device, rounds, 1);
	measure("a device and objects on it", device_and_objects, rounds, 1);
	open_device();
	measure("objects on one device", objects, rounds, 1);
	measure("regions", regions, rounds, 1);
	measure("channels", channels, rounds, 1);
	begin();
	measure("identifiers", identifiers, rounds, 1);
	waits_always = listener(RDMA_PS_TCP, &waits_at);
	measure("connections", connections, rounds, AT_ONCE);
	CLAIM(!is_leaking);
	return 0;
}
