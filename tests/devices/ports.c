// Uses both ports of one device, as `pumice run --profile two-port` gives it: what each port says, queue pairs of
// each type on each port that share a domain, memory, a completion queue and a shared receive queue, datagrams that
// leave from the port of their address handle, and rdma_cm on both. With an argument: a fault plan takes port 2
// down. Ends with 0, or says what is wrong.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 2, BYTES = 2048, GRH = 40, QKEY = 0x11111111 };

#define CHECK(ok)                                                                   \
    do {                                                                            \
        if (!(ok)) {                                                                \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #ok, strerror(errno));  \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static union ibv_gid gids[PORTS + 1];
static uint8_t bytes[4 * BYTES];

static void look_at_ports(void)
{
    struct ibv_device_attr device;
    CHECK(!ibv_query_device(context, &device) && device.phys_port_cnt == PORTS);
    struct ibv_port_attr port;
    CHECK(ibv_query_port(context, 3, &port) == EINVAL && ibv_query_port(context, 0, &port) == EINVAL);
    union ibv_gid gid;
    struct ibv_gid_entry entry;
    uint16_t pkey;
    CHECK(ibv_query_gid(context, 3, 0, &gid) && ibv_query_pkey(context, 3, 0, &pkey));
    CHECK(ibv_query_gid_ex(context, 3, 0, &entry, 0) == EINVAL);
    for (int number = 1; number <= PORTS; number++) {
        CHECK(!ibv_query_port(context, number, &port));
        CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
        CHECK(!ibv_query_gid(context, number, 0, &gids[number]));
        CHECK(!ibv_query_gid_ex(context, number, 0, &entry, 0));
        CHECK(entry.port_num == (uint32_t)number && !memcmp(&entry.gid, &gids[number], sizeof gid));
        CHECK(ibv_query_gid_ex(context, number, 1, &entry, 0) == ENODATA);
        CHECK(!ibv_query_pkey(context, number, 0, &pkey) && pkey == 0xffff);
    }
    CHECK(memcmp(&gids[1], &gids[2], sizeof gid));
    struct ibv_gid_entry all[8];
    CHECK(ibv_query_gid_table(context, all, 8, 0) == PORTS);
    CHECK(all[0].port_num == 1 && all[1].port_num == 2 && all[1].gid_index == 0);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type,
        .cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp;
    CHECK(qp = ibv_create_qp(pd, &wanted));
    return qp;
}

static int to_init(struct ibv_qp *qp, int port)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = port, .qkey = QKEY};
    int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
}

static int to_rtr(struct ibv_qp *qp, const struct ibv_qp *peer, int port, int peer_port)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = port, .grh = {.dgid = gids[peer_port], .hop_limit = 64}},
    };
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type == IBV_QPT_RC)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return ibv_modify_qp(qp, &attr, mask);
}

static int to_rts(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &attr, mask);
}

static struct ibv_wc take(void)
{
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

static void post_receive(void)
{
    struct ibv_sge sge = {.addr = (uintptr_t)(bytes + BYTES), .length = BYTES, .lkey = mr->lkey};
    struct ibv_recv_wr *bad, request = {.sg_list = &sge, .num_sge = 1};
    CHECK(!ibv_post_srq_recv(srq, &request, &bad));
}

static void send_once(struct ibv_qp *qp, struct ibv_ah *ah, const struct ibv_qp *peer)
{
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
    };
    if (ah) {
        request.wr.ud.ah = ah;
        request.wr.ud.remote_qpn = peer->qp_num;
        request.wr.ud.remote_qkey = QKEY;
    }
    CHECK(!ibv_post_send(qp, &request, &bad));
}

