/* bench-verify: what verifying tags adds to a load's copy, on bytes that the device just wrote.
 *
 *   frame   1 MiB in huge pages, read with O_DIRECT before each sample (not timed)
 *   unpack  rows to the destination, in bites
 *   asked   the same, with both sides' lines prefetched as the check of tags allows
 *   both    what a load does: rows that bypass the caches are verified while they are copied;
 *           otherwise a bite's tags first, then its rows to the destination
 *
 * --backend selects whose load: its rows bypass the caches or not as that load's do. Any load pays
 * for touching the device's bytes, so time inside the tag check alone would overstate it. The cost
 * of verification is `both` minus the faster of the other two.
 * Threads: one. Tests: none (a measurement). */
#include "base/nt_copy.h"
#include "bench/bench.h"
#include "kernels/kernels.h"
#include "store/rows/tag.h"
#include "store/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_BYTES (1ull << 20)
#define FRAMES      8u /* the device's in-flight target */
#define LINE_BYTES  64u
#define AHEAD_BYTES 4096u
#define ASKED_BYTES 1024u /* at a time */

enum way { UNPACK, ASKED, BOTH, WAYS };

struct state {
    int fd;
    uint64_t file_bytes, offset;
    uint8_t *frames;
    uint8_t *dst; /* as large as what one round moves: cold again when its turn comes */
    uint64_t dst_bytes, dst_at;
    uint64_t row_bytes, heads, head_size, bite_bytes;
    uint64_t *tags;                  /* of the frames' rows */
    struct sc_kernels_memory memory; /* where the next bite goes */
    struct sc_kernels_move how;
};

static uint64_t rows_of_frame(const struct state *state)
{
    return FRAME_BYTES / state->row_bytes;
}

static uint64_t bite_rows(const struct state *state)
{
    uint64_t rows = state->bite_bytes / state->row_bytes;
    return rows > 0 ? rows : 1;
}

/* The next frames of the file, and their tags from another copy of the bytes, so that nothing of
 * the frames is in a cache of this processor's on their account. */
static void frames_read(struct state *state)
{
    static uint8_t *copy;
    if (copy == NULL)
        copy = bench_huge_memory(2 * FRAME_BYTES, 0x5a);
    for (uint32_t i = 0; i < FRAMES; i++) {
        if (state->offset + FRAME_BYTES > state->file_bytes)
            state->offset = 0;
        if (pread(state->fd, copy, FRAME_BYTES, (off_t)state->offset) != (ssize_t)FRAME_BYTES)
            bench_die("a read came short");
        uint64_t rows = rows_of_frame(state);
        for (uint64_t row = 0; row < rows; row++) {
            const struct sc_store_tag_rows one = {.base = i,
                                                  .position_first = row % bite_rows(state),
                                                  .row_bytes = state->row_bytes,
                                                  .count = 1};
            sc_store_tag_make(&one, copy + row * state->row_bytes, state->tags + i * rows + row);
        }
        state->offset += FRAME_BYTES;
    }
    state->offset -= FRAMES * FRAME_BYTES;
    for (uint32_t i = 0; i < FRAMES; i++, state->offset += FRAME_BYTES)
        if (pread(state->fd, state->frames + i * FRAME_BYTES, FRAME_BYTES, (off_t)state->offset) !=
            (ssize_t)FRAME_BYTES)
            bench_die("a read came short");
}

/* What bite_move does, but for the tags. */
static void bite_ask(const struct state *state, const uint8_t *rows, uint64_t count)
{
    uint64_t half_bytes = state->row_bytes / 2;
    for (uint64_t row = 0; row < count; row++)
        for (uint32_t part = 0; part < 2; part++, rows += half_bytes) {
            uint8_t *dst = sc_kernels_base_of(&state->memory, part) + row * half_bytes;
            for (uint64_t at = 0, now; at < half_bytes; at += now) {
                now = half_bytes - at < ASKED_BYTES ? half_bytes - at : ASKED_BYTES;
                for (uint64_t i = 0; i < now; i += LINE_BYTES)
                    __builtin_prefetch(rows + at + i + AHEAD_BYTES, 0, 3);
                sc_nt_copy(dst + at, rows + at, now);
            }
        }
    sc_nt_copy_end();
}

static void bite_move(const struct state *state, const struct sc_store_tag_rows *tagged,
                      const uint8_t *rows, const uint64_t *tags)
{
    static uint8_t *spans[SC_STORE_BITE_BYTES / LINE_BYTES];
    uint64_t span_bytes = sc_kernels_spans_bytes(&state->how);
    const struct sc_store_tag_spans to = {
        .at = spans, .bytes = span_bytes, .step = state->row_bytes / span_bytes};
    if (tagged->count * to.step > sizeof(spans) / sizeof(spans[0]))
        bench_die("%" PRIu64 " rows at once are too many", tagged->count);
    sc_kernels_rows_spans(&state->how, 0, tagged->count, spans);
    if (sc_store_tag_move(tagged, rows, tags, &to) != tagged->count)
        bench_die("a tag differs");
}

