"""The names that a candidate may use; every other name is refused.

Dotted names are those that an import leads to: under `import triton.language as tl`, `tl.load` is
`triton.language.load`.
"""

from __future__ import annotations

from warpsmith.kernels_db.job.languages import GATED


def names(text: str, prefix: str = "") -> frozenset[str]:
    """Return the words of `text`, each behind `prefix`."""
    return frozenset(prefix + word for word in text.split())


LANGUAGES = GATED

MAX_BYTES = 256 * 1024
MAX_DEPTH = 90  # of the syntax tree: the checks recurse

_GLUON = "triton.experimental.gluon"
_TILE = "tilelang.language"
_CUTE = "cutlass.cute"
_COMMON_IMPORTS = frozenset({"math", "torch", "__future__.annotations"})
IMPORTS = {
    "cpp": _COMMON_IMPORTS | {"kernels_db.runtime.cpp"},
    "cuda": _COMMON_IMPORTS | {"kernels_db.runtime.cuda"},
    "triton": _COMMON_IMPORTS
    | {
        "triton",
        "triton.language",
        "triton.language.math",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda.libdevice",
        "triton.tools.tensor_descriptor.TensorDescriptor",
    },
    "gluon": _COMMON_IMPORTS
    | names("triton triton.language triton.language.extra.libdevice triton.language.extra.cuda.libdevice")
    | {_GLUON}
    | names(
        """
        language language.extra.libdevice language.nvidia language.nvidia.ampere language.nvidia.ampere.async_copy
        language.nvidia.hopper language.nvidia.hopper.async_copy language.nvidia.hopper.mbarrier
        language.nvidia.hopper.tma
        nvidia.hopper.TensorDescriptor
        """,
        f"{_GLUON}.",
    ),
    "cute": _COMMON_IMPORTS
    | {"cutlass", "kernels_db.runtime.cutedsl"}
    | names("cute cute.arch cute.math cute.nvgpu memory pipeline utils utils.hopper_helpers", "cutlass.")
    | names("cpasync warp warpgroup", f"{_CUTE}.nvgpu.")
    | names(
        """
        cute.AddressSpace cute.ReductionOp cute.nvgpu.CacheEvictionPriority cute.nvgpu.OperandMajorMode
        cute.nvgpu.cpasync.LoadCacheMode cute.nvgpu.warpgroup.Field cute.nvgpu.warpgroup.OperandSource
        cute.nvgpu.warpgroup.SmemLayoutAtomKind pipeline.Agent pipeline.PipelineAsync pipeline.PipelineCpAsync
        pipeline.PipelineTmaAsync pipeline.PipelineTmaStore pipeline.PipelineUserType utils.LayoutEnum
        utils.hopper_helpers.LayoutEnum
        """,
        "cutlass.",
    ),
    "tilelang": _COMMON_IMPORTS | {"tilelang.language", "kernels_db.runtime.tilelang"},
}
"""Modules that `import a.b` and `from a import b` may lead to. Gluon takes enums alone of `triton.language`.

`from m import name` also takes single allowed names.
"""

BUILTINS = names(
    """
    abs all any bool divmod enumerate float int len list max min pow range reversed round sorted sum tuple zip
    """
)
CONTAINER_BUILTINS = names("enumerate len list reversed tuple zip")
"""Builtins that only arrange their arguments, so that tensors may pass through them."""
EXCEPTIONS = names("AssertionError NotImplementedError RuntimeError TypeError ValueError")

MATH = names(
    """
    acos asin atan atan2 ceil comb copysign cos cosh degrees e erf exp fabs floor fmod frexp gcd hypot inf isfinite
    isinf isnan isqrt lcm ldexp log log10 log1p log2 modf nan pi pow prod radians sin sinh sqrt tan tanh tau trunc
    """,
    "math.",
)
DTYPES = names(
    """
    bfloat16 bool complex128 complex64 double float float16 float32 float64 float8_e4m3fn float8_e5m2 half int int16
    int32 int64 int8 long short uint16 uint32 uint64 uint8
    """,
    "torch.",
)
ANNOTATIONS = names("Tensor dtype device", "torch.")
SCRATCH = names("empty empty_like empty_strided full zeros zeros_like", "torch.")
"""Scratch memory. Filling it is allowed because atomics and partial sums start from a value."""
SCRATCH_KEYWORDS = names("device dtype fill_value size stride")

