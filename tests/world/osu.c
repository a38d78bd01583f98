/* What the OSU micro-benchmarks measure, in their way: "osu allreduce 8 4096 20" prints it for 8 to 4096 bytes, with 20 calls of
   each size, after a tenth as many that do not count. One size without the second number.

   latency    half of a round trip between the first two ranks, in us
   bw         MB/s from the first rank to the second, 64 messages and an answer at a time
   allreduce  MPI_Allreduce (float, sum), MPI_Bcast and MPI_Alltoall: the mean time over all ranks, in us, with a barrier before
   bcast      each call; of alltoall the bytes are those for each rank
   alltoall

   What arrives is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 64, WINDOW = 64 };

static int rank, ranks;
static char *out, *in;

/* A byte of what a rank sends to another one in this call. */
static char expected(int from, int to, long call)
{
    return (char)(from * 7 + to * 3 + call);
}

/* One round trip. */
static double latency(long bytes, long call)
{
    double begin = MPI_Wtime();
    memset(out, expected(rank, 1 - rank, call), 1);
    if (rank == 0)
        MPI_Send(out, (int)bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    if (rank < 2)
        MPI_Recv(in, (int)bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, (int)bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    return (MPI_Wtime() - begin) / 2;
}

/* One window of messages, and the answer. */
static double window(long bytes, long call)
{
    MPI_Request requests[WINDOW];
    MPI_Status statuses[WINDOW];
    double begin = MPI_Wtime();
    memset(out, expected(rank, 1 - rank, call), 1);
    for (int at = 0; at < WINDOW && rank < 2; at++) {
        if (rank == 0)
            MPI_Isend(out, (int)bytes, MPI_CHAR, 1, 100, MPI_COMM_WORLD, &requests[at]);
        else
            MPI_Irecv(in, (int)bytes, MPI_CHAR, 0, 100, MPI_COMM_WORLD, &requests[at]);
    }
    char answer[4] = "";
    if (rank < 2)
        MPI_Waitall(WINDOW, requests, statuses);
    if (rank == 1)
        MPI_Send(answer, 4, MPI_CHAR, 0, 101, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(answer, 4, MPI_CHAR, 1, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Wtime() - begin;
}

static double collective(char kind, long bytes, long call)
{
    float *numbers = (float *)out;
    for (int to = 0; to < ranks && kind == 'l'; to++)
        memset(out + to * bytes, expected(rank, to, call), (size_t)bytes);
    for (long at = 0; at < bytes / 4 && kind == 'a'; at++)
        numbers[at] = (float)(rank + 1);
    if (kind == 'b' && rank == 0)
        memset(in, expected(0, 0, call), (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    if (kind == 'a')
        MPI_Allreduce(out, in, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (kind == 'b')
        MPI_Bcast(in, (int)bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
    else
        MPI_Alltoall(out, (int)bytes, MPI_CHAR, in, (int)bytes, MPI_CHAR, MPI_COMM_WORLD);
    return MPI_Wtime() - begin;
}

/* How much of what a call brought is wrong. */
static long wrong(char kind, long bytes, long call)
{
    long wrongs = 0;
    for (long at = 0; at < bytes / 4 && kind == 'a'; at++)
        wrongs += ((float *)in)[at] != (float)ranks * (float)(ranks + 1) / 2;
    for (long at = 0; at < bytes && kind == 'b'; at++)
        wrongs += in[at] != expected(0, 0, call);
    for (long at = 0; at < bytes * ranks && kind == 'l'; at++)
        wrongs += in[at] != expected((int)(at / bytes), rank, call);
    if ((kind == 'p' && rank < 2) || (kind == 'w' && rank == 1))
        wrongs += in[0] != expected(1 - rank, rank, call);
    return wrongs;
}

static void print_hosts(void)
{
    char own[NAME] = "", *names = calloc((size_t)ranks, NAME);
    gethostname(own, NAME - 1);
    MPI_Gather(own, NAME, MPI_CHAR, names, NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks on", ranks);
        for (int other = 0; other < ranks; other++)
            if (other == 0 || strcmp(names + other * NAME, names + (other - 1) * NAME))
                printf(" %s", names + other * NAME);
        printf("\n");
    }
    free(names);
}

static double argument(int argc, char **argv, int index, double otherwise)
{
    return argc > index ? atof(argv[index]) : otherwise;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *operations[] = {"latency", "bw", "allreduce", "bcast", "alltoall"}, *name = argc > 1 ? argv[1] : "";
    char kind = 0;
    for (int at = 0; at < 5; at++)
        kind = strcmp(name, operations[at]) ? kind : "pwabl"[at];
    long from = (long)argument(argc, argv, 2, 8), to = (long)argument(argc, argv, 3, (double)from);
    int calls = (int)argument(argc, argv, 4, 20), before = calls / 10 + 1;
    if (!kind || from < 4 || calls < 1 || ranks < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    out = calloc((size_t)to, (size_t)ranks);
    in = calloc((size_t)to, (size_t)ranks);
    print_hosts();
    if (rank == 0)
        printf("# bytes    %s\n", kind == 'w' ? "MB/s" : "us");
    long wrongs = 0, all_wrongs = 0;
    for (long bytes = from; bytes <= to; bytes *= 2) {
        double took = 0, all = 0;
        for (int call = -before; call < calls; call++) {
            if (call == 0 && (kind == 'p' || kind == 'w'))
                MPI_Barrier(MPI_COMM_WORLD);
            double one = kind == 'p' ? latency(bytes, call) : kind == 'w' ? window(bytes, call) : collective(kind, bytes, call);
            took += call < 0 ? 0 : one;
            wrongs += wrong(kind, bytes, call);
        }
        MPI_Reduce(&took, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        double us = (kind == 'p' || kind == 'w' ? took : all / ranks) * 1e6 / calls;
        if (rank == 0)
            printf("%ld %.3f\n", bytes, kind == 'w' ? (double)bytes * WINDOW / us : us);
    }
    MPI_Reduce(&wrongs, &all_wrongs, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all_wrongs)
        printf("%ld bytes or sums are wrong\n", all_wrongs);
    MPI_Bcast(&all_wrongs, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return all_wrongs != 0;
}
