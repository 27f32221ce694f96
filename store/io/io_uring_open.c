/* io_uring_open: opens and closes the io_uring back end: probe, rings, file tables, function table.
 *
 *   open   rings (the first is probed) -> threads -> file tables
 *   close  rings become idle -> threads end -> rings; in a forked child only descriptors are closed
 *
 * Invariants: a file has the same place in every ring's table.
 * Threads: as in store/io/io.h; table_lock (rank 63) guards the file table.
 * Tests: tests/unit/store/test_io_uring.c */
#include "store/io/io_uring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define RINGS_DEFAULT    2u
#define INFLIGHT_DEFAULT (8ull << 20)
#define INFLIGHT_OPS     128u  /* in flight over all rings; more was not faster, and 512 slower */
#define SLOT_BYTES       8192u /* target bytes per slot; many small operations use them up */
#define SLOTS_MIN        64u
#define SLOTS_MAX        256u
#define FILES_MAX        4096u

/* ---- Files ---------------------------------------------------------------------------------- */

/* Registers a direct file in every ring's table; without a place it works by descriptor. */
static void table_add(struct sc_uring *uring, struct sc_io_file *file)
{
    uint32_t place = SC_URING_NONE;
    (void)pthread_mutex_lock(&uring->table_lock);
    if (uring->table_free_count > 0)
        place = uring->table_free[--uring->table_free_count];
    (void)pthread_mutex_unlock(&uring->table_lock);
    if (place == SC_URING_NONE)
        return;
    const int fd = atomic_load(&file->fd);
    uint32_t done = 0;
    while (done < uring->ring_count &&
           io_uring_register_files_update(&uring->rings[done].ring, place, &fd, 1) == 1)
        done++;
    if (done == uring->ring_count) {
        file->table_place = place + 1;
        return;
    }
    static const int none = -1;
    while (done-- > 0)
        (void)io_uring_register_files_update(&uring->rings[done].ring, place, &none, 1);
    (void)pthread_mutex_lock(&uring->table_lock);
    uring->table_free[uring->table_free_count++] = place;
    (void)pthread_mutex_unlock(&uring->table_lock);
}

static void table_remove(struct sc_uring *uring, struct sc_io_file *file)
{
    static const int none = -1;
    if (file->table_place == 0)
        return;
    bool is_free = true; /* false: the place is lost and the kernel keeps the file */
    for (uint32_t i = 0; i < uring->ring_count; i++)
        is_free &= io_uring_register_files_update(&uring->rings[i].ring, file->table_place - 1,
                                                  &none, 1) == 1;
    (void)pthread_mutex_lock(&uring->table_lock);
    if (is_free)
        uring->table_free[uring->table_free_count++] = file->table_place - 1;
    (void)pthread_mutex_unlock(&uring->table_lock);
    file->table_place = 0;
}

static spec_status uring_file_open(struct sc_io *io, struct sc_io_file *file,
                                   struct spec_error *reterr)
{
    const spec_status status = sc_io_posix_file_open(io, file, reterr);
    if (status == SPEC_OK && (file->flags & SC_IO_OPEN_DIRECT) != 0)
        table_add(io->own, file);
    return status;
}

static void uring_file_close(struct sc_io *io, struct sc_io_file *file)
{
    struct sc_uring *uring = io->own;
    if (!sc_uring_is_child(uring))
        table_remove(uring, file);
    sc_io_posix_file_close(io, file);
}

/* ---- Open, close ---------------------------------------------------------------------------- */

static void uring_stats(struct sc_io *io, struct sc_io_counts *ret_stats)
{
    struct sc_uring *uring = io->own;
    (void)pthread_mutex_lock(&uring->lock);
    *ret_stats = (struct sc_io_counts){.enters = atomic_load(&uring->enters),
                                       .ops = atomic_load(&uring->ops),
                                       .short_ops = atomic_load(&uring->short_ops),
                                       .late = atomic_load(&uring->late),
                                       .inflight_bytes_max = uring->inflight_bytes_max};
    (void)pthread_mutex_unlock(&uring->lock);
}

static void rings_close(struct sc_uring *uring, uint32_t opened)
{
    for (uint32_t i = 0; i < opened; i++)
        io_uring_queue_exit(&uring->rings[i].ring);
}

