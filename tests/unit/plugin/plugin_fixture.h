/* A connector under test, linked statically, and the truth about its rows.
 *
 *   prompt   tokens[p]; history[p] hashes tokens 0 .. p
 *   truth    a row is a function of (history[p], layer, K or V): any row can be made again
 *   disk     the simulated one, which outlives the connector, or a directory of its own
 *
 * Holds: rows that are delivered are compared, with guard bytes around them; rig_done asserts that
 * the host got all its memory back.
 * Threads: calls with a prompt and a request of their own: any. The rest: one. */
#ifndef SC_TESTS_UNIT_PLUGIN_PLUGIN_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_PLUGIN_FIXTURE_H

#include "plugin/args/dtype_table.h"
#include "plugin/args/handle.h"
#include "plugin/connector.h"
#include "plugin/request/requests.h"
#include "tests/sim/radix_check.h"
#include "tests/sim/sim_connector.h"
#include "tests/sim/sim_memory.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RIG_GUARD 64u
#define RIG_MAX   UINT64_MAX /* lookup: the match may be the whole prompt */

struct rig_memory { /* the host's allocator: counts, and fails the n-th */
    _Atomic uint64_t live_blocks, live_bytes;
    _Atomic int64_t countdown; /* < 0: none fails */
    _Atomic uint64_t failed;
};

struct rig_rope { /* as struct spec_model has it */
    uint32_t kind;
    double theta, scaling[8];
    const char *scaling_kind;
};

struct rig {
    bool is_sim;
    uint32_t layers, heads, head_size, dtype;
    uint32_t query_group;            /* query heads of a KV head; 0: one */
    struct rig_rope rope;            /* of the model; 0: none */
    const char *extra;               /* members of the configuration beside path and back end */
    const char *backend;             /* not sim: NULL is pread */
    const char *stage;               /* staging_bytes; NULL: 16MiB */
    const char *op;                  /* io.op_bytes; NULL: 1MiB */
    uint32_t role, rank, rank_count; /* of open; 0: the default */
    struct rig_memory memory;
    struct sc_alloc disk_alloc;
    struct sc_io_sim_disk *disk;
    char dir[64], path[96], config[1600];
    spec_connector *conn;
    struct spec_error error;
};

struct prompt {
    uint64_t count;
    uint32_t *tokens;
    uint64_t *history;
};

/* ---- Prompts and rows ----------------------------------------------------------------------- */

static inline uint64_t rig_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* The first `shared` tokens depend on seed alone, the others on seed and branch. */
struct prompt rig_prompt(uint64_t seed, uint64_t shared, uint64_t branch, uint64_t count);

void rig_prompt_free(struct prompt *prompt);

/* Frees `count` prompts of an array; those that are named one by one. */
void rig_prompts_free_all(struct prompt *prompts, uint64_t count);
void rig_prompts_free_named(struct prompt *const *prompts, uint64_t count);
#define rig_prompts_free(...)                                                                      \
    rig_prompts_free_named((struct prompt *const[]){__VA_ARGS__},                                  \
                           sizeof((struct prompt *const[]){__VA_ARGS__}) /                         \
                               sizeof(struct prompt *))

uint64_t rig_part_bytes(const struct rig *rig); /* K of one token and layer */

void rig_row(const struct rig *rig, const struct prompt *prompt, uint64_t position, uint32_t layer,
             uint32_t part, uint8_t *dst);

/* ---- Memory that is described: [guard][K rows][guard][V rows][guard] ------------------------ */

struct area {
    uint8_t *bytes;
    uint64_t part_bytes, count;
    struct spec_memory memory;
};

struct area rig_area(const struct rig *rig, uint64_t count);
void rig_area_free(struct area *area);
bool rig_is_poison(const uint8_t *bytes, uint64_t count);

/* Writes rows [first, first + count) of the prompt to the area's front. */
void rig_area_fill(const struct rig *rig, const struct area *area, const struct prompt *prompt,
                   uint64_t first, uint64_t count, uint32_t layer);

/* Rows [first, first + rows) of the prompt stand at the area's front, and nothing else was
 * written. */
bool rig_area_is_right(const struct rig *rig, const struct area *area, const struct prompt *prompt,
                       uint64_t first, uint64_t rows, uint32_t layer);

/* ---- Opening and closing -------------------------------------------------------------------- */

void *rig_alloc(uint64_t bytes, uint64_t align_bytes, void *user);
void rig_free(void *block, uint64_t bytes, void *user);
struct spec_model rig_model(const struct rig *rig);
spec_status rig_try_open_model(struct rig *rig, const struct spec_model *model);
spec_status rig_try_open(struct rig *rig);
void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
void rig_reopen(struct rig *rig);
void rig_shape(struct rig *rig, uint32_t layers, uint32_t heads, uint32_t head_size,
               uint32_t dtype);

/* Without opening: three layers of two heads of eight 16-bit values. */
void rig_init(struct rig *rig, bool is_sim, const char *extra);

void rig_done(struct rig *rig);

/* rig_init and rig_open; with rig_shape between them. */
void rig_begin(struct rig *rig, bool is_sim, const char *extra);
void rig_begin_shape(struct rig *rig, bool is_sim, const char *extra, uint32_t layers,
                     uint32_t heads, uint32_t head_size, uint32_t dtype);

