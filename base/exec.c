/* exec: queues, timers and workers of the executor.
 *
 *   post    -> lanes[class]: head -> task -> ... -> tail     thread mode, first in, first out
 *           -> lanes[0]: all classes together               loop mode, picked by the seed
 *   post_at -> timers: nearest due first, then as posted     moved to a class when due
 *
 * Idle workers wait on `work_ready`. One of them, the watcher, waits on `timer_ready` with the
 * nearest due time as its limit, so one thread wakes for a timer. A worker that takes a task while
 * timers exist and nobody watches wakes another as the watcher. A step that posts its own task for
 * later wakes nobody: it is about to end, and then its worker watches. So a task that runs now and
 * then costs one wake a time.
 *
 * Invariants: a task is in at most one list, and task->posted is 1 exactly then. Nothing of a task
 * is touched after its step began (its owner may have freed it). No step runs under the lock, and
 * nothing is allocated after open. */
#include "base/exec.h"

#include "base/limits.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S       1000000000ull
#define LOOP_START_NS  NS_PER_S
#define NAME_BYTES_MAX 12 /* Linux keeps 15 bytes of a thread's name; "-63" takes 3 */

struct task_list {
    struct sc_task *head, *tail;
};

struct sc_exec {
    /* Set by open, constant after. */
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint32_t thread_count; /* 0: loop mode */
    uint32_t half_max;     /* maximum of concurrent steps of the upper two classes, and of the lower
                            * two */
    pid_t owner_pid;       /* process with the workers; a forked child has none */
    char name[NAME_BYTES_MAX + 1];

    /* Guarded by lock (rank 80; held for list operations only). */
    pthread_mutex_t lock;
    pthread_cond_t work_ready, timer_ready;
    struct task_list lanes[SC_IO_CLASSES];
    struct task_list timers;
    uint32_t running[2];  /* running steps of the upper two classes, of the lower two */
    uint32_t idle_count;  /* workers waiting on work_ready */
    uint32_t named_count; /* workers that have set their name */
    bool has_watcher;     /* one worker waits on timer_ready */
    bool is_stopping;

    /* The loop's thread only. */
    uint64_t loop_now_ns;
    uint64_t loop_wall_ns; /* offset of the wall clock from loop_now_ns */
    uint64_t loop_random;
    bool is_stepping;

    /* The opening thread only. */
    uint32_t started_count;
    pthread_t threads[SC_LIMIT_THREADS + 1];
};

/* ---- Lists ---------------------------------------------------------------------------------- */

static void list_append(struct task_list *list, struct sc_task *task)
{
    task->next = NULL;
    if (list->tail != NULL)
        list->tail->next = task;
    else
        list->head = task;
    list->tail = task;
}

/* Removes and returns the task after `before` (NULL: the first). */
static struct sc_task *list_take(struct task_list *list, struct sc_task *before)
{
    struct sc_task *task = before != NULL ? before->next : list->head;
    if (task == NULL)
        return NULL;
    if (before != NULL)
        before->next = task->next;
    else
        list->head = task->next;
    if (list->tail == task)
        list->tail = before;
    task->next = NULL;
    return task;
}

/* Inserts by due time; equal times keep the order of their posts. */
static void timers_insert(struct task_list *timers, struct sc_task *task)
{
    if (timers->tail == NULL || timers->tail->due_ns <= task->due_ns) {
        list_append(timers, task); /* the usual case: a fixed delay from now */
        return;
    }
    struct sc_task **link = &timers->head;
    while ((*link)->due_ns <= task->due_ns)
        link = &(*link)->next; /* ends before the tail, which is due later */
    task->next = *link;
    *link = task;
}

/* Returns the list of a runnable task: one per class for workers, one for the seeded loop. */
static struct task_list *lane_of(struct sc_exec *exec, const struct sc_task *task)
{
    return &exec->lanes[exec->thread_count == 0 ? 0 : task->io_class];
}

static void timers_release(struct sc_exec *exec, uint64_t now_ns)
{
    while (exec->timers.head != NULL && exec->timers.head->due_ns <= now_ns) {
        struct sc_task *task = list_take(&exec->timers, NULL);
        list_append(lane_of(exec, task), task);
    }
}

/* ---- Clocks --------------------------------------------------------------------------------- */

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now); /* cannot fail for this clock on Linux */
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