GLUON_LAYOUTS = names(
    """
    AutoLayout BlockedLayout CoalescedLayout DistributedLinearLayout DotOperandLayout NVMMADistributedLayout
    NVMMASharedLayout NVMMASharedLayout.get_default_for PaddedSharedLayout SharedLinearLayout SliceLayout
    SwizzledSharedLayout nvidia.ampere.mbarrier.MBarrierLayout nvidia.hopper.mbarrier.MBarrierLayout
    """,
    f"{_GLUON}.language.",
)
"""Values that say which thread holds which element. They are made on the host as in a kernel.

They keep what they are given, unchecked, so `tensors` refuses a tensor among it.
"""

NUMBER_CALLS = MATH | names("cdiv next_power_of_2", "triton.")
"""Functions of numbers alone. Triton's two are Python's operators, which on a tensor are torch's."""
DESCRIPTORS = frozenset(
    {
        "triton.tools.tensor_descriptor.TensorDescriptor",
        "triton.tools.tensor_descriptor.TensorDescriptor.from_tensor",
        f"{_GLUON}.nvidia.hopper.TensorDescriptor",
        f"{_GLUON}.nvidia.hopper.TensorDescriptor.from_tensor",
        "kernels_db.runtime.cuda.tensor_map",
    }
)
"""What describes a tensor to a kernel, and holds it."""
HOST_CALLS = NUMBER_CALLS | SCRATCH | GLUON_LAYOUTS | DESCRIPTORS | {"torch.cuda.get_device_properties"}
HOST_ATTRIBUTES = names("T device dtype index is_cuda itemsize mT major minor multi_processor_count ndim shape type")
"""Attributes of any value in `run` and helpers."""

VIEWS = names(
    """
    chunk detach diagonal expand expand_as flatten movedim narrow permute reshape select split squeeze swapaxes swapdims
    t tensor_split transpose unbind unflatten unfold unsqueeze view view_as
    """
)
"""Methods that view a tensor.

`reshape` and `flatten` copy where no view exists, which computes nothing; `contiguous`, `clone`, `to` and `copy_` are
copies by name and count as library calls.
"""
SCRATCH_METHODS = names("fill_ new_empty new_full new_zeros zero_")
NUMBERS = names(
    """
    bit_length data_ptr dim element_size get is_contiguous items keys nelement numel size storage_offset stride values
    """
)
"""Methods that give a number, a shape or an entry of a constant table."""
HOST_METHODS = VIEWS | SCRATCH_METHODS | NUMBERS

