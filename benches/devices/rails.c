/* What threads of one process carry on one device or on several: each thread has two RC queue pairs that are connected to each
 * other, on a device that it shares with other threads or has alone. It posts RDMA WRITEs from one to the other and polls, and so
 * does the work of both ends. Or, for comparison, threads that need no device.
 *
 * rails write SIZE LIST DEVICES THREADS SECONDS    LIST requests are posted by each call, the last of them signaled
 * rails copy SIZE THREADS SECONDS                  memcpy of SIZE bytes, from memory of the thread to memory of the thread
 * rails spin THREADS SECONDS                       arithmetic without memory
 *
 * Thread I uses device I modulo DEVICES. Prints how many messages (copies, thousands of steps) a second all threads together
 * carried; the first fifth of a second does not count. At the end the last bytes of each target are compared.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LISTS_IN_FLIGHT = 8, MOST_THREADS = 64, MOST_DEVICES = 16, LONGEST_LIST = 256, WARM_UP_MS = 200 };

struct end {
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory;
};

/* A cache line of its own for what the thread counts. */
struct worker {
    _Alignas(128) _Atomic uint64_t done;
    _Alignas(128) pthread_t thread;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct end from, to;
};

static struct worker workers[MOST_THREADS];
static _Atomic int stop;
static pthread_barrier_t begun;
static size_t size;
static int list_length;

static void fatal(const char *what) {
    perror(what);
    exit(1);
}

static void *checked(void *made, const char *what) {
    if (!made) fatal(what);
    return made;
}

static void make_end(struct worker *worker, struct end *end, uint8_t fill) {
    end->memory = checked(aligned_alloc(4096, (size + 4095) / 4096 * 4096), "memory");
    memset(end->memory, fill, size);
    if (!worker->pd) return;
    end->mr = checked(ibv_reg_mr(worker->pd, end->memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), "ibv_reg_mr");
    struct ibv_qp_init_attr wanted = {
        .send_cq = worker->cq,
        .recv_cq = worker->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = LISTS_IN_FLIGHT * list_length, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    end->qp = checked(ibv_create_qp(worker->pd, &wanted), "ibv_create_qp");
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attributes, int mask) {
    if (ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE)) fatal("ibv_modify_qp");
}

/* The queue pair's peer is another one of the same device. */
static void connect_to(struct worker *worker, struct ibv_qp *qp, struct ibv_qp *peer) {
    union ibv_gid gid;
    if (ibv_query_gid(worker->context, 1, 0, &gid)) fatal("ibv_query_gid");
    modify(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
           IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    modify(qp,
           (struct ibv_qp_attr){
               .qp_state = IBV_QPS_RTR,
               .path_mtu = IBV_MTU_4096,
               .dest_qp_num = peer->qp_num,
               .max_dest_rd_atomic = 1,
               .min_rnr_timer = 12,
               .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
           },
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    modify(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1},
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void make_worker(struct worker *worker, struct ibv_context *context) {
    if (context) {
        worker->context = context;
        worker->pd = checked(ibv_alloc_pd(context), "ibv_alloc_pd");
        worker->cq = checked(ibv_create_cq(context, 2 * LISTS_IN_FLIGHT, NULL, NULL, 0), "ibv_create_cq");
    }
    make_end(worker, &worker->from, 0x5a);
    make_end(worker, &worker->to, 0);
    if (!context) return;
    connect_to(worker, worker->from.qp, worker->to.qp);
    connect_to(worker, worker->to.qp, worker->from.qp);
}

static void *write_messages(void *argument) {
    struct worker *worker = argument;
    struct ibv_sge sge = {(uintptr_t)worker->from.memory, (uint32_t)size, worker->from.mr->lkey};
    struct ibv_send_wr list[LONGEST_LIST] = {0}, *bad;
    for (int each = 0; each < list_length; each++) {
        list[each].next = each + 1 < list_length ? &list[each + 1] : NULL;
        list[each].sg_list = &sge;
        list[each].num_sge = 1;
        list[each].opcode = IBV_WR_RDMA_WRITE;
        list[each].wr.rdma.remote_addr = (uintptr_t)worker->to.memory;
        list[each].wr.rdma.rkey = worker->to.mr->rkey;
    }
    list[list_length - 1].send_flags = IBV_SEND_SIGNALED;
    int in_flight = 0;
    pthread_barrier_wait(&begun);
    for (;;) {
        int ending = atomic_load_explicit(&stop, memory_order_relaxed);
        if (ending && in_flight == 0) return NULL;
        for (; !ending && in_flight < LISTS_IN_FLIGHT; in_flight++)
            if (ibv_post_send(worker->from.qp, list, &bad)) fatal("ibv_post_send");
        struct ibv_wc completions[LISTS_IN_FLIGHT];
        int found = ibv_poll_cq(worker->cq, LISTS_IN_FLIGHT, completions);
        if (found < 0) fatal("ibv_poll_cq");
        for (int each = 0; each < found; each++)
            if (completions[each].status != IBV_WC_SUCCESS) {
                fprintf(stderr, "a WRITE ended with %s\n", ibv_wc_status_str(completions[each].status));
                exit(1);
            }
        in_flight -= found;
        atomic_store_explicit(&worker->done, worker->done + (uint64_t)found * list_length, memory_order_relaxed);
    }
}

static void *copy_messages(void *argument) {
    struct worker *worker = argument;
    pthread_barrier_wait(&begun);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        memcpy(worker->to.memory, worker->from.memory, size);
        __asm__ volatile("" ::: "memory");
        atomic_store_explicit(&worker->done, worker->done + 1, memory_order_relaxed);
    }
    return NULL;
}

static void *spin(void *argument) {
    struct worker *worker = argument;
    uint64_t state = 88172645463325252ull;
    pthread_barrier_wait(&begun);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int step = 0; step < 1000; step++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            __asm__ volatile("" : "+r"(state));
        }
        atomic_store_explicit(&worker->done, worker->done + 1, memory_order_relaxed);
    }
    return NULL;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void sleep_s(double seconds) {
    struct timespec length = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&length, &length)) {}
}

