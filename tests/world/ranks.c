// Two or more ranks of MPI: messages both ways, one from any source, and a sum.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static char bytes[1 << 16];
    for (int round = 0; round < 20; round++) {
        int length = 1 << (round % 17);
        if (rank == 0) {
            for (int other = 1; other < size; other++) {
                MPI_Status status;
                MPI_Recv(bytes, sizeof bytes, MPI_CHAR, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status);
                printf("round %d: rank %d\n", round, status.MPI_SOURCE);
            }
        } else {
            memset(bytes, rank, length);
            MPI_Send(bytes, length, MPI_CHAR, 0, round, MPI_COMM_WORLD);
        }
    }
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d: sum %d, barrier %.9f s\n", rank, size, sum, MPI_Wtime() - begun);
    MPI_Finalize();
    return sum == size * (size - 1) / 2 ? 0 : 1;
}
