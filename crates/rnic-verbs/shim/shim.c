/*
 * The path shim: programs that look for an RDMA device in the file system find ours.
 *
 * UCX, for one, asks for /dev/infiniband/uverbs0 and reads files under /sys/class/infiniband before it talks to the
 * verbs library. This object is preloaded (`rnic run` does it) and answers calls on those paths. What is there, and
 * what is in it, libibverbs.so.1 of ours says (rnic_lookup): nothing stands in any file system, so nothing can be left
 * behind. A device file opens as /dev/null, a file as an anonymous one in memory with its contents.
 *
 * Every other path goes to the next library in line, untouched. Not answered: relative paths, and reading the
 * directories themselves (opendir).
 *
 * Rules here: no allocation and no lock for paths that are not ours; errno is what the call says; nothing is exported
 * but the calls that are replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* What rnic_lookup answers besides the length of a file's contents; src/paths.rs has the same numbers. */
enum { NOT_OURS = -1, DIRECTORY = -2, DEVICE = -3 };

/* The longest file has some 40 bytes. */
enum { CONTENTS_MAX = 256 };

/* Numbers of /dev/infiniband/uverbs0 in Linux. */
enum { UVERBS_MAJOR = 231, UVERBS_MINOR = 192 };

typedef long (*lookup_fn)(const char *path, char *buffer, size_t capacity);

/* The next definition of `name` in line. Written by any thread, always with the same value. */
static void *next_of(void **place, const char *name) {
    void *found = __atomic_load_n(place, __ATOMIC_RELAXED);
    if (found == NULL) {
        int saved = errno;
        found = dlsym(RTLD_NEXT, name);
        errno = saved;
        __atomic_store_n(place, found, __ATOMIC_RELAXED);
    }
    return found;
}

/* Calls the next definition; a libc that lacks it says ENOSYS, as kernels do. */
#define NEXT(result, name, types, arguments)                                                                           \
    do {                                                                                                               \
        static void *place;                                                                                            \
        result(*next) types = (result(*) types)next_of(&place, #name);                                                 \
        if (next == NULL) {                                                                                            \
            errno = ENOSYS;                                                                                            \
            return (result)-1;                                                                                         \
        }                                                                                                              \
        return next arguments;                                                                                         \
    } while (0)

/* The same for calls that answer a pointer. */
#define NEXT_POINTER(result, name, types, arguments)                                                                   \
    do {                                                                                                               \
        static void *place;                                                                                            \
        result(*next) types = (result(*) types)next_of(&place, #name);                                                 \
        if (next == NULL) {                                                                                            \
            errno = ENOSYS;                                                                                            \
            return NULL;                                                                                               \
        }                                                                                                              \
        return next arguments;                                                                                         \
    } while (0)

static int begins_with(const char *path, const char *prefix) {
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

/* What `path` is: most are told apart by their first bytes. */
static long lookup(const char *path, char *buffer, size_t capacity) {
    static void *place;
    if (path == NULL || path[0] != '/' ||
        !(begins_with(path, "/dev/infiniband") || begins_with(path, "/sys/class/infiniband") ||
          begins_with(path, "/sys/class/misc/rdma_cm"))) {
        return NOT_OURS;
    }
    int saved = errno;
    void *found = __atomic_load_n(&place, __ATOMIC_RELAXED);
    if (found == NULL) {
        found = dlsym(RTLD_DEFAULT, "rnic_lookup");
        __atomic_store_n(&place, found, __ATOMIC_RELAXED);
    }
    long kind = found == NULL ? NOT_OURS : ((lookup_fn)found)(path, buffer, capacity);
    errno = saved;
    return kind;
}

static int refuse(int error) {
    errno = error;
    return -1;
}

/* A descriptor for one of our paths. */
static int open_ours(const char *path, int flags, long kind, const char *contents) {
    if (kind == DIRECTORY) {
        return refuse((flags & O_ACCMODE) == O_RDONLY ? EACCES : EISDIR);
    }
    if (flags & O_DIRECTORY) {
        return refuse(ENOTDIR);
    }
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
        return refuse(EEXIST);
    }
    if (kind == DEVICE) {
        static void *place;
        int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))next_of(&place, "open");
        return next == NULL ? refuse(ENOSYS) : next("/dev/null", flags & ~(O_CREAT | O_EXCL | O_TRUNC));
    }
    if ((flags & O_ACCMODE) != O_RDONLY) {
        return refuse(EACCES);
    }
    int fd = memfd_create(path, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (fd < 0) {
        return -1;
    }
    ssize_t length = (ssize_t)kind;
    if (write(fd, contents, (size_t)length) != length || lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return refuse(EIO);
    }
    return fd;
}

static int access_ours(long kind, int mode) {
    int refused = kind == DEVICE ? X_OK : kind == DIRECTORY ? W_OK : W_OK | X_OK;
    return mode & refused ? refuse(EACCES) : 0;
}

static mode_t mode_of(long kind) {
    return kind == DEVICE ? S_IFCHR | 0666 : kind == DIRECTORY ? S_IFDIR | 0755 : S_IFREG | 0444;
}

/* Both forms are one on 64-bit systems; what is not said here is zero. */
#define FILL_STAT(status, kind)                                                                                        \
    do {                                                                                                               \
        memset(status, 0, sizeof *(status));                                                                           \
        (status)->st_mode = mode_of(kind);                                                                             \
        (status)->st_nlink = (kind) == DIRECTORY ? 2 : 1;                                                              \
        (status)->st_ino = 1;                                                                                          \
        (status)->st_blksize = 4096;                                                                                   \
        (status)->st_size = (kind) >= 0 ? 4096 : 0;                                                                    \
        (status)->st_rdev = (kind) == DEVICE ? makedev(UVERBS_MAJOR, UVERBS_MINOR) : 0;                                \
    } while (0)

#define STAT_CALL(name, type)                                                                                          \
    EXPORT int name(const char *path, struct type *status) {                                                           \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            FILL_STAT(status, kind);                                                                                   \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (const char *, struct type *), (path, status));                                                \
    }

