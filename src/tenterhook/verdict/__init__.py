"""Find out what went wrong in the training itself, and say it in one sentence."""

from tenterhook.verdict.alerts import Alert as Alert
from tenterhook.verdict.examiner import watch_training as watch_training
from tenterhook.verdict.flight import flight as flight
from tenterhook.verdict.flight import flight_plan as flight_plan
from tenterhook.verdict.rules.untrained import idle_optimizer as idle_optimizer