static void uring_free(struct sc_uring *uring)
{
    struct sc_alloc *alloc = uring->io->alloc;
    sc_alloc_free(alloc, uring->table_free);
    sc_alloc_free(alloc, uring->slots);
    sc_alloc_free(alloc, uring->rings);
    sc_alloc_free(alloc, uring);
}

static void uring_fork_close(struct sc_io *io)
{
    struct sc_uring *uring = io->own;
    for (uint32_t i = 0; i < uring->ring_count; i++) {
        struct io_uring *ring = &uring->rings[i].ring;
        if (ring->ring_fd >= 0)
            (void)close(ring->ring_fd);
        ring->ring_fd = ring->enter_ring_fd = -1;
    }
}

static void uring_close(struct sc_io *io)
{
    struct sc_uring *uring = io->own;
    if (sc_uring_is_child(uring)) { /* no threads, and the rings' memory is not mapped */
        uring_fork_close(io);
        sc_exec_close(uring->exec);
        uring_free(uring);
        return;
    }
    (void)pthread_mutex_lock(&uring->lock);
    uring->is_closing = true;
    (void)pthread_mutex_unlock(&uring->lock);
    for (;;) {
        const uint32_t idle = atomic_load(&uring->idle_count);
        if (idle == uring->ring_count)
            break;
        (void)sc_exec_wait(uring->exec, &uring->idle_count, idle, SC_EXEC_FOREVER);
    }
    sc_exec_close(uring->exec); /* joins, so the last idle ring has left its step */
    rings_close(uring, uring->ring_count);
    (void)pthread_mutex_destroy(&uring->lock);
    (void)pthread_mutex_destroy(&uring->table_lock);
    uring_free(uring);
}

static const struct sc_io_backend uring_backend = {
    .name = "io_uring",
    .close = uring_close,
    .mkdir = sc_io_posix_mkdir,
    .dir_check = sc_io_posix_dir_check,
    .dir_keep = sc_io_posix_dir_keep,
    .file_open = uring_file_open,
    .file_close = uring_file_close,
    .file_size = sc_io_posix_file_size,
    .file_reserve = sc_io_posix_file_reserve,
    .file_truncate = sc_io_posix_file_truncate,
    .file_sync = sc_io_posix_file_sync,
    .file_pread = sc_io_posix_file_pread,
    .file_pwrite = sc_io_posix_file_pwrite,
    .file_append = sc_io_posix_file_append,
    .file_same = sc_io_posix_file_same,
    .stamp = sc_io_posix_stamp,
    .unlink = sc_io_posix_unlink,
    .rename = sc_io_posix_rename,
    .list = sc_io_posix_list,
    .free_bytes = sc_io_posix_free_bytes,
    .file_lock = sc_io_posix_file_lock,
    .file_claim = sc_io_posix_file_claim,
    .file_unclaim = sc_io_posix_file_unclaim,
    .file_lock_shared = sc_io_posix_file_lock_shared,
    .file_join = sc_io_posix_file_join,
    .file_joined = sc_io_posix_file_joined,
    .file_map = sc_io_posix_file_map,
    .unmap = sc_io_posix_unmap,
    .file_share = sc_io_posix_file_share,
    .file_is_shared = sc_io_posix_file_is_shared,
    .submit = sc_uring_submit,
    .raise = sc_uring_raise,
    .buffers = sc_uring_buffers,
    .stats = uring_stats,
    .fork_close = uring_fork_close,
};

static spec_status fail_refused(const char *what, int sys_errno, struct spec_error *reterr)
{
    const char *hint = "";
    if (sys_errno == EPERM || sys_errno == EACCES)
        hint = " (kernel.io_uring_disabled, or a seccomp filter)";
    else if (sys_errno == ENOMEM)
        hint = " (RLIMIT_MEMLOCK)";
    return sc_fail_errno(reterr, SPEC_E_UNSUPPORTED, sys_errno, "%s%s", what, hint);
}

