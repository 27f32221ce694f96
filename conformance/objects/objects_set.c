/* The set of tests of spec_objects.h, the first open before them, and a title for each clause.
 *
 * Holds: every clause that has a test has a title; numbers ascend.
 * Does not, Threads, Tests: as conformance/suite.h. */
#include "conformance/objects/objects.h"

#include <stdio.h>

static const struct conf_test *const GROUPS[] = {
    CONF_OBJECT_RULES,   CONF_OBJECT_OPEN,     CONF_OBJECT_KEYS,   CONF_OBJECT_EXISTS,
    CONF_OBJECT_SIZES,   CONF_OBJECT_TRANSFER, CONF_OBJECT_SUBMIT, CONF_OBJECT_REMOVE,
    CONF_OBJECT_REPORTS, CONF_OBJECT_EVICT,    CONF_OBJECT_DAMAGE, CONF_OBJECT_CRASH,
    CONF_OBJECT_THREADS, CONF_OBJECT_RANDOM,   CONF_OBJECT_SHARED, NULL};

const struct conf_clause CONF_OBJECT_CLAUSES[] = {
    {1, "struct_size, reserved members, errors and forked children follow spec_connector.h"},
    {2, "an object exists whole or not at all"},
    {3, "keys and domains are compared by value"},
    {4, "a get delivers the bytes that were put under that key of that domain, or fails"},
    {5, "stored objects are found by later opens, also after kill -9"},
    {6, "files take at most disk_bytes"},
    {7, "16 processes open a rank's objects, or one; a directory holds objects or rows"},
    {8, "the table of calls, or NULL for another major version"},
    {9, "what a process stores and removes, the others find and miss"},
    {10, "counts and lengths of keys outside their range are INVALID"},
    {11, "values are split into pieces of host memory of any alignment"},
    {20, "open opens the store of the configuration for objects"},
    {21, "close cancels what was submitted, ends every thread, and accepts NULL"},
    {22, "an identity has one domain; openers are counted"},
    {23, "the last domain_close cancels, and objects stay"},
    {30, "exists reports which keys are stored"},
    {31, "objects that exists held are not evicted"},
    {40, "a get writes the value's bytes into its pieces and no other memory"},
    {41, "a key that fails does not affect the others"},
    {42, "a value that fails verification is deleted"},
    {43, "a key whose put has not ended is ABSENT for a get"},
    {50, "a source that changes during its put is never delivered mixed"},
    {51, "a key is written once; followers write if the first put fails"},
    {52, "puts wait for room in the order of the calls, and evict the least recently used"},
    {53, "an object is found once its put is DONE"},
    {60, "submitted transfers are copied and complete in the background"},
    {61, "poll returns each completion once"},
    {62, "an eventfd counts completions"},
    {63, "cancel drops keys that were not handed to the device"},
    {70, "removed keys are absent at once, and after kill -9"},
    {71, "with ERASE neither keys nor values can be read from the files"},
    {72, "clear removes the objects of one domain"},
    {73, "touch marks keys as used"},
    {80, "list reports every object or domain once"},
    {81, "events report each change in order, without gaps"},
    {82, "counts of a domain and of the store add up"},
    {0, NULL}};

static spec_status open_once(bool *ret_loaded, struct spec_error *reterr)
{
    static struct objects fx;
    fx.error.struct_size = sizeof(fx.error);
    (void)snprintf(fx.rows.store, sizeof(fx.rows.store), "%s/first", conf_options.dir);
    spec_status status = objects_load(&fx, reterr);
    *ret_loaded = status == SPEC_OK;
    if (status != SPEC_OK)
        return status;
    status = objects_try_open(&fx);
    if (status == SPEC_OK)
        fx.api->close(fx.store);
    else
        *reterr = fx.error;
    return status;
}

const struct conf_set CONF_OF_OBJECTS = {.prefix = "OBJ",
                                         .groups = GROUPS,
                                         .clauses = CONF_OBJECT_CLAUSES,
                                         .extra = "\"disk_bytes\": \"256MiB\"",
                                         .setup = objects_setup,
                                         .setup_bare = objects_setup_bare,
                                         .teardown = objects_teardown,
                                         .open_once = open_once,
                                         .judged = "a library with objects by key of version",
                                         .major = SPEC_OBJECTS_MAJOR,
                                         .minor = SPEC_OBJECTS_MINOR};