// A message from a queue pair on one port to one on another, both of the same device.
static void send_between(enum ibv_qp_type type, int from, int to)
{
    struct ibv_qp *source = make_qp(type), *target = make_qp(type);
    CHECK(to_init(source, 3) == EINVAL && to_init(source, 0) == EINVAL);
    CHECK(!to_init(source, from) && !to_init(target, to));
    if (type != IBV_QPT_UD)
        CHECK(to_rtr(source, target, 3 - from, to) == EINVAL);
    CHECK(!to_rtr(source, target, from, to) && !to_rtr(target, source, to, from));
    CHECK(!to_rts(source) && !to_rts(target));
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(target, &attr, IBV_QP_PORT, &init) && attr.port_num == to);
    struct ibv_ah *ah = NULL;
    if (type == IBV_QPT_UD) {
        struct ibv_ah_attr of = {
            .is_global = 1, .port_num = from, .grh = {.dgid = gids[to], .hop_limit = 64},
        };
        CHECK(ah = ibv_create_ah(pd, &of));
        of.port_num = 3;
        CHECK(!ibv_create_ah(pd, &of) && errno == EINVAL);
    }
    memset(bytes, 'a' + from * 4 + to, BYTES);
    memset(bytes + BYTES, 0, BYTES);
    post_receive();
    send_once(source, ah, target);
    int sent = 0, received = 0;
    while (!sent || !received) {
        struct ibv_wc wc = take();
        if (wc.opcode == IBV_WC_SEND)
            sent = 1;
        else
            received = 1;
        CHECK(wc.qp_num == (wc.opcode == IBV_WC_SEND ? source : target)->qp_num);
    }
    uint8_t *payload = bytes + BYTES + (type == IBV_QPT_UD ? GRH : 0);
    CHECK(!memcmp(bytes, payload, 64));
    if (type == IBV_QPT_UD) {
        // The IPv4 header at the end of the GRH area: from the address of the one port to that of the other.
        CHECK(!memcmp(bytes + BYTES + GRH - 8, &gids[from].raw[12], 4));
        CHECK(!memcmp(bytes + BYTES + GRH - 4, &gids[to].raw[12], 4));
        CHECK(!ibv_destroy_ah(ah));
    }
    CHECK(!ibv_destroy_qp(source) && !ibv_destroy_qp(target));
}

// A datagram to the address of the other port is not for a queue pair of this one.
static void send_astray(void)
{
    struct ibv_qp *source = make_qp(IBV_QPT_UD), *target = make_qp(IBV_QPT_UD);
    for (int end = 0; end < 2; end++) {
        struct ibv_qp *qp = end ? target : source;
        CHECK(!to_init(qp, 1 + end) && !to_rtr(qp, source, 1, 1) && !to_rts(qp));
    }
    struct ibv_ah *ahs[PORTS + 1];
    for (int port = 1; port <= PORTS; port++) {
        struct ibv_ah_attr of = {.is_global = 1, .port_num = 1, .grh = {.dgid = gids[port], .hop_limit = 64}};
        CHECK(ahs[port] = ibv_create_ah(pd, &of));
    }
    post_receive();
    // They travel in order: if the first were taken, it would take the only receive request.
    send_once(source, ahs[1], target);
    CHECK(take().opcode == IBV_WC_SEND);
    memset(bytes, 'z', BYTES);
    send_once(source, ahs[2], target);
    struct ibv_wc one = take(), other = take();
    CHECK((one.opcode == IBV_WC_SEND) != (other.opcode == IBV_WC_SEND));
    CHECK(bytes[BYTES + GRH] == 'z' && !memcmp(bytes + BYTES + GRH - 4, &gids[2].raw[12], 4));
    for (int port = 1; port <= PORTS; port++)
        CHECK(!ibv_destroy_ah(ahs[port]));
    CHECK(!ibv_destroy_qp(source) && !ibv_destroy_qp(target));
}

static struct sockaddr_in address_of(int port, uint16_t number)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = number};
    memcpy(&address.sin_addr, &gids[port].raw[12], 4);
    return address;
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != expected)
        fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(expected));
    CHECK(event->event == expected);
    return event;
}

