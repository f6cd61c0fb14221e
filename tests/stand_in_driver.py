"""A stand-in for CUDA's driver: a library that notes what it is called with, and runs C functions for kernels.

A "kernel" is a C function `void(const Config*, void**)`, to which `cuLaunchKernelEx` hands the launch and the addresses
of the parameters, as the real one does to a device. A CUDA graph is a chain of such launches, which holds copies of the
parameters; whatever the real driver forbids is refused with status 1 (CUDA_ERROR_INVALID_VALUE).
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = r"""
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>
struct Attribute { uint32_t id; char pad[4]; unsigned char value[64]; };
struct Config { uint32_t gx, gy, gz, bx, by, bz, shared; void* stream; Attribute* attributes; uint32_t count; };
static std::vector<unsigned char> noted;
static int current = 0, answer = 0;
static std::vector<size_t> parameters;
static std::recursive_mutex one;
static std::string called;
static std::map<std::string, int> refused;
static std::map<void*, int> captures;
static thread_local int mode = 0;
static bool forgets_the_last = false;
// Enter a function of the driver: its name is noted, and a status that it is to answer is.
#define ENTER(name)                              \
  std::lock_guard<std::recursive_mutex> in(one); \
  called += name " ";                            \
  if (int status = refused.count(name) ? refused[name] : 0) return status
