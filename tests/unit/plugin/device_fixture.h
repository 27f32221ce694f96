/* The host's side of a device, for tests of loads that go there: a stream of its own, and memory on
 * the fake driver's device (tests/cuda/fake/fake.h) for what an area describes in plain memory.
 *
 *   area    [guard][K rows][guard][V rows][guard]         plain
 *   there   the same bytes on the device; the area's spec_memory names those from there_make on
 *
 * Holds: the host's work is on its stream and nowhere else; what stands at the device is looked at
 * by copies on that stream alone.
 * Threads: one a host; the fake may be asked by all. */
#ifndef SC_TESTS_UNIT_PLUGIN_DEVICE_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_DEVICE_FIXTURE_H

#include "tests/unit/plugin/layered_fixture.h"

#include "gpu/library.h"
#include "tests/cuda/fake/fake.h"

struct device_host {
    const struct sc_cu *cu;
    sc_cu_device ordinal;
    sc_cu_context context;
    sc_cu_stream stream;
};

/* The primary context of that device is current, until close. */
void device_host_open(struct device_host *host, int ordinal);
void device_host_close(struct device_host *host);
/* Nothing exists of what the driver ever made. */
void device_assert_clean(const char *what);
/* device_host_close and device_assert_clean. */
void device_host_end(struct device_host *host, const char *what);
/* A call of the host's own. */
void device_ok(sc_cu_result code);

struct there {
    struct device_host *host;
    uint64_t bytes, used; /* used: the area's */
    uint8_t *pinned, *before;
    sc_cu_ptr at;
};

/* From now on the area's memory is on the device, which gets the area's bytes when the host's
 * stream comes to it. */
struct there there_make(struct device_host *host, struct area *area);
/* What was there at first is put there again, when the host's stream comes to it. */
void there_put(const struct there *there);
/* What stands there, to where the area was; by the host's stream. */
void there_read(const struct there *there, struct area *area);
bool there_is_untouched(const struct there *there, struct area *area);
void there_free(struct there *there);

/* Bytes of the host's that stand on the device, as there's do. */
struct plain_there {
    struct device_host *host;
    uint64_t bytes;
    uint8_t *before, *junk; /* pinned */
    sc_cu_ptr at;
};

struct plain_there plain_there_make(struct device_host *host, const uint8_t *from, uint64_t bytes);
/* The host's own work, behind what it has enqueued: other bytes come to stand there. */
void plain_there_spoil(const struct plain_there *there);
void plain_there_put(const struct plain_there *there);
void plain_there_free(struct plain_there *there);

/* A pass whose queries, new keys or both are on the device. */
struct pass_there {
    struct plain_there queries;
    struct there keys;
    bool has_queries, has_keys;
};
struct pass_there pass_there_make(struct device_host *host, struct pass *pass, bool queries,
                                  bool keys);
void pass_there_spoil(const struct pass_there *there);
void pass_there_free(struct pass_there *there);

#endif
