"""Actions define what a hook does with a tensor.

An action receives a tensor and a context, but not the model or other hooks. Actions do not wait for the device and do
not call collectives.
"""

from tenterhook.actions.batched import BatchMeasure as BatchMeasure
from tenterhook.actions.batched import TensorSpec as TensorSpec
from tenterhook.actions.context import Context as Context
from tenterhook.actions.definition import Definition as Definition
from tenterhook.actions.definition import Partial as Partial
from tenterhook.actions.definition import plain_definition as plain_definition
from tenterhook.actions.digest import digest as digest
from tenterhook.actions.digest import weight_digest as weight_digest
from tenterhook.actions.modify import clip_adaptive as clip_adaptive
from tenterhook.actions.modify import clip_norm as clip_norm
from tenterhook.actions.modify import clip_value as clip_value
from tenterhook.actions.modify import clip_zscore as clip_zscore
from tenterhook.actions.modify import mask as mask
from tenterhook.actions.modify import nan_to_num as nan_to_num
from tenterhook.actions.modify import noise as noise
from tenterhook.actions.modify import reverse as reverse
from tenterhook.actions.modify import scale as scale
from tenterhook.actions.modify import steer as steer
from tenterhook.actions.observe import capture as capture
from tenterhook.actions.observe import ratio as ratio
from tenterhook.actions.observe import spike as spike
from tenterhook.actions.observe import watch_nonfinite as watch_nonfinite
from tenterhook.actions.registry import BUILTIN as BUILTIN
from tenterhook.actions.registry import DEFAULT as DEFAULT
from tenterhook.actions.registry import Registry as Registry
from tenterhook.actions.registry import action as action
from tenterhook.actions.replicas import replicas as replicas
from tenterhook.actions.skew import skew as skew
from tenterhook.actions.stats import histogram as histogram
from tenterhook.actions.stats import stats as stats
from tenterhook.actions.stats import unmeasurable as unmeasurable
