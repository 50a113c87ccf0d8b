"""Maintenance: each action is first a plan (data that prints itself), then an execution of that plan.

`plan_x(catalog, identifier, options) -> XPlan`, `execute_x(catalog, plan) -> XResult`, and `x(...)`, which does both.
"""
