"""Define plans, which describe as data what to observe or change. This package does not import torch."""

from tenterhook.plan.hook import ALWAYS as ALWAYS
from tenterhook.plan.hook import Action as Action
from tenterhook.plan.hook import Hook as Hook
from tenterhook.plan.hook import Phase as Phase
from tenterhook.plan.hook import When as When
from tenterhook.plan.hook import callable_name as callable_name
from tenterhook.plan.hook import callable_place as callable_place
from tenterhook.plan.plan import Plan as Plan
from tenterhook.plan.points import NOT_OFFERED as NOT_OFFERED
from tenterhook.plan.points import POINTS as POINTS
from tenterhook.plan.points import TRAINING as TRAINING
from tenterhook.plan.points import Kind as Kind
from tenterhook.plan.points import Point as Point
from tenterhook.plan.points import PointName as PointName
from tenterhook.plan.points import unknown_point as unknown_point
from tenterhook.plan.select import ROOT as ROOT
from tenterhook.plan.select import Selector as Selector
