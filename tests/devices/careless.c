// Makes the same objects on two devices, so that the devices name them alike, and uses those of the first one well.
// On the second it polls no completion and destroys nothing. With -DFIXED it uses both well.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(ok)                                            \
    do {                                                     \
        if (!(ok)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #ok); \
            exit(1);                                         \
        }                                                    \
    } while (0)

static void use(struct ibv_device *device, int well)
{
    static char bytes[2][64];
    struct ibv_context *context = ibv_open_device(device);
    CHECK(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 17};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
    CHECK(!ibv_query_gid(context, 1, 0, &way.grh.dgid));
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    CHECK(ah);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes[0], .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .wr.ud = {.ah = ah, .remote_qpn = 1, .remote_qkey = 17},
    };
    for (int count = 0; count < 3; count++) {
        CHECK(!ibv_post_send(qp, &request, &bad));
        struct ibv_wc wc;
        while (well && ibv_poll_cq(cq, 1, &wc) == 0)
            ;
    }
    if (well) {
        CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_dereg_mr(mr));
        CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    }
}

int main(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 2);
#ifdef FIXED
    int second_well = 1;
#else
    int second_well = 0;
#endif
    use(list[1], second_well);
    use(list[0], 1);
    ibv_free_device_list(list);
    return 0;
}
