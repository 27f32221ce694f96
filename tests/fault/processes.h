/* processes: real processes over one store, for tests that run themselves.
 *
 * "PROGRAM worker LIBRARY" is a process that obeys lines on its standard input and answers a line
 * each. The tests run in the parent, which loads no plugin.
 *
 *   open DIR ROLE RANK COUNT [MEMBERS]   status
 *   store SEED FIRST COUNT LAYERS        status of the ticket; fewer LAYERS than all: left open
 *   read SEED COUNT                      matched tokens, every row compared; or the status
 *   look SEED COUNT                      matched expiry lease; its request stays open till the next
 *   load                                 status of loading all layers of it, every row compared
 *   attach LEASE SEED COUNT              status state matched, every row compared
 *   reset, epoch, role, close            status; number; number; status
 *   fork                                 pid of a child that made one call: its status, and how
 * many descriptors it has of the store
 *
 * A program may add commands of its own (worker_main).
 *
 * Rows are a function of (rank, all tokens before, layer, K or V), so a row of another rank, prompt
 * or position is noticed: the worker answers "wrong".
 *
 * Invariants: a worker dies with its parent.
 * Threads: one in each process, beside the plugin's. */
#ifndef SC_TESTS_FAULT_PROCESSES_H
#define SC_TESTS_FAULT_PROCESSES_H

#include "abi/spec_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <cmocka.h>

#define LAYERS        4u
#define HEADS         2u
#define HEAD_SIZE     32u
#define PART_BYTES    (HEADS * HEAD_SIZE * 2u) /* K of one token and layer, f16 */
#define TOKENS_MAX    1024u
#define ROWS_WRONG    99 /* beside the statuses, which are not positive */
#define LINE_MAX      1024u
#define PROCESSES_MAX 64u
#define PATIENCE_S    600.0 /* for what comes within 100 ms on an idle machine */

uint64_t mix(uint64_t x);
double now_s(void);
uint64_t wall_ns(void);

/* ---- A worker ------------------------------------------------------------------------------- */

struct worker;

/* Obeys a line that this program has and others do not; false: unknown. It may set the answer. */
typedef bool (*worker_more)(struct worker *w, const char *line);

struct worker {
    const struct spec_api *api;
    spec_connector *conn;
    uint32_t rank;
    char dir[256];
    char weights[32]; /* of the model that is opened next; empty: all tests' */
    uint32_t tokens[TOKENS_MAX];
    uint64_t history[TOKENS_MAX];
    spec_request held;
    uint64_t held_count;
    uint8_t rows[2][TOKENS_MAX * PART_BYTES];
    char answer[LINE_MAX]; /* of the last command; empty: the command wrote its own */
    worker_more more;      /* or NULL */
};

extern struct spec_error error; /* of the worker's last call that failed */

int worker_main(const char *library, worker_more more);

/* Prompts of seeds with this bit are of one of a few families, and begin with up to three times so
 * many tokens that others of the family have too. */
#define SEED_SHARES   (UINT64_C(1) << 40)
#define FAMILIES      4u
#define COMMON_TOKENS 40u
uint64_t common_tokens(uint64_t seed);

/* The prompt of a seed, and the truth that its rows come from. */
void make_prompt(struct worker *w, uint64_t seed, uint64_t count);
void make_row(const struct worker *w, uint64_t p, uint32_t layer, uint32_t part, uint8_t *dst);

spec_status lookup(struct worker *w, uint64_t count, struct spec_lookup_result *ret_result);

/* Status of loading every layer; ROWS_WRONG: a row is wrong. */
int load_all(struct worker *w, spec_request request, uint64_t matched);

/* Stores the first layers of a range. Returns the last ticket's status if that is all of them. */
spec_status store_layers(struct worker *w, spec_request request, uint64_t first, uint64_t count,
                         uint32_t layers);

/* ---- The parent ----------------------------------------------------------------------------- */

extern const char *library_path;

struct process {
    pid_t pid;
    FILE *to, *from;
};

struct scene {
    char root[64], dir[96];
};

void scene_open(struct scene *scene);
void scene_close(struct scene *scene);

struct process start(void);

/* Starts a process that opens the store; members are more members of its configuration. */
struct process start_open(const struct scene *scene, uint32_t role, uint32_t rank, uint32_t count,
                          const char *members);

/* ask tells a line and hears the answer, which is valid until the next call. */
void tell(struct process *process, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *hear(struct process *process);
const char *ask(struct process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int64_t ask_number(struct process *process, const char *line);

/* Asks until the number is the expected one; every answer on the way is right or a number. */
void await_number(struct process *process, const char *line, int64_t expected);

void finish(struct process *process);    /* closes the store; the exit status must be 0 */
void kill_hard(struct process *process); /* SIGKILL */
int kill_leftovers(void **state);        /* teardown: ends what a failed test left */

#endif
