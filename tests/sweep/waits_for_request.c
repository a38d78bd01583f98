/* Wrong: a program that waits for its own request, and drops every other event unread, waits for ever once the request is rejected. */
#include "connection.h"

int main(void)
{
	struct ends ends;
	struct rdma_conn_param wants = {.retry_count = 7, .rnr_retry_count = 7};
	int failed = make_ends(&ends) || complain("rdma_connect", rdma_connect(ends.client, &wants));
	for (int established = 0; !failed && established < 2;) {
		struct rdma_cm_event *event;
		if (complain("rdma_get_cm_event", rdma_get_cm_event(ends.channel, &event)))
			break;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			failed = serve(&ends, event->id);
		established += event->event == RDMA_CM_EVENT_ESTABLISHED;
		rdma_ack_cm_event(event);
	}
	return give_back(&ends) || failed;
}
