/* A device that looks like a bond of ConnectX ports, by its profile; with an argument, one that does not. */
#include "expect.h"

int query(struct ibv_context *, void *) __asm__("mlx5dv_query_device");
int port_of(struct ibv_qp *, uint8_t *, uint8_t *) __asm__("mlx5dv_query_qp_lag_port");
int choose(struct ibv_qp *, uint8_t) __asm__("mlx5dv_modify_qp_lag_port");

int main(int argc, char **argv)
{
	(void)argv;
	open_device();
	uint64_t device[25] = {0, 0, 1 << 9};
	FAILS(query(ctx, device), 0);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
	struct ibv_qp *ud = ibv_create_qp(pd, &wants), *a, *b;
	uint8_t port = 0, active = 0;
	CLAIM(ud);
	if (argc > 1) {
		CLAIM(device[2] == 0);
		FAILS(port_of(ud, &port, &active), EOPNOTSUPP);
		FAILS(choose(ud, 1), EOPNOTSUPP);
		return 0;
	}
	CLAIM(device[2] == 1 << 9 && (device[12] & 0xff) == 2);
	a = pair(IBV_QPT_RC, &b);
	struct ibv_qp *all[] = {ud, a, b};
	for (int i = 0; i < 3; i++) {
		FAILS(port_of(all[i], &port, &active), 0);
		CLAIM((port == 1 || port == 2) && active == port);
		FAILS(choose(all[i], 3 - port), 0);
		uint8_t now = 0;
		FAILS(port_of(all[i], &now, &active), 0);
		CLAIM(now == 3 - port && active == now);
		FAILS(choose(all[i], 0), EINVAL);
		FAILS(choose(all[i], 3), EINVAL);
	}
	FAILS(port_of(a, NULL, &active), EINVAL);
	FAILS(port_of(a, &port, NULL), EINVAL);
	FAILS(choose(NULL, 1), EINVAL);
	memory[0] = 42;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)&memory[1], mr->rkey), 0);
	CLAIM(memory[1] == 42);
	return 0;
}
