/* fixture: base of every test: a loaded connector over its own directory, prompts, and the truth.
 *
 *   prompt   tokens [count]; history[p] hashes the salt and tokens 0 .. p
 *   truth    K and V bytes as a pure function of (history[p], layer): rows of another prompt,
 *            position or layer differ, and nothing is remembered
 *   area     [guard | memory of a spec_memory | guard], poisoned; compared whole
 *
 * Invariants: a miss is always allowed, unless require_hits is set. Every delivered row is
 * compared, with all the memory around it. No code is shared with a connector, no store format is
 * known.
 * Threads: one; tests with threads use the plain functions at the end.
 * Tests: conformance/broken/ (connectors that must pass, and that must fail). */
#ifndef CONFORMANCE_FIXTURE_H
#define CONFORMANCE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "abi/spec_connector.h"
#include "abi/spec_load.h"

#define POISON 0xa5u

/* No ticket takes so long, however slow the disk is: then it never ends. */
#define CONF_WAIT_NS UINT64_C(600000000000)

/* Counted in the children, read by the parent. */
struct conf_shared {
    uint64_t hits, misses;
    int skipped;
    char reason[200];
};

/* What the command line says; set once. */
struct conf_options {
    const char *so;
    const char *extra;     /* members of the configuration beside the path, or "" */
    const char *dir;       /* every test gets a directory below it */
    const char *model_dir; /* for engine-driven tests; NULL: the models of the tree */
    bool require_hits;
    bool one_set; /* what would be sets of single heads may come whole: a device's (ABI-199) */
    uint32_t patience_s; /* how long what other processes do is awaited */
    bool in_test;        /* a test has begun, and has not returned: at its teardown, it failed */
    struct conf_shared *shared;
};
extern struct conf_options conf_options;

struct shape {
    uint32_t layers, heads, head_size, dtype;
};

struct fixture {
    struct spec_plugin plugin;
    const struct spec_api *api;
    spec_connector *conn;
    struct spec_error error;
    struct shape shape;
    struct spec_model model;
    uint32_t role, rank, rank_count; /* a writer, alone, unless set before open */
    char dir[3072];                  /* the test's own */
    char store[3200];                /* the store's directory below it */
    const char *extra; /* members of the configuration, or NULL: those of the command line */
};

/* ---- Prompts and truth ---- */

struct prompt {
    uint64_t count;
    uint64_t salt;    /* of the truth */
    uint32_t numbers; /* 0: rows are any bytes; 1 ..: numbers that can be scored (choice.h) */
    bool is_uneven;   /* numbers: n / 64 / 2^(i % 8) where positive, so ranges take more digits */
    bool is_steep;    /* numbers: n / 64 / 2^(i % 8), so channels are unlike each other */
    uint32_t *tokens;
    uint64_t *history;
};

struct prompt prompt_make(uint64_t seed, uint64_t count);
/* The first `at` tokens are those of `from`; token `at` differs; count tokens in all. */
struct prompt prompt_diverge(const struct prompt *from, uint64_t at, uint64_t count, uint64_t seed);
void prompt_salt(struct prompt *prompt, uint64_t salt); /* other truth for the same tokens */
void prompt_free(struct prompt *prompt);

uint64_t dtype_bytes(uint32_t dtype);
uint64_t head_bytes(const struct shape *shape);
uint64_t row_bytes(const struct shape *shape); /* of K alone */
/* What is stored for element i of a head: n / 64, or less; exact in every dtype. */
double truth_number(const struct prompt *prompt, uint64_t position, uint32_t layer, int value,
                    uint32_t head, uint32_t i);
/* Writes row_bytes; value 0: K, 1: V. */
void truth_row(const struct shape *shape, const struct prompt *prompt, uint64_t position,
               uint32_t layer, int value, uint8_t *dst);

/* ---- Memory ---- */

enum layout {
    LAYOUT_PACKED,      /* K [token][head][d], V likewise */
    LAYOUT_HEAD_MAJOR,  /* K [head][token][d] */
    LAYOUT_PADDED,      /* packed, gaps between heads and between tokens */
    LAYOUT_VLLM,        /* [2][block][token][head][d], slots */
    LAYOUT_VLLM_INNER,  /* [block][2][token][head][d], slots */
    LAYOUT_BLOCK_HEADS, /* [block][head]: K rows, then V rows; slots */
    LAYOUT_COLUMNS,     /* [block][head]: K columns, then V rows: vLLM's CPU attention; slots */
    LAYOUT_BLOCKS,      /* [block][token][head][d] with a gap between blocks, no slots */
    LAYOUTS
};
extern const char *const LAYOUT_NAMES[LAYOUTS];

