/* Two processes that exchange data through UCX (UCP) and compare every byte: tagged messages and active messages of
 * many sizes both ways, put, get, and atomics on the peer's memory.
 *
 *   ucx-verify -p PORT              waits
 *   ucx-verify -p PORT 127.0.0.1    connects, and prints what was verified
 *
 * UCX_TLS and UCX_NET_DEVICES choose the transport. TCP carries addresses and says when it is whose turn. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define MAX_BYTES (2u << 20)
/* Around what is written into memory; must stay as it is. */
#define MARGIN 64u
/* How long the program may take, unless PUMICE_ACCEPT_SECONDS says it. */
#define PATIENCE_SECONDS 30
#define ATOMICS 100
#define AM_ID 7

static const size_t SIZES[] = {1, 7, 8, 63, 64, 255, 1024, 4000, 4096, 4097, 8200, 30000, 65536, 262144, 1000003, MAX_BYTES};

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static int peer = -1;
static int client;
static time_t deadline;
static unsigned long verified, verified_bytes;

static void die(const char *what, ucs_status_t status)
{
	fprintf(stderr, "ucx-verify %s: %s: %s\n", client ? "client" : "server", what,
		status == UCS_OK ? strerror(errno) : ucs_status_string(status));
	exit(1);
}

static void must(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		die(what, status);
}

/* Lets UCX work, for a limited time altogether. */
static void progress(const char *what)
{
	ucp_worker_progress(worker);
	if (time(NULL) > deadline)
		die(what, UCS_ERR_TIMED_OUT);
}

static void wait_for(ucs_status_ptr_t request, const char *what)
{
	if (request == NULL)
		return;
	if (UCS_PTR_IS_ERR(request))
		die(what, UCS_PTR_STATUS(request));
	ucs_status_t status;
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		progress(what);
	must(status, what);
	ucp_request_free(request);
}

static void tell(const void *bytes, size_t length)
{
	const char *next = bytes;
	while (length > 0) {
		ssize_t sent = send(peer, next, length, MSG_NOSIGNAL);
		if (sent > 0) {
			next += sent;
			length -= sent;
		} else if (errno != EAGAIN && errno != EINTR) {
			die("TCP send", UCS_OK);
		}
	}
}

/* What the peer tells; UCX works meanwhile, because the peer's one-sided operations may need it. */
static void hear(void *bytes, size_t length)
{
	char *next = bytes;
	while (length > 0) {
		ssize_t got = recv(peer, next, length, 0);
		if (got > 0) {
			next += got;
			length -= got;
		} else if (got == 0) {
			fprintf(stderr, "ucx-verify: the peer is gone\n");
			exit(1);
		} else if (errno == EAGAIN || errno == EINTR) {
			if (worker != NULL)
				progress("waiting for the peer");
		} else {
			die("TCP recv", UCS_OK);
		}
	}
}

static void turn(void)
{
	char other, own = 't';
	tell(&own, 1);
	hear(&other, 1);
}

static unsigned char byte_at(size_t seed, size_t index)
{
	return (unsigned char)((index * 2654435761u ^ seed * 40503u) >> 7);
}

static void fill(unsigned char *bytes, size_t length, size_t seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = byte_at(seed, i);
}

static void check(const unsigned char *bytes, size_t length, size_t seed, const char *what)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != byte_at(seed, i)) {
			fprintf(stderr, "ucx-verify: %s of %zu bytes: byte %zu is %#x, not %#x\n", what, length, i, bytes[i],
				byte_at(seed, i));
			exit(1);
		}
	}
	verified++;
	verified_bytes += length;
}

static void connect_tcp(int port, const char *host)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (host) {
		inet_pton(AF_INET, host, &address.sin_addr);
		if (connect(fd, (struct sockaddr *)&address, sizeof address))
			die("TCP connect", UCS_OK);
		peer = fd;
	} else {
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1))
			die("TCP listen", UCS_OK);
		peer = accept(fd, NULL, NULL);
		close(fd);
	}
	if (peer < 0 || fcntl(peer, F_SETFL, O_NONBLOCK))
		die("TCP", UCS_OK);
}

