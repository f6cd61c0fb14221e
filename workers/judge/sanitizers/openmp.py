"""An OpenMP runtime whose synchronisation ThreadSanitizer sees: C++ source, linked in the place of libgomp.

libgomp is built without the sanitizer and waits by futexes, so each fork and join of a parallel region looks like a
race. This one is threads, mutexes and barriers of pthreads, which the sanitizer knows. It is for finding races and not
for speed: iterations of a loop are dealt round in turns, chunk by chunk, whatever its schedule, so that neighbours
always belong to different threads and nothing that hands them out puts an order between them; of a `single`, too, it
is known which thread has it. A barrier, `critical` of one name, a lock and `atomic` order what OpenMP says they order.
What lies a multiple of the team's size apart belongs to one thread, so a program is run with teams of `TEAMS`.

What is not here (tasks, `ordered`, scans, loops over unsigned 64-bit numbers, offloading) fails to link by its name.
Source: GCC's libgomp ABI ("The libgomp ABI", GNU Offloading and Multi Processing Runtime Library manual).
"""

from __future__ import annotations

TEAMS = (4, 3)
"""Threads of a region that asks for no number of its own, run by run: by OMP_NUM_THREADS."""

SOURCE = r"""
#include <pthread.h>
#include <atomic>
#include <cstdlib>
#include <vector>
namespace {
using Body = void (*)(void*);
struct Team { int size; pthread_barrier_t barrier; Body body; void* data; void* copied; };
struct Place { Team* team; int number; long at, end, step, chunk; unsigned singles; };
struct Start { Team* team; int number; long first, end, step, chunk; };
Team alone = {1, {}, nullptr, nullptr, nullptr};
thread_local Place here = {&alone, 0, 0, 0, 1, 1, 0};
int asked_for() {
    const char* text = std::getenv("OMP_NUM_THREADS");
    const int number = text ? std::atoi(text) : 0;
    return number > 0 ? number : 1;
}
int most = asked_for();
pthread_mutex_t unnamed = PTHREAD_MUTEX_INITIALIZER, atomic = PTHREAD_MUTEX_INITIALIZER;
// A mutex for each name and each lock, found by its address. The flag is no order that the sanitizer sees.
struct Named { const void* name; pthread_mutex_t mutex; };
Named mutexes[4096];
std::atomic_flag looking = ATOMIC_FLAG_INIT;
pthread_mutex_t* mutex_of(const void* name) {
    while (looking.test_and_set(std::memory_order_acquire)) {}
    size_t at = 0;
    while (at < 4096 && mutexes[at].name != nullptr && mutexes[at].name != name) at++;
    if (at == 4096) std::abort();
    mutexes[at].name = name;  // its mutex is all zeros, as an initialized one is: to initialize it here would be a race
    looking.clear(std::memory_order_release);
    return &mutexes[at].mutex;
}
void deal(long first, long end, long step, long chunk) {
    here.chunk = chunk < 1 ? 1 : chunk;
    here.at = first + here.number * here.chunk * step;
    here.end = end;
    here.step = step;
}
bool dealt(long* first, long* last) {
    const long from = here.at;
    if (here.step > 0 ? from >= here.end : from <= here.end) return false;
    const long to = from + here.chunk * here.step;
    *first = from;
    *last = (here.step > 0 ? to > here.end : to < here.end) ? here.end : to;
    here.at = from + here.team->size * here.chunk * here.step;
    return true;
}
void work(const Start& start) {
    const Place before = here;
    here = {start.team, start.number, 0, 0, 1, 1, 0};
    deal(start.first, start.end, start.step, start.chunk);
    start.team->body(start.team->data);
    here = before;
}
void* thread(void* start) { work(*static_cast<Start*>(start)); return nullptr; }
void fork(Body body, void* data, unsigned asked, long first, long end, long step, long chunk) {
    const int size = here.team->size > 1 ? 1 : asked == 0 ? most : asked > 64 ? 64 : static_cast<int>(asked);
    Team team = {size, {}, body, data, nullptr};
    pthread_barrier_init(&team.barrier, nullptr, size);
    std::vector<Start> starts;
    for (int number = 0; number < size; number++) starts.push_back({&team, number, first, end, step, chunk});
    std::vector<pthread_t> threads(size);
    for (int number = 1; number < size; number++)
        if (pthread_create(&threads[number], nullptr, thread, &starts[number]) != 0) std::abort();
    work(starts[0]);
    for (int number = 1; number < size; number++) pthread_join(threads[number], nullptr);
    pthread_barrier_destroy(&team.barrier);
}
}
#define LOOP_NEXT(KIND) bool GOMP_loop_##KIND##_next(long* a, long* b) { return dealt(a, b); }
#define LOOP(KIND) \
    void GOMP_parallel_loop_##KIND(Body f, void* d, unsigned n, long s, long e, long i, long c, unsigned) { \
        fork(f, d, n, s, e, i, c); \
    } \
    bool GOMP_loop_##KIND##_start(long s, long e, long i, long c, long* a, long* b) { \
        deal(s, e, i, c); \
        return dealt(a, b); \
    } \
    LOOP_NEXT(KIND)
#define LOOP_OF_RUNTIME(KIND) \
    void GOMP_parallel_loop_##KIND(Body f, void* d, unsigned n, long s, long e, long i, unsigned) { \
        fork(f, d, n, s, e, i, 1); \
    } \
    bool GOMP_loop_##KIND##_start(long s, long e, long i, long* a, long* b) { \
        deal(s, e, i, 1); \
        return dealt(a, b); \
    } \
    LOOP_NEXT(KIND)
extern "C" {
LOOP(static)
LOOP(dynamic)
LOOP(guided)
LOOP(nonmonotonic_dynamic)
LOOP(nonmonotonic_guided)
LOOP_OF_RUNTIME(runtime)
LOOP_OF_RUNTIME(nonmonotonic_runtime)
LOOP_OF_RUNTIME(maybe_nonmonotonic_runtime)
void GOMP_parallel(Body f, void* d, unsigned n, unsigned) { fork(f, d, n, 0, 0, 1, 1); }
void GOMP_barrier() { if (here.team->size > 1) pthread_barrier_wait(&here.team->barrier); }
void GOMP_loop_end_nowait() {}
void GOMP_loop_end() { GOMP_barrier(); }
void GOMP_parallel_sections(Body f, void* d, unsigned n, unsigned count, unsigned) {
    fork(f, d, n, 1, static_cast<long>(count) + 1, 1, 1);
}
unsigned GOMP_sections_next() {
    long first, last;
    return dealt(&first, &last) ? static_cast<unsigned>(first) : 0;
}
unsigned GOMP_sections_start(unsigned count) {
    deal(1, static_cast<long>(count) + 1, 1, 1);
    return GOMP_sections_next();
}
void GOMP_sections_end_nowait() {}
void GOMP_sections_end() { GOMP_barrier(); }
bool GOMP_single_start() { return static_cast<int>(here.singles++ % here.team->size) == here.number; }
void* GOMP_single_copy_start() {
    if (GOMP_single_start()) return nullptr;
    GOMP_barrier();
    return here.team->copied;
}
void GOMP_single_copy_end(void* copied) {
    here.team->copied = copied;
    GOMP_barrier();
}
void GOMP_critical_start() { pthread_mutex_lock(&unnamed); }
void GOMP_critical_end() { pthread_mutex_unlock(&unnamed); }
void GOMP_critical_name_start(void** name) { pthread_mutex_lock(mutex_of(name)); }
void GOMP_critical_name_end(void** name) { pthread_mutex_unlock(mutex_of(name)); }
void omp_init_lock(void*) {}
void omp_destroy_lock(void*) {}
void omp_set_lock(void* lock) { pthread_mutex_lock(mutex_of(lock)); }
void omp_unset_lock(void* lock) { pthread_mutex_unlock(mutex_of(lock)); }
int omp_test_lock(void* lock) { return pthread_mutex_trylock(mutex_of(lock)) == 0; }
void GOMP_atomic_start() { pthread_mutex_lock(&atomic); }
void GOMP_atomic_end() { pthread_mutex_unlock(&atomic); }
int omp_get_thread_num() { return here.number; }
int omp_get_num_threads() { return here.team->size; }
int omp_get_max_threads() { return most; }
int omp_get_thread_limit() { return 2147483647; }
int omp_in_parallel() { return here.team->size > 1; }
int omp_get_level() { return here.team != &alone; }
int omp_get_dynamic() { return 0; }
void omp_set_dynamic(int) {}
void omp_set_num_threads(int number) { if (number > 0) most = number; }
}
"""
