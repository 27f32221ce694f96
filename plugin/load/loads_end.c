/* loads_end: ends a request's loads. Contract: loads_end.h. */
#include "plugin/load/loads_end.h"
#include "plugin/select/issue_reads.h"
#include "plugin/select/prefetch.h"
#include "plugin/select/select.h"

void sc_plugin_loads_end(spec_connector *conn, struct sc_plugin_request *request)
{
    sc_plugin_prefetch_stop(request);
    for (uint32_t i = 0; i < SC_PLUGIN_READERS; i++)
        sc_plugin_reader_drop(&request->readers[i]);
    sc_plugin_selectors_end(conn, request);
}
