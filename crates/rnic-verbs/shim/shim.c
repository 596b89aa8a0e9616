/*
 * The path shim: programs that look for an RDMA device in the file system find ours.
 *
 * UCX, for one, asks for /dev/infiniband/uverbs0 and reads files under /sys/class/infiniband before it talks to the
 * verbs library; collective libraries follow links from there to the PCI device. This object is preloaded (`rnic run`
 * does it) and answers calls on those paths. What is there libibverbs.so.1 of ours says (rnic_look, rnic_list), as one
 * tree: nothing stands in any file system, so nothing can be left behind. A device file opens as /dev/null, a file and a
 * directory as an anonymous one in memory; a directory's is named after it, so that paths relative to its descriptor are
 * found, in children of the process too.
 *
 * This part: calls on one path, by name or relative to a descriptor, and the numbers of system calls (syscall(2)).
 * folders.c: reading directories and walking through them. Every other path goes to the next library in line,
 * untouched. Not answered: chdir(2) into the tree, and system calls that do not go through the C library (Go).
 *
 * Rules here: no allocation and no lock for paths that are not ours; errno is what the call says; nothing is exported
 * but the calls that are replaced.
 */
#include "shim.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

typedef void (*look_fn)(const char *path, int follows, struct rnic_place *place);
typedef long (*list_fn)(const char *path, char *buffer, size_t capacity);

/* Whether anything of the tree was ever opened here. */
static int has_opened;

/* Written by any thread, always with the same value. */
void *rnic_next(void **place, const char *name) {
    void *found = __atomic_load_n(place, __ATOMIC_RELAXED);
    if (found == NULL) {
        int saved = errno;
        found = dlsym(RTLD_NEXT, name);
        errno = found == NULL ? ENOSYS : saved;
        __atomic_store_n(place, found, __ATOMIC_RELAXED);
    }
    return found;
}

/* A function of our libibverbs.so.1. */
static void *of_library(void **place, const char *name) {
    void *found = __atomic_load_n(place, __ATOMIC_RELAXED);
    if (found == NULL) {
        found = dlsym(RTLD_DEFAULT, name);
        __atomic_store_n(place, found, __ATOMIC_RELAXED);
    }
    return found;
}

/* Whether a path can lead into the tree: every way there has one of these in it. */
static int may_lead_there(const char *path) {
    return strstr(path, "infiniband") != NULL || strstr(path, "52ac:") != NULL || strstr(path, "rdma_cm") != NULL ||
           strstr(path, "char/231:192") != NULL || strstr(path, "char/10:121") != NULL;
}

static const char FOLDER[] = "/memfd:rnic:/";

/* The path in the tree that `fd` was opened for; NULL when it is another descriptor. */
static const char *folder_of(int fd, char *buffer, size_t capacity) {
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long len = syscall(SYS_readlinkat, AT_FDCWD, name, buffer, capacity - 1);
    if (len < (long)sizeof FOLDER - 1 || strncmp(buffer, FOLDER, sizeof FOLDER - 1) != 0) {
        return NULL;
    }
    buffer[len] = '\0';
    char *end = strstr(buffer, " (deleted)");
    if (end != NULL) {
        *end = '\0';
    }
    return buffer + sizeof FOLDER - 2;
}

/* The path that a relative one stands for, when it can be the tree's; in `full`, which has room for `capacity`. */
static int make_full(int folder, const char *path, char *full, size_t capacity) {
    char buffer[sizeof((struct rnic_place *)0)->path];
    const char *from = NULL;
    if (folder == AT_FDCWD) {
        if (may_lead_there(path) && getcwd(buffer, sizeof buffer) != NULL) {
            from = buffer;
        }
    } else if (__atomic_load_n(&has_opened, __ATOMIC_RELAXED) != 0 || may_lead_there(path)) {
        from = folder_of(folder, buffer, sizeof buffer);
        if (from == NULL && may_lead_there(path)) {
            char name[32];
            snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
            long len = syscall(SYS_readlinkat, AT_FDCWD, name, buffer, sizeof buffer - 1);
            if (len > 0) {
                buffer[len] = '\0';
                from = buffer;
            }
        }
    }
    return from != NULL && (size_t)snprintf(full, capacity, "%s/%s", from, path) < capacity;
}