/* Checks that the kernel supports the operations used, and that a read works. */
static spec_status ring_probe(struct io_uring *ring, struct spec_error *reterr)
{
    enum { OPS = 256 };
    static const uint8_t used[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED,
                                   IORING_OP_WRITE_FIXED};
    _Alignas(struct io_uring_probe)
        uint8_t memory[sizeof(struct io_uring_probe) + OPS * sizeof(struct io_uring_probe_op)];
    struct io_uring_probe *probe = (struct io_uring_probe *)(void *)memory;
    memset(memory, 0, sizeof(memory));
    int result = io_uring_register_probe(ring, probe, OPS);
    if (result < 0)
        return fail_refused("io_uring_register_probe", -result, reterr);
    for (uint32_t i = 0; i < sizeof(used); i++)
        if (!io_uring_opcode_supported(probe, used[i]))
            return sc_fail(reterr, SPEC_E_UNSUPPORTED, "io_uring operation %u is not supported",
                           (unsigned)used[i]);

    char wrote[] = "io_uring", back[sizeof(wrote)] = "";
    if (sc_io_file_limit() < sizeof(wrote)) /* the kernel's SIGXFSZ would end the process */
        return fail_refused("a file in memory to try io_uring on, beyond RLIMIT_FSIZE", EFBIG,
                            reterr);
    const int fd = memfd_create("spec-probe", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, wrote, sizeof(wrote), 0) != (ssize_t)sizeof(wrote)) {
        const int sys_errno = errno;
        if (fd >= 0)
            (void)close(fd);
        return fail_refused("a file in memory to try io_uring on", sys_errno, reterr);
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    io_uring_prep_read(sqe, fd, back, sizeof(back), 0);
    struct io_uring_cqe *cqe = NULL;
    do { /* an interrupted wait returns how many were submitted */
        result = io_uring_submit_and_wait_timeout(ring, &cqe, 1, NULL, NULL);
    } while (result == -EINTR || (result >= 0 && cqe == NULL));
    if (result >= 0) {
        result = cqe->res;
        io_uring_cqe_seen(ring, cqe);
    }
    (void)close(fd);
    if (result < 0)
        return fail_refused("a read by io_uring", -result, reterr);
    if (result != (int)sizeof(back) || memcmp(wrote, back, sizeof(back)) != 0)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "a read by io_uring gave %d wrong bytes",
                       result);
    return SPEC_OK;
}

static spec_status ring_open(struct sc_uring *uring, struct sc_uring_ring *ring,
                             struct spec_error *reterr)
{
    ring->uring = uring;
    ring->task.step = sc_uring_step;
    ring->retry_slot = ring->wanted_slice = SC_URING_NONE;
    ring->ended_tail = &ring->ended;
    ring->pins = true;
    ring->free_count = uring->slot_count;
    for (uint32_t i = 0; i < uring->slot_count; i++)
        ring->slots[i].next = i + 1 < uring->slot_count ? i + 1 : SC_URING_NONE;
    const uint32_t features = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG; /* Linux 5.11 */
    /* Completions are processed at the thread's next system call: the enter that wants them. */
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN};
    int result = io_uring_queue_init_params(uring->slot_count, &ring->ring, &params);
    if (result == -EINVAL) { /* before Linux 5.19 */
        params = (struct io_uring_params){.flags = IORING_SETUP_CLAMP};
        result = io_uring_queue_init_params(uring->slot_count, &ring->ring, &params);
    }
    if (result < 0)
        return fail_refused("io_uring_setup", -result, reterr);
    spec_status status = SPEC_OK;
    result = io_uring_ring_dontfork(&ring->ring);
    if (result < 0)
        status = fail_refused("the rings' memory", -result, reterr);
    else if ((params.features & features) != features || params.sq_entries < uring->slot_count)
        status = sc_fail(reterr, SPEC_E_UNSUPPORTED, "io_uring of this kernel is too old");
    else if (ring == uring->rings) /* the first ring is representative */
        status = ring_probe(&ring->ring, reterr);
    if (status != SPEC_OK)
        io_uring_queue_exit(&ring->ring);
    return status;
}

static spec_status rings_open(struct sc_uring *uring, struct spec_error *reterr)
{
    for (uint32_t i = 0; i < uring->ring_count; i++) {
        struct sc_uring_ring *ring = &uring->rings[i];
        ring->slots = &uring->slots[(uint64_t)i * uring->slot_count];
        const spec_status status = ring_open(uring, ring, reterr);
        if (status != SPEC_OK) {
            rings_close(uring, i);
            return status;
        }
        ring->next_idle = uring->idle;
        uring->idle = ring;
        (void)atomic_fetch_add(&uring->idle_count, 1);
    }
    return SPEC_OK;
}