uint64_t sc_exec_now_ns(const struct sc_exec *exec)
{
    return sc_exec_is_loop(exec) ? exec->loop_now_ns : clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t sc_exec_wall_ns(const struct sc_exec *exec)
{
    return sc_exec_is_loop(exec) ? exec->loop_now_ns + exec->loop_wall_ns
                                 : clock_read_ns(CLOCK_REALTIME);
}

void sc_exec_wall_set(struct sc_exec *exec, int64_t by_ns)
{
    SC_ASSERT(exec->poison, sc_exec_is_loop(exec));
    exec->loop_wall_ns += (uint64_t)by_ns; /* modulo 2^64, as the sum is */
}

bool sc_exec_is_loop(const struct sc_exec *exec)
{
    return exec->thread_count == 0;
}

static _Thread_local const struct sc_task *own_task; /* whose step this worker runs, or NULL */

/* ---- Workers -------------------------------------------------------------------------------- */

/* Lock held. Wakes an idle worker for new work, or else the watcher. */
static void wake_for_work(struct sc_exec *exec)
{
    if (exec->idle_count > 0)
        pthread_cond_signal(&exec->work_ready);
    else if (exec->has_watcher)
        pthread_cond_signal(&exec->timer_ready);
}

/* Lock held. Wakes a thread because the nearest due time is earlier, or nobody watches it. */
static void wake_for_timer(struct sc_exec *exec)
{
    if (exec->has_watcher)
        pthread_cond_signal(&exec->timer_ready);
    else if (exec->idle_count > 0)
        pthread_cond_signal(&exec->work_ready);
}

static uint32_t half_of(uint32_t io_class)
{
    return io_class >= SC_IO_CLASS_WRITER ? 1 : 0;
}

/* Lock held. Returns the highest class with a task that may run now; SC_IO_CLASSES: none. */
static uint32_t lane_next(const struct sc_exec *exec)
{
    uint32_t io_class = 0;
    while (io_class < SC_IO_CLASSES && (exec->lanes[io_class].head == NULL ||
                                        exec->running[half_of(io_class)] >= exec->half_max))
        io_class++;
    return io_class;
}

/* Lock held; may release it and take it again. */
static void wait_for_work(struct sc_exec *exec)
{
    if (exec->timers.head != NULL && !exec->has_watcher) {
        struct timespec due = timespec_of(exec->timers.head->due_ns);
        exec->has_watcher = true;
        pthread_cond_timedwait(&exec->timer_ready, &exec->lock, &due);
        exec->has_watcher = false;
    } else {
        exec->idle_count++;
        pthread_cond_wait(&exec->work_ready, &exec->lock);
        exec->idle_count--;
    }
}

/* Lock held. Returns the next task, counted as running; NULL: the executor stops. */
static struct sc_task *take_wait(struct sc_exec *exec, uint32_t *ret_half)
{
    while (!exec->is_stopping) {
        if (exec->timers.head != NULL)
            timers_release(exec, clock_read_ns(CLOCK_MONOTONIC));
        uint32_t io_class = lane_next(exec);
        if (io_class < SC_IO_CLASSES) {
            *ret_half = half_of(io_class);
            exec->running[*ret_half]++;
            return list_take(&exec->lanes[io_class], NULL);
        }
        wait_for_work(exec);
    }
    return NULL;
}

static bool has_runnable(const struct sc_exec *exec)
{
    for (uint32_t io_class = 0; io_class < SC_IO_CLASSES; io_class++)
        if (exec->lanes[io_class].head != NULL)
            return true;
    return false;
}

static void *worker_main(void *argument)
{
    struct sc_exec *exec = argument;
    pthread_mutex_lock(&exec->lock);
    char name[NAME_BYTES_MAX + 8];
    snprintf(name, sizeof(name), "%s-%u", exec->name, (unsigned)(exec->named_count++ % 100));
    pthread_setname_np(pthread_self(), name); /* its own name is a prctl; another's is a file */
    for (;;) {
        uint32_t half;
        struct sc_task *task = take_wait(exec, &half);
        if (task == NULL)
            break;
        SC_ASSERT(exec->poison, atomic_load(&task->posted) == 1);
        atomic_store(&task->posted, 0u);
        if (lane_next(exec) < SC_IO_CLASSES)
            wake_for_work(exec); /* one wake may have made several timers due */
        else if (exec->timers.head != NULL && !exec->has_watcher)
            wake_for_timer(exec); /* a worker must watch while this one runs */
        pthread_mutex_unlock(&exec->lock);
        own_task = task;
        task->step(task);
        own_task = NULL;
        pthread_mutex_lock(&exec->lock);
        exec->running[half]--;
    }
    pthread_mutex_unlock(&exec->lock);
    return NULL;
}

/* ---- Open and close ------------------------------------------------------------------------- */

static spec_status workers_start(struct sc_exec *exec, struct spec_error *reterr)
{
    sigset_t all, before; /* the host's signals belong to the host's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    while (exec->started_count < exec->thread_count) {
        uint32_t i = exec->started_count;
        failed = pthread_create(&exec->threads[i], NULL, worker_main, exec);
        if (failed != 0)
            break;
        exec->started_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return sc_fail_errno(reterr, SPEC_E_NO_MEMORY, failed, "worker thread %u of %u",
                             (unsigned)exec->started_count, (unsigned)exec->thread_count);
    return SPEC_OK;
}

static void workers_join(struct sc_exec *exec)
{
    pthread_mutex_lock(&exec->lock);
    exec->is_stopping = true;
    pthread_cond_broadcast(&exec->work_ready);
    pthread_cond_broadcast(&exec->timer_ready);
    pthread_mutex_unlock(&exec->lock);
    for (uint32_t i = 0; i < exec->started_count; i++)
        pthread_join(exec->threads[i], NULL);
}

spec_status sc_exec_open(const struct sc_exec_params *params, struct sc_exec **ret_exec,
                         struct spec_error *reterr)
{
    if (params->thread_count > SC_LIMIT_THREADS)
        return sc_fail(reterr, SPEC_E_INVALID, "%u worker threads, expected at most %u",
                       (unsigned)params->thread_count, (unsigned)SC_LIMIT_THREADS);
    struct sc_exec *exec = sc_alloc_zero(params->alloc, sizeof(*exec));
    if (exec == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "executor, %zu bytes", sizeof(*exec));
    exec->alloc = params->alloc;
    exec->poison = params->poison;
    exec->thread_count = params->thread_count;
    exec->half_max = params->thread_count;
    if (params->keeps_one && params->thread_count > 0)
        exec->thread_count++;
    exec->owner_pid = getpid();
    exec->loop_now_ns = LOOP_START_NS;
    exec->loop_random = params->seed;
    snprintf(exec->name, sizeof(exec->name), "%s", params->name != NULL ? params->name : "spec");

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic); /* cannot fail on Linux with these arguments */
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&exec->lock, NULL);
    pthread_cond_init(&exec->work_ready, NULL);
    pthread_cond_init(&exec->timer_ready, &monotonic);
    pthread_condattr_destroy(&monotonic);

    spec_status status = workers_start(exec, reterr);
    if (status != SPEC_OK) {
        sc_exec_close(exec);
        return status;
    }
    *ret_exec = exec;
    return SPEC_OK;
}

