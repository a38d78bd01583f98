// Chapter 4: WRITE, READ and FETCH_AND_ADD. The peer does nothing. "key" uses a wrong key.
#include "ends.h"

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

// What the peer tells about its memory: an address and a key.
struct remote {
	uint64_t address;
	uint32_t rkey;
};

// One request, and its completion.
static void ask(struct end *end, struct ibv_send_wr *request, char *local, int length)
{
	struct ibv_sge sge = {(uintptr_t)local, length, end->mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	request->sg_list = &sge;
	request->num_sge = 1;
	errno = ibv_post_send(end->qp, request, &bad);
	need(errno == 0, "ibv_post_send");
	while (ibv_poll_cq(end->cq, 1, &wc) == 0)
		;
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "the request failed: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

int main(int count, char **words)
{
	int is_wrong = count > 1 && strcmp(words[1], "key") == 0;
	struct ibv_context *context = open_first_device();
	static struct end asker, owner;
	open_end(&asker, context, IBV_ACCESS_LOCAL_WRITE, 1);
	open_end(&owner, context, ALL, 1);
	connect_end(&asker, &owner, 0, 7);
	connect_end(&owner, &asker, ALL, 7);
	struct remote there = {(uintptr_t)owner.memory, owner.mr->rkey + is_wrong};

	strcpy(asker.memory, "written by the asker");
	struct ibv_send_wr write = {
		.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {.remote_addr = there.address + 64, .rkey = there.rkey}};
	ask(&asker, &write, asker.memory, 21);

	struct ibv_send_wr read = {
		.opcode = IBV_WR_RDMA_READ, .wr.rdma = {.remote_addr = there.address + 64, .rkey = there.rkey}};
	ask(&asker, &read, asker.memory + 64, 21);
	printf("read back: %s\n", asker.memory + 64);

	for (int k = 0; k < 3; k++) {
		struct ibv_send_wr add = {
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.wr.atomic = {.remote_addr = there.address, .compare_add = 10, .rkey = there.rkey}};
		ask(&asker, &add, asker.memory + 128, 8);
		printf("the counter was %lu\n", *(unsigned long *)(asker.memory + 128));
	}
	close_end(&asker);
	close_end(&owner);
	ibv_close_device(context);
	return 0;
}
