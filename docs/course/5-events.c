// Chapter 5: 1000 messages, and no more than the peer has room for. Both ends sleep until an event comes.
// "rush" sends without room: the receiver begins only when all is sent.
#include "ends.h"
#include <pthread.h>

enum { MESSAGES = 1000, WINDOW = 16, PART = 8 };

static struct end sender, receiver;

// The next completion. Where there is none: arm, poll once more, and only then sleep.
static struct ibv_wc completion(struct end *end)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	while (ibv_poll_cq(end->cq, 1, &wc) == 0) {
		need(ibv_req_notify_cq(end->cq, 0) == 0, "ibv_req_notify_cq");
		if (ibv_poll_cq(end->cq, 1, &wc) != 0)
			break;
		need(ibv_get_cq_event(end->channel, &cq, &context) == 0, "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
	if (wc.status == IBV_WC_SUCCESS)
		return wc;
	fprintf(stderr, "a request ended with: %s\n", ibv_wc_status_str(wc.status));
	exit(1);
}

static void *receive_all(void *nothing)
{
	for (int received = 0; received < MESSAGES;) {
		if (completion(&receiver).opcode & IBV_WC_RECV) {
			post_receive_at(&receiver, 0);
			if (++received % PART == 0) // there is room for so many more
				post_send_of(&receiver, 64, PART, IBV_SEND_SIGNALED);
		}
	}
	return nothing;
}

int main(int count, char **words)
{
	int is_rush = count > 1 && strcmp(words[1], "rush") == 0, room = WINDOW, unended = 0, credits = 0;
	pthread_t thread;
	struct ibv_context *context = open_first_device();
	open_end(&sender, context, IBV_ACCESS_LOCAL_WRITE, 0);
	open_end(&receiver, context, IBV_ACCESS_LOCAL_WRITE, 0);
	connect_end(&sender, &receiver, 0, 0);
	connect_end(&receiver, &sender, 0, 0);
	for (int k = 0; k < WINDOW; k++) {
		post_receive_at(&sender, 0);
		post_receive_at(&receiver, 0);
	}
	if (!is_rush)
		need(pthread_create(&thread, NULL, receive_all, NULL) == 0, "pthread_create");
	for (int sent = 1; sent <= MESSAGES || unended > 0 || credits < MESSAGES / PART;) {
		if (sent <= MESSAGES && unended < WINDOW && (room > 0 || is_rush)) {
			post_send_of(&sender, 64, 0, sent++ % PART ? 0 : IBV_SEND_SIGNALED);
			unended++;
			room--;
			continue;
		}
		struct ibv_wc wc = completion(&sender);
		if (wc.opcode & IBV_WC_RECV) {
			room += ntohl(wc.imm_data);
			credits++;
			post_receive_at(&sender, 0);
		} else {
			unended -= PART; // one completion tells of this request and of those before it
		}
	}
	pthread_join(thread, NULL);
	printf("%d messages, %d times more room\n", MESSAGES, credits);
	close_end(&sender);
	close_end(&receiver);
	ibv_close_device(context);
	return 0;
}
