/*
 * Hints: a program tells its NIC of OpenRNIC about itself by plain stores, without a system call.
 *
 * Copy this file into a program. It needs no library to build (on old C libraries -ldl), and a program that runs with
 * another libibverbs gets no line, and continues without. docs/sharing.md has an example.
 */
#ifndef RNIC_HINT_H
#define RNIC_HINT_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_context;

/* One cache line that the program writes and its NIC reads; rnic-host/src/hint.rs has the same layout. */
struct rnic_hint {
    uint64_t magic;    /* written by the NIC */
    uint32_t sequence; /* odd while the program writes */
    uint32_t weight;   /* of the process at the shared link: 1 to 1000 */
    uint32_t cap_kbps; /* limit of each queue pair of the NIC in kbit/s; 0 for none */
    uint32_t reserved[11];
};

/* Identifies a line of this version. */
#define RNIC_HINT_MAGIC UINT64_C(0x726e6963686e7431)

/* RTLD_DEFAULT, which some C libraries declare for _GNU_SOURCE only. */
#ifdef RTLD_DEFAULT
#define RNIC_HINT_SCOPE RTLD_DEFAULT
#else
#define RNIC_HINT_SCOPE ((void *)0)
#endif

/*
 * Returns the line of an open device; NULL when the device is not of OpenRNIC, or of a version that has no hints, or was
 * opened by the parent process. The line holds the weight and the cap in force, and exists until the device is closed.
 */
static inline struct rnic_hint *rnic_hint_find(struct ibv_context *context) {
    struct rnic_hint *(*open_line)(struct ibv_context *);
    struct rnic_hint *line;
    void *symbol = dlsym(RNIC_HINT_SCOPE, "rnic_hint_open");
    if (symbol == NULL) return NULL;
    memcpy(&open_line, &symbol, sizeof open_line);
    line = open_line(context);
    return line != NULL && line->magic == RNIC_HINT_MAGIC ? line : NULL;
}

/*
 * Writes a hint, which the NIC applies with its next turn; does nothing without a line. Values out of range change
 * nothing. One thread at a time may write to a line.
 */
static inline void rnic_hint_write(struct rnic_hint *line, uint32_t weight, uint32_t cap_kbps) {
    uint32_t odd;
    if (line == NULL) return;
    odd = __atomic_load_n(&line->sequence, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&line->sequence, odd, __ATOMIC_RELAXED);
    /* The odd number must be visible before the contents that it protects. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&line->weight, weight, __ATOMIC_RELAXED);
    __atomic_store_n(&line->cap_kbps, cap_kbps, __ATOMIC_RELAXED);
    __atomic_store_n(&line->sequence, odd + 1, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif

#endif
