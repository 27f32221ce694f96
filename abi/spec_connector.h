/* spec_connector: the contract between a serving engine and a prefix-KV plugin.
 *
 * The only installed header. An engine dlopen()s the plugin (spec_load.h does it), asks for the
 * function table with spec_connector_api(SPEC_ABI_MAJOR), and calls in the order that
 * docs/call-order.md draws:
 *
 *   open -> lookup -> { begin_layer -> get_important -> prefetch_next -> store } per layer
 *        -> wait/poll tickets -> release -> ... -> close
 *
 * Words: row = one token of one layer, K then V, all KV heads of the rank. chunk = 64 tokens on the
 * absolute token grid, over all layers. slab = a chunk's rows in one layer. piece = the rows of one
 * chunk that one pass stored. pass = one forward over some new tokens. tag = 64-bit checksum of a
 * row that also binds its identity.
 *
 * Two promises stand over all clauses. A cache may always miss; it must never lie: every row that
 * leaves was verified against its identity, and the prompt's token ids were compared by value. And
 * the plugin is a guest: it does not print, exit, or run the host's code on a thread of its own.
 *
 * History: 0.1 open close lookup begin_layer get_important prefetch_next store store_abort poll
 *          wait release stats; present and answering SPEC_E_UNSUPPORTED: stage attach next_chunk
 *          get_important_submit get_important_wait reset maintain.
 * The version stays 0.x, and may still change, until a real vLLM and the CUDA path have been driven
 * through it; 1.0 freezes it. A number's meaning never changes. */
#ifndef SPEC_CONNECTOR_H
#define SPEC_CONNECTOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPEC_ABI_MAJOR 0u /* changes when an old host must refuse us */
#define SPEC_ABI_MINOR 1u /* changes when members were appended, and nothing else moved */

#if defined(__GNUC__)
#define SPEC_EXPORT __attribute__((visibility("default")))
#else
#define SPEC_EXPORT
#endif

/* ---- Status --------------------------------------------------------------------------------- */

typedef int32_t spec_status; /* not an enum: an enum's width is the compiler's choice */

#define SPEC_OK            0    /* done; outputs are written */
#define SPEC_PENDING       1    /* not an error: ask again */
#define SPEC_E_INVALID     (-1) /* the host's argument is wrong; nothing changed */
#define SPEC_E_UNSUPPORTED (-2) /* well-formed, but this version or machine cannot */
#define SPEC_E_NO_MEMORY   (-3) /* the allocator refused */
#define SPEC_E_NO_SPACE    (-4) /* disk_bytes or the file system is full */
#define SPEC_E_IO          (-5) /* the device or file system failed; sys_errno says how */
#define SPEC_E_CORRUPT     (-6) /* bytes on disk failed verification; the range is void */
#define SPEC_E_BUSY        (-7) /* a limit of the configuration is reached; may be taken as a miss */
#define SPEC_E_TIMEOUT     (-8) /* the deadline passed first */
#define SPEC_E_DROPPED     (-9) /* a store was given up: aborted, back-pressure, or superseded */
#define SPEC_E_FORKED      (-10) /* called in a forked child */
#define SPEC_E_LOCKED      (-11) /* another writer owns the store; the text names it */
#define SPEC_E_VERSION     (-12) /* ABI or store format of another version */
#define SPEC_E_STALE       (-13) /* the request is unknown: released, reset, or never made */
#define SPEC_E_POISONED    (-14) /* an invariant of ours broke; every later call is a miss */
#define SPEC_E_CONFIG      (-15) /* the configuration is wrong; the text gives the key's path */

/* The last-error message, in the caller's memory: no race. Every call takes one as its last
 * argument and accepts NULL. It is written on error returns only, except struct_size, which the
 * caller sets to sizeof and which is never written. [ABI-003] */
struct spec_error {
    uint32_t struct_size;
    spec_status code;
    int32_t sys_errno; /* 0: none */
    char text[244];    /* UTF-8, ended by NUL, one line, for people: never parse it */
};

#ifdef __cplusplus
}
#endif
#endif /* SPEC_CONNECTOR_H */
