/* Sends messages to itself, as many as each line of its standard input says, and says when they are there. */
#include "../sweep/steps.h"

/* Messages, one after the other. */
static int exchange(struct all *all, int messages)
{
	int failed = 0;
	for (int i = 0; i < messages && !failed; i++) {
		if ((failed = complain("ibv_post_recv", post_receive(all->qp, all->mr))) ||
		    (failed = complain("ibv_post_send", post_send(all->qp, all->mr))))
			break;
		for (int left = 2; left && !failed;) {
			struct ibv_wc wc;
			int found = ibv_poll_cq(all->cq, 1, &wc);
			if (found < 0 || (found && wc.status))
				failed = complain(found < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status), EIO);
			left -= found;
		}
	}
	return failed;
}

int main(void)
{
	struct all all;
	int failed = make_all(&all), messages;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!failed)
		puts("ready");
	while (!failed && scanf("%d", &messages) == 1) {
		failed = exchange(&all, messages);
		if (!failed)
			printf("done %d\n", messages);
	}
	return give_back(&all) || failed;
}
