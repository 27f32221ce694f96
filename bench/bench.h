/* bench: timed rounds of benchmark programs, printed as JSON lines that bench/run reads.
 *
 * Raw samples are printed, never means: bench/run computes medians, minima and maxima.
 * Threads: one. Tests: none of its own; bench/run engine and bench/run ttft run it */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "abi/spec_connector.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_ROUNDS_MAX 10000u

struct bench_series {
    const char *name; /* "engine prefill" */
    const char *unit; /* of `work`: "flop", "byte", "request" */
    double work;      /* done in each round */
    uint64_t rounds;
    uint64_t ns[BENCH_ROUNDS_MAX];
};

/* CLOCK_MONOTONIC. */
uint64_t bench_now_ns(void);
void bench_series_add(struct bench_series *series, uint64_t ns);
/* {"name": …, "unit": …, "work": …, "ns": […]} on standard output. */
void bench_series_print(const struct bench_series *series);
/* Prints "NAME: text" on standard error and ends the program with status 1. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the program so, with the error's text, if what was asked of a connector did not go well. */
void bench_must(spec_status status, const struct spec_error *error, const char *what);
/* Runs a command that prints "WORD NUMBER" on a line of its own, and returns the number. */
uint64_t bench_command_ns(const char *command, const char *word);
/* splitmix64: the same numbers in every run. */
uint64_t bench_mix(uint64_t x);
/* The numbers below count in an order by lot: who goes first varies. *turn: 0 at first; each order
 * is another. */
void bench_shuffle(uint32_t *ret_order, uint32_t count, uint64_t *turn);
/* Memory in huge pages, if the kernel gives them, or in small ones; `bytes` of it are filled, so
 * that its pages are there; ended by free. */
void *bench_memory(uint64_t bytes, bool is_huge, int fill);
void *bench_huge_memory(uint64_t bytes, int fill);
/* Of the last cache, as the first core sees it: 32 MiB where nothing says so, 256 MiB at most. */
uint64_t bench_cache_bytes(void);
/* The value behind --name, or fallback; numbers are checked. */
const char *bench_option(int argc, char **argv, const char *name, const char *fallback);
uint64_t bench_option_u64(int argc, char **argv, const char *name, uint64_t fallback);

#endif