void sc_exec_close(struct sc_exec *exec)
{
    if (exec == NULL)
        return;
    if (exec->owner_pid == getpid()) {
        workers_join(exec);
        SC_ASSERT(exec->poison, !has_runnable(exec));
        SC_ASSERT(exec->poison, exec->timers.head == NULL);
        pthread_cond_destroy(&exec->work_ready);
        pthread_cond_destroy(&exec->timer_ready);
        pthread_mutex_destroy(&exec->lock);
    }
    sc_alloc_free(exec->alloc, exec);
}

/* ---- Post ----------------------------------------------------------------------------------- */

void sc_exec_post(struct sc_exec *exec, struct sc_task *task, enum sc_io_class io_class)
{
    sc_exec_post_at(exec, task, io_class, 0);
}

/* Lock held. Inserts the task and wakes a thread that takes it. */
static void insert(struct sc_exec *exec, struct sc_task *task, bool is_due)
{
    if (is_due) {
        list_append(lane_of(exec, task), task);
        wake_for_work(exec);
        return;
    }
    timers_insert(&exec->timers, task);
    if (!exec->has_watcher ? task != own_task : exec->timers.head == task)
        wake_for_timer(exec);
}

void sc_exec_post_at(struct sc_exec *exec, struct sc_task *task, enum sc_io_class io_class,
                     uint64_t due_ns)
{
    bool is_due = due_ns == 0 || due_ns <= sc_exec_now_ns(exec);

    /* All of the task is written under the lock: cancel may look for it from another thread, and
     * finds it as it was or in the list that its fields name. */
    pthread_mutex_lock(&exec->lock);
    uint32_t was_posted = atomic_exchange(&task->posted, 1u);
    SC_ASSERT(exec->poison, was_posted == 0);
    SC_ASSERT(exec->poison, (uint32_t)io_class < SC_IO_CLASSES);
    if (was_posted == 0) { /* else a second insertion would break its list */
        task->io_class =
            (uint32_t)io_class < SC_IO_CLASSES ? (uint32_t)io_class : SC_IO_CLASS_BACKGROUND;
        task->due_ns = due_ns;
        insert(exec, task, is_due);
    }
    pthread_mutex_unlock(&exec->lock);
}

