/* Loopback beside real addresses: 127.0.0.1 and ::1 are no GIDs there, and connections to them are made nevertheless.
 * Link-local addresses are GIDs, and lead to the link that they are on. Moves to network namespaces of its own; exit code
 * 77: it may not. */
#define _GNU_SOURCE
#include "expect.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct ibv_qp_init_attr four(void)
{
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	return wants;
}

/* A socket address from text, with the scope of a link-local one. */
static struct sockaddr_storage name(const char *text, uint16_t port)
{
	struct sockaddr_storage storage = {0};
	struct sockaddr_in6 *v6 = (void *)&storage;
	struct sockaddr_in *v4 = (void *)&storage;
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
			v6->sin6_scope_id = if_nametoindex("link");
	} else {
		CLAIM(inet_pton(AF_INET, text, &v4->sin_addr) == 1);
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
	}
	return storage;
}

static struct rdma_cm_id *listening(const char *at, uint16_t *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage address = name(at, 0);
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_bind_addr(id, (struct sockaddr *)&address) == 0);
	CLAIM(rdma_listen(id, 4) == 0);
	*port = ntohs(rdma_get_src_port(id));
	return id;
}

/* An interface joins the group in which its new address is searched for some time after "ip address add" has returned. A
 * search that comes before is repeated after a second. */
enum { RESOLVE_MS = 5000 };

static char out[2][64], in[2][64];

/* A receive is posted before the peer can send. */
static void expect(struct rdma_cm_id *id, int first)
{
	struct ibv_mr *region = rdma_reg_msgs(id, in[first], 64);
	CLAIM(region && rdma_post_recv(id, NULL, in[first], 64, region) == 0);
}

