/* nothing_comes cq | cm: waits for an event that no program will send, of a completion queue or of a listener. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

static int wait_for_a_connection(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(20078)};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;

	if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP))
		return 9;
	if (rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 2))
		return 9;
	printf("descriptor %d\n", channel->fd);
	fflush(stdout);
	return rdma_get_cm_event(channel, &event);
}

static int wait_for_a_completion(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_comp_channel *channel = context ? ibv_create_comp_channel(context) : NULL;
	struct ibv_cq *queue = channel ? ibv_create_cq(context, 4, NULL, channel, 0) : NULL;
	void *user;

	if (!queue || ibv_req_notify_cq(queue, 0))
		return 9;
	printf("descriptor %d\n", channel->fd);
	fflush(stdout);
	return ibv_get_cq_event(channel, &queue, &user);
}

int main(int count, char **arguments)
{
	return count > 1 && !strcmp(arguments[1], "cm") ? wait_for_a_connection() : wait_for_a_completion();
}
