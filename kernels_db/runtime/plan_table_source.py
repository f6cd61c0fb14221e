"""The C++ of the table of plans: lookup, making a plan from its steps, and the extension's module."""

from __future__ import annotations

TABLE = r"""
static PyObject* serve(Table* t, PyObject* const* args, Py_ssize_t n, bool outside) {
  if (!t->count) Py_RETURN_NOTIMPLEMENTED;
  PyObject* block = nullptr;
  if (PyContextVar_Get(t->block, nullptr, &block) < 0) return nullptr;
  bool inside_block = block && block != Py_None;
  Py_XDECREF(block);
  u64 key[MOST_WORDS];
  Tensor views[MOST_SLOTS];
  int words = inside_block ? -1 : describe(t, args, (int)n, outside, key, views);
  if (words < 0) Py_RETURN_NOTIMPLEMENTED;
  auto found = t->plans->find(hashed(key, words));
  if (found == t->plans->end()) Py_RETURN_NOTIMPLEMENTED;
  std::shared_ptr<Plan> plan;
  for (auto& each : found->second)
    if (each->key.size() == (size_t)words && !std::memcmp(each->key.data(), key, 8 * words)) plan = each;
  if (!plan || !placed(t, *plan, views, (int)n) || !here(*plan)) Py_RETURN_NOTIMPLEMENTED;
  if (outside) {
    int quiet = is_quiet(t, args, (int)n, views);
    if (quiet < 0) return nullptr;
    if (!quiet) Py_RETURN_NOTIMPLEMENTED;
  }
  Counter& counter = (*t->counters)[plan->kernel];
  if (counter.credits <= 0) Py_RETURN_NOTIMPLEMENTED;
  --counter.credits;
  if (outside)
    for (int written : *t->mutated) {
      PyObject* done = PyObject_CallOneArg(t->bump, args[written]);
      if (!done) return nullptr;
      Py_DECREF(done);
    }
  PyObject* result = replay(t, plan, views, nullptr);
  if (result) ++counter.served;
  return result;
}

static PyObject* table_call(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return serve((Table*)self, args, n, true);
}
static PyObject* table_inside(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  return serve((Table*)self, args, n, false);
}

static PyTypeObject plan_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
static PyTypeObject table_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// run(plan, arguments, outputs): whether the plan is for these arguments; then it was done on these outputs.
static PyObject* table_run(PyObject* self, PyObject* args) {
  PyObject *held, *arguments, *outputs, *tuple = (PyObject*)&PyTuple_Type;
  if (!PyArg_ParseTuple(args, "O!O!O!", &plan_type, &held, tuple, &arguments, tuple, &outputs)) return nullptr;
  Table* t = (Table*)self;
  std::shared_ptr<Plan> plan = *((PlanObject*)held)->plan;
  u64 key[MOST_WORDS];
  Tensor views[MOST_SLOTS];
  int n = (int)PyTuple_GET_SIZE(arguments);
  int words = describe(t, &PyTuple_GET_ITEM(arguments, 0), n, false, key, views);
  if (words < 0 || plan->key.size() != (size_t)words || std::memcmp(plan->key.data(), key, 8 * words)) Py_RETURN_FALSE;
  if (!here(*plan) || !placed(t, *plan, views, n) || PyTuple_GET_SIZE(outputs) != plan->outputs) Py_RETURN_FALSE;
  PyObject* none = PyTuple_GET_SIZE(outputs) ? nullptr : Py_None;
  PyObject* done = replay(t, plan, views, none ? &none : &PyTuple_GET_ITEM(outputs, 0));
  if (!done) return nullptr;
  Py_DECREF(done);
  Py_RETURN_TRUE;
}

static bool numbers(PyObject* sequence, uint32_t* into, int count) {
  for (int k = 0; k < count; ++k) {
    into[k] = (uint32_t)PyLong_AsUnsignedLongMask(PyTuple_GET_ITEM(sequence, k));
    if (PyErr_Occurred()) return false;
  }
  return true;
}

static bool refuse(const char* why) {
  PyErr_SetString(PyExc_ValueError, why);
  return false;
}

static bool read_pieces(PyObject* given, Step& step, int slots) {
  int maps = 0, integers = 0, floats = 0;
  Py_ssize_t n = PyTuple_GET_SIZE(given);
  if (n > MOST_PIECES) return refuse("found more arguments of a launch than 64");
  for (Py_ssize_t p = 0; p < n; ++p) {
    Piece piece = {};
    int kind, floating;
    unsigned long long bits;
    long long offset;
    const char* map;
    Py_ssize_t size;
    PyObject* tuple = PyTuple_GET_ITEM(given, p);
    if (!PyArg_ParseTuple(tuple, "ipiLKy#", &kind, &floating, &piece.slot, &offset, &bits, &map, &size)) return false;
    piece.kind = (Kind)kind;
    piece.floating = floating;
    piece.bits = bits;
    piece.offset = offset;
    if (kind != NUMBER && (piece.slot < 0 || piece.slot >= slots)) return refuse("found a slot that is none");
    if (kind == MAP) {
      if (size != 128 || ++maps > MOST_MAPS) return refuse("tensor maps: expected at most 8 of 128 bytes");
      std::memcpy(piece.map, map, 128);
    }
    ++(floating ? floats : integers);
    step.pieces.push_back(piece);
  }
  int over = (floats > FLOATS ? floats - FLOATS : 0) + (integers > INTEGERS ? integers - INTEGERS : 0);
  if (step.act == CALL && (!CALLS_C || over > STACK)) return refuse("found a C function that cannot be called here");
  if (step.act == CALL && maps) return refuse("found a tensor map for a C function");
  if (step.act == LAUNCH && (!driver.launch || (maps && !driver.replace))) return refuse("found no CUDA driver");
  return true;
}

// plan(arguments, kernel, device, outputs, slots, steps, keep): see `plan_build.py`.
static PyObject* table_plan(PyObject* self, PyObject* args) {
  Table* t = (Table*)self;
  PyObject *arguments, *slots, *steps, *keep, *tuple = (PyObject*)&PyTuple_Type;
  auto plan = std::make_shared<Plan>();
  if (!PyArg_ParseTuple(args, "O!iiiO!O!O", tuple, &arguments, &plan->kernel, &plan->device, &plan->outputs, tuple,
                        &slots, tuple, &steps, &keep))
    return nullptr;
  u64 key[MOST_WORDS];
  Tensor views[MOST_SLOTS];
  int n = plan->arguments = (int)PyTuple_GET_SIZE(arguments);
  int words = describe(t, &PyTuple_GET_ITEM(arguments, 0), n, false, key, views);
  bool fits = PyTuple_GET_SIZE(slots) <= MOST_SLOTS && plan->outputs <= PyTuple_GET_SIZE(slots);
  if (words < 0 || !fits || plan->kernel < 0 || plan->kernel >= (int)t->counters->size()) {
    PyErr_SetString(PyExc_ValueError, "found a call that no key is made of");
    return nullptr;
  }
  plan->key.assign(key, key + words);
  plan->hash = hashed(key, words);
  for (int a = 0; a < n; ++a) {
    u64 last = 0;
    for (int k = 0; k < views[a].rank; ++k) last += (u64)((views[a].shape[k] - 1) * views[a].strides[k]);
    plan->extents.push_back(views[a].rank < 0 ? 0 : (last + 1) * ((views[a].bits + 7) / 8));
  }
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(slots); ++k) {
    Slot slot;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(slots, k), "OO", &slot.make, &slot.like)) return nullptr;
    Py_INCREF(slot.make);
    Py_INCREF(slot.like);
    plan->slots.push_back(slot);
  }
  int total = n + (int)plan->slots.size();
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(steps); ++k) {
    Step step = {};
    int act, kernel;
    unsigned long long function;
    PyObject *grid, *block, *attributes, *pieces;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, k), "iiKO!O!IO!pO!", &act, &step.slot, &function, tuple, &grid, tuple,
                          &block, &step.shared, tuple, &attributes, &kernel, tuple, &pieces))
      return nullptr;
    step.act = (Act)act;
    step.kernel = kernel;
    plan->launches += act == LAUNCH;
    step.function = function;
    if (!numbers(grid, step.grid, 3) || !numbers(block, step.block, 3)) return nullptr;
    if (act <= ZERO && (step.slot < n || step.slot >= total)) {
      refuse("found a slot that is no output and no scratch");
      return nullptr;
    }
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(attributes); ++j) {
      uint32_t four[4];
      Attribute attribute = {};
      if (!numbers(PyTuple_GET_ITEM(attributes, j), four, 4)) return nullptr;
      attribute.id = four[0];
      std::memcpy(attribute.value, four + 1, 12);
      step.attributes.push_back(attribute);
    }
    if (act >= CALL && !read_pieces(pieces, step, total)) return nullptr;
    plan->steps.push_back(std::move(step));
  }
  Py_INCREF(keep);
  plan->keep = keep;
  PlanObject* object = PyObject_New(PlanObject, &plan_type);
  if (object) object->plan = new std::shared_ptr<Plan>(plan);
  return (PyObject*)object;
}

static void forget(Table* t) {
  std::unordered_map<u64, std::vector<std::shared_ptr<Plan>>> old;
  old.swap(*t->plans);
  t->count = 0;
}

static PyObject* table_add(PyObject* self, PyObject* given) {
  Table* t = (Table*)self;
  if (Py_TYPE(given) != &plan_type) {
    PyErr_SetString(PyExc_TypeError, "expected a plan");
    return nullptr;
  }
  auto plan = *((PlanObject*)given)->plan;
  if (t->count >= MOST_PLANS) forget(t);
  auto& bucket = (*t->plans)[plan->hash];
  for (auto& each : bucket)
    if (each->key == plan->key) {
      auto old = each;  // ended after the bucket was changed: what a plan holds may run code of Python's
      each = plan;
      Py_RETURN_NONE;
    }
  bucket.push_back(plan);
  ++t->count;
  Py_RETURN_NONE;
}

static PyObject* table_clear(PyObject* self, PyObject*) {
  forget((Table*)self);
  Py_RETURN_NONE;
}
static PyObject* table_size(PyObject* self, PyObject*) { return PyLong_FromSize_t(((Table*)self)->count); }
static PyObject* table_revoke(PyObject* self, PyObject*) {
  for (auto& each : *((Table*)self)->counters) each.credits = 0;
  Py_RETURN_NONE;
}
static PyObject* table_grant(PyObject* self, PyObject* args) {
  int kernel;
  long long credits;
  if (!PyArg_ParseTuple(args, "iL", &kernel, &credits)) return nullptr;
  ((Table*)self)->counters->at(kernel).credits = credits;
  Py_RETURN_NONE;
}
// graphs(): the call from which launches are a graph, the calls that were, and why how many plans have none.
static PyObject* table_graphs(PyObject* self, PyObject*) {
  Table* t = (Table*)self;
  PyObject* refused = PyDict_New();
  if (!refused) return nullptr;
  for (auto& each : *t->refused) {
    PyObject* count = PyLong_FromLong(each.second);
    int failed = count ? PyDict_SetItemString(refused, each.first.c_str(), count) : -1;
    Py_XDECREF(count);
    if (failed) {
      Py_DECREF(refused);
      return nullptr;
    }
  }
  return Py_BuildValue("iLN", t->graphs_from, (long long)t->graphed, refused);
}
static PyObject* table_served(PyObject* self, PyObject* which) {
  long kernel = PyLong_AsLong(which);
  if (kernel == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(((Table*)self)->counters->at(kernel).served);
}
"""

