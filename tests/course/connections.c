// A solution of exercise 6.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char arrived[64], leaving[80];

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

// Receives, if it is a server; sends; receives, if it is a client.
static void talk(struct rdma_cm_id *id, int is_server, const char *name)
{
	struct ibv_wc wc;
	struct ibv_mr *in = rdma_reg_msgs(id, arrived, sizeof arrived), *out = rdma_reg_msgs(id, leaving, sizeof leaving);
	need(in && out && rdma_post_recv(id, NULL, arrived, sizeof arrived, in) == 0, "rdma_post_recv");
	if (is_server) {
		need(rdma_accept(id, NULL) == 0, "rdma_accept");
		need(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "receive");
		snprintf(leaving, sizeof leaving, "hello %s", arrived);
	} else {
		need(rdma_connect(id, NULL) == 0, "rdma_connect");
		snprintf(leaving, sizeof leaving, "%s", name);
	}
	need(rdma_post_send(id, NULL, leaving, strlen(leaving) + 1, out, 0) == 0, "rdma_post_send");
	need(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "send");
	if (!is_server) {
		need(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "receive");
		puts(arrived);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(in);
	rdma_dereg_mr(out);
	rdma_destroy_ep(id);
}

int main(int count, char **words)
{
	need(count >= 3, "server ADDRESS, or client ADDRESS NAME");
	int is_server = strcmp(words[1], "server") == 0;
	struct rdma_addrinfo hints = {.ai_flags = is_server ? RAI_PASSIVE : 0, .ai_port_space = RDMA_PS_TCP}, *address;
	need(rdma_getaddrinfo(words[2], "7471", &hints, &address) == 0, "rdma_getaddrinfo");
	struct ibv_qp_init_attr attr = {
		.sq_sig_all = 1, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_cm_id *id, *client;
	need(rdma_create_ep(&id, address, NULL, &attr) == 0, "rdma_create_ep");
	if (is_server) {
		need(rdma_listen(id, 3) == 0, "rdma_listen");
		puts("ready");
		fflush(stdout);
		for (int k = 0; k < 3; k++) {
			need(rdma_get_request(id, &client) == 0, "rdma_get_request");
			talk(client, 1, NULL);
		}
		rdma_destroy_ep(id);
	} else {
		talk(id, 0, count > 3 ? words[3] : "stone");
	}
	rdma_freeaddrinfo(address);
	return 0;
}
