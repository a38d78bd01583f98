/* Ranks that reduce, exchange and pass messages round through MPI, and compare every value with what it must be.
 *
 *   mpirun -np N openmpi-verify [ROUNDS [SIZES]]      rank 0 prints what was verified; a wrong value aborts all ranks */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Elements of a message: eager, at the border, and by rendezvous. */
static const int COUNTS[] = {1, 3, 100, 1000, 1024, 2049, 8192, 50000, 200000};
#define KINDS (int)(sizeof(COUNTS) / sizeof(COUNTS[0]))
#define ROUNDS 3

static int rank, ranks;
static unsigned long verified;

static void claim(int so, const char *what, int count, int index)
{
	if (so) {
		verified++;
		return;
	}
	fprintf(stderr, "openmpi-verify: rank %d: %s of %d elements: element %d is wrong\n", rank, what, count, index);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What rank `from` has for rank `to` at this place. */
static uint64_t value(int from, int to, int index, int round)
{
	return ((uint64_t)from * 1000003 + (uint64_t)to * 10007 + (uint64_t)index * 31 + (uint64_t)round) * 2654435761u;
}

static void *room(size_t elements)
{
	void *memory = malloc(elements * sizeof(uint64_t));
	if (!memory)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return memory;
}

static void allreduce(int count, int round)
{
	uint64_t *own = room(count), *sum = room(count);
	for (int i = 0; i < count; i++)
		own[i] = value(rank, 0, i, round);
	MPI_Allreduce(own, sum, count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++) {
		uint64_t wanted = 0;
		for (int from = 0; from < ranks; from++)
			wanted += value(from, 0, i, round);
		claim(sum[i] == wanted, "allreduce", count, i);
	}
	free(own);
	free(sum);
}

static void alltoall(int count, int round)
{
	size_t all = (size_t)count * ranks;
	uint64_t *own = room(all), *got = room(all);
	for (int to = 0; to < ranks; to++)
		for (int i = 0; i < count; i++)
			own[(size_t)to * count + i] = value(rank, to, i, round);
	MPI_Alltoall(own, count, MPI_UINT64_T, got, count, MPI_UINT64_T, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		for (int i = 0; i < count; i++)
			claim(got[(size_t)from * count + i] == value(from, rank, i, round), "alltoall", count, i);
	free(own);
	free(got);
}

/* To the next rank, from the one before; every rank has both under way. */
static void ring(int count, int round)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	uint64_t *own = room(count), *got = room(count);
	MPI_Request requests[2];
	for (int i = 0; i < count; i++)
		own[i] = value(rank, next, i, round);
	MPI_Irecv(got, count, MPI_UINT64_T, before, round, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend(own, count, MPI_UINT64_T, next, round, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < count; i++)
		claim(got[i] == value(before, rank, i, round), "ring", count, i);
	free(own);
	free(got);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS, kinds = argc > 2 ? atoi(argv[2]) : KINDS;
	kinds = kinds < KINDS ? kinds : KINDS;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < rounds; round++)
		for (int kind = 0; kind < kinds; kind++) {
			allreduce(COUNTS[kind], round);
			alltoall(COUNTS[kind] / ranks + 1, round);
			ring(COUNTS[kind], round);
		}
	unsigned long all = 0;
	MPI_Reduce(&verified, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("verified %lu values of %d ranks: allreduce, alltoall and a ring of %d sizes\n", all, ranks, kinds);
	MPI_Finalize();
	return 0;
}
