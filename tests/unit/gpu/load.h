/* A load as the plugin will do it, in small: a host with a stream, a destination and work of its
 * own before and after; frames that somebody else fills as soon as they come back; staging that is
 * too small; three ways into the destination (copied and placed, read over the bus, copied
 * straight). Frames say themselves whether they come back once and not too soon: who gets one
 * overwrites it, and the fake ends the process where a copy of it had not run. */
#ifndef TESTS_UNIT_GPU_LOAD_H
#define TESTS_UNIT_GPU_LOAD_H

#include "gpu/pin.h"
#include "gpu/work.h"
#include "tests/unit/gpu/attached.h"

#define LOAD_FRAME_BYTES 4096u
#define LOAD_FRAMES      3u
#define LOAD_BATCHES     24u
#define LOAD_BYTES       (LOAD_FRAME_BYTES * LOAD_BATCHES)

/* The engine: what it makes itself, with calls of the driver of its own. */
struct load_host {
    struct attached attached; /* it has the primary context too */
    sc_cu_stream stream;
    sc_cu_ptr destination;   /* [LOAD_BYTES] */
    uint8_t *before, *after; /* [LOAD_BYTES], registered: what its stream writes, and reads */
    uint8_t *rows;           /* [LOAD_BYTES] what is loaded */
};

struct load_frames {
    uint8_t *memory; /* [LOAD_FRAMES * LOAD_FRAME_BYTES] */
    struct sc_gpu_pin pin;
    _Atomic uint32_t used[LOAD_FRAMES]; /* 1: somebody has it */
    _Atomic uint32_t given;             /* how many came back, ever */
    _Atomic uint32_t twice;             /* that nobody had */
    uint32_t taken;
};

void load_host_open(struct load_host *host, uint64_t seed);
void load_host_close(struct load_host *host);
/* Its stream overwrites the destination, some time. */
void load_host_work_before(struct load_host *host);
/* Its stream reads the destination; waits, and compares with what was to be loaded. */
void load_host_check(struct load_host *host);

/* Attach, pin, load by slot 0, land, unpin, detach, or as far as it goes. reads_first: the host
 * reads as soon as the load's calls have returned, when nobody of ours has waited for anything. */
spec_status load_whole(struct load_host *host, bool reads_first);

/* The middle: frames of one's own. `slot` of a device that is attached. */
spec_status load_run(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                     struct load_frames *frames, const uint8_t *rows, sc_cu_ptr destination,
                     sc_cu_stream stream);
spec_status load_frames_open(struct sc_gpu_device *device, struct load_frames *frames);
/* Everything that the slot holds lands first; then every frame has come back, once. */
void load_frames_close(struct sc_gpu_device *device, struct sc_gpu_slot *slot,
                       struct load_frames *frames);

#endif