TILE_DYNAMIC = f"{_TILE}.dynamic"
"""A size that is known when a function is compiled."""
MODULE_CALLS = (
    MATH
    | GLUON_LAYOUTS
    | names("cdiv experimental.gluon.language.constexpr language.constexpr next_power_of_2", "triton.")
    | {TILE_DYNAMIC}
)
COMPILERS = {"cpp": "kernels_db.runtime.cpp.compile", "cuda": "kernels_db.runtime.cuda.compile"}
CUTE_JIT = f"{_CUTE}.jit"
TILE_FUNCTION = f"{_TILE}.prim_func"
LAUNCHERS = {
    "cute": ("kernels_db.runtime.cutedsl.compile", CUTE_JIT),
    "tilelang": ("kernels_db.runtime.tilelang.compile", TILE_FUNCTION),
}
"""By language, what makes a function callable, and the decorator of that function: the argument is the function, where
those above take a source."""
MAKES_CALLABLE = frozenset(makes for makes, _ in LAUNCHERS.values())
CUTE_LAUNCH = names("block cluster cooperative grid min_blocks_per_mp smem use_pdl")
"""Keywords of a launch in a `@cute.jit` function. The stream is the one on which the function is called."""
_JIT = names("do_not_specialize do_not_specialize_on_alignment noinline")
_TUNING = {
    "triton.autotune": names("configs key reset_to_zero restore_value"),
    "triton.heuristics": names("values"),
}
DECORATORS: dict[str, dict[str, frozenset[str]]] = {
    "triton": {"triton.jit": _JIT, **_TUNING},
    "gluon": {f"{_GLUON}.jit": _JIT, **_TUNING},
    "cute": {f"{_CUTE}.kernel": frozenset(), CUTE_JIT: frozenset()},
    "tilelang": {TILE_FUNCTION: frozenset(), f"{_TILE}.macro": frozenset()},
}
"""By language, the decorators of a kernel, with the keywords that each may have.

No hooks: these are host code that runs at a launch. A language that is not here has its kernels in a source of its own.
"""
KERNEL_DECORATORS = frozenset().union(*DECORATORS.values())
"""Every decorator that makes a kernel, whichever language allows it."""
CONFIG_KEYWORDS = names("kwargs maxnreg num_ctas num_stages num_warps")
TRITON_LAUNCH = names("launch_cooperative_grid launch_pdl maxnreg num_ctas num_stages num_warps")
CUDA_LAUNCH = names("block cluster cooperative grid shared_bytes")

_TRITON_NAMES = (
    names(
        """
        TRITON_MAX_TENSOR_NUMEL abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and
        atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor bfloat16 block_type broadcast broadcast_to
        cast cat cdiv ceil clamp const constexpr cos cumprod cumsum debug_barrier device_assert div_rn dot dot_scaled
        dtype erf exp exp2 expand_dims fdiv flip float16 float32 float64 float8e4b15 float8e4nv float8e5 floor fma full
        gather histogram inline_asm_elementwise int1 int16 int32 int64 int8 interleave join load load_tensor_descriptor
        log log2        make_block_ptr make_tensor_descriptor map_elementwise max max_constancy max_contiguous maximum
        min minimum mul multiple_of num_programs permute philox pi32_t pointer_type program_id rand rand4x randint
        randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn
        squeeze static_assert static_range store store_tensor_descriptor sub sum swizzle2d tensor tensor_descriptor topk
        trans tuple uint16 uint32 uint64 uint8 umulhi unsqueeze view void where xor_sum zeros zeros_like
        """,
        "triton.language.",
    )
    | names(
        "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi",
        "triton.language.math.",
    )
    | names("cdiv next_power_of_2", "triton.")
)
_LIBDEVICE = """
    abs acos acosh add_rd add_rn add_ru add_rz asin asinh atan atan2 atanh brev byte_perm cbrt ceil clz copysign cos
    cosh cospi cyl_bessel_i0 cyl_bessel_i1 div_rd div_rn div_ru div_rz double_as_longlong erf erfc erfcinv erfcx erfinv
    exp exp10 exp2 expm1 fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf
    fast_sinf fast_tanf fast_tanhf fdim ffs finitef float2int_rd float2int_rn float2int_ru float2int_rz float_as_int
    float_as_uint floor fma fma_rd fma_rn fma_ru fma_rz fmod hypot ilogb int2float_rn int_as_float isfinited isinf isnan
    j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb longlong_as_double mul24 mul_rd mul_rn mul_ru mul_rz
    mulhi nearbyint nextafter norm3d norm4d normcdf normcdfinv popc pow rcbrt rcp_rd rcp_rn rcp_ru rcp_rz remainder
    rhypot rint round rsqrt rsqrt_rn saturatef scalbn signbit sin sinh sinpi sqrt sqrt_rd sqrt_rn sqrt_ru sqrt_rz sub_rd
    sub_rn sub_ru sub_rz tan tanh tgamma trunc uint2float_rn uint_as_float y0 y1 yn
    """