static uint64_t all_done(int threads) {
    uint64_t sum = 0;
    for (int each = 0; each < threads; each++) sum += atomic_load_explicit(&workers[each].done, memory_order_relaxed);
    return sum;
}

static long number(const char *text, long least, long most, const char *what) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < least || value > most) {
        fprintf(stderr, "rails: %s is a number from %ld to %ld, not '%s'\n", what, least, most, text);
        exit(2);
    }
    return value;
}

int main(int count, char **words) {
    int is_write = count == 7 && !strcmp(words[1], "write"), is_copy = count == 5 && !strcmp(words[1], "copy");
    int is_spin = count == 4 && !strcmp(words[1], "spin"), devices = 0, found = 0;
    if (!is_write && !is_copy && !is_spin) {
        fprintf(stderr, "usage: rails write SIZE LIST DEVICES THREADS SECONDS | copy SIZE THREADS SECONDS | spin THREADS SECONDS\n");
        return 2;
    }
    size = is_spin ? 8 : (size_t)number(words[2], 1, 1 << 30, "SIZE");
    list_length = is_write ? (int)number(words[3], 1, LONGEST_LIST, "LIST") : 1;
    if (is_write) devices = (int)number(words[4], 1, MOST_DEVICES, "DEVICES");
    int threads = (int)number(words[count - 2], 1, MOST_THREADS, "THREADS");
    double seconds = atof(words[count - 1]);
    if (!(seconds > 0 && seconds <= 3600)) {
        fprintf(stderr, "rails: SECONDS is a number above 0, up to 3600, not '%s'\n", words[count - 1]);
        return 2;
    }
    struct ibv_context *contexts[MOST_DEVICES] = {NULL};
    if (is_write) {
        struct ibv_device **list = checked(ibv_get_device_list(&found), "ibv_get_device_list");
        if (found < devices) {
            fprintf(stderr, "rails: there are %d devices, not %d\n", found, devices);
            return 1;
        }
        for (int each = 0; each < devices; each++) contexts[each] = checked(ibv_open_device(list[each]), "ibv_open_device");
        ibv_free_device_list(list);
    }
    pthread_barrier_init(&begun, NULL, (unsigned)threads + 1);
    for (int each = 0; each < threads; each++) make_worker(&workers[each], is_write ? contexts[each % devices] : NULL);
    void *(*work)(void *) = is_write ? write_messages : is_copy ? copy_messages : spin;
    for (int each = 0; each < threads; each++)
        if (pthread_create(&workers[each].thread, NULL, work, &workers[each])) fatal("pthread_create");
    pthread_barrier_wait(&begun);
    sleep_s(WARM_UP_MS * 1e-3);
    double first_s = now_s();
    uint64_t first = all_done(threads);
    sleep_s(seconds);
    uint64_t last = all_done(threads);
    double last_s = now_s();
    atomic_store(&stop, 1);
    for (int each = 0; each < threads; each++) {
        pthread_join(workers[each].thread, NULL);
        if (!is_spin && memcmp(workers[each].to.memory, workers[each].from.memory, size)) {
            fprintf(stderr, "rails: thread %d has other bytes in its target\n", each);
            return 1;
        }
        if (!atomic_load(&workers[each].done)) {
            fprintf(stderr, "rails: thread %d carried nothing\n", each);
            return 1;
        }
    }
    printf("%.6g\n", (double)(last - first) / (last_s - first_s));
    return 0;
}
