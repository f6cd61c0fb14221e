"""The C++ that launches a plan of several launches as one CUDA graph, since a launch costs the host 4 us and more.

The graph is a chain of kernel nodes, built at some call of a plan on a stream and instantiated once. Each call sets its
own addresses in the instance, which what is in flight does not see, and launches it. Its parts are the driver's own
functions and the layout of CUDA_KERNEL_NODE_PARAMS_v2 (CUDA 12.0 and later), found as those of a launch are.

An instance belongs to one plan, thus to one device, and to one stream: the driver has launches of one instance wait for
each other. Setting addresses and launching are one piece of work under the instance's lock. That lock is only ever
taken without the interpreter's, and nothing of Python's runs under it; all else here runs under the interpreter's.
"""

from __future__ import annotations

GRAPHS = r"""
// ---- CUDA graphs: the layout of kernel nodes as cuda.h gives it
struct Node {
  void* function;
  uint32_t grid[3], block[3], shared;
  void **parameters, **extra, *kernel, *context;
};
static_assert(sizeof(Node) == 72 && offsetof(Node, parameters) == 40, "cuda.h lays it out so");
static struct {
  int (*capturing)(void*, int*);
  int (*exchange_mode)(int*);
  int (*create)(void**, uint32_t);
  int (*add)(void**, void*, void* const*, size_t, const Node*);
  int (*set_attribute)(void*, int, const void*);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*set)(void*, void*, const Node*);
  int (*launch)(void*, void*);
  int (*destroy_instance)(void*);
  int (*destroy)(void*);
} graphs;
static const char* lacking;  // the first of these functions that the driver does not have

static void open_graphs(void* library) {
  const struct { const char* name; void* into; } all[] = {
      {"cuStreamIsCapturing", &graphs.capturing},
      {"cuThreadExchangeStreamCaptureMode", &graphs.exchange_mode},
      {"cuGraphCreate", &graphs.create},
      {"cuGraphAddKernelNode_v2", &graphs.add},
      {"cuGraphKernelNodeSetAttribute", &graphs.set_attribute},
      {"cuGraphInstantiateWithFlags", &graphs.instantiate},
      {"cuGraphExecKernelNodeSetParams_v2", &graphs.set},
      {"cuGraphLaunch", &graphs.launch},
      {"cuGraphExecDestroy", &graphs.destroy_instance},
      {"cuGraphDestroy", &graphs.destroy}};
  lacking = nullptr;
  for (auto& each : all) {
    void* found = dlsym(library, each.name);
    std::memcpy(each.into, &found, sizeof(found));
    if (!found && !lacking) lacking = each.name;
  }
}

// While another thread captures a graph, CUDA forbids this one what may allocate memory, unless it says that it knows.
struct Relaxed {
  int mode = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
  Relaxed() { graphs.exchange_mode(&mode); }
  ~Relaxed() { graphs.exchange_mode(&mode); }
};

struct Failure { const char* function; int status; };
struct Graph;
enum { MOST_GRAPHS = 256 };
static std::vector<Graph*>& kept = *new std::vector<Graph*>;  // of all plans; never destroyed, as plans may outlive it
static u64 uses = 0;
static unsigned forks = 0;  // what was made before the last one is another process's
static void forked() { ++forks; }

struct Graph {
  Plan* plan;
  void* stream;
  unsigned process = forks;
  int calls = 0;  // up to the one that builds it
  u64 used = 0;
  std::mutex lock;  // of what follows
  Failure failure = {};
  void *graph = nullptr, *instance = nullptr;
  std::vector<void*> nodes;

  Graph(Plan* plan, void* stream) : plan(plan), stream(stream) { kept.push_back(this); }
  // The driver frees an instance that is in flight once it has run. When Python ends, modules and contexts may be gone.
  ~Graph() {
    kept.erase(std::remove(kept.begin(), kept.end(), this), kept.end());
#if PY_VERSION_HEX >= 0x030D0000
    bool ending = Py_IsFinalizing();
#else
    bool ending = _Py_IsFinalizing();
#endif
    if (!graph || process != forks || ending) return;
    Relaxed relaxed;
    if (instance) graphs.destroy_instance(instance);
    graphs.destroy(graph);
  }
};

// Why the launches of a plan are never one graph; nothing where they may be.
static const char* unfit(const Plan& plan) {
  uint64_t taken[2] = {};  // bits of the slots that launches have been given: arguments, outputs and scratch
  for (const Step& step : plan.steps) {
    if (step.act == CALL) return "a plan calls a C function";
    if (step.act == ZERO && taken[step.slot / 64] >> step.slot % 64 & 1)
      return "a plan sets memory to zero that an earlier launch of it was given";
    for (const Piece& piece : step.pieces)
      if (piece.kind != NUMBER) taken[piece.slot / 64] |= u64(1) << piece.slot % 64;
    for (const Attribute& attribute : step.attributes)
      if (attribute.id != COOPERATIVE && attribute.id != CLUSTER)
        return attribute.id == PROGRAMMATIC ? "a launch overlaps with the one before it (programmatic serialization)"
                                            : "a launch has an attribute that is not known here";
  }
  return nullptr;
}
static_assert(2 * MOST_SLOTS <= 128, "a bit for each argument, output and scratch tensor");

static void launch_singly(Table* t, Plan& plan, const std::string& why) {
  plan.graphs.clear();
  plan.single = true;
  ++(*t->refused)[why];
}

static void drop_least_used() {
  Graph* least = *std::min_element(kept.begin(), kept.end(), [](Graph* a, Graph* b) { return a->used < b->used; });
  auto& all = least->plan->graphs;
  kept.erase(std::remove(kept.begin(), kept.end(), least), kept.end());  // it lives on where a thread launches it now
  all.erase(std::find_if(all.begin(), all.end(), [least](auto& each) { return each.get() == least; }));
}

// The graph to launch in this call; nothing where the launches go one by one.
static std::shared_ptr<Graph> graph_for(Table* t, Plan& plan, void* stream) {
  if (!t->graphs_from || plan.launches < 2 || plan.single || plan.device < 0) return nullptr;
  if (!plan.graphs.empty() && plan.graphs.front()->process != forks) plan.graphs.clear();
  if (plan.graphs.empty()) {
    const char* why = unfit(plan);
    if (why || lacking) {
      launch_singly(t, plan, why ? why : std::string("CUDA's driver has no ") + lacking);
      return nullptr;
    }
  }
  int capturing = 0;
  if (graphs.capturing(stream, &capturing) || capturing) return nullptr;  // each launch becomes a node of that graph
  std::shared_ptr<Graph> found;
  for (auto& each : plan.graphs)
    if (each->stream == stream) found = each;
  if (!found) {
    if (kept.size() >= MOST_GRAPHS) drop_least_used();
    plan.graphs.push_back(found = std::make_shared<Graph>(&plan, stream));
  }
  found->used = ++uses;
  if (found->calls < t->graphs_from) ++found->calls;
  return found->calls < t->graphs_from ? nullptr : found;
}

// Build the graph with this call's parameters, or set them in its instance. Under its lock.
static Failure prepare(Graph& graph, const Plan& plan, const u64* base) {
  bool built = graph.instance != nullptr;
  size_t at = 0;
  int status;
  if (!built && (status = graphs.create(&graph.graph, 0))) return {"cuGraphCreate", status};
  for (const Step& step : plan.steps) {
    if (step.act != LAUNCH) continue;
    Parameters parameters;
    if ((status = parameters.fill(step, base))) return {"cuTensorMapReplaceAddress", status};
    Node node = {};
    (step.kernel ? node.kernel : node.function) = (void*)step.function;
    std::memcpy(node.grid, step.grid, sizeof(step.grid));
    std::memcpy(node.block, step.block, sizeof(step.block));
    node.shared = step.shared;
    node.parameters = parameters.places;
    if (built) {
      if ((status = graphs.set(graph.instance, graph.nodes[at++], &node)))
        return {"cuGraphExecKernelNodeSetParams", status};
      continue;
    }
    void *made = nullptr, **before = graph.nodes.empty() ? nullptr : &graph.nodes.back();
    if ((status = graphs.add(&made, graph.graph, before, before ? 1 : 0, &node)))
      return {"cuGraphAddKernelNode", status};
    graph.nodes.push_back(made);
    for (const Attribute& attribute : step.attributes)
      if ((status = graphs.set_attribute(made, (int)attribute.id, attribute.value)))
        return {"cuGraphKernelNodeSetAttribute", status};
  }
  if (!built && (status = graphs.instantiate(&graph.instance, graph.graph, 0)))
    return {"cuGraphInstantiate", status};
  return {};
}

// 1: launched; 0: the driver refuses such a graph, and nothing was launched; -1: an error.
static int launch_graph(Table* t, Plan& plan, Graph& graph, const u64* base) {
  Failure failure;
  int status = 0;
  Py_BEGIN_ALLOW_THREADS
  {
    std::lock_guard<std::mutex> locked(graph.lock);
    std::optional<Relaxed> relaxed;
    if (!graph.instance) relaxed.emplace();
    if (!graph.failure.status) graph.failure = prepare(graph, plan, base);
    failure = graph.failure;
    if (!failure.status) status = graphs.launch(graph.instance, graph.stream);
  }
  Py_END_ALLOW_THREADS
  if (failure.status) {
    if (!plan.single) {  // another thread may have been told so too
      std::string number = std::to_string(failure.status);
      launch_singly(t, plan, std::string(failure.function) + ": found status " + number + ", expected 0");
    }
    return 0;
  }
  if (status) {
    PyErr_Format(PyExc_RuntimeError, "cuGraphLaunch: found status %d, expected 0", status);
    return -1;
  }
  ++t->graphed;
  return 1;
}
"""
