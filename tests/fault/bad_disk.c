/* Delays system calls on the files below a directory, or makes them fail.
 *
 * Preloaded into the broker (LD_PRELOAD). The file that PLOG_BAD_DISK names contains one fault per
 * line and is read at each call:
 *
 *     CALL MILLISECONDS ERRNO PATH
 *
 * CALL is sync (fdatasync, fsync, syncfs), send (sendfile) or read (pread). It waits MILLISECONDS and
 * then fails with ERRNO unless that is 0. PATH is a prefix of the paths of affected files.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

static void wait_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Wait, then return the error with which the call must fail, or 0. */
static int trouble_at(const char *call, const char *path) {
    const char *control = getenv("PLOG_BAD_DISK");
    FILE *lines = control ? fopen(control, "re") : NULL;
    char name[16], prefix[PATH_MAX];
    long ms;
    int number, found = 0;
    if (lines == NULL)
        return 0;
    long delay = 0;
    while (fscanf(lines, "%15s %ld %d %4095s", name, &ms, &number, prefix) == 4)
        if (strcmp(name, call) == 0 && strncmp(path, prefix, strlen(prefix)) == 0) {
            delay = ms;
            found = number;
        }
    fclose(lines);
    if (delay > 0)
        wait_ms(delay);
    return found;
}

static int trouble(const char *call, int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return trouble_at(call, path);
}

#define SYNC(function)                                                            \
    int function(int fd) {                                                        \
        static int (*real)(int);                                                  \
        int error = trouble("sync", fd);                                          \
        if (error != 0) {                                                         \
            errno = error;                                                        \
            return -1;                                                            \
        }                                                                         \
        if (real == NULL)                                                         \
            real = (int (*)(int))dlsym(RTLD_NEXT, #function);                     \
        return real(fd);                                                          \
    }
SYNC(fdatasync)
SYNC(fsync)
SYNC(syncfs)

#define SEND(function, offset_type)                                               \
    ssize_t function(int out, int in, offset_type *offset, size_t count) {        \
        static ssize_t (*real)(int, int, offset_type *, size_t);                  \
        int error = trouble("send", in);                                          \
        if (error != 0) {                                                         \
            errno = error;                                                        \
            return -1;                                                            \
        }                                                                         \
        if (real == NULL)                                                         \
            real = (ssize_t(*)(int, int, offset_type *, size_t))dlsym(RTLD_NEXT, #function); \
        return real(out, in, offset, count);                                      \
    }
SEND(sendfile, off_t)
SEND(sendfile64, off64_t)

#define READ(function, offset_type)                                               \
    ssize_t function(int fd, void *buffer, size_t count, offset_type offset) {    \
        static ssize_t (*real)(int, void *, size_t, offset_type);                 \
        int error = trouble("read", fd);                                          \
        if (error != 0) {                                                         \
            errno = error;                                                        \
            return -1;                                                            \
        }                                                                         \
        if (real == NULL)                                                         \
            real = (ssize_t(*)(int, void *, size_t, offset_type))dlsym(RTLD_NEXT, #function); \
        return real(fd, buffer, count, offset);                                   \
    }
READ(pread, off_t)
READ(pread64, off64_t)