static bool list_remove(struct task_list *list, const struct sc_task *task)
{
    struct sc_task *before = NULL;
    for (struct sc_task *at = list->head; at != NULL; before = at, at = at->next) {
        if (at == task) {
            (void)list_take(list, before);
            return true;
        }
    }
    return false;
}

bool sc_exec_cancel(struct sc_exec *exec, struct sc_task *task)
{
    pthread_mutex_lock(&exec->lock);
    bool taken = false;
    if (atomic_load(&task->posted) != 0) /* 0 if a worker has it; cleared under the lock */
        taken = list_remove(&exec->timers, task) || list_remove(lane_of(exec, task), task);
    if (taken)
        atomic_store(&task->posted, 0u);
    pthread_mutex_unlock(&exec->lock);
    return taken;
}

/* ---- The seeded loop ------------------------------------------------------------------------ */

/* splitmix64 (Steele, Lea, Flood 2014): any seed is valid, 0 too. */
static uint64_t random_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return mixed ^ (mixed >> 31);
}

/* Takes a runnable task by the seed; NULL: none. */
static struct sc_task *loop_take(struct sc_exec *exec)
{
    struct task_list *list = &exec->lanes[0];
    uint64_t count = 0;
    for (const struct sc_task *task = list->head; task != NULL; task = task->next)
        count++;
    if (count == 0)
        return NULL;
    struct sc_task *before = NULL;
    for (uint64_t skip = random_next(&exec->loop_random) % count; skip > 0; skip--)
        before = before != NULL ? before->next : list->head;
    return list_take(list, before);
}

/* Steps one task. If none is runnable, moves the clock to the nearest due task, if it is due before
 * deadline_ns. */
static bool loop_step(struct sc_exec *exec, uint64_t deadline_ns)
{
    SC_ASSERT(exec->poison, !exec->is_stepping); /* a step never waits */
    pthread_mutex_lock(&exec->lock);
    timers_release(exec, exec->loop_now_ns);
    if (!has_runnable(exec) && exec->timers.head != NULL &&
        exec->timers.head->due_ns < deadline_ns) {
        exec->loop_now_ns = exec->timers.head->due_ns;
        timers_release(exec, exec->loop_now_ns);
    }
    struct sc_task *task = loop_take(exec);
    pthread_mutex_unlock(&exec->lock);
    if (task == NULL)
        return false;
    SC_ASSERT(exec->poison, atomic_load(&task->posted) == 1);
    atomic_store(&task->posted, 0u);
    exec->is_stepping = true;
    task->step(task);
    exec->is_stepping = false;
    return true;
}

bool sc_exec_step_one(struct sc_exec *exec)
{
    SC_ASSERT(exec->poison, sc_exec_is_loop(exec));
    return sc_exec_is_loop(exec) && loop_step(exec, SC_EXEC_FOREVER);
}

/* ---- Wait and wake -------------------------------------------------------------------------- */

static bool is_changed(_Atomic uint32_t *word, uint32_t old)
{
    return atomic_load_explicit(word, memory_order_acquire) != old;
}

static bool loop_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old,
                      uint64_t deadline_ns)
{
    while (!is_changed(word, old)) {
        if (exec->loop_now_ns >= deadline_ns)
            return false;
        if (loop_step(exec, deadline_ns))
            continue;
        if (deadline_ns != SC_EXEC_FOREVER)
            exec->loop_now_ns = deadline_ns; /* nothing is due before it */
        return false;
    }
    return true;
}

bool sc_exec_wait(struct sc_exec *exec, _Atomic uint32_t *word, uint32_t old, uint64_t deadline_ns)
{
    if (sc_exec_is_loop(exec))
        return loop_wait(exec, word, old, deadline_ns);
    struct timespec deadline = timespec_of(deadline_ns);
    while (!is_changed(word, old)) {
        if (deadline_ns != SC_EXEC_FOREVER && clock_read_ns(CLOCK_MONOTONIC) >= deadline_ns)
            return false;
        /* Returns on a wake, a changed word, the deadline or a signal: the loop checks which. The
         * deadline is absolute, on CLOCK_MONOTONIC. */
        syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, old,
                deadline_ns == SC_EXEC_FOREVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
    }
    return true;
}

void sc_exec_wake(struct sc_exec *exec, _Atomic uint32_t *word)
{
    if (!sc_exec_is_loop(exec))
        syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX);
}
