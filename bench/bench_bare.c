/* bench-bare: the least work of any load, as a contender.
 *
 * Reads a store's segments with io_uring and O_DIRECT, `depth` operations in flight. Copies them to
 * memory of the same size, past the CPU's caches if that is faster (base/nt_copy.h). Nothing is
 * verified or looked up.
 *
 *   frames  [0][1] ... [depth - 1]   huge pages; each is reused once it was copied
 *
 * Prints "bare_ns N". It adds a copy to fio's work. On a virtual disk the host copies into guest
 * memory too, so the share of fio's rate that remains depends on the machine.
 * Threads: one. Tests: none (a measurement; bench/run device --quick runs it). */
#include "base/nt_copy.h"
#include "bench/bench.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX   64u
#define AHEAD_BYTES 4096u
#define PART_BYTES  1024u /* asked for, then copied */

struct state {
    struct io_uring ring;
    struct {
        int fd;
        uint64_t bytes;
    } * files;
    uint64_t file_count, file, offset; /* the next operation's */
    uint64_t left, op_bytes;
    uint8_t *frames, *dst;
    uint64_t op_at[DEPTH_MAX]; /* in dst */
};

static void files_open(struct state *state, const char *dir)
{
    glob_t found;
    char pattern[4096];
    (void)snprintf(pattern, sizeof(pattern), "%s/seg-*", dir);
    if (glob(pattern, 0, NULL, &found) != 0)
        bench_die("--dir %s: no segments", dir);
    state->file_count = found.gl_pathc;
    state->files = calloc(found.gl_pathc, sizeof(*state->files));
    for (uint64_t i = 0; state->files != NULL && i < found.gl_pathc; i++) {
        struct stat info;
        state->files[i].fd = open(found.gl_pathv[i], O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (state->files[i].fd < 0 || fstat(state->files[i].fd, &info) != 0)
            bench_die("%s cannot be opened", found.gl_pathv[i]);
        state->files[i].bytes = (uint64_t)info.st_size;
    }
    globfree(&found);
}

/* False: nothing is left to be read. */
static bool op_begin(struct state *state, uint32_t i, uint64_t *at)
{
    if (state->left < state->op_bytes)
        return false;
    while (state->file < state->file_count &&
           state->offset + state->op_bytes > state->files[state->file].bytes) {
        state->file++;
        state->offset = 0;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&state->ring);
    if (state->file == state->file_count || sqe == NULL)
        bench_die("%" PRIu64 " bytes are missing", state->left);
    io_uring_prep_read(sqe, state->files[state->file].fd, state->frames + i * state->op_bytes,
                       (unsigned)state->op_bytes, state->offset);
    sqe->user_data = i;
    state->op_at[i] = *at;
    *at += state->op_bytes;
    state->offset += state->op_bytes;
    state->left -= state->op_bytes;
    return true;
}

static void copy_out(const struct state *state, uint32_t i)
{
    const uint8_t *src = state->frames + i * state->op_bytes;
    uint8_t *dst = state->dst + state->op_at[i];
    if (!sc_nt_copy_is_faster()) {
        memcpy(dst, src, state->op_bytes);
        return;
    }
    for (uint64_t at = 0; at < state->op_bytes; at += PART_BYTES) {
        for (uint64_t line = 0; line < PART_BYTES; line += 64)
            __builtin_prefetch(src + at + line + AHEAD_BYTES, 0, 3);
        sc_nt_copy(dst + at, src + at, PART_BYTES);
    }
    sc_nt_copy_end();
}

static uint64_t run(struct state *state, uint32_t depth)
{
    uint64_t start_ns = bench_now_ns(), at = 0;
    uint32_t flying = 0;
    for (uint32_t i = 0; i < depth; i++)
        flying += op_begin(state, i, &at);
    while (flying > 0) {
        struct io_uring_cqe *cqe = NULL;
        int submitted = io_uring_submit(&state->ring);
        if (submitted < 0 || io_uring_wait_cqe(&state->ring, &cqe) != 0)
            bench_die("io_uring failed");
        uint32_t i = (uint32_t)cqe->user_data;
        if (cqe->res != (int)state->op_bytes)
            bench_die("a read came short: %d", cqe->res);
        io_uring_cqe_seen(&state->ring, cqe);
        copy_out(state, i);
        if (!op_begin(state, i, &at))
            flying--;
    }
    return bench_now_ns() - start_ns;
}

int main(int argc, char **argv)
{
    static struct state state;
    const char *dir = bench_option(argc, argv, "--dir", "");
    uint64_t bytes = bench_option_u64(argc, argv, "--bytes", 0);
    uint64_t depth = bench_option_u64(argc, argv, "--depth", 8);
    state.op_bytes = bench_option_u64(argc, argv, "--op-bytes", 1 << 20) / 4096 * 4096;
    state.left = bytes;
    if (state.op_bytes == 0 || bytes < state.op_bytes || depth == 0 || depth > DEPTH_MAX)
        bench_die("--bytes is at least --op-bytes, which is at least 4096; --depth 1 to %u",
                  DEPTH_MAX);
    files_open(&state, dir);
    if (io_uring_queue_init(DEPTH_MAX, &state.ring, 0) != 0)
        bench_die("no io_uring");
    state.frames = bench_huge_memory(depth * state.op_bytes, 0x5a);
    state.dst = bench_huge_memory(bytes, 0x5a);
    printf("bare_ns %" PRIu64 "\n", run(&state, (uint32_t)depth));
    io_uring_queue_exit(&state.ring);
    for (uint64_t i = 0; i < state.file_count; i++)
        (void)close(state.files[i].fd);
    free(state.files);
    free(state.frames);
    free(state.dst);
    return 0;
}
