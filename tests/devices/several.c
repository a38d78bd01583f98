// Uses all devices of the process, as `pumice run --devices 3` gives them: two contexts of each, a WRITE from
// each to the next, one thread on each device, a device that is closed while the others go on, and a listener of
// rdma_cm that hears on all of them. Ends with 0, or says what is wrong.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, BYTES = 4096, WRITES = 200 };

#define CHECK(ok)                                                                   \
    do {                                                                            \
        if (!(ok)) {                                                                \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #ok, strerror(errno));  \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    union ibv_gid gid;
    uint8_t bytes[BYTES];
};

static struct end sources[MOST], targets[MOST];

static void open_end(struct end *end, struct ibv_device *device)
{
    CHECK(end->context = ibv_open_device(device));
    CHECK(end->context->device == device);
    CHECK(end->pd = ibv_alloc_pd(end->context));
    CHECK(end->cq = ibv_create_cq(end->context, WRITES, NULL, NULL, 0));
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    CHECK(end->mr = ibv_reg_mr(end->pd, end->bytes, BYTES, access));
    CHECK(!ibv_query_gid(end->context, 1, 0, &end->gid));
    struct ibv_qp_init_attr wanted = {
        .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    CHECK(end->qp = ibv_create_qp(end->pd, &wanted));
}

static void connect_end(struct end *end, const struct end *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
    };
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };
    CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
        | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void write_once(struct end *from, const struct end *to)
{
    struct ibv_sge sge = {.addr = (uintptr_t)from->bytes, .length = BYTES, .lkey = from->mr->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)to->bytes, .rkey = to->mr->rkey},
    };
    CHECK(!ibv_post_send(from->qp, &request, &bad));
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(from->cq, 1, &wc)) == 0)
        ;
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS && wc.qp_num == from->qp->qp_num);
}

static void *write_often(void *argument)
{
    size_t index = (uintptr_t)argument;
    for (int round = 0; round < WRITES; round++)
        write_once(&sources[index], &targets[index]);
    return NULL;
}

static void close_end(struct end *end)
{
    CHECK(!ibv_destroy_qp(end->qp));
    CHECK(!ibv_dereg_mr(end->mr));
    CHECK(!ibv_destroy_cq(end->cq));
    CHECK(!ibv_dealloc_pd(end->pd));
    CHECK(!ibv_close_device(end->context));
}

// A listener without an address hears requests to each device; the request is on the device that was asked.
static void listen_on_all(int count)
{
    int known = 0;
    struct ibv_context **contexts = rdma_get_devices(&known);
    CHECK(contexts && known == count && !contexts[count]);
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *client;
    CHECK(channel = rdma_create_event_channel());
    CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    struct sockaddr_in any = {.sin_family = AF_INET};
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&any) && !listener->verbs);
    CHECK(!rdma_listen(listener, 4));
    for (int index = 0; index < count; index++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = rdma_get_src_port(listener)};
        memcpy(&to.sin_addr, &sources[index].gid.raw[12], 4);
        struct rdma_cm_event *event;
        CHECK(!rdma_create_id(channel, &client, NULL, RDMA_PS_TCP));
        CHECK(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, 1000));
        CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK(event->id->verbs == contexts[index]);
        rdma_ack_cm_event(event);
        CHECK(!rdma_resolve_route(client, 1000));
        CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
        rdma_ack_cm_event(event);
        struct rdma_conn_param param = {.qp_num = 17};
        CHECK(!rdma_connect(client, &param));
        CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *request = event->id;
        CHECK(event->listen_id == listener && request->verbs == contexts[index]);
        rdma_ack_cm_event(event);
        CHECK(!rdma_reject(request, NULL, 0));
        CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_REJECTED);
        CHECK(event->id == client);
        rdma_ack_cm_event(event);
        CHECK(!rdma_destroy_id(request) && !rdma_destroy_id(client));
    }
    CHECK(!rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
    rdma_free_devices(contexts);
}

int main(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 1 && count <= MOST && !list[count]);
    for (int index = 0; index < count; index++) {
        char name[32];
        snprintf(name, sizeof name, "uverbs%d", index);
        CHECK(!strcmp(list[index]->dev_name, name));
        for (int other = 0; other < index; other++) {
            CHECK(ibv_get_device_guid(list[index]) != ibv_get_device_guid(list[other]));
            CHECK(strcmp(ibv_get_device_name(list[index]), ibv_get_device_name(list[other])));
        }
        open_end(&sources[index], list[index]);
        open_end(&targets[index], list[(index + 1) % count]);
    }
    ibv_free_device_list(list);
    for (int index = 0; index < count; index++) {
        connect_end(&sources[index], &targets[index]);
        connect_end(&targets[index], &sources[index]);
        memset(sources[index].bytes, 'a' + index, BYTES);
        write_once(&sources[index], &targets[index]);
        CHECK(!memcmp(sources[index].bytes, targets[index].bytes, BYTES));
    }
    pthread_t threads[MOST];
    for (int index = 0; index < count; index++)
        CHECK(!pthread_create(&threads[index], NULL, write_often, (void *)(uintptr_t)index));
    for (int index = 0; index < count; index++)
        CHECK(!pthread_join(threads[index], NULL));
    // In turns, each end of a connection between two devices writes to the other one's memory.
    for (int turn = 0; turn < WRITES; turn++) {
        write_once(&sources[1], &targets[1]);
        write_once(&targets[1], &sources[1]);
    }
    // A key of one device means nothing to another one's queue pair.
    CHECK(!ibv_dereg_mr(sources[0].mr));
    CHECK(sources[0].mr = ibv_reg_mr(sources[0].pd, sources[0].bytes, BYTES, 0));
    struct ibv_qp_init_attr mixed = {.send_cq = sources[1].cq, .recv_cq = sources[1].cq, .qp_type = IBV_QPT_RC};
    CHECK(!ibv_create_qp(sources[0].pd, &mixed));
    // The first device goes, and the others stay.
    close_end(&sources[0]);
    close_end(&targets[count - 1]);
    for (int index = 1; index < count - 1; index++)
        write_once(&sources[index], &targets[index]);
    CHECK(sources[0].context = ibv_open_device(targets[0].context->device));
    CHECK(!ibv_close_device(sources[0].context));
    listen_on_all(count);
    puts("all devices work");
    return 0;
}
