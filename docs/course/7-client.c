// A client of the key-value server.
//   7-client ADDRESS put KEY VALUE
//   7-client ADDRESS get KEY
#include "7-key-value.h"

static struct slot put, got[PROBES];

static void wait_for_completion(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	need(rdma_get_send_comp(id, &wc) == 1, "rdma_get_send_comp");
	need(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
}

// Reads the slots in which the key can be, and again while a slot is half a change.
static const char *get(struct rdma_cm_id *id, struct ibv_mr *mr, struct remote there, const char *key)
{
	uint64_t from = there.address + place_of(key) * sizeof *got;
	struct slot *slot;
	do {
		need(rdma_post_read(id, NULL, got, sizeof got, mr, IBV_SEND_SIGNALED, from, there.rkey) == 0, "READ");
		wait_for_completion(id);
		for (slot = got; slot < got + PROBES && slot->key[0] && slot->sum == sum_of(slot); slot++)
			if (strcmp(slot->key, key) == 0)
				return slot->value;
	} while (slot < got + PROBES && slot->key[0]);
	return NULL;
}

static int ask(struct rdma_addrinfo *address, int is_put, const char *key, const char *value)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_conn_param param = {.initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;
	need(strlen(key) < sizeof put.key && strlen(value) < sizeof put.value, "a shorter key, a shorter value");
	need(rdma_create_ep(&id, address, NULL, &attr) == 0 && rdma_connect(id, &param) == 0, "rdma_connect");
	struct remote there = *(const struct remote *)id->event->param.conn.private_data;
	struct ibv_mr *of_put = rdma_reg_msgs(id, &put, sizeof put), *of_got = rdma_reg_msgs(id, got, sizeof got);
	need(of_put && of_got, "rdma_reg_msgs");
	if (is_put) {
		strcpy(put.key, key);
		strcpy(put.value, value);
		put.sum = sum_of(&put);
		need(rdma_post_send(id, NULL, &put, sizeof put, of_put, IBV_SEND_SIGNALED) == 0, "SEND");
		wait_for_completion(id);
	}
	// When the SEND has ended, the put has arrived. The server stores it soon: a get tells.
	const char *found;
	int tries = is_put ? 100000 : 1;
	do
		found = get(id, of_got, there, key);
	while (--tries > 0 && (!found || strcmp(found, value) != 0));
	puts(found ? found : "not there");
	rdma_disconnect(id);
	rdma_dereg_mr(of_put);
	rdma_dereg_mr(of_got);
	rdma_destroy_ep(id);
	return !found;
}

int main(int count, char **words)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *address;
	need(count == 4 || count == 5, "say: 7-client ADDRESS put KEY VALUE, or get KEY");
	need(rdma_getaddrinfo(words[1], "7471", &hints, &address) == 0, "rdma_getaddrinfo");
	return ask(address, count == 5, words[3], words[count - 1]);
}
