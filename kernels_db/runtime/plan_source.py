"""The C++ of what replays launch plans: a Python extension of one table of plans and the plans in it.

It needs Python's headers and nothing else: tensors are read by PyTorch's DLPack exchange functions (a table of C
functions that every tensor's type carries), CUDA's driver is opened where the process already has it. Everything but a
kernel of the CPU and a launch runs under the interpreter's lock, so nothing here has a lock of its own but CUDA graphs.

A call becomes a key of 64-bit words: for a tensor its rank, dtype, device, shape and strides, for a number its type and
its bits. `_plans.py` of an exported package says what a plan may be made of.
"""

from __future__ import annotations

from .plan_graph_source import GRAPHS
from .plan_table_source import MODULE, TABLE

ABI = 3
"""Counts up whenever the extension's functions change for their caller."""

_HEAD = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

using u64 = uint64_t;

// ---- DLPack's exchange functions, as its specification (version 1) lays them out
struct Tensor {
  void* data;
  int32_t device, index, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  u64 skip;
};
struct Exchange {
  uint32_t major, minor;
  void *previous, *allocate, *from_object, *to_object;
  int (*view)(void*, Tensor*);
  void* stream;
};

// ---- CUDA's driver: only what a launch needs, by the layout that cuda.h gives it
struct Attribute { uint32_t id, pad; unsigned char value[64]; };
struct Config { uint32_t grid[3], block[3], shared; void* stream; Attribute* attributes; uint32_t count; };
static_assert(sizeof(Attribute) == 72 && sizeof(Config) == 56, "cuda.h lays these out so");
enum { COOPERATIVE = 2, CLUSTER = 4, PROGRAMMATIC = 6 };  // attributes
static struct {
  int (*launch)(const Config*, void*, void**, void**);
  int (*device)(int*);
  int (*replace)(void*, void*);
} driver;

// ---- A call of a C function: integers and addresses fill their registers, floating values theirs, the rest the stack
#if defined(__x86_64__) && !defined(_WIN32)
#define CALLS_C 1
enum { INTEGERS = 6, FLOATS = 8, STACK = 40 };
#define INTEGER_TYPES u64, u64, u64, u64, u64, u64
#define INTEGER_VALUES i[0], i[1], i[2], i[3], i[4], i[5]
#elif defined(__aarch64__) && !defined(__APPLE__)
#define CALLS_C 1
enum { INTEGERS = 8, FLOATS = 8, STACK = 40 };
#define INTEGER_TYPES u64, u64, u64, u64, u64, u64, u64, u64
#define INTEGER_VALUES i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7]
#else
#define CALLS_C 0
enum { INTEGERS = 0, FLOATS = 0, STACK = 0 };
#endif

enum Kind { NUMBER, POINTER, MAP };
struct Piece { Kind kind; bool floating; int slot; int64_t offset; u64 bits; alignas(64) unsigned char map[128]; };
enum Act { ALLOCATE, ZERO, CALL, LAUNCH };
struct Step {
  Act act;
  int slot;
  u64 function;
  bool kernel;  // `function` is a CUkernel, otherwise a CUfunction; a launch takes either
  uint32_t grid[3], block[3], shared;
  std::vector<Attribute> attributes;
  std::vector<Piece> pieces;
};
struct Slot { PyObject* make; PyObject* like; };  // like: a tuple of arguments, or the one argument

enum { MOST_WORDS = 256, MOST_SLOTS = 48, MOST_PIECES = 64, MOST_MAPS = 8, MOST_PLANS = 1024 };

static PyObject *requires_grad_name, *zero_name;

struct Graph;
struct Plan {
  std::vector<u64> key;
  u64 hash = 0;
  int kernel = 0, device = -1, arguments = 0, outputs = 0, launches = 0;
  std::vector<Slot> slots;    // outputs, then scratch
  std::vector<Step> steps;
  std::vector<u64> extents;   // bytes from a tensor argument's first element to behind its last
  PyObject* keep = nullptr;
  std::vector<std::shared_ptr<Graph>> graphs;  // one for each stream
  bool single = false;                         // never as a graph
  ~Plan() {
    graphs.clear();  // before the kernels that `keep` holds are unloaded
    for (auto& slot : slots) { Py_XDECREF(slot.make); Py_XDECREF(slot.like); }
    Py_XDECREF(keep);
  }
};