static void bite(struct state *state, uint32_t frame, uint64_t row, uint64_t count, enum way way)
{
    const uint8_t *rows = state->frames + frame * FRAME_BYTES + row * state->row_bytes;
    const uint64_t *tags = state->tags + frame * rows_of_frame(state) + row;
    uint64_t half_bytes = state->row_bytes / 2;
    const struct sc_store_tag_rows tagged = {
        .base = frame, .row_bytes = state->row_bytes, .count = count, .tag_step = 1};
    state->memory =
        (struct sc_kernels_memory){.k_base = state->dst + state->dst_at,
                                   .v_base = state->dst + state->dst_bytes / 2 + state->dst_at,
                                   .token_stride_bytes = half_bytes,
                                   .head_stride_bytes = state->head_size * 2};
    if (way != UNPACK)
        sc_kernels_rows_prefetch(&state->how, 0, count);
    for (uint64_t i = 0; way == ASKED && i < count * state->row_bytes; i += LINE_BYTES)
        __builtin_prefetch(rows + i + AHEAD_BYTES, 0, 3);
    state->dst_at += count * half_bytes;
    if (way == ASKED && state->how.streams) {
        bite_ask(state, rows, count);
        return;
    }
    if (way == BOTH && state->how.streams) {
        bite_move(state, &tagged, rows, tags);
        return;
    }
    if (way == BOTH && sc_store_tag_verify(&tagged, rows, tags) != count)
        bench_die("a tag differs");
    sc_kernels_rows_unpack(&state->how, 0, count, rows);
}

/* ns per round of `frames` frames. */
static uint64_t sample(struct state *state, uint64_t frames, enum way way)
{
    uint64_t took_ns = 0, most = bite_rows(state);
    state->dst_at = 0;
    for (uint64_t done = 0; done < frames; done += FRAMES) {
        frames_read(state);
        uint64_t start_ns = bench_now_ns();
        for (uint32_t i = 0; i < FRAMES; i++) {
            for (uint64_t row = 0; row < rows_of_frame(state);) {
                uint64_t left = rows_of_frame(state) - row, count = left < most ? left : most;
                bite(state, i, row, count, way);
                row += count;
            }
        }
        took_ns += bench_now_ns() - start_ns;
    }
    return took_ns;
}

int main(int argc, char **argv)
{
    static struct bench_series series[WAYS] = {{.name = "unpack", .unit = "byte"},
                                               {.name = "asked", .unit = "byte"},
                                               {.name = "both", .unit = "byte"}};
    static struct state state;
    const char *path = bench_option(argc, argv, "--file", "");
    bool is_pread = strcmp(bench_option(argc, argv, "--backend", "io_uring"), "pread") == 0;
    uint64_t rounds = bench_option_u64(argc, argv, "--rounds", 9);
    uint64_t frames = bench_option_u64(argc, argv, "--frames", 128) / FRAMES * FRAMES;
    state.heads = bench_option_u64(argc, argv, "--heads", 32);
    state.head_size = bench_option_u64(argc, argv, "--head-size", 128);
    state.bite_bytes = bench_option_u64(argc, argv, "--bite-bytes", SC_STORE_BITE_BYTES);
    state.row_bytes = 4 * state.heads * state.head_size;
    state.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    off_t end = state.fd >= 0 ? lseek(state.fd, 0, SEEK_END) : -1;
    if (end < (off_t)(FRAMES * FRAME_BYTES) || frames == 0 || state.row_bytes == 0 ||
        state.row_bytes > FRAME_BYTES)
        bench_die("--file %s: a file of at least 8 MiB is needed, and rows up to 1 MiB", path);
    state.file_bytes = (uint64_t)end / (FRAMES * FRAME_BYTES) * FRAMES * FRAME_BYTES;
    state.frames = bench_huge_memory(FRAMES * FRAME_BYTES, 0x5a);
    state.dst_bytes = frames * FRAME_BYTES;
    state.dst = bench_huge_memory(state.dst_bytes, 0x5a);
    state.tags = malloc(FRAMES * rows_of_frame(&state) * sizeof(*state.tags));
    if (state.tags == NULL)
        bench_die("no memory for tags");
    state.how = (struct sc_kernels_move){.kernels = sc_kernels_get(sc_kernels_level_best()),
                                         .memory = &state.memory,
                                         .head_count = state.heads,
                                         .head_size = state.head_size,
                                         .element_bytes = 2,
                                         .streams = is_pread || sc_nt_copy_is_faster()};
    for (uint64_t i = 0; i < rounds * WAYS; i++)
        bench_series_add(&series[i % WAYS], sample(&state, frames, (enum way)(i % WAYS)));
    for (uint32_t way = 0; way < WAYS; way++) {
        series[way].work = (double)(frames * rows_of_frame(&state) * state.row_bytes);
        bench_series_print(&series[way]);
    }
    free(state.frames);
    free(state.dst);
    free(state.tags);
    (void)close(state.fd);
    return 0;
}