static void put(const void* from, size_t size) {
  noted.insert(noted.end(), (const unsigned char*)from, (const unsigned char*)from + size);
}
static void run(const Config* config, void* kernel, void** parameters) {
  put(config, 28);
  uint64_t rest[3] = {(uint64_t)config->stream, config->count, (uint64_t)kernel};
  put(rest, sizeof rest);
  for (uint32_t k = 0; k < config->count; ++k) {
    put(&config->attributes[k].id, 4);
    put(config->attributes[k].value, 64);
  }
  ((void (*)(const Config*, void**))kernel)(config, parameters);
}
extern "C" {
void set_device(int device, int status) { current = device; answer = status; }
size_t size() { return noted.size(); }
const unsigned char* bytes() { return noted.data(); }
const char* calls() { return called.c_str(); }
void forget() { noted.clear(); called.clear(); }
void refuse(const char* name, int status) { refused[name] = status; }
void forget_the_last(int is_so) { forgets_the_last = is_so; }
void capture(void* stream, int status) { captures[stream] = status; }
void add_parameter(size_t size) { parameters.push_back(size); }
void forget_parameters() { parameters.clear(); }
int cuFuncGetParamInfo(void*, size_t position, size_t* offset, size_t* size) {
  if (position >= parameters.size()) return 1;
  *offset = 8 * position;
  *size = parameters[position];
  return 0;
}
int cuKernelGetParamInfo(void* kernel, size_t position, size_t* offset, size_t* size) {
  return cuFuncGetParamInfo(kernel, position, offset, size);
}
int cuCtxGetDevice(int* device) { ENTER("cuCtxGetDevice"); *device = current; return current < 0 ? 201 : 0; }
int cuTensorMapReplaceAddress(void* map, void* address) {
  ENTER("cuTensorMapReplaceAddress");
  if ((uintptr_t)map % 64) return 1;
  std::memcpy(map, &address, 8);
  return 0;
}
int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int l2, int fill) {
  if ((uintptr_t)map % 64) return 1;
  unsigned char* at = (unsigned char*)map;
  std::memset(at, 0, 128);
  auto write = [&](const void* from, size_t size) { std::memcpy(at, from, size); at += size; };
  write(&address, 8);
  write(&type, 4);
  write(&rank, 4);
  write(dims, 8 * rank);
  write(strides, 8 * (rank - 1));
  write(box, 4 * rank);
  write(steps, 4 * rank);
  for (const int* option : {&interleave, &swizzle, &l2, &fill}) write(option, 4);
  return 0;
}
int cuLaunchKernelEx(const Config* config, void* kernel, void** parameters, void** extra) {
  ENTER("cuLaunchKernelEx");
  if (answer || extra) return answer ? answer : 1;
  run(config, kernel, parameters);
  return 0;
}
void note_five(const Config*, void** p) { put(p[0], 8); put(p[1], 4); put(p[2], 4); put(p[3], 1); put(p[4], 128); }
void described(const Config*, void** p) {
  put(p[0], 128);
  for (int k : {1, 2}) put(p[k], 4);
  for (int k : {3, 4}) put(p[k], 8);
}
#define THREADS(n) for (int64_t i = 0; i < (n) && i < (int64_t)c->gx * c->bx; ++i)
void scale_shift(const Config* c, void** p) {
  float *x = *(float**)p[0], *y = *(float**)p[1];
  THREADS(*(int64_t*)p[2]) y[i] = x[i] * 2.0f + 1.0f;
}
void cute_scale_shift(const Config* c, void** p) {
  float *x = *(float**)p[0], *y = *(float**)p[1];
  THREADS(4096) y[i] = x[i] * 2.0f + 1.0f;  // a CuTe DSL kernel holds the size as a constant
}
void scale(const Config* c, void** p) {
  float *x = *(float**)p[0], *y = *(float**)p[1];
  THREADS(*(int64_t*)p[2]) y[i] = x[i] * 2.0f;
}
void shift(const Config* c, void** p) {
  float *x = *(float**)p[0], *y = *(float**)p[1];
  THREADS(*(int64_t*)p[3]) y[i] = x[i] + *(float*)p[2];
}
void triton_scale_shift(const Config* c, void** p) {
  float *x = *(float**)p[0], *y = *(float**)p[1];
  if (*(void**)p[3] || *(void**)p[4]) return;  // Triton's scratch memory, of which the kernel has none
  for (int64_t i = 0; i < *(int32_t*)p[2] && i < (int64_t)c->gx * 1024; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
}
"""

GRAPHS = r"""
struct Params {
  void* func;
  uint32_t gx, gy, gz, bx, by, bz, shared;
  void **parameters, **extra, *kern, *context;
};
struct Node {
  Config config;
  void *kernel, *as_function;
  std::vector<Attribute> attributes;
  std::vector<std::vector<unsigned char>> values;
};
struct Graph { std::vector<Node*> nodes; };
struct Instance {
  std::vector<Node> nodes;
  Graph* of;
  std::set<std::thread::id> setters;
};
static std::set<Graph*> graphs;
static std::set<Instance*> instances;
static std::map<void*, std::vector<size_t>> sizes = {{(void*)scale, {8, 8, 8}},
                                                     {(void*)shift, {8, 8, 4, 8}},
                                                     {(void*)note_five, {8, 4, 4, 1, 128}}};
static int fill(Node& node, const Params* given) {
  void* kernel = given->func ? given->func : given->kern;
  if (given->extra || given->context || !given->func == !given->kern || !sizes.count(kernel)) return 1;
  if (node.kernel && (node.kernel != kernel || node.as_function != given->func)) return 1;
  if (given->kern) called += "CUkernel ";
  node.kernel = kernel;
  node.as_function = given->func;
  std::memcpy(&node.config, &given->gx, 28);
  node.values.clear();
  for (size_t k = 0; k < sizes[kernel].size(); ++k) {
    const unsigned char* from = (const unsigned char*)given->parameters[k];
    node.values.emplace_back(from, from + sizes[kernel][k]);
  }
  return 0;
}
// The functions that were called, as a process ends: this destructor comes after all of Python's.
static struct Teller { bool asked = false; ~Teller() { if (asked) std::puts(called.c_str()); } } teller;
extern "C" {
void tell_at_exit() { teller.asked = true; }
int live_graphs() { return (int)graphs.size(); }
int live_instances() { return (int)instances.size(); }
int cuStreamIsCapturing(void* stream, int* status) {
  ENTER("cuStreamIsCapturing");
  *status = captures.count(stream) ? captures[stream] : 0;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* other) { std::swap(mode, *other); return 0; }
int cuGraphCreate(void** made, uint32_t flags) {
  ENTER("cuGraphCreate");
  if (flags || mode != 2) return 1;
  *made = *graphs.insert(new Graph).first;
  return 0;
}
int cuGraphAddKernelNode_v2(void** made, void* of, void* const* before, size_t count, const Params* given) {
  ENTER("cuGraphAddKernelNode");
  Graph* graph = (Graph*)of;
  if (!graphs.count(graph) || count != !graph->nodes.empty() || (count && *before != graph->nodes.back())) return 1;
  Node node = {};
  if (fill(node, given)) return 1;
  graph->nodes.push_back(new Node(node));
  *made = graph->nodes.back();
  return 0;
}
int cuGraphKernelNodeSetAttribute(void* node, int id, const void* value) {
  ENTER("cuGraphKernelNodeSetAttribute");
  Attribute attribute = {(uint32_t)id, {}, {}};
  std::memcpy(attribute.value, value, 64);
  ((Node*)node)->attributes.push_back(attribute);
  return id == 6;  // which is of launches alone
}
int cuGraphInstantiateWithFlags(void** made, void* of, unsigned long long flags) {
  ENTER("cuGraphInstantiate");
  if (flags || mode != 2 || !graphs.count((Graph*)of)) return 1;
  auto* instance = new Instance{{}, (Graph*)of, {}};
  for (Node* node : instance->of->nodes) instance->nodes.push_back(*node);
  *made = *instances.insert(instance).first;
  return 0;
}
int cuGraphExecKernelNodeSetParams_v2(void* of, void* node, const Params* given) {
  std::this_thread::yield();  // to a thread that would set the same instance
  ENTER("cuGraphExecKernelNodeSetParams");
  auto* instance = (Instance*)of;
  if (!instances.count(instance) || !graphs.count(instance->of)) return 1;
  instance->setters.insert(std::this_thread::get_id());
  for (size_t k = 0; k < instance->nodes.size(); ++k)
    if (instance->of->nodes[k] == node) return fill(instance->nodes[k], given);
  return 1;
}
int cuGraphLaunch(void* of, void* stream) {
  ENTER("cuGraphLaunch");
  auto* instance = (Instance*)of;
  std::set<std::thread::id> setters;
  if (!instances.count(instance) || (captures.count(stream) && captures[stream])) return 1;
  std::swap(setters, instance->setters);
  if (setters.size() > 1 || (setters.size() == 1 && !setters.count(std::this_thread::get_id()))) return 1;
  for (size_t n = 0; n + forgets_the_last < instance->nodes.size(); ++n) {
    Node& node = instance->nodes[n];
    node.config.stream = stream;
    node.config.attributes = node.attributes.data();
    node.config.count = (uint32_t)node.attributes.size();
    void* places[16];
    for (size_t k = 0; k < node.values.size(); ++k) places[k] = node.values[k].data();
    run(&node.config, node.kernel, places);
  }
  return 0;
}
int cuGraphExecDestroy(void* of) {
  ENTER("cuGraphExecDestroy");
  if (mode != 2 || !instances.erase((Instance*)of)) return 1;
  delete (Instance*)of;
  return 0;
}
int cuGraphDestroy(void* of) {
  ENTER("cuGraphDestroy");
  if (!graphs.erase((Graph*)of)) return 1;
  for (Node* node : ((Graph*)of)->nodes) delete node;
  delete (Graph*)of;
  return 0;
}
}
"""
"""What the driver has of CUDA graphs."""

MAP_SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cstdlib>
#include <cstring>
struct Map { PyObject_HEAD; alignas(64) unsigned char bytes[128]; };
static PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
static PyObject* allocate(PyTypeObject* of, Py_ssize_t) {
  void* room = nullptr;
  return posix_memalign(&room, 128, of->tp_basicsize) ? PyErr_NoMemory() : PyObject_INIT((PyObject*)room, of);
}
static PyObject* make(PyObject*, PyObject* args) {
  const char* bytes;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "y#", &bytes, &size)) return nullptr;
  Map* made = (Map*)allocate(&type, 0);
  if (made) std::memcpy(made->bytes, bytes, 128);
  return (PyObject*)made;
}
static PyMethodDef functions[] = {{"make", make, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "standin_map", nullptr, -1, functions,
                                 nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit_standin_map() {
  type.tp_name = "standin_map.Map";
  type.tp_basicsize = sizeof(Map);
  type.tp_alloc = allocate;
  type.tp_dealloc = [](PyObject* self) { std::free(self); };
  return PyType_Ready(&type) < 0 ? nullptr : PyModule_Create(&definition);
}
"""
"""An extension whose objects hold a tensor map as those of Triton's do: aligned, at their end."""


def map_maker(directory: Path) -> Any:
    """The function `make(bytes)` of MAP_SOURCE, built."""
    path = directory / "standin_map.so"
    (directory / "map.cpp").write_text(MAP_SOURCE)
    headers = sysconfig.get_paths()["include"]
    command = ["g++", "-std=c++17", "-shared", "-fPIC", f"-I{headers}", str(directory / "map.cpp"), "-o", str(path)]
    subprocess.run(command, check=True, timeout=100)
    spec = importlib.util.spec_from_file_location("standin_map", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make


@dataclass(frozen=True)
class Launched:
    """One launch as the driver saw it. parameters: the bytes that a noting kernel found."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    attributes: tuple[tuple[int, bytes], ...]
    kernel: int
    parameters: bytes


class Driver:
    """The library, loaded here too: it is one for the whole process."""

    def __init__(self, directory: Path, *, built: bytes | None = None) -> None:
        """Build it into a directory, or put it there as it was built."""
        self.path = directory / "libstandin.so"
        if built is not None:
            self.path.write_bytes(built)
        else:
            (directory / "standin.cpp").write_text(SOURCE + GRAPHS)
            command = ["g++", "-std=c++17", "-shared", "-fPIC", str(directory / "standin.cpp"), "-o", str(self.path)]
            subprocess.run(command, check=True, timeout=100)
        self.library = ctypes.CDLL(str(self.path))
        self.library.bytes.restype = ctypes.c_void_p
        self.library.size.restype = ctypes.c_size_t
        self.library.calls.restype = ctypes.c_char_p

    def without(self, function: str, directory: Path) -> Driver:
        """Another driver, in another directory, that lacks a function: the name is overwritten."""
        name = function.encode() + b"\0"
        return Driver(directory, built=self.path.read_bytes().replace(name, b"_" * len(function) + b"\0"))

    def kernel(self, name: str) -> int:
        """The handle of one of its kernels."""
        return ctypes.cast(self.library[name], ctypes.c_void_p).value or 0

    def answer(self, *, device: int = 0, status: int = 0) -> None:
        """Have the current device and the status of launches be these."""
        self.library.set_device(device, status)

    def takes(self, *sizes: int) -> None:
        """Have every kernel take parameters of these bytes, as far as it says."""
        self.library.forget_parameters()
        for size in sizes:
            self.library.add_parameter(ctypes.c_size_t(size))

    def forget(self) -> None:
        """Forget what was called and launched."""
        self.library.forget()

    def called(self) -> list[str]:
        """The functions that were called, in order, by their names in cuda.h; CUkernel behind one that was given such a
        handle for a node.
        """
        found: bytes = self.library.calls()
        return found.decode().split()

    def refuse(self, name: str, status: int) -> None:
        """Have a function answer this status, and do nothing; 0: as ever."""
        self.library.refuse(name.encode(), status)

    def capture(self, stream: int, status: int) -> None:
        """Have a stream be captured, which is status 1, or not, which is 0."""
        self.library.capture(ctypes.c_void_p(stream), status)

    def forget_the_last(self, is_so: bool) -> None:
        """Have every graph leave its last launch out: a driver that is wrong."""
        self.library.forget_the_last(int(is_so))

    def live(self) -> tuple[int, int]:
        """How many graphs and instances of graphs there are."""
        return self.library.live_graphs(), self.library.live_instances()

    def noted(self) -> bytes:
        """All that was noted, in order."""
        return ctypes.string_at(self.library.bytes(), self.library.size()) if self.library.size() else b""

    def launched(self) -> Launched:
        """The only launch that was noted."""
        (found,) = self.launches()
        return found

    def launches(self, parameters: int | None = None) -> list[Launched]:
        """The launches that were noted, each by a kernel that notes so many bytes; None: there is one, of the rest."""
        rest, found = self.noted(), []
        while rest:
            gx, gy, gz, bx, by, bz, shared, stream, count, kernel = struct.unpack_from("<7I3Q", rest)
            rest = rest[52:]
            attributes = []
            for _ in range(count):
                attributes.append((int.from_bytes(rest[:4], "little"), rest[4:68]))
                rest = rest[68:]
            size = len(rest) if parameters is None else parameters
            block = (bx, by, bz)
            found.append(Launched((gx, gy, gz), block, shared, stream, tuple(attributes), kernel, rest[:size]))
            rest = rest[size:]
        return found

    def launch(self, kernel: int, grid: tuple[int, ...], block: tuple[int, ...], *values: Any) -> None:
        """Launch a kernel as any launcher does: with ctypes values for parameters."""
        config = struct.pack("<7I4xQQI4x", *grid, *block, 0, 0, 0, 0)
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        assert self.library.cuLaunchKernelEx(config, ctypes.c_void_p(kernel), places, None) == 0