struct PlanObject { PyObject_HEAD std::shared_ptr<Plan>* plan; };
struct Counter { int64_t credits, served; };
struct Table {
  PyObject_HEAD
  const Exchange* exchange;
  PyObject *tensor, *parameter, *block, *grad_enabled, *is_negative, *bump, *stream;
  std::vector<std::pair<PyObject*, PyObject*>>* quiet;
  std::vector<std::pair<int, u64>>* alignments;
  std::vector<int>* mutated;
  std::vector<Counter>* counters;
  std::unordered_map<u64, std::vector<std::shared_ptr<Plan>>>* plans;
  size_t count;
  int graphs_from;  // the call of a plan on a stream from which its launches are one graph; 0: never
  int64_t graphed;  // calls that were
  std::map<std::string, int>* refused;  // why plans have no graph, and how many
};
"""

_CALLS = r"""
// What a launch is given: `places` has the address of each of its parameters.
struct Parameters {
  u64 values[MOST_PIECES];
  void* places[MOST_PIECES];
  struct alignas(64) { unsigned char bytes[128]; } rooms[MOST_MAPS];

  // The driver's status; `base` has the address of each slot.
  int fill(const Step& step, const u64* base) {
    size_t maps = 0;
    for (size_t p = 0; p < step.pieces.size(); ++p) {
      const Piece& piece = step.pieces[p];
      values[p] = piece.kind == NUMBER ? piece.bits : base[piece.slot] + (u64)piece.offset;
      places[p] = &values[p];
      if (piece.kind != MAP) continue;
      std::memcpy(rooms[maps].bytes, piece.map, 128);
      if (int status = driver.replace(rooms[maps].bytes, (void*)values[p])) return status;
      places[p] = rooms[maps++].bytes;
    }
    return 0;
  }
};

static void call_c(u64 function, const std::vector<Piece>& pieces, const u64* values) {
#if CALLS_C
  u64 i[INTEGERS] = {}, s[STACK] = {};
  double f[FLOATS] = {};
  int ni = 0, nf = 0, ns = 0;
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (pieces[p].floating && nf < FLOATS) std::memcpy(&f[nf++], &values[p], 8);
    else if (!pieces[p].floating && ni < INTEGERS) i[ni++] = values[p];
    else s[ns++] = values[p];
  }
#define F f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
#define FT double, double, double, double, double, double, double, double
#define S8(n) s[n], s[n + 1], s[n + 2], s[n + 3], s[n + 4], s[n + 5], s[n + 6], s[n + 7]
#define ST8 u64, u64, u64, u64, u64, u64, u64, u64
  if (ns == 0) reinterpret_cast<void (*)(INTEGER_TYPES, FT)>(function)(INTEGER_VALUES, F);
  else if (ns <= 8) reinterpret_cast<void (*)(INTEGER_TYPES, FT, ST8)>(function)(INTEGER_VALUES, F, S8(0));
  else reinterpret_cast<void (*)(INTEGER_TYPES, FT, ST8, ST8, ST8, ST8, ST8)>(function)(
      INTEGER_VALUES, F, S8(0), S8(8), S8(16), S8(24), S8(32));
#endif
}

