/* timed: runs a test and writes what it cost into a file, so that `tools/run_tests.py --times` can
 * show which tests became expensive. Every ctest runs below it (sc_add_ctest).
 *
 *   timed FILE COMMAND [ARGUMENT..]
 *
 * FILE has one line, "CPU_SECONDS WALL_SECONDS", of all processes that the command waited for.
 *
 * Invariants: the exit status is the command's. If a signal ended the command, the same signal ends
 * this program, so that ctest reports it. If this program or its parent dies, the command dies with
 * it.
 * Threads: one. Tests: tests/unit/tools/test_timed.py */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_USAGE      2
#define EXIT_CANNOT_RUN 127
#define EXIT_SIGNAL     128 /* and the signal's number, as a shell has it */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static int write_times(const char *path, const struct rusage *used, double wall_s)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "timed: %s: %s\n", path, strerror(errno));
        return -1;
    }
    fprintf(file, "%.3f %.3f\n", seconds_of(used->ru_utime) + seconds_of(used->ru_stime), wall_s);
    return fclose(file);
}

static void run(char **command, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent died before prctl() took effect */
        _exit(EXIT_CANNOT_RUN);
    execvp(command[0], command);
    fprintf(stderr, "timed: %s: %s\n", command[0], strerror(errno));
    _exit(EXIT_CANNOT_RUN);
}

/* Ends this program as its command ended. A signal that whoever began this program blocked is let
 * through; if it ends nothing all the same, the status is not 0. */
static int end_by(int number)
{
    sigset_t set;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a core of this program would say nothing */
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    return EXIT_SIGNAL + number;
}

int main(int argc, char **argv)
{
    struct rusage used;
    int status = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: timed FILE COMMAND [ARGUMENT..]\n");
        return EXIT_USAGE;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* when ctest dies, its tests do */
    signal(SIGCHLD, SIG_DFL); /* ignored, as a parent may leave it, no status would be kept */
    double begin_s = now_s();
    pid_t self = getpid(), child = fork();
    if (child == 0)
        run(argv + 2, self);
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("timed");
        return EXIT_CANNOT_RUN;
    }
    if (write_times(argv[1], &used, now_s() - begin_s) != 0)
        return EXIT_CANNOT_RUN;
    if (WIFSIGNALED(status))
        return end_by(WTERMSIG(status));
    return WEXITSTATUS(status);
}
