/* The fake CUDA driver (fake.h says what holds).
 *
 *   stream   [ WAIT | COPY | LAUNCH | RECORD | ... ]   ops; `run` of `enqueued` have run
 *   event    {stream, at}: done when that stream has run `at` ops
 *
 * An op may run when it is at the front of its stream and, a WAIT, its event is done. Who runs is a
 * matter of the policy (progress), and of who waits (run_until), which runs what that needs and no
 * more. A stream that was destroyed goes on, as a real one does.
 * All but cuGetProcAddress_v2, cuDriverGetVersion and the fake_ functions is hidden. */
#include "tests/cuda/fake/fake.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

struct CUctx_st {
    int ordinal;
    int retained;
};
struct CUfunc_st {
    const fake_kernel *kernel;
    CUmod_st *module;
};
struct CUmod_st {
    CUctx_st *context;
    std::map<std::string, CUfunc_st> functions;
};
struct CUevent_st {
    CUctx_st *context;
    CUstream_st *stream; /* null: never recorded, which counts as done */
    uint64_t at;
};

namespace
{

struct Op {
    enum Kind { COPY, LAUNCH, WAIT, RECORD } kind;
    /* COPY: rows of width bytes; a plain copy has one. */
    uint8_t *to;
    const uint8_t *from;
    size_t width, height, to_pitch, from_pitch;
    bool is_from_host, is_to_host;
    uint64_t hash;
    /* LAUNCH */
    const CUfunc_st *function;
    unsigned grid[3], block[3], shared_bytes;
    std::vector<std::vector<uint8_t>> arguments;
    /* WAIT */
    CUstream_st *stream;
    uint64_t at;
};

} // namespace

struct CUstream_st {
    CUctx_st *context;
    std::deque<Op> ops;
    uint64_t enqueued, run;
    bool is_capturing, is_running, is_destroyed, is_held;
};

