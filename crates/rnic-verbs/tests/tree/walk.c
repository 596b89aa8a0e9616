/*
 * Walks through the device's tree by every call that finds its way there, and says where two of them disagree. Ends
 * with 0 when all agree, and prints what it has seen for the test to look at.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failures, nodes, files, links;

#define CHECK(holds, ...)                                                                                              \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            failures++;                                                                                                \
            printf("WRONG ");                                                                                          \
            printf(__VA_ARGS__);                                                                                       \
            printf(" (errno %s)\n", strerror(errno));                                                                  \
        }                                                                                                              \
    } while (0)

static ssize_t contents(int fd, char *into, size_t capacity) {
    ssize_t len = fd < 0 ? -1 : read(fd, into, capacity - 1);
    into[len < 0 ? 0 : len] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return len;
}

/* A file, opened and read in all ways. */
static void check_file(const char *path, int folder, const char *name) {
    char first[2048], other[2048];
    files++;
    CHECK(contents(open(path, O_RDONLY), first, sizeof first) > 0, "open %s", path);
    /* What counts may have gone on. */
    int counts = strstr(path, "counters/") != NULL;
    CHECK(contents(openat(folder, name, O_RDONLY), other, sizeof other) > 0 && (counts || !strcmp(first, other)), "openat %s", path);
    CHECK(contents((int)syscall(SYS_openat, folder, name, O_RDONLY, 0), other, sizeof other) > 0 && (counts || !strcmp(first, other)), "syscall %s", path);
    struct stat by_path, by_fd;
    int fd = open(path, O_RDONLY);
    CHECK(stat(path, &by_path) == 0 && fstat(fd, &by_fd) == 0 && by_fd.st_ino == by_path.st_ino && by_fd.st_mode == by_path.st_mode, "fstat %s", path);
    close(fd);
    FILE *stream = fopen(path, "r");
    CHECK(stream != NULL && fgets(other, sizeof other, stream) != NULL && (counts || !strncmp(first, other, strlen(other))), "fopen %s", path);
    if (stream != NULL) {
        fclose(stream);
    }
    CHECK(first[strlen(first) - 1] == '\n', "%s ends without a newline", path);
    CHECK(access(path, R_OK) == 0 && faccessat(folder, name, R_OK, 0) == 0, "access %s", path);
    CHECK(access(path, W_OK) == -1 && errno == EACCES, "access to write %s", path);
    CHECK(open(path, O_WRONLY) == -1 && errno == EACCES, "open to write %s", path);
    CHECK(opendir(path) == NULL && errno == ENOTDIR, "opendir %s", path);
}

static void check_link(const char *path, int folder, const char *name) {
    char one[PATH_MAX], other[PATH_MAX];
    ssize_t len = readlink(path, one, sizeof one), again = readlinkat(folder, name, other, sizeof other);
    links++;
    CHECK(len > 0 && len == again && !memcmp(one, other, (size_t)len), "readlink %s", path);
    struct stat status;
    CHECK(stat(path, &status) == 0 && !S_ISLNK(status.st_mode), "%s leads nowhere", path);
}

static void walk(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL, "opendir %s", path);
    if (directory == NULL) {
        return;
    }
    int folder = open(path, O_RDONLY | O_DIRECTORY), count = 0, dots = 0;
    CHECK(folder >= 0, "open of directory %s", path);
    struct stat of_path, of_fd;
    CHECK(stat(path, &of_path) == 0 && fstat(folder, &of_fd) == 0 && of_path.st_ino == of_fd.st_ino && S_ISDIR(of_fd.st_mode), "fstat %s", path);
    CHECK(fstatat(folder, "", &of_fd, AT_EMPTY_PATH) == 0 && of_fd.st_ino == of_path.st_ino, "fstatat of nothing in %s", path);
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        char inside[PATH_MAX];
        struct stat status, at;
        struct statx extended;
        if (entry->d_name[0] == '.') {
            dots++;
            continue;
        }
        count++;
        nodes++;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        CHECK(lstat(inside, &status) == 0, "lstat %s", inside);
        CHECK(fstatat(folder, entry->d_name, &at, AT_SYMLINK_NOFOLLOW) == 0 && at.st_ino == status.st_ino && at.st_mode == status.st_mode, "fstatat %s", inside);
        CHECK(statx(AT_FDCWD, inside, AT_SYMLINK_NOFOLLOW, STATX_ALL, &extended) == 0 && extended.stx_mode == status.st_mode && extended.stx_ino == status.st_ino, "statx %s", inside);
        CHECK((mode_t)DTTOIF(entry->d_type) == (status.st_mode & S_IFMT), "type of %s", inside);
        if (S_ISLNK(status.st_mode)) {
            check_link(inside, folder, entry->d_name);
        } else if (S_ISDIR(status.st_mode)) {
            walk(inside);
        } else if (S_ISREG(status.st_mode)) {
            check_file(inside, folder, entry->d_name);
        }
    }
    rewinddir(directory);
    int again = 0;
    while (readdir(directory) != NULL) {
        again++;
    }
    CHECK(dots == 2 && again == count + dots, "rewinddir %s: %d, %d", path, count, again);
    CHECK(dirfd(directory) >= 0, "dirfd %s", path);
    closedir(directory);
    struct dirent **list;
    int scanned = scandir(path, &list, NULL, alphasort);
    CHECK(scanned == count + dots, "scandir %s: %d of %d", path, scanned, count + dots);
    for (int index = 1; index < scanned; index++) {
        CHECK(strcoll(list[index - 1]->d_name, list[index]->d_name) <= 0, "scandir %s is not sorted", path);
    }
    DIR *by_fd = fdopendir(dup(folder));
    int seen = 0;
    while (by_fd != NULL && readdir(by_fd) != NULL) {
        seen++;
    }
    CHECK(seen == count + dots, "fdopendir %s: %d of %d", path, seen, count + dots);
    if (by_fd != NULL) {
        closedir(by_fd);
    }
    close(folder);
    char pattern[PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", path);
    int globbed = glob(pattern, 0, NULL, &found);
    CHECK(count == 0 || (globbed == 0 && (int)found.gl_pathc == count), "glob %s: %d of %d", pattern, globbed ? -1 : (int)found.gl_pathc, count);
    if (globbed == 0) {
        globfree(&found);
    }
}