_LIBDEVICE_NAMES = names(_LIBDEVICE, "triton.language.extra.libdevice.") | names(
    _LIBDEVICE, "triton.language.extra.cuda.libdevice."
)
_ASYNC_COPY = names("async_copy_global_to_shared commit_group mbarrier_arrive wait_group", "async_copy.")
_MBARRIER = names("allocate_mbarrier arrive expect init invalidate wait", "mbarrier.")
_HOPPER = (
    names("fence_async_shared mma_v2 warpgroup_mma warpgroup_mma_init warpgroup_mma_wait")
    | names("async_copy_global_to_shared async_copy_shared_to_global make_tensor_descriptor store_wait", "tma.")
    | names("tensor_descriptor tensor_descriptor_type", "tma.")
    | _ASYNC_COPY
    | _MBARRIER
)
_GLUON_NAMES = (
    GLUON_LAYOUTS
    | names(
        """
        abs add allocate_shared_memory arange associative_scan assume atomic_add atomic_and atomic_cas atomic_max
        atomic_min atomic_or atomic_xchg atomic_xor barrier bfloat16 block_type broadcast cast cdiv ceil constexpr
        convert_layout cos device_assert div_rn dot_fma dtype erf exp exp2 expand_dims fdiv float16 float32 float64
        float8e4b15 float8e4nv float8e5 floor fma fp4_to_fp full full_like gather histogram inline_asm_elementwise int1
        int16 int32 int64 int8 join load log log2 map_elementwise max max_constancy max_contiguous maximum min minimum
        mul multiple_of num_ctas num_programs num_warps permute pointer_type program_id ravel reduce reduce_or reshape
        rsqrt set_auto_layout shared_memory_descriptor sin split sqrt sqrt_rn static_assert static_range store sub sum
        tensor thread_barrier to_tensor tuple uint16 uint32 uint64 uint8 umulhi warp_specialize where xor_sum zeros
        zeros_like
        """,
        f"{_GLUON}.language.",
    )
    | frozenset(f"{_GLUON}.language.nvidia.hopper.{name}" for name in _HOPPER)
    | frozenset(f"{_GLUON}.language.nvidia.ampere.{name}" for name in _ASYNC_COPY | _MBARRIER | {"mma_v2"})
    | names(_LIBDEVICE, f"{_GLUON}.language.extra.libdevice.")
    | names("cdiv next_power_of_2", "triton.")
    | _LIBDEVICE_NAMES
)
_CUTE_DTYPES = """
    BFloat16 Boolean Float16 Float32 Float64 Float8E4M3FN Float8E5M2 Int16 Int32 Int64 Int8 Numeric Pointer Shape Tensor
    TFloat32 Uint16 Uint32 Uint64 Uint8
    """
_CUTE_MATH = """
    absf absi acos acosh asin asinh atan atan2 atanh cbrt ceil clamp copysign cos cosh erf erfc exp exp2 expm1 floor fma
    fpowi ipowi isfinite isinf isnan isnormal log log10 log1p log2 max min pow rem round roundeven rsqrt sin sincos sinh
    sqrt tan tanh trunc
    """