namespace
{

constexpr size_t PAGE = 4096;
constexpr size_t HUGE_PAGE = size_t{2} << 20; /* opened and closed at the price of one page */
constexpr int CAPTURE_UNSUPPORTED = 900;

struct Allocation {
    size_t bytes; /* from the first page on */
    CUctx_st *context;
};

/* Leaks are asked for at the end, by a destructor: what it looks at is never destroyed. */
struct State {
    std::recursive_mutex lock;
    CUctx_st contexts[FAKE_DEVICES] = {{0, 0}, {1, 0}};
    CUstream_st null_streams[FAKE_DEVICES] = {};
    std::map<const uint8_t *, Allocation> device; /* by their first page */
    std::map<const uint8_t *, size_t> pinned;
    std::vector<std::unique_ptr<CUstream_st>> streams; /* that have, or may get work, by age */
    std::vector<std::unique_ptr<CUstream_st>> spent;   /* destroyed, idle: events name them */
    std::set<CUevent_st *> events;
    std::set<CUmod_st *> modules;
    int policy = FAKE_EAGER, version = 13000, capability = 90, devices = FAKE_DEVICES;
    uint64_t rng = 1, starve = 0, calls = 0, enqueued = 0, bytes_in = 0;
    std::string fault, missing;
    int fault_n = 0, fault_code = 0, fired = 0, sticky = 0, crash_n = 0, crash_code = 0;
    bool is_done_by_asking = true;
    const void *image = nullptr;
};

[[noreturn]] void die(const char *what)
{
    fprintf(stderr, "fake cuda: %s\n", what);
    fflush(stderr);
    _exit(FAKE_EXIT);
}

void policy_set(State *it, int policy, uint64_t seed)
{
    it->policy = policy;
    it->starve = seed;
    it->rng = seed * 2654435761u + 88172645463325252ull;
}

/* SC_FAKE_CUDA=lazy:3 is a policy and its seed, for who cannot call fake_policy. */
State *state_make()
{
    static const char *const names[] = {"eager", "lazy", "starve", "random"};
    State *it = new State;
    const char *said = getenv("SC_FAKE_CUDA");
    if (said == nullptr)
        return it;
    size_t length = strcspn(said, ":");
    for (int policy = FAKE_EAGER; policy <= FAKE_RANDOM; policy++)
        if (strlen(names[policy]) == length && strncmp(said, names[policy], length) == 0) {
            policy_set(it, policy,
                       said[length] == ':' ? strtoull(said + length + 1, nullptr, 10) : 1);
            return it;
        }
    die("SC_FAKE_CUDA is none of eager, lazy, starve, random, with :SEED");
}

State &state()
{
    static State *const it = state_make();
    return *it;
}

thread_local std::vector<CUctx_st *> current;
thread_local int capture_mode = 0; /* GLOBAL */
thread_local std::string leaks_text;

uint64_t random64()
{
    uint64_t &x = state().rng;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Device memory is open while operations run: of a copy its own, and all of it from the first
 * kernel on until the host has its turn again, since closing it costs more than most kernels. */
struct Run {
    Run()
    {
        depth++;
    }
    ~Run()
    {
        if (--depth == 0 && is_open)
            protect(PROT_NONE);
    }
    static void open()
    {
        if (!is_open)
            protect(PROT_READ | PROT_WRITE);
    }
    static void protect(int how)
    {
        is_open = how != PROT_NONE;
        for (auto &a : state().device)
            mprotect(const_cast<uint8_t *>(a.first), pages(a.second.bytes), how);
    }
    static unsigned depth;
    static bool is_open;
};
unsigned Run::depth;
bool Run::is_open;

struct OpenPiece {
    OpenPiece(bool is_host, const uint8_t *at, size_t bytes)
    {
        if (is_host || Run::is_open)
            return;
        auto p = reinterpret_cast<uintptr_t>(at);
        first = p / PAGE * PAGE;
        size_t end = first + pages(p + bytes - first);
        widen(at, &first, &end);
        all = end - first;
        protect(PROT_READ | PROT_WRITE);
    }
    ~OpenPiece()
    {
        if (all > 0)
            protect(PROT_NONE);
    }
    /* To whole huge pages, which a piece of one would split for good. */
    static void widen(const uint8_t *at, uintptr_t *first, size_t *end)
    {
        auto i = state().device.upper_bound(at);
        if (i == state().device.begin() || (--i)->second.bytes < HUGE_PAGE)
            return;
        auto from = reinterpret_cast<uintptr_t>(i->first);
        size_t most = from + pages(i->second.bytes);
        if (*end > most)
            return;
        *first = from + (*first - from) / HUGE_PAGE * HUGE_PAGE;
        *end = std::min(most, from + (*end - from + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    }
    void protect(int how)
    {
        mprotect(reinterpret_cast<void *>(first), all, how);
    }
    uintptr_t first = 0;
    size_t all = 0;
};

bool is_inside(const uint8_t *first, size_t bytes, const uint8_t *p, size_t n)
{
    return p >= first && n <= bytes && static_cast<size_t>(p - first) <= bytes - n;
}

bool is_pinned(const void *p, size_t n)
{
    auto i = state().pinned.upper_bound(static_cast<const uint8_t *>(p));
    return i != state().pinned.begin() &&
           (--i, is_inside(i->first, i->second, static_cast<const uint8_t *>(p), n));
}

const Allocation *allocation_of(sc_cu_ptr at, size_t n)
{
    auto p = reinterpret_cast<const uint8_t *>(static_cast<uintptr_t>(at));
    auto i = state().device.upper_bound(p);
    if (i == state().device.begin() || (--i, !is_inside(i->first, i->second.bytes, p, n)))
        return nullptr;
    return &i->second;
}

CUctx_st *context_now(const char *call)
{
    if (current.empty()) {
        fprintf(stderr, "%s: ", call);
        die("no context is current");
    }
    return current.back();
}

/* 0 and 1 are the legacy stream, 2 is a thread's own; here they are one a context. */
CUstream_st *stream_of(sc_cu_stream s, const char *call)
{
    if (reinterpret_cast<uintptr_t>(s) <= 2)
        return &state().null_streams[context_now(call)->ordinal];
    for (auto &known : state().streams)
        if (known.get() == s && !s->is_destroyed)
            return s;
    fprintf(stderr, "%s: ", call);
    die("a stream that does not exist");
}

CUevent_st *event_of(sc_cu_event e)
{
    if (state().events.count(e) == 0)
        die("an event that does not exist");
    return e;
}

std::vector<CUstream_st *> all_streams()
{
    std::vector<CUstream_st *> all;
    for (CUstream_st &s : state().null_streams)
        all.push_back(&s);
    for (auto &s : state().streams)
        all.push_back(s.get());
    return all;
}

/* Of whole words, each of which changes it whatever the others are. */
uint64_t source_hash(const Op &op)
{
    uint64_t h = 1469598103934665603ull, word = 0;
    for (size_t y = 0; y < op.height; y++) {
        const uint8_t *row = op.from + y * op.from_pitch;
        for (size_t x = 0; x + sizeof(word) <= op.width; x += sizeof(word)) {
            memcpy(&word, row + x, sizeof(word));
            h = (h ^ word) * 1099511628211ull;
            h ^= h >> 32;
        }
        word = 0;
        memcpy(&word, row + op.width / sizeof(word) * sizeof(word), op.width % sizeof(word));
        h = (h ^ word) * 1099511628211ull;
        h ^= h >> 32;
    }
    return h;
}

void run_copy(const Op &op)
{
    if (op.is_from_host && source_hash(op) != op.hash)
        die("the source of a host-to-device copy changed before the copy ran");
    OpenPiece to(op.is_to_host, op.to, (op.height - 1) * op.to_pitch + op.width);
    OpenPiece from(op.is_from_host, op.from, (op.height - 1) * op.from_pitch + op.width);
    for (size_t y = 0; y < op.height; y++)
        memmove(op.to + y * op.to_pitch, op.from + y * op.from_pitch, op.width);
}

void run_launch(Op &op)
{
    std::vector<void *> arguments;
    for (auto &a : op.arguments)
        arguments.push_back(a.data());
    uint64_t seed = state().policy == FAKE_EAGER ? 0 : random64() | 1;
    Run::open();
    op.function->kernel->run(arguments.data(), op.grid, op.block, op.shared_bytes, seed);
}

bool is_ready(const CUstream_st *s)
{
    if (s->ops.empty() || s->is_running || s->is_held)
        return false;
    const Op &op = s->ops.front();
    return op.kind != Op::WAIT || op.stream->run >= op.at;
}

void run_one(CUstream_st *s)
{
    Op op = std::move(s->ops.front());
    s->ops.pop_front();
    if (op.kind == Op::COPY)
        run_copy(op);
    else if (op.kind == Op::LAUNCH)
        run_launch(op);
    s->run++;
}

/* It cannot have run `at` operations before a stream that is held goes on. */
bool is_stuck(const CUstream_st *s, uint64_t at)
{
    if (s->run >= at)
        return false;
    if (s->is_held)
        return true;
    uint64_t number = s->run;
    for (const Op &op : s->ops) {
        if (number++ == at)
            return false;
        if (op.kind == Op::WAIT && is_stuck(op.stream, op.at))
            return true;
    }
    return false;
}

/* Runs what is needed for the stream to have run `at` operations, and no more. */
void run_until(CUstream_st *s, uint64_t at)
{
    if (s->run >= at)
        return;
    if (s->is_held)
        die("somebody waits for a stream that is held");
    if (s->is_running)
        die("streams wait for each other in a circle");
    s->is_running = true;
    Run run;
    while (s->run < at) {
        if (s->ops.empty())
            die("an event waits for work that was never enqueued");
        const Op &front = s->ops.front();
        if (front.kind == Op::WAIT)
            run_until(front.stream, front.at);
        run_one(s);
    }
    s->is_running = false;
}

/* The stream that starves: one of those that exist and were used. */
CUstream_st *starving()
{
    std::vector<CUstream_st *> used;
    for (CUstream_st *s : all_streams())
        if (!s->is_destroyed && s->enqueued > 0)
            used.push_back(s);
    return state().policy == FAKE_STARVE && !used.empty() ? used[state().starve % used.size()]
                                                          : nullptr;
}

/* What the policy lets run by itself. */
void progress()
{
    State &st = state();
    if (st.policy == FAKE_LAZY)
        return;
    std::vector<CUstream_st *> all = all_streams();
    const CUstream_st *starved = starving();
    Run run;
    for (;;) {
        std::vector<CUstream_st *> can;
        for (CUstream_st *s : all)
            if (s != starved && is_ready(s))
                can.push_back(s);
        if (can.empty() || (st.policy == FAKE_RANDOM && random64() % 3 == 0))
            return;
        run_one(can[st.policy == FAKE_EAGER ? 0 : random64() % can.size()]);
    }
}

bool is_capturing_anywhere()
{
    for (CUstream_st *s : all_streams())
        if (s->is_capturing)
            return true;
    return false;
}

/* A call that a capture in GLOBAL mode forbids to all threads that are not RELAXED. */
void unsafe_call(const char *call)
{
    if (capture_mode != SC_CU_CAPTURE_MODE_RELAXED && is_capturing_anywhere()) {
        fprintf(stderr, "%s: ", call);
        die("a call that breaks somebody's capture");
    }
}

int entered(const char *name, bool reaches_device)
{
    State &st = state();
    st.calls++;
    if (st.fault_n > 0 && st.fault == name && --st.fault_n == 0) {
        st.fired = 1;
        return st.fault_code;
    }
    return reaches_device ? st.sticky : 0;
}

/* What was enqueued never runs, and every call says why. */
void die_context(int code)
{
    state().sticky = code;
    for (CUstream_st *s : all_streams()) {
        s->ops.clear();
        s->run = s->enqueued;
    }
}

int enqueue(CUstream_st *s, Op op)
{
    if (s->is_capturing)
        die("work is put on a stream that is being captured");
    s->ops.push_back(std::move(op));
    s->enqueued++;
    state().enqueued++;
    if (state().crash_n > 0 && --state().crash_n == 0)
        die_context(state().crash_code);
    progress();
    return 0;
}

#define FAKE_CALL(name, reaches_device)                                                            \
    std::lock_guard<std::recursive_mutex> guard(state().lock);                                     \
    if (int refused = entered(#name, reaches_device))                                              \
    return refused
#define HOST_CALL(name) FAKE_CALL(name, false)
/* What ends something does so in any case: its code may be that of earlier work. */
#define UNDO_CALL(name)                                                                            \
    std::lock_guard<std::recursive_mutex> guard(state().lock);                                     \
    const int answer = entered(#name, true)
#define DEVICE_CALL(name) FAKE_CALL(name, true)

/* ---- The driver, devices, contexts ---------------------------------------------------------- */

sc_cu_result f_cuInit(unsigned)
{
    HOST_CALL(cuInit);
    return state().devices > 0 ? 0 : SC_CU_NO_DEVICE;
}

sc_cu_result f_cuDriverGetVersion(int *version)
{
    HOST_CALL(cuDriverGetVersion);
    *version = state().version;
    return 0;
}

sc_cu_result f_cuGetErrorName(sc_cu_result code, const char **text)
{
    HOST_CALL(cuGetErrorName);
    *text = code == SC_CU_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == SC_CU_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                          : nullptr;
    return *text != nullptr ? 0 : SC_CU_INVALID_VALUE;
}

sc_cu_result f_cuGetErrorString(sc_cu_result code, const char **text)
{
    HOST_CALL(cuGetErrorString);
    *text = code == SC_CU_OUT_OF_MEMORY   ? "out of memory"
            : code == SC_CU_LAUNCH_FAILED ? "unspecified launch failure"
                                          : nullptr;
    return *text != nullptr ? 0 : SC_CU_INVALID_VALUE;
}

sc_cu_result f_cuDeviceGetCount(int *count)
{
    HOST_CALL(cuDeviceGetCount);
    *count = state().devices;
    return 0;
}

sc_cu_result f_cuDeviceGet(sc_cu_device *device, int ordinal)
{
    HOST_CALL(cuDeviceGet);
    if (ordinal < 0 || ordinal >= state().devices)
        return SC_CU_INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

sc_cu_result f_cuDeviceGetName(char *name, int name_bytes, sc_cu_device device)
{
    HOST_CALL(cuDeviceGetName);
    snprintf(name, static_cast<size_t>(name_bytes), "fake device %d", device);
    return 0;
}

sc_cu_result f_cuDeviceGetAttribute(int *value, sc_cu_attribute attribute, sc_cu_device)
{
    HOST_CALL(cuDeviceGetAttribute);
    *value = attribute == SC_CU_CAPABILITY_MAJOR   ? state().capability / 10
             : attribute == SC_CU_CAPABILITY_MINOR ? state().capability % 10
             : attribute == SC_CU_MULTIPROCESSORS  ? 132
                                                   : 0;
    return 0;
}

sc_cu_result f_cuDevicePrimaryCtxRetain(sc_cu_context *context, sc_cu_device device)
{
    DEVICE_CALL(cuDevicePrimaryCtxRetain);
    unsafe_call("cuDevicePrimaryCtxRetain");
    *context = &state().contexts[device];
    (*context)->retained++;
    state().null_streams[device].context = *context;
    return 0;
}

sc_cu_result f_cuDevicePrimaryCtxRelease(sc_cu_device device)
{
    UNDO_CALL(cuDevicePrimaryCtxRelease);
    unsafe_call("cuDevicePrimaryCtxRelease");
    CUctx_st *context = &state().contexts[device];
    if (context->retained == 0)
        die("a primary context is released more often than retained");
    context->retained--;
    return answer;
}

sc_cu_result f_cuCtxPushCurrent(sc_cu_context context)
{
    HOST_CALL(cuCtxPushCurrent);
    if (context == nullptr || context->retained == 0)
        die("a context that does not exist becomes current");
    current.push_back(context);
    return 0;
}

sc_cu_result f_cuCtxPopCurrent(sc_cu_context *context)
{
    UNDO_CALL(cuCtxPopCurrent);
    if (current.empty())
        return SC_CU_INVALID_CONTEXT;
    if (context != nullptr)
        *context = current.back();
    current.pop_back();
    return answer;
}

sc_cu_result f_cuCtxGetCurrent(sc_cu_context *context)
{
    HOST_CALL(cuCtxGetCurrent);
    *context = current.empty() ? nullptr : current.back();
    return 0;
}

sc_cu_result f_cuCtxSynchronize(void)
{
    DEVICE_CALL(cuCtxSynchronize);
    CUctx_st *context = context_now("cuCtxSynchronize");
    for (CUstream_st *s : all_streams())
        if (s->context == context && s->is_capturing)
            return CAPTURE_UNSUPPORTED;
    unsafe_call("cuCtxSynchronize");
    for (CUstream_st *s : all_streams())
        if (s->context == context)
            run_until(s, s->enqueued);
    return 0;
}

sc_cu_result f_cuThreadExchangeStreamCaptureMode(sc_cu_capture_mode *mode)
{
    HOST_CALL(cuThreadExchangeStreamCaptureMode);
    if (*mode < 0 || *mode > SC_CU_CAPTURE_MODE_RELAXED)
        return SC_CU_INVALID_VALUE;
    std::swap(*mode, capture_mode);
    return 0;
}

/* ---- Modules -------------------------------------------------------------------------------- */

sc_cu_result load_refused(unsigned count, sc_cu_jit_option *options, void **values, int code)
{
    char *log = nullptr;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == SC_CU_JIT_ERROR_LOG_BUFFER)
            log = static_cast<char *>(values[i]);
        if (options[i] == SC_CU_JIT_ERROR_LOG_SIZE_BYTES)
            bytes = reinterpret_cast<uintptr_t>(values[i]);
    }
    if (log != nullptr)
        snprintf(log, bytes, "ptxas fatal : fake\n");
    return code;
}

sc_cu_result f_cuModuleLoadDataEx(sc_cu_module *module, const void *image, unsigned count,
                                  sc_cu_jit_option *options, void **values)
{
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    if (int code = entered("cuModuleLoadDataEx", true))
        return load_refused(count, options, values, code);
    unsafe_call("cuModuleLoadDataEx");
    CUctx_st *context = context_now("cuModuleLoadDataEx");
    for (CUstream_st *s : all_streams()) /* the real one may wait for all that the context does */
        if (s->context == context && s->is_held)
            die("kernels are loaded while a stream is held");
    uint32_t magic;
    memcpy(&magic, image, sizeof(magic));
    bool is_fatbin = magic == 0xba55ed50u, is_cubin = magic == 0x464c457fu;
    if (!is_fatbin && !is_cubin && memcmp(image, "//", 2) != 0)
        return load_refused(count, options, values, SC_CU_INVALID_IMAGE);
    state().image = image;
    *module = new CUmod_st{context, {}};
    state().modules.insert(*module);
    return 0;
}

sc_cu_result f_cuModuleUnload(sc_cu_module module)
{
    UNDO_CALL(cuModuleUnload);
    unsafe_call("cuModuleUnload");
    if (state().modules.erase(module) == 0)
        die("a module that does not exist");
    for (CUstream_st *s : all_streams())
        for (const Op &op : s->ops)
            if (op.kind == Op::LAUNCH && op.function->module == module)
                die("a module is unloaded while a kernel of it is queued");
    delete module;
    return answer;
}

void copy_run(void **arguments, const unsigned *, const unsigned *, unsigned, uint64_t)
{
    sc_cu_ptr to, from;
    uint64_t bytes;
    memcpy(&to, arguments[0], sizeof(to));
    memcpy(&from, arguments[1], sizeof(from));
    memcpy(&bytes, arguments[2], sizeof(bytes));
    if (allocation_of(to, bytes) == nullptr)
        die("fake_copy writes outside of device memory");
    auto source = reinterpret_cast<const void *>(static_cast<uintptr_t>(from));
    if (allocation_of(from, bytes) == nullptr && !is_pinned(source, bytes))
        die("fake_copy reads what is neither device memory nor registered");
    memmove(reinterpret_cast<void *>(static_cast<uintptr_t>(to)), source, bytes);
}

void fill_run(void **arguments, const unsigned *, const unsigned *, unsigned, uint64_t)
{
    sc_cu_ptr to;
    uint64_t bytes;
    uint32_t byte;
    memcpy(&to, arguments[0], sizeof(to));
    memcpy(&bytes, arguments[1], sizeof(bytes));
    memcpy(&byte, arguments[2], sizeof(byte));
    if (allocation_of(to, bytes) == nullptr)
        die("fake_fill writes outside of device memory");
    memset(reinterpret_cast<void *>(static_cast<uintptr_t>(to)), static_cast<int>(byte), bytes);
}

const size_t copy_bytes[] = {sizeof(sc_cu_ptr), sizeof(sc_cu_ptr), sizeof(uint64_t)};
const size_t fill_bytes[] = {sizeof(sc_cu_ptr), sizeof(uint64_t), sizeof(uint32_t)};
const fake_kernel own_kernels[] = {
    {"fake_copy", 1024, 3, copy_bytes, copy_run},
    {"fake_fill", 1024, 3, fill_bytes, fill_run},
};

const fake_kernel *kernel_of(const char *name)
{
    for (const fake_kernel &k : own_kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    uint32_t count = 0;
    const fake_kernel *linked =
        fake_kernels_linked != nullptr ? fake_kernels_linked(&count) : nullptr;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(linked[i].name, name) == 0)
            return &linked[i];
    return nullptr;
}

sc_cu_result f_cuModuleGetFunction(sc_cu_function *function, sc_cu_module module, const char *name)
{
    HOST_CALL(cuModuleGetFunction);
    if (state().modules.count(module) == 0)
        die("a module that does not exist");
    const fake_kernel *kernel = kernel_of(name);
    if (kernel == nullptr)
        return SC_CU_NOT_FOUND;
    module->functions[name] = CUfunc_st{kernel, module};
    *function = &module->functions[name];
    return 0;
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* nullptr: none. align  of whole pages */
uint8_t *map_pages(size_t bytes, size_t align)
{
    void *memory = mmap(nullptr, bytes + align - PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    auto at = static_cast<uint8_t *>(memory);
    uint8_t *first = at + (align - reinterpret_cast<uintptr_t>(at) % align) % align;
    uint8_t *end = first + bytes, *all_end = at + bytes + align - PAGE;
    if (first > at)
        munmap(at, static_cast<size_t>(first - at));
    if (all_end > end)
        munmap(end, static_cast<size_t>(all_end - end));
    if (align == HUGE_PAGE)
        madvise(first, bytes, MADV_HUGEPAGE); /* where there are none it is slower, no more */
    return first;
}

sc_cu_result f_cuMemAlloc(sc_cu_ptr *at, size_t bytes)
{
    DEVICE_CALL(cuMemAlloc);
    unsafe_call("cuMemAlloc");
    CUctx_st *context = context_now("cuMemAlloc");
    if (bytes == 0)
        return SC_CU_INVALID_VALUE;
    size_t all = pages(bytes);
    uint8_t *first = map_pages(all + PAGE, all >= HUGE_PAGE ? HUGE_PAGE : PAGE);
    if (first == nullptr)
        return SC_CU_OUT_OF_MEMORY;
    /* The end is near the guard page, the beginning 256-aligned as a real one. */
    uint8_t *p = first + (all - bytes) / 256 * 256;
    memset(first, FAKE_POISON, all);
    mprotect(first, all + PAGE, PROT_NONE);
    state().device[first] = Allocation{static_cast<size_t>(p + bytes - first), context};
    *at = reinterpret_cast<uintptr_t>(p);
    return 0;
}

sc_cu_result f_cuMemFree(sc_cu_ptr at)
{
    UNDO_CALL(cuMemFree);
    unsafe_call("cuMemFree");
    auto first = reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(at) / PAGE * PAGE);
    auto i = state().device.find(first);
    if (i == state().device.end())
        die("device memory that does not exist is freed");
    for (CUstream_st *s : all_streams()) /* the real one waits too */
        if (s->context == i->second.context && !state().sticky)
            run_until(s, s->enqueued);
    munmap(first, pages(i->second.bytes) + PAGE);
    state().device.erase(i);
    return answer;
}

sc_cu_result f_cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    DEVICE_CALL(cuMemHostRegister);
    unsafe_call("cuMemHostRegister");
    (void)context_now("cuMemHostRegister");
    if (bytes == 0 || at == nullptr || (flags & SC_CU_HOSTREGISTER_DEVICEMAP) == 0)
        return SC_CU_INVALID_VALUE;
    auto first = static_cast<const uint8_t *>(at);
    for (auto &p : state().pinned)
        if (first < p.first + p.second && p.first < first + bytes)
            return SC_CU_ALREADY_REGISTERED;
    state().pinned[first] = bytes;
    return 0;
}

sc_cu_result f_cuMemHostUnregister(void *at)
{
    UNDO_CALL(cuMemHostUnregister);
    unsafe_call("cuMemHostUnregister");
    auto i = state().pinned.find(static_cast<const uint8_t *>(at));
    if (i == state().pinned.end())
        return SC_CU_NOT_REGISTERED;
    const uint8_t *first = i->first;
    for (CUstream_st *s : all_streams())
        for (const Op &op : s->ops)
            if (op.kind == Op::COPY && !state().sticky &&
                ((op.is_from_host && is_inside(first, i->second, op.from, 1)) ||
                 (op.is_to_host && is_inside(first, i->second, op.to, 1))))
                die("host memory is unregistered while a copy of it is queued");
    state().pinned.erase(i);
    return answer;
}

sc_cu_result f_cuMemHostGetDevicePointer(sc_cu_ptr *device_at, void *at, unsigned)
{
    HOST_CALL(cuMemHostGetDevicePointer);
    if (!is_pinned(at, 1))
        return SC_CU_INVALID_VALUE;
    *device_at = reinterpret_cast<uintptr_t>(at);
    return 0;
}

sc_cu_result f_cuPointerGetAttribute(void *value, sc_cu_pointer_attribute attribute, sc_cu_ptr at)
{
    HOST_CALL(cuPointerGetAttribute);
    const Allocation *a = allocation_of(at, 1);
    bool is_host = is_pinned(reinterpret_cast<const void *>(static_cast<uintptr_t>(at)), 1);
    if (a == nullptr && !is_host)
        return SC_CU_INVALID_VALUE;
    unsigned kind = a != nullptr ? SC_CU_MEMORY_DEVICE : SC_CU_MEMORY_HOST;
    int ordinal = a != nullptr ? a->context->ordinal : 0;
    if (attribute == SC_CU_POINTER_MEMORY_TYPE)
        memcpy(value, &kind, sizeof(kind));
    else if (attribute == SC_CU_POINTER_ORDINAL)
        memcpy(value, &ordinal, sizeof(ordinal));
    else
        return SC_CU_INVALID_VALUE;
    return 0;
}

/* Its rows, host memory looked at row by row; 0, or the code of a refusal. */
int copy_enqueue(CUstream_st *s, Op op)
{
    op.kind = Op::COPY;
    if (op.width == 0 || op.height == 0)
        return SC_CU_INVALID_VALUE;
    for (size_t y = 0; y < op.height; y++) {
        const uint8_t *from = op.from + y * op.from_pitch, *to = op.to + y * op.to_pitch;
        if (op.is_from_host ? !is_pinned(from, op.width)
                            : !allocation_of(reinterpret_cast<uintptr_t>(from), op.width))
            die(op.is_from_host ? "an asynchronous copy from memory that is not registered"
                                : "a copy from outside of device memory");
        if (op.is_to_host ? !is_pinned(to, op.width)
                          : !allocation_of(reinterpret_cast<uintptr_t>(to), op.width))
            die(op.is_to_host ? "an asynchronous copy to memory that is not registered"
                              : "a copy to outside of device memory");
    }
    if (op.is_from_host) {
        op.hash = source_hash(op);
        state().bytes_in += op.width * op.height;
    }
    for (size_t y = 0; op.is_to_host && y < op.height; y++)
        memset(op.to + y * op.to_pitch, FAKE_POISON_H, op.width); /* who looks too early sees it */
    return enqueue(s, std::move(op));
}

sc_cu_result f_cuMemcpyHtoDAsync(sc_cu_ptr to, const void *from, size_t bytes, sc_cu_stream stream)
{
    DEVICE_CALL(cuMemcpyHtoDAsync);
    Op op = {};
    op.to = reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(to));
    op.from = static_cast<const uint8_t *>(from);
    op.width = bytes;
    op.height = 1;
    op.is_from_host = true;
    return copy_enqueue(stream_of(stream, "cuMemcpyHtoDAsync"), std::move(op));
}

sc_cu_result f_cuMemcpyDtoHAsync(void *to, sc_cu_ptr from, size_t bytes, sc_cu_stream stream)
{
    DEVICE_CALL(cuMemcpyDtoHAsync);
    Op op = {};
    op.to = static_cast<uint8_t *>(to);
    op.from = reinterpret_cast<const uint8_t *>(static_cast<uintptr_t>(from));
    op.width = bytes;
    op.height = 1;
    op.is_to_host = true;
    return copy_enqueue(stream_of(stream, "cuMemcpyDtoHAsync"), std::move(op));
}

sc_cu_result f_cuMemcpy2DAsync(const sc_cu_copy_2d *copy, sc_cu_stream stream)
{
    DEVICE_CALL(cuMemcpy2DAsync);
    if (copy->from_pitch < copy->width_bytes || copy->to_pitch < copy->width_bytes)
        return SC_CU_INVALID_VALUE;
    Op op = {};
    op.is_from_host = copy->from_kind == SC_CU_MEMORY_HOST;
    op.is_to_host = copy->to_kind == SC_CU_MEMORY_HOST;
    uintptr_t from = op.is_from_host ? reinterpret_cast<uintptr_t>(copy->from_host)
                                     : static_cast<uintptr_t>(copy->from_device);
    uintptr_t to = op.is_to_host ? reinterpret_cast<uintptr_t>(copy->to_host)
                                 : static_cast<uintptr_t>(copy->to_device);
    op.from = reinterpret_cast<const uint8_t *>(from + copy->from_y * copy->from_pitch +
                                                copy->from_x_bytes);
    op.to = reinterpret_cast<uint8_t *>(to + copy->to_y * copy->to_pitch + copy->to_x_bytes);
    op.from_pitch = copy->from_pitch;
    op.to_pitch = copy->to_pitch;
    op.width = copy->width_bytes;
    op.height = copy->height;
    return copy_enqueue(stream_of(stream, "cuMemcpy2DAsync"), std::move(op));
}

/* ---- Streams, events, launches -------------------------------------------------------------- */

void stream_make(sc_cu_stream *stream, CUctx_st *context)
{
    state().streams.emplace_back(new CUstream_st{context, {}, 0, 0, false, false, false, false});
    *stream = state().streams.back().get();
}

sc_cu_result f_cuStreamCreate(sc_cu_stream *stream, unsigned)
{
    DEVICE_CALL(cuStreamCreate);
    stream_make(stream, context_now("cuStreamCreate"));
    return 0;
}

sc_cu_result f_cuStreamCreateWithPriority(sc_cu_stream *stream, unsigned, int)
{
    DEVICE_CALL(cuStreamCreateWithPriority);
    stream_make(stream, context_now("cuStreamCreateWithPriority"));
    return 0;
}

sc_cu_result f_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    DEVICE_CALL(cuCtxGetStreamPriorityRange);
    (void)context_now("cuCtxGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return 0;
}

sc_cu_result f_cuStreamDestroy(sc_cu_stream stream)
{
    UNDO_CALL(cuStreamDestroy);
    stream_of(stream, "cuStreamDestroy")->is_destroyed = true;
    auto &all = state().streams;
    auto is_spent = [](const std::unique_ptr<CUstream_st> &s) {
        return s->is_destroyed && s->run == s->enqueued;
    };
    auto first = std::stable_partition(all.begin(), all.end(), std::not_fn(is_spent));
    std::move(first, all.end(), std::back_inserter(state().spent));
    all.erase(first, all.end());
    return answer;
}

sc_cu_result f_cuStreamWaitEvent(sc_cu_stream stream, sc_cu_event event, unsigned)
{
    DEVICE_CALL(cuStreamWaitEvent);
    CUevent_st *e = event_of(event);
    Op op = {};
    op.kind = Op::WAIT;
    op.stream = e->stream != nullptr ? e->stream : &state().null_streams[e->context->ordinal];
    op.at = e->stream != nullptr ? e->at : 0;
    return enqueue(stream_of(stream, "cuStreamWaitEvent"), std::move(op));
}

sc_cu_result f_cuStreamSynchronize(sc_cu_stream stream)
{
    DEVICE_CALL(cuStreamSynchronize);
    unsafe_call("cuStreamSynchronize");
    CUstream_st *s = stream_of(stream, "cuStreamSynchronize");
    if (s->is_capturing)
        die("a stream that is being captured is waited for");
    run_until(s, s->enqueued);
    return 0;
}

sc_cu_result f_cuStreamIsCapturing(sc_cu_stream stream, sc_cu_capture *status)
{
    DEVICE_CALL(cuStreamIsCapturing);
    *status = stream_of(stream, "cuStreamIsCapturing")->is_capturing;
    return 0;
}

sc_cu_result f_cuStreamGetCtx(sc_cu_stream stream, sc_cu_context *context)
{
    DEVICE_CALL(cuStreamGetCtx);
    *context = stream_of(stream, "cuStreamGetCtx")->context;
    return 0;
}

sc_cu_result f_cuEventCreate(sc_cu_event *event, unsigned)
{
    DEVICE_CALL(cuEventCreate);
    *event = new CUevent_st{context_now("cuEventCreate"), nullptr, 0};
    state().events.insert(*event);
    return 0;
}

sc_cu_result f_cuEventDestroy(sc_cu_event event)
{
    UNDO_CALL(cuEventDestroy);
    state().events.erase(event_of(event));
    delete event;
    return answer;
}

sc_cu_result f_cuEventRecord(sc_cu_event event, sc_cu_stream stream)
{
    DEVICE_CALL(cuEventRecord);
    CUevent_st *e = event_of(event);
    CUstream_st *s = stream_of(stream, "cuEventRecord");
    if (s->context != e->context)
        return SC_CU_INVALID_HANDLE;
    e->stream = s;
    e->at = s->enqueued + 1;
    Op op = {};
    op.kind = Op::RECORD;
    return enqueue(s, std::move(op));
}

/* Under a policy that leaves work lying, who asks often enough is answered at last. */
sc_cu_result f_cuEventQuery(sc_cu_event event)
{
    DEVICE_CALL(cuEventQuery);
    unsafe_call("cuEventQuery");
    CUevent_st *e = event_of(event);
    progress();
    if (e->stream == nullptr || e->stream->run >= e->at)
        return 0;
    if (!state().is_done_by_asking || random64() % 4 != 0 || is_stuck(e->stream, e->at))
        return SC_CU_NOT_READY;
    run_until(e->stream, e->at);
    return 0;
}

sc_cu_result f_cuEventSynchronize(sc_cu_event event)
{
    DEVICE_CALL(cuEventSynchronize);
    unsafe_call("cuEventSynchronize");
    CUevent_st *e = event_of(event);
    if (e->stream != nullptr)
        run_until(e->stream, e->at);
    return 0;
}

sc_cu_result f_cuLaunchKernel(sc_cu_function function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, sc_cu_stream stream, void **arguments, void **)
{
    DEVICE_CALL(cuLaunchKernel);
    const fake_kernel *kernel = function->kernel;
    uint64_t threads = static_cast<uint64_t>(block_x) * block_y * block_z;
    if (threads == 0 || threads > kernel->threads_max || block_z > 64 || grid_x == 0 ||
        grid_x > 0x7fffffffu || grid_y == 0 || grid_y > 65535 || grid_z == 0 || grid_z > 65535 ||
        shared_bytes > 227u << 10)
        return SC_CU_INVALID_VALUE;
    Op op = {};
    op.kind = Op::LAUNCH;
    op.function = function;
    op.grid[0] = grid_x, op.grid[1] = grid_y, op.grid[2] = grid_z;
    op.block[0] = block_x, op.block[1] = block_y, op.block[2] = block_z;
    op.shared_bytes = shared_bytes;
    for (uint32_t i = 0; i < kernel->argument_count; i++) {
        auto a = static_cast<const uint8_t *>(arguments[i]);
        op.arguments.emplace_back(a, a + kernel->argument_bytes[i]);
    }
    return enqueue(stream_of(stream, "cuLaunchKernel"), std::move(op));
}

/* ---- What hosts call beside us -------------------------------------------------------------- */

/* There is no time here: what happened took a millisecond. */
sc_cu_result f_cuEventElapsedTime(float *milliseconds, sc_cu_event first, sc_cu_event last)
{
    DEVICE_CALL(cuEventElapsedTime);
    for (CUevent_st *e : {event_of(first), event_of(last)}) {
        if (e->stream == nullptr)
            return SC_CU_INVALID_HANDLE;
        if (e->stream->run < e->at)
            return SC_CU_NOT_READY;
    }
    *milliseconds = 1;
    return 0;
}

sc_cu_result f_cuMemcpyDtoDAsync(sc_cu_ptr to, sc_cu_ptr from, size_t bytes, sc_cu_stream stream)
{
    DEVICE_CALL(cuMemcpyDtoDAsync);
    Op op = {};
    op.to = reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(to));
    op.from = reinterpret_cast<const uint8_t *>(static_cast<uintptr_t>(from));
    op.width = bytes;
    op.height = 1;
    return copy_enqueue(stream_of(stream, "cuMemcpyDtoDAsync"), std::move(op));
}

/* From the host to the device alone; never on a legacy stream. */
sc_cu_result f_cuMemcpyBatchAsync(sc_cu_ptr *to, sc_cu_ptr *from, size_t *bytes, size_t count,
                                  void *attributes, size_t *first_of, size_t attribute_count,
                                  size_t *, sc_cu_stream stream)
{
    DEVICE_CALL(cuMemcpyBatchAsync);
    if (reinterpret_cast<uintptr_t>(stream) <= 2 || count == 0 || attributes == nullptr ||
        attribute_count != 1 || first_of[0] != 0)
        return SC_CU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (sc_cu_result code = f_cuMemcpyHtoDAsync(
                to[i], reinterpret_cast<const void *>(static_cast<uintptr_t>(from[i])), bytes[i],
                stream))
            return code;
    return 0;
}

sc_cu_result f_cuStreamBeginCapture(sc_cu_stream stream, int)
{
    DEVICE_CALL(cuStreamBeginCapture);
    CUstream_st *s = stream_of(stream, "cuStreamBeginCapture");
    if (reinterpret_cast<uintptr_t>(stream) <= 1 || s->is_capturing)
        return CAPTURE_UNSUPPORTED;
    s->is_capturing = true;
    return 0;
}

sc_cu_result f_cuStreamEndCapture(sc_cu_stream stream, void **graph)
{
    DEVICE_CALL(cuStreamEndCapture);
    CUstream_st *s = stream_of(stream, "cuStreamEndCapture");
    if (!s->is_capturing)
        return SC_CU_INVALID_VALUE;
    s->is_capturing = false;
    *graph = s; /* of nothing; a handle as any */
    return 0;
}

sc_cu_result f_cuGraphDestroy(void *graph)
{
    HOST_CALL(cuGraphDestroy);
    return graph != nullptr ? 0 : SC_CU_INVALID_VALUE;
}

/* At the end of the process nothing may be left. */
__attribute__((destructor)) void report()
{
    const char *left = fake_leaks();
    if (left != nullptr) {
        fprintf(stderr, "fake cuda: left at the end: %s\n", left);
        fflush(stderr);
        _exit(FAKE_EXIT);
    }
}

} // namespace

/* ---- What is seen from outside -------------------------------------------------------------- */

extern "C" {

FAKE_API sc_cu_result cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t,
                                          int *found)
{
    static const struct {
        const char *name;
        int version;
        void *call;
    } table[] = {
#define X(name, version, arguments) {#name, version, reinterpret_cast<void *>(f_##name)},
        SC_CU_CALLS(X) X(cuStreamBeginCapture, 10010, ()) X(cuStreamEndCapture, 10000, ())
            X(cuGraphDestroy, 10000, ()) X(cuEventElapsedTime, 2000, ())
                X(cuMemcpyDtoDAsync, 3020, ()) X(cuMemcpyBatchAsync, 12080, ())
#undef X
    };
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    for (auto &t : table)
        if (strcmp(t.name, name) == 0 && t.version == version && state().missing != name) {
            *ret = t.call;
            if (found != nullptr)
                *found = 0;
            return 0;
        }
    *ret = nullptr;
    if (found != nullptr)
        *found = 1;
    return SC_CU_NOT_FOUND;
}

FAKE_API sc_cu_result cuDriverGetVersion(int *version)
{
    return f_cuDriverGetVersion(version);
}

#define FAKE_LOCK std::lock_guard<std::recursive_mutex> guard(state().lock)

void fake_policy(enum fake_policy policy, uint64_t seed)
{
    FAKE_LOCK;
    policy_set(&state(), policy, seed);
}

void fake_fault(const char *name, int n, int code)
{
    FAKE_LOCK;
    state().fault = name != nullptr ? name : "";
    state().fault_n = n;
    state().fault_code = code;
    state().fired = 0;
}

int fake_fired(void)
{
    FAKE_LOCK;
    return state().fired;
}

void fake_sticky(int code)
{
    FAKE_LOCK;
    die_context(code);
}

void fake_done_by_asking(int on)
{
    FAKE_LOCK;
    state().is_done_by_asking = on != 0;
}

void fake_crash(int n, int code)
{
    FAKE_LOCK;
    state().crash_n = n;
    state().crash_code = code;
}

void fake_capture(sc_cu_stream stream, int on)
{
    FAKE_LOCK;
    stream_of(stream, "fake_capture")->is_capturing = on != 0;
}

void fake_hold(sc_cu_stream stream, int on)
{
    FAKE_LOCK;
    stream_of(stream, "fake_hold")->is_held = on != 0;
    progress();
}

void fake_version(int version)
{
    FAKE_LOCK;
    state().version = version;
}

void fake_capability(int capability)
{
    FAKE_LOCK;
    state().capability = capability;
}

void fake_devices(int count)
{
    FAKE_LOCK;
    state().devices = count;
}

void fake_missing(const char *name)
{
    FAKE_LOCK;
    state().missing = name != nullptr ? name : "";
}

const void *fake_image(void)
{
    FAKE_LOCK;
    return state().image;
}

uint64_t fake_calls(void)
{
    FAKE_LOCK;
    return state().calls;
}

uint64_t fake_bytes_in(void)
{
    FAKE_LOCK;
    return state().bytes_in;
}

uint64_t fake_enqueued(void)
{
    FAKE_LOCK;
    return state().enqueued;
}

int fake_depth(void)
{
    return static_cast<int>(current.size());
}

int fake_mode(void)
{
    return capture_mode;
}

const char *fake_leaks(void)
{
    FAKE_LOCK;
    State &st = state();
    size_t contexts = 0, streams = 0;
    for (CUctx_st &c : st.contexts)
        contexts += static_cast<size_t>(c.retained);
    for (auto &s : st.streams)
        streams += !s->is_destroyed;
    if (contexts + streams + st.modules.size() + st.events.size() + st.device.size() +
            st.pinned.size() ==
        0)
        return nullptr;
    char text[160];
    snprintf(text, sizeof(text),
             "%zu contexts, %zu modules, %zu streams, %zu events, %zu allocations, "
             "%zu registrations",
             contexts, st.modules.size(), streams, st.events.size(), st.device.size(),
             st.pinned.size());
    leaks_text = text;
    return leaks_text.c_str();
}
}