/* What programs that were linked with glibc before 2.33 call. */
#define XSTAT_CALL(name, type)                                                                                         \
    EXPORT int name(int version, const char *path, struct type *status) {                                              \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            FILL_STAT(status, kind);                                                                                   \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, struct type *), (version, path, status));                                  \
    }

#define STATAT_CALL(name, type)                                                                                        \
    EXPORT int name(int folder, const char *restrict path, struct type *restrict status, int flags) {                  \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            FILL_STAT(status, kind);                                                                                   \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, struct type *, int), (folder, path, status, flags));                       \
    }

#define XSTATAT_CALL(name, type)                                                                                       \
    EXPORT int name(int version, int folder, const char *path, struct type *status, int flags) {                       \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            FILL_STAT(status, kind);                                                                                   \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (int, int, const char *, struct type *, int), (version, folder, path, status, flags));         \
    }

int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __fxstatat64(int, int, const char *, struct stat64 *, int);

STAT_CALL(stat, stat)
STAT_CALL(lstat, stat)
STAT_CALL(stat64, stat64)
STAT_CALL(lstat64, stat64)
XSTAT_CALL(__xstat, stat)
XSTAT_CALL(__lxstat, stat)
XSTAT_CALL(__xstat64, stat64)
XSTAT_CALL(__lxstat64, stat64)
STATAT_CALL(fstatat, stat)
STATAT_CALL(fstatat64, stat64)
XSTATAT_CALL(__fxstatat, stat)
XSTATAT_CALL(__fxstatat64, stat64)

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict status) {
    char contents[CONTENTS_MAX];
    long kind = lookup(path, contents, sizeof contents);
    if (kind != NOT_OURS) {
        memset(status, 0, sizeof *status);
        status->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_INO | STATX_SIZE;
        status->stx_mode = (__u16)mode_of(kind);
        status->stx_nlink = kind == DIRECTORY ? 2 : 1;
        status->stx_ino = 1;
        status->stx_blksize = 4096;
        status->stx_size = kind >= 0 ? 4096 : 0;
        status->stx_rdev_major = kind == DEVICE ? UVERBS_MAJOR : 0;
        status->stx_rdev_minor = kind == DEVICE ? UVERBS_MINOR : 0;
        return 0;
    }
    NEXT(int, statx, (int, const char *, int, unsigned, struct statx *), (folder, path, flags, mask, status));
}

#define ACCESS_CALL(name)                                                                                              \
    EXPORT int name(const char *path, int mode) {                                                                      \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            return access_ours(kind, mode);                                                                            \
        }                                                                                                              \
        NEXT(int, name, (const char *, int), (path, mode));                                                            \
    }

ACCESS_CALL(access)
ACCESS_CALL(eaccess)
ACCESS_CALL(euidaccess)

EXPORT int faccessat(int folder, const char *path, int mode, int flags) {
    char contents[CONTENTS_MAX];
    long kind = lookup(path, contents, sizeof contents);
    if (kind != NOT_OURS) {
        return access_ours(kind, mode);
    }
    NEXT(int, faccessat, (int, const char *, int, int), (folder, path, mode, flags));
}

/* The mode is there only when a file may be made. */
#define READ_MODE(mode, flags)                                                                                         \
    do {                                                                                                               \
        if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                 \
            va_list rest;                                                                                              \
            va_start(rest, flags);                                                                                     \
            (mode) = va_arg(rest, mode_t);                                                                             \
            va_end(rest);                                                                                              \
        }                                                                                                              \
    } while (0)