int rnic_find(int folder, const char *path, int follows, struct rnic_place *place) {
    static void *look_place;
    place->kind = FOREIGN;
    /* An empty path names a descriptor, where a call takes it at all. */
    if (path == NULL || (path[0] == '/' && !may_lead_there(path)) || path[0] == '\0') {
        return 0;
    }
    int saved = errno;
    char full[sizeof place->path];
    if (path[0] != '/') {
        path = make_full(folder, path, full, sizeof full) ? full : NULL;
    }
    look_fn look = path == NULL ? NULL : (look_fn)of_library(&look_place, "rnic_look");
    if (look != NULL) {
        look(path, follows, place);
    }
    errno = saved;
    return place->kind != FOREIGN;
}

int rnic_find_descriptor(int fd, struct rnic_place *place) {
    char buffer[sizeof((struct rnic_place *)0)->path];
    place->kind = FOREIGN;
    if (fd < 0 || __atomic_load_n(&has_opened, __ATOMIC_RELAXED) == 0) {
        return 0;
    }
    int saved = errno;
    const char *path = folder_of(fd, buffer, sizeof buffer);
    int found = path != NULL && rnic_find(AT_FDCWD, path, 1, place);
    errno = saved;
    return found;
}

char *rnic_names(const char *path, size_t *len) {
    static void *list_place;
    list_fn list = (list_fn)of_library(&list_place, "rnic_list");
    size_t capacity = 1 << 14;
    for (int tries = 0; list != NULL && tries < 4; tries++) {
        char *names = malloc(capacity);
        long needed = names == NULL ? -1 : list(path, names, capacity);
        if (needed >= 0 && (size_t)needed <= capacity) {
            *len = (size_t)needed;
            return names;
        }
        free(names);
        if (needed < 0) {
            break;
        }
        capacity = (size_t)needed * 2;
    }
    return NULL;
}

/* A file in memory that stands for a directory or a file, and is named after it. */
static int open_memory(const struct rnic_place *place, int flags) {
    char name[250];
    if ((size_t)snprintf(name, sizeof name, "rnic:%s", place->path) >= sizeof name) {
        return refuse(ENAMETOOLONG);
    }
    int fd = memfd_create(name, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    if (fd < 0) {
        return -1;
    }
    __atomic_store_n(&has_opened, 1, __ATOMIC_RELAXED);
    ssize_t len = place->kind == REGULAR ? (ssize_t)place->len : 0;
    if (len > 0 && (write(fd, place->contents, (size_t)len) != len || lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
        return refuse(EIO);
    }
    return fd;
}

/* A path of the kernel's, past this object. */
static int open_next(const char *path, int flags) {
    static void *open_place;
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))rnic_next(&open_place, "open");
    return next == NULL ? -1 : next(path, flags, 0);
}

int rnic_open_place(const struct rnic_place *place, int flags) {
    int writes = (flags & O_ACCMODE) != O_RDONLY;
    if (place->kind == FAILED) {
        return refuse(flags & O_CREAT && place->error == ENOENT ? EACCES : place->error);
    }
    if (place->kind == OUTSIDE) {
        return open_next(place->path, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
    }
    if (place->kind == LINK) {
        return refuse(ELOOP);
    }
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
        return refuse(EEXIST);
    }
    if (place->kind == DIRECTORY) {
        return writes ? refuse(EISDIR) : open_memory(place, flags);
    }
    if ((flags & O_DIRECTORY) != 0) {
        return refuse(ENOTDIR);
    }
    if (place->kind == DEVICE) {
        return open_next("/dev/null", flags & ~(O_CREAT | O_EXCL | O_TRUNC));
    }
    return writes ? refuse(EACCES) : open_memory(place, flags);
}

static mode_t mode_of(const struct rnic_place *place) {
    switch (place->kind) {
    case DIRECTORY:
        return S_IFDIR | 0755;
    case DEVICE:
        return S_IFCHR | 0666;
    case LINK:
        return S_IFLNK | 0777;
    default:
        return S_IFREG | 0444;
    }
}