/* A connection to the address; what it ended with. */
static enum rdma_cm_event_type called(const char *to, uint16_t port, const char *from, struct rdma_cm_id **id)
{
	struct sockaddr_storage address = name(to, port), source = from ? name(from, 0) : address;
	struct ibv_qp_init_attr wants = four();
	struct rdma_conn_param says = {.retry_count = 7, .rnr_retry_count = 7};
	CLAIM(rdma_create_id(NULL, id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_resolve_addr(*id, from ? (struct sockaddr *)&source : NULL, (struct sockaddr *)&address, RESOLVE_MS) == 0);
	CLAIM(rdma_resolve_route(*id, RESOLVE_MS) == 0);
	CLAIM(rdma_create_qp(*id, NULL, &wants) == 0);
	expect(*id, 1);
	rdma_connect(*id, &says);
	return (*id)->event->event;
}

/* Both ends of an exchange of 64 bytes each way. */
static void talk(struct rdma_cm_id *id, int first)
{
	struct ibv_wc wc;
	struct ibv_mr *said = rdma_reg_msgs(id, out[first], 64);
	CLAIM(said);
	memset(out[first], first ? 'a' : 'b', 64);
	if (first)
		CLAIM(rdma_post_send(id, NULL, out[first], 64, said, 0) == 0);
	CLAIM(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 64);
	CLAIM(in[first][0] == (first ? 'b' : 'a') && in[first][63] == in[first][0]);
	if (!first)
		CLAIM(rdma_post_send(id, NULL, out[first], 64, said, 0) == 0);
	CLAIM(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

/* Takes one request, and talks. */
static void serve(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;
	struct ibv_qp_init_attr wants = four();
	CLAIM(rdma_get_request(listener, &id) == 0);
	CLAIM(rdma_create_qp(id, NULL, &wants) == 0);
	expect(id, 0);
	CLAIM(rdma_accept(id, NULL) == 0);
	talk(id, 0);
	rdma_disconnect(id);
}

/* A child listens, this process calls. 0: it is served. */
static void pass(const char *at, const char *to, const char *from, int is_served)
{
	struct rdma_cm_id *id;
	uint16_t port = 0;
	int pipes[2];
	CLAIM(pipe(pipes) == 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		struct rdma_cm_id *listener = listening(at, &port);
		CLAIM(write(pipes[1], &port, sizeof(port)) == sizeof(port));
		if (!is_served)
			pause();
		serve(listener);
		exit(0);
	}
	CLAIM(read(pipes[0], &port, sizeof(port)) == sizeof(port));
	enum rdma_cm_event_type end = called(to, port, from, &id);
	if (end != (is_served ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_REJECTED)) {
		fprintf(stderr, "listening at %s, calling %s: %s\n", at, to, rdma_event_str(end));
		exit(1);
	}
	if (is_served) {
		int status;
		struct sockaddr_storage asked = name(to, port);
		talk(id, 1);
		CLAIM(rdma_get_peer_addr(id)->sa_family == asked.ss_family);
		/* The GIDs are the device's. */
		CLAIM(ibv_query_gid(id->verbs, 1, 0, &own_gid) == 0);
		if (!strncmp(to, "127", 3) || !strcmp(to, "0.0.0.0")) {
			struct sockaddr_in *local = (void *)rdma_get_local_addr(id);
			CLAIM(ntohl(local->sin_addr.s_addr) == INADDR_LOOPBACK);
			CLAIM(!memcmp(&id->route.addr.addr.ibaddr.sgid, &own_gid, 16));
			CLAIM(!memcmp(&id->route.addr.addr.ibaddr.dgid, &own_gid, 16));
		}
		rdma_disconnect(id);
		CLAIM(waitpid(child, &status, 0) == child && status == 0);
	} else {
		CLAIM(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	}
	rdma_destroy_qp(id);
	CLAIM(rdma_destroy_id(id) == 0);
}

/* Index of an address in the GID table, or -1. */
static int find(const char *text)
{
	struct ibv_gid_entry entries[16];
	struct sockaddr_storage address = name(text, 0);
	uint8_t wanted[16] = {[10] = 0xff, [11] = 0xff};
	if (address.ss_family == AF_INET)
		memcpy(wanted + 12, &((struct sockaddr_in *)&address)->sin_addr, 4);
	else
		memcpy(wanted, &((struct sockaddr_in6 *)&address)->sin6_addr, 16);
	ssize_t count = ibv_query_gid_table(ctx, entries, 16, 0);
	CLAIM(count > 0);
	for (ssize_t i = 0; i < count; i++)
		if (!memcmp(entries[i].gid.raw, wanted, 16))
			return entries[i].gid_index;
	return -1;
}

/* Whether an identifier that is bound to the address belongs to a device. */
static int has_device(const char *at)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage address = name(at, 0);
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_get_src_port(id));
	CLAIM(rdma_get_local_addr(id)->sa_family == address.ss_family);
	int has = id->verbs != NULL;
	CLAIM(has == (id->port_num == 1) && has == (id->pd != NULL));
	CLAIM(rdma_destroy_id(id) == 0);
	return has;
}

/* Over the link: the other end has addresses of fe80::/64 on two interfaces, and the right one is used. */
static void across(void)
{
	int pipes[2], back[2];
	char move[128];
	uint16_t port;
	struct rdma_cm_id *id;
	CLAIM(pipe(pipes) == 0 && pipe(back) == 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		uint8_t go;
		CLAIM(unshare(CLONE_NEWNET) == 0 && write(pipes[1], &port, sizeof(port)) == sizeof(port));
		CLAIM(read(back[0], &go, 1) == 1);
		CLAIM(system("ip link set lo up && ip link add name other type veth peer name other2 && ip link set dev other addrgenmode none up && "
			     "ip address add fe80::77/64 dev other nodad && ip link set dev peer name link && "
			     "ip link set dev link addrgenmode none up && ip address add fe80::2/64 dev link nodad") == 0);
		struct rdma_cm_id *listener = listening("fe80::2", &port);
		CLAIM(write(pipes[1], &port, sizeof(port)) == sizeof(port));
		serve(listener);
		exit(0);
	}
	CLAIM(read(pipes[0], &port, sizeof(port)) == sizeof(port));
	snprintf(move, sizeof(move), "ip link set dev peer netns %d", (int)child);
	CLAIM(system(move) == 0);
	CLAIM(write(back[1], "g", 1) == 1 && read(pipes[0], &port, sizeof(port)) == sizeof(port));
	enum rdma_cm_event_type end = called("fe80::2", port, "fe80::1", &id);
	if (end != RDMA_CM_EVENT_ESTABLISHED) {
		fprintf(stderr, "over the link: %s\n", rdma_event_str(end));
		exit(1);
	}
	talk(id, 1);
	int status;
	rdma_disconnect(id);
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	if (unshare(CLONE_NEWNET) ||
	    system("ip link set lo up && ip link add name link type veth peer name peer && ip link set dev link addrgenmode none up && "
		   "ip link set dev peer addrgenmode none up && ip address add 192.0.2.1/24 dev link && "
		   "ip address add 2001:db8::1/64 dev link nodad && ip address add fe80::1/64 dev link nodad"))
		return 77;
	open_device();
	CLAIM(find("192.0.2.1") == 0 && find("2001:db8::1") == 1 && find("fe80::1") == 2);
	CLAIM(find("127.0.0.1") == -1 && find("::1") == -1);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);

	pass("0.0.0.0", "127.0.0.1", NULL, 1);
	pass("127.0.0.1", "127.0.0.1", NULL, 1);
	pass("127.0.0.1", "127.0.0.1", "127.0.0.1", 1);
	pass("::", "127.0.0.1", NULL, 1);
	pass("::1", "::1", NULL, 1);
	pass("::", "::1", NULL, 1);
	pass("0.0.0.0", "0.0.0.0", NULL, 1);
	pass("192.0.2.1", "192.0.2.1", NULL, 1);
	/* As with sockets, a listener at another address is not asked. */
	pass("192.0.2.1", "127.0.0.1", NULL, 0);
	pass("127.0.0.1", "192.0.2.1", NULL, 0);
	pass("::1", "127.0.0.1", NULL, 0);
	pass("fe80::1", "fe80::1", NULL, 1);
	pass("::", "fe80::1", "fe80::1", 1);
	/* As in Linux. libfabric binds 127.0.0.1, and publishes that address if it gets a device by it. */
	CLAIM(!has_device("127.0.0.1") && !has_device("::1") && !has_device("0.0.0.0") && !has_device("::"));
	CLAIM(has_device("192.0.2.1") && has_device("2001:db8::1") && has_device("fe80::1"));
	across();
	return 0;
}
