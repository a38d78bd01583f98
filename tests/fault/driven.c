/* Does what each line of its standard input says, and says what came of it: messages, calls, events. */
#include "../sweep/steps.h"
#include <poll.h>

static const char *poll_one(struct all *all)
{
	struct ibv_wc wc;
	int found;
	while (!(found = ibv_poll_cq(all->cq, 1, &wc)))
		;
	return found < 0 ? "ibv_poll_cq" : wc.status ? ibv_wc_status_str(wc.status) : NULL;
}

/* A message; what failed, or NULL. */
static const char *exchange(struct all *all)
{
	if (post_receive(all->qp, all->mr))
		return "ibv_post_recv";
	if (post_send(all->qp, all->mr))
		return "ibv_post_send";
	const char *failed = poll_one(all);
	return failed ? failed : poll_one(all);
}

static void send_messages(struct all *all, int messages)
{
	for (int i = 0; i < messages; i++) {
		const char *failed = exchange(all);
		if (failed) {
			printf("failed %d %s\n", i, failed);
			return;
		}
	}
	printf("done %d\n", messages);
}

/* Messages with an event each. */
static void wait_for_messages(struct all *all, int messages)
{
	for (int i = 0; i < messages; i++) {
		struct ibv_cq *cq;
		void *context;
		if (ibv_req_notify_cq(all->cq, 0) || post_receive(all->qp, all->mr) || post_send(all->qp, all->mr) ||
		    ibv_get_cq_event(all->channel, &cq, &context)) {
			printf("failed %d\n", i);
			return;
		}
		ibv_ack_cq_events(cq, 1);
		if (poll_one(all) || poll_one(all)) {
			printf("failed %d\n", i);
			return;
		}
	}
	printf("done %d\n", messages);
}

static void make_domain(struct all *all)
{
	struct ibv_pd *pd = ibv_alloc_pd(all->context);
	printf("domain %d\n", pd ? 0 : errno);
	if (pd)
		ibv_dealloc_pd(pd);
}

static void take_event(struct all *all)
{
	struct ibv_async_event event;
	if (ibv_get_async_event(all->context, &event)) {
		puts("failed");
		return;
	}
	printf("event %d\n", event.event_type);
	ibv_ack_async_event(&event);
}

int main(void)
{
	struct all all;
	int failed = make_all(&all), number;
	char word[16];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!failed)
		puts("ready");
	while (!failed && scanf("%15s %d", word, &number) == 2) {
		if (!strcmp(word, "send"))
			send_messages(&all, number);
		else if (!strcmp(word, "wait"))
			wait_for_messages(&all, number);
		else if (!strcmp(word, "domain"))
			make_domain(&all);
		else
			take_event(&all);
	}
	return give_back(&all) || failed;
}