/* Sends a blob with its length, and gives the peer's. */
static void *swap(const void *own, size_t length, size_t *other_length)
{
	uint64_t header = length;
	tell(&header, sizeof header);
	tell(own, length);
	hear(&header, sizeof header);
	void *other = malloc(header);
	hear(other, header);
	if (other_length)
		*other_length = header;
	return other;
}

static void send_tagged(const void *bytes, size_t length, ucp_tag_t tag)
{
	ucp_request_param_t plain = {0};
	wait_for(ucp_tag_send_nbx(endpoint, bytes, length, tag, &plain), "tag send");
}

static void receive_tagged(void *bytes, size_t length, ucp_tag_t tag)
{
	ucp_request_param_t plain = {0};
	memset(bytes, 0, length);
	wait_for(ucp_tag_recv_nbx(worker, bytes, length, tag, (ucp_tag_t)-1, &plain), "tag receive");
}

/* A message may arrive before the receiver waits for it. */
static unsigned char am_bytes[MAX_BYTES];
static size_t am_length;
static void *am_announced;
static volatile int am_arrived;

static ucs_status_t on_active_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
				      const ucp_am_recv_param_t *param)
{
	(void)arg;
	am_length = length;
	if (header_length != 4 || memcmp(header, "head", 4) || length > MAX_BYTES)
		die("active message: wrong header or length", UCS_ERR_INVALID_PARAM);
	am_arrived = 1;
	if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
		am_announced = data;
		return UCS_INPROGRESS;
	}
	memcpy(am_bytes, data, length);
	return UCS_OK;
}

static void send_active(const void *bytes, size_t length)
{
	ucp_request_param_t plain = {0};
	wait_for(ucp_am_send_nbx(endpoint, AM_ID, "head", 4, bytes, length, &plain), "active message");
}

static void receive_active(size_t length)
{
	while (!am_arrived)
		progress("waiting for an active message");
	if (am_announced) {
		ucp_request_param_t plain = {0};
		wait_for(ucp_am_recv_data_nbx(worker, am_announced, am_bytes, length, &plain), "data of an active message");
	}
	if (am_length != length)
		die("active message of another length", UCS_ERR_INVALID_PARAM);
	am_announced = NULL;
	am_arrived = 0;
}

static void flush(void)
{
	ucp_request_param_t plain = {0};
	wait_for(ucp_ep_flush_nbx(endpoint, &plain), "flush");
}

