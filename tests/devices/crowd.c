// usage: crowd NUMBER FOLDER. One of a crowd of processes with many devices each.
// Opens every device of the process with two RC queue pairs, says how many devices, and with which queue pairs it will
// talk to its neighbours. When it gets a byte from standard input, the file FOLDER/all has what all have said: it then
// sends a message to the next process of the crowd, on one of its devices, and takes one from the process before it.
// Stays until standard input ends.
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, PATIENCE_S = 60 };

struct end {
    int number;
    unsigned in, out;
    union ibv_gid gid;
};

static int fail(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
    };
    return ibv_create_qp(pd, &wanted);
}

static int connect_to(struct ibv_qp *qp, unsigned qpn, const union ibv_gid *gid)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}},
    };
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    int error = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (!error)
        error = ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!error)
        error = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    errno = error;
    return error;
}

// The ends of the neighbours of a process, from the file with all.
static int neighbours(const char *folder, int number, struct end *before, struct end *next)
{
    char name[4096];
    struct end end, *all = NULL;
    int count = 0, own = -1;
    snprintf(name, sizeof name, "%s/all", folder);
    FILE *file = fopen(name, "r");
    if (!file)
        return -1;
    unsigned long long high, low;
    while (fscanf(file, " at %d %u %u %llx %llx", &end.number, &end.in, &end.out, &high, &low) == 5) {
        end.gid.global.subnet_prefix = high;
        end.gid.global.interface_id = low;
        all = realloc(all, (count + 1) * sizeof end);
        if (end.number == number)
            own = count;
        all[count++] = end;
    }
    fclose(file);
    errno = ENOENT;
    if (own < 0)
        return -1;
    *before = all[(own + count - 1) % count];
    *next = all[(own + 1) % count];
    free(all);
    return 0;
}

int main(int argc, char **argv)
{
    int count = 0, opened = 0, number = argc > 1 ? atoi(argv[1]) : 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_qp *in = NULL, *out = NULL;
    struct ibv_pd *domain = NULL;
    struct ibv_cq *queue = NULL;
    struct end own = {.number = number};
    if (argc < 3 || !list || !count)
        return fail("usage, or no device");
    for (int index = 0; index < count; index++) {
        struct ibv_context *context = ibv_open_device(list[index]);
        struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
        struct ibv_cq *cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
        struct ibv_qp *first = cq ? make(pd, cq) : NULL, *second = first ? make(pd, cq) : NULL;
        if (!second) {
            printf("opened %d, then %s\n", opened, strerror(errno));
            return 1;
        }
        if (index == number % count) {
            domain = pd, queue = cq, in = first, out = second;
            if (ibv_query_gid(context, 1, 0, &own.gid))
                return fail("query the GID");
        }
        opened++;
    }
    printf("opened %d\n", opened);
    printf("at %d %u %u %llx %llx\n", number, in->qp_num, out->qp_num, (unsigned long long)own.gid.global.subnet_prefix,
           (unsigned long long)own.gid.global.interface_id);
    fflush(stdout);

    char byte;
    if (read(0, &byte, 1) != 1)
        return 0;
    struct end before, next;
    if (neighbours(argv[2], number, &before, &next))
        return fail("read who the neighbours are");
    static int bytes[2][BYTES / sizeof(int)];
    struct ibv_mr *mr = ibv_reg_mr(domain, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!mr || connect_to(in, before.out, &before.gid) || connect_to(out, next.in, &next.gid))
        return fail("connect");
    for (size_t word = 0; word < BYTES / sizeof(int); word++)
        bytes[0][word] = number + 1;
    struct ibv_sge from = {.addr = (uintptr_t)bytes[0], .length = BYTES, .lkey = mr->lkey};
    struct ibv_sge to = {.addr = (uintptr_t)bytes[1], .length = BYTES, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if ((errno = ibv_post_recv(in, &receive, &bad_receive)) || (errno = ibv_post_send(out, &send, &bad)))
        return fail("post");
    int done = 0;
    for (time_t end = time(NULL) + PATIENCE_S; done < 2 && time(NULL) < end;) {
        struct ibv_wc wc;
        int polled = ibv_poll_cq(queue, 1, &wc);
        if (polled && wc.status) {
            printf("%s\n", ibv_wc_status_str(wc.status));
            return 1;
        }
        done += polled;
    }
    errno = ETIMEDOUT;
    for (size_t word = 0; word < BYTES / sizeof(int); word++)
        if (done < 2 || bytes[1][word] != before.number + 1)
            return fail("the message of the process before");
    printf("exchanged\n");
    fflush(stdout);
    // The bytes that are left are those of others, which may share this end: only the hang-up counts.
    struct pollfd end = {.fd = 0};
    poll(&end, 1, -1);
    return 0;
}
