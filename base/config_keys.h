/* config_keys: the configuration's table, one row per key; presets (presets.c); removed keys; the
 * nearest key to an unknown one (config_near.c).
 *
 * Invariants: a row's default is an allowed value. Choices are in the order of their numbers.
 * Threads: any; constant. Tests: tests/unit/base/test_config.c */
#ifndef SC_BASE_CONFIG_KEYS_H
#define SC_BASE_CONFIG_KEYS_H

#include "base/config.h"

#include <stddef.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

#define SC_CONFIG_CHOICES_MAX (2 * SC_PRESETS) /* each preset is listed twice */

enum sc_config_kind { KIND_PATH, KIND_SIZE, KIND_INTEGER, KIND_QUARTERS, KIND_CHOICE };

/* Columns of docs/reference/config.md. */
struct sc_config_key {
    const char *path;    /* "io.backend" */
    const char *type;    /* "size", "integer", "number", "string", "choice" */
    const char *initial; /* default as text; "required": none */
    const char *allowed; /* "1 .. 64"; errors quote it */
    const char *help;
};

struct sc_config_row {
    struct sc_config_key shown;
    enum sc_config_kind kind;
    uint32_t offset;       /* offset of the member */
    uint32_t member_bytes; /* 4 or 8 */
    uint64_t min, max;
    uint64_t multiple_of; /* 0: any */
    bool is_power_of_two; /* only powers of two */
    bool has_auto;        /* accepts "auto": SC_CONFIG_AUTO, which open decides */
    const char *choices[SC_CONFIG_CHOICES_MAX]; /* KIND_CHOICE: the index is the value */
};
/* Returns row i, or NULL behind the last. */
const struct sc_config_row *sc_config_row_at(uint32_t i);
uint32_t sc_config_row_count(void);

/* Returns the defaults of a preset (enum sc_config_preset): JSON of a configuration without a
 * path. */
const char *sc_config_preset_text(uint32_t preset);

/* A key that was removed or renamed, and is refused. i = 0, 1, ... until NULL. */
struct sc_config_removed_key {
    const char *path;
    const char *advice; /* end of the error's sentence: what to write instead */
};
const struct sc_config_removed_key *sc_config_removed_key_at(uint32_t i);

/* Writes the key or object of keys nearest to an unknown path. False: none is near; near is
 * undefined. */
#define SC_CONFIG_NEAR_BYTES 48u
bool sc_config_near(const char *path, char near[SC_CONFIG_NEAR_BYTES]);

#endif
