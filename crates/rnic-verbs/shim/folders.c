/*
 * The path shim, second part: reading directories (opendir(3), scandir(3)) and walking through them (glob(3), nftw(3)).
 *
 * The C library's own walks call its own readers of directories, past this object: so those calls are made anew here on
 * top of opendir, for what is the tree's. A directory that the kernel has too lists what both have.
 */
#include "shim.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "two forms of struct dirent");

/* A directory that is being read: what programs hold as DIR. */
struct folder {
    struct folder *next;
    char *names; /* as rnic_list writes them */
    size_t len, at;
    DIR *kernels; /* the same directory of the kernel's, whose names come last; or NULL */
    int fd;       /* for dirfd(3); -1 when nobody has asked */
    long position;
    char path[256];
    struct dirent64 entry;
};

/* Those that are open. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct folder *folders;
static int folder_count;

static struct folder *of_tree(DIR *directory) {
    struct folder *found = NULL;
    if (directory != NULL && __atomic_load_n(&folder_count, __ATOMIC_ACQUIRE) != 0) {
        pthread_mutex_lock(&lock);
        for (found = folders; found != NULL && found != (struct folder *)directory; found = found->next) {
        }
        pthread_mutex_unlock(&lock);
    }
    return found;
}

static DIR *next_opendir(const char *path) {
    NEXT_POINTER(DIR *, opendir, (const char *), (path));
}

static struct dirent64 *next_readdir(DIR *directory) {
    NEXT_POINTER(struct dirent64 *, readdir64, (DIR *), (directory));
}

static int next_closedir(DIR *directory) {
    NEXT(int, closedir, (DIR *), (directory));
}

static void next_rewinddir(DIR *directory) {
    static void *place;
    void (*next)(DIR *) = (void (*)(DIR *))rnic_next(&place, "rewinddir");
    if (next != NULL) {
        next(directory);
    }
}

/* Directories of the kernel's that the tree adds names to. */
static int is_above(const char *path) {
    static const char *const above[] = {"/dev",           "/sys/class",   "/sys/class/misc", "/sys/class/pci_bus",
                                        "/sys/dev/char", "/sys/devices"};
    size_t len = path == NULL ? 0 : strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    for (size_t index = 0; index < sizeof above / sizeof *above; index++) {
        if (strlen(above[index]) == len && strncmp(path, above[index], len) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Begins to read directory `path` of the tree, or what it adds there. `fd` becomes the folder's. */
static DIR *open_folder(const char *path, int fd) {
    struct folder *folder = calloc(1, sizeof *folder);
    size_t len = strlen(path);
    int saved = errno;
    if (folder == NULL || len >= sizeof folder->path) {
        free(folder);
        errno = ENOMEM;
        return NULL;
    }
    memcpy(folder->path, path, len);
    folder->names = rnic_names(path, &folder->len);
    folder->kernels = next_opendir(path);
    folder->fd = fd;
    if (folder->names == NULL && folder->kernels == NULL) {
        free(folder);
        errno = ENOENT;
        return NULL;
    }
    errno = saved;
    pthread_mutex_lock(&lock);
    folder->next = folders;
    folders = folder;
    __atomic_add_fetch(&folder_count, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return (DIR *)folder;
}

static DIR *open_place(const struct rnic_place *place, int fd) {
    switch (place->kind) {
    case DIRECTORY:
        return open_folder(place->path, fd);
    case OUTSIDE:
        return is_above(place->path) ? open_folder(place->path, fd) : next_opendir(place->path);
    case FAILED:
        errno = place->error;
        return NULL;
    default:
        errno = ENOTDIR;
        return NULL;
    }
}

EXPORT DIR *opendir(const char *path) {
    struct rnic_place place;
    if (rnic_find(AT_FDCWD, path, 1, &place)) {
        return open_place(&place, -1);
    }
    return is_above(path) ? open_folder(path, -1) : next_opendir(path);
}

EXPORT DIR *fdopendir(int fd) {
    struct rnic_place place;
    if (rnic_find_descriptor(fd, &place)) {
        return open_place(&place, fd);
    }
    NEXT_POINTER(DIR *, fdopendir, (int), (fd));
}

static int is_listed(const struct folder *folder, const char *name) {
    for (size_t at = 0; at < folder->len; at += 2 + strlen(folder->names + at + 1)) {
        if (strcmp(folder->names + at + 1, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static struct dirent64 *entry_of(struct folder *folder, const char *name, unsigned char type) {
    struct dirent64 *entry = &folder->entry;
    memset(entry, 0, sizeof *entry);
    strncpy(entry->d_name, name, sizeof entry->d_name - 1);
    entry->d_type = type;
    entry->d_reclen = sizeof *entry;
    entry->d_off = folder->position;
    entry->d_ino = 1;
    for (const char *byte = name; *byte != '\0'; byte++) {
        entry->d_ino = entry->d_ino * 31 + (unsigned char)*byte;
    }
    return entry;
}

static struct dirent64 *read_folder(struct folder *folder) {
    long position = folder->position++;
    if (position < 2) {
        return entry_of(folder, position == 0 ? "." : "..", DT_DIR);
    }
    if (folder->at < folder->len) {
        const char *name = folder->names + folder->at + 1;
        char kind = folder->names[folder->at];
        folder->at += 2 + strlen(name);
        return entry_of(folder, name, kind == 'd' ? DT_DIR : kind == 'l' ? DT_LNK : kind == 'c' ? DT_CHR : DT_REG);
    }
    struct dirent64 *entry = NULL;
    while (folder->kernels != NULL && (entry = next_readdir(folder->kernels)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && !is_listed(folder, entry->d_name)) {
            break;
        }
    }
    return entry;
}

static void rewind_folder(struct folder *folder) {
    folder->at = 0;
    folder->position = 0;
    if (folder->kernels != NULL) {
        next_rewinddir(folder->kernels);
    }
}

#define READDIR_CALL(name, type)                                                                                       \
    EXPORT struct type *name(DIR *directory) {                                                                         \
        struct folder *folder = of_tree(directory);                                                                    \
        if (folder != NULL) {                                                                                          \
            return (struct type *)read_folder(folder);                                                                 \
        }                                                                                                              \
        NEXT_POINTER(struct type *, name, (DIR *), (directory));                                                       \
    }

READDIR_CALL(readdir, dirent)
READDIR_CALL(readdir64, dirent64)

#define READDIR_R_CALL(name, type)                                                                                     \
    EXPORT int name(DIR *restrict directory, struct type *restrict into, struct type **restrict result) {              \
        struct folder *folder = of_tree(directory);                                                                    \
        if (folder != NULL) {                                                                                          \
            struct type *entry = (struct type *)read_folder(folder);                                                   \
            *result = entry == NULL ? NULL : memcpy(into, entry, sizeof *into);                                        \
            return 0;                                                                                                  \
        }                                                                                                              \
        NEXT(int, name, (DIR *, struct type *, struct type **), (directory, into, result));                            \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
READDIR_R_CALL(readdir_r, dirent)
READDIR_R_CALL(readdir64_r, dirent64)
#pragma GCC diagnostic pop

EXPORT int closedir(DIR *directory) {
    struct folder *folder = of_tree(directory);
    if (folder == NULL) {
        return next_closedir(directory);
    }
    pthread_mutex_lock(&lock);
    struct folder **link = &folders;
    while (*link != NULL && *link != folder) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = folder->next;
        __atomic_sub_fetch(&folder_count, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    if (folder->kernels != NULL) {
        next_closedir(folder->kernels);
    }
    if (folder->fd >= 0) {
        close(folder->fd);
    }
    free(folder->names);
    free(folder);
    return 0;
}

EXPORT int dirfd(DIR *directory) {
    struct folder *folder = of_tree(directory);
    if (folder == NULL) {
        NEXT(int, dirfd, (DIR *), (directory));
    }
    if (folder->fd < 0) {
        folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return folder->fd;
}

EXPORT void rewinddir(DIR *directory) {
    struct folder *folder = of_tree(directory);
    if (folder != NULL) {
        rewind_folder(folder);
    } else {
        next_rewinddir(directory);
    }
}

EXPORT long telldir(DIR *directory) {
    struct folder *folder = of_tree(directory);
    if (folder != NULL) {
        return folder->position;
    }
    NEXT(long, telldir, (DIR *), (directory));
}

EXPORT void seekdir(DIR *directory, long position) {
    struct folder *folder = of_tree(directory);
    if (folder == NULL) {
        static void *place;
        void (*next)(DIR *, long) = (void (*)(DIR *, long))rnic_next(&place, "seekdir");
        if (next != NULL) {
            next(directory, position);
        }
        return;
    }
    rewind_folder(folder);
    while (folder->position < position && read_folder(folder) != NULL) {
    }
}

/* Everything in `directory` that `filter` wants, sorted; closes it. */
static int scan(DIR *directory, struct dirent ***list, int (*filter)(const struct dirent *),
                int (*compare)(const struct dirent **, const struct dirent **)) {
    struct dirent **found = NULL, *entry;
    size_t count = 0;
    if (directory == NULL) {
        return -1;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (filter != NULL && !filter(entry)) {
            continue;
        }
        struct dirent **grown = realloc(found, (count + 1) * sizeof *found);
        struct dirent *copy = grown == NULL ? NULL : malloc(sizeof *copy);
        found = grown == NULL ? found : grown;
        if (copy == NULL) {
            while (count > 0) {
                free(found[--count]);
            }
            free(found);
            closedir(directory);
            return refuse(ENOMEM);
        }
        memcpy(copy, entry, entry->d_reclen < sizeof *copy ? entry->d_reclen : sizeof *copy);
        found[count++] = copy;
    }
    closedir(directory);
    if (compare != NULL && count > 1) {
        qsort(found, count, sizeof *found, (int (*)(const void *, const void *))compare);
    }
    *list = found == NULL ? malloc(sizeof *found) : found;
    return (int)count;
}

/* Whether a walk through `path` begins in the tree or where it adds names. */
static int begins_here(int folder, const char *path) {
    struct rnic_place place;
    return rnic_find(folder, path, 1, &place) || (folder == AT_FDCWD && is_above(path));
}

#define SCANDIR_CALL(name, type)                                                                                       \
    EXPORT int name(const char *restrict path, struct type ***restrict list, int (*filter)(const struct type *),       \
                    int (*compare)(const struct type **, const struct type **)) {                                      \
        if (begins_here(AT_FDCWD, path)) {                                                                             \
            return scan(opendir(path), (struct dirent ***)list, (int (*)(const struct dirent *))filter,                \
                        (int (*)(const struct dirent **, const struct dirent **))compare);                             \
        }                                                                                                              \
        NEXT(int, name,                                                                                                \
             (const char *, struct type ***, int (*)(const struct type *),                                             \
              int (*)(const struct type **, const struct type **)),                                                    \
             (path, list, filter, compare));                                                                           \
    }

SCANDIR_CALL(scandir, dirent)
SCANDIR_CALL(scandir64, dirent64)

#define SCANDIRAT_CALL(name, type)                                                                                     \
    EXPORT int name(int folder, const char *restrict path, struct type ***restrict list,                               \
                    int (*filter)(const struct type *), int (*compare)(const struct type **, const struct type **)) {  \
        if (begins_here(folder, path)) {                                                                               \
            int fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);                                         \
            return fd < 0 ? -1                                                                                         \
                          : scan(fdopendir(fd), (struct dirent ***)list, (int (*)(const struct dirent *))filter,       \
                                 (int (*)(const struct dirent **, const struct dirent **))compare);                    \
        }                                                                                                              \
        NEXT(int, name,                                                                                                \
             (int, const char *, struct type ***, int (*)(const struct type *),                                        \
              int (*)(const struct type **, const struct type **)),                                                    \
             (folder, path, list, filter, compare));                                                                   \
    }

SCANDIRAT_CALL(scandirat, dirent)
SCANDIRAT_CALL(scandirat64, dirent64)

/* Readers of directories for the C library's glob. */
static void *glob_opendir(const char *path) {
    return opendir(path);
}

static struct dirent *glob_readdir(void *directory) {
    return readdir(directory);
}

static void glob_closedir(void *directory) {
    closedir(directory);
}

static int glob_stat(const char *restrict path, struct stat *restrict status) {
    return stat(path, status);
}

static int glob_lstat(const char *restrict path, struct stat *restrict status) {
    return lstat(path, status);
}

EXPORT int glob(const char *restrict pattern, int flags, int (*errfunc)(const char *, int), glob_t *restrict found) {
    int concerns = strncmp(pattern, "/sys/", 5) == 0 || strncmp(pattern, "/dev/", 5) == 0 || strncmp(pattern, "/*", 2) == 0;
    if (!concerns || flags & GLOB_ALTDIRFUNC) {
        NEXT_OR(GLOB_ABORTED, int, glob, (const char *, int, int (*)(const char *, int), glob_t *),
                (pattern, flags, errfunc, found));
    }
    static void *place;
    int (*next)(const char *, int, int (*)(const char *, int), glob_t *) =
        (int (*)(const char *, int, int (*)(const char *, int), glob_t *))rnic_next(&place, "glob");
    if (next == NULL) {
        return GLOB_ABORTED;
    }
    found->gl_opendir = glob_opendir;
    found->gl_readdir = glob_readdir;
    found->gl_closedir = glob_closedir;
    found->gl_stat = glob_stat;
    found->gl_lstat = glob_lstat;
    int result = next(pattern, flags | GLOB_ALTDIRFUNC, errfunc, found);
    found->gl_flags &= ~GLOB_ALTDIRFUNC;
    return result;
}

_Static_assert(sizeof(glob_t) == sizeof(glob64_t), "two forms of glob_t");

EXPORT int glob64(const char *restrict pattern, int flags, int (*errfunc)(const char *, int), glob64_t *restrict found) {
    return glob(pattern, flags, errfunc, (glob_t *)found);
}

typedef int (*ftw_fn)(const char *, const struct stat *, int);
typedef int (*nftw_fn)(const char *, const struct stat *, int, struct FTW *);

/* A walk through the tree. */
struct walk {
    ftw_fn ftw; /* one of the two */
    nftw_fn nftw;
    int flags;
    unsigned long *seen; /* directories, when links are followed */
    size_t seen_count;
};

static int tell(const struct walk *walk, const char *path, const struct stat *status, int type, int level) {
    const char *name = strrchr(path, '/');
    struct FTW where = {.base = name == NULL ? 0 : (int)(name - path) + 1, .level = level};
    return walk->ftw != NULL ? walk->ftw(path, status, type) : walk->nftw(path, status, type, &where);
}

static int has_seen(struct walk *walk, unsigned long inode) {
    for (size_t index = 0; index < walk->seen_count; index++) {
        if (walk->seen[index] == inode) {
            return 1;
        }
    }
    unsigned long *grown = realloc(walk->seen, (walk->seen_count + 1) * sizeof *grown);
    if (grown == NULL) {
        return 1;
    }
    walk->seen = grown;
    walk->seen[walk->seen_count++] = inode;
    return 0;
}

static int walk_into(struct walk *walk, const char *path, int level);

/* What is in directory `path`. */
static int walk_through(struct walk *walk, const char *path, int level) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    int result = 0;
    while (directory != NULL && result == 0 && (entry = readdir(directory)) != NULL) {
        char inside[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if ((size_t)snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) < sizeof inside) {
            result = walk_into(walk, inside, level + 1);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return result;
}

static int walk_into(struct walk *walk, const char *path, int level) {
    struct stat status;
    int follows = !(walk->flags & FTW_PHYS), type = FTW_F;
    if ((follows ? stat(path, &status) : lstat(path, &status)) != 0) {
        /* A link that leads nowhere, or something that is gone again. */
        type = follows && lstat(path, &status) == 0 ? (walk->ftw != NULL ? FTW_F : FTW_SLN) : FTW_NS;
        return tell(walk, path, &status, type, level);
    }
    if (S_ISLNK(status.st_mode)) {
        return tell(walk, path, &status, FTW_SL, level);
    }
    if (!S_ISDIR(status.st_mode)) {
        return tell(walk, path, &status, FTW_F, level);
    }
    if ((follows && has_seen(walk, status.st_ino)) || level > 32) {
        return 0;
    }
    if (walk->flags & FTW_DEPTH) {
        int result = walk_through(walk, path, level);
        return result != 0 ? result : tell(walk, path, &status, FTW_DP, level);
    }
    int result = tell(walk, path, &status, FTW_D, level);
    return result != 0 ? result : walk_through(walk, path, level);
}

static int walk_from(const char *path, ftw_fn ftw, nftw_fn nftw, int flags) {
    struct walk walk = {.ftw = ftw, .nftw = nftw, .flags = flags};
    int result = walk_into(&walk, path, 0);
    free(walk.seen);
    return result;
}

#define FTW_CALL(name, type)                                                                                           \
    EXPORT int name(const char *path, int (*tell_of)(const char *, const struct type *, int), int descriptors) {       \
        if (begins_here(AT_FDCWD, path)) {                                                                             \
            return walk_from(path, (ftw_fn)tell_of, NULL, 0);                                                          \
        }                                                                                                              \
        NEXT(int, name, (const char *, int (*)(const char *, const struct type *, int), int),                          \
             (path, tell_of, descriptors));                                                                            \
    }

#define NFTW_CALL(name, type)                                                                                          \
    EXPORT int name(const char *path, int (*tell_of)(const char *, const struct type *, int, struct FTW *),            \
                    int descriptors, int flags) {                                                                      \
        if (begins_here(AT_FDCWD, path)) {                                                                             \
            return walk_from(path, NULL, (nftw_fn)tell_of, flags);                                                     \
        }                                                                                                              \
        NEXT(int, name, (const char *, int (*)(const char *, const struct type *, int, struct FTW *), int, int),       \
             (path, tell_of, descriptors, flags));                                                                     \
    }

FTW_CALL(ftw, stat)
FTW_CALL(ftw64, stat64)
NFTW_CALL(nftw, stat)
NFTW_CALL(nftw64, stat64)