struct area {
    uint8_t *bytes; /* [byte_count], guards included */
    uint64_t byte_count;
    uint64_t count; /* tokens */
    int64_t *slots; /* NULL: none */
    struct spec_memory memory;
    uint64_t head_size;
};

struct area area_make(const struct shape *shape, enum layout layout, uint64_t count);
void area_free(struct area *area);
void area_poison(struct area *area);
/* As LAYOUT_COLUMNS, of other blocks; tokens lie in order, without slots. */
struct area area_columns(const struct shape *shape, uint64_t count, uint64_t block_tokens);
/* The same description over other bytes, poisoned; freed by area_free but for its slots. */
struct area area_twin(const struct area *area);
/* Address of token j, head h, element i by the header's formula; without i: its first. */
uint8_t *area_element(const struct area *area, uint64_t j, uint32_t head, int value, uint64_t i);
uint8_t *area_at(const struct area *area, uint64_t j, uint32_t head, int value);
/* One head of a token into the area; whether it stands there. */
void area_put(const struct area *area, uint64_t j, uint32_t head, int value, const uint8_t *src);
bool area_has(const struct area *area, uint64_t j, uint32_t head, int value, const uint8_t *src);
/* Fills tokens [0, count) with the truth of positions first .. */
void area_fill(struct area *area, const struct shape *shape, const struct prompt *prompt,
               uint64_t first, uint32_t layer);
/* Fails unless the area is poison but for the truth of positions first .. in tokens 0 .. rows-1. */
void area_expect(const struct area *area, const struct shape *shape, const struct prompt *prompt,
                 uint64_t first, uint64_t rows, uint32_t layer);
bool area_is_right(const struct area *area, const struct shape *shape, const struct prompt *prompt,
                   uint64_t first, uint64_t rows, uint32_t layer);

/* ---- The connector ---- */

int fixture_setup(void **state);      /* loads and opens */
int fixture_setup_bare(void **state); /* loads */
int fixture_teardown(void **state);
void fixture_shape(struct fixture *fx, struct shape shape); /* before open */
/* The command line's configuration says which rows are chosen, or how they are stored. */
bool conf_says_what_is_chosen(void);
void fixture_config(const struct fixture *fx, char *text, uint64_t text_bytes);
spec_status fixture_try_open(struct fixture *fx);
void fixture_open(struct fixture *fx);
/* A model whose layers are not all alike: skips where rows are to come to a device, or the command
 * line's configuration asks for what is refused with such a model. */
void fixture_open_unlike(struct fixture *fx);
void conf_skip_unlike_on_a_device(void);
void fixture_close(struct fixture *fx);
void fixture_reopen(struct fixture *fx);
/* Another connector over the same store, of the same model, not opened yet. Closed by the caller.
 */
struct fixture fixture_beside(const struct fixture *fx, uint32_t role);
/* Closes, and opens with these members of the configuration; skips where the command line sets the
 * same keys. */
void fixture_reconfigure(struct fixture *fx, const char *extra);
/* Sleeps for a moment; false when patience is over. tries: 0 at first. Patience is time, not a
 * number of tries, each of which takes long on a slow machine; a few are made all the same. */
bool conf_wait(uint32_t *tries);
_Noreturn void conf_skip(const char *reason);
/* As fork(), after a flush of all streams. The child is killed when this process ends, also where a
 * test fails before it ends its child. Call it in the main thread. */
pid_t conf_fork(void);
void conf_remove_tree(const char *path);