#define OPEN_CALL(name)                                                                                                \
    EXPORT int name(const char *path, int flags, ...) {                                                                \
        mode_t mode = 0;                                                                                               \
        READ_MODE(mode, flags);                                                                                        \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            return open_ours(path, flags, kind, contents);                                                             \
        }                                                                                                              \
        NEXT(int, name, (const char *, int, ...), (path, flags, mode));                                                \
    }

#define OPENAT_CALL(name)                                                                                              \
    EXPORT int name(int folder, const char *path, int flags, ...) {                                                    \
        mode_t mode = 0;                                                                                               \
        READ_MODE(mode, flags);                                                                                        \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            return open_ours(path, flags, kind, contents);                                                             \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, int, ...), (folder, path, flags, mode));                                   \
    }

/* What programs that were compiled with _FORTIFY_SOURCE call. */
#define OPEN_2_CALL(name)                                                                                              \
    int name(const char *, int);                                                                                       \
    EXPORT int name(const char *path, int flags) {                                                                     \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            return open_ours(path, flags, kind, contents);                                                             \
        }                                                                                                              \
        NEXT(int, name, (const char *, int), (path, flags));                                                           \
    }

#define OPENAT_2_CALL(name)                                                                                            \
    int name(int, const char *, int);                                                                                  \
    EXPORT int name(int folder, const char *path, int flags) {                                                         \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            return open_ours(path, flags, kind, contents);                                                             \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, int), (folder, path, flags));                                              \
    }

OPEN_CALL(open)
OPEN_CALL(open64)
OPENAT_CALL(openat)
OPENAT_CALL(openat64)
OPEN_2_CALL(__open_2)
OPEN_2_CALL(__open64_2)
OPENAT_2_CALL(__openat_2)
OPENAT_2_CALL(__openat64_2)

/* A stream for one of our paths; `mode` as fopen(3) has it. */
static FILE *fopen_ours(const char *path, const char *mode, long kind, const char *contents) {
    int reads_only = mode[0] == 'r' && strchr(mode, '+') == NULL;
    int fd = open_ours(path, (reads_only ? O_RDONLY : O_RDWR) | (strchr(mode, 'e') ? O_CLOEXEC : 0), kind, contents);
    if (fd < 0) {
        return NULL;
    }
    FILE *stream = fdopen(fd, mode);
    if (stream == NULL) {
        int saved = errno;
        close(fd);
        errno = saved;
    }
    return stream;
}

#define FOPEN_CALL(name)                                                                                               \
    EXPORT FILE *name(const char *restrict path, const char *restrict mode) {                                          \
        char contents[CONTENTS_MAX];                                                                                   \
        long kind = lookup(path, contents, sizeof contents);                                                           \
        if (kind != NOT_OURS) {                                                                                        \
            return fopen_ours(path, mode, kind, contents);                                                             \
        }                                                                                                              \
        NEXT_POINTER(FILE *, name, (const char *, const char *), (path, mode));                                        \
    }

FOPEN_CALL(fopen)
FOPEN_CALL(fopen64)

/* None of our paths is a link, and none has dots: each is its own real path. */
static char *own_path(const char *path, char *resolved) {
    return resolved == NULL ? strdup(path) : strcpy(resolved, path);
}

EXPORT char *realpath(const char *restrict path, char *restrict resolved) {
    char contents[CONTENTS_MAX];
    if (lookup(path, contents, sizeof contents) != NOT_OURS) {
        return own_path(path, resolved);
    }
    NEXT_POINTER(char *, realpath, (const char *, char *), (path, resolved));
}

char *__realpath_chk(const char *, char *, size_t);

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t capacity) {
    char contents[CONTENTS_MAX];
    if (lookup(path, contents, sizeof contents) != NOT_OURS && strlen(path) < capacity) {
        return own_path(path, resolved);
    }
    NEXT_POINTER(char *, __realpath_chk, (const char *, char *, size_t), (path, resolved, capacity));
}

EXPORT char *canonicalize_file_name(const char *path) {
    char contents[CONTENTS_MAX];
    if (lookup(path, contents, sizeof contents) != NOT_OURS) {
        return own_path(path, NULL);
    }
    NEXT_POINTER(char *, canonicalize_file_name, (const char *), (path));
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict buffer, size_t capacity) {
    char contents[CONTENTS_MAX];
    if (lookup(path, contents, sizeof contents) != NOT_OURS) {
        return refuse(EINVAL);
    }
    NEXT(ssize_t, readlink, (const char *, char *, size_t), (path, buffer, capacity));
}

EXPORT ssize_t readlinkat(int folder, const char *restrict path, char *restrict buffer, size_t capacity) {
    char contents[CONTENTS_MAX];
    if (lookup(path, contents, sizeof contents) != NOT_OURS) {
        return refuse(EINVAL);
    }
    NEXT(ssize_t, readlinkat, (int, const char *, char *, size_t), (folder, path, buffer, capacity));
}