static int counted;

static int count_one(const char *path, const struct stat *status, int type, struct FTW *where) {
    CHECK(type != FTW_NS && status != NULL && path[where->base - 1] == '/', "nftw %s", path);
    counted++;
    return 0;
}

int main(void) {
    char real[PATH_MAX], pci[PATH_MAX];
    CHECK(realpath("/sys/class/infiniband/rnic0/../..", pci) != NULL, "realpath of the PCI device");
    CHECK(realpath("/sys/class/infiniband/rnic0/device", real) != NULL && !strcmp(real, pci), "%s and %s", real, pci);
    char *canonical = canonicalize_file_name("/sys/class/infiniband/rnic0");
    CHECK(canonical != NULL && !strncmp(canonical, pci, strlen(pci)), "canonicalize_file_name: %s", canonical);
    walk(pci);
    CHECK(nftw(pci, count_one, 8, FTW_PHYS) == 0 && counted == nodes + 1, "nftw: %d of %d", counted, nodes + 1);
    CHECK(nftw("/sys/class/infiniband/rnic0", count_one, 8, FTW_DEPTH) == 0, "nftw that follows links");
    walk("/dev/infiniband");
    walk("/sys/class/infiniband/rnic0/device/infiniband_verbs");

    /* As scripts and libraries look. */
    static const struct {
        const char *pattern;
        size_t count;
    } patterns[] = {
        {"/sys/class/infiniband/*/ports/1", 1},           {"/sys/class/infin*/rnic0/device/vendor", 1},
        {"/sys/class/infiniband_verbs/uverbs*/ibdev", 1}, {"/dev/infiniband/*", 2},
        {"/sys/class/infiniband/*/device/net/*", 1},      {"/sys/class/misc/rdma_c*/abi_version", 1},
    };
    for (size_t index = 0; index < sizeof patterns / sizeof *patterns; index++) {
        glob_t found = {0};
        int result = glob(patterns[index].pattern, 0, NULL, &found);
        CHECK(result == 0 && found.gl_pathc >= patterns[index].count, "glob %s: %d", patterns[index].pattern, result);
        globfree(&found);
    }
    DIR *directory = opendir("/sys/class");
    int has = 0;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        has += !strcmp(entry->d_name, "infiniband") || !strcmp(entry->d_name, "infiniband_verbs");
    }
    CHECK(has == 2, "/sys/class lists %d of ours", has);
    if (directory != NULL) {
        closedir(directory);
    }
    int root = open("/", O_RDONLY | O_DIRECTORY);
    char text[64];
    CHECK(contents(openat(root, "sys/class/infiniband/rnic0/node_type", O_RDONLY), text, sizeof text) > 0 && !strcmp(text, "1: CA\n"), "openat from the root");
    int class = openat(root, "sys/class/infiniband", O_RDONLY | O_DIRECTORY);
    CHECK(contents(openat(class, "rnic0/device/numa_node", O_RDONLY), text, sizeof text) > 0, "openat through a link");
    int up = openat(class, "../../class/infiniband/rnic0/ports", O_RDONLY | O_DIRECTORY);
    CHECK(up >= 0 && contents(openat(up, "1/state", O_RDONLY), text, sizeof text) > 0 && !strcmp(text, "4: ACTIVE\n"), "openat upwards");
    CHECK(open("/sys/class/infiniband/rnic0/nothing", O_RDONLY) == -1 && errno == ENOENT, "what is not there");
    CHECK(open("/sys/class/infiniband/rnic0/fw_ver", O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR, "a file as directory");
    CHECK(open("/sys/class/infiniband/rnic0", O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP, "a link not followed");
    struct stat status;
    CHECK(stat("/dev/infiniband/uverbs0", &status) == 0 && S_ISCHR(status.st_mode), "the device file");
    /* What is not ours stays as it is. */
    DIR *own = opendir("/proc/self/fd");
    CHECK(own != NULL && readdir(own) != NULL && dirfd(own) >= 0, "another directory");
    if (own != NULL) {
        closedir(own);
    }
    CHECK(open("/sys/class/infiniband/mlx5_9/node_type", O_RDONLY) == -1 && errno == ENOENT, "another device");
    printf("%d nodes, %d files, %d links, %d wrong\n", nodes, files, links, failures);
    return failures != 0;
}
