/* An identifier of rdma_cm, and an event of it that the program has got. */
#include "ends.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

struct asker {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static void ask(struct asker *asker)
{
	MUST((asker->channel = rdma_create_event_channel()));
	MUST(!rdma_create_id(asker->channel, &asker->id, NULL, RDMA_PS_TCP));
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7471) };
	MUST(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &to.sin_addr) == 1);
	MUST(!rdma_resolve_addr(asker->id, NULL, (struct sockaddr *)&to, 1000));
}
