/* presets: each preset's defaults of other keys, as configurations (docs/reference/config.md). Keys
 * that the host gives win.
 *
 * Invariants: each text is one that sc_config_parse accepts, but for the path.
 * Threads: any; constant. Tests: tests/unit/base/test_config.c */
#include "base/config_keys.h"

#define JSON(...) #__VA_ARGS__

/* clang-format off */
static const char *const texts[SC_PRESETS] = {
    [SC_PRESET_RECOMPUTE] = JSON({}),
    [SC_PRESET_AS_LIKE] = JSON({}),
    [SC_PRESET_AS_H2O_LRU] = JSON({
        "load_policy": "load", "host_policy": "lru",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0, "identify": "keys"},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_AS_H2O_LFU] = JSON({
        "load_policy": "load", "host_policy": "lfu",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0, "identify": "keys"},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_SPI] = JSON({
        "load_policy": "load", "host_policy": "lru",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0, "identify": "static"},
        "prefetch": {"predictor": "static", "min_precision_ppm": 0},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_RANDOM] = JSON({
        "load_policy": "load", "host_policy": "lru",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0},
        "prefetch": {"predictor": "random", "min_precision_ppm": 0},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_IMPRESS_ITF] = JSON({
        "load_policy": "load",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_IMPRESS_ITF_RO] = JSON({
        "load_policy": "load",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0},
        "reorder": {"scope": "node", "interval_s": 600},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_IMPRESS] = JSON({
        "load_policy": "load", "host_policy": "score", "upper_bytes": "auto",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0},
        "reorder": {"scope": "node", "interval_s": 600},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_SPEC_ITF] = JSON({
        "load_policy": "load",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0},
        "prefetch": {"predictor": "layer", "min_precision_ppm": 0},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_SPEC] = JSON({
        "load_policy": "load", "host_policy": "score", "upper_bytes": "auto",
        "select": {"retain_ppm": 250000, "min_tokens": 0, "min_share_ppm": 0},
        "prefetch": {"predictor": "layer", "min_precision_ppm": 0},
        "reorder": {"scope": "node", "interval_s": 600},
        "store": {"layout": "split", "pruned": "yes"}
    }),
    [SC_PRESET_ATTENTION_STORE] = JSON({
        "load_policy": "load", "host_policy": "lru", "host_write_through": "yes",
        "upper_bytes": "auto"
    }),
    [SC_PRESET_CAKE] = JSON({"load_policy": "bidirectional", "host_policy": "lru"}),
    [SC_PRESET_HINTED] = JSON({
        "select": {"retain_ppm": 250000, "identify": "quantised"},
        "prefetch": {"predictor": "hint"}, "read": {"planner": "range"}
    }),
    [SC_PRESET_LAYERED] = JSON({
        "select": {"base": "quantised", "identify": "quantised"},
        "prefetch": {"predictor": "hint"}, "read": {"planner": "range"},
        "layered": {"bit_allocation": "per_channel", "bits_k": 3}
    }),
    [SC_PRESET_LAYERED_UNIFORM] = JSON({
        "select": {"base": "quantised", "identify": "quantised"},
        "prefetch": {"predictor": "hint"}, "read": {"planner": "range"}
    }),
    [SC_PRESET_INT8] = JSON({
        "select": {"base": "quantised", "identify": "quantised"}, "read": {"planner": "range"},
        "layered": {"bits_k": 8, "bits_v": 8, "exact_ppm": 0}
    }),
};
/* clang-format on */

const char *sc_config_preset_text(uint32_t preset)
{
    return texts[preset];
}
