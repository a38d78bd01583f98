/* Messages between two devices of one process, both ends in one thread, so that valgrind counts the same instructions in each
 * run. benches/instructions.sh starts it; it asks for two devices (PUMICE_DEVICES=2).
 *
 * messages WINDOWS ROUNDS    each kind of message in so many windows of so many rounds; `measured` is one window, and a line
 *                            says what it carried: kind, messages, calls of ibv_poll_cq, readings of the clock
 * messages trace KIND ROUNDS the same kind, for those who read a trace of memory: stores to `marks` say what follows, 1 posting a
 *                            receive, 2 posting a send, 3 polling at its receiver, 4 at its sender, 5 the program itself,
 *                            6 the window, 7 its end, 8 a round
 *
 * Valgrind makes a program some fifty times slower, and what the device does once in so many microseconds would be in every
 * message. So this program has a clock of its own, which goes on by 100 ns each time the device looks at it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIST = 32, SHORT = 8, LONG = 65536, WARM_UP = 300, DEPTH = 4 * LIST };

static _Thread_local int is_main;
static uint64_t readings, polls;
static _Atomic uint64_t now_ns = 1000000000;
/* A store to one of them tells the reader of a trace what comes next. */
volatile char marks[16];

int clock_gettime(clockid_t clock, struct timespec *read) {
    (void)clock;
    uint64_t at_ns = __atomic_add_fetch(&now_ns, 100, __ATOMIC_RELAXED);
    readings += is_main;
    read->tv_sec = (time_t)(at_ns / 1000000000);
    read->tv_nsec = (long)(at_ns % 1000000000);
    return 0;
}

static void *never(void *argument) {
    (void)argument;
    for (;;) pause();
    return NULL;
}

/* The device's background threads do nothing: they would take packets at times that differ from run to run. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    (void)run, (void)argument;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, never, NULL);
}

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *sends, *receives;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory;
};

static struct end ends[2];

static void fatal(const char *what) {
    perror(what);
    exit(1);
}

static void *checked(void *made, const char *what) {
    if (!made) fatal(what);
    return made;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attributes, int mask) {
    if ((errno = ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE))) fatal("ibv_modify_qp");
}

static void make(struct end *end, struct ibv_device *device) {
    end->context = checked(ibv_open_device(device), "ibv_open_device");
    end->pd = checked(ibv_alloc_pd(end->context), "ibv_alloc_pd");
    end->sends = checked(ibv_create_cq(end->context, DEPTH, NULL, NULL, 0), "ibv_create_cq");
    end->receives = checked(ibv_create_cq(end->context, DEPTH, NULL, NULL, 0), "ibv_create_cq");
    end->memory = checked(aligned_alloc(4096, 2 * LONG), "memory");
    memset(end->memory, 0x5a, 2 * LONG);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    end->mr = checked(ibv_reg_mr(end->pd, end->memory, 2 * LONG, access), "ibv_reg_mr");
    struct ibv_qp_init_attr wanted = {
        .send_cq = end->sends,
        .recv_cq = end->receives,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
    };
    end->qp = checked(ibv_create_qp(end->pd, &wanted), "ibv_create_qp");
}

static void connect_to(struct end *end, struct end *peer) {
    union ibv_gid gid;
    if (ibv_query_gid(peer->context, 1, 0, &gid)) fatal("ibv_query_gid");
    int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    modify(end->qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access},
           IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    modify(end->qp,
           (struct ibv_qp_attr){
               .qp_state = IBV_QPS_RTR,
               .path_mtu = IBV_MTU_4096,
               .dest_qp_num = peer->qp->qp_num,
               .max_dest_rd_atomic = 4,
               .min_rnr_timer = 12,
               .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
           },
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    modify(end->qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4},
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void post_receive(struct end *end, uint32_t bytes) {
    struct ibv_sge sge = {(uintptr_t)end->memory + LONG, bytes, end->mr->lkey};
    struct ibv_recv_wr request = {.sg_list = &sge, .num_sge = 1}, *bad;
    marks[1] = 1;
    if (ibv_post_recv(end->qp, &request, &bad)) fatal("ibv_post_recv");
    marks[5] = 1;
}

/* `count` requests, of which the last is signaled. */
static void post(struct end *end, struct end *peer, enum ibv_wr_opcode opcode, uint32_t bytes, int inlined, int count) {
    struct ibv_sge sge = {(uintptr_t)end->memory, bytes, end->mr->lkey};
    struct ibv_send_wr list[LIST], *bad;
    for (int each = 0; each < count; each++) {
        list[each] = (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = opcode};
        list[each].next = each + 1 < count ? &list[each + 1] : NULL;
        list[each].send_flags = (inlined ? IBV_SEND_INLINE : 0) | (each + 1 < count ? 0 : IBV_SEND_SIGNALED);
        list[each].wr.rdma.remote_addr = (uintptr_t)peer->memory + LONG;
        list[each].wr.rdma.rkey = peer->mr->rkey;
    }
    marks[2] = 1;
    if (ibv_post_send(end->qp, list, &bad)) fatal("ibv_post_send");
    marks[5] = 1;
}