void rnic_status(const struct rnic_place *place, struct stat *status) {
    memset(status, 0, sizeof *status);
    status->st_mode = mode_of(place);
    status->st_nlink = place->kind == DIRECTORY ? 2 : 1;
    status->st_ino = place->inode;
    status->st_blksize = 4096;
    status->st_size = place->kind == REGULAR || place->kind == LINK ? (off_t)place->len : 0;
    status->st_rdev = place->kind == DEVICE ? makedev(place->major, place->minor) : 0;
}

static void extended_status(const struct rnic_place *place, struct statx *status) {
    memset(status, 0, sizeof *status);
    status->stx_mask = STATX_BASIC_STATS;
    status->stx_mode = (unsigned short)mode_of(place);
    status->stx_nlink = place->kind == DIRECTORY ? 2 : 1;
    status->stx_ino = place->inode;
    status->stx_blksize = 4096;
    status->stx_size = place->kind == REGULAR || place->kind == LINK ? place->len : 0;
    status->stx_rdev_major = place->kind == DEVICE ? place->major : 0;
    status->stx_rdev_minor = place->kind == DEVICE ? place->minor : 0;
}

/* Finds what a call with AT_ flags is about: a path, or with an empty one the descriptor. */
static int find_at(int folder, const char *path, int flags, struct rnic_place *place) {
    if (path != NULL && path[0] == '\0' && flags & AT_EMPTY_PATH) {
        return rnic_find_descriptor(folder, place);
    }
    return rnic_find(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), place);
}

/*
 * Answers for a found place: OUTSIDE and FAILED first, then what the call is for. `outside` is the call again, by the
 * kernel's path, which leads into the tree no more.
 */
#define ANSWER(place, outside, answer)                                                                                 \
    do {                                                                                                               \
        if ((place).kind == FAILED) {                                                                                  \
            return refuse((place).error);                                                                              \
        }                                                                                                              \
        if ((place).kind == OUTSIDE) {                                                                                 \
            return outside;                                                                                            \
        }                                                                                                              \
        answer;                                                                                                        \
        return 0;                                                                                                      \
    } while (0)

#define STAT_CALL(name, type, follows)                                                                                 \
    EXPORT int name(const char *path, struct type *status) {                                                           \
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, follows, &place)) {                                                              \
            ANSWER(place, name(place.path, status), rnic_status(&place, (struct stat *)status));                       \
        }                                                                                                              \
        NEXT(int, name, (const char *, struct type *), (path, status));                                                \
    }

/* What programs that were linked with glibc before 2.33 call. */
#define XSTAT_CALL(name, type, follows)                                                                                \
    int name(int, const char *, struct type *);                                                                        \
    EXPORT int name(int version, const char *path, struct type *status) {                                              \
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, follows, &place)) {                                                              \
            ANSWER(place, name(version, place.path, status), rnic_status(&place, (struct stat *)status));              \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, struct type *), (version, path, status));                                  \
    }

#define STATAT_CALL(name, type)                                                                                        \
    EXPORT int name(int folder, const char *restrict path, struct type *restrict status, int flags) {                  \
        struct rnic_place place;                                                                                       \
        if (find_at(folder, path, flags, &place)) {                                                                    \
            ANSWER(place, name(folder, place.path, status, flags), rnic_status(&place, (struct stat *)status));        \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, struct type *, int), (folder, path, status, flags));                       \
    }

#define XSTATAT_CALL(name, type)                                                                                       \
    int name(int, int, const char *, struct type *, int);                                                              \
    EXPORT int name(int version, int folder, const char *path, struct type *status, int flags) {                       \
        struct rnic_place place;                                                                                       \
        if (find_at(folder, path, flags, &place)) {                                                                    \
            ANSWER(place, name(version, folder, place.path, status, flags), rnic_status(&place, (struct stat *)status)); \
        }                                                                                                              \
        NEXT(int, name, (int, int, const char *, struct type *, int), (version, folder, path, status, flags));         \
    }

#define FSTAT_CALL(name, type)                                                                                         \
    EXPORT int name(int fd, struct type *status) {                                                                     \
        struct rnic_place place;                                                                                       \
        if (rnic_find_descriptor(fd, &place)) {                                                  \
            rnic_status(&place, (struct stat *)status);                                                                \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (int, struct type *), (fd, status));                                                           \
    }

