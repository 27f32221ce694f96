/* timed: runs a test and writes what it cost into a file, so that `tools/run_tests.py --times` can
 * show which tests became expensive. Every ctest runs below it (sc_add_ctest).
 *
 *   timed FILE COMMAND [ARGUMENT..]     FILE: "CPU_SECONDS WALL_SECONDS\n", of the whole process
 * tree
 *
 * Invariants: the exit status is the command's. If a signal ended the command, the same signal ends
 * this program, so that ctest reports it. If this program dies, the command dies with it.
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

static void run(char **command)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(command[0], command);
    fprintf(stderr, "timed: %s: %s\n", command[0], strerror(errno));
    _exit(EXIT_CANNOT_RUN);
}

int main(int argc, char **argv)
{
    struct rusage used;
    int status = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: timed FILE COMMAND [ARGUMENT..]\n");
        return EXIT_USAGE;
    }
    double begin_s = now_s();
    pid_t child = fork();
    if (child == 0)
        run(argv + 2);
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("timed");
        return EXIT_CANNOT_RUN;
    }
    if (write_times(argv[1], &used, now_s() - begin_s) != 0)
        return EXIT_CANNOT_RUN;
    if (WIFSIGNALED(status)) {
        /* A core of this program would say nothing. */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
