/* Collectives whose results are known: every rank checks every element of every result. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long wrong;

static void check(long found, long expected) { wrong += found != expected; }

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double start = MPI_Wtime();
    for (int count = 1; count <= 1 << 17; count *= 4) {
        long *mine = malloc(sizeof(long) * count * size), *result = malloc(sizeof(long) * count * size);
        for (int round = 0; round < 5; round++) {
            for (int i = 0; i < count * size; i++) mine[i] = (long)rank * 1000003 + i + round;
            MPI_Allreduce(mine, result, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
            for (int i = 0; i < count; i++)
                check(result[i], (long)size * (size - 1) / 2 * 1000003 + (long)size * (i + round));
            MPI_Alltoall(mine, count, MPI_LONG, result, count, MPI_LONG, MPI_COMM_WORLD);
            for (int from = 0; from < size; from++)
                for (int i = 0; i < count; i++)
                    check(result[from * count + i], (long)from * 1000003 + (long)rank * count + i + round);
            if (rank == round % size)
                for (int i = 0; i < count; i++) result[i] = 7L * i + round;
            MPI_Bcast(result, count, MPI_LONG, round % size, MPI_COMM_WORLD);
            for (int i = 0; i < count; i++) check(result[i], 7L * i + round);
        }
        free(mine);
        free(result);
    }
    long all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %.2f s: %s\n", size, MPI_Wtime() - start, all ? "WRONG RESULTS" : "every result right");
    MPI_Finalize();
    return wrong != 0;
}