// -1: no call of ours (other types, too many words); otherwise the number of words. `views` are filled for tensors.
static int describe(Table* t, PyObject* const* args, int n, bool outside, u64* key, Tensor* views) {
  if (n > MOST_SLOTS) return -1;
  int words = 0;
  for (int a = 0; a < n; ++a) {
    PyObject* x = args[a];
    PyTypeObject* type = Py_TYPE(x);
    views[a].data = nullptr;
    views[a].rank = -1;
    if (words > MOST_WORDS - 4) return -1;
    if ((PyObject*)type == t->tensor || (PyObject*)type == t->parameter ||
        (!outside && PyObject_TypeCheck(x, (PyTypeObject*)t->tensor))) {
      Tensor& v = views[a];
      if (t->exchange->view(x, &v) != 0) { PyErr_Clear(); return -1; }
      if (v.rank < 0 || words + 3 + 2 * v.rank > MOST_WORDS || !v.data || v.lanes != 1) return -1;
      v.data = (char*)v.data + v.skip;
      key[words++] = 1 | (u64)v.rank << 8 | (u64)v.code << 40 | (u64)v.bits << 48;
      key[words++] = (u64)(uint32_t)v.device << 32 | (uint32_t)v.index;
      for (int k = 0; k < v.rank; ++k) key[words++] = (u64)v.shape[k];
      for (int k = 0; k < v.rank; ++k) key[words++] = (u64)v.strides[k];
    } else if (type == &PyBool_Type) {
      key[words++] = 2;
      key[words++] = x == Py_True;
    } else if (type == &PyLong_Type) {
      int overflow = 0;
      key[words++] = 3;
      key[words++] = (u64)PyLong_AsLongLongAndOverflow(x, &overflow);
      if (overflow) return -1;
    } else if (type == &PyFloat_Type) {
      double value = PyFloat_AS_DOUBLE(x);
      key[words++] = 4;
      std::memcpy(&key[words++], &value, 8);
    } else return -1;
  }
  return words;
}

static u64 hashed(const u64* key, int words) {
  u64 h = 0x9e3779b97f4a7c15ull + words;
  for (int k = 0; k < words; ++k) { h = (h ^ key[k]) * 0xff51afd7ed558ccdull; h ^= h >> 32; }
  return h;
}

// 1: nothing stands around the call that PyTorch's dispatcher would act on; 0: something does; -1: an error.
static int is_quiet(Table* t, PyObject* const* args, int n, const Tensor* views) {
  for (auto& check : *t->quiet) {
    PyObject* found = PyObject_CallNoArgs(check.first);
    if (!found) return -1;
    bool same = found == check.second;
    Py_DECREF(found);
    if (!same) return 0;
  }
  PyObject* grad = PyObject_CallNoArgs(t->grad_enabled);
  if (!grad) return -1;
  bool recording = grad == Py_True;
  Py_DECREF(grad);
  for (int a = 0; a < n; ++a) {
    if (views[a].rank < 0) continue;
    PyObject* negative = PyObject_CallOneArg(t->is_negative, args[a]);
    if (!negative) return -1;
    bool no = negative == Py_False;
    Py_DECREF(negative);
    if (!no) return 0;
    if (!recording) continue;
    PyObject* needs = PyObject_GetAttr(args[a], requires_grad_name);
    if (!needs) return -1;
    no = needs == Py_False;
    Py_DECREF(needs);
    if (!no) return 0;
  }
  return 1;
}

// Whether the addresses are such as the kernel was verified with.
static bool placed(Table* t, const Plan& plan, const Tensor* views, int n) {
  for (auto& each : *t->alignments)
    if (each.first >= n || (u64)views[each.first].data % each.second) return false;
  for (int written : *t->mutated) {
    u64 first = (u64)views[written].data, end = first + plan.extents[written];
    for (int a = 0; a < n; ++a) {
      if (a == written || views[a].rank < 0) continue;
      u64 start = (u64)views[a].data;
      if (start < end && first < start + plan.extents[a]) return false;
    }
  }
  return true;
}

static bool here(const Plan& plan) {
  if (plan.device < 0) return true;
  int device = -1;
  return driver.device && driver.device(&device) == 0 && device == plan.device;
}
"""

_PERFORM = r"""
static PyObject* made_for(const Slot& slot) {
  if (PyTuple_CheckExact(slot.like)) return PyObject_CallObject(slot.make, slot.like);
  return PyObject_CallOneArg(slot.make, slot.like);
}

// Allocate scratch, or set memory to zero.
static bool provide(Table* t, const Plan& plan, const Step& step, u64* base, PyObject** made) {
  int k = step.slot - plan.arguments;
  if (step.act == ALLOCATE) {
    Tensor view;
    if (!(made[k] = made_for(plan.slots[k])) || t->exchange->view(made[k], &view) != 0) return false;
    base[step.slot] = (u64)view.data + view.skip;
    return true;
  }
  PyObject* zeroed = PyObject_CallMethodNoArgs(made[k], zero_name);
  Py_XDECREF(zeroed);
  return zeroed != nullptr;
}

