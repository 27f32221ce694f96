/* The executor: the only place that starts threads, sleeps or reads a clock. Background work is
 * state machines (struct sc_task) stepped by it: worker threads in production, one seeded loop on a
 * virtual clock in tests, where the whole plugin runs unchanged.
 *
 *   threads:  post -> class queues (demand > speculative > writer > background) -> N workers
 *   loop:     post -> one list; sc_exec_wait picks a runnable task by the seed, or, when none is
 *             runnable, moves the clock to the next due task
 *
 * Holds: a posted task is stepped exactly once per post; a worker takes the highest class first,
 * the oldest first inside a class; a task with a due time is never stepped before it.
 * With keeps_one at most thread_count tasks of the upper two lanes run at a time, and as many of
 * the lower two, by one thread more than that: steps that block for long in the lower lanes (writes
 * to a device that stalls) leave one thread to the upper ones.
 * Does not: own tasks (they are embedded in their owner's object); stop a step that runs.
 * Threads: post, now, wait, wake from any thread in thread mode; from one thread in loop mode.
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
    void (*step)(struct sc_task *task); /* set by the owner; may post itself or others again */
    /* The executor's, while posted. */
    struct sc_task *next;
    uint64_t due_ns;
    uint32_t io_class;
    _Atomic uint32_t posted; /* 1 from post until just before step */
};

/* The object of this type whose member the task is. */
#define SC_TASK_OWNER(task, type, member)                                                          \
    ((type *)(void *)((uint8_t *)(task)-offsetof(type, member)))

struct sc_exec;

struct sc_exec_params {
    struct sc_alloc *alloc;
    uint32_t thread_count;    /* >= 1: threads; 0: the seeded loop */
    bool keeps_one;           /* by one thread more: see above */
    uint64_t seed;            /* loop mode: order of runnable tasks */
    const char *name;         /* thread names: "NAME-0"; at most 12 bytes are used */
    struct sc_poison *poison; /* marked when a rule of this header breaks; NULL: the abort only */
};

spec_status sc_exec_open(const struct sc_exec_params *params, struct sc_exec **ret_exec,
                         struct spec_error *reterr);
/* Joins the workers. Owners have drained their tasks: none is posted (asserted). Takes NULL. In a
 * forked child, where the workers do not exist, it frees the memory only. */
void sc_exec_close(struct sc_exec *exec);

/* Queues the task. It must not be posted already. Allocates nothing, blocks for a short lock. */
void sc_exec_post(struct sc_exec *exec, struct sc_task *task, enum sc_io_class io_class);
/* The same, not before due_ns on the executor's clock. */
void sc_exec_post_at(struct sc_exec *exec, struct sc_task *task, enum sc_io_class io_class,
                     uint64_t due_ns);

/* Takes a posted task back. true: it is posted no more and its step will not run for that post.
 * false: it was not posted, or a worker has taken it (its step runs now, or has run). From any
 * thread, beside the post too, which then has happened before it or happens after. */
bool sc_exec_cancel(struct sc_exec *exec, struct sc_task *task);

/* Nanoseconds: CLOCK_MONOTONIC in thread mode, the virtual clock in loop mode (it starts at 1 s, so
 * that 0 is never a time). */
uint64_t sc_exec_now_ns(const struct sc_exec *exec);
/* Nanoseconds since the epoch: CLOCK_REALTIME, or the virtual clock. It may be set back or forward
 * at any time, so it says when something was, to another process or a later run: in records, leases
 * and file headers, which are compared with it. How long something has lasted, or shall last, is a
 * matter of sc_exec_now_ns alone; what a record or a lease says of a time becomes a duration first.
 */
uint64_t sc_exec_wall_ns(const struct sc_exec *exec);
/* Loop mode: the wall clock is set forward by so much, or back. */
void sc_exec_wall_set(struct sc_exec *exec, int64_t by_ns);

#define SC_EXEC_FOREVER UINT64_MAX
/* Waits until *word != old or the clock reaches deadline_ns (SC_EXEC_FOREVER: no deadline). Returns
 * true when the word differs. Thread mode: a futex on the word. Loop mode: steps tasks; a task due
 * at the deadline or later is not stepped, the clock stops at the deadline; false as well when
 * nothing is left that could change the word (with SC_EXEC_FOREVER a deadlock in the caller, who
 * asserts that). Never called from a task's step. */
bool sc_exec_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old, uint64_t deadline_ns);
/* Wakes every waiter on the word. The caller changed the word before (release order). */
void sc_exec_wake(struct sc_exec *exec, _Atomic uint32_t *word);
/* True in loop mode. */
bool sc_exec_is_loop(const struct sc_exec *exec);
/* Loop mode: steps one runnable (or next due) task; false when there is none. */
bool sc_exec_step_one(struct sc_exec *exec);

#endif