#define FXSTAT_CALL(name, type)                                                                                        \
    int name(int, int, struct type *);                                                                                 \
    EXPORT int name(int version, int fd, struct type *status) {                                                        \
        struct rnic_place place;                                                                                       \
        if (rnic_find_descriptor(fd, &place)) {                                                  \
            rnic_status(&place, (struct stat *)status);                                                                \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (int, int, struct type *), (version, fd, status));                                             \
    }

/* Both forms of the structure are one on 64-bit systems. */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "two forms of struct stat");

STAT_CALL(stat, stat, 1)
STAT_CALL(stat64, stat64, 1)
STAT_CALL(lstat, stat, 0)
STAT_CALL(lstat64, stat64, 0)
XSTAT_CALL(__xstat, stat, 1)
XSTAT_CALL(__xstat64, stat64, 1)
XSTAT_CALL(__lxstat, stat, 0)
XSTAT_CALL(__lxstat64, stat64, 0)
STATAT_CALL(fstatat, stat)
STATAT_CALL(fstatat64, stat64)
XSTATAT_CALL(__fxstatat, stat)
XSTATAT_CALL(__fxstatat64, stat64)
FSTAT_CALL(fstat, stat)
FSTAT_CALL(fstat64, stat64)
FXSTAT_CALL(__fxstat, stat)
FXSTAT_CALL(__fxstat64, stat64)

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned int mask, struct statx *restrict status) {
    struct rnic_place place;
    if (find_at(folder, path, flags, &place)) {
        ANSWER(place, statx(folder, place.path, flags, mask, status), extended_status(&place, status));
    }
    NEXT(int, statx, (int, const char *, int, unsigned int, struct statx *), (folder, path, flags, mask, status));
}

static int access_place(const struct rnic_place *place, int mode) {
    int refused = place->kind == DEVICE ? X_OK : place->kind == DIRECTORY ? W_OK : W_OK | X_OK;
    return mode & refused ? refuse(EACCES) : 0;
}

#define ACCESS_CALL(name)                                                                                              \
    EXPORT int name(const char *path, int mode) {                                                                      \
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, 1, &place)) {                                                                    \
            ANSWER(place, name(place.path, mode), return access_place(&place, mode));                                  \
        }                                                                                                              \
        NEXT(int, name, (const char *, int), (path, mode));                                                            \
    }

ACCESS_CALL(access)
ACCESS_CALL(euidaccess)
ACCESS_CALL(eaccess)

EXPORT int faccessat(int folder, const char *path, int mode, int flags) {
    struct rnic_place place;
    if (find_at(folder, path, flags, &place)) {
        ANSWER(place, faccessat(folder, place.path, mode, flags), return access_place(&place, mode));
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
        struct rnic_place place;                                                                                       \
        mode_t mode = 0;                                                                                               \
        READ_MODE(mode, flags);                                                                                        \
        if (rnic_find(AT_FDCWD, path, !(flags & O_NOFOLLOW), &place)) {                                                \
            return rnic_open_place(&place, flags);                                                                     \
        }                                                                                                              \
        NEXT(int, name, (const char *, int, ...), (path, flags, mode));                                                \
    }

#define OPENAT_CALL(name)                                                                                              \
    EXPORT int name(int folder, const char *path, int flags, ...) {                                                    \
        struct rnic_place place;                                                                                       \
        mode_t mode = 0;                                                                                               \
        READ_MODE(mode, flags);                                                                                        \
        if (rnic_find(folder, path, !(flags & O_NOFOLLOW), &place)) {                                                  \
            return rnic_open_place(&place, flags);                                                                     \
        }                                                                                                              \
        NEXT(int, name, (int, const char *, int, ...), (folder, path, flags, mode));                                   \
    }

/* What programs that were compiled with _FORTIFY_SOURCE call. */
#define OPEN_2_CALL(name)                                                                                              \
    int name(const char *, int);                                                                                       \
    EXPORT int name(const char *path, int flags) {                                                                     \
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, !(flags & O_NOFOLLOW), &place)) {                                                \
            return rnic_open_place(&place, flags);                                                                     \
        }                                                                                                              \
        NEXT(int, name, (const char *, int), (path, flags));                                                           \
    }