#define assert_ok(fx, call)                                                                        \
    do {                                                                                           \
        spec_status status_ = (call);                                                              \
        if (status_ != SPEC_OK)                                                                    \
            fail_msg("%s: status %d: %s", #call, (int)status_, (fx)->error.text);                  \
    } while (0)
#define assert_status(call, expected)                                                              \
    do {                                                                                           \
        spec_status status_ = (call);                                                              \
        if (status_ != (expected))                                                                 \
            fail_msg("%s: status %d, expected %s", #call, (int)status_, #expected);                \
    } while (0)

struct spec_lookup_params lookup_params(const struct prompt *prompt);
/* Looks up; the result is checked for what always holds. */
struct spec_lookup_result fixture_lookup(struct fixture *fx, const struct spec_lookup_params *in);
struct spec_lookup_result fixture_find(struct fixture *fx, const struct prompt *prompt);
void fixture_release(struct fixture *fx, spec_request request);
/* Looks up again and again, for what other processes do takes a while: until at least `expected`
 * tokens are promised (if hits are not required: for a moment), or at most that many. */
struct spec_lookup_result fixture_await(struct fixture *fx, const struct prompt *prompt,
                                        uint64_t expected);
void fixture_await_gone(struct fixture *fx, const struct prompt *prompt, uint64_t at_most);
/* matched is expected, or less (a miss is allowed unless require_hits). Counts. */
void expect_match(const struct spec_lookup_result *found, uint64_t expected);

/* A stored prompt, and a request for it until it is let go. */
struct held {
    struct prompt prompt;
    struct spec_lookup_result found;
};
struct held hold(struct fixture *fx, uint64_t seed, uint64_t count);
void let_go(struct fixture *fx, struct held *held);

/* Members of a configuration: a store that a few prompts fill. */
#define FIXTURE_SMALL_STORE                                                                        \
    "\"disk_bytes\": \"8MiB\", \"segment_bytes\": \"1MiB\", \"staging_bytes\": \"16MiB\", "        \
    "\"max_requests\": 16, \"max_request_tokens\": 4096, \"lease_ns_max\": 0"

spec_status fixture_put(struct fixture *fx, spec_request request, const struct prompt *prompt,
                        uint64_t first, uint64_t count, uint32_t layer, spec_ticket *ret_ticket);
/* Stores all layers of a range and waits; true when the last ticket says OK. */
bool fixture_store_range(struct fixture *fx, spec_request request, const struct prompt *prompt,
                         uint64_t first, uint64_t count);
/* lookup, store of what is not matched, release. */
bool fixture_store(struct fixture *fx, const struct prompt *prompt);
/* The same of a store that may be full: any end of the ticket is told, and is no failure. */
bool fixture_try_store(struct fixture *fx, const struct prompt *prompt);
/* Again and again, as room comes back in the background. Hits required: it does. */
bool fixture_store_at_last(struct fixture *fx, const struct prompt *prompt);
/* How the store ended; OK for 0, an earlier layer's. */
spec_status fixture_wait(struct fixture *fx, spec_ticket ticket);

/* One layer of a match into a fresh packed area, compared. */
void fixture_check_layer(struct fixture *fx, const struct spec_lookup_result *found,
                         const struct prompt *prompt, uint64_t from, uint32_t layer);
void fixture_check_layers(struct fixture *fx, const struct spec_lookup_result *found,
                          const struct prompt *prompt, uint64_t from);
/* lookup, expect_match, all layers compared, release. */
void fixture_check(struct fixture *fx, const struct prompt *prompt, uint64_t expected);
/* Loads all layers as an engine would; returns where the match broke, or its length. Every layer
 * that is delivered is compared. */
uint64_t fixture_load_until_broken(struct fixture *fx, const struct prompt *prompt,
                                   const struct spec_lookup_result *found);
struct spec_important important(spec_request request, uint32_t layer,
                                const struct spec_memory *destination);

struct spec_stats fixture_stats(struct fixture *fx);

/* Runs in a forked child; returns waitpid's status. The child ends with 0 unless run ends it. */
int fixture_in_child(void (*run)(void *user), void *user);

/* ---- Plain functions: no assertion, any thread ---- */

/* All layers of a match, compared. NULL: all right. */
const char *request_load(const struct spec_api *api, spec_connector *conn,
                         const struct shape *shape, const struct prompt *prompt,
                         const struct spec_lookup_result *found);
/* A whole request: lookup, check every layer, store the rest, release. NULL: all right.
 *   ret_stored  the last ticket's status was SPEC_OK; may be NULL */
const char *request_run(const struct spec_api *api, spec_connector *conn, const struct shape *shape,
                        const struct prompt *prompt, bool *ret_stored);

#endif
