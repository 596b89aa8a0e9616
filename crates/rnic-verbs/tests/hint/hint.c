/* Writes hints as a program does, and reports what it finds: "absent" without a library that has them. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic_hint.h"

struct ibv_device;

typedef struct ibv_device **(*list_fn)(int *);
typedef struct ibv_context *(*open_fn)(struct ibv_device *);
typedef int (*close_fn)(struct ibv_context *);

_Static_assert(sizeof(struct rnic_hint) == 64, "one cache line");

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("WRONG in line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static struct rnic_hint *line;

/* From here on, a system call ends the process, except the end of this thread and the return from a signal handler. */
static void forbid_calls(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *write_hint(void *unused) {
    forbid_calls();
    rnic_hint_write(line, 7, 250000);
    /* Not by returning: the C library would release the stack. */
#if defined(__x86_64__)
    __asm__ volatile("syscall" ::"a"(SYS_exit), "D"(0) : "rcx", "r11", "memory");
#else
    syscall(SYS_exit, 0);
#endif
    return unused;
}

/* Reports `what`, and waits until the test has looked. */
static void report(const char *what) {
    char answer[8];
    printf("%s\n", what);
    fflush(stdout);
    CHECK(fgets(answer, sizeof answer, stdin) != NULL);
}

int main(void) {
    list_fn list = (list_fn)dlsym(RTLD_DEFAULT, "ibv_get_device_list");
    open_fn open = (open_fn)dlsym(RTLD_DEFAULT, "ibv_open_device");
    close_fn close_device = (close_fn)dlsym(RTLD_DEFAULT, "ibv_close_device");
    if (list == NULL) {
        CHECK(rnic_hint_find(NULL) == NULL);
        rnic_hint_write(NULL, 1, 0);
        puts("absent");
        return 0;
    }
    struct ibv_device **devices = list(NULL);
    CHECK(devices != NULL && devices[0] != NULL);
    struct ibv_context *context = open(devices[0]);
    CHECK(context != NULL);
    line = rnic_hint_find(context);
    CHECK(line != NULL && (uintptr_t)line % 64 == 0);
    CHECK(line->weight == 2 && line->cap_kbps == 0 && line->sequence == 0);
    CHECK(rnic_hint_find(context) == line);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_hint, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(line->weight == 7 && line->cap_kbps == 250000 && line->sequence == 2);
    report("written");
    rnic_hint_write(line, 0, 0);
    report("invalid");

    /* Contexts that are not of this library, or of another process. */
    static char foreign[4096];
    CHECK(rnic_hint_find(NULL) == NULL && rnic_hint_find((struct ibv_context *)foreign) == NULL);
    pid_t child = fork();
    if (child == 0) _exit(rnic_hint_find(context) == NULL ? 0 : 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close_device(context) == 0);
    puts("done");
    return 0;
}