MODULE = r"""
static void plan_free(PyObject* self) {
  delete ((PlanObject*)self)->plan;
  PyObject_Free(self);
}
static void table_free(PyObject* self) {
  Table* t = (Table*)self;
  delete t->plans;
  delete t->refused;
  delete t->counters;
  delete t->mutated;
  delete t->alignments;
  for (auto& each : *t->quiet) {
    Py_DECREF(each.first);
    Py_DECREF(each.second);
  }
  delete t->quiet;
  for (PyObject* each : {t->tensor, t->parameter, t->block, t->grad_enabled, t->is_negative, t->bump, t->stream})
    Py_XDECREF(each);
  PyObject_Free(self);
}

static PyMethodDef table_methods[] = {
    {"call", (PyCFunction)(void*)table_call, METH_FASTCALL, nullptr},
    {"inside", (PyCFunction)(void*)table_inside, METH_FASTCALL, nullptr},
    {"run", table_run, METH_VARARGS, nullptr},
    {"plan", table_plan, METH_VARARGS, nullptr},
    {"add", table_add, METH_O, nullptr},
    {"clear", table_clear, METH_NOARGS, nullptr},
    {"size", table_size, METH_NOARGS, nullptr},
    {"revoke", table_revoke, METH_NOARGS, nullptr},
    {"grant", table_grant, METH_VARARGS, nullptr},
    {"served", table_served, METH_O, nullptr},
    {"graphs", table_graphs, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

// table(exchange, seven objects, quiet, alignments, mutated, kernels, graphs from): see `plan_build.py`.
static PyObject* new_table(PyObject*, PyObject* args) {
  PyObject *capsule, *quiet, *alignments, *mutated, *tuple = (PyObject*)&PyTuple_Type;
  PyObject* o[7];
  int kernels, graphs_from;
  if (!PyArg_ParseTuple(args, "OOOOOOOOO!O!O!ii", &capsule, &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], tuple,
                        &quiet, tuple, &alignments, tuple, &mutated, &kernels, &graphs_from))
    return nullptr;
  auto* exchange = (const Exchange*)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!exchange) return nullptr;
  if (exchange->major != 1 || !exchange->view) {
    PyErr_Format(PyExc_ValueError, "DLPack's exchange functions: found version %u, expected 1", exchange->major);
    return nullptr;
  }
  Table* t = PyObject_New(Table, &table_type);
  if (!t) return nullptr;
  t->exchange = exchange;
  PyObject** into[7] = {&t->tensor, &t->parameter, &t->block, &t->grad_enabled, &t->is_negative, &t->bump, &t->stream};
  for (int k = 0; k < 7; ++k) {
    Py_INCREF(o[k]);
    *into[k] = o[k];
  }
  t->quiet = new std::vector<std::pair<PyObject*, PyObject*>>;
  t->alignments = new std::vector<std::pair<int, u64>>;
  t->mutated = new std::vector<int>;
  t->counters = new std::vector<Counter>(kernels);
  t->plans = new std::unordered_map<u64, std::vector<std::shared_ptr<Plan>>>;
  t->count = 0;
  t->graphs_from = graphs_from;
  t->graphed = 0;
  t->refused = new std::map<std::string, int>;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(quiet); ++k) {
    PyObject *function, *expected;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(quiet, k), "OO", &function, &expected)) {
      Py_DECREF(t);
      return nullptr;
    }
    Py_INCREF(function);
    Py_INCREF(expected);
    t->quiet->emplace_back(function, expected);
  }
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(alignments); ++k) {
    int position;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(alignments, k), "iK", &position, &bytes)) {
      Py_DECREF(t);
      return nullptr;
    }
    t->alignments->emplace_back(position, bytes);
  }
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(mutated); ++k)
    t->mutated->push_back((int)PyLong_AsLong(PyTuple_GET_ITEM(mutated, k)));
  return (PyObject*)t;
}

// open_driver(path): take CUDA's functions from a library; whether it has them.
static PyObject* open_driver(PyObject*, PyObject* args) {
  const char* path;
  if (!PyArg_ParseTuple(args, "s", &path)) return nullptr;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) Py_RETURN_FALSE;
  *(void**)&driver.launch = dlsym(library, "cuLaunchKernelEx");
  *(void**)&driver.device = dlsym(library, "cuCtxGetDevice");
  *(void**)&driver.replace = dlsym(library, "cuTensorMapReplaceAddress");
  open_graphs(library);
  return PyBool_FromLong(driver.launch && driver.device);
}

static PyMethodDef functions[] = {{"table", new_table, METH_VARARGS, nullptr},
                                  {"open_driver", open_driver, METH_VARARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "warpsmith_plans", nullptr, -1, functions,
                                 nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_warpsmith_plans() {
  plan_type.tp_name = "warpsmith_plans.Plan";
  plan_type.tp_basicsize = sizeof(PlanObject);
  plan_type.tp_flags = Py_TPFLAGS_DEFAULT;
  plan_type.tp_dealloc = plan_free;
  table_type.tp_name = "warpsmith_plans.Table";
  table_type.tp_basicsize = sizeof(Table);
  table_type.tp_flags = Py_TPFLAGS_DEFAULT;
  table_type.tp_dealloc = table_free;
  table_type.tp_methods = table_methods;
  if (PyType_Ready(&plan_type) < 0 || PyType_Ready(&table_type) < 0) return nullptr;
  requires_grad_name = PyUnicode_InternFromString("requires_grad");
  zero_name = PyUnicode_InternFromString("zero_");
  if (pthread_atfork(nullptr, nullptr, forked)) return PyErr_NoMemory();
  return PyModule_Create(&definition);
}
"""
