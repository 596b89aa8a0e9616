/*
 * What the parts of the path shim share. shim.c says what it is for, and the rules.
 */
#ifndef RNIC_SHIM_H
#define RNIC_SHIM_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* What is at a path; src/paths.rs fills it in, and has the same layout and numbers. */
enum rnic_kind { FOREIGN, OUTSIDE, DIRECTORY, REGULAR, DEVICE, LINK, FAILED };

struct rnic_place {
    int kind;
    int error; /* when it leads nowhere */
    unsigned int major, minor;
    unsigned long inode;
    size_t len;          /* of the contents */
    char path[1024];     /* without links and dots; of OUTSIDE the kernel's */
    char contents[1024]; /* of a file, or where a link leads */
};

/* The next definition of `name` in line, behind this object; NULL with ENOSYS when a libc lacks it. */
void *rnic_next(void **place, const char *name);

/*
 * Calls the next definition. The type of a call is that of its arguments; a libc that lacks it says ENOSYS, as kernels
 * do.
 */
#define NEXT_OR(failure, result, name, types, arguments)                                                               \
    do {                                                                                                               \
        static void *next_place;                                                                                       \
        result(*next) types = (result(*) types)rnic_next(&next_place, #name);                                          \
        return next == NULL ? failure : next arguments;                                                                \
    } while (0)
#define NEXT(result, name, types, arguments) NEXT_OR((result)-1, result, name, types, arguments)
#define NEXT_POINTER(result, name, types, arguments) NEXT_OR(NULL, result, name, types, arguments)

/*
 * Looks `path` up, from the directory `folder` when it does not begin at the root; answers whether it is the tree's to
 * answer (kind is not FOREIGN). A link in the last place is followed if `follows`. errno stays as it was.
 */
int rnic_find(int folder, const char *path, int follows, struct rnic_place *place);

/* The same for the directory or file that the descriptor `fd` was opened for. */
int rnic_find_descriptor(int fd, struct rnic_place *place);

/* The names that the tree has in `path`, as rnic_list writes them, allocated; NULL when there are none. */
char *rnic_names(const char *path, size_t *len);

/* Opens what was found. */
int rnic_open_place(const struct rnic_place *place, int flags);

/* The status of what was found, as fstat(2) has it. */
struct stat;
void rnic_status(const struct rnic_place *place, struct stat *status);

static inline int refuse(int error) {
    errno = error;
    return -1;
}

#endif
