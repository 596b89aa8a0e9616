/* Times of collectives and of a ping-pong, by size: one line each, "NAME BYTES MICROSECONDS", the median of rounds.
 *
 * BYTES is what a rank has for one other rank (AllToAll, AllGather), its whole buffer (AllReduce) or the message.
 * A round begins when all ranks have left a barrier and ends when the slowest has its result. Every round's result is
 * checked; a wrong one ends the program with status 1. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 41, WARM_UP = 5, LARGEST = 1 << 20 };

static int rank, size;
static char *mine, *result;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ping_pong(int bytes) {
    if (rank == 0) {
        MPI_Send(mine, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(result, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(result, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(result, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
}

static void all_reduce(int bytes) {
    MPI_Allreduce(mine, result, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(int bytes) {
    MPI_Alltoall(mine, bytes, MPI_CHAR, result, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void all_gather(int bytes) {
    MPI_Allgather(mine, bytes, MPI_CHAR, result, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

/* Returns the integer with which rank `from` fills its buffer in `round`. */
static int word_of(int from, int round) { return from * 1000 + round; }

/* Returns whether the result of `round` is right: which ranks' words the `parts` of it have, or their sum. */
static int is_right(int bytes, int parts, int sums, int round) {
    for (int part = 0; part < parts; part++) {
        int expected = parts == 1 ? word_of(0, round) : word_of(part, round);
        for (int from = 1; sums && from < size; from++) expected += word_of(from, round);
        for (int at = 0; at + 4 <= bytes; at += 4) {
            int found;
            memcpy(&found, result + (size_t)part * bytes + at, 4);
            if (found != expected) return 0;
        }
    }
    return 1;
}

static void measure(const char *name, void (*run)(int), int bytes, int parts, int sums) {
    double times[ROUNDS];
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        int word = word_of(rank, round);
        for (size_t at = 0; at < (size_t)bytes * size; at += 4) memcpy(mine + at, &word, 4);
        memset(result, 0xff, (size_t)bytes * size);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        run(bytes);
        double own = MPI_Wtime() - start, slowest;
        if (!(run == ping_pong && rank > 1) && !is_right(bytes, parts, sums, round)) {
            fprintf(stderr, "%s of %d bytes: wrong result at rank %d\n", name, bytes, rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (round >= 0) times[round] = slowest;
    }
    qsort(times, ROUNDS, sizeof times[0], by_value);
    if (rank == 0) printf("%s %d %.2f\n", name, bytes, times[ROUNDS / 2] * 1e6);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = malloc((size_t)LARGEST * size);
    result = malloc((size_t)LARGEST * size);
    for (int bytes = 4; bytes <= LARGEST; bytes *= bytes == 4 ? 64 : 16) {
        measure("ping-pong", ping_pong, bytes, 1, 0);
        measure("all-reduce", all_reduce, bytes, 1, 1);
        measure("all-to-all", all_to_all, bytes, size, 0);
        measure("all-gather", all_gather, bytes, size, 0);
    }
    free(mine);
    free(result);
    MPI_Finalize();
    return 0;
}
