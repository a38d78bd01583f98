/* rdma_create_qp writes the completion queues that it makes to the attributes, with which the next queue pair is made:
 * so it uses queues that belong to the first identifier, which librdmacm cannot destroy with it (cmtime does that). */
#include "cm_events.h"

int main(void)
{
	struct asker askers[2];
	struct ibv_qp_init_attr wants = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	for (int k = 0; k < 2; k++) {
		ask_and_hear(&askers[k]);
		MUST(!rdma_create_qp(askers[k].id, NULL, &wants));
	}
	MUST(askers[0].id->qp->send_cq == askers[1].id->qp->send_cq);
	for (int k = 0; k < 2; k++) {
		rdma_destroy_qp(askers[k].id);
		end_id(&askers[k]);
	}
	return 0;
}