// A listener without an address hears requests to both ports, and the request is on the port that was asked.
static void connect_by_address(void)
{
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *bound, *client;
    CHECK(channel = rdma_create_event_channel());
    CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    struct sockaddr_in any = {.sin_family = AF_INET};
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&any) && !listener->verbs && !rdma_listen(listener, 4));
    for (int port = 1; port <= PORTS; port++) {
        struct sockaddr_in own = address_of(port, 0), to = address_of(port, rdma_get_src_port(listener));
        CHECK(!rdma_create_id(channel, &bound, NULL, RDMA_PS_TCP));
        CHECK(!rdma_bind_addr(bound, (struct sockaddr *)&own));
        CHECK(bound->verbs && bound->port_num == port);
        CHECK(!rdma_destroy_id(bound));
        CHECK(!rdma_create_id(channel, &client, NULL, RDMA_PS_TCP));
        CHECK(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, 1000));
        rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
        CHECK(client->port_num == port);
        CHECK(!memcmp(&client->route.addr.addr.ibaddr.sgid, &gids[port], sizeof gids[port]));
        CHECK(!rdma_resolve_route(client, 1000));
        rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
        struct ibv_qp_init_attr wanted = {
            .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        };
        CHECK(!rdma_create_qp(client, client->pd, &wanted));
        struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
        CHECK(!rdma_connect(client, &param));
        struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *request = event->id;
        rdma_ack_cm_event(event);
        CHECK(request->port_num == port && request->verbs == client->verbs);
        CHECK(!rdma_create_qp(request, request->pd, &wanted));
        CHECK(!rdma_accept(request, &param));
        rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ESTABLISHED));
        rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ESTABLISHED));
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        CHECK(!ibv_query_qp(request->qp, &attr, IBV_QP_PORT | IBV_QP_AV, &init));
        CHECK(attr.port_num == port && attr.ah_attr.port_num == port && attr.ah_attr.grh.sgid_index == 0);
        CHECK(!rdma_disconnect(client));
        rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_DISCONNECTED));
        CHECK(!rdma_disconnect(request));
        rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_DISCONNECTED));
        rdma_destroy_qp(request);
        rdma_destroy_qp(client);
        CHECK(!rdma_destroy_id(request) && !rdma_destroy_id(client));
    }
    CHECK(!rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
}

// The fault plan has taken port 2 down before the first message of queue pair 0: only that port tells of it.
static void lose_second_port(void)
{
    struct ibv_qp *source = make_qp(IBV_QPT_RC), *target = make_qp(IBV_QPT_RC);
    CHECK(!to_init(source, 1) && !to_init(target, 1));
    CHECK(!to_rtr(source, target, 1, 1) && !to_rtr(target, source, 1, 1));
    CHECK(!to_rts(source) && !to_rts(target));
    post_receive();
    send_once(source, NULL, NULL);
    CHECK(take().opcode != take().opcode);
    struct ibv_async_event event;
    int of_port = 0;
    while (!of_port) {
        CHECK(!ibv_get_async_event(context, &event));
        if (event.event_type == IBV_EVENT_PORT_ERR) {
            CHECK(event.element.port_num == 2);
            of_port = 1;
        }
        ibv_ack_async_event(&event);
    }
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    CHECK(!ibv_query_port(context, 2, &port) && port.state == IBV_PORT_DOWN);
    CHECK(!ibv_destroy_qp(source) && !ibv_destroy_qp(target));
}

int main(int count, char **arguments)
{
    (void)arguments;
    int devices = 0;
    struct ibv_device **list = ibv_get_device_list(&devices);
    CHECK(list && devices == 1);
    CHECK(context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    look_at_ports();
    CHECK(pd = ibv_alloc_pd(context));
    CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
    CHECK(mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 1}};
    CHECK(srq = ibv_create_srq(pd, &shared));
    if (count > 1) {
        lose_second_port();
        puts("port 2 is down");
    } else {
        const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
        for (int type = 0; type < 3; type++)
            for (int from = 1; from <= PORTS; from++)
                for (int to = 1; to <= PORTS; to++)
                    send_between(types[type], from, to);
        send_astray();
        connect_by_address();
        puts("both ports work");
    }
    CHECK(!ibv_destroy_srq(srq) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    return 0;
}