_CUTE_NAMES = (
    names(_CUTE_DTYPES, "cutlass.")
    | names(
        """
        AddressSpace.gmem AddressSpace.rmem AddressSpace.smem Constexpr GridConstant Layout all_ and_ any_ const_expr
        max min not_ or_ range range_constexpr select_
        """,
        "cutlass.",
    )
    | names(_CUTE_DTYPES, f"{_CUTE}.")
    | names(_CUTE_MATH, f"{_CUTE}.")
    | names(_CUTE_MATH, f"{_CUTE}.math.")
    | names(
        """
        AddressSpace.gmem AddressSpace.rmem AddressSpace.smem Atom ComposedLayout CopyAtom Layout MmaAtom
        ReductionOp.ADD ReductionOp.MAX ReductionOp.MIN ReductionOp.MUL Swizzle TensorSSA ThrCopy ThrMma Tile TiledCopy
        TiledMma all_ any_ append append_ones assume autovec_copy basic_copy basic_copy_if blocked_product ceil_div
        coalesce complement composition copy copy_atom_call cosize crd2idx depth domain_offset elem_less empty_like
        filter filter_zeros flat_divide flat_product flatten flatten_to_tuple front full full_like gemm get group_modes
        idx2crd is_static left_inverse local_partition local_tile logical_divide logical_product make_composed_layout
        make_copy_atom make_cotiled_copy make_fragment_like make_identity_layout make_identity_tensor make_layout
        make_layout_like make_layout_tv make_mma_atom make_ordered_layout make_rmem_tensor make_rmem_tensor_like
        make_swizzle make_tensor make_tiled_copy make_tiled_copy_A make_tiled_copy_B make_tiled_copy_C
        make_tiled_copy_C_atom make_tiled_copy_D make_tiled_copy_S make_tiled_copy_tv make_tiled_mma max_common_layout
        max_common_vector mma_atom_call ones_like prefetch prepend prepend_ones product product_each raked_product rank
        recast_layout recast_ptr recast_tensor repeat repeat_like right_inverse round_up select shape shape_div size
        size_in_bytes slice_ tile_to_shape tiled_divide tiled_product tuple_cat where zeros_like zipped_divide
        zipped_product
        """,
        f"{_CUTE}.",
    )
    | names(
        """
        WARP_SIZE activemask alloc_smem atomic_add atomic_and atomic_cas atomic_exch atomic_fmax atomic_fmin atomic_max
        atomic_max_float32 atomic_min atomic_or atomic_xor barrier barrier_arrive block_dim block_idx
        block_idx_in_cluster block_in_cluster_dim block_in_cluster_idx brev clz cluster_arrive cluster_arrive_relaxed
        cluster_dim cluster_idx cluster_size cluster_wait cp_async_bulk_commit_group cp_async_bulk_wait_group
        cp_async_commit_group cp_async_mbarrier_arrive_noinc cp_async_wait_group elect_one exp exp2
        fence_acq_rel_cluster fence_acq_rel_cta fence_acq_rel_gpu fence_proxy fence_view_async_shared fma_packed_f32x2
        fmax fmin grid_dim griddepcontrol_launch_dependents griddepcontrol_wait lane_idx lop3 make_warp_uniform
        map_dsmem_ptr match_sync mbarrier_arrive mbarrier_arrive_and_expect_tx mbarrier_expect_tx mbarrier_init
        mbarrier_init_fence mbarrier_test_wait mbarrier_try_wait mbarrier_wait mul_hi popc prefetch prmt rcp_approx
        setmaxregister_decrease setmaxregister_increase shf shuffle_sync shuffle_sync_bfly shuffle_sync_down
        shuffle_sync_up store_async_dsmem sync_threads sync_warp thread_idx vote_all_sync vote_any_sync vote_ballot_sync
        vote_uni_sync warp_idx warp_reduction_max warp_reduction_sum warpgroup_reg_alloc warpgroup_reg_dealloc
        """,
        f"{_CUTE}.arch.",
    )
    | names(
        """
        CacheEvictionPriority.EVICT_FIRST CacheEvictionPriority.EVICT_LAST CacheEvictionPriority.EVICT_NORMAL
        CacheEvictionPriority.NO_ALLOCATE CopyUniversalOp MmaUniversalOp OperandMajorMode.K OperandMajorMode.MN
        make_tiled_tma_atom_A make_tiled_tma_atom_B make_tiled_tma_atom_C cpasync.CopyBulkG2SOp cpasync.CopyBulkS2GOp
        cpasync.CopyBulkTensorTileG2SMulticastOp cpasync.CopyBulkTensorTileG2SOp cpasync.CopyBulkTensorTileS2GOp
        cpasync.CopyG2SOp cpasync.CopyReduceBulkTensorTileS2GOp cpasync.LoadCacheMode.ALWAYS
        cpasync.LoadCacheMode.GLOBAL cpasync.create_tma_multicast_mask cpasync.group_bulk_copy_modes
        cpasync.make_tiled_tma_atom cpasync.prefetch_descriptor cpasync.tma_partition warp.LdMatrix8x8x16bOp
        warp.MmaF16BF16Op warp.MmaFP8Op warp.MmaTF32Op warp.StMatrix8x8x16bOp warpgroup.Field.ACCUMULATE
        warpgroup.MmaF16BF16Op warpgroup.MmaF8Op warpgroup.OperandSource.RMEM warpgroup.OperandSource.SMEM
        warpgroup.SmemLayoutAtomKind.K_INTER warpgroup.SmemLayoutAtomKind.K_SW128 warpgroup.SmemLayoutAtomKind.K_SW32
        warpgroup.SmemLayoutAtomKind.K_SW64 warpgroup.SmemLayoutAtomKind.MN_INTER warpgroup.SmemLayoutAtomKind.MN_SW128
        warpgroup.SmemLayoutAtomKind.MN_SW32 warpgroup.SmemLayoutAtomKind.MN_SW64 warpgroup.commit_group warpgroup.fence
        warpgroup.make_smem_layout_atom warpgroup.wait_group
        """,
        f"{_CUTE}.nvgpu.",
    )
    | names(
        """
        Agent.Thread CooperativeGroup NamedBarrier PipelineAsync.create PipelineCpAsync.create PipelineTmaAsync.create
        PipelineTmaStore.create PipelineUserType.Consumer PipelineUserType.Producer arrive arrive_and_wait
        make_pipeline_state sync wait
        """,
        "cutlass.pipeline.",
    )
    | names("SmemAllocator get_smem_capacity_in_bytes", "cutlass.memory.")
    | names(
        """
        LayoutEnum.COL_MAJOR LayoutEnum.ROW_MAJOR LayoutEnum.from_tensor SmemAllocator get_smem_capacity_in_bytes
        hopper_helpers.LayoutEnum.COL_MAJOR hopper_helpers.LayoutEnum.ROW_MAJOR hopper_helpers.LayoutEnum.from_tensor
        hopper_helpers.get_smem_layout_atom hopper_helpers.get_smem_store_op hopper_helpers.make_smem_layout_a
        hopper_helpers.make_smem_layout_b hopper_helpers.make_smem_layout_epi hopper_helpers.make_trivial_tiled_mma
        """,
        "cutlass.utils.",
    )
    | MATH
)
TILE_KERNEL, TILE_TENSOR = f"{_TILE}.Kernel", f"{_TILE}.Tensor"
_TILE_DTYPES = names(
    """
    bfloat16 bool float16 float32 float64 float8_e4m3fn float8_e5m2 int16 int32 int64 int8 uint16 uint32 uint64 uint8
    """,
    f"{_TILE}.",
)
_TILE_NAMES = (
    names(
        """
        Cast GemmWarpPolicy.FullCol GemmWarpPolicy.FullRow GemmWarpPolicy.Square Parallel Pipelined abs all_of
        alloc_fragment alloc_local alloc_shared alloc_var any_of atan atan2 atomic_add atomic_addx2 atomic_addx4
        atomic_max atomic_min cast ceil ceildiv clamp clear copy copysign cos cosh cumsum erf exp exp10 exp2 fill floor
        floordiv floormod gemm get_thread_binding if_then_else infinity isinf isnan log log10 log1p log2 max max_value
        min min_value nearbyint pow reduce_absmax reduce_abssum reduce_bitand reduce_bitor reduce_bitxor reduce_max
        reduce_min reduce_sum reinterpret reshape round rsqrt serial shfl_down shfl_up shfl_xor sigmoid sin sinh sqrt
        sync_threads sync_warp tan tanh trunc truncdiv truncmod unroll use_swizzle vectorized warp_reduce_max
        warp_reduce_min warp_reduce_sum
        """,
        f"{_TILE}.",
    )
    | _TILE_DTYPES
    | MATH
)
TILE_KEYWORDS = names(
    """
    batch clear clear_accum coalesced_width dim disable_tma dtype enable init nan_propagate num_stages order panel_size
    policy return_prev reverse shape threads transpose_A transpose_B width
    """
)
"""Keywords of TileLang's functions. Left out: memory's scope, source for a kernel (`prelude`), clusters, annotations of
the program."""
TILE_POSITIONAL = {
    TILE_TENSOR: ("shape", "dtype"),
    f"{_TILE}.alloc_fragment": ("shape", "dtype"),
    f"{_TILE}.alloc_local": ("shape", "dtype"),
    f"{_TILE}.alloc_shared": ("shape", "dtype"),
    f"{_TILE}.alloc_var": ("dtype",),
}
"""By function of TileLang's, its arguments by position. Behind them a tensor takes an address, memory its scope."""
KERNEL_NAMES = {
    "triton": _TRITON_NAMES | _LIBDEVICE_NAMES,
    "gluon": _GLUON_NAMES,
    "cute": _CUTE_NAMES,
    "tilelang": _TILE_NAMES,
}
"""By language, what a kernel's function may use. Clocks, printing and the random generator's internals are left out.

Of Gluon also what is for AMD's devices and for Blackwell: nothing here has compiled or run it. Of CuTe DSL what is for
Blackwell, what makes pointers of numbers, inline PTX, foreign functions, and what takes a function of Python's. Of
TileLang what names a function or source of C's (`call_extern`, `import_source`), makes tensors of addresses, allocates
memory that outlives a launch (`alloc_global`), waits for the whole grid, and what is for Blackwell.
"""
KERNEL_VALUES = names("PropagateNan.ALL PropagateNan.NONE", "triton.language.")
"""Members of Triton's enums, which a kernel passes on and does not call.

ALL keeps NaN in `maximum`, `minimum` and `clamp`, as PyTorch does. The enum itself is left out: its other attributes
are Python's.
"""
KERNEL_BUILTINS = names("abs bool float int len max min range tuple")
_KERNEL_ATTRIBUTES = names(
    """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or
    atomic_xchg atomic_xor block_shape broadcast_to cast cdiv ceil cos cumprod cumsum dtype element_ty erf exp exp2
    expand_dims flip floor gather histogram is_bf16 is_floating is_fp16 is_fp32 is_int load log log2 logical_and
    logical_or max min ndim permute primitive_bitwidth ravel reduce reshape rsqrt scatter shape sigmoid sin softmax sort
    split sqrt sqrt_rn store sum to trans type value view xor_sum
    """
)
KERNEL_ATTRIBUTES = {
    "triton": _KERNEL_ATTRIBUTES,
    "gluon": _KERNEL_ATTRIBUTES
    | names("_keep_alive _reinterpret block_type index layout nbytes nbytes_per_cta numel rank slice"),
    "cute": names(
        """
        T acquire advance align alignment allocate allocate_array allocate_tensor arrive arrive_and_wait bitcast
        broadcast_to clone commit consumer_get_barrier consumer_release consumer_try_wait consumer_wait count dtype
        element_type fill get get_slice get_tile_size index inner iterator launch layout leading_dim load
        make_fragment_A make_fragment_B make_fragment_C memspace numel outer partition_A partition_B partition_C
        partition_D partition_S partition_shape_A partition_shape_B partition_shape_C permutation_mnk phase
        producer_acquire producer_commit producer_get_barrier producer_tail producer_try_acquire reduce release reset
        reshape retile set shape shape_mnk size store stride sync tail thr_id tiler_mn to try_wait value_type wait width
        """
    ),
    "tilelang": names("dtype shape"),
}
"""By language, attributes and methods of values inside a kernel's function.

Gluon's values are tensors with layouts, shared memory and tensor descriptors. `_reinterpret` views shared memory, which
is the block's own, under another dtype, shape or layout.
"""
