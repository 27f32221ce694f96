/* io_backend: what back ends share: completion, errno mapping, file size limit, the lock file's
 * line.
 * Tests: tests/unit/store/test_io.c */
#include "store/io/io_backend.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

spec_status sc_io_status_of(int sys_errno)
{
    if (sys_errno == 0)
        return SPEC_OK;
    const bool is_full = sys_errno == ENOSPC || sys_errno == EDQUOT || sys_errno == EFBIG;
    return is_full ? SPEC_E_NO_SPACE : SPEC_E_IO;
}

uint64_t sc_io_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return (uint64_t)limit.rlim_cur;
}

bool sc_io_is_aligned(const struct sc_io_file *file, const void *buffer, uint64_t offset,
                      uint64_t bytes)
{
    if ((file->flags & SC_IO_OPEN_DIRECT) == 0)
        return true;
    return (((uintptr_t)buffer | offset | bytes) & (SC_IO_PAGE_BYTES - 1)) == 0;
}

void sc_io_op_complete(struct sc_io_op *op, int sys_errno)
{
    struct sc_io *io = op->io;
    sc_fault_gate_pass(io->fault);
    if (sys_errno == 0 && sc_fault_hit(io->fault, SC_FAULT_COMPLETION))
        sys_errno = EIO;
    op->status = sys_errno == SC_IO_INVALID   ? SPEC_E_INVALID
                 : sys_errno == SC_IO_DROPPED ? SPEC_E_DROPPED
                                              : sc_io_status_of(sys_errno);
    op->sys_errno = sys_errno < 0 ? 0 : sys_errno;
    /* Before done, because done may wake a thread that closes the back end. */
    if (op->status != SPEC_OK)
        sc_io_cost_spoil(io);
    if (atomic_load_explicit(&io->cost.first_ns, memory_order_relaxed) == SC_IO_COST_AWAITED)
        sc_io_cost_first(io);
    (void)atomic_fetch_sub_explicit(&io->cost.flying_bytes, op->bytes, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&io->in_flight, 1, memory_order_acq_rel) == 1)
        sc_io_cost_idle(io);
    op->done(op);
}

/* ---- The lock's holder ---------------------------------------------------------------------- */

uint64_t sc_io_holder_format(const struct sc_io_holder *holder, char text[SC_IO_HOLDER_BYTES])
{
    char start[32] = "unknown";
    struct tm parts;
    const time_t seconds = (time_t)holder->start_s;
    if (gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(start, sizeof(start), "%Y-%m-%dT%H:%M:%SZ", &parts);
    const int bytes = snprintf(text, SC_IO_HOLDER_BYTES,
                               "{\"pid\":%" PRIu64
                               ",\"boot_id\":\"%.36s\",\"host\":\"%.64s\",\"start\":\"%s\"}\n",
                               holder->pid, holder->boot_id, holder->host, start);
    return bytes < 0 ? 0 : (uint64_t)bytes;
}

spec_status sc_io_holder_locked(const struct sc_io_file *file, const char *text, uint64_t bytes,
                                struct spec_error *reterr)
{
    char line[SC_IO_HOLDER_BYTES];
    uint64_t length = 0;
    while (length < bytes && length + 1 < sizeof(line) && text[length] >= ' ' &&
           text[length] <= '~') {
        line[length] = text[length];
        length++;
    }
    line[length] = '\0';
    unsigned long long pid = 0;
    char boot_id[37] = "", host[65] = "", start[33] = "";
    if (sscanf(line,
               "{\"pid\":%20llu,\"boot_id\":\"%36[^\"]\",\"host\":\"%64[^\"]\",\"start\":"
               "\"%32[^\"]\"}",
               &pid, boot_id, host, start) != 4)
        return sc_fail(reterr, SPEC_E_LOCKED, "locked by an unknown process: %s", file->path);
    return sc_fail(reterr, SPEC_E_LOCKED, "locked by pid %llu on host %s (boot %.8s) since %s: %s",
                   pid, host, boot_id, start, file->path);
}