static bool launch(const Step& step, const u64* base, void* stream) {
  Parameters parameters;
  if (int status = parameters.fill(step, base)) {
    PyErr_Format(PyExc_RuntimeError, "cuTensorMapReplaceAddress: found status %d, expected 0", status);
    return false;
  }
  if (step.act == CALL) {
    Py_BEGIN_ALLOW_THREADS
    call_c(step.function, step.pieces, parameters.values);
    Py_END_ALLOW_THREADS
    return true;
  }
  Config config = {};
  std::memcpy(config.grid, step.grid, sizeof(step.grid));
  std::memcpy(config.block, step.block, sizeof(step.block));
  config.shared = step.shared;
  config.stream = stream;
  config.count = (uint32_t)step.attributes.size();
  if (config.count) config.attributes = const_cast<Attribute*>(step.attributes.data());
  int status;
  Py_BEGIN_ALLOW_THREADS
  status = driver.launch(&config, (void*)step.function, parameters.places, nullptr);
  Py_END_ALLOW_THREADS
  if (status) PyErr_Format(PyExc_RuntimeError, "cuLaunchKernelEx: found status %d, expected 0", status);
  return !status;
}

// Do a plan's steps. `base` holds the addresses of arguments, `made` the tensors of outputs, which are there, and of
// scratch.
static bool perform(Table* t, Plan& plan, u64* base, PyObject** made) {
  void* stream = nullptr;
  if (plan.device >= 0) {
    PyObject* index = PyLong_FromLong(plan.device);
    PyObject* handle = index ? PyObject_CallOneArg(t->stream, index) : nullptr;
    Py_XDECREF(index);
    if (!handle) return false;
    stream = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    if (!stream && PyErr_Occurred()) return false;
  }
  std::shared_ptr<Graph> graph = graph_for(t, plan, stream);
  for (const Step& step : plan.steps) {  // with a graph: what no launch before it was given may be provided early
    if (step.act <= ZERO ? !provide(t, plan, step, base, made) : !graph && !launch(step, base, stream)) return false;
  }
  if (!graph) return true;
  if (int done = launch_graph(t, plan, *graph, base)) return done > 0;
  for (const Step& step : plan.steps)
    if (step.act > ZERO && !launch(step, base, stream)) return false;
  return true;
}

// Do a plan; its outputs are made here, or those that are given. The result is what the op returns.
static PyObject* replay(Table* t, const std::shared_ptr<Plan>& held, const Tensor* views, PyObject* const* given) {
  Plan& plan = *held;
  u64 base[2 * MOST_SLOTS];
  PyObject* made[MOST_SLOTS] = {};
  int total = (int)plan.slots.size();
  bool good = true;
  for (int a = 0; a < plan.arguments; ++a) base[a] = (u64)views[a].data;
  for (int k = 0; good && k < plan.outputs; ++k) {
    Tensor view;
    if (given) { Py_INCREF(given[k]); made[k] = given[k]; }
    else made[k] = made_for(plan.slots[k]);
    good = made[k] && t->exchange->view(made[k], &view) == 0;
    if (good) base[plan.arguments + k] = (u64)view.data + view.skip;
  }
  good = good && perform(t, plan, base, made);
  PyObject* result = nullptr;
  if (good) {
    if (given || plan.outputs == 0) { Py_INCREF(Py_None); result = Py_None; }
    else if (plan.outputs == 1) { result = made[0]; made[0] = nullptr; }
    else if ((result = PyTuple_New(plan.outputs)))
      for (int k = 0; k < plan.outputs; ++k) { PyTuple_SET_ITEM(result, k, made[k]); made[k] = nullptr; }
  }
  for (int k = 0; k < total; ++k) Py_XDECREF(made[k]);
  return result;
}
"""

SOURCE = _HEAD + _CALLS + GRAPHS + _PERFORM + TABLE + MODULE
"""The extension's source."""
