"""Compare what a rig's ledger says with the model, its gradients and its optimizers.

The auditor shares no code with the dispatch of hooks. So if the rig misses a change of the model, the auditor still
notices that a hook did not act.
"""

from tenterhook.audit.auditor import Auditor as Auditor
from tenterhook.audit.imbalance import Imbalance as Imbalance
from tenterhook.audit.imbalance import Imbalances as Imbalances
