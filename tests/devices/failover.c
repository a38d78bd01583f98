// Two rails, the second of which is pulled out in the middle: what is left goes over the first one.
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 40

#define CHECK(ok)                                                                   \
    do {                                                                            \
        if (!(ok)) {                                                                \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #ok, strerror(errno));  \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

struct rail {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *source, *target;
    struct ibv_qp *qp, *peer;
    union ibv_gid gid;
};

static struct rail rails[2];
static char source[MESSAGES][64], target[MESSAGES][64];

static struct ibv_qp *make_qp(struct rail *rail)
{
    struct ibv_qp_init_attr wanted = {
        .send_cq = rail->cq, .recv_cq = rail->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    return ibv_create_qp(rail->pd, &wanted);
}

static void connect_qp(struct rail *rail, struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = rail->gid, .hop_limit = 64}},
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
        | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void open_rail(struct rail *rail, struct ibv_device *device)
{
    CHECK(rail->context = ibv_open_device(device));
    CHECK(rail->pd = ibv_alloc_pd(rail->context));
    CHECK(rail->cq = ibv_create_cq(rail->context, 32, NULL, NULL, 0));
    CHECK(rail->source = ibv_reg_mr(rail->pd, source, sizeof source, 0));
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    CHECK(rail->target = ibv_reg_mr(rail->pd, target, sizeof target, access));
    CHECK(!ibv_query_gid(rail->context, 1, 0, &rail->gid));
    CHECK((rail->qp = make_qp(rail)) && (rail->peer = make_qp(rail)));
    connect_qp(rail, rail->qp, rail->peer->qp_num);
    connect_qp(rail, rail->peer, rail->qp->qp_num);
}

static enum ibv_wc_status write_message(struct rail *rail, int message)
{
    struct ibv_sge sge = {.addr = (uintptr_t)source[message], .length = 64, .lkey = rail->source->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)target[message], .rkey = rail->target->rkey},
    };
    CHECK(!ibv_post_send(rail->qp, &request, &bad));
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(rail->cq, 1, &wc)) == 0)
        ;
    CHECK(found == 1);
    return wc.status;
}

static void close_rail(struct rail *rail)
{
    CHECK(!ibv_destroy_qp(rail->qp) && !ibv_destroy_qp(rail->peer));
    CHECK(!ibv_dereg_mr(rail->source) && !ibv_dereg_mr(rail->target));
    CHECK(!ibv_destroy_cq(rail->cq) && !ibv_dealloc_pd(rail->pd) && !ibv_close_device(rail->context));
}

int main(void)
{
    int count = 0, on_second = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 2);
    for (int index = 0; index < 2; index++)
        open_rail(&rails[index], list[index]);
    ibv_free_device_list(list);
    struct rail *second = &rails[1];
    for (int message = 0; message < MESSAGES; message++) {
        memset(source[message], 'a' + message % 26, sizeof source[message]);
        if (message % 2 && second) {
            enum ibv_wc_status status = write_message(second, message);
            if (status == IBV_WC_SUCCESS) {
                on_second++;
                continue;
            }
            CHECK(status == IBV_WC_WR_FLUSH_ERR);
            second = NULL;
        }
        CHECK(write_message(&rails[0], message) == IBV_WC_SUCCESS);
    }
    CHECK(!second && on_second == 5 && !memcmp(source, target, sizeof source));
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(rails[1].context, &event) && event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    struct pollfd first = {.fd = rails[0].context->async_fd, .events = POLLIN};
    CHECK(poll(&first, 1, 0) == 0);
    struct ibv_port_attr port;
    CHECK(ibv_query_port(rails[1].context, 1, &port) == EIO && ibv_query_port(rails[0].context, 1, &port) == 0);
    CHECK((list = ibv_get_device_list(&count)) && count == 1 && list[0] == rails[0].context->device);
    ibv_free_device_list(list);
    close_rail(&rails[1]);
    CHECK(write_message(&rails[0], 0) == IBV_WC_SUCCESS);
    close_rail(&rails[0]);
    puts("the other rail went on");
    return 0;
}
