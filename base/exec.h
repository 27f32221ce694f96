/* exec: the executor, the only place that starts threads, sleeps or reads a clock. Background work
 * is tasks (struct sc_task) that it steps: by worker threads in production, by one seeded loop on a
 * virtual clock in tests.
 *
 *   threads:  post -> class queues (demand > speculative > writer > background) -> N workers
 *   loop:     post -> one list; sc_exec_wait picks a runnable task by the seed, or, if none is
 *             runnable, moves the clock to the next due task
 *
 * Invariants: a task is stepped exactly once per post, and never before its due time. A worker
 * takes the highest class first, and the oldest task inside a class. With keeps_one at most
 * thread_count tasks of the upper two classes run at a time, and as many of the lower two, by
 * thread_count + 1 threads: slow writes leave one thread to the upper classes.
 * Threads: post, now, wait and wake from any thread; in loop mode from one.
 * Tests: tests/unit/base/test_exec.c */
#ifndef SC_BASE_EXEC_H
#define SC_BASE_EXEC_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/status.h"

#include <stdatomic.h>

enum sc_io_class {
    SC_IO_CLASS_DEMAND,
    SC_IO_CLASS_SPECULATIVE,
    SC_IO_CLASS_WRITER,
    SC_IO_CLASS_BACKGROUND,
    SC_IO_CLASSES
};

struct sc_task {
    void (*step)(struct sc_task *task); /* set by the owner; may post itself or others */
    /* Written by the executor while posted. */
    struct sc_task *next;
    uint64_t due_ns;
    uint32_t io_class;
    _Atomic uint32_t posted; /* 1 from post until just before step */
};

/* The object of this type that contains the task as this member. */
#define SC_TASK_OWNER(task, type, member)                                                          \
    ((type *)(void *)((uint8_t *)(task)-offsetof(type, member)))

struct sc_exec;

struct sc_exec_params {
    struct sc_alloc *alloc;
    uint32_t thread_count;    /* >= 1: worker threads; 0: seeded loop */
    bool keeps_one;           /* one thread more, see above */
    uint64_t seed;            /* loop mode: order of runnable tasks */
    const char *name;         /* thread names "NAME-0"; at most 12 bytes of it are used */
    struct sc_poison *poison; /* marked if a rule of this header breaks; may be NULL */
};

spec_status sc_exec_open(const struct sc_exec_params *params, struct sc_exec **ret_exec,
                         struct spec_error *reterr);
/* Joins the workers. No task may be posted (asserted). Takes NULL. In a forked child it only frees
 * the memory. */
void sc_exec_close(struct sc_exec *exec);

/* Queues a task that is not posted. Allocates nothing; blocks for a short lock. */
void sc_exec_post(struct sc_exec *exec, struct sc_task *task, enum sc_io_class io_class);
/* As sc_exec_post, not before due_ns on the executor's clock. */
void sc_exec_post_at(struct sc_exec *exec, struct sc_task *task, enum sc_io_class io_class,
                     uint64_t due_ns);

/* Cancels a posted task. True: its step does not run for that post. False: it was not posted, or a
 * worker has taken it (its step runs or has run). From any thread, concurrently with posts too. */
bool sc_exec_cancel(struct sc_exec *exec, struct sc_task *task);

/* Returns ns of CLOCK_MONOTONIC, or of the virtual clock, which starts at 1 s so that 0 is never a
 * time. */
uint64_t sc_exec_now_ns(const struct sc_exec *exec);
/* Returns ns since the epoch: CLOCK_REALTIME, or the virtual clock. It may be set back or forward
 * at any time. So it only dates records, leases and file headers for other processes and later
 * runs. Durations are measured by sc_exec_now_ns; a recorded time is converted to a duration
 * first. */
uint64_t sc_exec_wall_ns(const struct sc_exec *exec);
/* Loop mode: moves the wall clock by by_ns. */
void sc_exec_wall_set(struct sc_exec *exec, int64_t by_ns);

#define SC_EXEC_FOREVER UINT64_MAX
/* Waits until *word != old or the clock reaches deadline_ns (SC_EXEC_FOREVER: none). Returns true
 * if the word differs. Thread mode: a futex on the word. Loop mode: steps tasks that are due
 * before the deadline, then stops the clock at it. Returns false also if nothing is left that
 * could change the word (with SC_EXEC_FOREVER a deadlock, which the caller asserts). Never called
 * from a step. */
bool sc_exec_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old, uint64_t deadline_ns);
/* Wakes every waiter on the word, which the caller changed before (release order). */
void sc_exec_wake(struct sc_exec *exec, _Atomic uint32_t *word);
bool sc_exec_is_loop(const struct sc_exec *exec);
/* Loop mode: steps one runnable or next due task; false: there is none. */
bool sc_exec_step_one(struct sc_exec *exec);

#endif
