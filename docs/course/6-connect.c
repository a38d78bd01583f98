// Chapter 6: a connection by address. "server ADDRESS" waits for one client; "client ADDRESS WORD" sends a word.
#include <ctype.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64 };

static char memory[2 * BYTES]; // what is sent, and what arrives

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void wait_for(int got, struct ibv_wc *wc, const char *what)
{
	need(got == 1, what);
	if (wc->status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc->status));
	exit(1);
}

int main(int count, char **words)
{
	need(count >= 3, "server ADDRESS, or client ADDRESS WORD");
	int is_server = strcmp(words[1], "server") == 0;
	struct rdma_addrinfo hints = {.ai_flags = is_server ? RAI_PASSIVE : 0, .ai_port_space = RDMA_PS_TCP}, *address;
	need(rdma_getaddrinfo(words[2], "7471", &hints, &address) == 0, "rdma_getaddrinfo");
	struct ibv_qp_init_attr attr = {
		.sq_sig_all = 1, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_cm_id *id, *listener = NULL;
	struct ibv_wc wc;
	need(rdma_create_ep(&id, address, NULL, &attr) == 0, "rdma_create_ep");
	if (is_server) {
		listener = id;
		need(rdma_listen(listener, 1) == 0, "rdma_listen");
		printf("ready\n");
		fflush(stdout);
		need(rdma_get_request(listener, &id) == 0, "rdma_get_request");
	}
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, sizeof memory);
	need(mr != NULL, "rdma_reg_msgs");
	// The receive is there before the peer can send.
	need(rdma_post_recv(id, NULL, memory + BYTES, BYTES, mr) == 0, "rdma_post_recv");
	if (is_server) {
		need(rdma_accept(id, NULL) == 0, "rdma_accept");
		wait_for(rdma_get_recv_comp(id, &wc), &wc, "receive");
		for (int k = 0; k < BYTES; k++)
			memory[k] = toupper(memory[BYTES + k]);
	} else {
		need(rdma_connect(id, NULL) == 0, "rdma_connect");
		snprintf(memory, BYTES, "%s", count > 3 ? words[3] : "hello");
	}
	need(rdma_post_send(id, NULL, memory, BYTES, mr, 0) == 0, "rdma_post_send");
	wait_for(rdma_get_send_comp(id, &wc), &wc, "send");
	if (!is_server)
		wait_for(rdma_get_recv_comp(id, &wc), &wc, "receive");
	printf("%s\n", is_server ? memory : memory + BYTES);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	if (listener)
		rdma_destroy_ep(listener);
	rdma_freeaddrinfo(address);
	return 0;
}
