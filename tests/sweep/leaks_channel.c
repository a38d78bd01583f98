/* Wrong: the function that makes a channel and a queue forgets the channel if there is no queue. */
#include "steps.h"

static struct ibv_cq *queue_with_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	return channel ? ibv_create_cq(context, 8, NULL, channel, 0) : NULL;
}

int main(void)
{
	struct ibv_context *context = open_first();
	if (!context)
		return 1;
	struct ibv_cq *cq = queue_with_channel(context);
	if (!cq) {
		perror("no queue");
		ibv_close_device(context);
		return 1;
	}
	struct ibv_comp_channel *channel = cq->channel;
	int failed = ibv_destroy_cq(cq);
	failed |= ibv_destroy_comp_channel(channel);
	failed |= ibv_close_device(context);
	return failed != 0;
}
