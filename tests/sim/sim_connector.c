/* A connector on a simulated disk: the group "sim" of its configuration.
 *
 *   configuration -> [its group "sim": what the disk is like] -> the rest, to the connector
 *
 * Holds: a text without the group reaches the connector as it is.
 * Threads: tests/sim/sim_connector.h.
 * Tests: all that include tests/unit/plugin/plugin_fixture.h */
#include "tests/sim/sim_connector.h"

#include <json-c/json.h>
#include <string.h>

#define GROUP "sim"

bool sc_sim_connector_is_meant(const char *config)
{
    return config != NULL && config[strspn(config, " \t\r\n")] == '{' &&
           strstr(config, "\"" GROUP "\"") != NULL;
}

static spec_status group_read(struct json_object *group, struct sc_io_sim_device *device,
                              struct spec_error *reterr)
{
    const struct {
        const char *key;
        uint64_t *number;
    } MEMBERS[] = {{"bytes_per_s", &device->bytes_per_s},
                   {"op_ns", &device->op_ns},
                   {"ops_per_s", &device->ops_per_s},
                   {"seed", &device->loop_seed}};
    int known = 0;
    for (size_t i = 0; i < sizeof(MEMBERS) / sizeof(MEMBERS[0]); i++) {
        struct json_object *value;
        if (!json_object_object_get_ex(group, MEMBERS[i].key, &value))
            continue;
        if (!json_object_is_type(value, json_type_int))
            return sc_fail(reterr, SPEC_E_CONFIG, "config: " GROUP ".%s: expected an integer",
                           MEMBERS[i].key);
        *MEMBERS[i].number = json_object_get_uint64(value);
        known++;
    }
    if (known != json_object_object_length(group))
        return sc_fail(reterr, SPEC_E_CONFIG,
                       "config: " GROUP ": expected bytes_per_s, op_ns, ops_per_s and seed");
    return SPEC_OK;
}

spec_status sc_sim_connector_open(const struct spec_open_params *params,
                                  struct sc_io_sim_disk *disk, spec_connector **ret_conn,
                                  struct spec_error *reterr)
{
    struct sc_io_sim_device device = {.bytes_per_s = 5000000000u, .op_ns = 80000, .loop_seed = 1};
    struct spec_open_params own = {0};
    memcpy(&own, params, params->struct_size < sizeof(own) ? params->struct_size : sizeof(own));
    struct json_object *config = NULL, *group;
    spec_status status = SPEC_OK;
    if (sc_sim_connector_is_meant(own.config))
        config = json_tokener_parse(own.config); /* NULL, no JSON: the connector says why */
    if (json_object_object_get_ex(config, GROUP, &group)) {
        status = group_read(group, &device, reterr);
        json_object_object_del(config, GROUP);
        own.config = json_object_to_json_string_ext(config, JSON_C_TO_STRING_PLAIN);
    }
    sc_io_sim_disk_device(disk, &device);
    if (status == SPEC_OK)
        status = sc_plugin_open_on(&own, sc_io_sim_custom(disk), ret_conn, reterr);
    json_object_put(config);
    return status;
}
