/* Wrong: the program goes on with a port that it could not ask, and says nothing of it. */
#include "steps.h"

int main(void)
{
	struct ibv_context *context = open_first();
	if (!context) {
		fprintf(stderr, "no device\n");
		return 1;
	}
	struct ibv_port_attr port = {.active_mtu = IBV_MTU_1024};
	ibv_query_port(context, 1, &port);
	return ibv_close_device(context) != 0;
}