static int poll_once(struct ibv_cq *cq, int most, int as) {
    struct ibv_wc completions[16];
    marks[as] = 1;
    int found = ibv_poll_cq(cq, most, completions);
    marks[5] = 1;
    polls++;
    if (found < 0) fatal("ibv_poll_cq");
    for (int each = 0; each < found; each++)
        if (completions[each].status) {
            fprintf(stderr, "messages: %s\n", ibv_wc_status_str(completions[each].status));
            exit(1);
        }
    return found;
}

/* Polls until there is one. No other thread drives the other end, which may have something to say at the beginning. */
static void wait_for(struct ibv_cq *cq, int as, struct end *other) {
    for (int polled = 1; !poll_once(cq, 1, as); polled++)
        if (polled % 8 == 0) poll_once(other->receives, 1, 5);
}

/* A message to `to`, which answers with the next one, as ib_send_lat does: its receive request and its send were posted in the
 * turn before. */
static void send_turn(struct end *from, struct end *to) {
    post(from, to, IBV_WR_SEND, SHORT, 1, 1);
    wait_for(to->receives, 3, from);
    post_receive(to, SHORT);
    wait_for(to->sends, 4, from);
}

/* As ib_write_lat: the receiver finds the message while it polls for the completion of its own. */
static void write_turn(struct end *from, struct end *to) {
    post(from, to, IBV_WR_RDMA_WRITE, 8, 1, 1);
    wait_for(to->sends, 3, from);
}

/* `to` looks into its own queue, as a program that polls for something else, and serves the request in this way. */
static void one_sided(struct end *from, struct end *to, enum ibv_wr_opcode opcode, uint32_t bytes) {
    post(from, to, opcode, bytes, 0, 1);
    do {
        poll_once(to->receives, 1, 3);
    } while (!poll_once(from->sends, 1, 4));
}

static void list_of_sends(struct end *from, struct end *to, int count) {
    for (int each = 0; each < count; each++) post_receive(to, LONG);
    post(from, to, IBV_WR_SEND, 8, 0, count);
    for (int received = 0; received < count;) {
        received += poll_once(to->receives, 16, 3);
        if (received < count) poll_once(from->receives, 1, 4);
    }
    while (!poll_once(from->sends, 16, 4)) poll_once(to->receives, 16, 3);
}

/* `LIST` messages, each posted by itself. */
static void single_sends(struct end *from, struct end *to) {
    for (int each = 0; each < LIST; each++) post_receive(to, LONG);
    int received = 0, completed = 0;
    for (int each = 0; each < LIST; each++) {
        post(from, to, IBV_WR_SEND, 8, 0, 1);
        if (each % 4 == 3) received += poll_once(to->receives, 16, 3);
    }
    while (received < LIST || completed < LIST) {
        received += poll_once(to->receives, 16, 3);
        completed += poll_once(from->sends, 16, 4);
    }
}