int main(int argc, char **argv)
{
	int port = 0, option;
	size_t longest = MAX_BYTES;
	while ((option = getopt(argc, argv, "p:m:")) != -1) {
		if (option == 'p')
			port = atoi(optarg);
		else if (option == 'm')
			longest = strtoul(optarg, NULL, 10);
		else
			return 2;
	}
	const char *host = argv[optind], *patience = getenv("PUMICE_ACCEPT_SECONDS");
	client = host != NULL;
	deadline = time(NULL) + (patience ? atoi(patience) : PATIENCE_SECONDS);

	ucp_config_t *config;
	ucp_context_h context;
	must(ucp_config_read(NULL, NULL, &config), "configuration");
	ucp_params_t wanted = {.field_mask = UCP_PARAM_FIELD_FEATURES,
			       .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM};
	must(ucp_init(&wanted, config, &context), "ucp_init");
	ucp_config_release(config);
	connect_tcp(port, host);

	ucp_worker_params_t threads = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
	must(ucp_worker_create(context, &threads, &worker), "worker");
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
					  .id = AM_ID,
					  .cb = on_active_message};
	must(ucp_worker_set_am_recv_handler(worker, &handler), "active message handler");
	ucp_address_t *own_address;
	size_t length;
	must(ucp_worker_get_address(worker, &own_address, &length), "worker address");
	ucp_address_t *address = swap(own_address, length, NULL);
	ucp_worker_release_address(worker, own_address);
	ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
	must(ucp_ep_create(worker, &to, &endpoint), "endpoint");

	unsigned char *local = malloc(MAX_BYTES), *shared = aligned_alloc(4096, MAX_BYTES + 4096);
	memset(shared, 0xee, MAX_BYTES + 4096);
	ucp_mem_map_params_t region = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
				       .address = shared,
				       .length = MAX_BYTES + 4096};
	ucp_mem_h memory;
	must(ucp_mem_map(context, &region, &memory), "memory");
	void *packed;
	must(ucp_rkey_pack(context, memory, &packed, &length), "key");
	void *key = swap(packed, length, NULL);
	ucp_rkey_buffer_release(packed);
	ucp_rkey_h rkey;
	must(ucp_ep_rkey_unpack(endpoint, key, &rkey), "the peer's key");
	uint64_t own = (uintptr_t)shared, *remote = swap(&own, sizeof own, NULL);
	unsigned char *target = shared + MARGIN;
	uint64_t remote_target = *remote + MARGIN;
	ucp_request_param_t plain = {0};

	for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES && SIZES[i] <= longest; i++) {
		size_t bytes = SIZES[i], seed = 4 * i;
		/* Tagged, there and back; then active, there and back. */
		for (int way = 0; way < 2; way++) {
			int sends = client == !way;
			fill(local, bytes, seed + way);
			if (sends) {
				send_tagged(local, bytes, 100 + i);
				send_active(local, bytes);
			} else {
				receive_tagged(local, bytes, 100 + i);
				check(local, bytes, seed + way, "tagged message");
				receive_active(bytes);
				check(am_bytes, bytes, seed + way, "active message");
				memset(am_bytes, 0, bytes);
			}
			turn();
		}
		/* The client puts; the server looks at it, and at what is around it. */
		memset(shared, 0xee, bytes + 2 * MARGIN);
		turn();
		if (client) {
			fill(local, bytes, seed + 2);
			wait_for(ucp_put_nbx(endpoint, local, bytes, remote_target, rkey, &plain), "put");
			flush();
		}
		turn();
		if (!client) {
			check(target, bytes, seed + 2, "put");
			for (size_t j = 0; j < MARGIN; j++) {
				if (shared[j] != 0xee || target[bytes + j] != 0xee) {
					fprintf(stderr, "ucx-verify: put of %zu bytes wrote beside them\n", bytes);
					return 1;
				}
			}
			fill(target, bytes, seed + 3);
		}
		turn();
		/* The client gets what the server wrote over it. */
		if (client) {
			memset(local, 0, bytes);
			wait_for(ucp_get_nbx(endpoint, local, bytes, remote_target, rkey, &plain), "get");
			flush();
			check(local, bytes, seed + 3, "get");
		}
		turn();
	}

	/* Both add to a number of the server's. */
	uint64_t *number = (uint64_t *)(shared + 4096);
	*number = 5;
	turn();
	if (client) {
		for (uint64_t i = 0; i < ATOMICS; i++) {
			uint64_t add = 3, old = 0;
			ucp_request_param_t fetch = {.op_attr_mask = UCP_OP_ATTR_FIELD_REPLY_BUFFER | UCP_OP_ATTR_FIELD_DATATYPE,
						     .reply_buffer = &old,
						     .datatype = ucp_dt_make_contig(8)};
			wait_for(ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, &add, 1, *remote + 4096, rkey, &fetch),
				 "fetch and add");
			if (old != 5 + 3 * i) {
				fprintf(stderr, "ucx-verify: fetch and add %lu gave %lu\n", (unsigned long)i, (unsigned long)old);
				return 1;
			}
			verified++;
		}
		flush();
	}
	turn();
	if (!client && *number != 5 + 3 * ATOMICS) {
		fprintf(stderr, "ucx-verify: after %d additions the number is %lu\n", ATOMICS, (unsigned long)*number);
		return 1;
	}
	unsigned long own_counts[2] = {verified, verified_bytes}, *counts = swap(own_counts, sizeof own_counts, NULL);
	if (client)
		printf("verified %lu operations, %lu bytes\n", verified + counts[0], verified_bytes + counts[1]);

	ucp_rkey_destroy(rkey);
	ucp_request_param_t gently = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = 0};
	turn();
	wait_for(ucp_ep_close_nbx(endpoint, &gently), "close");
	turn();
	must(ucp_mem_unmap(context, memory), "unmap");
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	return 0;
}
