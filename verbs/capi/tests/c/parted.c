/* A process that dies behind a partition, and its peer. The arguments: "server" or "client", the server's address; of a server how many
 * seconds it listens for news of the client, from a line on its standard input on. */
#include <arpa/inet.h>
#include <rdma/rdma_verbs.h>

#include "expect.h"

static char text[64];

static struct rdma_cm_id *endpoint(const char *address, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr wants = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .sq_sig_all = 1};
	struct rdma_cm_id *id;
	CLAIM(rdma_getaddrinfo(address, "7471", &hints, &found) == 0);
	CLAIM(rdma_create_ep(&id, found, NULL, &wants) == 0);
	rdma_freeaddrinfo(found);
	return id;
}

static enum ibv_wc_status sent(struct rdma_cm_id *id, struct ibv_mr *region)
{
	struct ibv_wc wc;
	int count;
	CLAIM(rdma_post_send(id, NULL, text, 8, region, 0) == 0);
	while ((count = rdma_get_send_comp(id, &wc)) == 0)
		;
	CLAIM(count == 1);
	return wc.status;
}

static void say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

static void client(const char *address)
{
	struct rdma_cm_id *id = endpoint(address, 0);
	struct ibv_mr *region = rdma_reg_msgs(id, text, sizeof(text));
	CLAIM(region && rdma_connect(id, NULL) == 0);
	CLAIM(sent(id, region) == IBV_WC_SUCCESS);
	say(ibv_wc_status_str(sent(id, region)));
	for (;;)
		pause();
}

static void server(const char *address, int seconds)
{
	struct rdma_cm_id *listener = endpoint(address, RAI_PASSIVE), *id;
	struct rdma_cm_event *event;
	struct ibv_wc wc;
	CLAIM(rdma_listen(listener, 1) == 0);
	say("listening");
	CLAIM(rdma_get_request(listener, &id) == 0);
	struct ibv_mr *region = rdma_reg_msgs(id, text, sizeof(text));
	CLAIM(region && rdma_post_recv(id, NULL, text, sizeof(text), region) == 0);
	CLAIM(rdma_post_recv(id, NULL, text, sizeof(text), region) == 0 && rdma_accept(id, NULL) == 0);
	CLAIM(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CLAIM(fgets(text, sizeof(text), stdin));
	struct pollfd news = {.fd = id->channel->fd, .events = POLLIN};
	if (poll(&news, 1, seconds * 1000) == 0) {
		say("nothing");
		say(ibv_wc_status_str(sent(id, region)));
		return;
	}
	CLAIM(rdma_get_cm_event(id->channel, &event) == 0);
	say(rdma_event_str(event->event));
}

int main(int argc, char **argv)
{
	CLAIM(argc >= 3);
	if (!strcmp(argv[1], "client"))
		client(argv[2]);
	else
		server(argv[2], atoi(argv[3]));
	return 0;
}