enum kind { SEND_LAT, WRITE_LAT, READ_LAT, SEND_LIST, SEND_SINGLE, WRITE_LONG, KINDS };
static const char *const names[KINDS] = {"send-lat", "write-lat", "read-lat", "send-bw-l32", "send-bw-l1", "write-64k"};
static const int messages_of[KINDS] = {2, 2, 1, LIST, LIST, 1};

static void begin(enum kind kind) {
    struct end *a = &ends[0], *b = &ends[1];
    if (kind == SEND_LAT) {
        post_receive(a, SHORT);
        post_receive(b, SHORT);
        post(b, a, IBV_WR_SEND, SHORT, 1, 1);
        wait_for(a->receives, 3, b);
        post_receive(a, SHORT);
    }
    if (kind == WRITE_LAT) {
        /* From here on each message takes the acknowledgement of the one before it along. */
        post(b, a, IBV_WR_RDMA_WRITE, 8, 1, 1);
        post(a, b, IBV_WR_RDMA_WRITE, 8, 1, 1);
        poll_once(a->receives, 1, 3);
        wait_for(b->sends, 3, a);
        post(b, a, IBV_WR_RDMA_WRITE, 8, 1, 1);
        wait_for(a->sends, 3, b);
    }
}

static void finish(enum kind kind) {
    if (kind == SEND_LAT || kind == WRITE_LAT)
        while (!poll_once(ends[1].sends, 1, 4)) poll_once(ends[0].receives, 1, 3);
}

static void turn(enum kind kind) {
    struct end *a = &ends[0], *b = &ends[1];
    switch (kind) {
    case SEND_LAT: send_turn(a, b), send_turn(b, a); break;
    case WRITE_LAT: write_turn(a, b), write_turn(b, a); break;
    case READ_LAT: one_sided(a, b, IBV_WR_RDMA_READ, 8); break;
    case SEND_LIST: list_of_sends(a, b, LIST); break;
    case SEND_SINGLE: single_sends(a, b); break;
    case WRITE_LONG: one_sided(a, b, IBV_WR_RDMA_WRITE, LONG); break;
    case KINDS: break;
    }
}

__attribute__((noinline)) void measured(enum kind kind, int rounds) {
    for (int round = 0; round < rounds; round++) {
        marks[8] = 1;
        turn(kind);
    }
    __asm__ volatile("" ::: "memory");
}

int main(int count, char **words) {
    int traces = count == 4 && !strcmp(words[1], "trace"), found = 0;
    if (!traces && count != 3) {
        fprintf(stderr, "usage: messages WINDOWS ROUNDS | messages trace KIND ROUNDS\n");
        return 2;
    }
    is_main = 1;
    struct ibv_device **devices = checked(ibv_get_device_list(&found), "ibv_get_device_list");
    if (found < 2) {
        fprintf(stderr, "messages: there are %d devices, and it needs two\n", found);
        return 1;
    }
    for (int each = 0; each < 2; each++) make(&ends[each], devices[each]);
    connect_to(&ends[0], &ends[1]);
    connect_to(&ends[1], &ends[0]);
    int windows = traces ? 1 : atoi(words[1]), rounds = atoi(words[count - 1]);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        if (traces && strcmp(words[2], names[kind])) continue;
        int all = rounds * 2 / messages_of[kind];
        if (all < 1) all = 1;
        begin(kind);
        for (int round = 0; round < WARM_UP; round++) turn(kind);
        for (int window = 0; window < windows; window++) {
            readings = polls = 0;
            marks[6] = 1;
            measured(kind, all);
            marks[7] = 1;
            printf("%s %d %llu %llu\n", names[kind], all * messages_of[kind], (unsigned long long)polls, (unsigned long long)readings);
        }
        finish(kind);
    }
    if (traces) {
        /* Where the library is, for those who read the addresses. */
        char line[512];
        FILE *maps = checked(fopen("/proc/self/maps", "r"), "/proc/self/maps");
        while (fgets(line, sizeof line, maps))
            if (strstr(line, "r-xp")) printf("map %s", line);
        fclose(maps);
    }
    fflush(stdout);
    _exit(0);
}
