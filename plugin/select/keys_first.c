/* keys_first: measures fallbacks, and compares the two orders. Contract: keys_first.h. */
#include "plugin/select/keys_first.h"
#include "plugin/select/item.h"
#include "plugin/select/per_head.h"
#include "plugin/select/scratch.h"

#define PPM 1000000u

/* Returns true if both orders are possible. A hint is scored by probe keys of the selector. */
static bool has_both_orders(const spec_connector *conn)
{
    const struct sc_config *config = &conn->config;
    return config->layout == SC_STORE_SPLIT && config->identify == SC_IDENTIFY_PROBES &&
           config->predictor != SC_PREDICTOR_HINT && !conn->choice.reads_quant &&
           conn->choice.probe_heads > 0 && conn->choice.probe_heads <= SC_PLUGIN_HEADS_TOGETHER &&
           !sc_plugin_probes_are_all(conn);
}

spec_status sc_plugin_keys_first_open(spec_connector *conn, struct spec_error *reterr)
{
    if (!has_both_orders(conn))
        return SPEC_OK;
    uint32_t layers = conn->dims.layer_count;
    conn->ahead.fallbacks = sc_alloc_array(&conn->alloc, layers, sizeof(*conn->ahead.fallbacks));
    if (conn->ahead.fallbacks == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "fallbacks of %" PRIu32 " layers", layers);
    return SPEC_OK;
}

void sc_plugin_keys_first_close(spec_connector *conn)
{
    sc_alloc_free(&conn->alloc, conn->ahead.fallbacks);
}

void sc_plugin_keys_first_learn(spec_connector *conn, uint32_t layer, bool fell_back)
{
    if (conn->ahead.fallbacks != NULL)
        sc_plugin_fallback_learn(&conn->ahead.fallbacks[layer], fell_back);
}

bool sc_plugin_keys_go_first(const spec_connector *conn, uint32_t layer,
                             const struct sc_plugin_want *want)
{
    if (conn->ahead.fallbacks == NULL || !want->is_scored)
        return false;
    /* parts per million of K */
    uint64_t probes = PPM * (uint64_t)conn->choice.probe_heads / conn->shape.kv_head_count;
    uint64_t set = PPM * want->row_count / want->row_total;
    uint64_t fallback = sc_plugin_fallback_ppm(&conn->ahead.fallbacks[layer]);
    return probes + fallback + (PPM - fallback) * set / PPM > PPM;
}
