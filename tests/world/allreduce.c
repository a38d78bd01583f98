/* What osu_allreduce measures: the mean time of MPI_Allreduce (float, sum) over all ranks, for sizes from the first argument to the
   second; "allreduce 8 1048576 100" makes 100 calls of each size, after a tenth as many that do not count. Each sum is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 64 };

static double argument(int argc, char **argv, int index, double otherwise)
{
    return argc > index ? atof(argv[index]) : otherwise;
}

int main(int argc, char **argv)
{
    int rank, ranks, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long from = (long)argument(argc, argv, 1, 8), to = (long)argument(argc, argv, 2, (double)from);
    int calls = (int)argument(argc, argv, 3, 20), before = calls / 10 + 1;

    char own[NAME] = "", *names = calloc(ranks, NAME);
    gethostname(own, NAME - 1);
    MPI_Gather(own, NAME, MPI_CHAR, names, NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks on", ranks);
        for (int other = 0; other < ranks; other++)
            if (other == 0 || strcmp(names + other * NAME, names + (other - 1) * NAME))
                printf(" %s", names + other * NAME);
        printf("\n# bytes    us\n");
    }
    for (long bytes = from; bytes <= to && bytes >= 4; bytes *= 2) {
        long count = bytes / sizeof(float);
        float *mine = malloc(bytes), *sum = malloc(bytes);
        for (long at = 0; at < count; at++)
            mine[at] = (float)(rank + 1);
        double took = 0;
        for (int call = -before; call < calls; call++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begin = MPI_Wtime();
            MPI_Allreduce(mine, sum, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            if (call >= 0)
                took += MPI_Wtime() - begin;
        }
        for (long at = 0; at < count; at++)
            wrong += sum[at] != (float)ranks * (float)(ranks + 1) / 2;
        double all = 0;
        MPI_Reduce(&took, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%ld %.3f\n", bytes, all * 1e6 / calls / ranks);
        free(mine);
        free(sum);
    }
    int wrongs = 0;
    MPI_Reduce(&wrong, &wrongs, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && wrongs)
        printf("%d sums are wrong\n", wrongs);
    MPI_Finalize();
    return wrongs != 0;
}