/* Frees the prompts, so that nothing is read of them any more, then rig_done. */
#define rig_end(rig, ...)                                                                          \
    do {                                                                                           \
        rig_prompts_free(__VA_ARGS__);                                                             \
        rig_done(rig);                                                                             \
    } while (0)

/* Another process's connector to the same store (here: another connector of this process). */
void rig_beside(struct rig *rig, const struct rig *first, uint32_t role, uint32_t rank);

/* rig_beside and rig_open. */
void rig_open_beside(struct rig *rig, const struct rig *first, uint32_t role, uint32_t rank);

/* A rig made by rig_beside; its store goes with the first one. */
void rig_leave(struct rig *rig);

/* Lets time pass: virtual, with all that is due in it; or real. */
void rig_pass_ns(struct rig *rig, uint64_t ns);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* A layer's item without any choice, and what store is told of rows in memory. */
struct spec_important rig_item(spec_request request, uint32_t layer,
                               const struct spec_memory *destination);
struct spec_store_params rig_store_params(spec_request request, uint32_t layer, uint64_t first,
                                          uint64_t count, const struct spec_memory *memory);

struct sc_store_stats rig_store_stats(const struct rig *rig);

/* What a lookup of the prompt is told; max_tokens: also RIG_MAX. */
struct spec_lookup_params rig_lookup_params(const struct prompt *prompt, uint64_t from_token,
                                            uint64_t max_tokens, uint32_t flags);

/* Lookups that have to succeed; rig_peeked has no request. */
struct spec_lookup_result rig_lookup_as(struct rig *rig, const struct spec_lookup_params *params);
struct spec_lookup_result rig_lookup_from(struct rig *rig, const struct prompt *prompt,
                                          uint64_t from_token);
struct spec_lookup_result rig_peeked(struct rig *rig, const struct prompt *prompt,
                                     uint64_t from_token);

spec_status rig_attach(struct rig *rig, const uint8_t lease[64], uint64_t from_token,
                       struct spec_lookup_result *ret_result);
spec_status rig_maintain(struct rig *rig, uint32_t flags);

/* The error is in rig->error. rig_stage has to succeed. */
spec_status rig_try_stage(struct rig *rig, spec_request request, uint64_t deadline_ns,
                          spec_ticket *ret_ticket);
spec_ticket rig_stage(struct rig *rig, spec_request request, uint64_t deadline_ns);

spec_status rig_try_lookup(struct rig *rig, const struct prompt *prompt, uint64_t from_token,
                           uint64_t max_tokens, struct spec_lookup_result *ret_result);

/* A lookup without a request. */
spec_status rig_peek(struct rig *rig, const struct prompt *prompt, uint64_t from_token,
                     struct spec_lookup_result *ret_result);

struct spec_lookup_result rig_lookup(struct rig *rig, const struct prompt *prompt);
void rig_release(struct rig *rig, spec_request request);

/* How many tokens a lookup promises; its request is released. */
uint64_t rig_matched(struct rig *rig, const struct prompt *prompt);

spec_status rig_store_layer(struct rig *rig, spec_request request, const struct prompt *prompt,
                            uint64_t first, uint64_t count, uint32_t layer,
                            spec_ticket *ret_ticket);

/* How the store ended; OK for 0, an earlier layer's. */
spec_status rig_wait(struct rig *rig, spec_ticket ticket);

/* One pass over all layers; returns the last layer's ticket. */
spec_ticket rig_store(struct rig *rig, spec_request request, const struct prompt *prompt,
                      uint64_t first, uint64_t count);

/* Delivers one layer; SPEC_OK asserts that the rows are right. */
spec_status rig_load(struct rig *rig, spec_request request, const struct prompt *prompt,
                     uint64_t from_token, uint64_t matched, uint32_t layer);

/* Delivers every layer, right. */
void rig_load_all(struct rig *rig, spec_request request, const struct prompt *prompt,
                  uint64_t from_token, uint64_t matched);

/* Submits the items and waits for them, without an error; returns their ticket. */
spec_ticket rig_submit_whole(struct rig *rig, struct spec_important *items, uint64_t count);

/* Loads every layer of a fresh lookup; returns the matched tokens, all right, or UINT64_MAX when a
 * layer said that it cannot (status in ret_status). */
uint64_t rig_read(struct rig *rig, const struct prompt *prompt, spec_status *ret_status);

/* Until no save is in flight. */
void rig_settle(struct rig *rig);

/* Settles; then whether every save, and every sharer of one, is free again. */
bool rig_saves_are_free(struct rig *rig);

/* No selector is begun any more. Waits until what flew into their memory has ended. */
void rig_landed(struct rig *rig);

/* The connector's own thread may still be clearing what a reset left, a few runs at a time. */
void rig_check_index(struct rig *rig);

/* Until no job waits or runs. */
void rig_background(struct rig *rig);

/* Stores the first `count` tokens again, whatever lookup promises. */
void rig_store_all(struct rig *rig, const struct prompt *prompt, uint64_t count);

/* Until nothing is coded any more, and all of it is in the log. */
void rig_wait_for_quant(struct rig *rig);

/* Asks for some space, as a pass does that found none. */
void rig_press(struct rig *rig);

/* Stores what lookup does not promise, as an engine does; returns the ticket's status. */
spec_status rig_fill(struct rig *rig, const struct prompt *prompt);

#endif