#define OPENAT_2_CALL(name)                                                                                            \
    int name(int, const char *, int);                                                                                  \
    EXPORT int name(int folder, const char *path, int flags) {                                                         \
        struct rnic_place place;                                                                                       \
        if (rnic_find(folder, path, !(flags & O_NOFOLLOW), &place)) {                                                  \
            return rnic_open_place(&place, flags);                                                                     \
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
static FILE *open_stream(const struct rnic_place *place, const char *mode) {
    int reads_only = mode[0] == 'r' && strchr(mode, '+') == NULL;
    int fd = rnic_open_place(place, (reads_only ? O_RDONLY : O_RDWR) | (strchr(mode, 'e') ? O_CLOEXEC : 0));
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
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, 1, &place)) {                                                                    \
            return open_stream(&place, mode);                                                                          \
        }                                                                                                              \
        NEXT_POINTER(FILE *, name, (const char *, const char *), (path, mode));                                        \
    }

FOPEN_CALL(fopen)
FOPEN_CALL(fopen64)

/* Where a path really leads, in `resolved`, or allocated when that is NULL. */
static char *real_path(const struct rnic_place *place, char *resolved) {
    if (place->kind == FAILED) {
        errno = place->error;
        return NULL;
    }
    if (place->kind == OUTSIDE) {
        return realpath(place->path, resolved);
    }
    return resolved == NULL ? strdup(place->path) : strcpy(resolved, place->path);
}

EXPORT char *realpath(const char *restrict path, char *restrict resolved) {
    struct rnic_place place;
    if (rnic_find(AT_FDCWD, path, 1, &place)) {
        return real_path(&place, resolved);
    }
    NEXT_POINTER(char *, realpath, (const char *, char *), (path, resolved));
}

char *__realpath_chk(const char *, char *, size_t);

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t capacity) {
    struct rnic_place place;
    if (rnic_find(AT_FDCWD, path, 1, &place) && strlen(place.path) < capacity) {
        return real_path(&place, resolved);
    }
    NEXT_POINTER(char *, __realpath_chk, (const char *, char *, size_t), (path, resolved, capacity));
}

EXPORT char *canonicalize_file_name(const char *path) {
    struct rnic_place place;
    if (rnic_find(AT_FDCWD, path, 1, &place)) {
        return real_path(&place, NULL);
    }
    NEXT_POINTER(char *, canonicalize_file_name, (const char *), (path));
}

/* Copies where a link leads, without a zero behind it, as the kernel does. */
static ssize_t read_link(const struct rnic_place *place, char *buffer, size_t capacity) {
    if (place->kind == FAILED) {
        return refuse(place->error);
    }
    if (place->kind == OUTSIDE) {
        return readlink(place->path, buffer, capacity);
    }
    if (place->kind != LINK) {
        return refuse(EINVAL);
    }
    size_t len = place->len < capacity ? place->len : capacity;
    memcpy(buffer, place->contents, len);
    return (ssize_t)len;
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict buffer, size_t capacity) {
    struct rnic_place place;
    if (rnic_find(AT_FDCWD, path, 0, &place)) {
        return read_link(&place, buffer, capacity);
    }
    NEXT(ssize_t, readlink, (const char *, char *, size_t), (path, buffer, capacity));
}

EXPORT ssize_t readlinkat(int folder, const char *restrict path, char *restrict buffer, size_t capacity) {
    struct rnic_place place;
    if (rnic_find(folder, path, 0, &place)) {
        return read_link(&place, buffer, capacity);
    }
    NEXT(ssize_t, readlinkat, (int, const char *, char *, size_t), (folder, path, buffer, capacity));
}

ssize_t __readlink_chk(const char *, char *, size_t, size_t);

EXPORT ssize_t __readlink_chk(const char *path, char *buffer, size_t capacity, size_t room) {
    struct rnic_place place;
    if (capacity <= room && rnic_find(AT_FDCWD, path, 0, &place)) {
        return read_link(&place, buffer, capacity);
    }
    NEXT(ssize_t, __readlink_chk, (const char *, char *, size_t, size_t), (path, buffer, capacity, room));
}

ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);

EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *buffer, size_t capacity, size_t room) {
    struct rnic_place place;
    if (capacity <= room && rnic_find(folder, path, 0, &place)) {
        return read_link(&place, buffer, capacity);
    }
    NEXT(ssize_t, __readlinkat_chk, (int, const char *, char *, size_t, size_t), (folder, path, buffer, capacity, room));
}

/* No file of the tree has attributes; `ls -l` asks for them. */
#define XATTR_CALL(name, follows)                                                                                      \
    EXPORT ssize_t name(const char *path, const char *attribute, void *value, size_t capacity) {                       \
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, follows, &place)) {                                                              \
            ANSWER(place, name(place.path, attribute, value, capacity), return refuse(ENODATA));                       \
        }                                                                                                              \
        NEXT(ssize_t, name, (const char *, const char *, void *, size_t), (path, attribute, value, capacity));         \
    }

XATTR_CALL(getxattr, 1)
XATTR_CALL(lgetxattr, 0)

#define LISTXATTR_CALL(name, follows)                                                                                  \
    EXPORT ssize_t name(const char *path, char *list, size_t capacity) {                                               \
        struct rnic_place place;                                                                                       \
        if (rnic_find(AT_FDCWD, path, follows, &place)) {                                                              \
            ANSWER(place, name(place.path, list, capacity), return 0);                                                 \
        }                                                                                                              \
        NEXT(ssize_t, name, (const char *, char *, size_t), (path, list, capacity));                                   \
    }

LISTXATTR_CALL(listxattr, 1)
LISTXATTR_CALL(llistxattr, 0)

/* Found before anybody calls it in a signal handler. */
__attribute__((constructor)) static void find_syscall(void) {
    syscall(SYS_gettid);
}

/* System calls by number, as far as they look paths up. The kernel's struct stat is the C library's on 64-bit systems. */
EXPORT long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int index = 0; index < 6; index++) {
        a[index] = va_arg(rest, long);
    }
    va_end(rest);
    struct rnic_place place;
    switch (number) {
#ifdef SYS_open
    case SYS_open:
        if (rnic_find(AT_FDCWD, (const char *)a[0], !(a[1] & O_NOFOLLOW), &place)) {
            return rnic_open_place(&place, (int)a[1]);
        }
        break;
#endif
    case SYS_openat:
        if (rnic_find((int)a[0], (const char *)a[1], !(a[2] & O_NOFOLLOW), &place)) {
            return rnic_open_place(&place, (int)a[2]);
        }
        break;
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
        if (rnic_find(AT_FDCWD, (const char *)a[0], number == SYS_stat, &place)) {
            return fstatat(AT_FDCWD, (const char *)a[0], (struct stat *)a[1], number == SYS_stat ? 0 : AT_SYMLINK_NOFOLLOW);
        }
        break;
#endif
    case SYS_newfstatat:
        if (find_at((int)a[0], (const char *)a[1], (int)a[3], &place)) {
            return fstatat((int)a[0], (const char *)a[1], (struct stat *)a[2], (int)a[3]);
        }
        break;
    case SYS_statx:
        if (find_at((int)a[0], (const char *)a[1], (int)a[2], &place)) {
            return statx((int)a[0], (const char *)a[1], (int)a[2], (unsigned int)a[3], (struct statx *)a[4]);
        }
        break;
#ifdef SYS_readlink
    case SYS_readlink:
        if (rnic_find(AT_FDCWD, (const char *)a[0], 0, &place)) {
            return read_link(&place, (char *)a[1], (size_t)a[2]);
        }
        break;
#endif
    case SYS_readlinkat:
        if (rnic_find((int)a[0], (const char *)a[1], 0, &place)) {
            return read_link(&place, (char *)a[2], (size_t)a[3]);
        }
        break;
#ifdef SYS_access
    case SYS_access:
        if (rnic_find(AT_FDCWD, (const char *)a[0], 1, &place)) {
            return access((const char *)a[0], (int)a[1]);
        }
        break;
#endif
    case SYS_faccessat:
        if (rnic_find((int)a[0], (const char *)a[1], 1, &place)) {
            return faccessat((int)a[0], (const char *)a[1], (int)a[2], 0);
        }
        break;
    default:
        break;
    }
    NEXT(long, syscall, (long, ...), (number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
