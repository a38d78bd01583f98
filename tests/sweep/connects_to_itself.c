/* Right: connects, disconnects, and looks at every event. */
#include "connection.h"

int main(void)
{
	struct ends ends;
	struct rdma_conn_param wants = {.retry_count = 7, .rnr_retry_count = 7};
	int failed = make_ends(&ends) || complain("rdma_connect", rdma_connect(ends.client, &wants));
	for (int established = 0, disconnected = 0; !failed && disconnected < 2;) {
		struct rdma_cm_event *event;
		if (complain("rdma_get_cm_event", rdma_get_cm_event(ends.channel, &event))) {
			failed = 1;
			break;
		}
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;
		rdma_ack_cm_event(event);
		switch (type) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			failed = serve(&ends, id);
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			if (++established == 2)
				failed = complain("rdma_disconnect", rdma_disconnect(ends.client));
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			/* The side that is left answers with a disconnection of its own. */
			if (id == ends.server)
				failed = complain("rdma_disconnect", rdma_disconnect(id));
			disconnected++;
			break;
		case RDMA_CM_EVENT_TIMEWAIT_EXIT:
			break;
		default:
			fprintf(stderr, "%s\n", rdma_event_str(type));
			failed = 1;
		}
	}
	return give_back(&ends) || failed;
}
