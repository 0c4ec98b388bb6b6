"""Wrap all private torch attributes that tenterhook uses, and state the torch versions they were tested with.

`tests/torch_internals` fails when torch changes an attribute that a function relies on. The module `compiler` is only
for torch.compile, so it is imported separately. `code_owner` uses no private attribute, but depends on the location of
torch's code.
"""

from tenterhook.torch_internals.torch_version import check_version  # isort: split

check_version()  # first: an older torch lacks attributes that the other modules read when they are imported

from tenterhook.torch_internals.autograd import ENGINE_ENTRY as ENGINE_ENTRY
from tenterhook.torch_internals.autograd import DispatchMode as DispatchMode
from tenterhook.torch_internals.autograd import TensorMark as TensorMark
from tenterhook.torch_internals.autograd import accumulated_into as accumulated_into
from tenterhook.torch_internals.autograd import at_end_of_backward as at_end_of_backward
from tenterhook.torch_internals.autograd import checkpointed as checkpointed
from tenterhook.torch_internals.autograd import checkpoints_around as checkpoints_around
from tenterhook.torch_internals.autograd import current_node as current_node
from tenterhook.torch_internals.autograd import divisor_of as divisor_of
from tenterhook.torch_internals.autograd import factor_of as factor_of
from tenterhook.torch_internals.autograd import graph_task_id as graph_task_id
from tenterhook.torch_internals.autograd import implementation as implementation
from tenterhook.torch_internals.autograd import implementations as implementations
from tenterhook.torch_internals.autograd import is_batched as is_batched
from tenterhook.torch_internals.autograd import is_functorch as is_functorch
from tenterhook.torch_internals.autograd import is_mean as is_mean
from tenterhook.torch_internals.autograd import keeps_graph as keeps_graph
from tenterhook.torch_internals.autograd import memory_users as memory_users
from tenterhook.torch_internals.autograd import node_key as node_key
from tenterhook.torch_internals.autograd import node_number as node_number
from tenterhook.torch_internals.autograd import read_version as read_version
from tenterhook.torch_internals.autograd import saved_tensors_hooks as saved_tensors_hooks
from tenterhook.torch_internals.autograd import sequence_number as sequence_number
from tenterhook.torch_internals.autograd import set_versions as set_versions
from tenterhook.torch_internals.autograd import version as version
from tenterhook.torch_internals.autograd import version_counter as version_counter
from tenterhook.torch_internals.autograd import versions as versions
from tenterhook.torch_internals.autograd import view_base as view_base
from tenterhook.torch_internals.capabilities import Capability as Capability
from tenterhook.torch_internals.capabilities import require as require
from tenterhook.torch_internals.capabilities import warn_of as warn_of
from tenterhook.torch_internals.cuda_graphs import watch_captures as watch_captures
from tenterhook.torch_internals.distributed import Connection as Connection
from tenterhook.torch_internals.distributed import ReduceKind as ReduceKind
from tenterhook.torch_internals.distributed import creates_optimizer_state as creates_optimizer_state
from tenterhook.torch_internals.distributed import ddp_around as ddp_around
from tenterhook.torch_internals.distributed import default_store as default_store
from tenterhook.torch_internals.distributed import device_of_reduction as device_of_reduction
from tenterhook.torch_internals.distributed import infers_shapes as infers_shapes
from tenterhook.torch_internals.distributed import is_filled_by_ddp as is_filled_by_ddp
from tenterhook.torch_internals.distributed import is_simulated as is_simulated
from tenterhook.torch_internals.distributed import is_stage as is_stage
from tenterhook.torch_internals.distributed import reduces_in_other_dtype as reduces_in_other_dtype
from tenterhook.torch_internals.distributed import root_mesh as root_mesh
from tenterhook.torch_internals.distributed import shard_groups as shard_groups
from tenterhook.torch_internals.distributed import splits_backward as splits_backward
from tenterhook.torch_internals.distributed import syncs as syncs
from tenterhook.torch_internals.distributed import uses_join as uses_join
from tenterhook.torch_internals.foreach import foreach_clamp_max_ as foreach_clamp_max_
from tenterhook.torch_internals.foreach import foreach_clamp_min_ as foreach_clamp_min_
from tenterhook.torch_internals.foreach import foreach_copy_ as foreach_copy_
from tenterhook.torch_internals.foreach import foreach_mul_ as foreach_mul_
from tenterhook.torch_internals.foreach import foreach_norm as foreach_norm
from tenterhook.torch_internals.foreach import foreach_zero_ as foreach_zero_
from tenterhook.torch_internals.hook_dicts import EVERY_CALL as EVERY_CALL
from tenterhook.torch_internals.hook_dicts import EVERY_STEP as EVERY_STEP
from tenterhook.torch_internals.hook_dicts import HOOK_SLOTS as HOOK_SLOTS
from tenterhook.torch_internals.hook_dicts import MODULE_SLOTS as MODULE_SLOTS
from tenterhook.torch_internals.hook_dicts import OPTIMIZER_SLOTS as OPTIMIZER_SLOTS
from tenterhook.torch_internals.hook_dicts import OUTPUT_ENTRY as OUTPUT_ENTRY
from tenterhook.torch_internals.hook_dicts import STATE_REGISTRARS as STATE_REGISTRARS
from tenterhook.torch_internals.hook_dicts import call_kwargs as call_kwargs
from tenterhook.torch_internals.hook_dicts import count_hooks as count_hooks
from tenterhook.torch_internals.hook_dicts import drop_empty_tensor_hooks as drop_empty_tensor_hooks
from tenterhook.torch_internals.hook_dicts import first_handle as first_handle
from tenterhook.torch_internals.hook_dicts import forget_hook as forget_hook
from tenterhook.torch_internals.hook_dicts import gets_kwargs as gets_kwargs
from tenterhook.torch_internals.hook_dicts import has_step_hooks as has_step_hooks
from tenterhook.torch_internals.hook_dicts import hooks_in as hooks_in
from tenterhook.torch_internals.hook_dicts import insert_hook as insert_hook
from tenterhook.torch_internals.hook_dicts import is_before_others as is_before_others
from tenterhook.torch_internals.hook_dicts import is_only as is_only
from tenterhook.torch_internals.hook_dicts import optimizer_hooks as optimizer_hooks
from tenterhook.torch_internals.hook_dicts import put_in_order as put_in_order
from tenterhook.torch_internals.hook_dicts import register_first as register_first
from tenterhook.torch_internals.hook_dicts import registered_by as registered_by
from tenterhook.torch_internals.hook_dicts import registered_in as registered_in
from tenterhook.torch_internals.hook_dicts import reinstall_tensor_hooks as reinstall_tensor_hooks
from tenterhook.torch_internals.hook_dicts import running_hook as running_hook
from tenterhook.torch_internals.hook_dicts import step_depth as step_depth
from tenterhook.torch_internals.hook_dicts import tensor_hooks as tensor_hooks
from tenterhook.torch_internals.model import CLIP_ENTRY as CLIP_ENTRY
from tenterhook.torch_internals.model import FUNCTIONAL_ENTRY as FUNCTIONAL_ENTRY
from tenterhook.torch_internals.model import TRANSPARENT as TRANSPARENT
from tenterhook.torch_internals.model import calls_of as calls_of
from tenterhook.torch_internals.model import child_modules as child_modules
from tenterhook.torch_internals.model import children_of as children_of
from tenterhook.torch_internals.model import clear_scale as clear_scale
from tenterhook.torch_internals.model import found_inf as found_inf
from tenterhook.torch_internals.model import is_called_here as is_called_here
from tenterhook.torch_internals.model import is_scripted as is_scripted
from tenterhook.torch_internals.model import own_parameters as own_parameters
from tenterhook.torch_internals.model import parameters_of as parameters_of
from tenterhook.torch_internals.model import pending_scale as pending_scale
from tenterhook.torch_internals.model import runs_a_pass as runs_a_pass
