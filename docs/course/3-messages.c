// Chapter 3: one end sends three messages, the other receives them. "none" posts no receive.
#include "ends.h"

static void post_receive(struct end *end, int slot)
{
	struct ibv_sge into = {(uintptr_t)end->memory + slot * 64, 64, end->mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = slot, .sg_list = &into, .num_sge = 1}, *bad;
	errno = ibv_post_recv(end->qp, &receive, &bad);
	need(errno == 0, "ibv_post_recv");
}

static void post_send(struct end *end, int number)
{
	char *text = end->memory + number * 64;
	int length = sprintf(text, "message %d", number) + 1;
	struct ibv_sge from = {(uintptr_t)text, length, end->mr->lkey};
	struct ibv_send_wr send = {.wr_id = number, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	errno = ibv_post_send(end->qp, &send, &bad);
	need(errno == 0, "ibv_post_send");
}

// Polls until one request of this end has ended.
static struct ibv_wc completion(struct end *end, const char *whose)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(end->cq, 1, &wc) == 0)
		;
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: request %d: %s\n", whose, (int)wc.wr_id, ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

int main(int count, char **words)
{
	int has_receives = !(count > 1 && strcmp(words[1], "none") == 0);
	struct ibv_context *context = open_first_device();
	static struct end sender, receiver;
	open_end(&sender, context, 0, 1);
	open_end(&receiver, context, IBV_ACCESS_LOCAL_WRITE, 1);
	connect_end(&sender, &receiver, 0, 3);
	connect_end(&receiver, &sender, 0, 3);

	for (int k = 0; has_receives && k < 3; k++)
		post_receive(&receiver, k);
	for (int k = 0; k < 3; k++)
		post_send(&sender, k);
	for (int k = 0; k < 3; k++) {
		completion(&sender, "sender");
		struct ibv_wc wc = completion(&receiver, "receiver");
		printf("receive %d: %u bytes: %s\n", (int)wc.wr_id, wc.byte_len, receiver.memory + wc.wr_id * 64);
	}
	close_end(&sender);
	close_end(&receiver);
	ibv_close_device(context);
	return 0;
}