/* Registers a file table in every ring; without one, plain descriptors are used. */
static void table_open(struct sc_uring *uring)
{
    struct rlimit limit;
    uint32_t places = uring->table_count;
    uring->table_count = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < places)
        places = (uint32_t)limit.rlim_cur; /* the kernel accepts no more */
    if (places == 0)
        return;
    for (uint32_t i = 0; i < uring->ring_count; i++) {
        const int result = io_uring_register_files_sparse(&uring->rings[i].ring, places);
        if (result < 0) {
            char reason[96];
            SC_LOG(uring->io->log, 2, "files are not registered with io_uring: %s",
                   strerror_r(-result, reason, sizeof(reason)));
            return;
        }
    }
    uring->table_count = places;
    while (places-- > 0)
        uring->table_free[uring->table_free_count++] = places;
}

static spec_status uring_alloc(struct sc_io *io, const struct sc_io_params *params,
                               struct sc_uring **ret_uring, struct spec_error *reterr)
{
    struct sc_uring *uring = sc_alloc_zero(io->alloc, sizeof(*uring));
    if (uring == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "io_uring back end");
    uring->io = io;
    uring->owner_pid = getpid();
    uring->ring_count = params->ring_count == 0 ? RINGS_DEFAULT : params->ring_count;
    const uint64_t target =
        params->in_flight_bytes == 0 ? INFLIGHT_DEFAULT : params->in_flight_bytes;
    uring->share_bytes[SC_IO_CLASS_DEMAND] = target;
    uring->share_bytes[SC_IO_CLASS_SPECULATIVE] = target - target / 4;
    uring->share_bytes[SC_IO_CLASS_WRITER] = target / 2;
    uring->share_bytes[SC_IO_CLASS_BACKGROUND] = target / 4;
    uring->share_ops[SC_IO_CLASS_DEMAND] = INFLIGHT_OPS;
    uring->share_ops[SC_IO_CLASS_SPECULATIVE] = INFLIGHT_OPS - INFLIGHT_OPS / 4;
    uring->share_ops[SC_IO_CLASS_WRITER] = INFLIGHT_OPS / 2;
    uring->share_ops[SC_IO_CLASS_BACKGROUND] = INFLIGHT_OPS / 4;
    uint64_t slots = target / SLOT_BYTES;
    slots = slots < SLOTS_MIN ? SLOTS_MIN : (slots > SLOTS_MAX ? SLOTS_MAX : slots);
    uring->slot_count = (uint32_t)slots;
    const uint64_t files =
        params->files_reserved == 0 ? SC_IO_FILES_RESERVED : params->files_reserved;
    uring->table_count = (uint32_t)(files < FILES_MAX ? files : FILES_MAX);
    uring->rings = sc_alloc_array(io->alloc, uring->ring_count, sizeof(*uring->rings));
    uring->slots = sc_alloc_array(io->alloc, uring->ring_count * slots, sizeof(*uring->slots));
    uring->table_free = sc_alloc_array(io->alloc, uring->table_count, sizeof(*uring->table_free));
    if (uring->rings == NULL || uring->slots == NULL || uring->table_free == NULL) {
        (void)sc_fail(reterr, SPEC_E_NO_MEMORY, "io_uring back end, %u rings of %u operations",
                      (unsigned)uring->ring_count, (unsigned)uring->slot_count);
        uring_free(uring);
        return SPEC_E_NO_MEMORY;
    }
    *ret_uring = uring;
    return SPEC_OK;
}

spec_status sc_io_uring_open(struct sc_io *io, const struct sc_io_params *params,
                             struct spec_error *reterr)
{
    if (sc_exec_is_loop(io->exec))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "io_uring needs an executor with threads");
    struct sc_uring *uring = NULL;
    spec_status status = uring_alloc(io, params, &uring, reterr);
    if (status != SPEC_OK)
        return status;
    status = rings_open(uring, reterr);
    if (status != SPEC_OK)
        goto free_uring;
    const struct sc_exec_params exec = {
        .alloc = io->alloc, .thread_count = uring->ring_count, .name = "spec-io"};
    status = sc_exec_open(&exec, &uring->exec, reterr);
    if (status != SPEC_OK)
        goto close_rings;
    if (pthread_mutex_init(&uring->lock, NULL) != 0 ||
        pthread_mutex_init(&uring->table_lock, NULL) != 0) {
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "locks of the io_uring back end");
        goto close_exec;
    }
    table_open(uring);
    io->own = uring;
    io->backend = &uring_backend;
    return SPEC_OK;
close_exec:
    sc_exec_close(uring->exec);
close_rings:
    rings_close(uring, uring->ring_count);
free_uring:
    uring_free(uring);
    return status;
}
