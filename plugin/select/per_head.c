/* per_head: a set per head, from a selector with the keys of all heads. Contract: per_head.h.
 *
 *   sets, as bits            head 0: 1 4 7     head 1: 1 5 7        k rows each
 *   union                    1 4 5 7                                is read, packed
 *   destination, as read     row 0 1 2 3 = tokens 1 4 5 7
 *   each head moves down     head 0: 0 1 3     head 1: 0 2 3        ascending, so in place
 *
 * Invariants: a head gets the rows that it would get of the whole layer; request->set is the
 * union. */
#include "plugin/select/per_head.h"
#include "plugin/select/item.h"
#include "plugin/select/row_bits.h"
#include "plugin/select/scatter.h"

#include <string.h>

void sc_plugin_per_head_of(const spec_connector *conn, const uint64_t *sets,
                           struct sc_plugin_item *item)
{
    struct sc_plugin_request *request = item->request;
    uint64_t words = sc_plugin_words_of(item), heads = conn->shape.kv_head_count;
    uint64_t *any = request->bits;
    memset(any, 0, words * sizeof(*any));
    memcpy(sc_plugin_head_bits(item, 0), sets, heads * words * sizeof(*sets));
    for (uint64_t i = 0; i < heads * words; i++)
        any[i % words] |= sets[i];
    item->set_count = sc_plugin_rows_of(any, words, request->set);
    item->route = SC_ROUTE_PER_HEAD;
}

void sc_plugin_per_head_part(const spec_connector *conn, struct sc_plugin_item *item)
{
    struct sc_plugin_request *request = item->request;
    uint32_t *rows = request->readers[SC_PLUGIN_REST].rows; /* its rows were consumed */
    uint64_t heads = conn->shape.kv_head_count, count = item->row_count;
    struct sc_plugin_placing to = sc_plugin_placing_of(conn, item);
    for (uint64_t head = 0; head < heads; head++) {
        (void)sc_plugin_rows_of(sc_plugin_head_bits(item, head), sc_plugin_words_of(item), rows);
        for (uint64_t i = 0, rank = 0; i < count; i++, rank++) {
            if (item->in.positions != NULL)
                item->in.positions[head * count + i] = (uint32_t)(request->from_token + rows[i]);
            while (request->set[rank] != rows[i])
                rank++;
            rows[i] = (uint32_t)rank;
        }
        item->memory.target->compact(&to, head, rows, count);
    }
    item->in.result_flags |= SPEC_IMPORTANT_FALLBACK;
}
