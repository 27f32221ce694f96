/* The configuration's table: one row a key; the defaults that a preset changes (presets.c); keys
 * that were removed; the key that is nearest to an unknown one.
 *
 * Holds: a row's default is an allowed value of it; choices stand in the order of their numbers.
 * Does not: parse (config.c).
 * Threads: any; constant.
 * Tests: tests/unit/base/test_config.c */
#ifndef SC_BASE_CONFIG_KEYS_H
#define SC_BASE_CONFIG_KEYS_H

#include "base/config.h"

#include <stddef.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

#define SC_CONFIG_CHOICES_MAX (2 * SC_PRESETS) /* each preset stands twice */

enum sc_config_kind { KIND_PATH, KIND_SIZE, KIND_INTEGER, KIND_QUARTERS, KIND_CHOICE };

/* What docs/reference/config.md lists of a key. */
struct sc_config_key {
    const char *path;    /* "io.backend" */
    const char *type;    /* "size", "integer", "number", "string", "choice" */
    const char *initial; /* default as text; "required": there is none */
    const char *allowed; /* "1 .. 64"; errors quote it */
    const char *help;
};

struct sc_config_row {
    struct sc_config_key shown;
    enum sc_config_kind kind;
    uint32_t offset;       /* of the member */
    uint32_t member_bytes; /* 4 or 8 */
    uint64_t min, max;
    uint64_t multiple_of; /* 0: any */
    bool is_power_of_two; /* only powers of two */
    bool has_auto;        /* "auto" is SC_CONFIG_AUTO: what it means is decided at open */
    const char *choices[SC_CONFIG_CHOICES_MAX]; /* KIND_CHOICE: the index is the value */
};
/* i = 0, 1, ... until NULL. */
const struct sc_config_row *sc_config_row_at(uint32_t i);
uint32_t sc_config_row_count(void);

/* A preset's defaults of other keys: a JSON object, a configuration without a path. preset: enum
 * sc_config_preset. */
const char *sc_config_preset_text(uint32_t preset);

/* A key that is refused because what it configured was removed or renamed: i = 0, 1, ... until
 * NULL. */
struct sc_config_removed_key {
    const char *path;
    const char *advice; /* ends the error's sentence: what to write instead */
};
const struct sc_config_removed_key *sc_config_removed_key_at(uint32_t i);

/* Writes the known key, or the known object of keys, that is nearest to a path that is unknown.
 * False: none is near, and nothing that is written means anything. */
#define SC_CONFIG_NEAR_BYTES 48u
bool sc_config_near(const char *path, char near[SC_CONFIG_NEAR_BYTES]);

#endif
